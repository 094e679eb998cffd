//! The gate for batch work around a client: admits requests by credit.
//!
//! [`plimsoll_core::batch`] decides, under one short lock that only batch requests take. A
//! [`Place`] is a request's right to be at a backend. It goes with the attempt, and the gate learns
//! of its end exactly once. The end of a place and each arrival wake the next request. A rest may
//! have no such event. The first request in the queue holds a timer for its end: places end
//! anywhere, even on a thread without a runtime, but a waiting request always has one.

use std::fmt;
use std::hash::BuildHasher as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::batch::{
    ActiveRequest, BatchConfig, BatchFailure, BatchVerdict, Counts, Fate, Gate, GiveUpReason, History, Ticket,
    WaitResult,
};
use plimsoll_core::{Criticality, LoadReport, Timestamp};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::Sleep;

use crate::clock::Clock;

/// A gate for batch work: admits many requests, and keeps few at backends. Clones are the same
/// gate.
///
/// Requests pass through it by [`RequestOptions::with_batch`](super::RequestOptions::with_batch).
#[derive(Clone)]
#[doc(alias = "background work")]
pub struct Batch(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    gate: Gate<Waker>,
    rng: Pcg64Mcg,
    /// Requests that pause before they wait for a place again, by rank of their criticality.
    paused: [usize; Criticality::ALL.len()],
    /// Requests that waited for as long as they may.
    timed_out: u64,
}

/// The state of a gate for batch work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchView {
    /// Waiting requests by criticality, with those that pause after a failure.
    pub queued: [(Criticality, usize); Criticality::ALL.len()],
    /// Requests at backends.
    pub active: u32,
    /// The current limit on requests at backends.
    pub credit: f64,
    /// The highest value of that limit.
    pub max_active: u32,
    /// The mean utilization that backends reported lately; `None` without reports.
    pub utilization: Option<f64>,
    /// The decisions so far.
    pub counts: Counts,
    /// Requests that reached the longest wait.
    pub timed_out: u64,
}

/// Why a wait ended without a place: the queue was full. With the time after which to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull(pub(super) Duration);

impl Batch {
    /// An unused gate.
    #[must_use]
    pub fn new(config: BatchConfig) -> Self {
        let clock = Clock::start();
        let state = State {
            gate: Gate::new(clock.now(), config),
            rng: Pcg64Mcg::seed_from_u64(std::hash::RandomState::new().hash_one("batch")),
            paused: [0; _],
            timed_out: 0,
        };
        Self(Arc::new(Inner { clock, state: Mutex::new(state) }))
    }

    /// Replaces the settings. Waiting requests keep waiting.
    pub fn set_config(&self, config: BatchConfig) {
        let mut state = self.0.state.lock();
        state.gate.set(config);
        drop(state);
        // There may be credit for more now.
        self.serve();
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> BatchConfig {
        *self.0.state.lock().gate.config()
    }

    /// The current state.
    #[must_use]
    pub fn view(&self) -> BatchView {
        let now = self.0.clock.now();
        let state = self.0.state.lock();
        let State { gate, .. } = &*state;
        BatchView {
            queued: Criticality::ALL
                .map(|criticality| (criticality, gate.queued(criticality) + state.paused[criticality.rank()])),
            active: gate.active(),
            credit: gate.credit().as_f64(),
            max_active: gate.config().max_active.get(),
            utilization: gate.credit().utilization(now),
            counts: *gate.counts(),
            timed_out: state.timed_out,
        }
    }

    /// Waits for a place, for as long as it is polled; by itself for this time first.
    pub(super) async fn place(&self, history: &mut History, pause: Duration) -> Result<Box<Place>, QueueFull> {
        if !pause.is_zero() {
            let _paused = Paused::new(self, history.criticality());
            tokio::time::sleep(pause).await;
        }
        let mut wait = Wait { batch: self, history, ticket: None, rest: None };
        std::future::poll_fn(|cx| wait.poll(cx)).await
    }

    /// A request failed: after which pause it is to wait for a place again.
    pub(super) fn again(&self, history: &mut History, failed: &BatchFailure) -> Result<Duration, GiveUpReason> {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.gate.requeue(history, failed, &mut state.rng)
    }

    /// A request waited for as long as it may. Returns when to come again.
    pub(super) fn timed_out(&self) -> Duration {
        let now = self.0.clock.now();
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.timed_out += 1;
        state.gate.retry_after(now, &mut state.rng)
    }

    /// Wakes the requests with a place, and sees to it that the others are woken in time.
    fn serve(&self) {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        let mut called = state.serve(now);
        if state.gate.poll_timeout(now).is_some() {
            // It has the timer.
            called.extend(state.gate.first().cloned());
        }
        drop(state);
        called.into_iter().for_each(Waker::wake);
    }

    fn taken(&self, sent: ActiveRequest) -> Box<Place> {
        Box::new(Place { batch: self.clone(), sent, fate: Fate::Unknown })
    }
}

impl State {
    /// Hands out places. Call the wakers when the lock is free again.
    fn serve(&mut self, now: Timestamp) -> Vec<Waker> {
        std::iter::from_fn(|| self.gate.serve(now)).collect()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("config", &self.config()).finish_non_exhaustive()
    }
}

/// Clones are equal.
impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A request's right to be at a backend, until this is dropped.
pub(crate) struct Place {
    batch: Batch,
    sent: ActiveRequest,
    fate: Fate,
}

impl Place {
    /// The request was accepted, unless it is known already that it was not.
    pub(super) fn accepted(&mut self) {
        if self.fate == Fate::Unknown {
            self.fate = Fate::Accepted;
        }
    }

    /// There was too much to do for it.
    pub(super) fn rejected(&mut self) {
        self.fate = Fate::Rejected;
    }

    /// Its backend says how loaded it is.
    pub(super) fn reported(&self, load: &LoadReport) {
        if let Some(utilization) = load.utilization() {
            let now = self.batch.0.clock.now();
            self.batch.0.state.lock().gate.on_report(now, utilization);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.batch.0.clock.now();
        let mut guard = self.batch.0.state.lock();
        let state = &mut *guard;
        state.gate.end(now, self.sent, self.fate, &mut state.rng);
        drop(guard);
        self.batch.serve();
    }
}

/// A request that waits by itself, until this is dropped.
struct Paused<'a> {
    batch: &'a Batch,
    rank: usize,
}

impl<'a> Paused<'a> {
    fn new(batch: &'a Batch, criticality: Criticality) -> Self {
        let rank = criticality.rank();
        batch.0.state.lock().paused[rank] += 1;
        Self { batch, rank }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.batch.0.state.lock().paused[self.rank] -= 1;
    }
}

/// A waiting request. Dropped, it returns its seat and the place in its hand.
struct Wait<'a> {
    batch: &'a Batch,
    history: &'a mut History,
    ticket: Option<Ticket>,
    /// The end of a rest, if this one is first.
    rest: Option<Pin<Box<Sleep>>>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Place>, QueueFull>> {
        loop {
            let batch = self.batch;
            let now = batch.0.clock.now();
            let mut state = batch.0.state.lock();
            let goes = match &self.ticket {
                Some(_) => None,
                None => match state.gate.enter(now, self.history, cx.waker().clone()) {
                    BatchVerdict::Begins => return Poll::Ready(Ok(self.taken(&state, now))),
                    BatchVerdict::Waits(ticket, goes) => {
                        self.ticket = Some(ticket);
                        goes
                    }
                    BatchVerdict::Shed => return Poll::Ready(Err(full(&mut state, now))),
                },
            };
            // It may be this one's turn already; then it is called at once.
            let mut called = state.serve(now);
            called.extend(goes);
            let (answer, former) = self.look(&mut state, now, cx);
            drop(state);
            drop(former);
            called.into_iter().for_each(Waker::wake);
            if answer.is_ready() {
                return answer;
            }
            // When a rest is over, on to the next look.
            if self.rest.as_mut().is_none_or(|rest| rest.as_mut().poll(cx).is_pending()) {
                return Poll::Pending;
            }
        }
    }

    /// The result of the wait, and a waker that is of no more use.
    fn look(
        &mut self,
        state: &mut State,
        now: Timestamp,
        cx: &Context<'_>,
    ) -> (Poll<Result<Box<Place>, QueueFull>>, Option<Waker>) {
        let Some(ticket) = &self.ticket else { return (Poll::Ready(Err(full(state, now))), None) };
        let former = match state.gate.look(ticket) {
            (WaitResult::Pending, Some(waker)) if !waker.will_wake(cx.waker()) => {
                Some(std::mem::replace(waker, cx.waker().clone()))
            }
            (WaitResult::Pending, _) => None,
            (WaitResult::Slot, _) => {
                self.leave(state);
                return (Poll::Ready(Ok(self.taken(state, now))), None);
            }
            (WaitResult::Shed, _) => {
                self.leave(state);
                return (Poll::Ready(Err(full(state, now))), None);
            }
        };
        let rests = state.gate.poll_timeout(now).filter(|_| state.gate.is_first(ticket));
        let clock = &self.batch.0.clock;
        self.rest = rests.map(|until| Box::pin(tokio::time::sleep_until(clock.instant(until))));
        (Poll::Pending, former)
    }

    fn taken(&mut self, state: &State, now: Timestamp) -> Box<Place> {
        self.batch.taken(state.gate.sent(now, self.history))
    }

    /// Gives the seat back.
    fn leave(&mut self, state: &mut State) -> Option<(WaitResult, Option<Waker>)> {
        Some(state.gate.leave(self.ticket.take()?))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        let batch = self.batch;
        let now = batch.0.clock.now();
        let mut state = batch.0.state.lock();
        let was_first = state.gate.is_first(ticket);
        let left = self.leave(&mut state);
        let sent = state.gate.sent(now, self.history);
        // No waker is dropped under the lock: that may be the end of a task, with requests of its own.
        drop(state);
        match left {
            Some((WaitResult::Slot, _)) => drop(batch.taken(sent)),
            // It had the timer, or was called to have it.
            _ if was_first => batch.serve(),
            _ => {}
        }
    }
}

fn full(state: &mut State, now: Timestamp) -> QueueFull {
    QueueFull(state.gate.retry_after(now, &mut state.rng))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::pin::Pin;

    use super::*;

    const SHEDDABLE: Criticality = Criticality::Sheddable;

    fn batch(max_active: u32, max_queue: usize) -> Batch {
        let max_active = NonZeroU32::new(max_active).unwrap();
        let mut config = BatchConfig::default();
        config.max_active = max_active;
        config.max_queue = max_queue;
        Batch::new(config)
    }

    async fn place(batch: &Batch) -> Result<Box<Place>, QueueFull> {
        batch.place(&mut History::new(SHEDDABLE), Duration::ZERO).await
    }

    fn is_pending(wait: Pin<&mut impl Future>) -> bool {
        wait.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn queued(batch: &Batch) -> usize {
        batch.view().queued.iter().map(|(_, queued)| queued).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_goes_from_hand_to_hand_and_to_nobody_who_has_gone() {
        let batch = batch(1, 10);
        let first = place(&batch).await.unwrap();
        let wait = |batch: Batch| tokio::spawn(async move { drop(place(&batch).await.unwrap()) });
        let (gone, second) = (wait(batch.clone()), wait(batch.clone()));
        while queued(&batch) < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        let _ = gone.await;
        assert_eq!((queued(&batch), batch.view().active), (1, 1));
        drop(first);
        second.await.unwrap();
        assert_eq!((queued(&batch), batch.view().active, batch.view().counts.sent), (0, 0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_goes_away_with_a_place_in_its_hands_gives_it_back() {
        let batch = batch(1, 10);
        let first = place(&batch).await.unwrap();
        let mut wait = Box::pin(place(&batch));
        assert!(is_pending(wait.as_mut()));
        drop(first);
        assert_eq!(batch.view().active, 1, "it has the place and does not know yet");
        drop(wait);
        assert_eq!(batch.view().active, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_pauses_before_it_goes_back_is_one_that_waits() {
        let batch = batch(1, 10);
        let (mut stays, mut goes) = (History::new(SHEDDABLE), History::new(SHEDDABLE));
        let mut stays = Box::pin(batch.place(&mut stays, Duration::from_secs(1)));
        let mut goes = Box::pin(batch.place(&mut goes, Duration::from_secs(1)));
        assert!(is_pending(stays.as_mut()) && is_pending(goes.as_mut()));
        assert_eq!(queued(&batch), 2);
        drop(goes);
        assert_eq!(queued(&batch), 1);
        assert!(stays.await.is_ok());
        assert_eq!((queued(&batch), batch.view().active), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_rest_to_end_is_called_by_nobody_else() {
        let batch = batch(1, 10);
        let begun = tokio::time::Instant::now();
        for _ in 0..8 {
            place(&batch).await.unwrap().rejected();
        }
        // 50 ms, 100 ms, ... 2 s, each half to one and a half of it.
        let took = begun.elapsed().as_millis();
        assert!((2_500..7_800).contains(&took), "{took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_that_begins_outside_a_runtime_ends_all_the_same() {
        let batch = batch(1, 10);
        let mut first = place(&batch).await.unwrap();
        let mut waits = Box::pin(place(&batch));
        assert!(is_pending(waits.as_mut()));
        first.rejected();
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert!(batch.view().active == 0 && is_pending(waits.as_mut()), "there is a rest");
        let taken = tokio::time::timeout(Duration::from_secs(5), waits).await;
        assert!(taken.expect("it ends").is_ok());
    }

    #[test]
    fn a_rest_ends_though_the_runtime_in_which_it_began_is_gone() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let batch = batch(1, 10);
        runtime().block_on(async {
            let mut first = place(&batch).await.unwrap();
            let mut waits = Box::pin(place(&batch));
            assert!(is_pending(waits.as_mut()));
            first.rejected();
            drop(first);
            assert!(is_pending(waits.as_mut()), "there is a rest, and a timer for it");
        });
        let taken = runtime().block_on(async { tokio::time::timeout(Duration::from_secs(5), place(&batch)).await });
        assert!(taken.expect("it ends").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_goes_to_the_next_when_who_is_first_goes_away() {
        let batch = batch(1, 10);
        let mut first = place(&batch).await.unwrap();
        let mut waits = Box::pin(place(&batch));
        assert!(is_pending(waits.as_mut()));
        let next = {
            let batch = batch.clone();
            tokio::spawn(async move { place(&batch).await.is_ok() })
        };
        while queued(&batch) < 2 {
            tokio::task::yield_now().await;
        }
        first.rejected();
        drop(first);
        assert!(is_pending(waits.as_mut()));
        drop(waits);
        assert!(tokio::time::timeout(Duration::from_secs(5), next).await.expect("it is called").unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_says_when_to_come_again() {
        let batch = batch(1, 1);
        let _first = place(&batch).await.unwrap();
        let mut waits = Box::pin(place(&batch));
        assert!(is_pending(waits.as_mut()));
        let Err(QueueFull(after)) = place(&batch).await else { panic!("there is no room") };
        assert!(after >= Duration::from_secs(1));
        assert_eq!(batch.view().counts.full, 1);
    }
}

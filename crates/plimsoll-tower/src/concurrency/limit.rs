//! A limit on requests in progress, and the requests that wait for a slot.
//!
//! The queue of the core holds numbers of seats. A waiting request has a seat, where it finds its
//! decision. Each of these ends gives a seat back and passes a slot on: the decision is read, the
//! wait is too long, or the waiter is dropped, also between its decision and its next poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use plimsoll_core::admit::{Queue, QueueConfig, QueueVerdict, Shed};
use plimsoll_core::{Criticality, Timestamp};
use tokio::time::{Instant, Sleep};

use crate::clock::Clock;
use crate::lock::lock;
use crate::{Rejected, RequestFacts};

/// A limit on requests in progress. Clones share it.
#[derive(Clone)]
pub struct ConcurrencyLimit {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    config: QueueConfig,
    state: Mutex<State>,
}

struct State {
    queue: Queue<usize>,
    seats: Vec<Seat>,
    vacant: Vec<usize>,
}

/// The seat of one waiting request.
#[derive(Default)]
struct Seat {
    decision: Option<Result<(), Rejected>>,
    waker: Option<Waker>,
}

/// Wakers to call once the lock is released: a waker may run code that takes it.
#[derive(Default)]
struct Wakers(Vec<Waker>);

impl Drop for Wakers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

impl State {
    fn decide(&mut self, seat: usize, decision: Result<(), Rejected>, wakers: &mut Wakers) {
        let seat = &mut self.seats[seat];
        seat.decision = Some(decision);
        wakers.0.extend(seat.waker.take());
    }

    /// Frees a seat. Returns its waker, to be dropped without the lock: it may be the last of a
    /// task.
    fn vacate(&mut self, seat: usize) -> Option<Waker> {
        self.vacant.push(seat);
        std::mem::take(&mut self.seats[seat]).waker
    }

    /// The number of the next seat to take.
    fn next_seat(&self) -> usize {
        self.vacant.last().copied().unwrap_or(self.seats.len())
    }

    /// Passes the slot of a request that has ended on.
    fn pass_on(&mut self, now: Timestamp, wakers: &mut Wakers) {
        let mut abandoned = Vec::new();
        let next = self.queue.next(now, |each| abandoned.push(each.into_shed()), |_| true);
        for (seat, shed) in abandoned {
            self.decide(seat, Err(shed.into()), wakers);
        }
        if let Some(seat) = next {
            self.decide(seat, Ok(()), wakers);
        }
    }
}

impl ConcurrencyLimit {
    /// A limit without requests.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        let clock = Clock::start();
        let queue = Queue::new(clock.now(), config);
        let state = Mutex::new(State { queue, seats: Vec::new(), vacant: Vec::new() });
        Self { shared: Arc::new(Shared { clock, config, state }) }
    }

    /// Asks for a slot. The request waits from this call on, not from the first poll.
    pub fn enter(&self, facts: &RequestFacts) -> Enter {
        let now = self.shared.clock.now();
        let deadline = facts.timeout.map(|timeout| now + timeout);
        let mut wakers = Wakers::default();
        let state = &mut *lock(&self.shared.state);
        let seat = state.next_seat();
        match state.queue.enter(now, facts.criticality, deadline, seat) {
            QueueVerdict::Begins(_) => Enter::decided(Ok(self.slot())),
            QueueVerdict::Shed(_) => Enter::decided(Err(Queue::<usize>::FULL.into())),
            QueueVerdict::Waits(displaced) => {
                if state.vacant.pop().is_none() {
                    state.seats.push(Seat::default());
                }
                if let Some(displaced) = displaced {
                    state.decide(displaced, Err(Queue::<usize>::FULL.into()), &mut wakers);
                }
                let longest = now + self.shared.config.max_wait;
                let (until, answer) = match deadline.filter(|deadline| *deadline < longest) {
                    Some(deadline) => (deadline, Shed::DEADLINE),
                    None => (longest, Queue::<usize>::FULL),
                };
                let waiter = Waiter {
                    limit: self.clone(),
                    seat,
                    criticality: facts.criticality,
                    until: self.shared.clock.instant(until),
                    timer: None,
                    answer: answer.into(),
                    is_decided: false,
                };
                Enter { state: EnterState::Waits(waiter) }
            }
        }
    }

    /// Requests in progress.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        lock(&self.shared.state).queue.in_progress()
    }

    /// Requests that wait for a slot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.shared.state).queue.len()
    }

    fn slot(&self) -> Slot {
        Slot { limit: self.clone() }
    }
}

/// The slot of a request in progress. It is free again when this is dropped or released.
#[must_use = "the slot is free again at once"]
pub struct Slot {
    limit: ConcurrencyLimit,
}

impl Slot {
    /// Frees the slot.
    pub fn release(self) {}
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut wakers = Wakers::default();
        let shared = &self.limit.shared;
        lock(&shared.state).pass_on(shared.clock.now(), &mut wakers);
    }
}

/// A request that asks for a slot. Dropping it takes the request back.
#[must_use = "futures do nothing unless polled"]
pub struct Enter {
    state: EnterState,
}

enum EnterState {
    /// `None` after the future has ended.
    Decided(Option<Result<Slot, Rejected>>),
    Waits(Waiter),
}

struct Waiter {
    limit: ConcurrencyLimit,
    seat: usize,
    criticality: Criticality,
    until: Instant,
    /// Made by the first poll, which is within a runtime.
    timer: Option<Pin<Box<Sleep>>>,
    /// The answer when the time is up.
    answer: Rejected,
    /// Whether the decision was read from the seat.
    is_decided: bool,
}

impl Enter {
    fn decided(result: Result<Slot, Rejected>) -> Self {
        Self { state: EnterState::Decided(Some(result)) }
    }
}

impl Waiter {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Rejected>> {
        let mut stale = None;
        {
            let state = &mut *lock(&self.limit.shared.state);
            let seat = &mut state.seats[self.seat];
            if let Some(decision) = seat.decision.take() {
                self.is_decided = true;
                return Poll::Ready(decision);
            }
            if !seat.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                stale = seat.waker.replace(cx.waker().clone());
            }
        }
        drop(stale);
        // A decision may come until the timer has its answer; it stays at the seat.
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.until)));
        timer.as_mut().poll(cx).map(|()| Err(self.answer))
    }
}

impl Future for Enter {
    type Output = Result<Slot, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.state {
            EnterState::Decided(result) => result.take().expect("a future is not polled after its end"),
            EnterState::Waits(waiter) => match waiter.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(decision) => decision.map(|()| waiter.limit.slot()),
            },
        };
        // Vacates the seat.
        self.state = EnterState::Decided(None);
        Poll::Ready(result)
    }
}

/// Gives the seat back, and a slot that nobody has read of.
impl Drop for Waiter {
    fn drop(&mut self) {
        let mut wakers = Wakers::default();
        let shared = &self.limit.shared;
        let number = self.seat;
        let waker = {
            let state = &mut *lock(&shared.state);
            match state.seats[number].decision.take() {
                Some(Ok(())) => state.pass_on(shared.clock.now(), &mut wakers),
                Some(Err(_)) => {}
                None if self.is_decided => {}
                None => {
                    state.queue.leave(shared.clock.now(), self.criticality, |seat| *seat == number);
                }
            }
            state.vacate(number)
        };
        drop(waker);
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl fmt::Debug for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enter").field("waits", &matches!(self.state, EnterState::Waits(_))).finish_non_exhaustive()
    }
}

//! Batch work: many requests in, few at backends, at the rate at which backends accept them.
//!
//! Thousands of batch workers that start at once are thousands of connections, and their demand is
//! many times the capacity (SRE ch. 21, "Load from connections"). None of it is urgent. So it has a
//! gate of its own. The gate decides how many requests are at backends ([`credit`]), which one is
//! next ([`queue`]), and which failed ones are sent again ([`requeue`]). When a job goes wrong, the
//! gate is its fuse: the more backends reject, the slower it sends, and other traffic is not
//! affected.
//!
//! ```text
//! enter ──▶ queue, by criticality ──credit──▶ at a backend ──▶ accepted: done
//!   │            ▲   │ full: the newest of the least critical    └─▶ rejected: less credit
//!   └─ full ─────│───┴─▶ shed, with a time to come back                  │
//!                └────── requeued after a pause, by its age ◀────────────┘
//! ```
//!
//! Why a requeued request does not draw on the retry budget ([`retry`](crate::retry)): the budget
//! keeps retries from multiplying the load. Credit does so by itself, since a rejected request has
//! no slot at a backend while it waits.
//!
//! Call [`Gate::serve`] until it returns `None` after each [`Gate::enter`], [`Gate::end`],
//! [`Gate::leave`] and [`Gate::set`], and at [`Gate::poll_timeout`]; then no request waits without
//! need. No decision allocates, except when the queue is longer than ever before.

pub mod credit;
pub mod queue;
pub mod requeue;

use core::num::NonZeroU32;
use core::time::Duration;

pub use self::credit::{Credit, Fate, Target};
use self::queue::Queue;
pub use self::queue::{Age, Ticket, WaitResult};
use self::requeue::Outcomes;
pub use self::requeue::{BatchFailure, Failure, GiveUpReason, History};
use crate::{Criticality, Random, Timestamp, decay, rng};

/// The limits on batch requests at backends and in the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchConfig {
    /// Largest number of requests at backends.
    pub max_active: NonZeroU32,
    /// Largest number of requests that wait.
    pub max_queue: usize,
    /// The longest wait of a request, over all its waits.
    pub queue_timeout: Duration,
    /// The utilization of backends up to which batch work may go.
    pub target: Target,
}

impl BatchConfig {
    /// Enough to keep some backends busy, and few beside the hundreds of connections of each.
    pub const DEFAULT_MAX_ACTIVE: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
    /// As many as the connections of a listener: each waits with a request.
    pub const DEFAULT_MAX_QUEUE: usize = 10_000;
    /// Batch work can wait for minutes. Few HTTP clients wait longer than five.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(300);
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            max_active: Self::DEFAULT_MAX_ACTIVE,
            max_queue: Self::DEFAULT_MAX_QUEUE,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            target: Target::DEFAULT,
        }
    }
}

/// The decision on a request that arrives or is requeued.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum BatchVerdict<C> {
    /// It has a slot: [`Gate::sent`] and [`Gate::end`] must follow.
    Begins,
    /// It waits. If it displaced another request, wake that one by this handle.
    Waits(Ticket, Option<C>),
    /// It is shed.
    Shed,
}

/// A request at a backend.
#[derive(Clone, Copy, Debug)]
pub struct ActiveRequest {
    at: Timestamp,
    is_suspect: bool,
}

/// Totals of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that got a slot at a backend, each counted as often as it did.
    pub sent: u64,
    /// Those of them that were accepted.
    pub accepted: u64,
    /// Those of them that were requeued.
    pub requeued: u64,
    /// Rejected requests, as far as credit counts them.
    pub rejected: u64,
    /// Requests that a full queue shed or dropped.
    pub full: u64,
}

/// Half-life of the pace of the queue: the rate of accepted requests.
const PACE_HALF_LIFE: Duration = Duration::from_secs(10);
/// Bounds in seconds for the shortest time after which a shed request may return. It is told at
/// most two minutes: if the queue takes longer, that is no reason to have all of them return at one
/// moment.
const RETRY_AFTER: (f64, f64) = (1.0, 60.0);

/// Admission of the batch requests of one listener, over all threads.
#[derive(Debug)]
pub struct Gate<C> {
    config: BatchConfig,
    credit: Credit,
    queue: Queue<C>,
    active: u32,
    counts: Counts,
    /// Accepted requests, decayed.
    accepted: f64,
    accepted_at: Timestamp,
}

impl<C> Gate<C> {
    /// An empty gate.
    #[must_use]
    pub fn new(now: Timestamp, config: BatchConfig) -> Self {
        Self {
            credit: Credit::new(now, config.max_active, config.target),
            config,
            queue: Queue::default(),
            active: 0,
            counts: Counts::default(),
            accepted: 0.0,
            accepted_at: now,
        }
    }

    /// Changes the settings. Requests that wait stay, at any new bound.
    pub fn set(&mut self, config: BatchConfig) {
        self.credit.set(config.max_active, config.target);
        self.config = config;
    }

    /// The settings in force.
    #[must_use]
    pub const fn config(&self) -> &BatchConfig {
        &self.config
    }

    /// Requests at backends.
    #[must_use]
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// The limit on requests at backends.
    #[must_use]
    pub const fn credit(&self) -> &Credit {
        &self.credit
    }

    /// Requests of this criticality that wait.
    #[must_use]
    pub fn queued(&self, criticality: Criticality) -> usize {
        self.queue.len_of(criticality)
    }

    /// Totals of decisions so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A request arrives or is requeued. A requeued one waits at its former position, by its age.
    /// But if nothing is accepted, it waits behind all others, so that another one is the next
    /// probe.
    pub fn enter(&mut self, now: Timestamp, history: &mut History, call: C) -> BatchVerdict<C> {
        let criticality = history.criticality();
        if let Some(former) = history.age {
            let age = if self.credit.is_probing() { self.queue.come() } else { former };
            history.age = Some(age);
            self.counts.requeued += 1;
            return BatchVerdict::Waits(self.queue.join(criticality, age, call), None);
        }
        let age = self.queue.come();
        history.age = Some(age);
        if self.queue.is_empty() && self.credit.take(now, self.active) {
            self.begin();
            return BatchVerdict::Begins;
        }
        if !self.queue.admits(criticality, self.config.max_queue) {
            self.counts.full += 1;
            return BatchVerdict::Shed;
        }
        let goes = self.queue.make_room(self.config.max_queue);
        self.counts.full += u64::from(goes.is_some());
        BatchVerdict::Waits(self.queue.join(criticality, age, call), goes)
    }

    /// Gives the next slot to the first request, and returns its wake-up handle. `None` if none
    /// waits, or without credit.
    pub fn serve(&mut self, now: Timestamp) -> Option<C> {
        if self.queue.is_empty() || !self.credit.take(now, self.active) {
            return None;
        }
        let call = self.queue.serve();
        self.begin();
        call
    }

    /// The result for the holder of `ticket`, and its wake-up handle while there is none.
    pub fn look(&mut self, ticket: &Ticket) -> (WaitResult, Option<&mut C>) {
        self.queue.look(ticket)
    }

    /// Removes the holder of `ticket` from the queue. If it has a slot, the caller must use or end
    /// it.
    pub fn leave(&mut self, ticket: Ticket) -> (WaitResult, Option<C>) {
        self.queue.leave(ticket)
    }

    /// A request uses its slot, and goes to a backend.
    pub fn sent(&self, now: Timestamp, history: &mut History) -> ActiveRequest {
        history.sent(self.outcomes());
        ActiveRequest { at: now, is_suspect: history.is_suspect() }
    }

    /// A request has failed. Returns the pause before it is to [enter](Self::enter) again.
    ///
    /// # Errors
    ///
    /// The reason for not requeuing it.
    pub fn requeue(
        &self,
        history: &mut History,
        failed: &BatchFailure,
        rng: &mut impl Random,
    ) -> Result<Duration, GiveUpReason> {
        history.fail(self.outcomes(), failed, rng)
    }

    /// A backend reports its utilization.
    pub fn on_report(&mut self, now: Timestamp, utilization: f64) {
        self.credit.on_report(now, utilization);
    }

    /// A request has left its backend: once for each slot. The rejection of a suspect says nothing.
    pub fn end(&mut self, now: Timestamp, sent: ActiveRequest, fate: Fate, rng: &mut impl Random) {
        let fate = if sent.is_suspect && fate == Fate::Rejected { Fate::Unknown } else { fate };
        self.credit.on_end(now, sent.at, self.active, fate, rng);
        self.active = self.active.saturating_sub(1);
        match fate {
            Fate::Accepted => {
                self.counts.accepted += 1;
                self.accepted = self.accepted * decay::remaining(now, self.accepted_at, PACE_HALF_LIFE) + 1.0;
                self.accepted_at = self.accepted_at.max(now);
            }
            Fate::Rejected => self.counts.rejected += 1,
            Fate::Unknown => {}
        }
    }

    /// The time to call [`Gate::serve`] again, if requests wait only for a rest to end.
    #[must_use]
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        self.credit.rests_until(now).filter(|_| !self.queue.is_empty())
    }

    /// The wake-up handle of the next request.
    #[must_use]
    pub fn first(&self) -> Option<&C> {
        self.queue.first()
    }

    /// Whether the holder of `ticket` is next.
    #[must_use]
    pub fn is_first(&self, ticket: &Ticket) -> bool {
        self.queue.is_first(ticket)
    }

    /// The time after which a shed request may return: random, between once and twice the time to
    /// empty the queue.
    pub fn retry_after(&self, now: Timestamp, rng: &mut impl Random) -> Duration {
        let accepted = self.accepted * decay::remaining(now, self.accepted_at, PACE_HALF_LIFE);
        let a_second = decay::rate(accepted, PACE_HALF_LIFE);
        let takes = self.queue.len() as f64 / a_second.max(f64::MIN_POSITIVE);
        Duration::from_secs_f64(takes.clamp(RETRY_AFTER.0, RETRY_AFTER.1) * (1.0 + rng::unit(rng)))
    }

    fn outcomes(&self) -> Outcomes {
        Outcomes { accepted: self.counts.accepted, rejected: self.counts.rejected }
    }

    fn begin(&mut self) {
        self.active += 1;
        self.counts.sent += 1;
    }
}

#[cfg(test)]
mod tests;

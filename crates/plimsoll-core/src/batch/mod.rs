//! Batch work: many requests in, few at backends, at the rate at which these accept them.
//!
//! Thousands of batch workers that begin at once are thousands of connections, and what they ask for is many times what there is (SRE ch. 21, "Load from
//! connections"). None of it is urgent. So it goes through a gate of its own, which decides how many are at backends ([`credit`]), who
//! is next ([`queue`]), and what comes back to be sent once more ([`again`]). When a job goes wrong, the gate is its fuse: what backends reject is sent slower and slower,
//! and nobody else notices.
//!
//! ```text
//! enter ──▶ queue, by criticality ──credit──▶ at a backend ──▶ accepted: over
//!   │            ▲   │ full: the newest of the least critical    └─▶ rejected: less credit
//!   └─ full ─────│───┴─▶ turned away, with a time                         │
//!                └────── after a pause, again, by its age ◀─────────────┘
//! ```
//!
//! Why a request that was rejected does not go by the budget for retries ([`retry`](crate::retry)): that is to keep load from being multiplied, and
//! credit keeps it from that by itself, as what was rejected has no place at a backend while it waits.
//!
//! Call [`Gate::serve`] until it returns `None` after each [`Gate::enter`], [`Gate::end`], [`Gate::leave`] and [`Gate::set`], and at
//! [`Gate::poll_timeout`]; then nobody waits who need not. No decision allocates, but for a seat in a queue longer than it was before.

pub mod again;
pub mod credit;
pub mod queue;

use core::num::NonZeroU32;
use core::time::Duration;

use rand_core::Rng;

use self::again::Outcomes;
pub use self::again::{Failed, Failure, GiveUp, History, Reason};
pub use self::credit::{Credit, Fate, Target};
use self::queue::Queue;
pub use self::queue::{Age, Hand, Ticket};
use crate::{Criticality, Timestamp, decay, rng};

/// How much may be at backends, and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchConfig {
    /// Requests at backends at a time.
    pub max_active: NonZeroU32,
    /// Requests that wait.
    pub max_queue: usize,
    /// Nobody waits for longer, all its waits together.
    pub queue_timeout: Duration,
    /// How loaded backends may be for batch work to go on.
    pub target: Target,
}

impl BatchConfig {
    /// Enough to keep some backends busy, and few beside the hundreds of connections that each has.
    pub const DEFAULT_MAX_ACTIVE: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
    /// As many as connections are taken at a listener: each waits with a request.
    pub const DEFAULT_MAX_QUEUE: usize = 10_000;
    /// What can wait can wait for minutes; clients of HTTP that wait longer than five are seldom.
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

/// What becomes of a request that comes, or comes back.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Entered<C> {
    /// It has a place: [`Gate::sent`] and [`Gate::end`] must follow.
    Begins,
    /// It waits; another one that had to go for it is to be called.
    Waits(Ticket, Option<C>),
    /// It does not get in.
    TurnedAway,
}

/// A request that is at a backend.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    at: Timestamp,
    is_suspect: bool,
}

/// How much was decided so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that got a place at backends, each as often as it did.
    pub sent: u64,
    /// Those of them that were accepted.
    pub accepted: u64,
    /// Those of them that came back.
    pub requeued: u64,
    /// Requests that were rejected, as far as credit counts them.
    pub rejected: u64,
    /// Requests that had to go or did not get in, because the queue was full.
    pub full: u64,
}

/// How fast what waits goes: accepted requests, decaying by half in so long.
const PACE_HALF_LIFE: Duration = Duration::from_secs(10);
/// Who is turned away may come again after so long at the earliest, and is told to come within a minute or two: a queue that takes longer is no
/// reason to have everybody back at one moment.
const COME_AGAIN: (f64, f64) = (1.0, 60.0);

/// Decides for the batch requests of one listener, all threads together.
#[derive(Debug)]
pub struct Gate<C> {
    config: BatchConfig,
    credit: Credit,
    queue: Queue<C>,
    active: u32,
    counts: Counts,
    /// Accepted of late, decaying.
    accepted: f64,
    accepted_at: Timestamp,
}

impl<C> Gate<C> {
    /// One through which nothing has gone.
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

    /// Goes by other settings from now on. Who waits stays, whatever the bound.
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

    /// How many may be.
    #[must_use]
    pub const fn credit(&self) -> &Credit {
        &self.credit
    }

    /// Requests of this criticality that wait.
    #[must_use]
    pub fn queued(&self, criticality: Criticality) -> usize {
        self.queue.len_of(criticality)
    }

    /// What was decided so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A request comes, or comes back: to where it was by its age; or behind all others where nothing is accepted, so that another one is the
    /// next probe.
    pub fn enter(&mut self, now: Timestamp, history: &mut History, call: C) -> Entered<C> {
        let criticality = history.criticality();
        if let Some(former) = history.age {
            let age = if self.credit.is_probing() { self.queue.come() } else { former };
            history.age = Some(age);
            self.counts.requeued += 1;
            return Entered::Waits(self.queue.join(criticality, age, call), None);
        }
        let age = self.queue.come();
        history.age = Some(age);
        if self.queue.is_empty() && self.credit.take(now, self.active) {
            self.begin();
            return Entered::Begins;
        }
        if !self.queue.admits(criticality, self.config.max_queue) {
            self.counts.full += 1;
            return Entered::TurnedAway;
        }
        let goes = self.queue.make_room(self.config.max_queue);
        self.counts.full += u64::from(goes.is_some());
        Entered::Waits(self.queue.join(criticality, age, call), goes)
    }

    /// Gives the next place to who is first, and returns how to call it. `None`: nobody waits, or there is no credit.
    pub fn serve(&mut self, now: Timestamp) -> Option<C> {
        if self.queue.is_empty() || !self.credit.take(now, self.active) {
            return None;
        }
        let call = self.queue.serve();
        self.begin();
        call
    }

    /// What the holder of `ticket` has got, and how it is called if that is nothing yet.
    pub fn look(&mut self, ticket: &Ticket) -> (Hand, Option<&mut C>) {
        self.queue.look(ticket)
    }

    /// Gives the seat of `ticket` back. A place in the hands of who had it is the caller's to use or to end.
    pub fn leave(&mut self, ticket: Ticket) -> (Hand, Option<C>) {
        self.queue.leave(ticket)
    }

    /// A request has taken its place, and goes to a backend.
    pub fn sent(&self, now: Timestamp, history: &mut History) -> Sent {
        history.sent(self.outcomes());
        Sent { at: now, is_suspect: history.is_suspect() }
    }

    /// A request has failed: after which pause it is to [enter](Self::enter) again.
    ///
    /// # Errors
    ///
    /// Why it is not to.
    pub fn again(&self, history: &mut History, failed: &Failed, rng: &mut impl Rng) -> Result<Duration, GiveUp> {
        history.fail(self.outcomes(), failed, rng)
    }

    /// A backend says how loaded it is.
    pub fn on_report(&mut self, now: Timestamp, utilization: f64) {
        self.credit.on_report(now, utilization);
    }

    /// A request has left its backend: once for each place. That a suspect was rejected says nothing.
    pub fn end(&mut self, now: Timestamp, sent: Sent, fate: Fate, rng: &mut impl Rng) {
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

    /// When to call [`Gate::serve`] again, if somebody waits only for a rest to end.
    #[must_use]
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        self.credit.rests_until(now).filter(|_| !self.queue.is_empty())
    }

    /// How to call who is next.
    #[must_use]
    pub fn first(&self) -> Option<&C> {
        self.queue.first()
    }

    /// Whether the holder of `ticket` is next.
    #[must_use]
    pub fn is_first(&self, ticket: &Ticket) -> bool {
        self.queue.is_first(ticket)
    }

    /// When who is turned away may come again: after once to twice the time in which all that waits will have gone, at random.
    pub fn come_again(&self, now: Timestamp, rng: &mut impl Rng) -> Duration {
        let accepted = self.accepted * decay::remaining(now, self.accepted_at, PACE_HALF_LIFE);
        let a_second = decay::rate(accepted, PACE_HALF_LIFE);
        let takes = self.queue.len() as f64 / a_second.max(f64::MIN_POSITIVE);
        Duration::from_secs_f64(takes.clamp(COME_AGAIN.0, COME_AGAIN.1) * (1.0 + rng::unit(rng)))
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

//! Throttling as a signal: what was asked of a server, what it turned away and why, and whether that is as it should be.
//!
//! A server that turns requests away may do just what it is for: batch waits while users are served. Or it may be too small, or fail
//! its users. The counts alone do not say which, and nobody watches them at night. So this remembers a day of them, and who asks for
//! most, and makes one word of it: a [`Verdict`].
//!
//! # How much capacity would have been enough
//!
//! For what was offered since throttling began, over a day at most and ten minutes at least:
//!
//! ```text
//! enough = max(peak, mean) ÷ load line
//! peak   = largest mean over a minute of the cost of critical-plus and critical requests
//! mean   = cost of all requests ÷ time
//! ```
//!
//! both in CPU-seconds a second, and of first attempts alone: what is turned away comes again, and would be counted as often as it
//! comes. What users wait for has to be met at its peak, bursts shorter than a minute left to queues; what can wait only on average.
//! Costs are those expected at the gate, since what is turned away has no other.
//!
//! Two rules keep the figure from contradicting the verdict:
//!
//! - It is not known before shedding began ten minutes ago. A mean that includes the calm before an
//!   incident says that too little would have been enough.
//! - It is not known if it is below the capacity and users lost requests meanwhile. The capacity was
//!   not enough then, whatever the mean: bursts shorter than a minute, or no usable backend.
//!
//! # What may go wrong
//!
//! Clients that try again and do not say so (`x-envoy-attempt-count`, `grpc-previous-rpc-attempts`) count as new requests, so that
//! `enough` comes out too large while they are turned away. Clients that give up without asking are not seen at all.

mod heavy;
mod history;
mod label;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

pub use heavy::{Share, Who};
pub use history::Window;
pub use label::Label;
pub use verdict::Verdict;

use self::heavy::Heavy;
use self::history::{History, user_visible};
use self::verdict::{Judge, NOTICE, PAUSE, Spell, Visible};
use crate::admit::Quota;
use crate::{Criticality, Ratio, Timestamp};

/// Levels of criticality.
const CLASSES: usize = Criticality::ALL.len();
/// What is remembered of offered cost.
const DAY: Duration = Duration::from_secs(86_400);
/// Shortest time over which work that can wait is spread.
const MIN_SPREAD: Duration = Duration::from_secs(600);

/// Why a request was turned away; named as in the table of answers without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was more to do than could be done.
    Overloaded,
    /// The same, and there was no use in trying elsewhere.
    OverloadedNoRetry,
    /// Its customer was at its limit.
    Quota,
    /// The client side held it back.
    Throttled,
    /// It could not have been answered in time.
    Deadline,
    /// Every backend had as many requests as it may have.
    Saturated,
    /// No backend was usable.
    NoBackend,
}

impl Cause {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Overloaded,
        Self::OverloadedNoRetry,
        Self::Quota,
        Self::Throttled,
        Self::Deadline,
        Self::Saturated,
        Self::NoBackend,
    ];

    /// The word for it on the wire, in metrics and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::OverloadedNoRetry => "overloaded-no-retry",
            Self::Quota => "quota",
            Self::Throttled => "throttled",
            Self::Deadline => "deadline",
            Self::Saturated => "saturated",
            Self::NoBackend => "no-backend",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// Whether more capacity would have helped. Not where a customer is at its own limit, where no backend is there at all, and
    /// where the time was too short: that may be the client's doing.
    #[must_use]
    pub const fn is_shortage(self) -> bool {
        matches!(self, Self::Overloaded | Self::OverloadedNoRetry | Self::Throttled | Self::Saturated)
    }

    /// Whether a user who loses a request by it is the service's concern. Not where the customer agreed to the limit.
    #[must_use]
    pub const fn affects_users(self) -> bool {
        !matches!(self, Self::Quota)
    }
}

/// Requests, and what they were expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many.
    pub requests: u64,
    /// CPU-seconds.
    pub cost: f64,
}

impl Tally {
    fn count(&mut self, cost: f64) {
        self.add(Self { requests: 1, cost });
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.cost += other.cost;
    }
}

/// What became of requests of one criticality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Class {
    /// All that came.
    pub offered: Tally,
    /// Those that were let in. Among them are those that were lost afterwards, as no backend was to be had.
    pub admitted: Tally,
    /// Those that had been tried before.
    pub retried: Tally,
    /// Those that were turned away, in the order of [`Cause::ALL`].
    pub shed: [Tally; Cause::ALL.len()],
    /// Of these, how many nobody waited for any more when they came.
    pub expired: u64,
}

impl Class {
    /// All that were turned away, whatever the cause.
    #[must_use]
    pub fn shed_in_all(&self) -> Tally {
        let mut all = Tally::default();
        self.shed.iter().for_each(|shed| all.add(*shed));
        all
    }

    fn add(&mut self, other: &Self) {
        self.offered.add(other.offered);
        self.admitted.add(other.admitted);
        self.retried.add(other.retried);
        self.shed.iter_mut().zip(other.shed).for_each(|(shed, other)| shed.add(other));
        self.expired += other.expired;
    }

    /// Of first attempts, in CPU-seconds.
    fn first_cost(&self) -> f64 {
        (self.offered.cost - self.retried.cost).max(0.0)
    }
}

impl Window {
    /// Of what was turned away, the part that users waited for, in requests; `None` when nothing was.
    #[must_use]
    pub fn user_visible_share(&self) -> Option<f64> {
        let shed = |class: &Class| class.shed_in_all().requests;
        let waited_for = |class: &Class| shed(class).saturating_sub(class.expired);
        let all: u64 = self.classes.iter().map(shed).sum();
        (all > 0).then(|| user_visible(&self.classes).map(waited_for).sum::<u64>() as f64 / all as f64)
    }

    fn visible(&self) -> Visible {
        let lost = |class: &Class| {
            let causes = Cause::ALL.into_iter().zip(&class.shed).filter(|(cause, _)| cause.affects_users());
            causes.map(|(_, shed)| shed.requests).sum::<u64>().saturating_sub(class.expired)
        };
        let classes = || user_visible(&self.classes);
        Visible { offered: classes().map(|class| class.offered.requests).sum(), lost: classes().map(lost).sum() }
    }

    /// See [`self`](crate::throttling).
    fn enough(&self, load_line: Ratio) -> f64 {
        let cost: f64 = self.classes.iter().map(Class::first_cost).sum();
        let span = self.span.as_secs_f64();
        let mean = if span > 0.0 { cost / span } else { 0.0 };
        self.peak.max(mean) / load_line.as_f64().max(f64::MIN_POSITIVE)
    }
}

/// What a gate decided about a request.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    /// How bad it is to lose it.
    pub criticality: Criticality,
    /// What it is expected to cost, in CPU-seconds.
    pub cost: f64,
    /// Whether it was tried before.
    pub is_retry: bool,
    /// Why it was turned away; `None` for one that was let in.
    pub shed: Option<Cause>,
    /// Its time was up when it came: whatever becomes of it, no user loses it here.
    pub is_expired: bool,
    /// Whose it is.
    pub customer: Who<'a>,
    /// Limits of that customer.
    pub quota: Quota,
    /// What it asks for.
    pub route: Who<'a>,
    /// CPUs that the server could use then.
    pub capacity: f64,
}

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlingConfig {
    /// Throttled for want of capacity for so long without a pause, capacity is short.
    pub short_after: Duration,
    /// The part of the capacity that requests may fill.
    pub load_line: Ratio,
}

impl Default for ThrottlingConfig {
    fn default() -> Self {
        Self { short_after: Self::DEFAULT_SHORT_AFTER, load_line: crate::admit::RankedConfig::DEFAULT_LOAD_LINE }
    }
}

impl ThrottlingConfig {
    /// A working day and a night are over: batch that waits for the quiet hours has had them.
    pub const DEFAULT_SHORT_AFTER: Duration = Duration::from_secs(12 * 3_600);
}

/// A time in which something was turned away, without a pause, and that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// Since its end.
    pub ended: Duration,
    /// How long it was.
    pub lasted: Duration,
    /// CPUs that would have been enough, if that is known; see [`self`](crate::throttling).
    pub enough: Option<f64>,
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What it means.
    pub verdict: Verdict,
    /// For how long it has meant that.
    pub verdict_for: Duration,
    /// For how long something has been turned away without a pause; `None` while nothing is.
    pub throttled_for: Option<Duration>,
    /// CPUs that would have been enough for the load of that time. `None` while nothing is shed, and
    /// while it is not known; see [`self`](crate::throttling).
    pub enough: Option<f64>,
    /// The time before, in which something was turned away.
    pub last: Option<Episode>,
    /// The last minute, ten minutes, and hour.
    pub windows: [Window; 3],
    /// All since the beginning, by criticality.
    pub total: [Class; CLASSES],
    /// The customers that asked for most, lately.
    pub customers: Vec<Share>,
    /// The routes that were asked for most.
    pub routes: Vec<Share>,
}

impl Summary {
    /// What the windows are long, as far as something is remembered.
    pub const WINDOWS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3_600)];
    /// Customers and routes that are named.
    pub const TOP: usize = 10;
}

/// Remembers what was decided, and judges it.
#[derive(Clone, Debug)]
pub struct Throttling {
    config: ThrottlingConfig,
    /// CPUs that the server could use at the last decision.
    capacity: f64,
    history: History,
    judge: Judge,
    customers: Heavy,
    routes: Heavy,
    /// With the time of its last request that was turned away.
    last: Option<(Timestamp, Episode)>,
}

impl Throttling {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(now: Timestamp, config: ThrottlingConfig) -> Self {
        Self {
            config,
            capacity: 0.0,
            history: History::new(now),
            judge: Judge::new(now, config.short_after),
            customers: Heavy::new(now),
            routes: Heavy::new(now),
            last: None,
        }
    }

    /// A gate has decided.
    pub fn on_decided(&mut self, now: Timestamp, decided: &Decided<'_>) {
        let &Decided { criticality, cost, is_retry, shed, is_expired, customer, quota, route, capacity } = decided;
        self.keep_up(now);
        self.capacity = capacity;
        let class = self.history.class(now, criticality);
        class.offered.count(cost);
        if is_retry {
            class.retried.count(cost);
        }
        match shed {
            None => class.admitted.count(cost),
            Some(cause) => {
                class.shed[cause as usize].count(cost);
                class.expired += u64::from(is_expired && cause.affects_users());
            }
        }
        if let Some(cause) = shed {
            self.judge.on_shed(now, cause);
        }
        self.customers.on_request(now, customer, quota, cost, shed);
        self.routes.on_request(now, route, Quota::UNLIMITED, cost, shed);
    }

    /// A request that had been let in got no backend.
    pub fn on_lost(&mut self, now: Timestamp, criticality: Criticality, cost: f64, cause: Cause) {
        self.keep_up(now);
        self.history.class(now, criticality).shed[cause as usize].count(cost);
        self.judge.on_shed(now, cause);
    }

    /// What there is to say now.
    pub fn summary(&mut self, now: Timestamp) -> Summary {
        self.keep_up(now);
        self.look(now);
        let (verdict, since) = self.judge.verdict();
        let throttled = self.judge.throttled;
        Summary {
            verdict,
            verdict_for: now.since(since),
            throttled_for: throttled.map(|spell| now.since(spell.begun)),
            enough: throttled.and_then(|spell| self.enough_since(now, spell)),
            last: self.last.map(|(at, episode)| Episode { ended: now.since(at), ..episode }),
            windows: Summary::WINDOWS.map(|back| self.history.since(now, before(now, back))),
            total: self.history.total(),
            customers: self.customers.top(now, Summary::TOP),
            routes: self.routes.top(now, Summary::TOP),
        }
    }

    /// Looks as often as there was occasion to since the last look.
    fn keep_up(&mut self, now: Timestamp) {
        if self.judge.is_due(now) {
            for at in self.judge.due(now) {
                self.look(at);
            }
            self.look(now);
        }
    }

    fn look(&mut self, now: Timestamp) {
        let [lately, before] = [NOTICE, PAUSE].map(|back| self.history.since(now, before(now, back)).visible());
        if let Some(over) = self.judge.look(now, lately, before) {
            let enough = self.enough_since(now, over);
            let episode = Episode { ended: Duration::ZERO, lasted: over.last.since(over.begun), enough };
            self.last = Some((over.last, episode));
        }
    }

    /// CPUs that would have been enough since the spell began, if that is known.
    fn enough_since(&mut self, now: Timestamp, spell: Spell) -> Option<f64> {
        if now.since(spell.begun) < MIN_SPREAD {
            return None;
        }
        let window = self.history.since(now, spell.begun.max(before(now, DAY)));
        let enough = window.enough(self.config.load_line);
        (enough >= self.capacity || window.visible().lost == 0).then_some(enough)
    }
}

fn before(now: Timestamp, back: Duration) -> Timestamp {
    Timestamp::from_nanos(now.as_nanos().saturating_sub(back.as_nanos() as u64))
}

#[cfg(test)]
mod tests;

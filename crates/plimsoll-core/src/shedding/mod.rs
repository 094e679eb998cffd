//! Shedding report: the requests offered to a server, those shed and why, and a verdict on them.
//!
//! Shedding may be intended: batch waits while users are served. Or the server is too small, or
//! fails its users. The counts alone do not tell these apart, and nobody watches them at night. So
//! [`SheddingReport`] remembers one day of counts and the heaviest customers and routes, and sums
//! them up in one word: a [`Verdict`].
//!
//! # Enough capacity
//!
//! For the load offered since shedding began, over a day at most and ten minutes at least:
//!
//! ```text
//! enough = max(peak, mean) ÷ load line
//! peak   = largest mean over a minute of the cost of critical-plus and critical requests
//! mean   = cost of all requests ÷ time
//! ```
//!
//! Both are in CPU-seconds a second and count first attempts alone: a shed request is retried, and
//! each retry would count again. Requests that users wait for need capacity for their peak; queues
//! absorb bursts shorter than a minute. Requests that can wait need it only on average. Costs are
//! the gate's estimates, since a shed request has no other cost.
//!
//! Two rules keep the figure from contradicting the verdict:
//!
//! - It is unknown until shedding has lasted ten minutes. A mean that includes the calm before an
//!   incident would be too small.
//! - It is unknown if it is below the capacity and users lost requests meanwhile. The capacity was
//!   not enough then, whatever the mean: bursts were shorter than a minute, or no backend was
//!   usable.
//!
//! # Where it is weak
//!
//! Retries that are not marked (`x-envoy-attempt-count`, `grpc-previous-rpc-attempts`) count as new
//! requests, so `enough` is too large while they are shed. Requests that clients throttle are
//! invisible.

mod heavy;
mod history;
mod label;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

pub use heavy::{KeyedName, Share};
pub use history::Window;
pub use label::Label;
pub use verdict::Verdict;

use self::heavy::HeavyHitters;
use self::history::{History, user_visible};
use self::verdict::{Judge, NOTICE, PAUSE, Spell, UserVisible};
use crate::admit::Quota;
use crate::{Criticality, Ratio, Rejection, Timestamp};

/// Number of reasons in the report.
const REASONS: usize = Rejection::REPORTED.len();
/// Number of criticalities.
const CLASSES: usize = Criticality::ALL.len();
/// History of offered cost.
const DAY: Duration = Duration::from_secs(86_400);
/// Shortest time over which the cost of requests that can wait is averaged.
const MIN_SPREAD: Duration = Duration::from_secs(600);

/// Number of requests and their expected cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Expected CPU-seconds.
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

/// Counts of the requests of one criticality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Class {
    /// All requests that arrived.
    pub offered: Tally,
    /// Admitted requests. Those lost afterwards for want of a backend are counted here and as shed.
    pub admitted: Tally,
    /// Requests that were retries.
    pub retried: Tally,
    /// Shed requests, in the order of [`Rejection::REPORTED`].
    pub shed: [Tally; REASONS],
    /// Shed requests that had expired on arrival: nobody waited for them any more.
    pub expired: u64,
}

impl Class {
    /// Shed requests of one reason; zero for a reason that is not part of the report.
    #[must_use]
    pub fn shed_for(&self, reason: Rejection) -> Tally {
        reason.report_place().map_or_else(Tally::default, |place| self.shed[place])
    }

    /// Shed requests of all reasons.
    #[must_use]
    pub fn shed_total(&self) -> Tally {
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

    /// Expected cost of first attempts, in CPU-seconds.
    fn first_cost(&self) -> f64 {
        (self.offered.cost - self.retried.cost).max(0.0)
    }
}

impl Window {
    /// Share of shed requests that users waited for; `None` if nothing was shed.
    #[must_use]
    pub fn user_visible_share(&self) -> Option<f64> {
        let shed = |class: &Class| class.shed_total().requests;
        let waited_for = |class: &Class| shed(class).saturating_sub(class.expired);
        let all: u64 = self.classes.iter().map(shed).sum();
        (all > 0).then(|| user_visible(&self.classes).map(waited_for).sum::<u64>() as f64 / all as f64)
    }

    fn visible(&self) -> UserVisible {
        let lost = |class: &Class| {
            let reasons = Rejection::REPORTED.iter().zip(&class.shed).filter(|(reason, _)| reason.affects_users());
            reasons.map(|(_, shed)| shed.requests).sum::<u64>().saturating_sub(class.expired)
        };
        let classes = || user_visible(&self.classes);
        UserVisible { offered: classes().map(|class| class.offered.requests).sum(), lost: classes().map(lost).sum() }
    }

    /// CPUs that would have been enough; see [`self`](crate::shedding).
    fn enough(&self, load_line: Ratio) -> f64 {
        let cost: f64 = self.classes.iter().map(Class::first_cost).sum();
        let span = self.span.as_secs_f64();
        let mean = if span > 0.0 { cost / span } else { 0.0 };
        self.peak.max(mean) / load_line.as_f64().max(f64::MIN_POSITIVE)
    }
}

/// A request and the gate's decision on it.
#[derive(Clone, Copy)]
pub struct Decision<'a> {
    /// How bad it is to lose the request.
    pub criticality: Criticality,
    /// Expected cost in CPU-seconds.
    pub cost: f64,
    /// Whether it is a retry.
    pub is_retry: bool,
    /// Reason for shedding; `None` if the request was admitted.
    pub shed: Option<Rejection>,
    /// Whether its deadline had passed on arrival: no user loses it here, with any decision.
    pub is_expired: bool,
    /// The customer that the request counts for.
    pub customer: KeyedName<'a>,
    /// The customer's limits.
    pub quota: Quota,
    /// The requested route.
    pub route: KeyedName<'a>,
    /// CPUs that the server could use at the time of the decision.
    pub capacity: f64,
}

/// Settings of the shedding report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SheddingReportConfig {
    /// Time of shedding for want of capacity, without a pause, after which capacity is short.
    pub short_after: Duration,
    /// Share of the capacity that requests may fill.
    pub load_line: Ratio,
}

impl Default for SheddingReportConfig {
    fn default() -> Self {
        Self { short_after: Self::DEFAULT_SHORT_AFTER, load_line: crate::admit::AdmissionConfig::DEFAULT_LOAD_LINE }
    }
}

impl SheddingReportConfig {
    /// A working day and a night: batch that waits for the quiet hours has had them.
    pub const DEFAULT_SHORT_AFTER: Duration = Duration::from_secs(12 * 3_600);
}

/// A past period of shedding without a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// Time since its end.
    pub ended: Duration,
    /// Length.
    pub lasted: Duration,
    /// CPUs that would have been enough, if known; see [`self`](crate::shedding).
    pub enough: Option<f64>,
}

/// The shedding report at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The verdict on the shedding.
    pub verdict: Verdict,
    /// Time since the verdict began.
    pub verdict_for: Duration,
    /// Time of shedding without a pause; `None` while nothing is shed.
    pub shedding_for: Option<Duration>,
    /// CPUs that would have been enough for the load of that time. `None` while nothing is shed or
    /// the figure is unknown; see [`self`](crate::shedding).
    pub enough: Option<f64>,
    /// The previous period of shedding.
    pub last: Option<Episode>,
    /// The last minute, ten minutes, and hour.
    pub windows: [Window; 3],
    /// Counts since the start, by criticality.
    pub total: [Class; CLASSES],
    /// Customers that asked for most CPU lately, the heaviest first.
    pub customers: Vec<Share>,
    /// Routes that asked for most CPU lately, the heaviest first.
    pub routes: Vec<Share>,
}

impl Summary {
    /// Lengths of the windows, as far as the history reaches.
    pub const WINDOWS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3_600)];
    /// Number of customers and of routes in the summary.
    pub const TOP: usize = 10;
}

/// Account of a gate's decisions, with a verdict.
#[derive(Clone, Debug)]
pub struct SheddingReport {
    config: SheddingReportConfig,
    /// CPUs that the server could use at the last decision.
    capacity: f64,
    history: History,
    judge: Judge,
    customers: HeavyHitters,
    routes: HeavyHitters,
    /// The previous period of shedding, with the time of its last shed request.
    last: Option<(Timestamp, Episode)>,
}

impl SheddingReport {
    /// An account without requests.
    #[must_use]
    pub fn new(now: Timestamp, config: SheddingReportConfig) -> Self {
        Self {
            config,
            capacity: 0.0,
            history: History::new(now),
            judge: Judge::new(now, config.short_after),
            customers: HeavyHitters::new(now),
            routes: HeavyHitters::new(now),
            last: None,
        }
    }

    /// Counts a request that the gate admitted or shed.
    pub fn on_decision(&mut self, now: Timestamp, decision: &Decision<'_>) {
        let &Decision { criticality, cost, is_retry, shed, is_expired, customer, quota, route, capacity } = decision;
        self.catch_up(now);
        self.capacity = capacity;
        let class = self.history.class(now, criticality);
        class.offered.count(cost);
        if is_retry {
            class.retried.count(cost);
        }
        match shed {
            None => class.admitted.count(cost),
            Some(reason) => {
                if let Some(place) = reason.report_place() {
                    class.shed[place].count(cost);
                }
                class.expired += u64::from(is_expired && reason.affects_users());
                self.judge.on_shed(now, reason);
            }
        }
        self.customers.on_request(now, customer, quota, cost, shed);
        self.routes.on_request(now, route, Quota::UNLIMITED, cost, shed);
    }

    /// Counts an admitted request that got no backend, if the reason is part of the report.
    pub fn on_lost(&mut self, now: Timestamp, criticality: Criticality, cost: f64, reason: Rejection) {
        let Some(place) = reason.report_place() else { return };
        self.catch_up(now);
        self.history.class(now, criticality).shed[place].count(cost);
        self.judge.on_shed(now, reason);
    }

    /// The shedding report at this moment.
    pub fn summary(&mut self, now: Timestamp) -> Summary {
        self.catch_up(now);
        self.update(now);
        let (verdict, since) = self.judge.verdict();
        let spell = self.judge.shedding;
        Summary {
            verdict,
            verdict_for: now.since(since),
            shedding_for: spell.map(|spell| now.since(spell.begin)),
            enough: spell.and_then(|spell| self.enough_since(now, spell)),
            last: self.last.map(|(at, episode)| Episode { ended: now.since(at), ..episode }),
            windows: Summary::WINDOWS.map(|back| self.history.since(now, before(now, back))),
            total: self.history.total(),
            customers: self.customers.top(now, Summary::TOP),
            routes: self.routes.top(now, Summary::TOP),
        }
    }

    /// Updates the verdict at each step since the last update.
    fn catch_up(&mut self, now: Timestamp) {
        if self.judge.is_due(now) {
            for at in self.judge.due(now) {
                self.update(at);
            }
            self.update(now);
        }
    }

    fn update(&mut self, now: Timestamp) {
        let [lately, before] = [NOTICE, PAUSE].map(|back| self.history.since(now, before(now, back)).visible());
        if let Some(over) = self.judge.update(now, lately, before) {
            let enough = self.enough_since(now, over);
            let episode = Episode { ended: Duration::ZERO, lasted: over.last.since(over.begin), enough };
            self.last = Some((over.last, episode));
        }
    }

    /// CPUs that would have been enough since the spell began, if known.
    fn enough_since(&mut self, now: Timestamp, spell: Spell) -> Option<f64> {
        if now.since(spell.begin) < MIN_SPREAD {
            return None;
        }
        let window = self.history.since(now, spell.begin.max(before(now, DAY)));
        let enough = window.enough(self.config.load_line);
        (enough >= self.capacity || window.visible().lost == 0).then_some(enough)
    }
}

fn before(now: Timestamp, back: Duration) -> Timestamp {
    Timestamp::from_nanos(now.as_nanos().saturating_sub(back.as_nanos() as u64))
}

#[cfg(test)]
mod tests;

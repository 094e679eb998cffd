//! Throttling by operation: a failing endpoint throttles its own requests, and not those of others.
//!
//! Each operation that was rejected lately has a history of its own, under the cluster's policy. A
//! request is sent if the histories of its endpoint, of its group and of the cluster would all send
//! it. The requests sent for one operation are thus at most K times its accepted ones, and so is
//! the sum.
//!
//! # Evidence of the cluster
//!
//! The cluster's history covers the case that no operation sees by itself: many endpoints of few
//! requests each are rejected. So it hears of outcomes, but not of all from one operation alone. An
//! outcome is passed on to the level above while
//!
//! ```text
//! passed on + 1  ≤  max(4, (heard + 1) ÷ 8)          both sums decay by half every five seconds
//! ```
//!
//! *passed on* by this operation, and *heard* by the level above from all of its operations. One
//! endpoint is at most an eighth of the cluster's evidence, and three of them are less than the
//! half that K = 2 needs. If the whole cluster is overloaded, there are two cases. Many endpoints
//! are rejected, and each is within its eighth. Or a few are, and each learns by itself as quickly
//! as the cluster would. Accepts are passed on beyond that while the level above is in an outage:
//! its end is news.
//!
//! Operations that were not rejected have no entry, and pass on everything. So one healthy endpoint
//! outweighs a failing one.
//!
//! # Alternatives
//!
//! - *By route.* The configuration of a proxy without a file is one route.
//! - *By backend.* An endpoint that fails does so at all of them.
//! - *Histories for all operations and none for the cluster.* A thousand endpoints with a request a
//!   minute each would never learn. Nor would operations without an entry in the bounded table.
//! - *The median of the operations.* It needs all of them, and two endpoints have none.
//!
//! # Where it is weak
//!
//! - Four operations may begin to fail in one instant, before any other is accepted. They count as
//!   an outage of the cluster (14 rejections in a row), which ends with the first accepts.
//! - A caller that can provoke rejections under ever new first segments counts as many operations.
//!   Each is new, and passes on its first outcomes.
//! - Requests that share an operation are not told apart. If one URL is rejected for its query or
//!   its body alone, all requests of its operation are throttled.

use core::time::Duration;

use super::draw::Draw;
use super::history::History;
use super::{Outcome, SendKind, ThrottlePolicy};
use crate::operation::Table;
use crate::{Operation, Random, Ratio, Timestamp, decay};

/// Long beside the half second in which shares move, so that a burst of outcomes counts until
/// others were heard.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// Twelve half-lives: of a thousand outcomes less than one is left.
const RECENT: Duration = Duration::from_secs(60);
/// Outcomes that any operation may pass on. Three operations that fail together stay below the 14
/// rejections in a row that make an outage.
const FREE: f64 = 4.0;
/// Largest share of a level's evidence from one operation.
const SHARE: f64 = 1.0 / 8.0;
/// From this number of outcomes on, no operation exceeds its share of a level.
pub(super) const ENOUGH: f64 = FREE / SHARE;

/// A decaying count of outcomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutcomeCount {
    sum: f64,
    at: Timestamp,
}

impl OutcomeCount {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { sum: 0.0, at: now }
    }

    pub(super) fn count(&self, now: Timestamp) -> f64 {
        self.sum * decay::remaining(now, self.at, HALF_LIFE)
    }

    /// Whether the count is above zero and less than a minute old.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        self.sum > 0.0 && now.nanos_since(self.at) < RECENT.as_nanos() as u64
    }

    pub(super) fn add(&mut self, now: Timestamp) {
        self.add_all(now, 1);
    }

    pub(super) fn add_all(&mut self, now: Timestamp, count: u32) {
        (self.sum, self.at) = (self.count(now) + f64::from(count), self.at.max(now));
    }
}

/// One level of an operation.
#[derive(Clone, Debug)]
struct Entry {
    history: History,
    /// Outcomes heard from the level below, and those passed on to the level above.
    heard: OutcomeCount,
    passed_on: OutcomeCount,
}

impl Entry {
    /// Whether to pass an outcome on to a level with `heard` outcomes.
    fn passes_on(&self, now: Timestamp, outcome: Outcome, (heard, is_in_outage): (f64, bool)) -> bool {
        let most = FREE.max((heard + 1.0) * SHARE);
        self.passed_on.count(now) + 1.0 <= most || is_in_outage && outcome == Outcome::Accepted
    }
}

/// The operations that were rejected lately.
#[derive(Clone, Debug)]
pub(super) struct Operations(Table<Entry>);

impl Default for Operations {
    fn default() -> Self {
        Self(Table::new())
    }
}

impl Operations {
    /// Whether no operation was rejected lately.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Throttles a request if one of its operation's levels would. Returns that level's throttled
    /// share.
    pub(super) fn throttle(
        &mut self,
        now: Timestamp,
        operation: Operation,
        draw: &mut Draw<'_, impl Random>,
    ) -> Option<Ratio> {
        if self.is_empty() {
            return None;
        }
        operation.keys().find_map(|key| {
            let history = &mut self.0.get_mut(key)?.history;
            if history.judge(now, draw).is_some() {
                return None;
            }
            history.on_throttled();
            Some(history.throttled_share(now))
        })
    }

    /// Notes that a request is sent. Returns its kind, if an operation decided that.
    pub(super) fn send(
        &mut self,
        now: Timestamp,
        operation: Operation,
        draw: &mut Draw<'_, impl Random>,
    ) -> Option<SendKind> {
        if self.0.is_empty() {
            return None;
        }
        let mut sent_as = None;
        for key in operation.keys() {
            let Some(Entry { history, .. }) = self.0.get_mut(key) else { continue };
            let sent = history.judge(now, draw).unwrap_or(SendKind::Ordinary);
            history.on_sent(now, sent, draw);
            sent_as = sent_as.max(Some(sent));
        }
        sent_as
    }

    /// Counts an outcome, and returns the outcome to report to the cluster. `cluster` is its number
    /// of outcomes heard, and whether it may be in an outage.
    pub(super) fn on_outcome(
        &mut self,
        now: Timestamp,
        operation: Operation,
        outcome: Outcome,
        cluster: (f64, bool),
        policy: ThrottlePolicy,
    ) -> Outcome {
        if self.0.is_empty() && outcome != Outcome::Rejected {
            return outcome;
        }
        let mut told = outcome;
        let mut levels = operation.keys().peekable();
        while let Some(key) = levels.next() {
            let above = levels.peek().and_then(|key| self.0.get_mut(*key));
            let above = match (above, levels.peek()) {
                (Some(entry), _) => (entry.heard.count(now), entry.history.is_in_outage(now)),
                // The group was not rejected lately.
                (None, Some(_)) => (0.0, false),
                (None, None) => cluster,
            };
            let entry = match told {
                Outcome::Rejected => {
                    let Some(history) = History::new(now, policy) else { return told };
                    let new = || Entry { history, heard: OutcomeCount::new(now), passed_on: OutcomeCount::new(now) };
                    Some(self.0.get_or_insert(key, |entry| entry.heard.count(now), new))
                }
                _ => self.0.get_mut(key),
            };
            let Some(entry) = entry else { continue };
            entry.history.on_outcome(now, told);
            if told == Outcome::Unknown {
                continue;
            }
            entry.heard.add(now);
            if entry.passes_on(now, told, above) {
                entry.passed_on.add(now);
            } else {
                told = Outcome::Unknown;
            }
            if outcome == Outcome::Accepted && entry.history.is_like_new() {
                self.0.remove(key);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::Multiple;

    const PACED: ThrottlePolicy = ThrottlePolicy::Paced { k: Multiple::DEFAULT };
    const NOW: Timestamp = Timestamp::ZERO;

    #[test]
    fn operation_passes_on_four_outcomes_or_an_eighth_of_those_heard() {
        use Outcome::{Accepted, Rejected};
        for (passed_on, heard, is_in_outage, outcome, expected) in [
            (3, 0.0, false, Rejected, true),
            (4, 0.0, false, Rejected, false),
            (4, 38.0, false, Rejected, false),
            (4, 39.0, false, Rejected, true),
            (15, 127.0, false, Accepted, true),
            (16, 127.0, false, Accepted, false),
            // The end of an outage is news.
            (16, 0.0, true, Accepted, true),
            (16, 0.0, true, Rejected, false),
        ] {
            let history = History::new(NOW, PACED).expect("it is on");
            let mut entry = Entry { history, heard: OutcomeCount::new(NOW), passed_on: OutcomeCount::new(NOW) };
            (0..passed_on).for_each(|_| entry.passed_on.add(NOW));
            let found = entry.passes_on(NOW, outcome, (heard, is_in_outage));
            assert_eq!(found, expected, "{passed_on} of {heard}, {outcome:?}, in outage: {is_in_outage}");
        }
    }

    #[test]
    fn operation_is_forgotten_when_its_history_is_like_new() {
        let (mut operations, operation) = (Operations::default(), Operation::new(1, 1));
        let mut on_outcome = |outcome| {
            operations.on_outcome(NOW, operation, outcome, (0.0, false), PACED);
            operations.is_empty()
        };
        assert!(!on_outcome(Outcome::Rejected));
        assert!(!on_outcome(Outcome::Rejected), "a rejection leaves something to remember");
        let accepts = (1..100).find(|_| on_outcome(Outcome::Accepted));
        assert!(accepts.is_some_and(|accepts| accepts > 1), "{accepts:?}");
    }

    #[test]
    fn outcomes_are_recent_for_a_minute() {
        let mut heard = OutcomeCount::new(NOW);
        assert!(!heard.is_recent(NOW), "there was none");
        heard.add(NOW);
        let minute = RECENT.as_nanos() as u64;
        assert_eq!([minute - 1, minute].map(|at| heard.is_recent(Timestamp::from_nanos(at))), [true, false]);
    }
}

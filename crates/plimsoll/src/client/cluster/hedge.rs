//! Whether and where a request without an answer goes to a second backend. Asked under the
//! cluster's lock, where the budget is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_core::retry::Repeat;
use plimsoll_core::retry::hedge::{HedgeCandidate, HedgeObstacle, Verdict};
use plimsoll_core::{BackendId, Timestamp};

use super::Shared;
use super::machine::{Kind, Machine};

/// The result of the first attempt of a request that could be hedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// It was answered after this time.
    Took(Duration),
    /// It was not waited for any longer, having been out for longer than a hedge waits.
    TookLonger,
    /// It failed, or was shed, which says nothing about the latency of answers.
    Failed,
}

impl Shared {
    /// Whether any request is hedged.
    pub(crate) fn hedges(&self) -> bool {
        self.hedges.load(Ordering::Relaxed)
    }

    /// Time before the first attempt of a request is hedged; `None` while that is not known.
    pub(crate) fn hedge_delay(&self) -> Option<Duration> {
        self.machine.lock().hedge?.delay()
    }

    /// A backend for a hedge of a request at `first`, if it gets one. There it counts as active.
    pub(crate) fn hedge(&self, now: Timestamp, kind: Kind, first: BackendId, deadline: Timestamp) -> Option<BackendId> {
        self.machine.lock().hedge(now, kind, first, deadline)
    }

    /// A request that could be hedged has ended, by the answer to its hedge if `has_won`.
    pub(crate) fn on_hedged(&self, first: First, has_won: bool) {
        let mut machine = self.machine.lock();
        machine.counts.hedges.won += u64::from(has_won);
        let Some(hedge) = &mut machine.hedge else { return };
        match first {
            First::Took(latency) => hedge.on_latency(latency),
            First::TookLonger => hedge.on_overtaken(),
            First::Failed => {}
        }
    }
}

impl Machine {
    fn hedge(&mut self, now: Timestamp, kind: Kind, first: BackendId, deadline: Timestamp) -> Option<BackendId> {
        let max_attempts = self.config.retry.attempts.max_attempts;
        let waiting = HedgeCandidate {
            number: 1,
            max_attempts,
            repeat: Repeat::Safe,
            deadline: Some(deadline),
            operation: kind.operation,
        };
        match self.hedge?.ask(now, &waiting, &mut self.budget) {
            Verdict::Hedge => {
                let second = self.at_once(now, kind, &[first]).ok()?;
                self.counts.hedges.sent += 1;
                Some(second)
            }
            Verdict::Wait(why) => {
                self.counts.hedges.denied += u64::from(why == HedgeObstacle::Budget);
                None
            }
        }
    }
}

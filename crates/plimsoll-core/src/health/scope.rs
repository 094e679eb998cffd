//! The panic rule: who may be chosen when too few backends are healthy.
//!
//! When most of a cluster looks ill at once, the judge is likelier to be wrong than the cluster: a bad
//! check, a shared dependency, a network fault near the client. To send everything to the few that still look
//! well would then bring those down too. So below `threshold` the verdicts of checks and of outlier
//! ejection are set aside, and requests go to all that are not lame ducks (Envoy's panic threshold, SRE ch. 20).
//!
//! A refused connection is no verdict but a fact: such a backend joins only when nobody else is left. With three
//! of four backends dead, counting them in would make three attempts of four fail for nothing. While others have yet
//! to be reached for the first time, those are worth waiting for: there is no panic at start.

use crate::Ratio;
use crate::health::State;

/// How wide the choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Healthy backends only.
    Healthy,
    /// Panic: also those that were ejected or fail their checks.
    Suspects,
    /// Panic, and nobody of those is there or still to come: also those that refuse connections.
    Unreachable,
}

impl Scope {
    /// Below half, as Envoy and Finagle have it.
    pub const DEFAULT_PANIC_THRESHOLD: Ratio = Ratio::from_percent(50);
}

/// How many backends are in which condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In [`State::Connecting`].
    pub connecting: usize,
    /// In [`State::Healthy`].
    pub healthy: usize,
    /// In [`State::LameDuck`].
    pub lame_duck: usize,
    /// In [`State::Ejected`].
    pub ejected: usize,
    /// In [`State::Refusing`] because of their checks.
    pub failing: usize,
    /// In [`State::Refusing`] because no connection can be set up.
    pub unreachable: usize,
}

impl Census {
    /// Backends that are neither lame ducks nor still unknown.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.healthy + self.ejected + self.failing + self.unreachable
    }

    /// The count that a backend in `state` belongs to.
    pub(crate) fn count_of(&mut self, state: State, unreachable: bool) -> &mut usize {
        match state {
            State::Connecting => &mut self.connecting,
            State::Healthy => &mut self.healthy,
            State::LameDuck => &mut self.lame_duck,
            State::Ejected => &mut self.ejected,
            State::Refusing if unreachable => &mut self.unreachable,
            State::Refusing => &mut self.failing,
        }
    }

    /// How wide the choice must be.
    #[must_use]
    pub fn scope(&self, panic_threshold: Ratio) -> Scope {
        let candidates = self.candidates();
        if candidates == 0 || self.healthy as f64 >= panic_threshold.as_f64() * candidates as f64 && self.healthy > 0 {
            Scope::Healthy
        } else if self.healthy + self.ejected + self.failing > 0 {
            Scope::Suspects
        } else if self.connecting > 0 {
            Scope::Healthy
        } else {
            Scope::Unreachable
        }
    }
}

/// Whether a backend in `state` may be chosen within `scope`.
pub(crate) fn eligible(scope: Scope, state: State, unreachable: bool) -> bool {
    match state {
        State::Healthy => true,
        State::LameDuck | State::Connecting => false,
        State::Refusing if unreachable => scope == Scope::Unreachable,
        State::Ejected | State::Refusing => scope >= Scope::Suspects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(healthy: usize, failing: usize, unreachable: usize) -> Scope {
        Census { healthy, failing, unreachable, ..Census::default() }.scope(Scope::DEFAULT_PANIC_THRESHOLD)
    }

    #[test]
    fn panic_begins_below_half() {
        assert_eq!(scope(2, 2, 0), Scope::Healthy);
        assert_eq!(scope(1, 2, 0), Scope::Suspects);
        assert_eq!(scope(0, 1, 3), Scope::Suspects);
        assert_eq!(scope(0, 0, 3), Scope::Unreachable);
        assert_eq!(scope(0, 0, 0), Scope::Healthy);
    }

    #[test]
    fn a_dead_backend_is_chosen_only_when_nobody_else_is_left() {
        assert!(!eligible(Scope::Suspects, State::Refusing, true));
        assert!(eligible(Scope::Suspects, State::Refusing, false));
        assert!(eligible(Scope::Unreachable, State::Refusing, true));
    }

    #[test]
    fn lame_ducks_are_never_chosen() {
        for scope in [Scope::Healthy, Scope::Suspects, Scope::Unreachable] {
            assert!(!eligible(scope, State::LameDuck, false));
        }
    }

    #[test]
    fn a_threshold_of_zero_panics_only_when_none_is_healthy() {
        let census = Census { healthy: 1, failing: 99, ..Census::default() };
        assert_eq!(census.scope(Ratio::ZERO), Scope::Healthy);
        assert_eq!(Census { healthy: 0, ..census }.scope(Ratio::ZERO), Scope::Suspects);
    }
}

//! The panic threshold: the backends that may be chosen when too few are healthy.
//!
//! If most of a cluster looks unhealthy at once, the judgment is more likely wrong than the
//! cluster. The cause may be a bad check, a shared dependency, or a network fault near the client.
//! Sending everything to the few backends that still look healthy would bring those down too. So
//! below `threshold` the verdicts of checks and of outlier ejection are set aside. Requests then go
//! to all backends that are not lame ducks (Envoy's panic threshold, SRE ch. 20).
//!
//! A refused connection is a fact and not a verdict: such a backend joins only when no other is
//! left. With three of four backends dead, three of four attempts would otherwise fail for nothing.
//! Backends that have yet to be reached for the first time are worth a wait, so there is no panic
//! at the start.

use crate::Ratio;
use crate::health::State;

/// The set of backends that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Healthy backends only.
    Healthy,
    /// Panic: also backends that were ejected or fail their checks.
    Suspects,
    /// Panic, and none of those exists or is still connecting: also backends that refuse
    /// connections.
    Unreachable,
}

impl Scope {
    /// Half, as in Envoy and Finagle.
    pub const DEFAULT_PANIC_THRESHOLD: Ratio = Ratio::from_percent(50);
}

/// The number of backends in each state.
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
    /// Backends that are neither lame ducks nor still connecting.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.healthy + self.ejected + self.failing + self.unreachable
    }

    /// The count of the backends in `state`.
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

    /// The scope that these counts require.
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
    fn unreachable_backend_is_eligible_only_when_no_other_is_left() {
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

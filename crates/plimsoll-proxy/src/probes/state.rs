//! Decides the state of a service from the states of its backends.
//!
//! ```text
//! starting ──a backend is healthy──▶ healthy ◀──a backend is healthy── lame duck
//!                                       └──all say so, or none serves for a second──▶
//! ```
//!
//! A backend that calls itself a lame duck is believed at once. One that merely fails may be back in
//! a moment, and a notice to all clients would cost more than their retries. An ejected backend
//! still serves. A service that never was healthy is starting, however long that takes.
//!
//! Backends that the proxy does not protect are elsewhere, and other proxies have them too. If all of
//! these became lame ducks with them, a fault of the backends would be one of the whole front. So
//! such a proxy stays healthy, as at `/readyz`.

use std::time::Duration;

use plimsoll::probe::ServerState;
use plimsoll_core::Timestamp;
use plimsoll_core::health::State;

/// Time without a serving backend until the service counts as a lame duck. As long as a client
/// waits for the answer to one probe.
const PATIENCE: Duration = Duration::from_secs(1);

/// Backends by state, in the order of [`State::ALL`].
pub(super) type Backends = [u32; State::ALL.len()];

/// The state of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceState {
    state: ServerState,
    unserved_since: Option<Timestamp>,
}

impl ServiceState {
    /// A service of which nothing is known.
    pub(super) fn new() -> Self {
        Self { state: ServerState::Starting, unserved_since: None }
    }

    /// The state now, with these backends.
    pub(super) fn on_look(&mut self, now: Timestamp, backends: &Backends) -> ServerState {
        let count = |state: State| backends[state as usize];
        if count(State::Healthy) + count(State::Ejected) > 0 {
            *self = Self { state: ServerState::Healthy, unserved_since: None };
        } else if self.state != ServerState::Starting {
            let since = *self.unserved_since.get_or_insert(now);
            if count(State::LameDuck) > 0 || now.since(since) >= PATIENCE {
                self.state = ServerState::LameDuck;
            }
        }
        self.state
    }

    /// The state now, of a listener without a protected process; whether any backend is healthy.
    pub(super) fn on_unprotected_look(&mut self, is_served: bool) -> ServerState {
        if is_served {
            *self = Self { state: ServerState::Healthy, unserved_since: None };
        }
        self.state
    }
}

#[cfg(test)]
mod tests {
    use ServerState::{Healthy, LameDuck, Starting};

    use super::*;

    fn of(states: &[State]) -> Backends {
        let mut backends = Backends::default();
        states.iter().for_each(|state| backends[*state as usize] += 1);
        backends
    }

    /// The states after these looks, each some milliseconds after the start.
    fn states(looks: &[(u64, &[State])]) -> Vec<ServerState> {
        let mut service = ServiceState::new();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        looks.iter().map(|(ms, backends)| service.on_look(at(*ms), &of(backends))).collect()
    }

    #[test]
    fn service_is_starting_until_a_backend_is_healthy() {
        let looks: &[(u64, &[State])] = &[
            (0, &[]),
            (1, &[State::Connecting]),
            (9_000, &[State::Refusing, State::LameDuck]),
            (9_020, &[State::Refusing, State::Healthy]),
        ];
        assert_eq!(states(looks), [Starting, Starting, Starting, Healthy]);
    }

    #[test]
    fn lame_duck_by_its_own_word_counts_at_once() {
        let looks: &[(u64, &[State])] = &[
            (0, &[State::Healthy, State::LameDuck]),
            (20, &[State::Refusing, State::LameDuck]),
            (40, &[State::Refusing, State::Refusing]),
            (60, &[State::Refusing, State::Healthy]),
        ];
        assert_eq!(states(looks), [Healthy, LameDuck, LameDuck, Healthy]);
    }

    #[test]
    fn failure_counts_after_a_second_without_a_serving_backend() {
        let failed: &[State] = &[State::Refusing];
        let looks: &[(u64, &[State])] =
            &[(0, &[State::Healthy]), (20, failed), (900, &[State::Connecting]), (1_019, failed), (1_020, failed)];
        assert_eq!(states(looks), [Healthy, Healthy, Healthy, Healthy, LameDuck]);
        let looks: &[(u64, &[State])] =
            &[(0, &[State::Healthy]), (20, failed), (900, &[State::Ejected]), (1_020, failed), (2_019, failed)];
        assert_eq!(states(looks), [Healthy; 5], "an outlier serves, and ends the wait");
    }

    #[test]
    fn proxy_without_a_protected_process_stays_healthy() {
        let mut service = ServiceState::new();
        let looks = [false, true, false, true].map(|is_served| service.on_unprotected_look(is_served));
        assert_eq!(looks, [Starting, Healthy, Healthy, Healthy]);
    }
}

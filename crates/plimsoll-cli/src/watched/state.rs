//! Decides the state of the process from the results of its checks.
//!
//! ```text
//! starting ──passes──▶ healthy ◀──passes── lame duck
//!                         └──not serving, or three failures in a row──▶
//! ```
//!
//! "Not serving" counts at once, because the process says so itself. A failure may be a lost
//! second, so it takes three in a row, as in the checks of clients. A starting process fails until
//! it is ready. Once `plimsoll answer` is told to end, the process stays a lame duck: a check that
//! passes during its drain is no invitation.

use plimsoll::probe::ServerState;
use plimsoll_core::health::{CheckConfig, CheckOutcome};

/// The state of a process by its checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessState {
    state: ServerState,
    /// In a row.
    failures: u32,
    is_ending: bool,
}

impl ProcessState {
    /// A process that has passed no check.
    pub(crate) fn new() -> Self {
        Self { state: ServerState::Starting, failures: 0, is_ending: false }
    }

    /// The state now.
    pub(crate) fn get(&self) -> ServerState {
        self.state
    }

    /// Takes the result of a check.
    pub(crate) fn on_check(&mut self, outcome: CheckOutcome) {
        self.failures = match outcome {
            CheckOutcome::Failed | CheckOutcome::Unreachable => self.failures.saturating_add(1),
            CheckOutcome::Passed | CheckOutcome::NotServing => 0,
            CheckOutcome::NotMade => self.failures,
        };
        let has_failed = self.failures >= CheckConfig::DEFAULT_FAILURES_TO_REFUSE.get();
        match outcome {
            _ if self.is_ending => {}
            CheckOutcome::Passed => self.state = ServerState::Healthy,
            _ if self.state != ServerState::Healthy => {}
            _ if has_failed || outcome == CheckOutcome::NotServing => self.state = ServerState::LameDuck,
            _ => {}
        }
    }

    /// A lame duck from now on.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        self.state = ServerState::LameDuck;
    }
}

#[cfg(test)]
mod tests {
    use CheckOutcome::{Failed, NotMade, NotServing, Passed, Unreachable};
    use ServerState::{Healthy, LameDuck, Starting};

    use super::*;

    fn after(outcomes: &[CheckOutcome]) -> ServerState {
        let mut process = ProcessState::new();
        outcomes.iter().for_each(|outcome| process.on_check(*outcome));
        process.get()
    }

    #[test]
    fn process_is_starting_until_its_first_pass() {
        assert_eq!(after(&[]), Starting);
        assert_eq!(after(&[Unreachable, Unreachable, Failed, Failed, NotServing, NotMade]), Starting);
        assert_eq!(after(&[Unreachable, NotServing, Passed]), Healthy);
    }

    #[test]
    fn not_serving_counts_at_once_and_a_failure_only_with_two_more_in_a_row() {
        assert_eq!(after(&[Passed, NotServing]), LameDuck);
        assert_eq!(after(&[Passed, Failed, Unreachable]), Healthy);
        assert_eq!(after(&[Passed, Failed, Unreachable, Failed]), LameDuck);
        assert_eq!(after(&[Passed, Failed, Failed, Passed, Failed, Failed]), Healthy, "not in a row");
    }

    #[test]
    fn failures_before_the_first_pass_do_not_count_after_it() {
        assert_eq!(after(&[Unreachable, Unreachable, Unreachable, Passed, Failed]), Healthy);
    }

    #[test]
    fn check_that_was_not_made_is_no_evidence() {
        assert_eq!(after(&[Passed, NotMade, NotMade, NotMade]), Healthy);
        assert_eq!(after(&[Passed, Failed, NotMade, Failed, Failed]), LameDuck);
    }

    #[test]
    fn lame_duck_is_healthy_again_after_a_pass_unless_it_is_ending() {
        assert_eq!(after(&[Passed, NotServing, Failed, Passed]), Healthy);
        for before in [&[][..], &[Passed], &[Passed, NotServing]] {
            let mut process = ProcessState::new();
            before.iter().for_each(|outcome| process.on_check(*outcome));
            process.end();
            process.on_check(Passed);
            assert_eq!(process.get(), LameDuck);
        }
    }
}

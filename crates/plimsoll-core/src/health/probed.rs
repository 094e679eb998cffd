//! Checks of a backend that probes observe: paused while probes replace them, and run on request.
//!
//! A paused machine keeps its schedule and does not wake up for it. A requested check runs even
//! then, and its failure counts as the last of a row: queries got no answer before.

use super::CheckConfig;
use super::machine::Health;
use crate::{Random, Timestamp};

/// The mode of a backend's checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckMode {
    /// By the schedule.
    #[default]
    Scheduled,
    /// Probes replace the checks.
    Paused,
    /// One check is requested; `true` if checks are paused otherwise.
    Requested { paused: bool },
}

impl CheckMode {
    fn is_paused(self) -> bool {
        matches!(self, Self::Paused | Self::Requested { paused: true })
    }
}

impl Health {
    /// Stops checks until [`Health::resume_checks`]. One that runs goes on.
    pub(crate) fn pause_checks(&mut self) {
        self.check_mode = match self.check_mode {
            CheckMode::Requested { .. } => CheckMode::Requested { paused: true },
            _ => CheckMode::Paused,
        };
    }

    /// Goes on with checks: those of a healthy backend spread over an interval.
    pub(crate) fn resume_checks(&mut self, now: Timestamp, checks: &CheckConfig, rng: &mut impl Random) {
        if !self.check_mode.is_paused() {
            return;
        }
        self.end_pause();
        self.reschedule_after_pause(now, checks, rng);
    }

    /// Ends a pause without a new schedule.
    pub(crate) fn end_pause(&mut self) {
        self.check_mode = match self.check_mode {
            CheckMode::Requested { .. } => CheckMode::Requested { paused: false },
            _ => CheckMode::Scheduled,
        };
    }

    /// Runs one check now, paused or not. No effect on a drained backend, or while one runs.
    pub(crate) fn request_check(&mut self, now: Timestamp) {
        if self.is_checkable() {
            self.check_mode = CheckMode::Requested { paused: self.check_mode.is_paused() };
            self.set_check_due(now);
        }
    }

    /// The requested check has its outcome. Returns whether it was requested.
    pub(super) fn end_request(&mut self) -> bool {
        let CheckMode::Requested { paused } = self.check_mode else { return false };
        self.check_mode = if paused { CheckMode::Paused } else { CheckMode::Scheduled };
        true
    }
}

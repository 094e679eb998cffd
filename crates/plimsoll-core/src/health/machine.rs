//! One backend's state, and the events that change it.
//!
//! The machine decides the next state and the time of the next check. It does not know the other
//! backends, so its caller asks for ejections, which depend on them. A lame duck that announced
//! itself comes back only by evidence of a new process: a passed check, or the end of the old
//! process. Without active checks there is no such evidence, so after a wait it gets a request on
//! trial. If it is still a lame duck, it serves that request, reports so again, and the wait grows.

use core::time::Duration;

use super::probed::CheckMode;
use super::{BackoffConfig, CheckConfig, CheckOutcome, Reason, State};
use crate::{Random, Timestamp};

/// Wait before a lame duck is checked: a restart takes about this long.
const LAME_DUCK_CHECK: Duration = Duration::from_secs(1);
/// First wait before the trial of a lame duck without active checks.
const LAME_DUCK_TRIAL: Duration = Duration::from_secs(5);

/// Wait before a check that could not be made is retried. Others may return the missing resource by
/// then; more frequent checks would not bring it back.
const NOT_MADE_CHECK: Duration = Duration::from_secs(1);

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) reason: Reason,
}

/// The state of one backend.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    state: State,
    reason: Reason,
    since: Timestamp,
    drained: bool,
    failures: u32,
    passes: u32,
    refusals: u32,
    lame_trials: u32,
    check_running: bool,
    check_due: Option<Timestamp>,
    pub(super) check_mode: CheckMode,
    /// The next regular check may coincide with those of other backends.
    in_step: bool,
    ejected_until: Option<Timestamp>,
}

impl Health {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            state: State::Connecting,
            reason: Reason::Added,
            since: now,
            drained: false,
            failures: 0,
            passes: 0,
            refusals: 0,
            lame_trials: 0,
            check_running: false,
            check_due: Some(now),
            check_mode: CheckMode::Scheduled,
            in_step: true,
            ejected_until: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn reason(&self) -> Reason {
        self.reason
    }

    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Whether an operator drained it.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Whether it refuses connections, as opposed to failing its checks.
    pub(crate) fn unreachable(&self) -> bool {
        self.state == State::Refusing && self.reason != Reason::CheckFailed
    }

    /// Time of the machine's next wake-up.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        let check = self.check_due.filter(|_| !self.check_running && self.check_mode != CheckMode::Paused);
        match (check, self.ejected_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Starts a check that is due; the outcome must go to [`Health::on_check`].
    pub(crate) fn take_check(&mut self, now: Timestamp) -> bool {
        let may_run = !self.check_running && self.check_mode != CheckMode::Paused;
        let due = may_run && self.check_due.is_some_and(|at| at <= now);
        if due {
            self.check_running = true;
            self.check_due = None;
        }
        due
    }

    /// Turns active checks on: a backend without a scheduled check is checked now.
    pub(crate) fn begin_checks(&mut self, now: Timestamp) {
        if self.check_due.is_none() && !self.check_running && !self.drained {
            self.check_due = Some(now);
            self.in_step = true;
        }
    }

    /// Whether a check may be scheduled now.
    pub(super) fn is_checkable(&self) -> bool {
        !self.drained && !self.check_running
    }

    pub(super) fn set_check_due(&mut self, at: Timestamp) {
        self.check_due = Some(at);
    }

    /// Replaces a schedule that went on without checks. Only a healthy backend waits.
    pub(super) fn reschedule_after_pause(&mut self, now: Timestamp, checks: &CheckConfig, rng: &mut impl Random) {
        let is_late = self.check_due.is_none_or(|at| at <= now);
        if self.state == State::Healthy && is_late && self.is_checkable() {
            self.check_due = checks.active.then(|| now + checks.first_wait(rng));
        }
    }

    pub(crate) fn on_connected(&mut self, now: Timestamp, checks: &CheckConfig) -> Option<Change> {
        match self.state {
            State::Connecting | State::Refusing if !checks.active => self.heal(now, Reason::Connected),
            State::Refusing if self.unreachable() => {
                self.check_due = Some(now);
                None
            }
            _ => None,
        }
    }

    pub(crate) fn on_connect_failed(
        &mut self,
        now: Timestamp,
        backoff: &BackoffConfig,
        rng: &mut impl Random,
    ) -> Option<Change> {
        if self.drained || self.unreachable() {
            return None;
        }
        self.refuse(now, Reason::ConnectFailed, backoff, rng)
    }

    /// The process behind a lame duck has ended; a process that listens there now is another.
    pub(crate) fn on_process_ended(&mut self, now: Timestamp) -> Option<Change> {
        if self.state != State::LameDuck || self.drained {
            return None;
        }
        self.refusals = 0;
        self.lame_trials = 0;
        self.check_due = Some(now);
        self.transition(now, State::Refusing, Reason::ProcessEnded)
    }

    pub(crate) fn on_lame_duck_report(&mut self, now: Timestamp, checks: &CheckConfig) -> Option<Change> {
        matches!(self.state, State::Healthy | State::Ejected)
            .then(|| self.become_lame_duck(now, Reason::Reported, checks))
            .flatten()
    }

    pub(crate) fn on_check(
        &mut self,
        now: Timestamp,
        outcome: CheckOutcome,
        checks: &CheckConfig,
        backoff: &BackoffConfig,
        rng: &mut impl Random,
    ) -> Option<Change> {
        self.check_running = false;
        let was_requested = self.end_request();
        if self.drained {
            return None;
        }
        (self.passes, self.failures) = match outcome {
            CheckOutcome::Passed => (self.passes + 1, 0),
            CheckOutcome::NotServing => (0, 0),
            CheckOutcome::Failed | CheckOutcome::Unreachable => (0, self.failures + 1),
            CheckOutcome::NotMade => (self.passes, self.failures),
        };
        let change = match outcome {
            CheckOutcome::Passed => self.on_passed(now, checks, backoff, rng),
            CheckOutcome::NotServing => self.become_lame_duck(now, Reason::NotServing, checks),
            CheckOutcome::Unreachable => self.refuse(now, Reason::ConnectFailed, backoff, rng),
            CheckOutcome::Failed => match self.state {
                State::Connecting | State::Refusing => self.refuse(now, Reason::CheckFailed, backoff, rng),
                _ if was_requested || self.failures >= checks.failures_to_refuse.get() => {
                    self.refuse(now, Reason::CheckFailed, backoff, rng)
                }
                _ => None,
            },
            CheckOutcome::NotMade => self.on_not_made(now, checks),
        };
        if self.check_due.is_none() && checks.active {
            let is_first = core::mem::take(&mut self.in_step);
            let wait = if is_first { checks.first_wait(rng) } else { checks.wait(rng) };
            self.check_due = Some(now + wait);
        }
        change
    }

    fn on_passed(
        &mut self,
        now: Timestamp,
        checks: &CheckConfig,
        backoff: &BackoffConfig,
        rng: &mut impl Random,
    ) -> Option<Change> {
        match self.state {
            State::Healthy | State::Ejected => None,
            State::Refusing if self.passes < checks.passes_to_heal.get() => {
                self.check_due = Some(now + backoff.delay(0, rng));
                None
            }
            State::Connecting | State::LameDuck | State::Refusing => self.heal(now, Reason::CheckPassed),
        }
    }

    /// The check gave no evidence, so a backend that needs a check still does.
    fn on_not_made(&mut self, now: Timestamp, checks: &CheckConfig) -> Option<Change> {
        let needs_check = checks.active || !matches!(self.state, State::Healthy | State::Ejected);
        self.check_due = self.check_due.or(needs_check.then(|| now + NOT_MADE_CHECK));
        None
    }

    /// Leaves the backend out until `until`. Only a healthy one can be ejected.
    pub(crate) fn eject(&mut self, now: Timestamp, until: Timestamp, reason: Reason) -> Option<Change> {
        if self.state != State::Healthy {
            return None;
        }
        self.ejected_until = Some(until);
        self.transition(now, State::Ejected, reason)
    }

    /// Ends an ejection that has expired.
    pub(crate) fn end_ejection(&mut self, now: Timestamp) -> Option<Change> {
        if self.state != State::Ejected || self.ejected_until.is_none_or(|until| until > now) {
            return None;
        }
        self.transition(now, State::Healthy, Reason::EjectionOver)
    }

    pub(crate) fn drain(&mut self, now: Timestamp) -> Option<Change> {
        self.drained = true;
        self.check_due = None;
        self.transition(now, State::LameDuck, Reason::Drained)
    }

    pub(crate) fn undrain(&mut self, now: Timestamp) -> Option<Change> {
        if !self.drained {
            return None;
        }
        self.drained = false;
        (self.failures, self.passes, self.refusals, self.lame_trials) = (0, 0, 0, 0);
        self.check_due = Some(now);
        self.transition(now, State::Connecting, Reason::Undrained)
    }

    fn heal(&mut self, now: Timestamp, reason: Reason) -> Option<Change> {
        self.refusals = 0;
        self.failures = 0;
        self.check_due = None;
        self.in_step = true;
        self.transition(now, State::Healthy, reason)
    }

    fn refuse(
        &mut self,
        now: Timestamp,
        reason: Reason,
        backoff: &BackoffConfig,
        rng: &mut impl Random,
    ) -> Option<Change> {
        self.check_due = Some(now + backoff.delay(self.refusals, rng));
        self.refusals = self.refusals.saturating_add(1);
        self.lame_trials = 0;
        if self.state == State::Refusing {
            // The census counts the two kinds apart, so a move between them is a change.
            let same_kind = self.unreachable() == (reason != Reason::CheckFailed);
            if same_kind {
                return None;
            }
        }
        self.transition(now, State::Refusing, reason)
    }

    fn become_lame_duck(&mut self, now: Timestamp, reason: Reason, checks: &CheckConfig) -> Option<Change> {
        let wait = if checks.active {
            checks.interval.min(LAME_DUCK_CHECK)
        } else {
            LAME_DUCK_TRIAL.saturating_mul(1_u32.checked_shl(self.lame_trials.min(4)).unwrap_or(1))
        };
        self.lame_trials += 1;
        self.check_due = Some(now + wait);
        if self.state == State::LameDuck {
            return None;
        }
        self.transition(now, State::LameDuck, reason)
    }

    fn transition(&mut self, now: Timestamp, to: State, reason: Reason) -> Option<Change> {
        let from = self.state;
        if to != State::Ejected {
            self.ejected_until = None;
        }
        let same = from == to && self.reason == reason;
        (self.state, self.reason) = (to, reason);
        if same {
            return None;
        }
        self.since = now;
        Some(Change { from, to, reason })
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const ACTIVE: CheckConfig = CheckConfig {
        active: true,
        interval: CheckConfig::DEFAULT_INTERVAL,
        failures_to_refuse: CheckConfig::DEFAULT_FAILURES_TO_REFUSE,
        passes_to_heal: CheckConfig::DEFAULT_PASSES_TO_HEAL,
    };
    const PASSIVE: CheckConfig = CheckConfig { active: false, ..ACTIVE };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn check(health: &mut Health, secs: u64, outcome: CheckOutcome, checks: &CheckConfig) -> Option<State> {
        let mut rng = Pcg64Mcg::seed_from_u64(secs);
        health.on_check(at(secs), outcome, checks, &BackoffConfig::default(), &mut rng).map(|change| change.to)
    }

    fn healthy(checks: &CheckConfig) -> Health {
        let mut health = Health::new(at(0));
        assert!(health.take_check(at(0)));
        assert_eq!(check(&mut health, 0, CheckOutcome::Passed, checks), Some(State::Healthy));
        health
    }

    #[test]
    fn a_connection_heals_only_where_no_check_asks_for_more() {
        let mut health = Health::new(at(0));
        assert_eq!(health.on_connected(at(0), &ACTIVE), None);
        assert_eq!(health.on_connected(at(0), &PASSIVE).map(|c| c.to), Some(State::Healthy));
    }

    #[test]
    fn check_that_was_not_made_changes_nothing_and_is_retried() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for checks in [ACTIVE, PASSIVE] {
            let mut begun = Health::new(at(0));
            assert!(begun.take_check(at(0)));
            assert_eq!(check(&mut begun, 0, CheckOutcome::NotMade, &checks), None);
            assert_eq!((begun.state(), begun.wake_at()), (State::Connecting, Some(at(1))));

            let mut refusing = healthy(&checks);
            refusing.on_connect_failed(at(1), &BackoffConfig::default(), &mut rng);
            assert!(refusing.take_check(at(2)));
            assert_eq!(check(&mut refusing, 2, CheckOutcome::NotMade, &checks), None);
            assert_eq!((refusing.state(), refusing.wake_at()), (State::Refusing, Some(at(3))));
        }
        let mut health = healthy(&ACTIVE);
        for secs in [20, 40, 60, 80] {
            let outcome = if secs == 60 { CheckOutcome::NotMade } else { CheckOutcome::Failed };
            assert!(health.take_check(at(secs)));
            assert_eq!(check(&mut health, secs, outcome, &ACTIVE).is_some(), secs == 80, "the third failure in a row");
        }
        let mut unchecked = healthy(&PASSIVE);
        assert_eq!(check(&mut unchecked, 9, CheckOutcome::NotMade, &PASSIVE), None);
        assert_eq!(unchecked.wake_at(), None);
    }

    #[test]
    fn failing_checks_must_come_in_a_row_to_refuse() {
        let mut health = healthy(&ACTIVE);
        assert_eq!(check(&mut health, 10, CheckOutcome::Failed, &ACTIVE), None);
        assert_eq!(check(&mut health, 20, CheckOutcome::Failed, &ACTIVE), None);
        assert_eq!(check(&mut health, 30, CheckOutcome::Passed, &ACTIVE), None);
        assert_eq!(check(&mut health, 40, CheckOutcome::Failed, &ACTIVE), None);
        assert_eq!(check(&mut health, 50, CheckOutcome::Failed, &ACTIVE), None);
        assert_eq!(check(&mut health, 60, CheckOutcome::Failed, &ACTIVE), Some(State::Refusing));
        assert!(!health.unreachable());
    }

    #[test]
    fn refused_connection_marks_refusing_at_once_and_backs_off() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut health = healthy(&PASSIVE);
        let change = health.on_connect_failed(at(1), &BackoffConfig::default(), &mut rng);
        assert_eq!(change.map(|c| c.to), Some(State::Refusing));
        let first = health.wake_at().expect("looked at again").since(at(1));
        assert!(health.take_check(at(2)));
        assert_eq!(health.wake_at(), None, "one check at a time");
        check(&mut health, 2, CheckOutcome::Unreachable, &PASSIVE);
        let second = health.wake_at().expect("looked at again").since(at(2));
        assert!(second > first, "{second:?} after {first:?}");
        assert_eq!(check(&mut health, 3, CheckOutcome::Passed, &PASSIVE), Some(State::Healthy));
    }

    #[test]
    fn a_lame_duck_comes_back_by_a_passed_check() {
        let mut health = healthy(&ACTIVE);
        assert_eq!(health.on_lame_duck_report(at(1), &ACTIVE).map(|c| c.to), Some(State::LameDuck));
        assert_eq!(check(&mut health, 2, CheckOutcome::NotServing, &ACTIVE), None);
        assert_eq!(health.on_connected(at(2), &ACTIVE), None);
        assert_eq!(check(&mut health, 3, CheckOutcome::Passed, &ACTIVE), Some(State::Healthy));
    }

    #[test]
    fn the_end_of_a_lame_duck_has_it_checked_at_once() {
        let mut health = healthy(&PASSIVE);
        assert_eq!(health.on_process_ended(at(1)), None, "only a lame duck ends");
        health.on_lame_duck_report(at(1), &PASSIVE);
        assert_eq!(health.on_process_ended(at(3)).map(|c| c.to), Some(State::Refusing));
        assert_eq!(health.wake_at(), Some(at(3)));
    }

    #[test]
    fn lame_duck_without_checks_gets_trials_with_growing_delay() {
        let mut health = healthy(&PASSIVE);
        health.on_lame_duck_report(at(1), &PASSIVE);
        assert_eq!(health.wake_at(), Some(at(6)));
        assert!(health.take_check(at(6)));
        assert_eq!(check(&mut health, 6, CheckOutcome::Passed, &PASSIVE), Some(State::Healthy));
        health.on_lame_duck_report(at(7), &PASSIVE);
        assert_eq!(health.wake_at(), Some(at(17)));
    }

    #[test]
    fn a_drained_backend_comes_back_only_when_undrained() {
        let mut health = healthy(&ACTIVE);
        assert_eq!(health.drain(at(1)).map(|c| c.reason), Some(Reason::Drained));
        assert_eq!(check(&mut health, 2, CheckOutcome::Passed, &ACTIVE), None);
        assert_eq!(health.on_process_ended(at(2)), None);
        assert_eq!(health.state(), State::LameDuck);
        assert_eq!(health.undrain(at(3)).map(|c| c.to), Some(State::Connecting));
        assert_eq!(check(&mut health, 3, CheckOutcome::Passed, &ACTIVE), Some(State::Healthy));
    }

    #[test]
    fn paused_checks_wait_and_a_requested_one_decides_at_once() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut health = healthy(&ACTIVE);
        health.pause_checks();
        assert_eq!(health.wake_at(), None);
        assert!(!health.take_check(at(99)));
        health.request_check(at(100));
        assert_eq!(health.wake_at(), Some(at(100)));
        assert!(health.take_check(at(100)));
        health.request_check(at(100));
        assert_eq!(check(&mut health, 100, CheckOutcome::Passed, &ACTIVE), None);
        assert_eq!(health.wake_at(), None, "paused as before");
        health.request_check(at(101));
        assert!(health.take_check(at(101)));
        assert_eq!(check(&mut health, 101, CheckOutcome::Failed, &ACTIVE), Some(State::Refusing));
        health.resume_checks(at(102), &ACTIVE, &mut rng);
        let retry = health.wake_at().expect("a refusing backend is checked again");
        assert!(retry <= at(102), "{retry:?}");
        assert!(health.take_check(at(102)));
        assert_eq!(check(&mut health, 102, CheckOutcome::Passed, &ACTIVE), Some(State::Healthy));
    }

    #[test]
    fn resumed_checks_of_healthy_backends_spread_over_an_interval() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut waits = [0.0; 200];
        for wait in &mut waits {
            let mut health = healthy(&ACTIVE);
            health.pause_checks();
            health.resume_checks(at(100), &ACTIVE, &mut rng);
            *wait = health.wake_at().expect("checks go on").since(at(100)).as_secs_f64();
        }
        assert!(waits.iter().all(|wait| (0.0..10.0).contains(wait)));
        // Seed 1, uniform on 0..10, n = 200: five standard errors are 1.02.
        let mean = waits.iter().sum::<f64>() / 200.0;
        assert!((mean - 5.0).abs() < 1.02, "{mean}");
        let mut unpaused = healthy(&ACTIVE);
        let before = unpaused.wake_at();
        unpaused.resume_checks(at(100), &ACTIVE, &mut rng);
        assert_eq!(unpaused.wake_at(), before, "nothing to resume");
    }

    #[test]
    fn lame_duck_with_paused_checks_is_not_healed_by_one() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut health = healthy(&PASSIVE);
        health.pause_checks();
        health.on_lame_duck_report(at(1), &PASSIVE);
        assert_eq!(health.wake_at(), None, "no trial while probes know");
        health.on_process_ended(at(30));
        health.resume_checks(at(30), &PASSIVE, &mut rng);
        assert_eq!(health.wake_at(), Some(at(30)));
        health.drain(at(31));
        health.request_check(at(32));
        assert_eq!(health.wake_at(), None, "an operator's word stands");
    }

    #[test]
    fn an_ejection_ends_when_its_time_is_up() {
        let mut health = healthy(&PASSIVE);
        assert!(health.eject(at(1), at(31), Reason::ConsecutiveFailures).is_some());
        assert_eq!(health.wake_at(), Some(at(31)));
        assert_eq!(health.end_ejection(at(30)), None);
        assert_eq!(health.end_ejection(at(31)).map(|c| c.to), Some(State::Healthy));
    }
}

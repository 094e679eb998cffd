//! The transitions of path, mode and state.

use alloc::vec::Vec;
use core::time::Duration;

use super::instances::Sender;
use super::{
    Action, CAUSED_PER_SECOND, FIRST_SILENT_INTERVAL, KeySource, LAME_DUCK_INTERVAL, LAME_DUCK_SILENCE,
    LOGGED_AGAIN_AFTER, MAX_LOSSES, MAX_MIN_DELAY, Path, Prober, ProberConfig, SILENT_INTERVAL, SilenceCause, Traffic,
    jittered,
};
use crate::probe::message::{Answer, ServerState};
use crate::{Random, Timestamp};

impl Prober {
    /// Whether the server said that it wants no requests.
    #[must_use]
    pub fn is_unready(&self) -> bool {
        self.server.is_some_and(|state| state != ServerState::Healthy)
    }

    /// The outstanding query got no answer in time.
    pub(super) fn on_loss(
        &mut self,
        now: Timestamp,
        config: &ProberConfig,
        traffic: &Traffic,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        let Some(sent) = self.sent.take() else { return };
        if self.losses == 0 {
            self.first_loss = sent;
        }
        self.losses = self.losses.saturating_add(1);
        let tcp_works = traffic.last_success.is_some_and(|at| at >= self.first_loss);
        if matches!(self.path, Path::Silent(_)) {
            self.wait_in_silence(now, rng);
        } else if self.is_unready() {
            self.due = Some(now);
            if now.since(self.last_heard) >= LAME_DUCK_SILENCE {
                self.fall_silent(now, SilenceCause::NoAnswer, rng, actions);
            } else if config.keys == KeySource::Checks && self.losses.is_multiple_of(MAX_LOSSES) {
                actions.push(Action::CheckNow);
            }
        } else if self.losses < MAX_LOSSES {
            self.due = Some(now);
        } else if self.is_inactive {
            self.request_check(now, SilenceCause::NoAnswer, config, rng, actions);
        } else if tcp_works {
            self.fall_silent(now, SilenceCause::NoAnswer, rng, actions);
        } else {
            self.due = Some(now + jittered(config.interval, rng));
        }
    }

    /// Becomes inactive, or notes when it will.
    pub(super) fn rest(&mut self, now: Timestamp, config: &ProberConfig, traffic: &Traffic, actions: &mut Vec<Action>) {
        let is_safe = self.path == Path::Works
            && self.server == Some(ServerState::Healthy)
            && self.losses == 0
            && traffic.last_success.is_some_and(|at| at >= self.checked_since);
        // A request in flight may end at any time from now on.
        let last = if traffic.in_flight == 0 { traffic.last_request } else { now };
        let at = config.inactive_after.map(|after| last + after);
        self.inactive_at = at.filter(|_| is_safe && !self.is_inactive);
        if self.inactive_at.is_some_and(|at| at <= now) {
            self.inactive_at = None;
            self.is_inactive = true;
            actions.push(Action::CloseConnections);
            // The lease begins with the next query.
            match self.sent {
                Some(_) => self.ask_again = true,
                None => self.due = Some(now),
            }
        }
    }

    pub(super) fn on_server_state(
        &mut self,
        now: Timestamp,
        state: ServerState,
        answer: &Answer,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        let sender = self.instances.note(answer.instance);
        if sender == Sender::Alternating {
            return self.fall_silent(now, SilenceCause::Alternating, rng, actions);
        }
        if self.path == Path::Silent(SilenceCause::Alternating) && !self.instances.is_steady() {
            self.wait_in_silence(now, rng);
            return;
        }
        if self.path != Path::Works {
            self.path = Path::Works;
            self.works_since = now;
        }
        self.not_before = now + answer.min_delay.min(MAX_MIN_DELAY);
        if let Some(load) = answer.load {
            actions.push(Action::Report(crate::LoadReport { lame_duck: state != ServerState::Healthy, ..load }));
        }
        // An answer that a notice has overtaken is from before it.
        if sender == Sender::New || answer.seq >= self.seq {
            self.seq = answer.seq;
            self.apply(now, state, sender == Sender::New, actions);
        }
        let is_new_cookie = core::mem::replace(&mut self.cookie, answer.cookie) != answer.cookie;
        let lease = Duration::from_secs(answer.lease_s.into());
        let interval = if lease.is_zero() { config.interval } else { config.interval.min(lease / 3) };
        self.schedule(now, interval, rng);
        // A lease needs a query with the cookie that came just now.
        let is_refused = self.is_inactive && lease.is_zero() && is_new_cookie;
        if (is_refused || core::mem::take(&mut self.ask_again))
            && let Some(caused) = self.caused.after(now, CAUSED_PER_SECOND)
        {
            self.caused = caused;
            self.due = Some(now);
        }
    }

    /// Sets the time of the next query. Clients of one lame duck heard of it at the same time, so
    /// their first waits differ.
    pub(super) fn schedule(&mut self, now: Timestamp, interval: Duration, rng: &mut impl Random) {
        let wait = if self.is_unready() { LAME_DUCK_INTERVAL } else { interval.max(LAME_DUCK_INTERVAL) };
        if self.sent.is_none() {
            self.due = Some(now + jittered(wait, rng));
        }
    }

    /// Takes over the state that the server gave.
    pub(super) fn apply(&mut self, now: Timestamp, state: ServerState, is_new: bool, actions: &mut Vec<Action>) {
        let was_unready = self.is_unready();
        self.server = Some(state);
        if !was_unready && self.is_unready() {
            actions.push(Action::StopRequests(state));
        } else if was_unready && !self.is_unready() {
            // Good news needs a check: a datagram alone brings no requests.
            self.is_inactive = false;
            self.checked_since = now;
            actions.push(if is_new { Action::ProcessEnded } else { Action::CheckNow });
        }
    }

    /// The port refused a query, or its responder does not speak for the server.
    pub(super) fn refuse(
        &mut self,
        now: Timestamp,
        cause: SilenceCause,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        if matches!(self.path, Path::Silent(_)) {
            self.wait_in_silence(now, rng);
        } else if self.is_unready() {
            actions.push(Action::ProcessEnded);
            self.forget();
            self.checked_since = now;
        } else if self.is_inactive {
            self.request_check(now, cause, config, rng, actions);
        } else {
            self.fall_silent(now, cause, rng, actions);
        }
    }

    fn request_check(
        &mut self,
        now: Timestamp,
        cause: SilenceCause,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        self.awaits_check = Some(cause);
        // If the check cannot be made, the loss of this query requests another.
        self.due = Some(now + jittered(config.interval, rng));
        actions.push(Action::CheckNow);
    }

    pub(super) fn fall_silent(
        &mut self,
        now: Timestamp,
        cause: SilenceCause,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        if self.path == Path::Works && now.since(self.works_since) >= LOGGED_AGAIN_AFTER {
            self.logged = None;
        }
        if self.is_unready() {
            self.checked_since = now;
        }
        self.forget();
        self.path = Path::Silent(cause);
        self.silent_queries = 0;
        self.wait_in_silence(now, rng);
        if self.logged.replace(cause) != Some(cause) {
            actions.push(Action::PathSilent(cause));
        }
    }

    /// Sets the time of the next query on a silent path.
    fn wait_in_silence(&mut self, now: Timestamp, rng: &mut impl Random) {
        let may_pass = matches!(self.path, Path::Silent(SilenceCause::NoAnswer | SilenceCause::Refused));
        let first = if may_pass { FIRST_SILENT_INTERVAL } else { SILENT_INTERVAL };
        let doublings = u32::from(self.silent_queries.min(4));
        self.due = Some(now + jittered((first * (1 << doublings)).min(SILENT_INTERVAL), rng));
        self.silent_queries = self.silent_queries.saturating_add(1);
    }

    /// Starts over, as after the backend was added. The next connection or passed check causes a
    /// query.
    pub(super) fn forget(&mut self) {
        self.path = Path::Unknown;
        self.server = None;
        self.is_inactive = false;
        self.inactive_at = None;
        self.awaits_check = None;
        self.losses = 0;
        self.sent = None;
        self.due = None;
        self.not_before = Timestamp::ZERO;
        self.ask_again = false;
    }
}

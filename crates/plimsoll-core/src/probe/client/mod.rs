//! A client's probes of one backend.
//!
//! ```text
//! path    unknown ──▶ works | silent        silent: as if there were no probes
//! mode    active ⇄ inactive                 inactive: no connections, no checks, queries with a lease
//! ```
//!
//! 1. *Active*: a query after connecting, then every `interval` ± 20%. A refusal, or three losses
//!    while TCP works, make the path silent: one log line, and a new query after 20 seconds, 40
//!    seconds and so on, up to every five minutes.
//!    Several processes behind one address make it silent too (`instances.rs`).
//! 2. *Inactive* after `inactive_after` without a request, where the path works. Connections close
//!    and checks stop. Queries request a lease, so that notices come. The next pick wakes it.
//! 3. Three losses or a refusal while inactive: a TCP or HTTP check at once. If it passes, the path
//!    is silent and checks resume. If it fails, the backend is unreachable by that check.
//! 4. *Lame duck* (or starting): no new requests, a query every second. A healthy answer of the same
//!    process causes a check; another process or a refused port means that the process ended.
//! 5. Answers carry load reports.
//! 6. *Keys by checks* ([`KeySource::Checks`]): a new key means that the process restarted, or changed
//!    its secret. Earlier losses do not count, and a query follows at once, on a silent path as well.
//!    Each three losses of a lame duck cause a check, which finds the process in its place. It is no
//!    TCP check, which would take a lame duck for healthy: those bring no keys.
//!
//! **Silence is never evidence.** Firewalls drop UDP, so the loss of queries alone changes no
//! backend: it ends the use of probes. A lame duck that falls silent for 30 seconds goes back to the
//! rules without probes; by then, most processes have ended.
//!
//! An answer counts once: for the outstanding query, and in time. A notice counts at once only if
//! its MAC is valid, its process is the one that answered, and its number is newer. Any other
//! notice causes a query, at most ten per second, and changes nothing. So does an answer that was
//! overtaken by a notice.
//!
//! The caller sends datagrams, sets one timer per backend ([`Prober::poll_timeout`]), runs checks and
//! passes events in. Every event appends its [`Action`]s.

mod action;
mod config;
mod instances;
#[cfg(test)]
mod properties;
mod state;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

pub use action::{Action, Path, SilenceCause, Verdict};
pub use config::{KeySource, ProberConfig, Traffic};

use super::message::{Answer, AnswerState, Authenticity, Notice, Purpose, Query, ServerState, VERSION};
use crate::gcra::Due;
use crate::health::CheckOutcome;
use crate::{Random, Timestamp, rng};
use instances::Instances;

/// Time for an answer. Three losses are three seconds: checks resume within five.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Losses in a row that end the use of probes.
const MAX_LOSSES: u8 = 3;
/// Mean time between queries on a silent path: a firewall rule is rarely fixed sooner.
const SILENT_INTERVAL: Duration = Duration::from_secs(300);
/// The first such time after a refusal or losses; it doubles. A process that restarts refuses for
/// seconds, and three losses in a row happen by chance.
const FIRST_SILENT_INTERVAL: Duration = Duration::from_secs(20);
/// Mean time between queries of a server that wants no requests.
const LAME_DUCK_INTERVAL: Duration = Duration::from_secs(1);
/// Silence of a lame duck after which the rules without probes apply.
const LAME_DUCK_SILENCE: Duration = Duration::from_secs(30);
/// Time that a path must work for before its silence is logged again: with 10% loss, three in a row
/// are lost every hour.
const LOGGED_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// Jitter of a wait, as a share of it, either way.
const JITTER: f64 = 0.2;
/// Longest delay that a responder may ask for.
const MAX_MIN_DELAY: Duration = Duration::from_secs(60);
/// Queries and acknowledgements per second that datagrams of others may cause.
const CAUSED_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

/// The probes of one backend.
#[derive(Clone, Debug)]
pub struct Prober {
    path: Path,
    is_inactive: bool,
    /// The server's state by probes.
    server: Option<ServerState>,
    /// The TCP port of the backend.
    port: u16,
    instances: Instances,
    seq: u32,
    cookie: u64,
    /// The nonces of the last query and of the one before; 0 for none.
    nonces: [u64; 2],
    /// When the outstanding query was sent.
    sent: Option<Timestamp>,
    /// A notice came while a query was outstanding.
    ask_again: bool,
    losses: u8,
    first_loss: Timestamp,
    last_heard: Timestamp,
    round_trip_us: u32,
    due: Option<Timestamp>,
    not_before: Timestamp,
    /// When the backend becomes inactive, if nothing happens.
    inactive_at: Option<Timestamp>,
    /// TCP must have worked since, before checks may stop.
    checked_since: Timestamp,
    /// A check decides whether the path is silent, for this reason.
    awaits_check: Option<SilenceCause>,
    logged: Option<SilenceCause>,
    /// Queries on the silent path.
    silent_queries: u8,
    works_since: Timestamp,
    caused: Due,
}

impl Prober {
    /// The probes of a backend at this TCP port. The first query follows [`Prober::on_connected`].
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            path: Path::Unknown,
            is_inactive: false,
            server: None,
            port,
            instances: Instances::default(),
            seq: 0,
            cookie: 0,
            nonces: [0; 2],
            sent: None,
            ask_again: false,
            losses: 0,
            first_loss: Timestamp::ZERO,
            last_heard: Timestamp::ZERO,
            round_trip_us: 0,
            due: None,
            not_before: Timestamp::ZERO,
            inactive_at: None,
            checked_since: Timestamp::ZERO,
            awaits_check: None,
            logged: None,
            silent_queries: 0,
            works_since: Timestamp::ZERO,
            caused: Due::default(),
        }
    }

    /// Whether datagrams get through.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// The server's state, if probes know it.
    #[must_use]
    pub fn server(&self) -> Option<ServerState> {
        self.server
    }

    /// Whether connections are closed and checks are stopped until the next request.
    #[must_use]
    pub fn is_inactive(&self) -> bool {
        self.is_inactive
    }

    /// The smoothed round trip of queries; `None` before the first answer.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        (self.round_trip_us > 0).then(|| Duration::from_micros(self.round_trip_us.into()))
    }

    /// Whether probes replace the checks: the backend is inactive, or known to want no requests.
    #[must_use]
    pub fn replaces_checks(&self) -> bool {
        self.path == Path::Works && (self.is_inactive || self.is_unready())
    }

    /// The time of the next [`Prober::poll`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let query = self.sent.map(|sent| sent + ANSWER_TIMEOUT).or(self.due.map(|due| due.max(self.not_before)));
        query.into_iter().chain(self.inactive_at).min()
    }

    /// Does the work that is due.
    pub fn poll(
        &mut self,
        now: Timestamp,
        config: &ProberConfig,
        traffic: &Traffic,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        self.watching_checks(actions, |prober, actions| {
            if prober.sent.is_some_and(|sent| now.since(sent) >= ANSWER_TIMEOUT) {
                prober.on_loss(now, config, traffic, rng, actions);
            }
            prober.rest(now, config, traffic, actions);
            if prober.sent.is_none() && prober.due.is_some_and(|due| due.max(prober.not_before) <= now) {
                prober.send(now, config, rng, actions);
            }
        });
    }

    /// A connection to the backend was opened.
    pub fn on_connected(&mut self, now: Timestamp) {
        if self.due.is_none() && self.sent.is_none() {
            self.due = Some(now);
        }
    }

    /// A request goes to the backend. Returns whether it was inactive.
    pub fn wake(&mut self, now: Timestamp, config: &ProberConfig, actions: &mut Vec<Action>) -> bool {
        let was_inactive = self.is_inactive;
        self.watching_checks(actions, |prober, _| {
            prober.is_inactive = false;
            prober.inactive_at = config.inactive_after.map(|after| now + after);
        });
        was_inactive
    }

    /// Sends a query for fresh load, if the path works and none is outstanding. Returns whether it
    /// did.
    pub fn ask(
        &mut self,
        now: Timestamp,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) -> bool {
        let may_ask = self.path == Path::Works && self.sent.is_none() && self.not_before <= now;
        if may_ask {
            self.send(now, config, rng, actions);
        }
        may_ask
    }

    /// An answer with a valid MAC came from the backend's address.
    pub fn on_answer(
        &mut self,
        now: Timestamp,
        answer: &Answer,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) -> Verdict {
        let is_asked = answer.nonce == self.nonces[0] && answer.port == self.port;
        let Some(sent) = self.sent.filter(|sent| is_asked && now.since(*sent) <= ANSWER_TIMEOUT) else {
            return Verdict::Doubted;
        };
        self.sent = None;
        self.losses = 0;
        self.awaits_check = None;
        self.last_heard = now;
        self.note_round_trip(now.since(sent));
        self.watching_checks(actions, |prober, actions| match answer.state {
            AnswerState::Server(state) => prober.on_server_state(now, state, answer, config, rng, actions),
            AnswerState::NoSuchPort => prober.refuse(now, SilenceCause::NoSuchPort, config, rng, actions),
            AnswerState::OtherVersion => prober.refuse(now, SilenceCause::OtherVersion, config, rng, actions),
        });
        Verdict::Believed
    }

    /// A notice came from the backend's address.
    pub fn on_notice(
        &mut self,
        now: Timestamp,
        notice: &Notice,
        authenticity: Authenticity,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) -> Verdict {
        let is_authentic = match authenticity {
            Authenticity::Keyed => true,
            Authenticity::Keyless => notice.nonce != 0 && self.nonces.contains(&notice.nonce),
            Authenticity::Forged => false,
        };
        let is_known = self.instances.is_current(notice.instance) && notice.port == self.port;
        let may_believe = is_authentic && is_known && self.path == Path::Works;
        if may_believe && notice.seq.get() > self.seq {
            self.acknowledge(notice, config, actions);
            self.seq = notice.seq.get();
            self.last_heard = now;
            self.losses = 0;
            self.awaits_check = None;
            self.watching_checks(actions, |prober, actions| prober.apply(now, notice.state, false, actions));
            self.schedule(now, config.interval, rng);
            return Verdict::Believed;
        }
        let is_repeated = may_believe && notice.seq.get() == self.seq;
        if let Some(caused) = self.caused.after(now, CAUSED_PER_SECOND) {
            self.caused = caused;
            if is_repeated {
                self.acknowledge(notice, config, actions);
            } else if self.sent.is_some() {
                self.ask_again = true;
            } else {
                self.send(now, config, rng, actions);
            }
        }
        if is_repeated { Verdict::Repeated } else { Verdict::Doubted }
    }

    /// The backend's machine answered that its UDP port is closed.
    pub fn on_refused(
        &mut self,
        now: Timestamp,
        config: &ProberConfig,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        // Nothing but a datagram of ours can be refused.
        if self.sent.take().is_some() {
            self.watching_checks(actions, |prober, actions| {
                prober.refuse(now, SilenceCause::Refused, config, rng, actions);
            });
        }
    }

    /// A TCP or HTTP check of the backend ended: any check, requested or not.
    pub fn on_check(
        &mut self,
        now: Timestamp,
        outcome: CheckOutcome,
        rng: &mut impl Random,
        actions: &mut Vec<Action>,
    ) {
        self.watching_checks(actions, |prober, actions| match (prober.awaits_check, outcome) {
            (Some(cause), CheckOutcome::Passed | CheckOutcome::NotServing) => {
                prober.fall_silent(now, cause, rng, actions);
            }
            (Some(_), CheckOutcome::Failed | CheckOutcome::Unreachable) => {
                prober.forget();
                prober.checked_since = now;
            }
            (None, CheckOutcome::Passed) => prober.on_connected(now),
            _ => {}
        });
    }

    /// A check brought a key that this backend did not have before. Pass its outcome to
    /// [`Prober::on_check`] afterwards.
    pub fn on_new_key(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.watching_checks(actions, |prober, _| {
            if matches!(prober.path, Path::Silent(_)) {
                // One query tells whether the key was the reason.
                prober.sent = None;
            } else {
                prober.forget();
                prober.checked_since = now;
            }
            prober.not_before = Timestamp::ZERO;
            prober.due = Some(now);
        });
    }

    /// Appends a change of [`Prober::replaces_checks`] to the actions of an event.
    fn watching_checks(&mut self, actions: &mut Vec<Action>, event: impl FnOnce(&mut Self, &mut Vec<Action>)) {
        let before = self.replaces_checks();
        event(self, actions);
        match (before, self.replaces_checks()) {
            (false, true) => actions.push(Action::PauseChecks),
            (true, false) => actions.push(Action::ResumeChecks),
            _ => {}
        }
    }

    fn send(&mut self, now: Timestamp, config: &ProberConfig, rng: &mut impl Random, actions: &mut Vec<Action>) {
        self.nonces = [rng.next_u64().max(1), self.nonces[0]];
        self.sent = Some(now);
        self.due = None;
        self.ask_again = false;
        let lease_s = if self.is_inactive { config.lease_s } else { 0 };
        let purpose = Purpose::Ask { round_trip_us: self.round_trip_us };
        actions.push(Action::Send(self.query(self.nonces[0], lease_s, purpose, config)));
    }

    fn acknowledge(&mut self, notice: &Notice, config: &ProberConfig, actions: &mut Vec<Action>) {
        let purpose = Purpose::Acknowledge { seq: notice.seq };
        actions.push(Action::Send(self.query(notice.nonce, 0, purpose, config)));
    }

    fn query(&self, nonce: u64, lease_s: u16, purpose: Purpose, config: &ProberConfig) -> Query {
        let Self { port, cookie, .. } = *self;
        Query { version: VERSION, nonce, instance: config.instance, port, lease_s, cookie, purpose }
    }

    /// Smooths as TCP does: an eighth of each new sample (RFC 6298).
    fn note_round_trip(&mut self, sample: Duration) {
        let sample = u32::try_from(sample.as_micros()).unwrap_or(u32::MAX).max(1);
        let former = if self.round_trip_us == 0 { sample } else { self.round_trip_us };
        self.round_trip_us = former - former / 8 + sample / 8;
    }
}

/// A wait with its jitter.
fn jittered(wait: Duration, rng: &mut impl Random) -> Duration {
    wait.mul_f64(1.0 + JITTER * (2.0 * rng::unit(rng) - 1.0))
}

//! A responder: answers queries about a server, and tells clients of changes of its state.
//!
//! - An answer is as long as its query, so spoofed queries gain an attacker nothing. Rates bound the
//!   queries (`limits.rs`); the rest is dropped silently and counted.
//! - A client that repeats a valid cookie (`cookie.rs`) may hold a lease (`leases.rs`). Nothing is
//!   sent unasked to any other address.
//! - A change of state goes to every lease as a notice, until the client acknowledges it
//!   (`round.rs`). Simpler ways are late at the clients that lose a packet: with 1% loss the last of
//!   10,000 learns by the next poll, seconds later, whether a notice is sent once or twice.
//!
//! The caller receives datagrams, verifies their MACs and passes the values in. It calls
//! [`Responder::poll`] after each change of state, and whenever [`Responder::poll_timeout`] says.
//!
//! ```text
//! datagram ──▶ wire::probe ──▶ on_query ──▶ Reply ──▶ wire::probe ──▶ datagram
//! state ─────▶ set_state ───▶ poll ───────▶ notices ─▶ wire::probe ──▶ datagrams
//! ```

mod cookie;
mod leases;
mod limits;
mod round;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

pub use cookie::{COOKIE_MESSAGE, CookieSecret};
pub use leases::MAX_LEASES;
pub use limits::{ExceededLimit, QueryLimits};

use super::message::{Answer, AnswerState, Instance, Notice, Peer, Purpose, Query, ServerState, VERSION};
use super::pacer::{Pace, Pacer};
use crate::{LoadReport, Timestamp};
use leases::{Leases, SETTLED, Terms};
use limits::QueryRates;
use round::{MAX_RESENDS, Round, wait};

/// Longest lease, in seconds: a client that left without a word costs notices no longer.
const MAX_LEASE_S: u16 = 120;
/// Notices that are worth a wake-up of the caller.
const BATCH: usize = 32;
/// Delay that a responder asks for when it gets more than its rate of queries.
const PRESSED_DELAY: Duration = Duration::from_secs(1);

/// The settings of a responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// The process.
    pub instance: Instance,
    /// The TCP ports that it speaks for.
    pub ports: Vec<u16>,
    /// The queries that it accepts.
    pub limits: QueryLimits,
    /// The pace of its notices.
    pub pace: Pace,
    /// A random number, so that nobody can choose addresses of one row of a table.
    pub hash_seed: u64,
}

/// The reaction to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply {
    /// To send.
    Answer(Answer),
    /// The query acknowledged a notice; it gets no answer.
    Acknowledged,
    /// The query acknowledged nothing that is waited for; it gets no answer.
    Ignored,
    /// The query exceeded a limit; it gets no answer.
    Dropped(ExceededLimit),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Answers.
    pub answers: u64,
    /// Queries dropped because of the rate of their source.
    pub dropped_source: u64,
    /// Queries dropped because of the rate of the process.
    pub dropped_total: u64,
    /// Leases refused because the table was full.
    pub leases_refused: u64,
    /// First notices of a change of state.
    pub notices: u64,
    /// Notices sent again.
    pub resends: u64,
    /// Notices acknowledged.
    pub acknowledged: u64,
    /// Notices never acknowledged.
    pub abandoned: u64,
}

/// Answers for one server.
#[derive(Clone, Debug)]
pub struct Responder {
    instance: Instance,
    ports: Vec<u16>,
    state: ServerState,
    seq: NonZeroU32,
    rates: QueryRates,
    leases: Leases,
    round: Option<Round>,
    pacer: Pacer,
    counts: ResponderCounts,
}

impl Responder {
    /// A responder of a server in this state.
    #[must_use]
    pub fn new(config: ResponderConfig, state: ServerState) -> Self {
        Self {
            instance: config.instance,
            ports: config.ports,
            state,
            seq: NonZeroU32::MIN,
            rates: QueryRates::new(config.limits, config.hash_seed),
            leases: Leases::new(config.hash_seed),
            round: None,
            pacer: Pacer::new(config.pace),
            counts: ResponderCounts::default(),
        }
    }

    /// Takes a query with a valid MAC. `load` is called for the answers that carry it.
    pub fn on_query(
        &mut self,
        now: Timestamp,
        peer: &Peer,
        query: &Query,
        load: impl FnOnce() -> Option<LoadReport>,
        secret: &impl CookieSecret,
    ) -> Reply {
        // Acknowledgements that are waited for have no rate: a round of notices is their bound.
        if let Purpose::Acknowledge { seq } = query.purpose
            && self.acknowledge(now, peer, query, seq, secret)
        {
            return Reply::Acknowledged;
        }
        if let Err(limit) = self.rates.take(now, peer.address.ip()) {
            match limit {
                ExceededLimit::Source => self.counts.dropped_source += 1,
                ExceededLimit::Total => self.counts.dropped_total += 1,
            }
            return Reply::Dropped(limit);
        }
        let Purpose::Ask { round_trip_us } = query.purpose else { return Reply::Ignored };
        self.counts.answers += 1;
        let min_delay = if self.rates.is_pressed(now) { PRESSED_DELAY } else { Duration::ZERO };
        let answer = Answer {
            nonce: query.nonce,
            instance: self.instance,
            port: query.port,
            state: AnswerState::Server(self.state),
            seq: self.seq.get(),
            lease_s: 0,
            cookie: 0,
            load: None,
            min_delay,
        };
        if query.version != VERSION {
            return Reply::Answer(Answer { state: AnswerState::OtherVersion, ..answer });
        }
        if !self.ports.contains(&query.port) {
            return Reply::Answer(Answer { state: AnswerState::NoSuchPort, ..answer });
        }
        let terms = Terms {
            nonce: query.nonce,
            server_port: query.port,
            round_trip_us,
            lease_s: query.lease_s.min(MAX_LEASE_S),
        };
        let lease_s = self.lease(now, peer, query.cookie, terms, secret);
        Reply::Answer(Answer { lease_s, cookie: cookie::cookie(now, peer, secret), load: load(), ..answer })
    }

    /// Grants, renews or ends a lease, and returns the granted seconds.
    fn lease(&mut self, now: Timestamp, peer: &Peer, cookie: u64, terms: Terms, secret: &impl CookieSecret) -> u16 {
        if self.round.is_none() {
            self.leases.sweep(now);
        }
        if !cookie::is_valid(now, peer, cookie, secret) {
            return 0;
        }
        if terms.lease_s == 0 {
            self.leases.release(peer);
            return 0;
        }
        if self.leases.grant(now, peer, terms) {
            terms.lease_s
        } else {
            self.counts.leases_refused += 1;
            0
        }
    }

    fn acknowledge(
        &mut self,
        now: Timestamp,
        peer: &Peer,
        query: &Query,
        seq: NonZeroU32,
        secret: &impl CookieSecret,
    ) -> bool {
        if self.round.is_none() || seq != self.seq {
            return false;
        }
        let Some(lease) = self.leases.find_mut(peer).filter(|lease| lease.sends != SETTLED) else { return false };
        if lease.sends == 0 || !cookie::is_valid(now, peer, query.cookie, secret) {
            return false;
        }
        lease.sends = SETTLED;
        self.counts.acknowledged += 1;
        true
    }

    /// The server's state, as it is answered.
    #[must_use]
    pub fn state(&self) -> ServerState {
        self.state
    }

    /// Changes the state, and begins a round of notices. The same state again has no effect.
    pub fn set_state(&mut self, state: ServerState) {
        if state == self.state {
            return;
        }
        self.state = state;
        self.seq = self.seq.saturating_add(1);
        for row in 0..self.leases.len() {
            if let Some(lease) = self.leases.row_mut(row) {
                lease.sends = 0;
            }
        }
        self.round = (self.leases.len() > 0).then(|| Round::new(self.leases.len()));
    }

    /// Appends the notices that are to be sent now. Returns their number.
    pub fn poll(&mut self, now: Timestamp, notices: &mut Vec<(Peer, Notice)>) -> usize {
        let before = notices.len();
        while let Some(round) = &mut self.round {
            let Some(row) = self.pacer.is_ready(now).then(|| round.pop(now)).flatten() else { break };
            let Some(lease) = self.leases.row_mut(row) else { continue };
            if lease.sends > MAX_RESENDS {
                // Acknowledged, or never.
                if lease.sends != SETTLED {
                    lease.sends = SETTLED;
                    self.counts.abandoned += 1;
                }
                continue;
            }
            let Some(peer) = lease.peer().filter(|_| lease.is_current(now)) else {
                lease.sends = SETTLED;
                continue;
            };
            self.pacer.take(now, 1);
            lease.sends += 1;
            *(if lease.sends == 1 { &mut self.counts.notices } else { &mut self.counts.resends }) += 1;
            round.push(now + wait(lease.round_trip(), lease.sends), row);
            let Self { instance, state, seq, .. } = *self;
            notices.push((peer, Notice { nonce: lease.nonce(), instance, port: lease.server_port, state, seq }));
        }
        if self.round.as_ref().is_some_and(|round| round.left() == 0 && round.next_resend().is_none()) {
            self.round = None;
        }
        notices.len() - before
    }

    /// The time of the next [`Responder::poll`]; `None` if nothing is to be sent.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let round = self.round.as_ref()?;
        match round.left() {
            0 => round.next_resend().map(|at| at.max(self.pacer.ready_at(1))),
            left => Some(self.pacer.ready_at(left.min(BATCH))),
        }
    }

    /// Whether some clients may not know the present state yet. A server that ends waits for it, up
    /// to its drain time.
    #[must_use]
    pub fn is_informing(&self) -> bool {
        self.round.is_some()
    }

    /// Number of leases, expired ones included that no sweep has reached.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> ResponderCounts {
        self.counts
    }
}

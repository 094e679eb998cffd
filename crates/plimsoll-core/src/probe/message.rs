//! The messages of a probe, as values.
//!
//! A client asks, a responder answers, and a responder with news sends a notice to the clients that
//! hold a lease. `plimsoll-wire` turns them into datagrams and judges their MACs.

use core::fmt;
use core::net::SocketAddr;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use crate::LoadReport;

/// Version of the protocol.
pub const VERSION: u8 = 1;

/// A process, named by a random number that it draws at its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(NonZeroU64);

impl Instance {
    /// The instance with this number; `None` for zero, which names no process.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instance({:016x})", self.number())
    }
}

/// A server's own account of its fitness to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// Not ready yet.
    Starting,
    /// Wants requests.
    Healthy,
    /// Finishes its requests and wants no more.
    LameDuck,
}

impl ServerState {
    /// All states, in the order of a server's life.
    pub const ALL: [Self; 3] = [Self::Starting, Self::Healthy, Self::LameDuck];
}

/// The state in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerState {
    /// The state of the server behind the port.
    Server(ServerState),
    /// The responder does not speak for the TCP port.
    NoSuchPort,
    /// The responder does not speak the version of the query.
    OtherVersion,
}

/// A client's question about the server behind a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Version of the protocol. A responder answers another one with [`AnswerState::OtherVersion`].
    pub version: u8,
    /// Random; the answer repeats it. Of an acknowledgement: the nonce of the notice.
    pub nonce: u64,
    /// The client's process.
    pub instance: Instance,
    /// The TCP port that the client connects to. Not zero.
    pub port: u16,
    /// Time for which the client wants notices, in seconds; 0 for none.
    pub lease_s: u16,
    /// The cookie of the last answer; 0 for none.
    pub cookie: u64,
    /// A question, or the acknowledgement of a notice.
    pub purpose: Purpose,
}

/// The purpose of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Wants an answer.
    Ask {
        /// The client's smoothed round trip, in microseconds; 0 if unknown.
        round_trip_us: u32,
    },
    /// Says that a notice arrived. It gets no answer.
    Acknowledge {
        /// The number in the notice.
        seq: NonZeroU32,
    },
}

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The nonce of the query.
    pub nonce: u64,
    /// The responder's process.
    pub instance: Instance,
    /// The TCP port of the query. Not zero.
    pub port: u16,
    /// The state.
    pub state: AnswerState,
    /// Number of changes of the server's state so far, the first state included.
    pub seq: u32,
    /// Granted time of notices, in seconds.
    pub lease_s: u16,
    /// The next query shows with this number that its sender receives answers; 0 for none.
    pub cookie: u64,
    /// The load, if known.
    pub load: Option<LoadReport>,
    /// The next query should wait this long.
    pub min_delay: Duration,
}

/// News from a responder: its state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The nonce of the last query that the responder got from this client.
    pub nonce: u64,
    /// The responder's process.
    pub instance: Instance,
    /// The TCP port of that query. Not zero.
    pub port: u16,
    /// The new state.
    pub state: ServerState,
    /// Its number.
    pub seq: NonZeroU32,
}

/// The other end of a datagram, as the responder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address. A link-local one has no scope here: `local` stands for the interface.
    pub address: SocketAddr,
    /// Number of the local address that got the query, in a list of the caller. Everything to this
    /// peer must come from that address.
    pub local: u16,
    /// The key that signed the query; 0 for none. It signs everything to this peer.
    pub key_id: u8,
    /// The client's process.
    pub instance: Instance,
}

/// The proof of a datagram's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authenticity {
    /// Its MAC is valid under a key.
    Keyed,
    /// It has no MAC, and none is required (loopback).
    Keyless,
    /// Its MAC is wrong or missing.
    Forged,
}

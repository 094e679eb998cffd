//! HTTP/1.1 to a backend, on the codec of `plimsoll-http1`.
//!
//! ```text
//! pool ──Lease──▶ Exchange ──head──▶ Incoming ──end of the body──▶ pool
//!                    │                   │
//!                 Upload ── early answer ─▶ Duplex: the rest of the request on a task of its own
//! ```
//!
//! A connection is owned by the request that is on it, and driven by that one's polls: the caller's task reads and writes the
//! socket itself, so a request costs no channel, no second task and no wake-up of one. The codec decides what a message
//! is; here is decided who reads, writes and waits, and whether the connection may serve again.

mod buffers;
mod connection;
mod duplex;
mod exchange;
mod incoming;
mod informational;
mod lease;
mod upload;

pub(crate) use self::connection::Connection;
pub(crate) use self::exchange::{After, Exchange, Fate, MAX_INTERIM};
pub(crate) use self::incoming::Incoming;
pub use self::informational::Informational;
pub(crate) use self::lease::{Connections, Lease};

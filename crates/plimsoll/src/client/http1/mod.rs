//! HTTP/1.1 to a backend, on the codec of `plimsoll-http1`.
//!
//! ```text
//! pool ──Lease──▶ Exchange ──head──▶ Incoming ──end of the body──▶ pool
//!                    │                   │
//!                 Upload ── early answer ─▶ Duplex: the rest of the request on a task of its own
//! ```
//!
//! The request on a connection owns the connection, and its polls drive it. The caller's task reads
//! and writes the socket itself, so a request costs no channel, no second task and no wake-up of
//! one. The codec defines messages. This module decides when to read, write and wait, and whether
//! the connection can be reused.

mod buffers;
mod connection;
mod duplex;
mod exchange;
mod incoming;
mod lease;
mod upload;

pub(crate) use self::connection::Connection;
pub(crate) use self::exchange::{AfterHead, Exchange, Fate, MAX_INTERIM};
pub(crate) use self::incoming::Incoming;
pub(crate) use self::lease::{Connections, Lease};

//! The names of HTTP/2 connections and streams.

use plimsoll_core::BackendId;

/// An HTTP/2 connection of a pool. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(super) backend: BackendId,
    pub(super) key: usize,
    pub(super) serial: u64,
}

/// A request on an HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId {
    pub(super) connection: ConnectionId,
    /// The connection's count of received data at the time of sending.
    pub(super) heard: u32,
}

//! How much of the answers on one HTTP/2 connection may wait for whoever reads them.
//!
//! An answer gives its part of the connection's window back when it is read. Where the streams' windows add up to more than the
//! connection's, a few readers that are slow, or have left without a word, stop all other answers on it; it looks well meanwhile,
//! and gets more requests. So they never add up to more: a connection carries no more streams than its window has room for.
//!
//! That window sets no memory aside: what readers hold is bounded by the streams' windows, and how many streams there are by
//! `max_active_requests` and `max_streams`. It is a gibibyte, as that of Go's clients, for another reason as well: h2 ends a
//! connection on which small frames wait that need more memory beside their bytes than half of the window, and a few calls that
//! stream short messages to nobody would get there.

/// Bytes that may wait on one stream: as many as of an answer over HTTP/1.1, the most that one read asks for. That is 250 MB/s at the
/// millisecond that a backend is away, 5 MB/s at 50 ms. hyper's 2 MiB are more than one slow reader is worth.
pub(super) const STREAM: u32 = 256 * 1024;

/// Bytes that may wait on a connection. hyper's 5 MiB are less than three of its streams may hold.
pub(super) const CONNECTION: u32 = 1 << 30;

/// Streams that a connection has room for: 4,096, forty times what most servers allow.
pub(super) const MAX_STREAMS: u32 = CONNECTION / STREAM;

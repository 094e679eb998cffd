//! Limits on the unread answers of one HTTP/2 connection.
//!
//! An answer returns its part of the connection's window when it is read. Suppose that the streams'
//! windows add up to more than the connection's. Then a few slow or absent readers stop all other
//! answers on it, while it looks healthy and gets more requests. So they never add up to more: a
//! connection carries no more streams than its window has headroom for.
//!
//! That window sets no memory aside: the streams' windows bound the memory of readers, and
//! `max_active_requests` and `max_streams` bound the streams. It is a gibibyte, as in Go's clients,
//! for another reason as well. h2 ends a connection when the overhead of its small waiting frames
//! exceeds half of the window. A few calls that stream short messages to an absent reader would
//! reach that.

/// Bytes that may wait on one stream: the size of one read, as over HTTP/1.1. That is 250 MB/s at a round
/// trip of a millisecond, and 5 MB/s at 50 ms. hyper's 2 MiB are too much for one slow reader.
pub(super) const STREAM: u32 = 256 * 1024;

/// Bytes that may wait on a connection. hyper's 5 MiB are less than three of its streams may hold.
pub(super) const CONNECTION: u32 = 1 << 30;

/// Streams per connection: 4,096, forty times the limit of most servers.
pub(super) const MAX_STREAMS: u32 = CONNECTION / STREAM;

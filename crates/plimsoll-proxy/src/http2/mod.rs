//! HTTP/2 with clients: how much memory and work a connection may cost.
//!
//! hyper and h2 speak the protocol. `builder` sets their limits. Limits that they lack are enforced
//! on the passing bytes (`plimsoll_http2`: floods of lawful frames, header blocks) and on streams
//! (`connection::flow`: responses that are not read). All of it holds
//! per connection; how many connections a client may have is the listener's business.

mod io;
mod lingering;
pub(crate) mod serve;
mod watch;

use std::error::Error as _;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use plimsoll_http2::Allowance;

use crate::connection::flow::StreamTasks;

/// Bytes of a request's body that may wait for their backend, on one stream and on all of a
/// connection. Bodies are passed on as they come, so a window bounds the bytes in flight between
/// client and proxy: 256 KiB is 5 MB/s at 50 ms. Envoy recommends 64 KiB and 1 MiB for proxies at
/// the edge; hyper's 1 MiB per stream is more than one slow backend is worth.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The same when memory is short. For the connection it is the least that the protocol knows.
const LEAN_STREAM_WINDOW: u32 = 16 * 1024;
const LEAN_CONNECTION_WINDOW: u32 = 65_535;
/// Bytes of a response that a stream may hold until the client takes them: four frames, which is
/// enough to keep a socket busy; hyper's 400 KiB times 128 streams would be 50 MiB for one client
/// that reads slowly.
const SEND_BUFFER: usize = 64 * 1024;
const LEAN_SEND_BUFFER: usize = 16 * 1024;
/// Errors of the client that cost a stream, in the life of a connection. h2's own default; each may
/// leave a frame in a queue that a client need not read, so that a rate alone is not enough.
const MAX_STREAM_ERRORS: usize = 1024;

/// The inputs of a connection's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) allowance: Allowance,
    pub(crate) max_header_size: usize,
    pub(crate) ping_interval: Duration,
    pub(crate) ping_timeout: Duration,
    /// Memory is short.
    pub(crate) is_lean: bool,
}

/// How hyper is to serve one client.
pub(crate) fn builder(settings: Settings, tasks: StreamTasks) -> http2::Builder<StreamTasks> {
    let Settings { allowance, max_header_size, ping_interval, ping_timeout, is_lean } = settings;
    let (stream_window, connection_window, send_buffer) = if is_lean {
        (LEAN_STREAM_WINDOW, LEAN_CONNECTION_WINDOW, LEAN_SEND_BUFFER)
    } else {
        (STREAM_WINDOW, CONNECTION_WINDOW, SEND_BUFFER)
    };
    let mut builder = http2::Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        // WebSockets (RFC 8441).
        .enable_connect_protocol()
        .max_concurrent_streams(allowance.max_streams.get())
        // A client may open all its streams and take them back before any was looked at.
        .max_pending_accept_reset_streams(allowance.max_streams.get() as usize)
        .max_local_error_reset_streams(MAX_STREAM_ERRORS)
        .max_header_list_size(u32::try_from(max_header_size).unwrap_or(u32::MAX))
        .initial_stream_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_send_buf_size(send_buffer)
        // A client whose machine is gone says nothing, and may have a call open that says nothing
        // either.
        .keep_alive_interval(ping_interval)
        .keep_alive_timeout(ping_timeout);
    builder
}

/// Whether hyper ended the connection because the client broke the protocol or a limit of h2.
pub(crate) fn is_protocol_error(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.is_library())
}

//! One client connection: which protocol, for how long, and how it ends.
//!
//! Time limits cost nothing per request. hyper's own `header_read_timeout` allocates and arms a timer for each
//! head; here a connection looks at itself a few times per limit ([`Watch`]): has there been a request since the
//! last look, is one active, did bytes arrive that are no whole head yet, does the client take what is written? A limit
//! is kept to within half of itself on the long side, which is near enough for defence.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

use crate::activity::{Activity, Connection};
use crate::forward::forward;
use crate::listener::{Limits, ListenerState};
use crate::phase::Phase;

/// HTTP/2 streams that one client connection may have open: what RFC 9113 recommends as the least, and what
/// nginx and Envoy come near to.
const MAX_STREAMS: u32 = 128;

/// How long a connection that has just been accepted gets for its first request when its listener closes: a client
/// sends it with the end of the handshake, and cannot know whether one that met a close was served.
const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(100);

/// Serves the requests of one connection until it ends.
pub(crate) async fn serve(stream: TcpStream, listener: Arc<ListenerState>) {
    let _ = stream.set_nodelay(true);
    let mut phases = listener.life.watch();
    let limits = listener.limits.load_full();
    let mut watch = Watch::new(&limits);
    let builder = builder(&limits);
    let state = Arc::new(Connection { listener, limits, activity: Activity::default() });
    let io = ClientIo { io: TokioIo::new(stream), connection: Arc::clone(&state) };
    let service = service_fn(|request| forward(Arc::clone(&state), request));
    let mut connection = pin!(builder.serve_connection(io, service));
    // The listener may have closed before this connection had its first turn.
    if *phases.borrow() == Phase::Closing {
        phases.mark_changed();
    }
    let (mut closing, mut close_at) = (false, None);
    loop {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            changed = phases.changed(), if !closing => {
                closing = changed.is_err() || *phases.borrow_and_update() == Phase::Closing;
                if closing && !state.activity.has_begun() {
                    close_at = Some(Instant::now() + FIRST_REQUEST_GRACE);
                } else if closing || state.activity.http2.load(Ordering::Relaxed) {
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = at(close_at), if close_at.is_some() => {
                close_at = None;
                connection.as_mut().graceful_shutdown();
            }
            overdue = watch.tick(&state.activity) => {
                if overdue {
                    return;
                }
            }
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).max_headers(limits.max_headers).max_buf_size(limits.max_header_size);
    builder
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_size).unwrap_or(u32::MAX))
        .adaptive_window(false);
    builder
}

/// Looks at a connection now and then.
struct Watch {
    ticks: tokio::time::Interval,
    idle_timeout: Duration,
    header_read_timeout: Duration,
    seen: u32,
    seen_written: u32,
    idle_since: Option<Instant>,
    head_since: Option<Instant>,
    blocked_since: Option<Instant>,
}

impl Watch {
    fn new(limits: &Limits) -> Self {
        let period = limits.header_read_timeout.min(limits.idle_timeout) / 2;
        let period = period.max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A connection that never says anything is idle from its beginning.
        Self {
            ticks,
            idle_timeout: limits.idle_timeout,
            header_read_timeout: limits.header_read_timeout,
            seen: 0,
            seen_written: 0,
            idle_since: Some(Instant::now()),
            head_since: None,
            blocked_since: None,
        }
    }

    /// Waits for the next look; says whether the connection has overstayed.
    async fn tick(&mut self, activity: &Activity) -> bool {
        let now = self.ticks.tick().await;
        let begun = activity.begun.load(Ordering::Relaxed);
        let quiet = begun == self.seen && activity.active.load(Ordering::Relaxed) == 0;
        self.seen = begun;
        if self.is_blocked_at(now, activity) {
            return true;
        }
        if !quiet {
            (self.idle_since, self.head_since) = (None, None);
            return false;
        }
        let partial = activity.partial_head.load(Ordering::Relaxed) && !activity.http2.load(Ordering::Relaxed);
        let idle_since = *self.idle_since.get_or_insert(now);
        let head_since = partial.then(|| *self.head_since.get_or_insert(now));
        now - idle_since >= self.idle_timeout || head_since.is_some_and(|since| now - since >= self.header_read_timeout)
    }
}

impl Watch {
    /// Whether the client has taken nothing for too long of what is written to it.
    fn is_blocked_at(&mut self, now: Instant, activity: &Activity) -> bool {
        let written = activity.written.load(Ordering::Relaxed);
        let blocked = activity.write_blocked.load(Ordering::Relaxed) && written == self.seen_written;
        self.seen_written = written;
        if !blocked {
            self.blocked_since = None;
            return false;
        }
        now - *self.blocked_since.get_or_insert(now) >= self.idle_timeout
    }
}

/// The connection, noting when bytes come in and whether they go out.
struct ClientIo {
    io: TokioIo<TcpStream>,
    connection: Arc<Connection>,
}

impl Read for ClientIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_read(cx, buf);
        if poll.is_ready() {
            self.connection.activity.on_read();
        }
        poll
    }
}

impl Write for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, buf);
        self.connection.activity.on_write(&poll);
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.connection.activity.on_write(&poll);
        poll
    }
}

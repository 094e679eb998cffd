//! One HTTP/2 connection of a client: hyper speaks the protocol, on this task, and each request has a task of its own.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Breach, Flow, Guard, Settings, Stalled, StreamTasks};
use crate::activity::{ActiveRequest, Connection, Stage};
use crate::answer;
use crate::connection::FIRST_REQUEST_GRACE;
use crate::ended::Ended;
use crate::forward::{Beyond, Outcome, Switched, forward};
use crate::listener::Limits;
use crate::phase::Phase;
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;
use crate::time_limits::{Overdue, TimeLimits};
use crate::upgrade::{self, Said, Upgrade};

/// How long an idle connection gets to end by itself once its client was told to.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// Serves the requests of one connection until it ends.
pub(crate) async fn serve(
    said: Said,
    connection: Arc<Connection>,
    mut phases: watch::Receiver<Phase>,
    mut time_limits: TimeLimits,
) {
    let limits = &connection.limits;
    // Its first bytes may have been looked at as those of a head.
    connection.activity.enter(Stage::Idle);
    let tasks = StreamTasks::new(limits.idle_timeout, Arc::clone(&connection.listener.shared) as Arc<dyn Stalled>);
    let settings = Settings {
        allowance: limits.http2,
        max_header_size: limits.max_header_size,
        idle_timeout: limits.idle_timeout,
        is_lean: connection.listener.shared.pressure.is_lean(),
    };
    let watch = Arc::new(Watch::new(Guard::new(Timestamp::ZERO, limits.http2)));
    let io = ClientIo { io: said, connection: Arc::clone(&connection), watch: Arc::clone(&watch) };
    let service = service_fn(|request| {
        let flow = tasks.begin();
        let active = ActiveRequest::begin(&connection, &request);
        let (connection, is_wary) = (Arc::clone(&connection), watch.is_wary());
        // Boxed, because it is large, and is moved from hyper to tokio in several steps.
        Box::pin(async move {
            if is_wary {
                // hyper looks whether the request was taken back when its answer is not there at once.
                tokio::task::yield_now().await;
            }
            serve_request(connection, request, flow, active).await
        })
    });
    let builder = super::builder(settings, tasks.clone());
    let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
    // The listener may have closed before this connection had its first turn.
    if *phases.borrow() != Phase::Serving {
        phases.mark_changed();
    }
    let mut looks = tokio::time::interval(looks_every(limits.header_read_timeout, limits.idle_timeout));
    let (mut close_at, mut end_at) = (None, None);
    loop {
        tokio::select! {
            biased;
            result = serving.as_mut() => {
                if result.is_err_and(|error| super::is_protocol_error(&error)) {
                    connection.end_for(Ended::Protocol);
                }
                return;
            }
            changed = phases.changed() => {
                let phase = if changed.is_ok() { *phases.borrow_and_update() } else { Phase::Closed };
                if phase == Phase::Closed {
                    // A client that has gone without a word had nothing in flight.
                    if watch.has_streams() {
                        connection.end_for(Ended::Drain);
                    }
                    return;
                }
                if phase == Phase::Closing && connection.activity.begun() == 0 {
                    close_at = Some(Instant::now() + FIRST_REQUEST_GRACE);
                } else {
                    serving.as_mut().graceful_shutdown();
                }
            }
            () = at(close_at), if close_at.is_some() => {
                close_at = None;
                serving.as_mut().graceful_shutdown();
            }
            overdue = poll_fn(|cx| time_limits.poll(cx, &connection)), if end_at.is_none() => {
                // A request is over for us when its last frame is handed to the protocol, which may hold it for its client.
                if overdue == Overdue::Idle && watch.has_streams() {
                    time_limits.is_busy();
                    continue;
                }
                connection.end_for(Ended::Overdue(overdue));
                if overdue != Overdue::Idle {
                    return;
                }
                // A request may be on its way; told of the end, its client knows that it was not served.
                serving.as_mut().graceful_shutdown();
                end_at = Some(Instant::now() + GOAWAY_GRACE);
            }
            () = at(end_at), if end_at.is_some() => return,
            _ = looks.tick() => {
                if let Err(ended) = watch.look(limits) {
                    return connection.end_for(ended);
                }
            }
        }
    }
}

fn looks_every(header_read_timeout: Duration, idle_timeout: Duration) -> Duration {
    (header_read_timeout / 2).min(idle_timeout / 4).max(Duration::from_millis(1))
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn serve_request(
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
    flow: Arc<Flow>,
    active: ActiveRequest,
) -> Result<Response<ResponseBody>, h2::Error> {
    let (upgrade, client) = Upgrade::of_http2(&mut request).unzip();
    let request = request.map(|incoming| RequestBody::http2(incoming, &connection.limits));
    let asks_to_switch = client.is_some();
    let response = match forward(&connection, request, Beyond { upgrade, informational: None }, active).await {
        // To an extended CONNECT any success says that the tunnel is open.
        Outcome::Answer(response) if asks_to_switch && response.status().is_success() => answer::for_no_switch(),
        Outcome::Answer(response) => response,
        // A code that does not invite to try again.
        Outcome::Dropped => return Err(h2::Reason::CANCEL.into()),
        Outcome::Switched(switched) => {
            let idle_timeout = connection.limits.upgrade_idle_timeout;
            let phases = connection.listener.life.watch();
            let Switched { response, backend, active } = *switched;
            if let Some(client) = client {
                tokio::spawn(async move {
                    if let Ok(client) = client.await {
                        upgrade::tunnel(TokioIo::new(client), backend, idle_timeout, phases).await;
                    }
                    drop(active);
                });
            }
            upgrade::http2_answer(response).map(|()| ResponseBody::local(bytes::Bytes::new()))
        }
    };
    Ok(response.map(|body| body.on_stream(flow)))
}

/// What is looked at in the bytes of a connection.
struct Watch {
    begun: Instant,
    guard: Mutex<Guard>,
}

impl Watch {
    fn new(guard: Guard) -> Self {
        Self { begun: Instant::now(), guard: Mutex::new(guard) }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    /// Whether there are streams whose answers have not gone out yet.
    fn has_streams(&self) -> bool {
        self.guard.lock().has_streams()
    }

    /// See [`Guard::is_wary`].
    fn is_wary(&self) -> bool {
        self.guard.lock().is_wary()
    }

    /// Whether the client holds up its streams, or a block of headers.
    fn look(&self, limits: &Limits) -> Result<(), Ended> {
        let now = self.now();
        let mut guard = self.guard.lock();
        guard.look(now, limits.idle_timeout, limits.min_body_rate).map_err(Ended::from)?;
        let is_slow = guard.headers_since().is_some_and(|since| now.since(since) >= limits.header_read_timeout);
        if is_slow { Err(Ended::Overdue(Overdue::Head)) } else { Ok(()) }
    }
}

/// The connection's bytes, as they are without TLS.
struct ClientIo {
    io: Said,
    connection: Arc<Connection>,
    watch: Arc<Watch>,
}

impl ClientIo {
    /// Ends the connection, and tells the client why if that is possible at once.
    fn end(&mut self, cx: &mut Context<'_>, breach: Breach) -> io::Error {
        self.connection.end_for(breach.into());
        let farewell = self.watch.guard.lock().farewell();
        if let Some(farewell) = farewell {
            let _ = Pin::new(&mut self.io).poll_write(cx, &farewell);
        }
        io::ErrorKind::ConnectionAborted.into()
    }

    fn on_write(&self, polled: &Poll<io::Result<usize>>) {
        self.connection.activity.write_is_blocked(polled.is_pending());
        if let Poll::Ready(Ok(written)) = polled {
            self.connection.activity.on_sent(*written);
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buf);
        let read = &mut buf.filled_mut()[before..];
        if read.is_empty() {
            return polled;
        }
        let guarded = this.watch.guard.lock().on_read(this.watch.now(), read);
        match guarded {
            Ok(()) => polled,
            Err(breach) => Poll::Ready(Err(this.end(cx, breach))),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.on_write(&polled);
        if let Poll::Ready(Ok(written)) = &polled {
            self.watch.guard.lock().on_written(&buf[..*written]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.on_write(&polled);
        if let Poll::Ready(Ok(written)) = &polled {
            self.watch.guard.lock().on_written_vectored(bufs, *written);
        }
        polled
    }
}

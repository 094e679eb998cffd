//! An accept loop that ends without failing a request.
//!
//! HTTP/1 and HTTP/2 (without TLS, with prior knowledge) share one port. The first three bytes tell
//! them apart: no HTTP/1 method begins with the `PRI` of the HTTP/2 preface. When the server
//! becomes a lame duck, it ends in this order:
//!
//! 1. *At once*: load reports and health say so; HTTP/1 responses close their connection; HTTP/2
//!    connections get a GOAWAY in two steps, so that requests on their way are still served. Idle
//!    HTTP/1 connections stay: closing one races with a request that the client is sending, and the
//!    client could not know whether that was served. The listener stays open, because clients
//!    without the news still connect. HTTP/2 connections from now on get their GOAWAY at the end,
//!    because a client that ignores the first would only connect again at once.
//! 2. *When nothing has been in flight for a while* ([`DrainConfig`]): the listener is closed
//!    first, after the connections that wait in its backlog were accepted, then the connections. So
//!    a client that holds a silent connection to learn of the end learns of it only when a connect
//!    would be refused or reach the successor.
//! 3. A request is no longer in flight once its body is handed over, while its response may still
//!    be on its way to a slow client. So a connection with unsent data is left alone until
//!    [`DrainConfig::drain`] is over. Other connections that do not end by themselves within
//!    [`CLOSE_GRACE`] are cut: their clients are silent, or gone without a word. Then `serve`
//!    returns.

#[cfg(not(feature = "tls"))]
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
#[cfg(feature = "http1")]
use hyper::server::conn::http1;
#[cfg(feature = "http2")]
use hyper::server::conn::http2;
#[cfg(feature = "http2")]
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use plimsoll_stream::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_layer::Layer as _;
use tower_service::Service;

use super::layer::{ServerLayer, ServerService};
use super::lifecycle::{CLOSE_GRACE, DrainConfig, DrainEnd, Phase};
use super::unsent::Work;
use crate::clock;
#[cfg(feature = "tls")]
use crate::tls;

/// Pause after a failed accept. It fails mostly for want of file descriptors, and trying again at
/// once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Pause between the first two checks of a connection with only one or two bytes; each further
/// pause is twice as long.
const PEEK_PAUSE: Duration = Duration::from_millis(1);

/// Number of such checks of a connection, about a second in all. Then it is taken for HTTP/1, which
/// has limits of its own for it. The connection may have ended, but a peek at unread bytes does not
/// show that.
const MAX_PEEKS: u32 = 10;

/// Settings of [`serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeConfig {
    /// The time limits of the drain.
    pub drain: DrainConfig,
    /// Streams that a client may have open on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// Closes an HTTP/1 connection without a complete request head for this long, idle ones
    /// included.
    ///
    /// Off by default: clients keep idle connections on purpose, and closing one races with the
    /// next request on it. Set it where clients are not trusted.
    pub header_read_timeout: Option<Duration>,
}

impl ServeConfig {
    /// The value that hyper recommends; a client opens a further connection beyond it.
    pub const DEFAULT_MAX_CONCURRENT_STREAMS: u32 = 200;
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            drain: DrainConfig::default(),
            max_concurrent_streams: Self::DEFAULT_MAX_CONCURRENT_STREAMS,
            header_read_timeout: None,
        }
    }
}

/// The handshakes of TLS listeners; none without the feature.
#[cfg(feature = "tls")]
type TlsAcceptor = Arc<tls::Acceptor>;
#[cfg(not(feature = "tls"))]
type TlsAcceptor = Arc<Infallible>;

/// The names in a client's certificate.
#[cfg(feature = "tls")]
pub(super) type ClientNames = tls::ClientNames;
#[cfg(not(feature = "tls"))]
pub(super) type ClientNames = Infallible;

/// How far a connection has to go along with the end. In order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    LameDuck,
    Closing,
    Cut,
}

/// Accepts connections and serves until the drain has ended; returns how it ended.
///
/// It wraps `service` in `reports`; do not wrap it yourself as well. It accepts connections from
/// the start; call [`ready`](super::Lifecycle::ready) when the service wants requests. Runs on any
/// tokio runtime; each connection is a task.
pub async fn serve<S, B>(
    listeners: impl IntoIterator<Item = TcpListener>,
    service: S,
    reports: ServerLayer,
    config: ServeConfig,
) -> DrainEnd
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_any(listeners, service, reports, config, None).await
}

/// The same over TLS. Each request has [`ClientNames`](tls::ClientNames) as an extension.
///
/// HTTP/2 is spoken where the handshake agrees on it, else HTTP/1.
#[cfg(feature = "tls")]
pub async fn serve_tls<S, B>(
    listeners: impl IntoIterator<Item = TcpListener>,
    service: S,
    reports: ServerLayer,
    config: ServeConfig,
    tls: Arc<tls::Acceptor>,
) -> DrainEnd
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_any(listeners, service, reports, config, Some(tls)).await
}

async fn serve_any<S, B>(
    listeners: impl IntoIterator<Item = TcpListener>,
    service: S,
    reports: ServerLayer,
    config: ServeConfig,
    tls: Option<TlsAcceptor>,
) -> DrainEnd
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stage = watch::Sender::new(Stage::Open);
    let stop_accepting = watch::Sender::new(false);
    let unfinished = Arc::new(AtomicU64::new(0));
    // Every connection holds a sender, so that the channel closes when the last has ended.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        let acceptor = Acceptor {
            service: reports.layer(service.clone()),
            config,
            tls: tls.clone(),
            ending: Ending { stage: stage.subscribe(), unfinished: Arc::clone(&unfinished) },
            alive: alive.clone(),
        };
        acceptors.spawn(acceptor.run(listener, stop_accepting.subscribe()));
    }
    drop(alive);

    let lifecycle = reports.lifecycle();
    lifecycle.note_awaited();
    reached(&mut lifecycle.subscribe(), Phase::LameDuck).await;
    let until = clock::after(Instant::now(), config.drain.drain);
    stage.send_replace(Stage::LameDuck);
    let end = lifecycle.drained(&config.drain).await;

    stop_accepting.send_replace(true);
    while acceptors.join_next().await.is_some() {}
    stage.send_replace(Stage::Closing);
    let cut_short = tokio::select! {
        biased;
        () = lifecycle.cut_short() => true,
        _ = all_gone.recv() => false,
        () = tokio::time::sleep_until(until.max(Instant::now() + CLOSE_GRACE)) => false,
    };
    stage.send_replace(Stage::Cut);
    all_gone.recv().await;
    match (end, unfinished.load(Ordering::SeqCst)) {
        (DrainEnd::Quiet, unfinished) if cut_short => DrainEnd::CutShort { unfinished },
        (DrainEnd::Quiet | DrainEnd::Overdue { unfinished: 0 }, unfinished @ 1..) => DrainEnd::Overdue { unfinished },
        (DrainEnd::CutShort { unfinished: 0 }, unfinished) => DrainEnd::CutShort { unfinished },
        (end, _) => end,
    }
}

/// The shared state of a connection's end.
#[derive(Clone)]
struct Ending {
    stage: watch::Receiver<Stage>,
    /// Connections that were cut while something was to be done on them.
    unfinished: Arc<AtomicU64>,
}

impl Ending {
    /// Waits until a connection is to be cut: there is nothing to be done on it, or all are.
    async fn cut(mut self, work: &Work) {
        reached(&mut self.stage, Stage::Closing).await;
        while tokio::time::timeout(CLOSE_GRACE, reached(&mut self.stage, Stage::Cut)).await.is_err() {
            if work.is_done() {
                return;
            }
        }
        if !work.is_done() {
            self.unfinished.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Takes in the connections of one listener.
struct Acceptor<S> {
    service: ServerService<S>,
    config: ServeConfig,
    tls: Option<TlsAcceptor>,
    ending: Ending,
    alive: mpsc::Sender<()>,
}

impl<S, B> Acceptor<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                () = reached(&mut stop, true) => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.take_in(stream),
                    Err(error) => pause_after(&error).await,
                },
            }
        }
        // Clients in the backlog are already connected, from their point of view.
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok()
                    && let Ok(stream) = TcpStream::from_std(stream)
                {
                    self.take_in(stream);
                }
            }
        }
    }

    fn take_in(&self, stream: TcpStream) {
        // Responses are written whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        let (service, config, ending) = (self.service.clone(), self.config, self.ending.clone());
        let (tls, alive) = (self.tls.clone(), self.alive.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, tls, service, config, ending).await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(alive);
        });
    }
}

async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};

    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves one connection to its end.
async fn connection<S, B>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: ServerService<S>,
    config: ServeConfig,
    ending: Ending,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let work = Work::default();
    tokio::select! {
        ended = served(stream, tls, service, config, ending.stage.clone(), &work) => ended,
        () = ending.cut(&work) => Ok(()),
    }
}

async fn served<S, B>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: ServerService<S>,
    config: ServeConfig,
    stage: watch::Receiver<Stage>,
    work: &Work,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    #[cfg(feature = "http2")]
    let accepted = *stage.borrow();
    let (stream, client, protocol) = match tls {
        None => {
            let protocol = protocol_of(&stream).await?;
            (Stream::Tcp(stream), None, protocol)
        }
        #[cfg(feature = "tls")]
        Some(tls) => {
            let tls::AcceptedConnection { stream, client, is_http2 } = tls.accept(stream).await?;
            (stream, Some(client), Some(if is_http2 { Protocol::Http2 } else { Protocol::Http1 }))
        }
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    };
    let io = TokioIo::new(work.socket(stream));
    let service = work.track(TowerToHyperService::new(service), client);
    match protocol {
        None => Ok(()),
        #[cfg(feature = "http1")]
        Some(Protocol::Http1) => {
            // If the first bytes of a connection came during the end, its response will close it.
            // hyper would close it before the response.
            let told = if *stage.borrow() < Stage::Closing { Stage::Closing } else { Stage::Cut };
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(config.header_read_timeout.map(|limit| limit.min(clock::NEVER)))
                .serve_connection(io, service)
                .with_upgrades();
            run(pin!(served), |served| served.graceful_shutdown(), told, stage).await
        }
        #[cfg(feature = "http2")]
        Some(Protocol::Http2) => {
            let told = if accepted == Stage::Open { Stage::LameDuck } else { Stage::Closing };
            let served = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(config.max_concurrent_streams)
                .serve_connection(io, service);
            run(pin!(served), |served| served.graceful_shutdown(), told, stage).await
        }
        #[cfg(not(all(feature = "http1", feature = "http2")))]
        Some(protocol) => Err(format!("{protocol:?} is not among the features of plimsoll").into()),
    }
}

/// Drives `served`, and tells it by `tell` at stage `told`.
async fn run<C: Future<Output = hyper::Result<()>>>(
    mut served: Pin<&mut C>,
    tell: impl FnOnce(Pin<&mut C>),
    told: Stage,
    mut stage: watch::Receiver<Stage>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    tokio::select! {
        ended = served.as_mut() => return Ok(ended?),
        () = reached(&mut stage, told) => {}
    }
    tell(served.as_mut());
    Ok(served.await?)
}

/// Waits for `least` or more; a value that nobody can change any more counts as reached, so that
/// nothing outlives a `serve` that was dropped.
async fn reached<T: PartialOrd>(value: &mut watch::Receiver<T>, least: T) {
    let _ = value.wait_for(|value| *value >= least).await;
}

/// Looks at the first bytes without taking them; `None` when the client closed without any.
async fn protocol_of(stream: &TcpStream) -> io::Result<Option<Protocol>> {
    const MARK: &[u8] = b"PRI";
    let mut bytes = [0; MARK.len()];
    for look in 0..MAX_PEEKS {
        let seen = match stream.peek(&mut bytes).await? {
            0 => return Ok(None),
            length => &bytes[..length],
        };
        if !MARK.starts_with(seen) {
            return Ok(Some(Protocol::Http1));
        }
        if seen.len() == MARK.len() {
            return Ok(Some(Protocol::Http2));
        }
        tokio::time::sleep(PEEK_PAUSE * 2_u32.pow(look)).await;
    }
    Ok(Some(Protocol::Http1))
}

//! One connection: TCP, TLS and HTTP/2 with one endpoint.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use plimsoll::tls::{TlsConfig, chain};
use plimsoll_stream::Stream;
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::failure::Failure;

/// Time for a connection, with the handshake of TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for an answer. A new leader of etcd is elected within one to two seconds.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without a byte after which a ping is sent. etcd ends connections with more pings than one in
/// 5 s (`--grpc-keepalive-min-time`), and with any pings while no request is under way.
const PING_INTERVAL: Duration = Duration::from_secs(6);
/// Time for its answer.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest message: a page of a list, or the events of one transaction.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;

/// Bytes of one stream, and of all, that wait unread. More than all streams of a client need, so that
/// one with a slow reader does not stop the others.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    driver: JoinHandle<()>,
    /// Since the last answer: when the first request was sent, and when the last one was dropped.
    unanswered: Mutex<Option<(Instant, Instant)>>,
}

/// A request under way. It may be dropped before its time is over, so a connection is also silent if
/// that happens to requests one after the other.
struct Waiting<'a>(&'a Connection);

impl<'a> Waiting<'a> {
    fn start(connection: &'a Connection) -> Self {
        let now = Instant::now();
        connection.unanswered.lock().get_or_insert((now, now));
        Self(connection)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((_, until)) = &mut *self.0.unanswered.lock() {
            *until = Instant::now();
        }
    }
}

impl Connection {
    /// Connects with `endpoint`, in plain text without `tls`.
    pub(crate) async fn open(endpoint: &Authority, tls: Option<&TlsConfig>) -> Result<Arc<Self>, String> {
        let tcp = connect(endpoint).await.map_err(|error| format!("cannot connect: {error}"))?;
        let (scheme, stream) = match tls {
            None => ("http", Stream::Tcp(tcp)),
            Some(tls) => {
                let stream = tls.connect_http2(tcp, endpoint.host()).await;
                ("https", stream.map_err(|error| format!("no TLS: {}", chain(&error)))?)
            }
        };
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        let origin = Uri::builder().scheme(scheme).authority(endpoint.clone()).path_and_query("/").build();
        let origin = origin.map_err(|error| error.to_string())?;
        Ok(Arc::new(Self { sender, origin, driver, unanswered: Mutex::new(None) }))
    }

    /// Whether requests can be sent on it, and some were answered lately.
    pub(crate) fn is_usable(&self) -> bool {
        let is_silent = self.unanswered.lock().is_some_and(|(since, until)| until - since > REQUEST_TIMEOUT);
        !is_silent && !self.driver.is_finished() && !self.sender.is_closed()
    }

    /// Something was received.
    pub(crate) fn answered(&self) {
        *self.unanswered.lock() = None;
    }

    /// One request with one answer.
    pub(crate) async fn unary<Q, A>(&self, path: PathAndQuery, request: Request<Q>) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let _waiting = Waiting::start(self);
        let mut grpc = self.grpc();
        let answer = async {
            grpc.ready().await.map_err(not_sent)?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            grpc.unary(request, path, codec).await.map_err(Failure::from)
        };
        let answer =
            timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Err(Failure::silent("no answer within 3 s")))?;
        self.answered();
        Ok(answer.into_inner())
    }

    /// A stream of requests and one of answers. The head of the answers must come within a time.
    pub(crate) async fn streaming<Q, A>(
        &self,
        path: PathAndQuery,
        requests: Request<ReceiverStream<Q>>,
        within: Duration,
    ) -> Result<Streaming<A>, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let _waiting = Waiting::start(self);
        let mut grpc = self.grpc();
        let opened = async {
            grpc.ready().await.map_err(not_sent)?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            grpc.streaming(requests, path, codec).await.map_err(Failure::from)
        };
        let silent = |_| Err(Failure::silent(format!("no stream within {within:?}")));
        let answers = timeout(within, opened).await.unwrap_or_else(silent)?.into_inner();
        self.answered();
        Ok(answers)
    }

    /// A client of gRPC on it.
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::with_origin(Channel(self.sender.clone()), self.origin.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

fn not_sent(error: hyper::Error) -> Failure {
    Failure::Endpoint { error: plimsoll::tls::chain(&error), may_be_done: false }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The service beneath a client of gRPC.
#[derive(Clone, Debug)]
pub(crate) struct Channel(SendRequest<Body>);

type Response = Result<http::Response<hyper::body::Incoming>, hyper::Error>;

impl tower_service::Service<http::Request<Body>> for Channel {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Connects with the first address that accepts it. They share the time, so that a silent one leaves
/// some to the others.
async fn connect(endpoint: &Authority) -> std::io::Result<TcpStream> {
    let host = endpoint.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((host, endpoint.port_u16().unwrap_or(DEFAULT_PORT))).await?.collect();
    let share = CONNECT_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failed = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true)?;
                return Ok(tcp);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = std::io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

/// The port of etcd for clients.
const DEFAULT_PORT: u16 = 2379;

//! The stream to a control plane: gRPC on an HTTP/2 connection of its own.
//!
//! A stream is bytes in, bytes out: `subscription` decides on their meaning. To drop it ends the connection.
//!
//! Two things find a connection that died in silence. TCP keep-alive sees a machine that is unreachable
//! after 45 s. A ping of HTTP/2 sees a process that hangs, but after 5 minutes only: servers of gRPC end the
//! connection of a client that pings more often ("too many pings"), and most control planes are such
//! servers. gRPC's own xDS clients ping as often.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::{Buf as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use http::Uri;
use http::uri::{Authority, PathAndQuery};
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll::tls::{TlsConfig, chain};
use plimsoll_stream::Stream;
use prost::Message as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status, Streaming};

use super::message::{DiscoveryRequest, STREAM};

/// Time for a connection, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest response, in bytes: 100,000 endpoints with 300 bytes of metadata each.
const MAX_RESPONSE: usize = 32 * 1024 * 1024;
/// Time between two responses. Further ones wait at the control plane: a flood of large ones must not cost
/// a core.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Requests that wait for a control plane that does not read.
const MAX_QUEUE: usize = 16;
/// The longest part of a status message that is logged, in characters.
const MAX_MESSAGE: usize = 300;
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// Servers of gRPC permit one ping in 5 minutes. The rest is for pings that travel at different speeds.
const PING_INTERVAL: Duration = Duration::from_secs(310);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection, in TLS or not.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens a connection to a control plane.
pub(super) type Dial =
    Arc<dyn Fn(Authority, Option<TlsConfig>) -> BoxFuture<'static, io::Result<Box<dyn Io>>> + Send + Sync>;

/// A control plane.
#[derive(Clone)]
pub(super) struct ControlPlane {
    pub(super) server: Authority,
    /// `None`: in plain text.
    pub(super) tls: Option<TlsConfig>,
    pub(super) dial: Dial,
}

/// The reason why a stream ended or did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    #[error("the control plane answers {code:?}{}{}", prefixed(": ", message), prefixed("; help: ", help(*code)))]
    Status { code: Code, message: String },
    #[error("the connection broke: {0}")]
    Broken(String),
    /// Before an answer: the alert of TLS that is the reason may be lost with the connection.
    #[error("the connection broke without an answer: {cause}; help: {}", refusal_help(*is_tls))]
    Refused { cause: String, is_tls: bool },
    #[error("the control plane ended the stream without an answer")]
    Ended,
    #[error("the control plane does not read its stream")]
    Unread,
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
}

/// The fix for a status.
fn help(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => "the server has no aggregated discovery service (ADS); look at its address",
        Code::Unauthenticated | Code::PermissionDenied => {
            "the control plane may want a certificate in tls, or another node"
        }
        _ => "",
    }
}

/// The fix where a server ends a connection without a word.
fn refusal_help(is_tls: bool) -> &'static str {
    match is_tls {
        true => "the control plane may want a certificate: set certificate and key in tls",
        false => "the control plane may speak TLS: set tls",
    }
}

/// An event of a stream.
#[derive(Debug)]
pub(super) enum Event {
    Connected,
    Response(Bytes),
}

/// The way to the control plane.
#[derive(Debug)]
pub(super) struct Requests(mpsc::Sender<DiscoveryRequest>);

impl Requests {
    pub(super) fn send(&self, request: DiscoveryRequest) -> Result<(), StreamError> {
        match self.0.try_send(request) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(StreamError::Unread),
            // The stream says why it ended.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// Begins a stream. After its end, or an error, there is no other event.
pub(super) fn open(plane: ControlPlane) -> (Requests, BoxStream<'static, Result<Event, StreamError>>) {
    let (sender, requests) = mpsc::channel(MAX_QUEUE);
    let state = State::Closed { plane, requests };
    (Requests(sender), try_unfold(state, State::next).boxed())
}

enum State {
    Closed { plane: ControlPlane, requests: mpsc::Receiver<DiscoveryRequest> },
    Connected { link: Link, requests: mpsc::Receiver<DiscoveryRequest> },
    Open { responses: Streaming<Bytes>, driver: Driver, next: Instant },
}

/// Runs the connection, and ends it when it is dropped.
type Driver = JoinSet<hyper::Result<()>>;

struct Link {
    server: Authority,
    is_tls: bool,
    sender: hyper::client::conn::http2::SendRequest<tonic::body::Body>,
    driver: Driver,
}

impl State {
    async fn next(self) -> Result<Option<(Event, Self)>, StreamError> {
        let (responses, driver, next) = match self {
            Self::Closed { plane, requests } => {
                let link = timeout(CONNECT_TIMEOUT, plane.connect()).await.map_err(|_| StreamError::Timeout)??;
                return Ok(Some((Event::Connected, Self::Connected { link, requests })));
            }
            Self::Connected { link, requests } => {
                let is_tls = link.is_tls;
                return async {
                    let (responses, driver) = link.call(requests).await?;
                    Self::response(responses, driver).await
                }
                .await
                .map_err(|error| match error {
                    StreamError::Broken(cause) => StreamError::Refused { cause, is_tls },
                    other => other,
                });
            }
            Self::Open { responses, driver, next } => (responses, driver, next),
        };
        sleep_until(next).await;
        Self::response(responses, driver).await
    }

    async fn response(
        mut responses: Streaming<Bytes>,
        mut driver: Driver,
    ) -> Result<Option<(Event, Self)>, StreamError> {
        match responses.message().await {
            Ok(None) => Ok(None),
            Ok(Some(response)) => {
                let next = Instant::now() + MIN_INTERVAL;
                Ok(Some((Event::Response(response), Self::Open { responses, driver, next })))
            }
            Err(status) => Err(described(&status, &mut driver)),
        }
    }
}

impl ControlPlane {
    async fn connect(self) -> Result<Link, StreamError> {
        let is_tls = self.tls.is_some();
        let stream = (self.dial)(self.server.clone(), self.tls).await;
        let stream = stream.map_err(|error| StreamError::Connect(chain(&error)))?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
        let opened = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| StreamError::Connect(chain(&error)))?;
        let mut driver = Driver::new();
        driver.spawn(connection);
        Ok(Link { server: self.server, is_tls, sender, driver })
    }
}

impl Link {
    async fn call(
        self,
        mut requests: mpsc::Receiver<DiscoveryRequest>,
    ) -> Result<(Streaming<Bytes>, Driver), StreamError> {
        let Self { server, is_tls, sender, mut driver } = self;
        let scheme = if is_tls { "https" } else { "http" };
        let service = tower::service_fn(move |request| sender.clone().send_request(request));
        let origin = Uri::builder().scheme(scheme).authority(server).path_and_query("/").build();
        let origin = origin.expect("an authority with a port is one of a URI");
        let mut grpc = Grpc::with_origin(service, origin).max_decoding_message_size(MAX_RESPONSE);
        let requests = futures_util::stream::poll_fn(move |context| requests.poll_recv(context));
        let path = PathAndQuery::from_static(STREAM);
        match grpc.streaming(tonic::Request::new(requests), path, RawCodec).await {
            Ok(response) => Ok((response.into_inner(), driver)),
            Err(status) => Err(described(&status, &mut driver)),
        }
    }
}

/// A status of the control plane, or else the end of the connection: an alert of TLS is no status.
fn described(status: &Status, driver: &mut Driver) -> StreamError {
    if status.source().is_none() {
        let message = status.message().lines().next().unwrap_or_default();
        let message = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect();
        return StreamError::Status { code: status.code(), message };
    }
    match driver.try_join_next() {
        Some(Ok(Err(error))) => StreamError::Broken(chain(&error)),
        _ => StreamError::Broken(chain(status)),
    }
}

/// Requests as protocol buffers, responses as they are.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = DiscoveryRequest;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = DiscoveryRequest;
    type Error = Status;

    fn encode(&mut self, request: DiscoveryRequest, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        request.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}

/// By TCP, and TLS with a configuration.
pub(super) fn dial() -> Dial {
    Arc::new(|server, tls| Box::pin(connect(server, tls)))
}

async fn connect(server: Authority, tls: Option<TlsConfig>) -> io::Result<Box<dyn Io>> {
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((host, server.port_u16().unwrap_or_default())).await?.collect();
    let tcp = TcpStream::connect(&*addresses).await?;
    tcp.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(&tcp);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
    // The same for bytes on their way: while they are, there is no keep-alive.
    socket.set_tcp_user_timeout(Some(KEEPALIVE_IDLE + KEEPALIVE_RETRIES * KEEPALIVE_INTERVAL))?;
    let stream = match tls {
        None => Stream::Tcp(tcp),
        Some(tls) => tls.connect_http2(tcp, host).await?,
    };
    Ok(Box::new(stream))
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, tls, .. } = self;
        f.debug_struct("ControlPlane").field("server", server).field("tls", tls).finish_non_exhaustive()
    }
}

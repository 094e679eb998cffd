//! Requests to the API server: one connection for each, by HTTP/1.1.
//!
//! A source sends a list every five minutes and a watch as often. So nothing is gained by connections
//! that stay open, and a new one sees a rotated authority at once. The future of the connection is
//! polled together with the body, so that to drop a request ends all of it.
//!
//! The token is read for each request, because the kubelet rotates it. It is sent by TLS or to the
//! machine itself only, and is in no message.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll::tls::{ServerName, provider};
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::account::{Account, AccountError};
use super::server::ApiServer;
use super::wire;

/// Time for a connection, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from a request to the head of its response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the body of a page. 64 MiB pass a link of 20 Mbit/s in it.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest page, in bytes: 500 slices of 100 endpoints take about 20 MiB.
const MAX_PAGE: usize = 64 * 1024 * 1024;
/// Largest event, in bytes: a slice of 1,000 endpoints, the most that the API permits, takes 400 KiB.
const MAX_EVENT: usize = 8 * 1024 * 1024;
/// The part of a failure's body that is read.
const MAX_FAILURE: usize = 64 * 1024;
/// A dead connection is found after 35 s without a packet, and not at the end of the watch.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// A connection without TLS.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens a connection to a host and port.
pub(super) type Dial = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> + Send + Sync>;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// A file of the service account, or the environment.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No connection.
    #[error("cannot connect to {server}: {cause}")]
    Connect {
        server: ApiServer,
        #[source]
        cause: io::Error,
    },
    /// The server did not answer in time.
    #[error("no {awaited} from {server} within {} s", after.as_secs())]
    Timeout { server: ApiServer, awaited: &'static str, after: Duration },
    /// The server does not speak HTTP, or ended the connection.
    #[error("{server} broke the connection off: {cause}")]
    Http {
        server: ApiServer,
        #[source]
        cause: hyper::Error,
    },
    /// The server refuses.
    #[error("{status} for {verb} endpointslices{}{}", prefixed(": ", message), prefixed("; help: ", help(*status)))]
    Status { status: StatusCode, verb: Verb, message: String },
    /// An answer is too long.
    #[error("{part} is longer than {} MiB", max / 1024 / 1024)]
    TooLong { part: &'static str, max: usize },
}

impl ApiError {
    /// Whether the server no longer knows a version or token.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Self::Status { status: StatusCode::GONE, .. })
    }
}

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// To read the whole list.
    List,
    /// To be told of changes.
    Watch,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

/// The fix for a status.
fn help(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "look for the token of the pod's service account; it may have expired",
        StatusCode::FORBIDDEN => {
            "bind a Role with apiGroups [\"discovery.k8s.io\"], resources [\"endpointslices\"], verbs [\"list\", \
             \"watch\"] to the pod's service account"
        }
        StatusCode::NOT_FOUND => "discovery.k8s.io/v1 needs Kubernetes 1.21 or later; look at the server's address",
        StatusCode::TOO_MANY_REQUESTS => "the API server is overloaded",
        _ => "",
    }
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
}

/// The client of one source.
pub(super) struct Api {
    /// `None`: the server of the cluster that this process runs in.
    pub(super) server: Option<ApiServer>,
    pub(super) account: Account,
    pub(super) dial: Dial,
}

impl Api {
    /// The whole body of a list request.
    pub(super) async fn page(&self, target: &str) -> Result<BytesMut, ApiError> {
        let mut body = self.get(target, Verb::List).await?;
        let whole = async {
            while body.read().await? {
                if body.buffer.len() > MAX_PAGE {
                    return Err(ApiError::TooLong { part: "a page of the list", max: MAX_PAGE });
                }
            }
            Ok(())
        };
        match timeout(PAGE_TIMEOUT, whole).await {
            Ok(read) => read.map(|()| body.buffer),
            Err(_) => Err(ApiError::Timeout { server: body.server, awaited: "whole list", after: PAGE_TIMEOUT }),
        }
    }

    /// The body of a watch.
    pub(super) async fn watch(&self, target: &str) -> Result<Body, ApiError> {
        self.get(target, Verb::Watch).await
    }

    async fn get(&self, target: &str, verb: Verb) -> Result<Body, ApiError> {
        let mut used = None;
        loop {
            let token = self.account.token().await?;
            let mut body = self.send(target, token.as_ref()).await?;
            let status = body.status;
            if status == StatusCode::OK {
                return Ok(body);
            }
            // The token was read just before it was replaced, or the server saw a new key late.
            if status == StatusCode::UNAUTHORIZED && used.is_none() && token.is_some() {
                used = token;
                if self.account.token().await? != used {
                    continue;
                }
            }
            let read = async { while body.buffer.len() < MAX_FAILURE && body.read().await.is_ok_and(|more| more) {} };
            // The status says enough without a message.
            let _ = timeout(HEAD_TIMEOUT, read).await;
            let message = wire::message(&body.buffer);
            return Err(ApiError::Status { status, verb, message });
        }
    }

    async fn send(&self, target: &str, token: Option<&HeaderValue>) -> Result<Body, ApiError> {
        let server = match &self.server {
            Some(server) => server.clone(),
            None => ApiServer::of_cluster()?,
        };
        let connect = async {
            let stream = (self.dial)(server.host().to_owned(), server.port()).await?;
            if !server.is_tls() {
                return Ok(stream);
            }
            let roots = self.account.authorities().await?;
            let config = ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            Ok::<Box<dyn Io>, io::Error>(Box::new(stream))
        };
        let timed_out = |awaited, after| ApiError::Timeout { server: server.clone(), awaited, after };
        let stream = timeout(CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| timed_out("connection", CONNECT_TIMEOUT))?
            .map_err(|cause| ApiError::Connect { server: server.clone(), cause })?;
        let broken = |cause| ApiError::Http { server: server.clone(), cause };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut request = Request::get(target)
            .header(HOST, server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = token.filter(|_| server.is_safe()) {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(NoBody).expect("the target is built from checked names");
        let mut connection: Connection = Some(Box::pin(async move { connection.await.map_err(drop) }));
        let head = with(&mut connection, sender.send_request(request));
        let response =
            timeout(HEAD_TIMEOUT, head).await.map_err(|_| timed_out("response", HEAD_TIMEOUT))?.map_err(broken)?;
        let status = response.status();
        let incoming = response.into_body();
        Ok(Body { server, status, incoming, connection, _sender: sender, buffer: BytesMut::new(), searched: 0 })
    }
}

/// The future of a connection, until it is over.
type Connection = Option<Pin<Box<dyn Future<Output = Result<(), ()>> + Send>>>;

/// Polls a connection beside something that waits for it.
async fn with<T>(connection: &mut Connection, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(context).is_ready()) {
            *connection = None;
        }
        future.as_mut().poll(context)
    })
    .await
}

/// The body of a GET.
struct NoBody;

impl http_body::Body for NoBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(0)
    }
}

/// The body of a response. To drop it ends its connection.
pub(super) struct Body {
    server: ApiServer,
    status: StatusCode,
    incoming: Incoming,
    connection: Connection,
    /// A connection ends with its sender.
    _sender: http1::SendRequest<NoBody>,
    buffer: BytesMut,
    /// The bytes at the beginning of the buffer without the end of a line.
    searched: usize,
}

impl Body {
    /// Reads a piece. `false` at the end.
    async fn read(&mut self) -> Result<bool, ApiError> {
        let incoming = &mut self.incoming;
        let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
        match with(&mut self.connection, frame).await {
            None => Ok(false),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.buffer.extend_from_slice(data);
                }
                Ok(true)
            }
            Some(Err(cause)) => Err(ApiError::Http { server: self.server.clone(), cause }),
        }
    }

    /// The next line; `None` at the end of the body, or of the connection. The part
    /// of a line before that is no line.
    pub(super) async fn line(&mut self) -> Result<Option<BytesMut>, ApiError> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| self.searched + end) {
                self.searched = 0;
                return Ok(Some(self.buffer.split_to(end + 1)));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_EVENT {
                return Err(ApiError::TooLong { part: "an event of the watch", max: MAX_EVENT });
            }
            // A watch is renewed alike, however it ended.
            if !self.read().await.unwrap_or(false) {
                return Ok(None);
            }
        }
    }
}

/// A TCP connection with keep-alive.
pub(super) fn tcp() -> Dial {
    Arc::new(|host, port| {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    })
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("server", &self.server).field("account", &self.account).finish_non_exhaustive()
    }
}

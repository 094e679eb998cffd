//! A connection to a quota server, over which several calls may go.

use std::error::Error as _;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Authority;
use http::{Request, Response, Uri};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll::tls::{TlsConfig, chain};
use plimsoll_stream::Stream;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::client::Grpc;

/// Time between pings on a connection, and for the answer.
pub(super) const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(10)];
/// Time for a connection to end after its stream.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The answer of a server with TLS to plain text.
const REFUSED_PLAIN: &str = "this port speaks TLS";

/// See the [module](self). It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    requests: Requests,
    origin: Uri,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    /// Connects, with TLS if there is a configuration. The error says why not.
    pub(super) async fn open(server: &Authority, tls: Option<TlsConfig>) -> Result<Self, String> {
        let tcp = connect(server).await.map_err(|error| format!("cannot connect: {error}"))?;
        let (scheme, stream) = match tls {
            None => ("http", Stream::Tcp(tcp)),
            Some(tls) => {
                let stream = tls.connect_http2(tcp, server.host()).await;
                ("https", stream.map_err(|error| format!("no TLS with the server: {}", chain(&error)))?)
            }
        };
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE[0]).keep_alive_timeout(KEEP_ALIVE[1]);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        let origin = Uri::builder().scheme(scheme).authority(server.clone()).path_and_query("/").build();
        let origin = origin.map_err(|error| error.to_string())?;
        Ok(Self { requests: Requests(sender), origin, driver: tokio::spawn(connection) })
    }

    /// A caller of methods.
    pub(super) fn grpc(&self) -> Grpc<Requests> {
        Grpc::with_origin(self.requests.clone(), self.origin.clone())
    }

    /// The reason why a call failed. The server states it, or else the connection: an alert of TLS is no error of a call.
    pub(super) async fn described(&mut self, status: &tonic::Status) -> String {
        if status.source().is_none() {
            return status.message().to_owned();
        }
        let cause = match timeout(CAUSE_TIMEOUT, &mut self.driver).await {
            Ok(Ok(Err(error))) => chain(&error),
            _ => chain(status),
        };
        if cause.contains(REFUSED_PLAIN) {
            return format!("the server speaks TLS, and this task does not: {cause}");
        }
        cause
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends requests over a connection.
#[derive(Clone, Debug)]
pub(super) struct Requests(SendRequest<tonic::body::Body>);

impl tower::Service<Request<tonic::body::Body>> for Requests {
    type Response = Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = futures_util::future::BoxFuture<'static, hyper::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

async fn connect(server: &Authority) -> std::io::Result<TcpStream> {
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((host, server.port_u16().unwrap_or_default())).await?.collect();
    let tcp = TcpStream::connect(&*addresses).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

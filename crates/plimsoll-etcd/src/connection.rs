//! One connection: TCP, TLS and HTTP/2 with one endpoint.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll::stream::Stream;
use plimsoll::tls::{TlsConfig, chain};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::client::Grpc;

/// Time without a byte after which a ping is sent. etcd ends connections with more pings than one in
/// 5 s (`--grpc-keepalive-min-time`).
const PING_INTERVAL: Duration = Duration::from_secs(6);
/// Time for its answer.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest message: a page of a list, or the events of one transaction.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The place of its endpoint in the list.
    pub(crate) place: usize,
    sender: SendRequest<Body>,
    origin: Uri,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Connects with `endpoint`, in plain text without `tls`.
    pub(crate) async fn open(place: usize, endpoint: &Authority, tls: Option<&TlsConfig>) -> Result<Arc<Self>, String> {
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
            .keep_alive_while_idle(true);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        let origin = Uri::builder().scheme(scheme).authority(endpoint.clone()).path_and_query("/").build();
        let origin = origin.map_err(|error| error.to_string())?;
        Ok(Arc::new(Self { place, sender, origin, driver }))
    }

    /// Whether requests can be sent on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.driver.is_finished() && !self.sender.is_closed()
    }

    /// A client of gRPC on it.
    pub(crate) fn grpc(&self) -> Grpc<Channel> {
        Grpc::with_origin(Channel(self.sender.clone()), self.origin.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
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

async fn connect(endpoint: &Authority) -> std::io::Result<TcpStream> {
    let host = endpoint.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((host, endpoint.port_u16().unwrap_or(DEFAULT_PORT))).await?.collect();
    let tcp = TcpStream::connect(&*addresses).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// The port of etcd for clients.
const DEFAULT_PORT: u16 = 2379;

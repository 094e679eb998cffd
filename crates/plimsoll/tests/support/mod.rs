//! Servers to send requests to, on loopback, and waiting for conditions.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::address::Address;
use plimsoll::client::{Cluster, ClusterConfig};
use plimsoll_core::LoadReport;
use plimsoll_core::health::State;
use plimsoll_core::pick::PolicyKind;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

pub type Body = BoxBody<Bytes, Infallible>;
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

/// The protocol of a server.
#[derive(Clone, Copy)]
pub enum Speaks {
    Http1,
    /// With this limit of concurrent streams.
    Http2(u32),
}

/// A server on a port of its own.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Server {
    pub async fn start(speaks: Speaks, handler: impl Fn(Request<Incoming>) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), speaks, handler).await
    }

    pub async fn start_at(
        address: SocketAddr,
        speaks: Speaks,
        handler: impl Fn(Request<Incoming>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let [connections, open, requests] = counts.clone();
        let (stop, stopped) = oneshot::channel();
        let handler: Handler = Arc::new(handler);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = accept(listener, speaks, handler, counts) => {}
                _ = stopped => {}
            }
        });
        Self { address, connections, open, requests, task, stop: Some(stop) }
    }

    /// Answers every request with 200 and nothing else.
    pub async fn plain() -> Self {
        Self::start(Speaks::Http1, |_| text("ok")).await
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Ends it as the end of its process would: the listener is closed, then all connections.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, speaks: Speaks, handler: Handler, counts: [Arc<AtomicUsize>; 3]) {
    let mut tasks = JoinSet::new();
    let [connections, open, requests] = counts;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.fetch_add(1, Ordering::SeqCst);
        open.fetch_add(1, Ordering::SeqCst);
        let (handler, requests, open) = (handler.clone(), requests.clone(), open.clone());
        let service = service_fn(move |request| {
            requests.fetch_add(1, Ordering::SeqCst);
            let answer = handler(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        tasks.spawn(async move {
            let io = TokioIo::new(stream);
            let _ = match speaks {
                Speaks::Http1 => http1::Builder::new().serve_connection(io, service).await,
                Speaks::Http2(streams) => {
                    let mut builder = http2::Builder::new(TokioExecutor::new());
                    builder.max_concurrent_streams(streams).serve_connection(io, service).await
                }
            };
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// An answer that is there at once.
pub fn now(response: Response<Body>) -> Answer {
    Box::pin(std::future::ready(response))
}

/// 200 with this text.
pub fn text(text: &'static str) -> Answer {
    now(Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed()))
}

/// An answer without a body.
pub fn status(code: u16) -> Answer {
    now(Response::builder().status(code).body(Empty::new().boxed()).unwrap())
}

/// 200 with a load report in its head.
pub fn reporting(report: LoadReport) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from_static(b"ok")).boxed());
    response.headers_mut().extend(report_headers(report));
    now(response)
}

/// Headers or trailers with a load report.
pub fn report_headers(report: LoadReport) -> HeaderMap {
    let mut text = format!(
        "TEXT application_utilization={},cpu_utilization={},rps_fractional={},eps={}",
        report.application_utilization, report.cpu_utilization, report.qps, report.eps
    );
    if report.lame_duck {
        text.push_str(",named_metrics.plimsoll.lame_duck=1");
    }
    HeaderMap::from_iter([(plimsoll_wire::headers::ENDPOINT_LOAD_METRICS, text.parse().unwrap())])
}

/// A gRPC answer: `message` framed, then `trailers`.
pub fn grpc(message: Bytes, trailers: HeaderMap) -> Answer {
    let frames = [Frame::data(message), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    let mut response = Response::new(BoxBody::new(StreamBody::new(futures_util::stream::iter(frames))));
    response.headers_mut().insert(http::header::CONTENT_TYPE, "application/grpc".parse().unwrap());
    now(response)
}

/// A body with frames from the test.
pub fn by_hand() -> (tokio::sync::mpsc::UnboundedSender<Bytes>, Body) {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let frames = futures_util::stream::poll_fn(move |cx| {
        receive.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))))
    });
    (send, BoxBody::new(StreamBody::new(frames)))
}

/// Round robin without slow start, no active checks: the backend of each request is exactly known.
pub fn plain_config() -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.balancer.policy = PolicyKind::RoundRobin;
    config.balancer.slow_start.window = Duration::ZERO;
    config.requests.request_timeout = Duration::from_secs(20);
    config
}

/// A cluster with a running task and healthy backends.
pub async fn running(config: ClusterConfig, servers: &[&Server]) -> Cluster {
    let cluster = Cluster::new("test", config, servers.iter().map(|server| server.address));
    tokio::spawn(cluster.run());
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    cluster
}

pub fn state_of(cluster: &Cluster, address: impl Into<Address>) -> State {
    view_of(cluster, address).snapshot.state
}

pub fn view_of(cluster: &Cluster, address: impl Into<Address>) -> plimsoll::client::BackendView {
    let address = address.into();
    cluster.backends().into_iter().find(|view| view.backend.address() == address).expect("is a member")
}

pub fn active(cluster: &Cluster) -> u32 {
    cluster.backends().iter().map(|view| view.snapshot.active).sum()
}

pub fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

/// Waits until `condition` holds; the test fails if that takes ten seconds.
pub async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("the condition comes to hold");
}

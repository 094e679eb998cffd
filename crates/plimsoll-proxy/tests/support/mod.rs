//! A proxy in this process, backends behind it and clients before it, all on loopback.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_core::health::State;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub type Body = BoxBody<Bytes, BoxError>;
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A backend on a port of its own, HTTP/1 and HTTP/2.
pub struct Backend {
    pub address: SocketAddr,
    /// Requests whose body came to its end.
    complete: Arc<AtomicUsize>,
    /// Requests whose body broke off.
    broken: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Backend {
    /// Answers by `handler`.
    pub async fn start<F>(handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::with(move |request, _, _| Box::pin(handler(request))).await
    }

    /// Reads each request to its end, and answers with what it was: the request line, then a line per field.
    pub async fn echo() -> Self {
        Self::with(|request, complete, broken| {
            Box::pin(async move {
                let (head, body) = request.into_parts();
                let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
                for (name, value) in &head.headers {
                    text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
                }
                match body.collect().await {
                    Ok(body) => {
                        complete.fetch_add(1, Ordering::SeqCst);
                        for (name, value) in body.trailers().into_iter().flatten() {
                            text.push_str(&format!("trailer {name}: {}\n", value.to_str().unwrap()));
                        }
                        text.push_str(&format!("body {}\n", body.to_bytes().len()));
                    }
                    Err(_) => {
                        broken.fetch_add(1, Ordering::SeqCst);
                    }
                }
                Response::new(full(text))
            })
        })
        .await
    }

    async fn with(
        handler: impl Fn(Request<Incoming>, Arc<AtomicUsize>, Arc<AtomicUsize>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = [(); 4].map(|()| Arc::new(AtomicUsize::new(0)));
        let [complete, broken, requests, connections] = counts.clone();
        let handler = Arc::new(handler);
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            let [complete, broken, requests, connections] = counts;
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (handler, complete, broken, requests) =
                    (handler.clone(), complete.clone(), broken.clone(), requests.clone());
                let service = service_fn(move |request| {
                    requests.fetch_add(1, Ordering::SeqCst);
                    // On a task of its own: what becomes of the request's body is seen though nobody waits for the answer.
                    let answer = tokio::spawn(handler(request, complete.clone(), broken.clone()));
                    async move { Ok::<_, Infallible>(answer.await.unwrap()) }
                });
                tasks.spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, complete, broken, requests, connections, task }
    }

    pub fn complete(&self) -> usize {
        self.complete.load(Ordering::SeqCst)
    }

    pub fn broken(&self) -> usize {
        self.broken.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body that is all there.
pub fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// A body whose frames are sent by hand; it breaks off at an error.
pub struct ByHand(mpsc::UnboundedReceiver<Result<Frame<Bytes>, BoxError>>);

pub type Hand = mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;

pub fn by_hand() -> (Hand, ByHand) {
    let (send, receive) = mpsc::unbounded_channel();
    (send, ByHand(receive))
}

pub fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

pub fn trailers(name: &'static str, value: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::trailers(HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])))
}

impl http_body::Body for ByHand {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx)
    }
}

/// The text of a config with one listener and one cluster.
pub fn config(backend: SocketAddr, listener: &str, cluster: &str) -> String {
    format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n{listener}\n[[routes]]\ncluster = \
         \"c\"\n[clusters.c]\nbackends = [\"{backend}\"]\n{cluster}\n"
    )
}

pub fn parse(text: &str) -> Config {
    Config::parse("test", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A proxy whose backends are healthy.
pub async fn start(text: &str) -> Arc<Proxy> {
    let proxy = Arc::new(Proxy::start(parse(text)).await.unwrap());
    until(|| {
        let backends = proxy.clusters().into_iter().flat_map(|cluster| cluster.backends());
        backends.into_iter().all(|view| view.snapshot.state == State::Healthy)
    })
    .await;
    proxy
}

pub fn address_of(proxy: &Proxy, name: &str) -> SocketAddr {
    proxy
        .listeners()
        .into_iter()
        .find(|listener| listener.name == name)
        .expect("is there")
        .address
        .inet()
        .expect("has a port")
}

/// Requests that the proxy has at its backends.
pub fn active(proxy: &Proxy) -> u32 {
    proxy.clusters().iter().flat_map(|cluster| cluster.backends()).map(|view| view.snapshot.active).sum()
}

/// Waits until `condition` holds.
pub async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// `future`, which must not take long.
#[track_caller]
pub fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("waited too long at {caller}"),
        }
    }
}

/// An HTTP/1 client that says what it is told to.
pub struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// What came back: the head in lower case, the body, and what stood after its last chunk.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub trailers: String,
}

impl Raw {
    pub async fn to(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), unread: Vec::new() }
    }

    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends as far as the peer takes it.
    pub async fn send_if_wanted(&mut self, text: &[u8]) {
        let _ = self.stream.write_all(text).await;
    }

    /// Some more bytes; `false` at the end of the connection, whichever it is.
    async fn more(&mut self) -> bool {
        matches!(soon(self.stream.read_buf(&mut self.unread)).await, Ok(read) if read > 0)
    }

    pub async fn up_to(&mut self, mark: &str) -> String {
        loop {
            if let Some(at) = self.unread.windows(mark.len()).position(|window| window == mark.as_bytes()) {
                let rest = self.unread.split_off(at + mark.len());
                return String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap();
            }
            assert!(self.more().await, "ended after {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    pub async fn head(&mut self) -> String {
        self.up_to("\r\n\r\n").await.to_lowercase()
    }

    /// Reads a whole answer to a request with this method.
    pub async fn answer_to(&mut self, method: &str) -> Answered {
        let head = self.head().await;
        let status = head[9..12].parse().unwrap();
        let (mut body, mut trailers) = (String::new(), String::new());
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        if method == "HEAD" || matches!(status, 204 | 304) {
        } else if head.contains("transfer-encoding: chunked") {
            loop {
                let size = self.up_to("\r\n").await;
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                if size == 0 {
                    break;
                }
                body.push_str(&self.exactly(size).await);
                self.exactly(2).await;
            }
            loop {
                let line = self.up_to("\r\n").await;
                if line == "\r\n" {
                    break;
                }
                trailers.push_str(&line.to_lowercase());
            }
        } else if let Some(length) = length {
            body = self.exactly(length.parse().unwrap()).await;
        } else {
            body = self.rest().await;
        }
        Answered { status, head, body, trailers }
    }

    /// Sends `request` and reads the answer.
    pub async fn ask(&mut self, request: &str) -> Answered {
        self.send(request).await;
        self.answer_to(request.split(' ').next().unwrap()).await
    }

    async fn exactly(&mut self, length: usize) -> String {
        while self.unread.len() < length {
            assert!(self.more().await, "ended after {:?}", String::from_utf8_lossy(&self.unread));
        }
        let rest = self.unread.split_off(length);
        String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap()
    }

    /// Waits until the connection ends, which must be by a reset.
    pub async fn reset(mut self) {
        loop {
            match self.stream.read_buf(&mut self.unread).await {
                Ok(0) => panic!("it ended as if all were well"),
                Ok(_) => {}
                Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
    }

    /// All that comes until the connection ends.
    pub async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8(std::mem::take(&mut self.unread)).unwrap()
    }
}

/// An HTTP/2 connection, and the task that ends with it.
pub async fn http2<B>(address: SocketAddr) -> (http2::SendRequest<B>, JoinHandle<()>)
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    // What comes for a response that was given up is the client's own doing; by default its library ends the connection
    // when there was much of it.
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_reset_streams(10_000).max_local_error_reset_streams(None);
    let (send, connection) = builder.handshake(io).await.unwrap();
    let ended = tokio::spawn(async move {
        let _ = connection.await;
    });
    (send, ended)
}

/// The next data of a body as text; `None` at its end.
pub async fn next_data(body: &mut Incoming) -> Option<String> {
    let frame = soon(body.frame()).await?.unwrap();
    Some(String::from_utf8(frame.into_data().expect("is data").to_vec()).unwrap())
}

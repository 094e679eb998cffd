//! Allocations of the proxy per request, counted where they happen.
//!
//! The proxy, a client and a backend run in this process, each on threads of their own, under an allocator that counts.
//! The threads of the client and the backend say that they do not count, so what is left is the proxy's. Why not from
//! outside: the release binary has its allocator linked in, so no tool can stand between, and a tool that stops it at
//! each call of a symbol breaks when that is inlined. Which allocator serves makes no difference to how often it is asked.
//!
//! One request at a time on one connection, after many that opened and warmed all there is.
//!
//! ```text
//! cargo bench -p plimsoll-proxy --bench allocations                a table
//! cargo bench -p plimsoll-proxy --bench allocations -- --json      a JSON array
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::config::Config;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Before the count begins: past all that happens once, such as buffers that grow.
const WARM_UP: u64 = 2_000;
/// Enough that the timers of a second or two of running weigh nothing.
const REQUESTS: u64 = 20_000;
/// As in the comparison of proxies: small, so that the heads are what counts.
const BODY: &str = "the quick brown fox jumps over it\n";

/// What is spoken on either side of the proxy.
const SHAPES: [Shape; 3] = [
    Shape { name: "HTTP/1.1 to HTTP/1.1", client: Version::HTTP_11, backends: "http1" },
    Shape { name: "HTTP/2 to HTTP/1.1", client: Version::HTTP_2, backends: "http1" },
    Shape { name: "HTTP/2 to HTTP/2", client: Version::HTTP_2, backends: "http2" },
];

struct Shape {
    name: &'static str,
    client: Version,
    backends: &'static str,
}

thread_local! {
    /// Whether this thread is part of what surrounds the proxy.
    static OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

fn count(bytes: usize) {
    if !OUTSIDE.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: hands everything on to the system's allocator; the count has no bearing on memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct Row {
    name: &'static str,
    allocations_per_request: f64,
    bytes_per_request: f64,
}

fn main() {
    let rows: Vec<Row> = SHAPES.iter().map(measure).collect();
    if std::env::args().any(|argument| argument == "--json") {
        let objects: Vec<String> = rows
            .iter()
            .map(|row| {
                format!(
                    r#"{{"name": "{}", "allocations_per_request": {:.3}, "bytes_per_request": {:.1}}}"#,
                    row.name, row.allocations_per_request, row.bytes_per_request
                )
            })
            .collect();
        println!("[{}]", objects.join(", "));
        return;
    }
    println!("{:<24}{:>16}{:>16}", "per request", "allocations", "bytes");
    for row in rows {
        println!("{:<24}{:>16.2}{:>16.0}", row.name, row.allocations_per_request, row.bytes_per_request);
    }
}

fn measure(shape: &Shape) -> Row {
    let backend = start_backend();
    // On this thread lives what the proxy does outside its workers: checks of backends, the sockets.
    let (result_to, result) = oneshot::channel();
    let version = shape.client;
    runtime().block_on(async {
        let proxy = Proxy::start(config(backend, shape.backends)).await.expect("loopback has a free port");
        let address = proxy.listeners()[0].address.inet().expect("has a port");
        let client = thread::spawn(move || {
            OUTSIDE.set(true);
            result_to.send(runtime().block_on(run_client(address, version))).expect("the proxy's thread waits for it");
        });
        let (allocations, bytes) = result.await.expect("the client ends with a result");
        client.join().expect("the client has ended");
        Row {
            name: shape.name,
            allocations_per_request: allocations as f64 / REQUESTS as f64,
            bytes_per_request: bytes as f64 / REQUESTS as f64,
        }
    })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime needs no more than an epoll")
}

fn config(backend: SocketAddr, protocol: &str) -> Config {
    let text = format!(
        r#"
        threads = 1
        [admin]
        listen = "off"
        [[listeners]]
        address = "127.0.0.1:0"
        [[routes]]
        cluster = "backends"
        [clusters.backends]
        protocol = "{protocol}"
        backends = ["{backend}"]
        "#
    );
    Config::parse("bench", &text).expect("the text above is a valid config")
}

/// A server of HTTP/1 and HTTP/2 that answers all with `BODY`, for as long as the process lives.
fn start_backend() -> SocketAddr {
    let (address_to, address) = mpsc::channel();
    thread::spawn(move || {
        OUTSIDE.set(true);
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
            address_to.send(listener.local_addr().expect("it is bound")).expect("the other thread waits for it");
            loop {
                let (stream, _) = listener.accept().await.expect("a handful of connections");
                stream.set_nodelay(true).expect("it is a TCP socket");
                let answer = service_fn(|_| async {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(BODY.as_bytes()))))
                });
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A connection ends with the proxy; how does not matter.
                    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
    });
    address.recv().expect("the backend starts")
}

/// Allocations and bytes of `REQUESTS` requests.
async fn run_client(proxy: SocketAddr, version: Version) -> (u64, u64) {
    let stream = TcpStream::connect(proxy).await.expect("the proxy listens");
    stream.set_nodelay(true).expect("it is a TCP socket");
    let mut sender = Sender::open(stream, version).await;
    for _ in 0..WARM_UP {
        sender.request().await;
    }
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    for _ in 0..REQUESTS {
        sender.request().await;
    }
    (ALLOCATIONS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    async fn open(stream: TcpStream, version: Version) -> Self {
        let io = TokioIo::new(stream);
        if version == Version::HTTP_2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.expect("the proxy speaks HTTP/2");
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.expect("the proxy speaks HTTP/1");
            tokio::spawn(connection);
            Self::Http1(sender)
        }
    }

    async fn request(&mut self) {
        let response = match self {
            Self::Http1(sender) => {
                let request = Request::get("/").header("host", "localhost").body(Empty::new());
                sender.ready().await.expect("the connection is kept");
                sender.send_request(request.expect("a valid request")).await
            }
            Self::Http2(sender) => {
                let request = Request::get("http://localhost/").body(Empty::new());
                sender.ready().await.expect("the connection is kept");
                sender.send_request(request.expect("a valid request")).await
            }
        };
        let response = response.expect("the proxy answers");
        assert_eq!(response.status(), http::StatusCode::OK, "a refusal costs other allocations than an answer");
        let body = response.into_body().collect().await.expect("the body comes to its end").to_bytes();
        assert_eq!(body, BODY, "the backend's answer");
    }
}

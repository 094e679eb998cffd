//! The allocations of a request, on the thread that sends it.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty};
use plimsoll::Body;
use plimsoll::client::{Client, Cluster, RequestBody};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;

use support::plain_config;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The two halves of the response's map, and its body. The buffer for reading is there already.
const PER_REQUEST: u64 = 3;

/// For allocations that happen now and then.
const SOME: u64 = 100;

/// The address of a server that answers each request. It has threads of its own, so that its
/// allocations are not counted here.
fn server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-length: 5\r\n\r\nhello";
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
    address
}

const REQUESTS: u64 = 1000;

/// Allocations of a thousand requests with such a body.
async fn allocations<B: RequestBody>(body: impl Fn() -> B) -> u64 {
    let cluster = Cluster::new("test", plain_config(), [server()]);
    tokio::spawn(cluster.run());
    let client = Client::<B>::new(&cluster);
    let mut counted = 0;
    for sent in 0..REQUESTS + 50 {
        let request = Request::get("/some/path").header("host", "h").body(body()).unwrap();
        let before = ALLOCATIONS.get();
        let mut response = client.send(request).await.unwrap();
        assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
        assert!(response.body().is_end_stream());
        drop(response);
        if sent >= 50 {
            counted += ALLOCATIONS.get() - before;
        }
    }
    counted
}

fn assert_few(counted: u64, case: &str) {
    let each = counted as f64 / REQUESTS as f64;
    assert!(counted <= PER_REQUEST * REQUESTS + SOME, "{case}: {each} per request");
}

#[tokio::test]
async fn a_request_without_a_body_makes_few_allocations() {
    assert_few(allocations(Empty::<Bytes>::new).await, "an empty body");
    assert_few(allocations(Body::empty).await, "the body of any type");
}

/// The spans of attempts are free while no subscriber wants them.
#[tokio::test]
async fn spans_cost_no_allocation_when_they_are_off() {
    let off = allocations(Body::empty).await;
    let at_info = tracing_subscriber::registry().with(LevelFilter::INFO);
    let without_spans = tracing_subscriber::registry().with(EnvFilter::new("debug,plimsoll::trace=off"));
    let guard = tracing::subscriber::set_default(at_info);
    assert_few(allocations(Body::empty).await, "a subscriber at the level info");
    drop(guard);
    let guard = tracing::subscriber::set_default(without_spans);
    assert_few(allocations(Body::empty).await, "a subscriber without the target of spans");
    drop(guard);
    // The measurement does see a span.
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry());
    let on = allocations(Body::empty).await;
    drop(guard);
    assert!(on > off + REQUESTS, "{on} with spans, {off} without");
}

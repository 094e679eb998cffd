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
use plimsoll::client::{Client, Cluster};

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

#[tokio::test]
async fn a_request_without_a_body_makes_few_allocations() {
    const REQUESTS: u64 = 1000;
    // The server has a thread of its own, so that its allocations are not counted here.
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
    let cluster = Cluster::new("test", plain_config(), [address]);
    tokio::spawn(cluster.run());
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let mut counted = 0;
    for sent in 0..REQUESTS + 50 {
        let request = Request::get("/some/path").header("host", "h").body(Empty::new()).unwrap();
        let before = ALLOCATIONS.get();
        let mut response = client.send(request).await.unwrap();
        assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
        assert!(response.body().is_end_stream());
        drop(response);
        if sent >= 50 {
            counted += ALLOCATIONS.get() - before;
        }
    }
    assert!(counted <= PER_REQUEST * REQUESTS + SOME, "{} per request", counted as f64 / REQUESTS as f64);
}

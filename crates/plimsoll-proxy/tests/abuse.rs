//! Clients that abuse HTTP/2, and a process short of memory: who is let go, and that others are served meanwhile.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use plimsoll_proxy::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use support::{Backend, Raw, address_of, config, full, http2, soon, start, until};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `GET / HTTP/2` of `x`, in HPACK: three entries of the static table, and one literal.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'x'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// An HTTP/2 client that says what it is told to.
struct Attacker {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A frame that came back.
#[derive(Debug, PartialEq)]
struct Came {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Attacker {
    async fn to(address: SocketAddr, settings: &[u8]) -> Self {
        let mut attacker = Self { stream: TcpStream::connect(address).await.unwrap(), unread: Vec::new() };
        attacker.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        attacker.send(&frame(SETTINGS, 0, 0, settings)).await;
        attacker
    }

    /// Sends as far as the peer takes it.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next frame; `None` at the end of the connection, whichever it is.
    async fn next(&mut self) -> Option<Came> {
        loop {
            if let Some((&[a, b, c, kind, flags, s0, s1, s2, s3], rest)) = self.unread.split_first_chunk::<9>() {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if rest.len() >= length {
                    let payload = rest[..length].to_vec();
                    self.unread.drain(..9 + length);
                    return Some(Came { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload });
                }
            }
            match soon(self.stream.read_buf(&mut self.unread)).await {
                Ok(read) if read > 0 => {}
                _ => return None,
            }
        }
    }

    /// Waits until all that was sent has been looked at; `false` when the connection ended instead.
    async fn is_heard(&mut self) -> bool {
        self.send(&frame(PING, 0, 0, b"heard it")).await;
        while let Some(came) = self.next().await {
            match came {
                Came { kind: PING, flags: ACK, .. } => return true,
                Came { kind: GOAWAY, .. } => return false,
                _ => {}
            }
        }
        false
    }

    /// The code of the last GOAWAY before the connection ended.
    async fn farewell(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(came) = self.next().await {
            if came.kind == GOAWAY {
                code = came.payload[4..8].try_into().ok().map(u32::from_be_bytes);
            }
        }
        code
    }
}

async fn serving(listener: &str) -> (Backend, Arc<Proxy>) {
    let backend = Backend::start(|request| async move {
        let length = request.uri().path().trim_matches('/').parse().unwrap_or(2);
        Response::new(full(vec![b'.'; length]))
    })
    .await;
    let proxy = start(&config(backend.address, listener, "")).await;
    (backend, proxy)
}

/// How many connections the proxy ended for `reason`.
fn ended(proxy: &Proxy, reason: &str) -> u64 {
    let listeners = proxy.listeners();
    let counts = listeners.iter().flat_map(|listener| listener.ended.iter());
    counts.filter(|(name, _)| *name == reason).map(|(_, count)| count).sum()
}

/// Requests of an ordinary client are answered.
async fn serves(address: SocketAddr) {
    let answered = Raw::to(address).await.ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answered.status, &*answered.body), (200, ".."));
}

#[tokio::test]
async fn requests_taken_back_at_once_end_the_connection_and_no_other() {
    let (backend, proxy) = serving("").await;
    let address = address_of(&proxy, "main");
    let begun = Instant::now();
    let mut attacker = Attacker::to(address, &[]).await;
    let mut rounds = 0;
    for first in (1..).step_by(100) {
        let pair =
            |stream| [frame(HEADERS, END_HEADERS | END_STREAM, stream, GET), frame(RESET, 0, stream, &[0, 0, 0, 8])];
        let burst: Vec<u8> = (first..first + 100).step_by(2).flat_map(pair).flatten().collect();
        attacker.send(&burst).await;
        rounds += 50;
        if !attacker.is_heard().await {
            break;
        }
        assert!(rounds < 5_000, "never ended");
    }
    // A round costs two; `max_resets_per_second` come while it goes on.
    let further = (begun.elapsed().as_secs_f64() * 20.0 / 2.0) as u32;
    assert!((129..=300 + further).contains(&rounds), "{rounds}, {further} of them by the time it took");
    // From the ninth on they are looked at twice before they are begun.
    assert!(backend.requests() < 50, "{}", backend.requests());
    assert_eq!(ended(&proxy, "resets"), 1);
    serves(address).await;
}

#[tokio::test]
async fn floods_of_control_frames_end_the_connection_with_the_reason() {
    let (_backend, proxy) = serving("").await;
    let address = address_of(&proxy, "main");
    let floods =
        [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[]), frame(0xee, 0, 0, b"grease"), frame(2, 0, 1, &[0; 5])];
    for (i, flood) in floods.into_iter().enumerate() {
        let mut attacker = Attacker::to(address, &[]).await;
        assert!(attacker.is_heard().await);
        // No more than is looked at in one go, or bytes that nobody read reset the connection, farewell and all.
        for _ in 0..2_000 / 50 {
            attacker.send(&flood.repeat(50)).await;
            if !attacker.is_heard().await {
                break;
            }
        }
        attacker.farewell().await;
        assert_eq!(ended(&proxy, "control-frames"), i as u64 + 1);
        serves(address).await;
    }
}

#[tokio::test]
async fn the_farewell_says_enhance_your_calm() {
    let (_backend, proxy) = serving("http2.max_control_frames_per_second = 1").await;
    let mut attacker = Attacker::to(address_of(&proxy, "main"), &[]).await;
    attacker.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20)).await;
    assert_eq!(attacker.farewell().await, Some(11));
    assert_eq!(ended(&proxy, "control-frames"), 1);
}

#[tokio::test]
async fn continuations_without_end_end_the_connection() {
    let (_backend, proxy) = serving("").await;
    let address = address_of(&proxy, "main");
    let mut attacker = Attacker::to(address, &[]).await;
    attacker.send(&frame(HEADERS, END_STREAM, 1, GET)).await;
    attacker.send(&frame(CONTINUATION, 0, 1, &[]).repeat(200)).await;
    attacker.farewell().await;
    // It is counted when the last byte has gone.
    until(|| ended(&proxy, "protocol") == 1).await;
    serves(address).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_ends_the_connection() {
    let (_backend, proxy) = serving("header_read_timeout = \"100ms\"").await;
    let mut attacker = Attacker::to(address_of(&proxy, "main"), &[]).await;
    attacker.send(&frame(HEADERS, END_STREAM, 1, GET)).await;
    attacker.farewell().await;
    assert_eq!(ended(&proxy, "slow-head"), 1);
}

/// Settings by which no response may send a byte of its body.
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

#[tokio::test]
async fn a_response_that_the_client_does_not_take_loses_its_stream_and_others_go_on() {
    let (backend, proxy) = serving("idle_timeout = \"200ms\"").await;
    let mut attacker = Attacker::to(address_of(&proxy, "main"), NO_WINDOW).await;
    attacker.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    let mut was_reset = false;
    for stream in (3_u32..).step_by(2) {
        // One that flows, so that not all of the connection stands still.
        attacker.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET)).await;
        attacker.send(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 1, 0])).await;
        loop {
            let came = attacker.next().await.expect("the connection goes on");
            assert_ne!(came.kind, GOAWAY, "{came:?}");
            was_reset |= came.kind == RESET && came.stream == 1;
            if came.stream == stream && came.kind == DATA && came.flags & END_STREAM != 0 {
                break;
            }
        }
        if was_reset {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(proxy.listeners()[0].stalled_streams, 1);
    assert_eq!(ended(&proxy, "stall"), 0);
    until(|| backend.requests() >= 2 && support::active(&proxy) == 0).await;
}

#[tokio::test]
async fn responses_that_are_handed_over_and_not_taken_end_the_connection() {
    let (_backend, proxy) = serving("idle_timeout = \"200ms\"").await;
    // Room for one byte: the rest of the two lies in the proxy's buffers when the body is done.
    let mut attacker = Attacker::to(address_of(&proxy, "main"), &[0, 4, 0, 0, 0, 1]).await;
    attacker.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)).await;
    // A request now and then, so that the connection is not idle, which wants nothing but a head.
    let begun = std::time::Instant::now();
    for stream in (3_u32..).step_by(2) {
        attacker
            .send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x82, 0x86, 0x44, 2, b'/', b'0', 0x41, 1, b'x']))
            .await;
        if !attacker.is_heard().await {
            break;
        }
        assert!(begun.elapsed() < support::PATIENCE, "never ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ended(&proxy, "stall"), 1);
}

#[tokio::test]
async fn a_busy_client_is_never_taken_for_an_attacker() {
    let (_backend, proxy) = serving("").await;
    let (sender, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let mut tasks = tokio::task::JoinSet::new();
    // Fewer resets in all than the client's own library puts up with on one connection.
    for task in 0..40 {
        let mut sender = sender.clone();
        tasks.spawn(async move {
            for i in 0..40 {
                let request = Request::get(format!("http://x/{}", 1 << (i % 18))).body(Empty::new()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                // Each other answer is not waited for.
                if (task + i) % 2 == 0 {
                    response.into_body().collect().await.unwrap();
                }
            }
        });
    }
    while let Some(result) = soon(tasks.join_next()).await {
        result.unwrap();
    }
    let listener = proxy.listeners().remove(0);
    assert!(listener.ended.iter().all(|(_, count)| *count == 0), "{:?}", listener.ended);
}

/// Bytes of memory that this process has.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

#[tokio::test]
async fn a_proxy_short_of_memory_refuses_what_is_new_and_comes_back() {
    let backend = Backend::echo().await;
    let most = resident_bytes() + (128 << 20);
    let text = format!("max_memory = \"{most}B\"\n{}", config(backend.address, "", ""));
    let proxy = start(&text).await;
    let address = address_of(&proxy, "main");
    let get = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut client = Raw::to(address).await;
    assert_eq!(client.ask(get).await.status, 200);

    let hog = vec![1_u8; 140 << 20];
    until(|| proxy.pressure().level == 2).await;
    let refused = client.ask(get).await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: 1\r\n") && refused.body.starts_with("memory: "), "{refused:?}");
    let mut late = Raw::to(address).await;
    late.send_if_wanted(get.as_bytes()).await;
    assert_eq!(late.rest().await, "");
    let listener = proxy.listeners().remove(0);
    assert!(
        listener.turned_away.contains(&("memory", 1)) && listener.refusals.contains(&("memory", 1)),
        "{listener:?}"
    );

    drop(hog);
    until(|| proxy.pressure().level == 0).await;
    assert_eq!(Raw::to(address).await.ask(get).await.status, 200);
}

#[tokio::test]
async fn idle_connections_are_closed_early_when_memory_is_short() {
    let backend = Backend::echo().await;
    let most = resident_bytes() + (128 << 20);
    let listener = "idle_timeout = \"10s\"\nheader_read_timeout = \"200ms\"";
    let text = format!("max_memory = \"{most}B\"\n{}", config(backend.address, listener, ""));
    let proxy = start(&text).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.status, 200);
    let hog = vec![1_u8; (most - resident_bytes()) * 9 / 10];
    let begun = std::time::Instant::now();
    assert_eq!(client.rest().await, "");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(hog);
}

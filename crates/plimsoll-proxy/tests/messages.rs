//! What of a message passes through the proxy, and in which form.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// How much of a body is read before a backend is asked for.
const FIRST_PART: usize = 16 * 1024;

async fn before_echo(listener: &str, cluster: &str) -> (Backend, Arc<plimsoll_proxy::Proxy>) {
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, listener, cluster)).await;
    (backend, proxy)
}

#[tokio::test]
async fn backend_sees_the_host_that_the_request_was_routed_by() {
    let (_backend, proxy) = before_echo("", "").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let answer = client.ask("GET http://a.example/x?y HTTP/1.1\r\nhost: b.example\r\n\r\n").await;
    assert!(answer.body.starts_with("GET /x?y HTTP/1.1\n"), "{}", answer.body);
    assert!(answer.body.contains("host: a.example\n") && !answer.body.contains("b.example"), "{}", answer.body);
}

#[tokio::test]
async fn http2_backend_sees_the_host_that_the_request_was_routed_by() {
    let (_backend, proxy) = before_echo("", "protocol = \"http2\"").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let answer = client.ask("GET http://a.example/x HTTP/1.1\r\nhost: b.example\r\n\r\n").await;
    assert!(answer.body.starts_with("GET http://a.example/x HTTP/2.0\n"), "{}", answer.body);
    assert!(!answer.body.contains("b.example"), "{}", answer.body);
}

#[tokio::test]
async fn length_that_is_said_twice_is_refused_on_http2_too() {
    let (backend, proxy) = before_echo("", "protocol = \"http2\"").await;
    let (mut client, _ended) = http2::<Full<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::post("http://a/").header("content-length", "4").header("content-length", "4");
    let answer = soon(client.send_request(request.body("some".into()).unwrap())).await.unwrap();
    assert_eq!((answer.status(), backend.requests()), (StatusCode::BAD_REQUEST, 0));
    assert!(proxy.listeners()[0].refusals.contains(&("content-length", 1)));
}

#[tokio::test]
async fn request_with_no_host_or_two_is_refused() {
    let (backend, proxy) = before_echo("", "").await;
    for fields in ["", "host: a\r\nhost: b\r\n"] {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        let answer = client.ask(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(backend.requests(), 0);
    assert!(proxy.listeners()[0].refusals.contains(&("host", 2)));
}

#[tokio::test]
async fn fields_of_the_connection_stay_on_it() {
    let (_backend, proxy) = before_echo("", "").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let answer = client
        .ask(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: te, x-mine\r\nupgrade: websocket\r\nte: gzip\r\nx-mine: \
             1\r\nkeep-alive: 5\r\nx-other: 2\r\n\r\n",
        )
        .await;
    assert_eq!(answer.status, 200);
    for gone in ["connection", "upgrade", "te:", "x-mine", "keep-alive"] {
        assert!(!answer.body.contains(gone), "{gone} in {}", answer.body);
    }
    assert!(answer.body.contains("x-other: 2\n"));
}

#[tokio::test]
async fn cookie_in_pieces_reaches_an_http1_backend_whole() {
    let (_backend, proxy) = before_echo("", "").await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::get("http://a/").header("cookie", "a=1").header("cookie", "b=2").body(Empty::new()).unwrap();
    let body = client.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("cookie: a=1; b=2\n"), "{body:?}");
}

#[tokio::test]
async fn old_client_gets_no_chunks_and_an_end_of_the_connection() {
    let backend = Backend::start(|_| async {
        let (hand, body) = by_hand();
        hand.send(data("some")).unwrap();
        Response::new(body.boxed())
    })
    .await;
    let proxy = start(&config(backend.address, "", "")).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let answer = client.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.head.starts_with("http/1.1 200") && !answer.head.contains("chunked"), "{}", answer.head);
    assert_eq!(answer.body, "some");
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let answer = client.ask("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
    assert!(!answer.head.contains("chunked"), "{}", answer.head);
    assert_eq!(answer.body, "some", "the end of the connection is that of the body");
}

#[tokio::test]
async fn old_client_may_keep_its_connection() {
    let (_backend, proxy) = before_echo("", "").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    for _ in 0..2 {
        let answer = client.ask("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
        assert!(answer.head.contains("connection: keep-alive"), "{}", answer.head);
        assert!(answer.body.starts_with("GET / HTTP/1.1\n"));
    }
}

#[tokio::test]
async fn connect_is_refused_on_both_protocols() {
    let (backend, proxy) = before_echo("", "").await;
    let mut one = Raw::to(address_of(&proxy, "main")).await;
    one.send("CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\n\r\n").await;
    assert!(one.head().await.starts_with("http/1.1 405"));
    let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::builder().method(Method::CONNECT).uri("a.example:443").body(Empty::new()).unwrap();
    assert_eq!(soon(two.send_request(request)).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn answers_without_a_body_keep_their_length_and_the_connection() {
    let backend = Backend::start(|request| async move {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        let body = if status == 200 { full("four") } else { Empty::new().map_err(|never| match never {}).boxed() };
        Response::builder().status(status).body(body).unwrap()
    })
    .await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        for (request, length) in [("HEAD /200", Some("4")), ("GET /304", None), ("GET /204", None)] {
            let answer = client.ask(&format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
            let said = answer.head.split("content-length: ").nth(1).map(|rest| &rest[..1]);
            assert_eq!(said, length, "{protocol} {request}: {}", answer.head);
            assert!(!answer.head.contains("transfer-encoding"), "{}", answer.head);
        }
        assert_eq!(client.ask("GET /200 HTTP/1.1\r\nhost: a\r\n\r\n").await.body, "four");
    }
}

#[tokio::test]
async fn trailers_of_responses_pass_between_all_protocols() {
    let backend = Backend::start(|_| async {
        let (hand, body) = by_hand();
        hand.send(data("some")).unwrap();
        hand.send(trailers("x-sum", "7")).unwrap();
        let response = Response::builder().header("trailer", "x-sum");
        response.body(body.boxed()).unwrap()
    })
    .await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let mut one = Raw::to(address_of(&proxy, "main")).await;
        let answer = one.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: te\r\nte: trailers\r\n\r\n").await;
        assert_eq!((answer.body.as_str(), answer.trailers.as_str()), ("some", "x-sum: 7\r\n"), "{protocol}");
        let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
        let request = Request::get("http://a/").header("te", "trailers").body(Empty::new()).unwrap();
        let whole = soon(two.send_request(request)).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-sum"], "7", "{protocol}");
    }
}

#[tokio::test]
async fn load_reports_are_read_and_go_no_further() {
    let backend = Backend::start(|_| async {
        let (hand, body) = by_hand();
        hand.send(data("some")).unwrap();
        hand.send(trailers("endpoint-load-metrics", "TEXT cpu_utilization=0.5,rps_fractional=10")).unwrap();
        Response::builder().header("endpoint-load-metrics-bin", "AAAA").body(body.boxed()).unwrap()
    })
    .await;
    let proxy = start(&config(backend.address, "", "protocol = \"http2\"")).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::get("http://a/").header("te", "trailers").body(Empty::new()).unwrap();
    let response = soon(client.send_request(request)).await.unwrap();
    assert!(!response.headers().contains_key("endpoint-load-metrics-bin"), "{:?}", response.headers());
    let whole = response.into_body().collect().await.unwrap();
    assert!(whole.trailers().is_none_or(|trailers| !trailers.contains_key("endpoint-load-metrics")));
    let counts = proxy.clusters()[0].backends()[0].counts;
    assert_eq!((counts.reports, counts.malformed_reports), (1, 1), "of trailers and head: {counts:?}");
}

#[tokio::test]
async fn keys_of_probes_go_no_further_either_way() {
    for protocol in ["http1", "http2"] {
        let backend = Backend::start(|request| async move {
            let is_seen = request.headers().contains_key("x-plimsoll-probe-key");
            let response = Response::builder().header("x-plimsoll-probe-key", "id=1, secret=\"00\"");
            response.body(full(format!("request has it: {is_seen}"))).unwrap()
        })
        .await;
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        let answer = client.ask("GET / HTTP/1.1\r\nhost: a\r\nX-Plimsoll-Probe-Key: seed=\"00\"\r\n\r\n").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "request has it: false"));
        assert!(!answer.head.to_ascii_lowercase().contains("probe-key"), "{}", answer.head);
        let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
        let request = Request::get("http://a/").header("x-plimsoll-probe-key", "seed=\"00\"");
        let response = soon(two.send_request(request.body(Empty::new()).unwrap())).await.unwrap();
        assert!(!response.headers().contains_key("x-plimsoll-probe-key"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "request has it: false");
    }
}

#[tokio::test]
async fn trailers_of_requests_pass_between_all_protocols() {
    let backend = Backend::echo().await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let mut one = Raw::to(address_of(&proxy, "main")).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = one.ask(&format!("{head}4\r\nsome\r\n0\r\nx-sum: 7\r\n\r\n")).await;
        assert!(answer.body.contains("trailer x-sum: 7\nbody 4\n"), "{protocol}: {}", answer.body);
        let (mut two, _ended) = http2::<ByHand>(address_of(&proxy, "main")).await;
        let (hand, body) = by_hand();
        hand.send(data("some")).unwrap();
        hand.send(trailers("x-sum", "7")).unwrap();
        drop(hand);
        let request = Request::post("http://a/").header("trailer", "x-sum").body(body).unwrap();
        let whole = soon(two.send_request(request)).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&whole).contains("trailer x-sum: 7\nbody 4\n"), "{protocol}: {whole:?}");
    }
}

#[tokio::test]
async fn body_without_a_length_that_grows_too_long_is_413() {
    for protocol in ["http1", "http2"] {
        let cluster = format!("protocol = \"{protocol}\"");
        let (backend, proxy) = before_echo("max_body = \"1KiB\"", &cluster).await;
        let mut one = Raw::to(address_of(&proxy, "main")).await;
        one.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n").await;
        let chunk = "x".repeat(1024);
        one.send(&format!("400\r\n{chunk}\r\n")).await;
        let answer = one.answer_to("POST").await;
        assert_eq!(answer.status, 413, "{protocol} {answer:?}");
        let (mut two, _ended) = http2::<ByHand>(address_of(&proxy, "main")).await;
        let (hand, body) = by_hand();
        hand.send(Ok(http_body::Frame::data(vec![0; 1025].into()))).unwrap();
        let answer = soon(two.send_request(Request::post("http://a/").body(body).unwrap())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE, "{protocol}");
        assert_eq!(backend.complete(), 0, "{protocol}");
        assert!(proxy.listeners()[0].refusals.contains(&("body-too-large", 2)));
    }
}

#[tokio::test]
async fn client_that_is_still_sending_reads_why_it_was_refused() {
    let (backend, proxy) = before_echo("max_body = \"1KiB\"", "").await;
    const LENGTH: usize = 4 << 20;
    for _ in 0..5 {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
        soon(client.send_if_wanted(&vec![b'x'; LENGTH])).await;
        assert_eq!(client.answer_to("POST").await.status, 413);
        // Its whole body was read, so that the connection is still good.
        assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.status, 200);
    }
    assert_eq!(backend.requests(), 5);
}

#[tokio::test]
async fn half_a_request_never_reaches_a_backend_as_a_whole_one() {
    for protocol in ["http1", "http2"] {
        let (backend, proxy) = before_echo("", &format!("protocol = \"{protocol}\"")).await;
        let mut sent = 0;
        // Of a body whose length is known the first part is waited for.
        let long = format!("content-length: {}\r\n\r\n{}", 2 * FIRST_PART, "x".repeat(FIRST_PART + 1));
        for framing in ["transfer-encoding: chunked\r\n\r\n4\r\nsome\r\n", &long] {
            let mut client = Raw::to(address_of(&proxy, "main")).await;
            client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}")).await;
            sent += 1;
            until(|| backend.requests() == sent).await;
            drop(client);
            until(|| backend.broken() == sent).await;
        }
        for reason in [Reason::CANCEL, Reason::NO_ERROR] {
            let stream = TcpStream::connect(address_of(&proxy, "main")).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            let driver = tokio::spawn(connection);
            let request = Request::post("http://a/").body(()).unwrap();
            let (_response, mut body) = client.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"some"), false).unwrap();
            sent += 1;
            until(|| backend.requests() == sent).await;
            body.send_reset(reason);
            until(|| backend.broken() == sent).await;
            driver.abort();
        }
        assert_eq!(backend.complete(), 0, "{protocol}");
    }
}

#[tokio::test]
async fn half_a_request_stays_half_when_its_answer_has_begun() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let backend = Backend::start(move |request| {
        let tell = tell.clone();
        let (hand, body) = by_hand();
        tokio::spawn(async move {
            tell.send(request.into_body().collect().await.is_ok()).unwrap();
            drop(hand);
        });
        async move { Response::new(body.boxed()) }
    })
    .await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        for reason in [Reason::CANCEL, Reason::NO_ERROR] {
            let stream = TcpStream::connect(address_of(&proxy, "main")).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            let driver = tokio::spawn(connection);
            let request = Request::post("http://a/").body(()).unwrap();
            let (response, mut body) = client.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"some"), false).unwrap();
            let _response = soon(response).await.unwrap();
            body.send_reset(reason);
            assert!(!soon(told.recv()).await.unwrap(), "{protocol} {reason:?}: it came as a whole one");
            driver.abort();
        }
    }
}

/// A backend that answers with half a response, and resets it when told that this half has come.
async fn resetting_backend(reason: Reason, content_type: &'static str) -> (SocketAddr, Arc<Notify>) {
    let came = Arc::new(Notify::new());
    let told = Arc::clone(&came);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let told = Arc::clone(&told);
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    let told = Arc::clone(&told);
                    tokio::spawn(async move {
                        let head = Response::builder().header("content-type", content_type).body(()).unwrap();
                        let mut body = respond.send_response(head, false).unwrap();
                        body.reserve_capacity(4);
                        body.send_data(Bytes::from_static(b"some"), false).unwrap();
                        // It would overtake what is not written yet.
                        told.notified().await;
                        body.send_reset(reason);
                    });
                }
            });
        }
    });
    (address, came)
}

#[tokio::test]
async fn half_a_response_never_reaches_a_client_as_a_whole_one() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let (backend, came) = resetting_backend(reason, "text/plain").await;
        let proxy = start(&config(backend, "", "protocol = \"http2\"")).await;
        let mut one = Raw::to(address_of(&proxy, "main")).await;
        one.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        one.up_to("some").await;
        came.notify_one();
        assert!(!one.rest().await.ends_with("0\r\n\r\n"), "{reason:?}");
        let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
        let request = Request::get("http://a/").body(Empty::new()).unwrap();
        let mut body = soon(two.send_request(request)).await.unwrap().into_body();
        assert_eq!(next_data(&mut body).await.as_deref(), Some("some"));
        came.notify_one();
        assert!(soon(body.collect()).await.is_err(), "{reason:?}");
        until(|| active(&proxy) == 0).await;
        let counts = proxy.cluster("c").unwrap().backends()[0].counts;
        assert_eq!((counts.broken + counts.cancelled, counts.responses[1]), (2, 0), "{reason:?}: each counts once");
    }
}

#[tokio::test]
async fn call_that_breaks_off_ends_with_a_code() {
    let (backend, came) = resetting_backend(Reason::CANCEL, "application/grpc").await;
    let proxy = start(&config(backend, "", "")).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::post("http://a/s/m").header("content-type", "application/grpc").body(Empty::new()).unwrap();
    let response = soon(client.send_request(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    assert_eq!(next_data(&mut body).await.as_deref(), Some("some"));
    came.notify_one();
    let rest = soon(body.collect()).await.unwrap();
    assert_eq!(rest.trailers().unwrap()["grpc-status"], "14");
}

#[tokio::test]
async fn both_directions_stream_at_once() {
    let backend =
        Backend::start(|request| async move { Response::new(request.into_body().map_err(Into::into).boxed()) });
    let backend = backend.await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let (mut client, _ended) = http2::<ByHand>(address_of(&proxy, "main")).await;
        let (hand, body) = by_hand();
        let response = soon(client.send_request(Request::post("http://a/").body(body).unwrap())).await.unwrap();
        let mut body = response.into_body();
        for text in ["one", "two", "three"] {
            hand.send(data(text)).unwrap();
            assert_eq!(next_data(&mut body).await.as_deref(), Some(text), "{protocol}");
        }
        drop(hand);
        assert!(soon(body.collect()).await.unwrap().to_bytes().is_empty(), "{protocol}");
        until(|| active(&proxy) == 0).await;
    }
}

#[tokio::test]
async fn answer_may_come_before_the_request_has_ended() {
    let backend = Backend::start(|_| async { Response::builder().status(401).body(full("who?")).unwrap() }).await;
    for protocol in ["http1", "http2"] {
        let proxy = start(&config(backend.address, "", &format!("protocol = \"{protocol}\""))).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        let half = "x".repeat(FIRST_PART + 1);
        client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{half}", 2 * half.len())).await;
        let answer = client.answer_to("POST").await;
        assert_eq!((answer.status, answer.body.as_str()), (401, "who?"), "{protocol}");
        until(|| active(&proxy) == 0).await;
    }
}

#[tokio::test]
async fn backend_is_not_asked_for_before_the_first_part_of_a_body_is_there() {
    let (backend, proxy) = before_echo("", "").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\nhalf").await;
    let stream = TcpStream::connect(address_of(&proxy, "main")).await.unwrap();
    let (mut two, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut halves = Vec::new();
    // On HTTP/2 nobody is told to go on.
    for expectation in [None, Some("100-continue")] {
        let mut request = Request::post("http://a/").header("content-length", "8");
        if let Some(expectation) = expectation {
            request = request.header("expect", expectation);
        }
        let (response, mut body) = two.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"half"), false).unwrap();
        halves.push((response, body));
    }
    // A request that is whole overtakes them.
    let mut other = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(other.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.status, 200);
    assert_eq!((backend.requests(), active(&proxy)), (1, 0));
    client.send("done").await;
    assert!(client.answer_to("POST").await.body.contains("body 8\n"));
    for (response, mut body) in halves {
        body.send_data(Bytes::from_static(b"done"), true).unwrap();
        assert_eq!(soon(response).await.unwrap().status(), 200);
    }
    assert_eq!(backend.complete(), 4);
    driver.abort();
}

#[tokio::test]
async fn upload_that_is_over_is_not_taken_for_a_slow_one() {
    let backend = Backend::start(|request| async {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        tokio::time::sleep(Duration::from_millis(800)).await;
        Response::new(full(format!("{}", body.len())))
    })
    .await;
    let proxy = start(&config(backend.address, "header_read_timeout = \"100ms\"\nidle_timeout = \"200ms\"", "")).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
    until(|| active(&proxy) == 1).await;
    client.send("4\r\ndone\r\n0\r\n\r\n").await;
    let answer = client.answer_to("POST").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "8"));
}

#[tokio::test]
async fn head_is_answered_without_a_body_whoever_answers() {
    let (_backend, proxy) = before_echo("", "request_timeout = \"1ms\"").await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    for host in ["http://a/", "http://b/"] {
        let request = Request::head(host).body(Empty::new()).unwrap();
        let response = soon(client.send_request(request)).await.unwrap();
        assert!(soon(response.into_body().collect()).await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn expectation_of_the_client_is_met() {
    let (_backend, proxy) = before_echo("max_body = \"1KiB\"", "").await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    assert!(client.head().await.starts_with("http/1.1 100"));
    client.send("some").await;
    assert!(client.answer_to("POST").await.body.ends_with("body 4\n"));
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4000\r\n\r\n").await;
    assert!(client.head().await.starts_with("http/1.1 413"), "not asked to send what is not wanted");
}

/// A backend that answers whatever comes by what `answer` makes of it.
async fn answering(answer: impl Fn(&str) -> &'static str + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    let answer = answer(&String::from_utf8_lossy(&buffer[..read]));
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

#[tokio::test]
async fn switch_of_protocols_that_nobody_asked_for_is_a_bad_answer() {
    let address = answering(|_| SWITCH).await;
    let proxy = start(&config(address, "", "")).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.status, 502);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.status, 502);
    until(|| active(&proxy) == 0).await;
}

#[tokio::test]
async fn wish_for_another_protocol_is_passed_on_without_a_body_only() {
    let asked = |head: &str| head.to_lowercase().contains("upgrade: x\r\n");
    let address = answering(move |head| if asked(head) { SWITCH } else { "HTTP/1.1 204 No Content\r\n\r\n" }).await;
    let proxy = start(&config(address, "", "")).await;
    for (framing, status) in [
        ("", 101),
        ("content-length: 0\r\n", 101),
        ("content-length: 4\r\n", 204),
        ("transfer-encoding: chunked\r\n", 204),
    ] {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        client.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n{framing}\r\n")).await;
        if framing.contains("length: 4") {
            client.send("some").await;
        }
        let head = client.head().await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{framing:?}: {head}");
    }
}

#[tokio::test]
async fn whole_bodies_pass_unchanged() {
    let (_backend, proxy) = before_echo("", "").await;
    let (mut client, _ended) = http2::<Full<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::post("http://a/").body(Full::new(vec![7; 3 << 20].into())).unwrap();
    let whole = soon(client.send_request(request)).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&whole).ends_with(&format!("body {}\n", 3 << 20)));
}

/// A client may give a backend as little time as it likes, but not have it ejected by that.
#[tokio::test]
async fn a_request_has_no_longer_than_its_client_says() {
    let mute = Backend::start(|_| std::future::pending()).await;
    let off = "[clusters.c.throttle]\npolicy = \"off\"\n";
    for (listener, cluster) in [("", ""), ("", off), ("criticality = \"critical\"", "")] {
        let proxy = start(&config(mute.address, listener, cluster)).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        for sent in 1..=6 {
            let fields = "x-envoy-expected-rq-timeout-ms: 30\r\n";
            let answer = client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await;
            assert_eq!(answer.status, 504);
            assert!(answer.head.contains("x-plimsoll-shed: reason=deadline, retry=never\r\n"), "{}", answer.head);
            let view = &proxy.clusters()[0].backends()[0];
            assert_eq!((view.counts.timed_out, view.snapshot.failures), (sent, 0));
        }
    }
}

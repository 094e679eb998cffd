//! The header rules and cookies of a route, on each kind of answer; and its customer in the log.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use bytes::Bytes;
use http::{Method, Request, Version};
use http_body_util::Empty;
use hyper::ext::Protocol;
use plimsoll_proxy::Proxy;
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const STICKY: &str = "policy = \"hash\"\n[clusters.c.hash.sticky]\ncookie = \"shop\"";

/// A file with one route to a cluster, and these lines in the listener, the route and the cluster.
fn file(backend: &str, listener: &str, route: &str, cluster: &str) -> String {
    format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n{listener}\n[[routes]]\n{route}\n\
         [clusters.c]\nbackends = [\"{backend}\"]\n{cluster}\n[clusters.c.health]\ncheck = \"none\"\n"
    )
}

async fn get(proxy: &Proxy, fields: &str) -> Answered {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await
}

/// A backend that switches to the protocol `x`, whatever it is asked.
async fn switching() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte).await, Ok(1)) {
                    head.push(byte[0]);
                }
                let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
                let _ = stream.write_all(switch.as_bytes()).await;
                let _ = stream.read(&mut byte).await;
            });
        }
    });
    address.to_string()
}

#[tokio::test]
async fn rule_neither_removes_the_sticky_cookie_nor_shares_it_with_caches() {
    let backend = Backend::echo().await;
    let route = "cluster = \"c\"\n[routes.response_headers]\n";
    for (rules, cookies, control) in [
        ("remove = [\"set-cookie\"]", 1, "cache-control: private\r\n"),
        ("set = { \"cache-control\" = \"public, max-age=60\" }", 0, "cache-control: public, max-age=60\r\n"),
        ("set = { \"set-cookie\" = \"edge=1\" }", 2, "cache-control: private\r\n"),
    ] {
        let proxy = start(&file(&backend.address.to_string(), "", &format!("{route}{rules}"), STICKY)).await;
        let head = get(&proxy, "").await.head;
        assert_eq!(head.matches("set-cookie: ").count(), cookies, "{rules}: {head}");
        assert!(head.contains(control), "{rules}: {head}");
    }
}

#[tokio::test]
async fn switched_connection_has_cookie_and_fields_of_its_route() {
    let route = "cluster = \"c\"\nresponse_headers = { set = { x-route = \"1\" } }";
    let proxy = start(&file(&switching().await, "", route, STICKY)).await;
    let switch = "connection: upgrade\r\nupgrade: x\r\n";
    for (fields, cookies) in [(String::new(), 1), ("cookie: shop=7\r\n".to_owned(), 0)] {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        client.send(&format!("GET / HTTP/1.1\r\nhost: a\r\n{switch}{fields}\r\n")).await;
        let head = client.head().await;
        assert!(head.starts_with("http/1.1 101") && head.contains("x-route: 1\r\n"), "{head}");
        assert_eq!(head.matches("set-cookie: shop=").count(), cookies, "{head}");
    }
}

#[tokio::test]
async fn slow_body_is_refused_with_the_fields_of_its_route() {
    let backend = Backend::echo().await;
    let route = "cluster = \"c\"\nresponse_headers = { set = { x-route = \"1\" } }";
    let listener = "idle_timeout = \"100ms\"\nheader_read_timeout = \"100ms\"";
    let proxy = start(&file(&backend.address.to_string(), listener, route, "")).await;
    // Before a backend is asked, and while one reads.
    for body in ["content-length: 10\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        let answer = client.ask(&format!("POST / HTTP/1.1\r\nhost: a\r\n{body}")).await;
        assert!(answer.status == 408 && answer.body.starts_with("slow-body: "), "{body}: {answer:?}");
        assert!(answer.head.contains("x-route: 1\r\n"), "{body}: {answer:?}");
        assert_eq!(client.rest().await, "", "the connection ends");
    }
    let refusals = &proxy.listeners()[0].refusals;
    assert_eq!(refusals.iter().find(|(name, _)| *name == "slow-body").unwrap().1, 2, "each is counted once");
}

#[tokio::test]
async fn answer_of_a_route_opens_no_tunnel_and_keeps_its_fields() {
    let backend = Backend::echo().await;
    let route = "answer = { status = 200 }\nresponse_headers = { set = { x-route = \"1\" } }";
    let proxy = start(&file(&backend.address.to_string(), "", route, "")).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    // The settings of the server have come with the first answer.
    for (method, status) in [(Method::GET, 200), (Method::CONNECT, 502)] {
        let mut request = Request::builder().method(&method).uri("http://a/").version(Version::HTTP_2);
        if method == Method::CONNECT {
            request = request.extension(Protocol::from_static("websocket"));
        }
        let answer = soon(client.send_request(request.body(Empty::new()).unwrap())).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.headers().get("x-route").unwrap()),
            (status, &"1".parse().unwrap())
        );
    }
}

/// The lines of the access log, once there are so many.
async fn lines(file: &std::path::Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    until(|| read().len() == count).await;
    read()
}

#[tokio::test]
async fn log_has_the_customer_of_served_and_refused_requests() {
    let backend = Backend::echo().await;
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("route-answers.log");
    let _ = std::fs::remove_file(&log);
    let listener = "customer_header = \"x-customer\"";
    let route = "path_prefix = \"/a\"\ncustomers = [\"acme\"]\ncluster = \"c\"";
    let further = format!("[access_log]\npath = \"{}\"\n", log.display());
    let proxy = start(&(file(&backend.address.to_string(), listener, route, "") + &further)).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    for (request, status) in [("GET /a", 200), ("GET /b", 404), ("TRACE /a", 405)] {
        let answer = client.ask(&format!("{request} HTTP/1.1\r\nhost: a\r\nx-customer: acme\r\n\r\n")).await;
        assert_eq!(answer.status, status, "{request}");
    }
    let lines = lines(&log, 3).await;
    assert!(lines.iter().all(|line| line.contains("\"customer\":\"acme\"")), "{lines:#?}");
}

//! The backend over a real connection.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use super::*;

const LISTEN: &str = "127.0.0.1:9";

fn backend(listen: &str, change: Value) -> Arc<Backend> {
    let mut settings = Settings {
        cost: "fixed:0s".parse().unwrap(),
        wait: "fixed:0s".parse().unwrap(),
        speed: 1.0,
        error_rate: 0.0,
        fail_fast: false,
        body_size: 34,
        report: Report::Measured,
    };
    settings.apply(serde_json::from_value(change).unwrap()).unwrap();
    let listen: SocketAddr = listen.parse().unwrap();
    Arc::new(Backend::new(listen, Machine::Real(Cores::start(NonZeroUsize::MIN).unwrap()), settings, 1))
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// Sends one request over HTTP/2 on a connection in memory.
async fn ask(backend: &Arc<Backend>, request: Request<Full<Bytes>>) -> Reply {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let backend = Arc::clone(backend);
    let service = service_fn(move |request| {
        let backend = Arc::clone(&backend);
        async move { Ok::<_, Infallible>(backend.answer(request).await) }
    });
    let executor = TokioExecutor::new();
    tokio::spawn(
        hyper::server::conn::http2::Builder::new(executor.clone()).serve_connection(TokioIo::new(server), service),
    );
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    Reply { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
}

fn request(method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("http://{LISTEN}{path}"));
    request.body(Full::from(body.to_owned())).unwrap()
}

fn call(path: &str, message: &str) -> Request<Full<Bytes>> {
    let mut request = request(Method::POST, path, message);
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request
}

const WORK: &str = "/plimsoll.backend.v1.Backend/Work";

#[tokio::test]
async fn every_answer_names_its_backend() {
    let backend = backend(LISTEN, json!({"body_size": 5}));
    for request in [
        request(Method::GET, "/any", ""),
        request(Method::POST, "/echo", "x"),
        request(Method::GET, "/control", ""),
        call(WORK, ""),
        call("/no.such/Method", ""),
    ] {
        assert_eq!(ask(&backend, request).await.headers["x-backend"], LISTEN);
    }
    let reply = ask(&backend, request(Method::GET, "/any", "")).await;
    assert_eq!((reply.status, reply.body.len()), (StatusCode::OK, 5));
}

#[tokio::test]
async fn echo_returns_the_body_and_work_the_message_with_its_status() {
    let backend = backend(LISTEN, json!({}));
    assert_eq!(ask(&backend, request(Method::POST, "/echo", "hello")).await.body, "hello");
    let reply = ask(&backend, call(WORK, "\0\0\0\0\x02hi")).await;
    assert_eq!((reply.body.as_ref(), &reply.trailers["grpc-status"]), (&b"\0\0\0\0\x02hi"[..], &"0".parse().unwrap()));
    assert!(!reply.headers.contains_key("content-length"));
    assert_eq!(ask(&backend, call("/no.such/Method", "")).await.headers["grpc-status"], "12");
}

#[tokio::test]
async fn failures_are_shaped_as_the_request_is() {
    for change in [json!({"error_rate": 1.0}), json!({"fail_fast": true, "cost": "fixed:1h"})] {
        let backend = backend(LISTEN, change);
        let reply = ask(&backend, request(Method::GET, "/", "")).await;
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
        let reply = ask(&backend, call(WORK, "\0\0\0\0\0")).await;
        assert_eq!((reply.status, &reply.headers["grpc-status"]), (StatusCode::OK, &"13".parse().unwrap()));
    }
}

#[tokio::test]
async fn settings_can_be_changed_while_it_runs() {
    let backend = backend(LISTEN, json!({}));
    let reply = ask(&backend, request(Method::POST, "/control", r#"{"fail_fast": true}"#)).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(serde_json::from_slice::<Value>(&reply.body).unwrap()["fail_fast"], true);
    assert_eq!(ask(&backend, request(Method::GET, "/", "")).await.status, StatusCode::INTERNAL_SERVER_ERROR);

    let reply = ask(&backend, request(Method::PUT, "/control", r#"{"fail_fast": false, "spede": 2}"#)).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(String::from_utf8_lossy(&reply.body).contains("spede"));
    assert!(backend.settings().fail_fast, "a change with a mistake changes nothing");
    let reply = ask(&backend, request(Method::DELETE, "/control", "")).await;
    assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn control_is_closed_to_others_and_to_what_came_through_a_proxy() {
    let mut forwarded = request(Method::GET, "/control", "");
    forwarded.headers_mut().insert("via", "1.1 proxy".parse().unwrap());
    assert_eq!(ask(&backend(LISTEN, json!({})), forwarded).await.status, StatusCode::FORBIDDEN);
    let open = backend("0.0.0.0:9", json!({}));
    assert_eq!(ask(&open, request(Method::GET, "/control", "")).await.status, StatusCode::FORBIDDEN);
}

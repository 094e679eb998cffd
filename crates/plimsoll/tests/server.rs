//! The server side over real sockets: reports, health, and an end without failed requests.
//!
//! Nothing here waits for a fixed time. Each test waits for its asserted condition, and the
//! server's own waits are set to a few milliseconds.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::server::{DrainEnd, Lifecycle, Phase, ServeConfig, ServerLayer, serve};
use plimsoll_core::LoadReport;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus, WATCH_PATH};
use plimsoll_wire::orca::{self, ACTIVE_REQUESTS_METRIC, OrcaLoadReport};
use plimsoll_wire::orca_service::{OrcaLoadReportRequest, STREAM_CORE_METRICS_PATH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Limit on a wait. A busy machine stays far below it; only a test that would hang reaches it.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn http_responses_carry_the_load_failed_ones_too() {
    let server = Server::start().await;
    let mut client = server.http1().await;
    for path in ["/", "/fail"] {
        let response = client.send_request(get(path)).await.unwrap();
        let report = orca::read(response.headers()).unwrap().unwrap();
        assert!(report.rps_fractional > 0.0, "{path} {report:?}");
        assert!(!report.lame_duck());
        assert_eq!(report.named_metrics[ACTIVE_REQUESTS_METRIC], 1.0);
        finish(response).await;
    }
    wait(|| server.reports.load().eps > 0.0).await;
}

#[tokio::test]
async fn grpc_calls_carry_the_load_in_their_trailers() {
    let server = Server::start().await;
    let mut client = server.http2().await;
    let response = client.send_request(call("/ok", Bytes::new())).await.unwrap();
    assert!(orca::read(response.headers()).is_none(), "not in the head");
    let trailers = finish(response).await.unwrap();
    assert_eq!(Code::read(&trailers), Some(Code::Ok));
    assert!(orca::read_load(&trailers).unwrap().unwrap().qps > 0.0);

    let response = client.send_request(call("/trailers-only", Bytes::new())).await.unwrap();
    assert_eq!(Code::read(response.headers()), Some(Code::Internal));
    assert!(orca::read_load(response.headers()).unwrap().is_ok(), "in the head, for there is nothing else");
    wait(|| server.reports.load().eps > 0.0).await;
}

#[tokio::test]
async fn readiness_follows_the_phase_and_is_not_counted() {
    let server = Server::starting().await;
    let mut client = server.http1().await;
    let mut ask = async || {
        let response = client.send_request(get("/readyz")).await.unwrap();
        let status = response.status();
        let lame_duck = orca::read_load(response.headers()).unwrap().unwrap().lame_duck;
        finish(response).await;
        (status, lame_duck)
    };
    assert_eq!(ask().await, (StatusCode::SERVICE_UNAVAILABLE, true));
    server.lifecycle.ready();
    assert_eq!(ask().await, (StatusCode::OK, false));
    server.lifecycle.lame_duck();
    assert_eq!(ask().await, (StatusCode::SERVICE_UNAVAILABLE, true));
    assert_eq!(server.reports.load().qps, 0.0);
}

#[tokio::test]
async fn health_watchers_are_told_at_once() {
    let server = Server::starting().await;
    let mut client = server.http2().await;
    let question = grpc::frame(&HealthCheckRequest::default());
    let mut watch = client.send_request(call(WATCH_PATH, question.clone())).await.unwrap().into_body();
    assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
    server.lifecycle.ready();
    assert_eq!(status(&mut watch).await, ServingStatus::Serving);

    let mut check = client.send_request(call(CHECK_PATH, question)).await.unwrap().into_body();
    assert_eq!(status(&mut check).await, ServingStatus::Serving);
    let trailers = check.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(Code::read(&trailers), Some(Code::Ok));
    assert!(orca::read_load(&trailers).unwrap().is_ok());

    server.lifecycle.lame_duck();
    assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
    let trailers = watch.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(Code::read(&trailers), Some(Code::Unavailable), "the stream ends with the server, and holds up nothing");
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn load_reports_are_sent_out_of_band() {
    let server = Server::starting().await;
    let mut client = server.http2().await;
    let question = grpc::frame(&OrcaLoadReportRequest::every(Duration::from_secs(3600)));
    let mut reports = client.send_request(call(STREAM_CORE_METRICS_PATH, question)).await.unwrap().into_body();
    let report: OrcaLoadReport = message(&mut reports).await;
    assert!(report.lame_duck(), "not ready yet");
    server.lifecycle.ready();
    let report: OrcaLoadReport = message(&mut reports).await;
    assert!(!report.lame_duck(), "a change of phase does not wait for the interval");
}

#[tokio::test]
async fn junk_to_the_own_services_is_answered_not_served() {
    let server = Server::start().await;
    let mut client = server.http2().await;
    for junk in [&b"junk"[..], b"\0\0\0\0\x01\xff", &[0; 5000]] {
        let response = client.send_request(call(CHECK_PATH, Bytes::copy_from_slice(junk))).await.unwrap();
        assert_eq!(Code::read(response.headers()), Some(Code::Internal));
    }
    let plain = client.send_request(get(CHECK_PATH)).await.unwrap();
    assert_eq!(plain.into_body().collect().await.unwrap().to_bytes(), "hello", "not gRPC: the service's own");
}

#[tokio::test]
async fn idle_http1_connection_of_a_lame_duck_serves_once_more_and_closes() {
    let server = Server::start_with(drain(Duration::from_secs(60))).await;
    let mut client = server.http1().await;
    let response = client.send_request(get("/")).await.unwrap();
    assert!(!response.headers().contains_key("connection"));
    finish(response).await;
    server.lifecycle.lame_duck();
    let response = client.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["connection"], "close");
    assert!(orca::read_load(response.headers()).unwrap().unwrap().lame_duck);
    finish(response).await;
    wait(|| client.is_closed()).await;
}

#[tokio::test]
async fn http2_connection_of_a_lame_duck_is_told_and_its_stream_finishes() {
    let server = Server::start().await;
    let mut idle = server.http2().await;
    assert_eq!(finish_text(idle.send_request(get("/")).await.unwrap()).await, "hello");
    let mut client = server.http2().await;
    let slow = client.send_request(get("/wait"));
    server.started.notified().await;
    server.lifecycle.lame_duck();
    wait(|| idle.is_closed()).await;
    // Until the GOAWAY is there requests are served; after it they come back unsent.
    let refused = loop {
        match client.try_send_request(get("/")).await {
            Ok(response) => assert_eq!(finish_text(response).await, "hello"),
            Err(refused) => break refused,
        }
    };
    assert!(refused.message().is_some(), "not sent: it may go elsewhere");
    server.release.notify_one();
    assert_eq!(finish_text(slow.await.unwrap()).await, "hello");
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn lame_duck_serves_what_still_arrives() {
    let server = Server::start_with(drain(Duration::from_secs(60))).await;
    server.lifecycle.lame_duck();
    for _ in 0..3 {
        let response = server.http1().await.send_request(get("/")).await.unwrap();
        assert_eq!(finish_text(response).await, "hello");
    }
    let mut client = server.http2().await;
    for _ in 0..3 {
        let response = client.send_request(get("/")).await.unwrap();
        assert_eq!(finish_text(response).await, "hello");
    }
}

#[tokio::test]
async fn silent_connection_learns_of_the_end_only_after_connects_are_refused() {
    let server = Server::start().await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    server.lifecycle.lame_duck();
    let address = server.address;
    let at_eof = tokio::spawn(async move {
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
        TcpStream::connect(address).await.map(drop).map_err(|error| error.kind())
    });
    let after = tokio::time::timeout(PATIENCE, at_eof).await.unwrap().unwrap();
    assert_eq!(after, Err(std::io::ErrorKind::ConnectionRefused));
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn request_in_flight_holds_the_end_back_until_it_is_done() {
    let server = Server::start().await;
    let mut client = server.http1().await;
    let slow = tokio::spawn(async move { client.send_request(get("/wait")).await });
    server.started.notified().await;
    server.lifecycle.lame_duck();
    // A whole drain of another server fits in: this one must not be over by then.
    let other = Server::start().await;
    other.lifecycle.lame_duck();
    assert_eq!(other.ended().await, DrainEnd::Quiet);
    assert!(!server.task.is_finished());
    server.release.notify_one();
    assert_eq!(finish_text(slow.await.unwrap().unwrap()).await, "hello");
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn response_that_was_handed_over_is_sent_to_its_end() {
    for http2 in [false, true] {
        let server = Server::start().await;
        let response = server.ask_for_much(http2).await;
        server.lifecycle.lame_duck();
        server.outlive_another().await;
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), MUCH);
        assert_eq!(server.ended().await, DrainEnd::Quiet);
    }
}

#[tokio::test]
async fn response_that_nobody_takes_is_cut_when_the_time_is_up_or_at_a_word() {
    let brief = |announce| {
        let time = Duration::from_millis(400);
        let mut config = drain(announce);
        config.drain.drain = time;
        config
    };
    let (overdue, cut_short) = (DrainEnd::Overdue { unfinished: 1 }, DrainEnd::CutShort { unfinished: 1 });
    let long = Duration::from_secs(60);
    for (config, word_at, expected) in [
        (brief(Duration::from_millis(50)), None, overdue),
        (brief(long), None, overdue),
        (drain(Duration::ZERO), Some(Phase::Drained), cut_short),
        (drain(long), Some(Phase::LameDuck), cut_short),
    ] {
        let server = Server::start_with(config).await;
        let response = server.ask_for_much(false).await;
        server.lifecycle.lame_duck();
        if let Some(phase) = word_at {
            wait(|| server.lifecycle.phase() == phase).await;
            server.lifecycle.end_now();
        }
        assert_eq!(server.ended().await, expected);
        assert!(response.into_body().collect().await.is_err());
    }
}

#[tokio::test]
async fn a_server_without_limits_of_time_serves_and_ends() {
    let mut config = drain(Duration::ZERO);
    config.drain.drain = Duration::MAX;
    config.header_read_timeout = Some(Duration::MAX);
    let server = Server::start_with(config).await;
    let response = server.http1().await.send_request(get("/")).await.unwrap();
    assert_eq!(finish_text(response).await, "hello");
    server.lifecycle.lame_duck();
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn clients_that_are_gone_without_a_word_hold_up_nothing() {
    let server = Server::start().await;
    // One never acknowledges that the server goes, the other never ends its head.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    silent.read_exact(&mut [0; 9]).await.unwrap();
    let mut halting = TcpStream::connect(server.address).await.unwrap();
    halting.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    server.lifecycle.lame_duck();
    assert_eq!(server.ended().await, DrainEnd::Quiet);
}

#[tokio::test]
async fn time_up_and_end_now_cut_what_is_in_flight() {
    let mut overdue = drain(Duration::ZERO);
    overdue.drain.drain = Duration::from_millis(50);
    for (config, expected) in
        [(overdue, DrainEnd::Overdue { unfinished: 1 }), (drain(Duration::ZERO), DrainEnd::CutShort { unfinished: 1 })]
    {
        let server = Server::start_with(config).await;
        let mut client = server.http1().await;
        let slow = tokio::spawn(async move { client.send_request(get("/wait")).await });
        server.started.notified().await;
        server.lifecycle.lame_duck();
        if let DrainEnd::CutShort { .. } = expected {
            server.lifecycle.end_now();
        }
        assert_eq!(server.ended().await, expected);
        assert!(slow.await.unwrap().is_err());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn sigterm_makes_a_lame_duck_and_a_second_one_ends_at_once() {
    use rustix::process::{Signal, getpid, kill_process};

    let server = Server::start_with(drain(Duration::from_secs(60))).await;
    server.lifecycle.on_sigterm().unwrap();
    kill_process(getpid(), Signal::TERM).unwrap();
    wait(|| server.lifecycle.phase() == Phase::LameDuck).await;
    let response = server.http1().await.send_request(get("/")).await.unwrap();
    assert_eq!(finish_text(response).await, "hello");
    // One that comes at once is the same wish said twice, so it is said until it is heard.
    let again = async {
        loop {
            kill_process(getpid(), Signal::TERM).unwrap();
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    let end = tokio::select! {
        end = server.ended() => end,
        () = again => unreachable!("it goes on until the server has ended"),
    };
    assert_eq!(end, DrainEnd::CutShort { unfinished: 0 });
}

#[tokio::test]
async fn protocol_is_told_by_its_first_bytes_however_they_come() {
    let server = Server::start().await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    for piece in ["P", "O", "ST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"] {
        http1.write_all(piece.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = String::new();
    http1.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let mut http2 = TcpStream::connect(server.address).await.unwrap();
    for piece in [&b"PR"[..], b"I * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0"] {
        http2.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut frame = [0; 9];
    http2.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "a SETTINGS frame");
}

#[tokio::test]
async fn connection_that_ends_before_its_protocol_is_known_is_let_go() {
    let server = Server::start().await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(b"PR").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    // It may be told why, or reset; only waiting for ever would be wrong.
    let ended = tokio::time::timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn axum_routes_and_fixed_reports_go_together() {
    let app = axum::Router::new().route("/", axum::routing::get(|| async { "axum" }));
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let fixed = |measured| LoadReport { application_utilization: 0.2, qps: 100.0, eps: 0.0, ..measured };
    let reports = ServerLayer::builder(lifecycle.clone()).source(fixed).build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve([listener], app, reports, drain(Duration::ZERO)));
    let response = connect_http1(address).await.send_request(get("/")).await.unwrap();
    let load = orca::read_load(response.headers()).unwrap().unwrap();
    assert_eq!((load.application_utilization, load.qps), (0.2, 100.0));
    assert_eq!(finish_text(response).await, "axum");
    lifecycle.lame_duck();
    assert_eq!(tokio::time::timeout(PATIENCE, server).await.unwrap().unwrap(), DrainEnd::Quiet);
}

/// More than sockets keep, and than HTTP/2 lets be sent unread.
const MUCH: usize = 20 << 20;

/// A server on a free port with a service that does as the path says.
struct Server {
    address: SocketAddr,
    lifecycle: Lifecycle,
    reports: ServerLayer,
    /// Told when a request to `/wait` has come.
    started: Arc<Notify>,
    /// Lets it go on.
    release: Arc<Notify>,
    task: JoinHandle<DrainEnd>,
}

fn drain(announce: Duration) -> ServeConfig {
    let quiet = Duration::from_millis(20);
    let mut config = ServeConfig::default();
    config.drain.quiet = quiet;
    config.drain.announce = announce;
    config.drain.drain = Duration::from_secs(60);
    config
}

impl Server {
    async fn starting() -> Self {
        Self::spawn(drain(Duration::from_millis(50))).await
    }

    async fn start() -> Self {
        let server = Self::starting().await;
        server.lifecycle.ready();
        server
    }

    async fn start_with(config: ServeConfig) -> Self {
        let server = Self::spawn(config).await;
        server.lifecycle.ready();
        server
    }

    async fn spawn(config: ServeConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let reports = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").admission(None).build();
        let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service(Arc::clone(&started), Arc::clone(&release));
        let task = tokio::spawn(serve([listener], service, reports.clone(), config));
        Self { address, lifecycle, reports, started, release, task }
    }

    async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        connect_http1(self.address).await
    }

    async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Asks for a response that does not fit into any buffer on the way, and waits until the
    /// service has nothing more to do with it.
    async fn ask_for_much(&self, http2: bool) -> Response<Incoming> {
        let response = match http2 {
            true => self.http2().await.send_request(get("/much")).await.unwrap(),
            false => self.http1().await.send_request(get("/much")).await.unwrap(),
        };
        wait(|| self.lifecycle.active_requests() == 0).await;
        response
    }

    /// Waits for the end of another server, by which time this one would have ended too.
    async fn outlive_another(&self) {
        wait(|| self.lifecycle.phase() == Phase::Drained).await;
        let other = Self::start().await;
        let _silent = TcpStream::connect(other.address).await.unwrap();
        other.lifecycle.lame_duck();
        assert_eq!(other.ended().await, DrainEnd::Quiet);
        assert!(!self.task.is_finished());
    }

    async fn ended(self) -> DrainEnd {
        tokio::time::timeout(PATIENCE, self.task).await.expect("the server ends").unwrap()
    }
}

async fn connect_http1(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (client, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    client
}

type Answer = BoxFuture<'static, Result<Response<Body>, Infallible>>;

fn service(
    started: Arc<Notify>,
    release: Arc<Notify>,
) -> impl tower::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone + Send
{
    tower::service_fn(move |request: Request<Incoming>| {
        let (started, release) = (Arc::clone(&started), Arc::clone(&release));
        Box::pin(async move {
            let mut response = Response::new(Full::from("hello").boxed_unsync());
            match request.uri().path() {
                "/fail" => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
                "/wait" => {
                    started.notify_one();
                    release.notified().await;
                }
                "/much" => *response.body_mut() = Full::from(vec![b'x'; MUCH]).boxed_unsync(),
                "/trailers-only" => {
                    *response.headers_mut() = grpc::trailers(Code::Internal, "");
                    *response.body_mut() = Full::default().boxed_unsync();
                }
                "/ok" => {
                    let frames =
                        [Frame::data(Bytes::from_static(b"\0\0\0\0\0")), Frame::trailers(grpc::trailers(Code::Ok, ""))];
                    *response.body_mut() = StreamBody::new(stream::iter(frames.map(Ok))).boxed_unsync();
                }
                _ => {}
            }
            if grpc::is_grpc(request.headers()) {
                response.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
            }
            Ok(response)
        }) as Answer
    })
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "x").body(Full::default()).unwrap()
}

fn call(path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::post(format!("http://x{path}")).body(Full::new(body)).unwrap();
    request.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    request
}

/// Reads the response to its end; gives its trailers.
async fn finish(response: Response<Incoming>) -> Option<HeaderMap> {
    response.into_body().collect().await.unwrap().trailers().cloned()
}

async fn finish_text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.into()).unwrap()
}

async fn message<M: prost::Message + Default>(body: &mut Incoming) -> M {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a message comes");
    grpc::unframe(&frame.unwrap().unwrap().into_data().unwrap()).unwrap()
}

async fn status(body: &mut Incoming) -> ServingStatus {
    message::<HealthCheckResponse>(body).await.status()
}

/// Waits until `condition` holds.
async fn wait(mut condition: impl FnMut() -> bool) {
    let polled = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polled).await.expect("the condition comes true");
}

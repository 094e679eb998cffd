//! The example servers as processes of their own: axum's and tonic's accept loops, ended by
//! SIGTERM.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_core::LoadReport;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use plimsoll_wire::orca;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::oneshot;

/// Limit on a wait, far above the time that anything here needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn axum_server_finishes_its_requests_and_exits_at_sigterm() {
    let server = Example::start("axum_server").await;
    let mut idle = server.http1().await;
    let before = idle.send_request(get("/")).await.unwrap();
    assert!(!lame_duck(&before));
    assert_eq!(text(before).await, "hello");
    let mut upload = server.begin_upload().await;

    server.signal(Signal::TERM);
    server.until_unready().await;
    // A client that has not heard is served, and hears.
    let during = idle.send_request(get("/")).await.unwrap();
    assert!(lame_duck(&during) && during.headers()["connection"] == "close");
    assert_eq!(text(during).await, "hello");
    upload.write_all(b"whole").await.unwrap();
    let mut answer = String::new();
    upload.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nwhole"), "{answer}");

    assert!(server.ended().await.success());
}

#[tokio::test]
async fn tonic_server_finishes_its_calls_and_exits_at_sigterm() {
    let server = Example::start("tonic_server").await;
    let client = server.http2().await;
    let (release, released) = oneshot::channel();
    let open = tokio::spawn(hello(client.clone(), Some(released)));
    // Streams of one connection are accepted in their order, so the open call is in flight by then.
    assert_eq!(hello(client.clone(), None).await, "hello ann, as a critical request");
    assert_eq!(health(&client).await, ServingStatus::Serving);

    server.signal(Signal::TERM);
    let patient = async { while health(&client).await != ServingStatus::NotServing {} };
    tokio::time::timeout(PATIENCE, patient).await.expect("the server becomes a lame duck");
    let newcomer = server.http2().await;
    assert_eq!(hello(newcomer, None).await, "hello ann, as a critical request");
    release.send(()).unwrap();
    assert_eq!(open.await.unwrap(), "hello ann, as a critical request");

    assert!(server.ended().await.success());
}

#[tokio::test]
async fn second_sigterm_ends_a_server_with_a_request_that_never_ends() {
    let server = Example::start("axum_server").await;
    let mut upload = server.begin_upload().await;
    server.signal(Signal::TERM);
    server.until_unready().await;
    let pid = server.pid;
    // Signals that come close together count as one, so this repeats them until the server has
    // ended.
    let again = async {
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let _ = kill_process(pid, Signal::TERM);
        }
    };
    let status = tokio::select! {
        status = server.ended() => status,
        () = again => unreachable!("it has no end"),
    };
    assert!(status.success());
    let mut rest = Vec::new();
    let _ = upload.read_to_end(&mut rest).await;
    assert_eq!(String::from_utf8_lossy(&rest), "", "no answer to half a request");
}

/// A running example.
struct Example {
    child: Child,
    pid: Pid,
    address: SocketAddr,
    /// Kept open, because the example prints at its end.
    output: BufReader<ChildStdout>,
}

impl Example {
    async fn start(name: &str) -> Self {
        let program = program(name);
        let mut child =
            Command::new(&program).arg("127.0.0.1:0").stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap_or_else(
                |error| panic!("{}: {error}; run `cargo build -p plimsoll --examples`", program.display()),
            );
        let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, output.read_line(&mut line)).await.expect("the server starts").unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, pid, address, output }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a lame duck accepts connections")
    }

    async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let (client, connection) = http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn http2(&self) -> http2::SendRequest<BoxBody> {
        let io = TokioIo::new(self.connect().await);
        let (client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Sends the head of a request. The handler waits for its body, of five bytes, when this
    /// returns.
    async fn begin_upload(&self) -> TcpStream {
        let mut stream = self.connect().await;
        let head = "POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut interim).await.unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100"), "{}", interim.escape_ascii());
        stream
    }

    /// Asks, over new connections, until the server wants no new requests.
    async fn until_unready(&self) {
        let asked = async {
            loop {
                let answer = self.http1().await.send_request(get("/readyz")).await.unwrap();
                let ready = answer.status().is_success();
                let phase = text(answer).await;
                if !ready {
                    return phase;
                }
            }
        };
        assert_eq!(tokio::time::timeout(PATIENCE, asked).await.expect("an answer"), "lame-duck");
    }

    async fn ended(mut self) -> ExitStatus {
        let mut rest = String::new();
        let ended = async {
            self.output.read_to_string(&mut rest).await.unwrap();
            self.child.wait().await.unwrap()
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the process ends")
    }
}

/// The example, where cargo puts it beside the directory of tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

type BoxBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "x").body(Full::default()).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

fn lame_duck(response: &Response<Incoming>) -> bool {
    let report: LoadReport = orca::read_load(response.headers()).unwrap().unwrap();
    report.lame_duck
}

/// Calls the example's method. The message is sent once `released` is told.
async fn hello(client: http2::SendRequest<BoxBody>, released: Option<oneshot::Receiver<()>>) -> String {
    let message = async {
        if let Some(released) = released {
            released.await.unwrap();
        }
        Ok(Frame::data(grpc::frame(&"ann".to_owned())))
    };
    unary(client, "/example.Greeter/Hello", StreamBody::new(stream::once(message))).await
}

async fn health(client: &http2::SendRequest<BoxBody>) -> ServingStatus {
    let message = Full::from(grpc::frame(&HealthCheckRequest::default()));
    unary::<HealthCheckResponse>(client.clone(), CHECK_PATH, message).await.status()
}

async fn unary<M: prost::Message + Default>(
    mut client: http2::SendRequest<BoxBody>,
    path: &str,
    body: impl Body<Data = Bytes, Error = std::convert::Infallible> + Send + 'static,
) -> M {
    let mut request = Request::post(format!("http://x{path}")).body(body.boxed_unsync()).unwrap();
    request.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().and_then(Code::read), Some(Code::Ok));
    grpc::unframe(&answer.to_bytes()).unwrap()
}

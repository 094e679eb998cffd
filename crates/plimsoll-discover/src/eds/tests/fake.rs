//! A control plane in virtual time whose words the test gives, over real HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::FutureExt as _;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Response as HttpResponse};
use plimsoll::discover::{Discover as _, Endpoint};
use prost::Message as _;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::Eds;
use super::super::connection::{Dial, Io};
use super::super::message::{Any, DiscoveryRequest};
use super::build::{Response, framed, response};

/// A source of the service `web`, and its control plane.
pub(super) struct Fake {
    streams: mpsc::UnboundedReceiver<Stream>,
    answers: mpsc::UnboundedReceiver<Result<Vec<Endpoint>, String>>,
    is_refusing: Arc<AtomicBool>,
    source: tokio::task::JoinHandle<()>,
}

/// A stream of the source. To drop it breaks its connection.
pub(super) struct Stream {
    pub(super) path: String,
    body: RecvStream,
    buffer: BytesMut,
    respond: SendResponse<Bytes>,
    out: Option<SendStream<Bytes>>,
    frozen: Arc<Notify>,
    connection: JoinSet<()>,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::with(|source| source)
    }

    pub(super) fn with(change: impl FnOnce(Eds) -> Eds) -> Self {
        let (sender, streams) = mpsc::unbounded_channel();
        let is_refusing = Arc::new(AtomicBool::new(false));
        let source = Eds::new("xds.internal:18000", "web").unwrap().node_id("proxy-1").unwrap();
        let mut source = change(source);
        source.plane.dial = dial(sender, Arc::clone(&is_refusing));
        let (answered, answers) = mpsc::unbounded_channel();
        let source = tokio::spawn(async move {
            while let Some(answer) = source.next().await {
                if answered.send(answer.map_err(|error| error.to_string())).is_err() {
                    break;
                }
            }
        });
        Self { streams, answers, is_refusing, source }
    }

    /// The next stream, with its first request.
    pub(super) async fn stream(&mut self) -> (Stream, DiscoveryRequest) {
        let mut stream = soon(self.streams.recv()).await.unwrap();
        let first = stream.request().await;
        (stream, first)
    }

    /// A stream whose first response has these addresses of `web`, as version 1. The ACK was read.
    pub(super) async fn started(addresses: &[&str]) -> (Self, Stream) {
        let mut fake = Self::new();
        let (mut stream, _) = fake.stream().await;
        stream.send("1", &[super::build::web(addresses)]).await;
        assert_eq!(fake.answer().await, addresses);
        stream.request().await;
        (fake, stream)
    }

    /// The next list: the addresses, each with its state unless that is ready.
    pub(super) async fn answer(&mut self) -> Vec<String> {
        let list = soon(self.answers.recv()).await.unwrap().unwrap();
        let shown = |endpoint: Endpoint| match endpoint.readiness {
            plimsoll::discover::Readiness::Ready => endpoint.address.to_string(),
            other => format!("{} {other:?}", endpoint.address),
        };
        list.into_iter().map(shown).collect()
    }

    /// The next error.
    pub(super) async fn error(&mut self) -> String {
        soon(self.answers.recv()).await.unwrap().unwrap_err()
    }

    /// There is no answer for this time.
    pub(super) async fn assert_silent(&mut self, time: Duration) {
        let answer = timeout(time, self.answers.recv()).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    pub(super) fn refuse(&self, is_refusing: bool) {
        self.is_refusing.store(is_refusing, Ordering::Relaxed);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.source.abort();
    }
}

impl Stream {
    /// The next request.
    pub(super) async fn request(&mut self) -> DiscoveryRequest {
        loop {
            if let Some(length) = self.buffer.get(1..5) {
                let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    let message = self.buffer.split_to(5 + length).split_off(5);
                    return DiscoveryRequest::decode(message).unwrap();
                }
            }
            let data = soon(self.body.data()).await.unwrap().unwrap();
            self.body.flow_control().release_capacity(data.len()).unwrap();
            self.buffer.extend_from_slice(&data);
        }
    }

    /// There is no request for a second.
    pub(super) async fn assert_no_request(&mut self) {
        let request = timeout(Duration::from_secs(1), self.request()).await;
        assert!(request.is_err(), "{request:?}");
    }

    pub(super) async fn send(&mut self, version: &str, resources: &[Any]) {
        self.send_response(&response(version, resources)).await;
    }

    pub(super) async fn send_response(&mut self, response: &Response) {
        self.send_raw(framed(&response.encode_to_vec())).await;
    }

    pub(super) async fn send_raw(&mut self, data: Bytes) {
        self.out().send_data(data, false).unwrap();
        tokio::task::yield_now().await;
    }

    /// Ends the stream with a status of gRPC.
    pub(super) async fn end(mut self, code: u8, message: &str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.to_string().parse().unwrap());
        trailers.insert("grpc-message", message.parse().unwrap());
        self.out().send_trailers(trailers).unwrap();
        // The connection goes on until the client has ended it.
        while self.connection.join_next().await.is_some() {}
    }

    /// Keeps the connection open and reads it no more.
    pub(super) fn freeze(&self) {
        self.frozen.notify_one();
    }

    /// The way to the client, with the head of the response.
    fn out(&mut self) -> &mut SendStream<Bytes> {
        self.out.get_or_insert_with(|| {
            let head = HttpResponse::builder().header("content-type", "application/grpc").body(()).unwrap();
            self.respond.send_response(head, false).unwrap()
        })
    }
}

/// Ends a wait that would be for ever. The source's timers let virtual time pass.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(3600), future).await.expect("within an hour")
}

/// Connections in memory to a server of HTTP/2 that hands each stream to the test.
fn dial(streams: mpsc::UnboundedSender<Stream>, is_refusing: Arc<AtomicBool>) -> Dial {
    Arc::new(move |_, _| {
        let (streams, is_refusing) = (streams.clone(), Arc::clone(&is_refusing));
        async move {
            if is_refusing.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let (client, server) = tokio::io::duplex(64 * 1024);
            tokio::spawn(accept(server, streams));
            Ok(Box::new(client) as Box<dyn Io>)
        }
        .boxed()
    })
}

/// One stream of a connection. Its test goes on with the connection.
async fn accept(io: DuplexStream, streams: mpsc::UnboundedSender<Stream>) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    let Some(Ok((request, respond))) = connection.accept().await else { return };
    let mut driver = JoinSet::new();
    let frozen = Arc::new(Notify::new());
    let is_frozen = Arc::clone(&frozen);
    driver.spawn(async move {
        tokio::select! {
            () = async { while connection.accept().await.is_some() {} } => return,
            () = is_frozen.notified() => {}
        }
        std::future::pending::<()>().await;
    });
    let path = request.uri().path().to_owned();
    let body = request.into_body();
    let stream = Stream { path, body, buffer: BytesMut::new(), respond, out: None, frozen, connection: driver };
    let _ = streams.send(stream);
}

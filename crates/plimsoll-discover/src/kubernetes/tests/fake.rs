//! An API server in virtual time whose answers the test gives, one request after the other.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use plimsoll::discover::Discover as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::api::{Dial, Io};
use super::super::{EndpointSlices, ServicePort};

/// A source and the server that it asks.
pub(super) struct Fake {
    calls: mpsc::UnboundedReceiver<Call>,
    answers: mpsc::UnboundedReceiver<Result<Vec<String>, String>>,
    is_refusing: Arc<AtomicBool>,
    folder: PathBuf,
    source: tokio::task::JoinHandle<()>,
}

/// A request.
pub(super) struct Call {
    pub(super) target: String,
    pub(super) authorization: Option<String>,
    stream: DuplexStream,
}

/// A running watch. To drop it ends the connection.
pub(super) struct Watch(DuplexStream);

impl Fake {
    /// For the service `web` in the namespace of the account, `shop`, by its port http.
    pub(super) fn new() -> Self {
        Self::with(|source| source.port(ServicePort::Named("http".to_owned())))
    }

    pub(super) fn with(change: impl FnOnce(EndpointSlices) -> EndpointSlices) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("plimsoll-kubernetes-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("namespace"), "shop\n").unwrap();
        fs::write(folder.join("token"), "secret-1\n").unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let is_refusing = Arc::new(AtomicBool::new(false));
        let source = EndpointSlices::new("web").unwrap().service_account(&folder);
        let mut source = change(source.server("http://127.0.0.1:1".parse().unwrap()));
        source.api_mut().dial = dial(sender, Arc::clone(&is_refusing));
        let (answered, answers) = mpsc::unbounded_channel();
        let source = tokio::spawn(async move {
            while let Some(answer) = source.next().await {
                let shown = |list: Vec<plimsoll::discover::Endpoint>| {
                    list.iter().map(|e| format!("{} {:?}", e.address, e.readiness)).collect()
                };
                if answered.send(answer.map(shown).map_err(|error| error.to_string())).is_err() {
                    break;
                }
            }
        });
        Self { calls, answers, is_refusing, folder, source }
    }

    /// The next request.
    pub(super) async fn call(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// The next request, which has to be for the first page of a list.
    pub(super) async fn list(&mut self) -> Call {
        let call = self.call().await;
        assert!(call.is_list(), "{}", call.target);
        call
    }

    /// The next request, which has to be for a watch from this version.
    pub(super) async fn watch(&mut self, version: &str) -> Watch {
        let call = self.call().await;
        assert!(call.target.contains("&watch=true&allowWatchBookmarks=true&"), "{}", call.target);
        assert!(call.target.contains(&format!("&resourceVersion={version}&")), "{}", call.target);
        call.watch().await
    }

    /// A list of these slices, and a watch from its version, 10.
    pub(super) async fn started(slices: &[Value]) -> (Self, Watch) {
        let mut fake = Self::new();
        fake.list().await.list("10", "", slices).await;
        let watch = fake.watch("10").await;
        fake.answer().await;
        (fake, watch)
    }

    /// The next list of backends.
    pub(super) async fn answer(&mut self) -> Vec<String> {
        self.answers.recv().await.unwrap().unwrap()
    }

    /// The next error.
    pub(super) async fn error(&mut self) -> String {
        self.answers.recv().await.unwrap().unwrap_err()
    }

    /// There is no answer for a second.
    pub(super) async fn assert_silent(&mut self) {
        let answer = timeout(Duration::from_secs(1), self.answers.recv()).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    pub(super) fn refuse(&self, is_refusing: bool) {
        self.is_refusing.store(is_refusing, Ordering::Relaxed);
    }

    pub(super) fn write_token(&self, token: &str) {
        fs::write(self.folder.join("token"), token).unwrap();
    }

    pub(super) fn remove(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    pub(super) fn drop_source(&self) {
        self.source.abort();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.source.abort();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn dial(calls: mpsc::UnboundedSender<Call>, is_refusing: Arc<AtomicBool>) -> Dial {
    Arc::new(move |_, _| {
        let (calls, is_refusing) = (calls.clone(), Arc::clone(&is_refusing));
        Box::pin(async move {
            if is_refusing.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let (client, server) = tokio::io::duplex(64 * 1024);
            tokio::spawn(accept(server, calls));
            Ok(Box::new(client) as Box<dyn Io>)
        })
    })
}

async fn accept(mut stream: DuplexStream, calls: mpsc::UnboundedSender<Call>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap().to_owned();
    let authorization = head.lines().find_map(|line| line.strip_prefix("authorization: ")).map(str::to_owned);
    let _ = calls.send(Call { target, authorization, stream });
}

impl Call {
    pub(super) fn is_list(&self) -> bool {
        self.target
            == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name%3Dweb\
                &limit=500"
    }

    pub(super) async fn answer(mut self, status: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = self.stream.write_all(head.as_bytes()).await;
        let _ = self.stream.write_all(body).await;
    }

    pub(super) async fn refuse(self, status: &str, message: &str) {
        self.answer(status, json!({"kind": "Status", "message": message}).to_string().as_bytes()).await;
    }

    pub(super) async fn list(self, version: &str, next: &str, slices: &[Value]) {
        let list = json!({"metadata": {"resourceVersion": version, "continue": next}, "items": slices});
        self.answer("200 OK", list.to_string().as_bytes()).await;
    }

    pub(super) async fn watch(mut self) -> Watch {
        self.stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        Watch(self.stream)
    }
}

impl Watch {
    pub(super) async fn send(&mut self, kind: &str, object: &Value) {
        self.raw(format!("{}\n", json!({"type": kind, "object": object})).as_bytes()).await;
    }

    pub(super) async fn bookmark(&mut self, version: &str) {
        self.send("BOOKMARK", &json!({"kind": "EndpointSlice", "metadata": {"resourceVersion": version}})).await;
    }

    /// Bytes in a chunk of their own.
    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let _ = self.0.write_all(&chunk).await;
    }

    /// Ends as the server does after `timeoutSeconds`.
    pub(super) async fn end(mut self) {
        self.0.write_all(b"0\r\n\r\n").await.unwrap();
    }

    /// Waits until the client ended the connection.
    pub(super) async fn ended(mut self) {
        assert_eq!(self.0.read(&mut [0]).await.unwrap_or(0), 0);
    }
}

/// A slice with the port http and these addresses.
pub(super) fn slice(name: &str, version: &str, addresses: &[String]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    json!({
        "metadata": {"name": name, "resourceVersion": version, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// `10.0.0.FIRST` and the following.
pub(super) fn addresses(first: usize, count: usize) -> Vec<String> {
    (first..first + count).map(|last| format!("10.0.0.{last}")).collect()
}

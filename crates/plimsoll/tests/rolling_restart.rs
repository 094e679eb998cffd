//! Both sides of the library together: servers that leave in good order, and a client that follows.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use plimsoll::client::{Client, Cluster, Protocol};
use plimsoll::server::{DrainConfig, Lifecycle, ServeConfig, ServerLayer, serve};
use plimsoll_core::health::State;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use support::{plain_config, state_of, until};

/// Requests at any time.
const CONCURRENCY: usize = 8;
const ROUNDS: usize = 3;

#[tokio::test]
async fn no_request_fails_over_http1() {
    restart_under_load(Protocol::Http1).await;
}

#[tokio::test]
async fn no_request_fails_over_http2() {
    restart_under_load(Protocol::Http2).await;
}

async fn restart_under_load(protocol: Protocol) {
    let mut servers = [Process::start("127.0.0.1:0").await, Process::start("127.0.0.1:0").await];
    let addresses = servers.each_ref().map(|server| server.address);
    let mut config = plain_config();
    config.requests.protocol = protocol;
    let cluster = Cluster::new("test", config, addresses);
    tokio::spawn(cluster.run());
    let all_healthy = || addresses.iter().all(|address| state_of(&cluster, *address) == State::Healthy);
    until(all_healthy).await;

    let load = Load::start(&cluster);
    for _ in 0..ROUNDS {
        for server in &mut servers {
            let address = server.address;
            load.more().await;
            server.lifecycle.lame_duck();
            (&mut server.task).await.unwrap();
            *server = Process::start(address).await;
            until(all_healthy).await;
        }
    }
    load.more().await;
    load.stop().await;
    assert_eq!(support::active(&cluster), 0);
}

/// A server as a process would be: it comes, serves, drains and goes.
struct Process {
    address: SocketAddr,
    lifecycle: Lifecycle,
    task: JoinHandle<()>,
}

impl Process {
    async fn start(address: impl tokio::net::ToSocketAddrs) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        let milliseconds = Duration::from_millis;
        let mut drain = DrainConfig::default();
        drain.quiet = milliseconds(20);
        drain.announce = milliseconds(40);
        drain.drain = milliseconds(5000);
        let mut config = ServeConfig::default();
        config.drain = drain;
        let echo = tower::service_fn(|request: Request<Incoming>| async {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Response::new(Full::new(body)))
        });
        // All servers and their clients are in this process: none of them knows its share of the
        // CPU.
        let reports = ServerLayer::builder(lifecycle.clone()).admission(None).build();
        let task = tokio::spawn(async move {
            let _end = serve([listener], echo, reports, config).await;
        });
        Self { address, lifecycle, task }
    }
}

/// Tasks that send one request after the other, and fail if one does.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(cluster: &Cluster) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = Client::<Full<Bytes>>::new(cluster);
        let tasks = (0..CONCURRENCY).map(|_| tokio::spawn(send_on(client.clone(), stop.clone(), done.clone())));
        Self { tasks: tasks.collect(), stop, done }
    }

    /// Waits until another hundred requests are done.
    async fn more(&self) {
        let goal = self.done.load(Ordering::SeqCst) + 100;
        until(|| self.done.load(Ordering::SeqCst) >= goal).await;
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn send_on(client: Client<Full<Bytes>>, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) {
    while !stop.load(Ordering::SeqCst) {
        // With a body and no idempotent method: nothing here may be sent twice.
        let request = Request::builder().method(Method::POST).uri("/").body(Full::from("payload")).unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "payload");
        done.fetch_add(1, Ordering::SeqCst);
    }
}

//! Connections that take longer to open than the requests for them have time.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Empty};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::client::{Check, Client, Cluster, ClusterConfig, Protocol};
use plimsoll_core::health::State;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use support::*;

/// A listener that accepts no connections. Once its queue is full, its kernel answers no further
/// ones.
struct Full {
    listener: TcpListener,
    address: SocketAddr,
    _waiting: Vec<TcpStream>,
}

impl Full {
    /// Full, but for those that `cluster` has opened meanwhile and found to be healthy.
    async fn of(config: ClusterConfig) -> (Self, Cluster) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let cluster = Cluster::new("test", config, [address]);
        tokio::spawn(cluster.run());
        until(|| state_of(&cluster, address) == State::Healthy).await;
        let mut waiting = Vec::new();
        while let Ok(stream) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
        }
        (Self { listener, address, _waiting: waiting }, cluster)
    }
}

fn config(connect_timeout: Duration) -> ClusterConfig {
    let mut config = plain_config();
    config.check = Check::Tcp;
    config.pool.min_connections = 0;
    config.requests.connect_timeout = connect_timeout;
    // Its own checks would find it out as well.
    config.balancer.checks.interval = Duration::from_secs(3_600);
    config
}

#[tokio::test]
async fn who_has_no_time_to_wait_for_a_connection_finds_out_that_there_is_none() {
    let (full, cluster) = Full::of(config(Duration::from_millis(200))).await;
    let client: Client<_> = Client::new(&cluster);
    for _ in 0..10 {
        let left = tokio::time::timeout(Duration::from_millis(10), client.send(get("/"))).await;
        assert!(left.is_err(), "{left:?}");
    }
    until(|| state_of(&cluster, full.address) != State::Healthy).await;
    assert!(view_of(&cluster, full.address).counts.connections_failed > 0);
}

#[tokio::test]
async fn a_connection_that_nobody_waits_for_any_more_serves_the_next() {
    let (full, cluster) = Full::of(config(Duration::from_secs(20))).await;
    let client: Client<_> = Client::new(&cluster);
    let before = view_of(&cluster, full.address).counts.connections_opened;
    let left = tokio::time::timeout(Duration::from_millis(10), client.send(get("/"))).await;
    assert!(left.is_err(), "{left:?}");
    let (address, listener) = (full.address, full.listener);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 1_024];
                if stream.read(&mut head).await.is_ok_and(|len| len > 0) {
                    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                    // Until it is closed.
                    let _ = stream.read(&mut head).await;
                }
            });
        }
    });
    // The kernel asks again after a second.
    until(|| view_of(&cluster, address).counts.connections_opened == before + 1).await;
    client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.connections_opened, counts.connections_failed), (before + 1, 0));
}

/// The runtime that a connection is opened on may end before any other that asks for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_that_ends_with_its_runtime_leaves_nobody_waiting() {
    let mut settings = config(Duration::from_secs(20));
    settings.requests.protocol = Protocol::Http2;
    let (full, cluster) = Full::of(settings).await;
    let client: Client<_> = Client::new(&cluster);
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let opening = client.clone();
    let left =
        other.spawn(async move { tokio::time::timeout(Duration::from_millis(50), opening.send(get("/"))).await });
    assert!(left.await.unwrap().is_err());
    other.shutdown_background();
    tokio::spawn(async move {
        while let Ok((stream, _)) = full.listener.accept().await {
            tokio::spawn(async move {
                let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
                let serving = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                let _ = serving.await;
            });
        }
    });
    let answer = tokio::time::timeout(Duration::from_secs(10), client.send(get("/"))).await;
    assert!(answer.unwrap().is_ok());
}

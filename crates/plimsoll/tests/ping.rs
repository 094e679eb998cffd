//! PINGs on HTTP/2 connections to backends, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll::client::{Client, Cluster, ClusterConfig, Ping, Protocol};
use plimsoll_core::Ratio;
use plimsoll_core::health::State;
use plimsoll_core::retry::BudgetConfig;
use tokio::net::TcpListener;

use support::*;

const INTERVAL: Duration = Duration::from_millis(50);

fn config(interval: Duration) -> ClusterConfig {
    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    config.pool.ping = Some(Ping::every(interval).timeout(INTERVAL));
    config.retry.budget = BudgetConfig { share: Ratio::ONE, floor: 1_000 };
    config
}

async fn healthy(cluster: Cluster) -> Cluster {
    tokio::spawn(cluster.run());
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    cluster
}

/// A peer that accepts requests, and then stands still as a stopped process does; and their number.
async fn hanging() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                let Some(Ok(request)) = connection.accept().await else { return };
                count.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                drop((connection, request));
            });
        }
    });
    (address, requests)
}

#[tokio::test]
async fn request_on_a_connection_without_pong_is_retried_elsewhere() {
    let ((hangs, seen), quick) = (hanging().await, Server::start(Speaks::Http2(100), |_| text("ok")).await);
    let cluster = healthy(Cluster::new("test", config(INTERVAL), [hangs, quick.address])).await;
    let client = Client::new(&cluster);
    let begun = Instant::now();
    while seen.load(Ordering::SeqCst) == 0 {
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
        assert!(begun.elapsed() < Duration::from_secs(10), "far less than request_timeout");
    }
    assert_eq!(cluster.counts().retries, [("closed", "answered", 1)]);
}

/// Six intervals pass before the response. A peer that reads answers each PING.
#[tokio::test]
async fn slow_response_on_a_connection_with_pongs_is_waited_for() {
    let slow = Server::start(Speaks::Http2(100), |_| {
        Box::pin(async {
            tokio::time::sleep(INTERVAL * 6).await;
            text("slow").await
        })
    })
    .await;
    let mut config = config(INTERVAL);
    // A pong may be late on a busy machine.
    config.pool.ping = Some(Ping::every(INTERVAL).timeout(Duration::from_secs(10)));
    let cluster = healthy(Cluster::new("test", config, [slow.address])).await;
    let response = Client::new(&cluster).send(get("/")).await.unwrap();
    assert_eq!((response.status(), slow.requests()), (StatusCode::OK, 1));
}

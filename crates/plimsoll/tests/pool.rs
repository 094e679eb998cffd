//! Connections that requests share.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use plimsoll::client::{Client, Cluster, Error, Protocol};
use plimsoll::tls::{TlsConfig, TlsTrust};
use tokio::sync::Semaphore;

use support::*;

type Plain = Client<Empty<Bytes>>;

/// This number of pieces, each counted when it is taken.
fn pieces(piece: &'static [u8], count: usize, taken: Arc<AtomicUsize>) -> Answer {
    let frames = (0..count).map(move |_| {
        taken.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece)))
    });
    now(Response::new(Body::new(StreamBody::new(stream::iter(frames)))))
}

/// A client of a server that answers each request with `count` pieces over HTTP/2, and the number
/// of pieces sent.
async fn streaming(piece: &'static [u8], count: usize, max_streams: u32) -> (Server, Cluster, Plain, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let server = Server::start(Speaks::Http2(100), move |_| pieces(piece, count, counted.clone())).await;
    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    config.pool.max_streams = NonZeroU32::new(max_streams).unwrap();
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    (server, cluster, client, taken)
}

#[tokio::test]
async fn answers_that_nobody_reads_do_not_stop_the_others_on_their_connection() {
    let (server, cluster, client, _) = streaming(&[7; 64 * 1024], 256, 20).await;
    let mut unread = Vec::new();
    for _ in 0..19 {
        unread.push(client.send(get("/")).await.unwrap());
    }
    let last = client.send(get("/")).await.unwrap();
    // It is long enough for the others to have taken all that they can get before it is over.
    let read = tokio::time::timeout(Duration::from_secs(20), last.into_body().collect()).await;
    assert_eq!(read.expect("it goes on").unwrap().to_bytes().len(), 16 * 1024 * 1024);
    assert_eq!(view_of(&cluster, server.address).counts.connections_open(), 1);
    drop(unread);
}

#[tokio::test]
async fn short_messages_that_nobody_reads_do_not_end_their_connection() {
    let (server, cluster, client, taken) = streaming(b"0123456789", 10_000, 20).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(client.send(get("/")).await.unwrap());
    }
    until(|| taken.load(Ordering::SeqCst) == 30_000).await;
    for answer in unread {
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 100_000);
    }
    assert_eq!(view_of(&cluster, server.address).counts.connections_open(), 1);
}

/// The server speaks no TLS: later answers came over an earlier connection.
#[tokio::test]
async fn a_change_of_tls_ends_idle_connections_at_once_and_others_with_their_requests() {
    for (protocol, speaks) in [(Protocol::Http1, Speaks::Http1), (Protocol::Http2, Speaks::Http2(100))] {
        let gate = Arc::new(Semaphore::new(0));
        let gated = gate.clone();
        let server = Server::start(speaks, move |request| {
            let gate = (request.uri().path() == "/slow").then(|| gated.clone());
            Box::pin(async move {
                if let Some(gate) = gate {
                    gate.acquire().await.unwrap().forget();
                }
                text("ok").await
            })
        })
        .await;
        let mut config = plain_config();
        config.requests.protocol = protocol;
        config.pool.min_connections = 1;
        let cluster = running(config.clone(), &[&server]).await;
        let client = Plain::new(&cluster);
        let slow = client.clone();
        let slow = tokio::spawn(async move { slow.send(get("/slow")).await?.into_body().collect().await });
        until(|| server.requests() == 1).await;
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();

        config.tls = Some(TlsConfig::new(TlsTrust::Anybody, None, None));
        cluster.set_config(config);
        // One to be there in their place was tried.
        until(|| view_of(&cluster, server.address).counts.connections_failed > 0).await;
        until(|| server.open_connections() == 1).await;
        let error = client.send(get("/")).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. } | Error::NoBackend), "{error}");
        assert_eq!(server.requests(), 2);

        gate.add_permits(1);
        assert_eq!(slow.await.unwrap().unwrap().to_bytes(), "ok");
        until(|| server.open_connections() == 0).await;
        until(|| view_of(&cluster, server.address).counts.connections_open() == 0).await;
    }
}

/// Connections of the server at `address`: opened, closed, and open now.
fn connections(cluster: &Cluster, server: &Server) -> (u64, u64, u64) {
    let counts = view_of(cluster, server.address).counts;
    (counts.connections_opened, counts.connections_closed, counts.connections_open())
}

#[tokio::test]
async fn no_connection_is_opened_in_advance_by_default() {
    let server = Server::plain().await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(connections(&cluster, &server), (1, 0, 1));
}

#[tokio::test]
async fn connection_of_one_request_is_not_replaced_after_an_announced_end() {
    let server = Server::start(Speaks::Http1, |_| {
        now(Response::builder().header("connection", "close").body(Body::new(Empty::new())).unwrap())
    })
    .await;
    let mut config = plain_config();
    // Even where it is asked for: the backend does not keep it.
    config.pool.min_connections = 1;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    for _ in 0..10 {
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    }
    // The connections of the requests, and one from before the first response, used or idle.
    until(|| connections(&cluster, &server).2 <= 1).await;
    let (opened, ..) = connections(&cluster, &server);
    assert!((10..=11).contains(&opened), "{opened}");
}

#[tokio::test]
async fn each_connection_carries_one_request_where_none_is_kept_idle() {
    let server = Server::plain().await;
    let mut config = plain_config();
    config.pool.max_idle_connections = 0;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    for sent in 1..=5 {
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
        until(|| connections(&cluster, &server) == (sent, sent, 0)).await;
    }
}

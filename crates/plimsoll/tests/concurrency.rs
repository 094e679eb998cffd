//! A server with a concurrency limit: the waiting requests, their order, and those without a place.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use parking_lot::Mutex;
use plimsoll::server::{Lifecycle, Mode, Phase, QueueConfig, ServerBody, ServerLayer, Trust};
use plimsoll_core::{Criticality, Rejection};
use plimsoll_wire::shed::Shed;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::{Layer as _, ServiceExt as _};

type Answer = Response<ServerBody<Full<Bytes>>>;

/// A server with a limit. The test ends its handlers one by one.
struct Server {
    layer: ServerLayer,
    lifecycle: Lifecycle,
    may_end: Arc<Semaphore>,
    /// Paths of the requests that were begun.
    begun: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(limit: QueueConfig, mode: impl Into<Option<Mode>>) -> Self {
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        let layer =
            ServerLayer::builder(lifecycle.clone()).trust(Trust::Full).admission(mode).concurrency_limit(limit).build();
        Self { layer, lifecycle, may_end: Arc::new(Semaphore::new(0)), begun: Arc::default() }
    }

    /// Sends a request, and waits until it has begun or stands in the queue.
    async fn send(&self, path: &str, criticality: Criticality) -> JoinHandle<Answer> {
        let (may_end, begun) = (Arc::clone(&self.may_end), Arc::clone(&self.begun));
        let service = tower::service_fn(move |request: Request<Empty<Bytes>>| {
            begun.lock().push(request.uri().path().to_owned());
            let may_end = Arc::clone(&may_end);
            async move {
                may_end.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Full::from("served")))
            }
        });
        let request = Request::get(path).header("x-criticality", criticality.name()).body(Empty::new()).unwrap();
        let service = self.layer.layer(service);
        let sent = tokio::spawn(async move { service.oneshot(request).await.unwrap() });
        tokio::task::yield_now().await;
        sent
    }

    fn begun(&self) -> Vec<String> {
        self.begun.lock().clone()
    }
}

fn reason(answer: &Answer) -> Option<Rejection> {
    Shed::read(answer.status(), answer.headers())?.reason
}

fn limit(places: usize, longest: usize) -> QueueConfig {
    let mut config = QueueConfig::new(places).unwrap();
    config.max_waiting = longest;
    config
}

#[tokio::test(start_paused = true)]
async fn no_more_are_in_progress_than_allowed_and_the_most_critical_is_next() {
    for mode in [Some(Mode::Protect), None] {
        let server = Server::new(limit(2, 8), mode);
        let mut sent = Vec::new();
        for (path, criticality) in [
            ("/1", Criticality::Critical),
            ("/2", Criticality::Critical),
            ("/3", Criticality::Sheddable),
            ("/4", Criticality::Critical),
            ("/5", Criticality::CriticalPlus),
        ] {
            sent.push(server.send(path, criticality).await);
        }
        assert_eq!(server.begun(), ["/1", "/2"]);
        server.may_end.add_permits(5);
        // Each has its place until its body has ended.
        let body = async |sent: JoinHandle<Answer>| sent.await.unwrap().into_body().collect().await.unwrap().to_bytes();
        let bodies = join_all(sent.into_iter().map(body)).await;
        assert!(bodies.iter().all(|body| body == "served"), "{bodies:?}");
        assert_eq!(server.begun(), ["/1", "/2", "/5", "/4", "/3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_away_and_tells_where_to_go() {
    let server = Server::new(limit(1, 1), Mode::Protect);
    let _in_progress = server.send("/1", Criticality::Critical).await;
    let waits = server.send("/2", Criticality::Critical).await;
    let refused = server.send("/3", Criticality::Sheddable).await.await.unwrap();
    assert_eq!((refused.status(), reason(&refused)), (StatusCode::SERVICE_UNAVAILABLE, Some(Rejection::Overloaded)));
    let counts = server.layer.admission().by_criticality;
    assert_eq!(counts[Criticality::Sheddable.rank()].shed_for(Rejection::Overloaded), 1);
    assert_eq!(counts[Criticality::Critical.rank()].admitted, 1);
    // Nobody's turn comes.
    let late = waits.await.unwrap();
    assert_eq!(reason(&late), Some(Rejection::Overloaded));
    assert_eq!(server.begun(), ["/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_gives_up_its_place_in_the_queue() {
    let server = Server::new(limit(1, 8), Mode::Protect);
    let first = server.send("/1", Criticality::Critical).await;
    server.send("/2", Criticality::Critical).await.abort();
    let third = server.send("/3", Criticality::Critical).await;
    server.may_end.add_permits(2);
    drop(first.await.unwrap());
    assert_eq!(third.await.unwrap().status(), StatusCode::OK);
    assert_eq!(server.begun(), ["/1", "/3"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drains_waits_for_those_in_the_queue() {
    let server = Server::new(limit(1, 8), Mode::Protect);
    let sent = [server.send("/1", Criticality::Critical).await, server.send("/2", Criticality::Critical).await];
    assert_eq!(server.lifecycle.active_requests(), 2);
    server.lifecycle.lame_duck();
    assert!(server.lifecycle.phase() >= Phase::LameDuck);
    server.may_end.add_permits(2);
    for sent in sent {
        assert_eq!(sent.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(server.lifecycle.active_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_lets_all_begin_and_counts_who_would_have_waited() {
    let server = Server::new(limit(1, 8), Mode::DryRun);
    let mut sent = Vec::new();
    for path in ["/1", "/2", "/3"] {
        sent.push(server.send(path, Criticality::Critical).await);
    }
    assert_eq!(server.begun(), ["/1", "/2", "/3"]);
    assert_eq!(
        server.layer.admission().by_criticality[Criticality::Critical.rank()].shed_for(Rejection::Overloaded),
        2
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    server.may_end.add_permits(3);
    for sent in sent {
        assert_eq!(sent.await.unwrap().status(), StatusCode::OK);
    }
}

//! Requests that are sent again, and requests that are not sent at all, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod bodies;
mod elsewhere;
mod failures;
mod hedges;
mod overdue;
#[path = "../support/mod.rs"]
mod support;
mod telling;
mod throttle;
mod waits;

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::client::{
    Batch, Client, Cluster, ClusterConfig, ClusterCounts, Error, FailedAttempt, Failure, Idempotent, NextStep,
    NoRetryReason, Protocol, RequestOptions, RetryPolicy,
};
use plimsoll_core::batch::BatchConfig;
use plimsoll_core::health::State;
use plimsoll_core::rejection::Retry;
use plimsoll_core::retry::{BudgetConfig, CallerAnswer, MaxAttempts};
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{Criticality, Ratio, Rejection};
use plimsoll_wire::grpc::Code;
use plimsoll_wire::shed::{self, Shed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use support::*;

/// Retries that a test never runs out of.
fn rich() -> ClusterConfig {
    let mut config = plain_config();
    config.retry.budget = BudgetConfig { share: Ratio::ONE, floor: 1_000 };
    config
}

/// An answer without service, as a gate of ours gives it.
fn shed(reason: Rejection, is_grpc: bool) -> Answer {
    now(shed::head(reason, is_grpc, None).map(|()| Empty::new().boxed()))
}

/// The headers of the requests that came to a server.
type Seen = Arc<Mutex<Vec<HeaderMap>>>;

/// A server that sheds all requests, and records them.
async fn overloaded(speaks: Speaks, is_grpc: bool) -> (Server, Seen) {
    refusing(speaks, move || shed(Rejection::Overloaded, is_grpc)).await
}

async fn refusing(speaks: Speaks, answer: impl Fn() -> Answer + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let server = Server::start(speaks, move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        answer()
    })
    .await;
    (server, seen)
}

/// A server that echoes bodies, and records requests.
async fn echo(speaks: Speaks) -> (Server, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let server = Server::start(speaks, move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        Box::pin(async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(Full::new(body).boxed())
        })
    })
    .await;
    (server, seen)
}

fn post(body: &'static [u8]) -> Request<Full<Bytes>> {
    Request::post("/").body(Full::new(Bytes::from_static(body))).unwrap()
}

async fn whole(response: Response<plimsoll::client::ResponseBody>) -> (StatusCode, Bytes) {
    (response.status(), response.into_body().collect().await.unwrap().to_bytes())
}

fn given_up(counts: &ClusterCounts, why: NoRetryReason) -> u64 {
    counts.given_up[NoRetryReason::ALL.iter().position(|listed| *listed == why).unwrap()]
}

/// A peer that refuses each stream, unseen, and their number.
async fn refusing_streams() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let streams = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let streams = streams.clone();
            tokio::spawn(async move {
                // A health check closes before it says anything.
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    streams.fetch_add(1, Ordering::Relaxed);
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
            });
        }
    });
    (address, count)
}

//! A server that protects itself: its decisions, its measurements and the context it passes on.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cohorts;
mod context;
mod cost;
mod decisions;
mod limits;
mod load_average;
mod remote;
mod trust;

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream;
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::client::{Client, Cluster, ClusterConfig};
use plimsoll::server::shedding::Verdict;
use plimsoll::server::{
    Classifier, Cohort, Customer, Lifecycle, Mode, Outlook, Pressure, QueueConfig, Quota, RequestContext, ServerBody,
    ServerLayer, ServerLayerBuilder, Signal, Trust, bind, charge, current, pressure, spawn, spawn_blocking, used,
};
use plimsoll_core::rejection::Retry;
use plimsoll_core::{Criticality, Rejection, Speed};
use plimsoll_wire::grpc::Code;
use plimsoll_wire::metadata::Metadata;
use plimsoll_wire::shed::Shed;
use rustix::time::{ClockId, clock_gettime};
use tower::{Layer as _, Service, ServiceExt as _};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = BoxFuture<'static, Result<Response<Body>, Infallible>>;

/// A server so small that any request overloads it.
fn tiny() -> ServerLayerBuilder {
    builder().cpus(0.01)
}

fn builder() -> ServerLayerBuilder {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let builder = ServerLayer::builder(lifecycle).trust(Trust::Full).readiness_path("/readyz");
    builder.customer_header(HeaderName::from_static("x-customer"))
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

fn with(mut request: Request<Empty<Bytes>>, headers: &[(&'static str, &str)]) -> Request<Empty<Bytes>> {
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

/// A service that answers with the result of `answer`.
fn service<F, Fut>(
    answer: F,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone
where
    F: Fn(Request<Empty<Bytes>>) -> Fut + Clone,
    Fut: Future<Output = String> + Send + 'static,
{
    tower::service_fn(move |request| {
        let answer = answer(request);
        Box::pin(async move { Ok(Response::new(Full::from(answer.await).boxed_unsync())) }) as Answer
    })
}

async fn text(response: Response<ServerBody<Body>>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

fn burn(cost: Duration) {
    let end = thread_cpu() + cost;
    while thread_cpu() < end {
        (0..1_000_u64).for_each(|number| {
            black_box(number);
        });
    }
}

const MS: Duration = Duration::from_millis(1);

/// More work than a tiny server can do in a second; none of it has ended, for nobody reads the
/// answers.
async fn overload(layer: &ServerLayer, criticality: Criticality) -> Vec<Response<ServerBody<Body>>> {
    let busy = service(|_| async {
        burn(5 * MS);
        String::new()
    });
    let requests = (0..40).map(|_| {
        let request = with(get("/busy"), &[("x-criticality", criticality.name())]);
        layer.layer(busy.clone()).oneshot(request)
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}

fn is_shed(response: &Response<ServerBody<Body>>) -> Option<Rejection> {
    Shed::read(response.status(), response.headers())?.reason
}

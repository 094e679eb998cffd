//! A service within the layer that is not always ready, and the requests that wait for it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use plimsoll::server::{Lifecycle, Mode, ServerLayer, current};
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer as _, Service, ServiceExt as _};

type Body = Full<Bytes>;

#[tokio::test]
async fn checks_are_answered_while_the_service_is_busy() {
    let service = layer(Mode::Protect).layer(Limited::new(0));
    let ready = service.clone().oneshot(get("/readyz")).now_or_never().expect("an answer at once").unwrap();
    assert_eq!(ready.status(), StatusCode::OK);
    let mut question = Request::post(CHECK_PATH).body(Full::new(grpc::frame(&HealthCheckRequest::default()))).unwrap();
    question.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
    let health = service.oneshot(question).now_or_never().expect("an answer at once").unwrap();
    assert_eq!((health.status(), Code::read(health.headers())), (StatusCode::OK, None));
}

#[tokio::test]
async fn who_waits_for_the_service_is_in_flight_and_is_served() {
    for mode in [Some(Mode::Protect), None] {
        let (layer, limited) = (layer(mode), Limited::new(0));
        let mut service = layer.layer(limited.clone());
        let waits = tokio::spawn(begin(&mut service));
        let gives_up = begin(&mut service);
        assert_eq!(layer.lifecycle().active_requests(), 2);
        drop(gives_up);
        limited.free.add_permits(1);
        assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
        // And the next without a wait.
        let served = begin(&mut service).now_or_never();
        assert_eq!(served.expect("an answer at once").unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn who_cannot_be_served_is_turned_away_and_waits_for_nobody() {
    let layer = builder().default_quota(plimsoll::server::Quota::hard(0.0).unwrap()).build();
    let answer = layer.layer(Limited::new(0)).oneshot(get("/")).now_or_never();
    assert_eq!(answer.expect("an answer at once").unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_service_that_will_never_be_ready_fails_the_request() {
    let limited = Limited::new(0);
    let mut service = layer(Mode::Protect).layer(limited.clone());
    let waits = begin(&mut service);
    limited.free.close();
    assert_eq!(waits.await.err(), Some("closed"), "while it was waited for");
    let comes = begin(&mut service);
    assert_eq!(comes.await.err(), Some("closed"), "at once");
}

/// Hands a request over; the layer takes it at any time.
fn begin<S: Service<Request<Body>, Error = &'static str>>(service: &mut S) -> S::Future {
    service.ready().now_or_never().expect("it is always ready").unwrap().call(get("/"))
}

fn builder() -> plimsoll::server::ServerLayerBuilder {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    ServerLayer::builder(lifecycle).readiness_path("/readyz")
}

fn layer(mode: impl Into<Option<Mode>>) -> ServerLayer {
    builder().admission(mode).build()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Full::default()).unwrap()
}

/// Serves a number of requests at a time, and fails for ever once its semaphore was closed.
struct Limited {
    free: Arc<Semaphore>,
    asks: Option<BoxFuture<'static, Result<OwnedSemaphorePermit, &'static str>>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Limited {
    fn new(free: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(free)), asks: None, permit: None }
    }
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        Self { free: Arc::clone(&self.free), asks: None, permit: None }
    }
}

impl Service<Request<Body>> for Limited {
    type Response = Response<Empty<Bytes>>;
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.permit.is_none() {
            let free = Arc::clone(&self.free);
            let asks = self
                .asks
                .get_or_insert_with(|| Box::pin(async move { free.acquire_owned().await.map_err(|_| "closed") }));
            let permit = ready!(asks.as_mut().poll(cx));
            self.asks = None;
            self.permit = Some(permit?);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let permit = self.permit.take().expect("the one that was asked is the one that is called");
        assert!(current().is_some());
        Box::pin(async move {
            drop(permit);
            Ok(Response::new(Empty::new()))
        })
    }
}

//! The classifiers of HTTP and gRPC in layers.
#![cfg(feature = "http")]

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use plimsoll_core::throttle::{Multiple, ThrottlePolicy};
use plimsoll_core::{BalancerConfig, Criticality, Ratio};
use plimsoll_tower::balance::ServiceList;
use plimsoll_tower::{Balance, BoxError, Grpc, Http, RequestFacts, RetryLayer, ThrottleLayer};
use proptest::prelude::*;
use tower::{Layer as _, Service, ServiceExt as _};

const ADAPTIVE: ThrottlePolicy = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: Duration::from_secs(120) };

fn shed() -> Response<()> {
    let response = Response::builder().status(503).header("x-plimsoll-shed", "reason=overloaded, retry=elsewhere");
    response.body(()).expect("valid")
}

#[tokio::test(start_paused = true)]
async fn shed_answers_throttle_and_errors_of_the_request_do_not() {
    for (answer, is_throttled) in [(200, false), (404, false), (500, false), (503, true)] {
        let layer = ThrottleLayer::with_policy(ADAPTIVE, Http::default());
        let mut client = layer.layer(tower::service_fn(|_: Request<()>| async move {
            if answer == 503 {
                Ok::<_, Infallible>(shed())
            } else {
                Ok(Response::builder().status(answer).body(()).expect("valid"))
            }
        }));
        for _ in 0..50 {
            client.ready().await.expect("ready").call(Request::new(())).await.ok();
        }
        let share = layer.throttle().throttled_share(Criticality::Critical);
        assert_eq!(share > Ratio::ZERO, is_throttled, "{answer}: {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn get_is_retried_after_a_bad_gateway_and_post_is_not() {
    for (method, attempts) in [("GET", 2), ("POST", 1)] {
        let seen = AtomicU32::new(0);
        let mut client = RetryLayer::new(Http::default()).layer(tower::service_fn(|_: Request<Full<Bytes>>| {
            let status = if seen.fetch_add(1, Ordering::Relaxed) == 0 { 502 } else { 200 };
            async move { Ok::<_, Infallible>(Response::builder().status(status).body(()).expect("valid")) }
        }));
        let request = Request::builder().method(method).body(Full::default()).expect("valid");
        client.ready().await.expect("ready").call(request).await.expect("an answer");
        assert_eq!(seen.load(Ordering::Relaxed), attempts, "{method}");
    }
}

type Frames = Vec<Result<Frame<Bytes>, BoxError>>;

/// A stream of frames.
struct Stream(std::vec::IntoIter<Result<Frame<Bytes>, BoxError>>);

impl futures_core::Stream for Stream {
    type Item = Result<Frame<Bytes>, BoxError>;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

fn trailers(pairs: &[(&'static str, &'static str)]) -> Result<Frame<Bytes>, BoxError> {
    let pairs = pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
    Ok(Frame::trailers(pairs.collect::<HeaderMap>()))
}

fn data() -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\0")))
}

/// The evidence of a call in the throttle: accepted (1 of 1), rejected (0 of 1) or none.
async fn evidence(frames: impl Fn() -> Frames, is_read: bool) -> &'static str {
    let layer = ThrottleLayer::with_policy(ADAPTIVE, Grpc::default());
    let mut client = layer.layer(tower::service_fn(|_: Request<()>| {
        let body = StreamBody::new(Stream(frames().into_iter()));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    // Two rejections by hand: the share tells how the third request counted.
    for _ in 0..2 {
        use plimsoll_core::retry::Advice;
        use plimsoll_tower::End;
        loop {
            let facts = RequestFacts::default();
            let throttle = layer.throttle();
            let Ok(permit) = throttle.begin(&facts) else { continue };
            permit.end(End::Overloaded(Advice::None));
            break;
        }
    }
    let share = || layer.throttle().throttled_share(Criticality::Critical).as_f64();
    loop {
        let before = share();
        let Ok(response) = client.ready().await.expect("ready").call(Request::new(())).await else { continue };
        if is_read {
            assert!(!response.body().is_end_stream(), "a reader must read on");
            response.into_body().collect().await.ok();
        } else {
            drop(response);
        }
        // Compared without its own request: the same, more, or less.
        return match share().total_cmp(&before) {
            std::cmp::Ordering::Less => "accepted",
            std::cmp::Ordering::Equal => "none",
            std::cmp::Ordering::Greater => "rejected",
        };
    }
}

#[tokio::test(start_paused = true)]
async fn call_ends_with_its_trailers() {
    let ok = || vec![data(), trailers(&[("grpc-status", "0")])];
    let pushed_back = || vec![trailers(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "5")])];
    let broken = || vec![data(), Err("reset".into())];
    assert_eq!(evidence(ok, true).await, "accepted");
    assert_eq!(evidence(pushed_back, true).await, "rejected");
    assert_eq!(evidence(|| vec![data()], true).await, "accepted", "it answered, with a failure");
    assert_eq!(evidence(broken, true).await, "none");
    assert_eq!(evidence(ok, false).await, "none", "the caller left");
}

/// A call counts at its backend until its body has ended or is dropped.
#[tokio::test(start_paused = true)]
async fn call_is_in_flight_until_its_body_ends() {
    let mut config = BalancerConfig::default();
    config.max_active_requests = std::num::NonZeroU32::MIN;
    let service = tower::service_fn(|_: Request<()>| async {
        let body = StreamBody::new(Stream(vec![data(), trailers(&[("grpc-status", "0")])].into_iter()));
        Ok::<_, Infallible>(Response::new(body))
    });
    let mut balance = Balance::new(config, ServiceList::new([("one", service)]), Grpc::default());
    let mut cx = Context::from_waker(Waker::noop());
    for is_read in [true, false] {
        let response = balance.ready().await.expect("ready").call(Request::new(())).await.expect("an answer");
        assert!(balance.poll_ready(&mut cx).is_pending(), "the body is not read");
        match is_read {
            true => drop(response.into_body().collect().await.expect("whole")),
            false => drop(response),
        }
        assert!(balance.poll_ready(&mut cx).is_ready());
    }
}

proptest! {
    /// Any fields of a response give some end, without a panic.
    #[test]
    fn classifiers_take_any_fields(
        status in 100..1000u16,
        name in prop::sample::select(vec![
            "grpc-status", "x-plimsoll-shed", "retry-after", "grpc-retry-pushback-ms", "x-amz-retry-after",
        ]),
        value in prop::collection::vec(prop_oneof![32..127u8, 128..=255u8], 0..40),
    ) {
        use plimsoll_tower::End;
        use plimsoll_tower::classify::{grpc_head_end, grpc_trailers_end, http_end};
        let mut headers = HeaderMap::new();
        headers.insert(name, http::HeaderValue::from_bytes(&value).expect("valid bytes"));
        headers.append("grpc-status", http::HeaderValue::from_static("14"));
        let status = http::StatusCode::from_u16(status).expect("in range");
        let by_status = http_end(status, &headers);
        prop_assert_eq!(by_status == End::Served, status.as_u16() < 500 && status != 429);
        prop_assert!(grpc_head_end(status, &headers).is_some() && grpc_trailers_end(Some(&headers)) != End::Cancelled);
    }
}

#[test]
fn body_of_a_call_passes_frames_and_hints_on() {
    let layer = ThrottleLayer::new(Grpc::default());
    let mut client = layer.layer(tower::service_fn(|_: Request<()>| async {
        let head = Response::builder().header("grpc-status", "0");
        Ok::<_, Infallible>(head.body(Full::new(Bytes::from_static(b"abc"))).expect("valid"))
    }));
    let mut future = pin!(client.call(Request::new(())));
    let std::task::Poll::Ready(Ok(response)) =
        std::future::Future::poll(future.as_mut(), &mut Context::from_waker(Waker::noop()))
    else {
        panic!("it is ready at once")
    };
    assert_eq!(response.body().size_hint().exact(), Some(3));
    assert!(!response.body().is_end_stream());
}

//! Bodies that are sent again: each attempt reads the whole body, within bounds of memory.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use plimsoll_core::Ratio;
use plimsoll_core::retry::BudgetConfig;
use plimsoll_tower::retry::{ReplayBody, ReplayError, ReplayLayer, ReplayLimits};
use plimsoll_tower::{BoxError, Http, RequestFacts, RetryBudget, RetryLayer};
use proptest::prelude::*;
use tower::{Layer as _, Service, ServiceExt as _};

/// The frames of a caller's body, one at a time.
type Frames = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

fn body_of(frames: &[&'static str]) -> Frames {
    let frames: Vec<_> = frames.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))).collect();
    StreamBody::new(futures_util::stream::iter(frames))
}

fn layer(limits: ReplayLimits) -> ReplayLayer<Http> {
    let budget = RetryBudget::new(BudgetConfig { share: Ratio::ONE, floor: 1_000 });
    RetryLayer::new(Http::default()).budget(budget).replay(limits)
}

fn idempotent<B>(body: B) -> Request<B> {
    let mut request = Request::post("/upload").header("x-id", "7").body(body).expect("valid");
    request.extensions_mut().insert(RequestFacts::default().idempotent());
    request
}

/// A backend that reads `reads` frames of the first attempt and answers 502, and serves the others.
#[derive(Clone)]
struct Backend {
    reads: usize,
    /// The frames of each attempt.
    seen: Arc<Mutex<Vec<Vec<String>>>>,
    /// The body of the first attempt, as a connection may hold it.
    held: Arc<Mutex<Option<ReplayBody<Frames>>>>,
    holds: bool,
}

impl Backend {
    fn new(reads: usize) -> Self {
        Self { reads, seen: Arc::default(), held: Arc::default(), holds: false }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").iter().map(|frames| frames.join(" ")).collect()
    }
}

fn text(frame: Frame<Bytes>) -> String {
    match frame.into_data() {
        Ok(data) => String::from_utf8(data.to_vec()).expect("text"),
        Err(frame) => format!("{:?}", frame.into_trailers().expect("trailers")),
    }
}

impl Service<Request<ReplayBody<Frames>>> for Backend {
    type Response = Response<()>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, BoxError>>>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<Frames>>) -> Self::Future {
        let this = self.clone();
        assert_eq!((request.uri().path(), &request.headers()["x-id"]), ("/upload", &"7".parse().expect("a value")));
        Box::pin(async move {
            let is_first = this.seen.lock().expect("no panic").is_empty();
            let (mut body, mut frames) = (request.into_body(), Vec::new());
            this.seen.lock().expect("no panic").push(Vec::new());
            let attempt = this.seen.lock().expect("no panic").len() - 1;
            while !is_first || frames.len() < this.reads {
                let Some(frame) = body.frame().await else { break };
                frames.push(text(frame?));
                this.seen.lock().expect("no panic")[attempt].clone_from(&frames);
            }
            if is_first && this.holds {
                *this.held.lock().expect("no panic") = Some(body);
            }
            Ok(Response::builder().status(if is_first { 502_u16 } else { 200 }).body(()).expect("valid"))
        })
    }
}

async fn status(layer: &ReplayLayer<Http>, backend: &Backend, body: Frames) -> u16 {
    let mut service = layer.layer(backend.clone());
    service.ready().await.expect("ready").call(idempotent(body)).await.expect("an answer").status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn retry_reads_kept_frames_and_then_the_rest_of_the_body() {
    for reads in 0..=4 {
        let backend = Backend::new(reads);
        assert_eq!(status(&layer(ReplayLimits::default()), &backend, body_of(&["a", "b", "c"])).await, 200);
        assert_eq!(backend.seen(), [["", "a", "a b", "a b c", "a b c"][reads], "a b c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_are_sent_again() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "9".parse().expect("a value"));
    let frames = vec![Ok(Frame::data(Bytes::from_static(b"a"))), Ok(Frame::trailers(trailers))];
    let backend = Backend::new(9);
    let body = StreamBody::new(futures_util::stream::iter(frames));
    assert_eq!(status(&layer(ReplayLimits::default()), &backend, body).await, 200);
    let seen = backend.seen();
    assert!(seen[0] == seen[1] && seen[0].contains("x-sum"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn body_above_its_bound_is_sent_whole_and_not_retried_once_read() {
    let limits = ReplayLimits::default().with_per_request(2);
    for (reads, status_expected, seen) in [(9, 502, &["a b c"][..]), (3, 502, &["a b c"]), (2, 200, &["a b", "a b c"])]
    {
        let backend = Backend::new(reads);
        assert_eq!(status(&layer(limits), &backend, body_of(&["a", "b", "c"])).await, status_expected, "{reads}");
        assert_eq!(backend.seen(), seen);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_layer_share_its_memory_and_give_it_back() {
    let layer = layer(ReplayLimits::default().with_total(4));
    for _ in 0..3 {
        let is_due = Arc::new(tokio::sync::Notify::new());
        let slow = tower::service_fn(|request: Request<ReplayBody<Frames>>| {
            let is_due = Arc::clone(&is_due);
            async move {
                request.into_body().collect().await?;
                is_due.notified().await;
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let mut service = layer.layer(slow);
        let mut call = pin!(service.ready().await.expect("ready").call(idempotent(body_of(&["aa", "b"]))));
        let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "three bytes are kept until the answer");
        let second = Backend::new(9);
        assert_eq!(status(&layer, &second, body_of(&["cc"])).await, 502, "one byte is left");
        is_due.notify_one();
        assert_eq!(call.as_mut().await.expect("an answer").status(), 200);
        drop(service);
        let third = Backend::new(9);
        assert_eq!(status(&layer, &third, body_of(&["cccc"])).await, 200);
    }
}

/// Set when woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn former_attempt_is_woken_and_its_body_fails() {
    let backend = Backend { holds: true, ..Backend::new(1) };
    assert_eq!(status(&layer(ReplayLimits::default()), &backend, body_of(&["a", "b"])).await, 200);
    let mut held = backend.held.lock().expect("no panic").take().expect("it was held");
    let error = held.frame().await.expect("not the end").expect_err("another attempt reads");
    assert_eq!(error.downcast_ref(), Some(&ReplayError::Superseded));

    // A body that is pending: the attempt that waits for it is woken by the next.
    let (sender, receiver) = pending_body();
    let bodies: Arc<Mutex<Vec<ReplayBody<_>>>> = Arc::default();
    let kept = Arc::clone(&bodies);
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let service = tower::service_fn(move |request: Request<ReplayBody<Receiver>>| {
        let (mut body, waker) = (request.into_body(), waker.clone());
        let is_first = kept.lock().expect("no panic").is_empty();
        let cx = &mut Context::from_waker(if is_first { &waker } else { Waker::noop() });
        assert!(Pin::new(&mut body).poll_frame(cx).is_pending());
        kept.lock().expect("no panic").push(body);
        let status: u16 = if is_first { 502 } else { 200 };
        async move { Ok::<_, BoxError>(Response::builder().status(status).body(()).expect("valid")) }
    });
    let mut service = layer(ReplayLimits::default()).layer(service);
    let response = service.ready().await.expect("ready").call(idempotent(receiver)).await.expect("an answer");
    assert_eq!((response.status().as_u16(), flag.0.load(Ordering::Relaxed)), (200, true));
    drop(sender);
}

/// A body that is pending as long as its sender lives.
struct Receiver(tokio::sync::oneshot::Receiver<()>);

fn pending_body() -> (tokio::sync::oneshot::Sender<()>, Receiver) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (sender, Receiver(receiver))
}

impl Body for Receiver {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll(cx).map(|_| None)
    }
}

/// Clients choose the framing by the size and the end of a body.
#[tokio::test(start_paused = true)]
async fn size_and_end_are_those_of_the_body_in_each_attempt() {
    for text in ["", "hello"] {
        let attempts = Arc::new(Mutex::new(0));
        let service = tower::service_fn(|request: Request<ReplayBody<Full<Bytes>>>| {
            let attempts = Arc::clone(&attempts);
            async move {
                let mut body = request.into_body();
                assert_eq!(
                    (body.size_hint().exact(), body.is_end_stream()),
                    (Some(text.len() as u64), text.is_empty())
                );
                while let Some(frame) = body.frame().await {
                    assert_eq!(frame.expect("a frame").into_data().expect("data"), text);
                }
                assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
                let mut attempts = attempts.lock().expect("no panic");
                *attempts += 1;
                let status: u16 = if *attempts == 1 { 502 } else { 200 };
                Ok::<_, BoxError>(Response::builder().status(status).body(()).expect("valid"))
            }
        });
        let mut service = layer(ReplayLimits::default()).layer(service);
        let call =
            service.ready().await.expect("ready").call(idempotent(Full::new(Bytes::from_static(text.as_bytes()))));
        assert_eq!(call.await.expect("an answer").status(), 200);
        assert_eq!(*attempts.lock().expect("no panic"), 2);
    }
}

proptest! {
    /// A retried body is the caller's, for any frames, bounds and reads of the first attempt. A body
    /// that fits its bounds is always retried.
    #[test]
    fn retried_body_is_whole(
        frames in prop::collection::vec(prop::sample::select(vec!["", "a", "bc", "def"]), 0..6),
        reads in 0..8_usize,
        per_request in 0..12_usize,
        total in 0..12_usize,
        holds: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("valid");
        runtime.block_on(async {
            let backend = Backend { holds, ..Backend::new(reads) };
            let limits = ReplayLimits::default().with_per_request(per_request).with_total(total);
            let found = status(&layer(limits), &backend, body_of(&frames)).await;
            let read: usize = frames.iter().take(reads).map(|frame| frame.len()).sum();
            let fits = read <= per_request.min(total);
            prop_assert_eq!(found, if fits { 200 } else { 502 });
            if let Some(retried) = backend.seen().get(1) {
                prop_assert_eq!(retried, &frames.join(" "));
            }
            Ok(())
        })?;
    }
}

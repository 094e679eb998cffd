//! Requests with bodies that take longer than the limit for an answer, or for a pause in it.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use plimsoll::client::{BackendView, Client, Error, Protocol, RetryPolicy};
use tokio::time::Instant;

use support::*;

/// The limit for an answer, and for a pause in it.
const LIMIT: Duration = Duration::from_millis(400);
/// Between two pieces of a body that goes on.
const PAUSE: Duration = Duration::from_millis(50);
/// A request that has not ended by then never does, however busy the machine.
const NEVER: Duration = Duration::from_secs(10);

type Upload = Request<UnsyncBoxBody<Bytes, Infallible>>;

/// The end of a request, its time, and the failures of its backend.
struct Ended {
    result: Result<Bytes, Error>,
    after: Duration,
    backend: BackendView,
}

impl Ended {
    /// Whether its answer paused for too long; and failures that its backend has for it.
    fn idle(&self) -> (bool, u64) {
        assert_eq!(self.backend.snapshot.active, 0);
        let is_idle = matches!(self.result, Err(Error::BodyIdle { after }) if after == LIMIT);
        (is_idle && self.backend.counts.timed_out == 1, self.backend.snapshot.failures)
    }

    /// Whether it was out of time; and failures that its backend has for it.
    fn late(&self) -> (bool, u64) {
        assert_eq!(self.backend.snapshot.active, 0);
        let is_late = matches!(self.result, Err(Error::Timeout { after, .. }) if after == LIMIT);
        (is_late && self.backend.counts.timed_out == 1, self.backend.snapshot.failures)
    }
}

fn upload(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Upload {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    Request::post("/").header("host", "h").body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

/// A piece after each pause.
fn trickle() -> impl Stream<Item = Bytes> + Send + 'static {
    stream::repeat(Bytes::from_static(b"piece")).then(async |piece| {
        tokio::time::sleep(PAUSE).await;
        piece
    })
}

/// The end of `request` at a server with this answer, each way: by either protocol, with its body
/// kept and not.
async fn each_way(request: fn() -> Upload, answer: fn(Request<hyper::body::Incoming>) -> Answer) -> Vec<Ended> {
    let ways = [Protocol::Http1, Protocol::Http2].map(|protocol| {
        [RetryPolicy::default(), RetryPolicy::OFF].map(|retry| async move {
            let speaks = if protocol == Protocol::Http2 { Speaks::Http2(100) } else { Speaks::Http1 };
            let server = Server::start(speaks, answer).await;
            let mut config = plain_config();
            (config.requests.protocol, config.requests.request_timeout, config.retry) = (protocol, LIMIT, retry);
            config.requests.body_idle_timeout = LIMIT;
            let cluster = running(config, &[&server]).await;
            let client = Client::new(&cluster);
            let began = Instant::now();
            let sent = tokio::time::timeout(NEVER, client.send(request())).await.expect("it ends");
            let result = match sent {
                Ok(response) => response.into_body().collect().await.map(|body| body.to_bytes()),
                Err(error) => Err(error),
            };
            let after = began.elapsed();
            Ended { result, after, backend: view_of(&cluster, server.address) }
        })
    });
    join_all(ways.into_iter().flatten()).await
}

/// Answers with how long the body was.
fn counting(request: Request<hyper::body::Incoming>) -> Answer {
    Box::pin(async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        text(if body.len() == 100 { "all" } else { "not all" }).await
    })
}

/// Begins its answer at once, and goes on with it when it has read all.
fn eager(request: Request<hyper::body::Incoming>) -> Answer {
    let (frames, body) = by_hand();
    tokio::spawn(async move {
        let body = request.into_body().collect().await;
        if body.is_ok_and(|body| body.to_bytes().len() == 100) {
            let _ = frames.send(Bytes::from_static(b"all"));
        }
    });
    now(Response::new(body))
}

/// Begins its answer at once, of an announced length, and says no more, though it reads all.
fn owing(request: Request<hyper::body::Incoming>) -> Answer {
    let (frames, body) = by_hand();
    tokio::spawn(async move {
        let _ = request.into_body().collect().await;
        frames.closed().await;
    });
    now(Response::builder().header("content-length", "3").body(body).unwrap())
}

/// Reads nothing and never answers.
fn deaf(request: Request<hyper::body::Incoming>) -> Answer {
    Box::pin(async move {
        let _unread = request;
        std::future::pending().await
    })
}

/// Reads all and never answers.
fn mute(request: Request<hyper::body::Incoming>) -> Answer {
    Box::pin(async move {
        let _ = request.into_body().collect().await;
        std::future::pending().await
    })
}

#[tokio::test]
async fn an_upload_that_goes_on_is_served_however_long_it_takes() {
    for ended in each_way(|| upload(trickle().take(20)), counting).await {
        assert_eq!(ended.result.unwrap(), "all");
        assert!(ended.after > 2 * LIMIT);
        assert_eq!((ended.backend.snapshot.failures, ended.backend.counts.timed_out), (0, 0));
    }
}

#[tokio::test]
async fn a_caller_that_sends_no_more_is_out_of_time_and_its_backend_not_to_blame() {
    for ended in each_way(|| upload(trickle().take(3).chain(stream::pending())), mute).await {
        assert_eq!(ended.late(), (true, 0), "{:?}", ended.result);
        assert!(ended.after >= LIMIT + 2 * PAUSE, "it counts from the last piece: {:?}", ended.after);
    }
    for ended in each_way(|| upload(stream::pending()), mute).await {
        assert_eq!(ended.late(), (true, 0), "{:?}", ended.result);
    }
}

#[tokio::test]
async fn a_backend_that_does_not_read_on_or_does_not_answer_is_to_blame() {
    let large = || upload(stream::repeat(Bytes::from_static(&[7; 64 * 1024])));
    let (small, slow) = (|| upload(stream::iter([Bytes::from_static(b"all")])), || upload(trickle().take(3)));
    for (request, answer) in
        [(large as fn() -> Upload, deaf as fn(_) -> Answer), (small, deaf), (small, mute), (slow, mute)]
    {
        for ended in each_way(request, answer).await {
            assert_eq!(ended.late(), (true, 1), "{:?}", ended.result);
            assert!(ended.after >= LIMIT);
        }
    }
}

/// Though its body goes on.
#[tokio::test]
async fn the_time_that_a_request_says_is_not_exceeded() {
    const SAID: Duration = Duration::from_millis(700);
    let grpc = || {
        let mut request = upload(trickle());
        request.headers_mut().insert("grpc-timeout", "700m".parse().unwrap());
        request
    };
    let envoy = || {
        let mut request = upload(trickle());
        request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "700".parse().unwrap());
        request
    };
    for request in [grpc as fn() -> Upload, envoy] {
        for ended in each_way(request, mute).await {
            assert_eq!(ended.late(), (true, 0), "{:?}", ended.result);
            assert!(ended.after >= SAID);
        }
    }
}

#[tokio::test]
async fn an_answer_may_pause_for_as_long_as_the_upload_beside_it_goes_on() {
    for ended in each_way(|| upload(trickle().take(20)), eager).await {
        assert_eq!(ended.result.unwrap(), "all");
        assert!(ended.after > 2 * LIMIT);
        assert_eq!((ended.backend.snapshot.failures, ended.backend.counts.timed_out), (0, 0));
    }
}

#[tokio::test]
async fn a_pause_in_both_directions_is_the_backends_failure_only_if_it_owes_something() {
    for answer in [eager as fn(_) -> Answer, owing] {
        for ended in each_way(|| upload(trickle().take(3).chain(stream::pending())), answer).await {
            assert_eq!(ended.idle(), (true, 0), "{:?}", ended.result);
            assert!(ended.after >= LIMIT + 2 * PAUSE, "it counts from the last piece: {:?}", ended.after);
        }
    }
    for ended in each_way(|| upload(trickle().take(3)), owing).await {
        assert_eq!(ended.idle(), (true, 1), "{:?}", ended.result);
    }
}

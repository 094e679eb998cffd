//! Request bodies that can be sent again: a bounded copy is kept while they are sent.
//!
//! A streamed body can be read once, so [`Clone`] cannot copy the requests of tonic or of a proxy.
//! [`ReplayBody`] keeps each frame that an attempt reads. The body of the next attempt begins with
//! the kept frames and goes on with the caller's body:
//!
//! ```text
//! caller's body:  a b c │ d e …      read from by the latest attempt only
//! kept:           a b c              by the first attempt
//! next attempt:   a b c d e …
//! ```
//!
//! Why not collect the body first? It would delay each request, and a streamed call would never
//! begin. Nothing is kept after the last attempt has begun, or once the response is there.
//!
//! Memory is bounded for each request and for all requests of a layer ([`ReplayLimits`]). A request
//! above a bound is sent as it is, and not retried once a byte of it was read.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use super::{CloneRequest, RetryLayer, RetryService};
use crate::BoxError;
use crate::lock::lock;

/// Bounds of the memory for kept bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayLimits {
    /// Bytes of one request.
    pub per_request: usize,
    /// Bytes of all requests of a layer together.
    pub total: usize,
}

impl ReplayLimits {
    /// Nearly all calls of one message.
    pub const DEFAULT_PER_REQUEST: usize = 64 * 1024;
    /// 256 such requests at once.
    pub const DEFAULT_TOTAL: usize = 16 * 1024 * 1024;

    /// The same with this number of bytes for each request.
    #[must_use]
    pub fn with_per_request(self, per_request: usize) -> Self {
        Self { per_request, ..self }
    }

    /// The same with this number of bytes for all requests of a layer.
    #[must_use]
    pub fn with_total(self, total: usize) -> Self {
        Self { total, ..self }
    }
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self { per_request: Self::DEFAULT_PER_REQUEST, total: Self::DEFAULT_TOTAL }
    }
}

/// A failed read of a [`ReplayBody`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A later attempt reads the body.
    Superseded,
    /// An earlier attempt has read more than was kept.
    Lost,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "request body: a later attempt reads it",
            Self::Lost => "request body: an earlier attempt has read more than was kept",
        })
    }
}

impl std::error::Error for ReplayError {}

/// The memory of one layer.
#[derive(Debug)]
struct Memory {
    limits: ReplayLimits,
    kept: AtomicUsize,
}

impl Memory {
    /// Takes memory for a request that has `held` bytes; `false` if a bound forbids it.
    fn take(&self, held: usize, bytes: usize) -> bool {
        let is_small = held.saturating_add(bytes) <= self.limits.per_request;
        let within = |kept: usize| kept.checked_add(bytes).filter(|sum| *sum <= self.limits.total);
        is_small && self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }
}

/// A frame of a body.
#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(trailers) => trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum(),
        }
    }

    fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(trailers) => Frame::trailers(trailers),
        }
    }
}

/// The body of one request, shared by its attempts.
struct Shared<B> {
    body: Pin<Box<B>>,
    /// Whether the body has ended.
    is_ended: bool,
    /// All frames read so far, unless some are lost.
    kept: Vec<Kept>,
    /// Bytes of `kept`, taken from `memory`.
    bytes: usize,
    /// A frame was read and not kept.
    is_lost: bool,
    /// The attempt that reads.
    reader: u32,
    /// The task of that attempt, if it waits for the caller's body.
    waiting: Option<Waker>,
    memory: Arc<Memory>,
}

impl<B> Shared<B> {
    /// Keeps nothing any more: no further attempt can read the body.
    fn lose(&mut self) {
        self.is_lost = true;
        self.kept = Vec::new();
        self.memory.kept.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl<B> Shared<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Reads on in the caller's body.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let polled = self.body.as_mut().poll_frame(cx);
        match &polled {
            Poll::Pending => self.waiting = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(_))) => {}
            // A retry would end in the same way.
            Poll::Ready(Some(Err(_))) => self.lose(),
            Poll::Ready(None) => self.is_ended = true,
        }
        polled.map_err(Into::into)
    }
}

impl<B> Drop for Shared<B> {
    fn drop(&mut self) {
        self.lose();
    }
}

/// A request body that can be sent again: see [`RetryLayer::replay`].
///
/// `tonic::body::Body::new` and the boxed bodies of `http-body-util` take it.
pub struct ReplayBody<B> {
    shared: Arc<Mutex<Shared<B>>>,
    /// The number of its attempt.
    attempt: u32,
    /// Kept frames that it has given.
    given: usize,
}

impl<B> ReplayBody<B> {
    fn new(body: B, memory: Arc<Memory>) -> Self {
        let body = Box::pin(body);
        let shared = Shared {
            body,
            is_ended: false,
            kept: Vec::new(),
            bytes: 0,
            is_lost: false,
            reader: 0,
            waiting: None,
            memory,
        };
        Self { shared: Arc::new(Mutex::new(shared)), attempt: 0, given: 0 }
    }

    /// The body of the next attempt.
    fn next_attempt(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), attempt: self.attempt + 1, given: 0 }
    }

    /// Whether all of the body can be read.
    fn is_whole(&self) -> bool {
        !lock(&self.shared).is_lost
    }
}

impl<B> Body for ReplayBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // A further attempt may follow.
        let has_next = Arc::strong_count(&this.shared) > 1;
        let shared = &mut *lock(&this.shared);
        if this.attempt < shared.reader {
            return Poll::Ready(Some(Err(ReplayError::Superseded.into())));
        }
        if this.attempt > shared.reader {
            if shared.is_lost {
                return Poll::Ready(Some(Err(ReplayError::Lost.into())));
            }
            shared.reader = this.attempt;
            // The former attempt is to end its stream.
            if let Some(task) = shared.waiting.take() {
                task.wake();
            }
        }
        if let Some(kept) = shared.kept.get(this.given) {
            this.given += 1;
            return Poll::Ready(Some(Ok(kept.clone().into_frame())));
        }
        if !has_next {
            shared.lose();
        }
        let frame = match shared.poll_body(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            end => return end,
        };
        let kept = match frame.into_data() {
            Ok(data) => Kept::Data(data),
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => Kept::Trailers(trailers),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            },
        };
        if !shared.is_lost && shared.memory.take(shared.bytes, kept.bytes()) {
            shared.bytes += kept.bytes();
            shared.kept.push(kept.clone());
            this.given += 1;
        } else {
            shared.lose();
        }
        Poll::Ready(Some(Ok(kept.into_frame())))
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.shared);
        self.given >= shared.kept.len() && (shared.is_ended || shared.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let shared = lock(&self.shared);
        let left = shared.kept.iter().skip(self.given).filter(|kept| matches!(kept, Kept::Data(_)));
        let left = left.map(|kept| kept.bytes() as u64).sum::<u64>();
        let rest = if shared.is_ended { SizeHint::with_exact(0) } else { shared.body.size_hint() };
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(left));
        }
        hint.set_lower(rest.lower().saturating_add(left));
        hint
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Copies requests with a [`ReplayBody`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByReplay;

impl<B> CloneRequest<Request<ReplayBody<B>>> for ByReplay {
    fn clone_request(&self, request: &Request<ReplayBody<B>>) -> Option<Request<ReplayBody<B>>> {
        let mut copy = Request::new(request.body().next_attempt());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }

    fn is_whole(&self, copy: &Request<ReplayBody<B>>) -> bool {
        copy.body().is_whole()
    }
}

impl<C> RetryLayer<C> {
    /// The same for requests with any body: each is kept while it is sent, within these limits.
    ///
    /// The service behind gets `Request<ReplayBody<B>>` for the caller's `Request<B>`. A service
    /// with a body type of its own, such as tonic's `Channel`, gets it by `map_request`:
    ///
    /// ```
    /// use http::Request;
    /// use plimsoll_tower::retry::{ReplayBody, ReplayLimits};
    /// use plimsoll_tower::{Grpc, RetryLayer};
    /// use tonic::body::Body;
    /// use tonic::transport::Endpoint;
    /// use tower::ServiceBuilder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let channel = ServiceBuilder::new()
    ///     .layer(RetryLayer::new(Grpc::default()).replay(ReplayLimits::default()))
    ///     .map_request(|request: Request<ReplayBody<Body>>| request.map(Body::new))
    ///     .service(Endpoint::from_static("http://search:8080").connect_lazy());
    /// let client = tonic::client::Grpc::new(channel); // or GreeterClient::new(channel)
    /// # }
    /// ```
    #[must_use]
    pub fn replay(self, limits: ReplayLimits) -> ReplayLayer<C> {
        let super::Retry { budget, config, classify, copy: _ } = self.retry;
        let retry = RetryLayer { retry: super::Retry { budget, config, classify, copy: ByReplay } };
        ReplayLayer { retry, memory: Arc::new(Memory { limits, kept: AtomicUsize::new(0) }) }
    }
}

/// Retries failed requests with bodies that can be read once: see [`RetryLayer::replay`]. Clones
/// share the memory for bodies, and the budget.
#[derive(Clone, Debug)]
pub struct ReplayLayer<C> {
    retry: RetryLayer<C, ByReplay>,
    memory: Arc<Memory>,
}

impl<S, C: Clone> Layer<S> for ReplayLayer<C> {
    type Service = ReplayService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ReplayService { retry: self.retry.layer(inner), memory: Arc::clone(&self.memory) }
    }
}

/// A service with retries of failed requests: see [`RetryLayer::replay`].
#[derive(Clone, Debug)]
pub struct ReplayService<S, C> {
    retry: RetryService<S, C, ByReplay>,
    memory: Arc<Memory>,
}

impl<S, C, B> Service<Request<B>> for ReplayService<S, C>
where
    RetryService<S, C, ByReplay>: Service<Request<ReplayBody<B>>>,
{
    type Response = <RetryService<S, C, ByReplay> as Service<Request<ReplayBody<B>>>>::Response;
    type Error = <RetryService<S, C, ByReplay> as Service<Request<ReplayBody<B>>>>::Error;
    type Future = <RetryService<S, C, ByReplay> as Service<Request<ReplayBody<B>>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.retry.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.retry.call(request.map(|body| ReplayBody::new(body, Arc::clone(&self.memory))))
    }
}

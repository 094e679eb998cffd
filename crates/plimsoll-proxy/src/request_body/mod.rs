//! The body of a request on its way to a backend: within its limit, and whole or known not to be.

pub(crate) mod copy;
pub(crate) mod interim;
pub(crate) mod pipe;
mod silence;
mod stream;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_http1::{Fault, are_valid, strip_forbidden_trailers};

use self::copy::BodyCopy;
use self::interim::Continue;
use self::pipe::Reader;
use self::stream::StreamBody;
use crate::limits::Limits;

/// How much of a body is read before a backend is asked for, where its length is known: nearly all
/// forms and API calls whole.
const MAX_FIRST_PART: usize = 16 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request on its way to a backend, cut off with an error where it is longer than
/// allowed.
pub(crate) struct RequestBody {
    source: Source,
    /// Read before a backend was asked for.
    first: Bytes,
    left: u64,
    /// The reason for a broken body, readable after it is dropped: its sender may know only that it
    /// broke.
    failure: Option<Arc<OnceLock<RequestBodyError>>>,
    /// Where its bytes are counted, if anywhere.
    counter: Option<Arc<AtomicU64>>,
    /// The copy that is made of it, if one is.
    copy: Option<Box<BodyCopy>>,
}

enum Source {
    /// There is none, or it has ended.
    Empty,
    Http1(Reader),
    /// In a box: it is by far the largest, and most requests, which are handed on many times, are
    /// not of this kind.
    Http2(Box<StreamBody>),
    /// It broke off, which the sender has not heard yet.
    Broken(RequestBodyError),
}

/// Why the body of a request cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestBodyError {
    TooLong,
    TooSlow,
    CutOff,
    Malformed(Fault),
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the request body is longer than this listener allows"),
            Self::TooSlow => f.write_str("the request body was too slow"),
            Self::CutOff => f.write_str("the client abandoned the request body"),
            Self::Malformed(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for RequestBodyError {}

impl RequestBody {
    /// None.
    pub(crate) fn empty() -> Self {
        Self::new(Source::Empty, None)
    }

    /// One that comes over HTTP/1.
    pub(crate) fn http1(reader: Reader, limits: &Limits) -> Self {
        Self::new(Source::Http1(reader), limits.max_body)
    }

    /// One that comes over HTTP/2. `go_on` is sent when the body is first wanted.
    pub(crate) fn http2(incoming: Incoming, limits: &Limits, go_on: Option<Continue>) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        let body = StreamBody::new(incoming, limits, go_on);
        Self::new(Source::Http2(Box::new(body)), limits.max_body)
    }

    /// One of the proxy's own, whole.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { first: body, ..Self::empty() }
    }

    fn new(source: Source, limit: Option<u64>) -> Self {
        let failure = if matches!(source, Source::Empty) { None } else { Some(Arc::default()) };
        Self { source, first: Bytes::new(), left: limit.unwrap_or(u64::MAX), failure, counter: None, copy: None }
    }

    /// Counts its bytes, as they pass, in `counter`.
    pub(crate) fn count_in(&mut self, counter: Option<Arc<AtomicU64>>) {
        self.counter = counter;
    }

    /// Shows its pieces to `copy` as they pass. A body that is complete already has none.
    pub(crate) fn copied(&mut self, mut copy: Box<BodyCopy>) {
        copy.expect(self.size_hint().exact());
        self.copy = Some(copy);
    }

    /// The copy sees what is passed on.
    fn copy(&mut self, frame: Option<&Result<Frame<Bytes>, BoxError>>) {
        let is_end = self.is_end_stream();
        let Some(copy) = &mut self.copy else { return };
        match frame {
            Some(Ok(frame)) => {
                frame.data_ref().into_iter().for_each(|data| copy.add(data));
                if is_end || frame.is_trailers() {
                    copy.finish();
                }
            }
            Some(Err(_)) => self.copy = None,
            None => copy.finish(),
        }
    }

    /// Where it will stand why the body broke off, should it; `None` if there is no body.
    pub(crate) fn failure(&self) -> Option<Arc<OnceLock<RequestBodyError>>> {
        self.failure.clone()
    }

    /// Reads the first part of a body whose length is known, before a backend is asked for.
    ///
    /// A request at a backend takes up one of the few that it may have at once. Clients that send a
    /// head and then a byte now and then would take them all; here they take nothing but their own
    /// connection. Bodies whose length is not known are passed on as they come: their senders may
    /// wait for a response to the first bytes.
    ///
    /// # Errors
    /// The failure of the body meanwhile, if it has a response of its own.
    pub(crate) async fn first_part(&mut self) -> Result<(), RequestBodyError> {
        let Some(length) = self.size_hint().exact() else { return Ok(()) };
        let wanted = usize::try_from(length).map_or(MAX_FIRST_PART, |length| length.min(MAX_FIRST_PART));
        // A piece may keep the whole read buffer alive, so small pieces are joined.
        let mut pieces = BytesMut::new();
        // A stream of HTTP/2 may announce nothing and not have ended.
        while pieces.len() < wanted || length == 0 && !self.is_end_stream() {
            match poll_fn(|cx| self.poll_limited(cx)).await.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if pieces.is_empty() && data.len() >= wanted => {
                    self.first = data;
                    return Ok(());
                }
                Some(Ok(Ok(data))) => pieces.extend_from_slice(&data),
                Some(Err(RequestBodyError::TooSlow)) => return Err(RequestBodyError::TooSlow),
                // The head alone would be a whole request for its backend. Its stream was reset,
                // and hyper drops the request when it next has to wait.
                Some(Err(_)) if length == 0 => std::future::pending().await,
                Some(Err(error)) => {
                    self.source = Source::Broken(error);
                    break;
                }
                // It ended before its length; the sender will notice.
                Some(Ok(Err(_))) | None => break,
            }
        }
        self.first = pieces.freeze();
        Ok(())
    }

    fn poll_limited(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let mut frame = match ready!(self.poll_source(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(self.fail(error)))),
            None => {
                self.source = Source::Empty;
                return Poll::Ready(None);
            }
        };
        if let Some(data) = frame.data_ref() {
            if let Some(counter) = &self.counter {
                counter.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            match self.left.checked_sub(data.len() as u64) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Some(Err(self.fail(RequestBodyError::TooLong)))),
            }
        } else if let Some(trailers) = frame.trailers_mut() {
            strip_forbidden_trailers(trailers);
            if !are_valid(trailers) {
                return Poll::Ready(Some(Err(self.fail(RequestBodyError::Malformed(Fault::Trailers)))));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn fail(&mut self, error: RequestBodyError) -> RequestBodyError {
        if let Some(failure) = &self.failure {
            // The first is the cause of all others.
            let _ = failure.set(error);
        }
        self.source = Source::Empty;
        error
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match &mut self.source {
            Source::Empty => Poll::Ready(None),
            Source::Broken(error) => Poll::Ready(Some(Err(*error))),
            Source::Http1(reader) => Pin::new(reader).poll_frame(cx),
            Source::Http2(body) => body.poll_frame(cx),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match std::mem::take(&mut self.first) {
            first if first.is_empty() => ready!(self.poll_limited(cx)).map(|frame| frame.map_err(BoxError::from)),
            first => Some(Ok(Frame::data(first))),
        };
        if self.copy.is_some() {
            self.copy(frame.as_ref());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty()
            && match &self.source {
                Source::Empty => true,
                Source::Broken(_) => false,
                Source::Http1(reader) => reader.is_end_stream(),
                Source::Http2(body) => body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.len() as u64;
        let rest = match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            // More was announced than came; how much is of no use any more.
            Source::Broken(_) => SizeHint::default(),
            Source::Http1(reader) => reader.size_hint(),
            Source::Http2(body) => body.size_hint(),
        };
        match rest.exact() {
            Some(rest) => SizeHint::with_exact(first + rest),
            None => rest,
        }
    }
}

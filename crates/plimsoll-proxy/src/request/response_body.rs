//! The body of a response on its way to the client: a backend's, or one of the proxy's own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use plimsoll::client;
use plimsoll_wire::orca;

use crate::connection::ActiveRequest;
use crate::connection::flow::Flow;
use crate::degrade::{BodyCopy, Progress};

/// The body of a response on its way to the client.
pub(crate) struct ResponseBody {
    source: Source,
    /// Ends with the body.
    hold: Option<Hold>,
    /// The rest of a piece that goes out in several frames.
    rest: Bytes,
    /// The copy of it that is stored, if one is.
    copy: Option<Box<BodyCopy>>,
}

/// Bytes of an unwanted body that are read so that its connection can be used again, and the time
/// for it.
const MAX_DISCARDED: usize = 64 * 1024;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(1);

/// The longest frame on an HTTP/2 stream. A frame counts as read when the next one is polled. So
/// one long piece would make a slow client look like a stalled one, and would fill the stream's
/// buffer.
const MAX_STREAM_FRAME: usize = 16 * 1024;

/// Data that lasts as long as the body of its response.
struct Hold {
    active: ActiveRequest,
    /// On an HTTP/2 stream: the side that is waited for.
    flow: Option<Arc<Flow>>,
}

enum Source {
    Backend(client::ResponseBody),
    /// One that is ended by trailers should it break off.
    BackendCall(client::ResponseBody),
    Local(Full<Bytes>),
    EndReason,
}

impl ResponseBody {
    /// A body of the proxy's own.
    pub(crate) fn local(body: Bytes) -> Self {
        Self::new(Source::Local(Full::new(body)))
    }

    /// A backend's.
    pub(crate) fn backend(body: client::ResponseBody) -> Self {
        Self::new(Source::Backend(body))
    }

    /// That of a gRPC call over HTTP/2, whose client reads in trailers how it ended.
    pub(crate) fn backend_call(body: client::ResponseBody) -> Self {
        Self::new(Source::BackendCall(body))
    }

    fn new(source: Source) -> Self {
        Self { source, hold: None, rest: Bytes::new(), copy: None }
    }

    /// Whether a backend gave the response.
    pub(crate) fn is_from_backend(&self) -> bool {
        matches!(self.source, Source::Backend(_) | Source::BackendCall(_))
    }

    /// Shows itself to `copy` as it passes.
    pub(crate) fn copied(mut self, mut copy: Box<BodyCopy>) -> Self {
        if self.is_end_stream() {
            copy.finish();
        } else {
            self.copy = Some(copy);
        }
        self
    }

    /// Reads the rest of a backend's response that is not passed on, if it is short. Errors come in
    /// numbers, and breaking off each would cost a connection.
    pub(crate) fn discard(self) {
        let (Source::Backend(mut body) | Source::BackendCall(mut body)) = self.source else { return };
        if body.is_end_stream() || body.size_hint().lower() > MAX_DISCARDED as u64 {
            return;
        }
        tokio::spawn(tokio::time::timeout(MAX_DISCARD_TIME, async move {
            let mut left = MAX_DISCARDED;
            while let Some(Ok(frame)) = body.frame().await {
                match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        }));
    }

    /// Drops the rest of a body of the proxy's own, and returns its length.
    pub(crate) fn drop_if_local(&mut self) -> Option<u64> {
        let Source::Local(body) = &self.source else { return None };
        let length = body.size_hint().exact();
        self.source = Source::EndReason;
        length
    }

    /// Keeps `active` until this is done with.
    pub(crate) fn holding(mut self, mut active: ActiveRequest) -> Self {
        if let Some(entry) = &mut active.entry {
            entry.complete = self.is_end_stream();
        }
        self.hold = Some(Hold { active, flow: None });
        self
    }

    /// Goes out on an HTTP/2 stream: tells `flow` which side is waited for.
    pub(crate) fn on_stream(mut self, flow: Arc<Flow>) -> Self {
        flow.give();
        if let Some(hold) = &mut self.hold {
            hold.flow = Some(flow);
        }
        self
    }
}

/// The frame without a load report in trailers. The gate gets the report; see
/// `hop::strip_response`.
fn without_report<E>(mut frame: Result<Frame<Bytes>, E>, hold: Option<&mut Hold>) -> Result<Frame<Bytes>, E> {
    if let Ok(Some(trailers)) = frame.as_mut().map(Frame::trailers_mut) {
        if let Some(hold) = hold {
            if let Some(permit) = &mut hold.active.permit {
                permit.hear(trailers);
            }
            if let Some(fact) = &mut hold.active.fact {
                fact.hear(trailers);
            }
            if let Some(entry) = &mut hold.active.entry {
                entry.hear(trailers);
            }
        }
        orca::strip(trailers);
    }
    frame
}

impl Hold {
    fn see(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, client::Error>>>, is_end: bool) {
        if let Some(flow) = &self.flow {
            match polled {
                Poll::Pending => flow.wait_for_backend(),
                Poll::Ready(_) => flow.give(),
            }
        }
        if let (Some(fact), Poll::Ready(Some(Err(_)))) = (&mut self.active.fact, polled) {
            fact.broke();
        }
        let (Some(entry), Poll::Ready(frame)) = (&mut self.active.entry, polled) else { return };
        match frame {
            None => entry.complete = true,
            Some(Err(error)) => entry.reason = Some(error.reason()),
            Some(Ok(frame)) => {
                entry.bytes_out += frame.data_ref().map_or(0, |data| data.len() as u64);
                entry.complete = is_end || frame.is_trailers();
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = client::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = self.poll_piece(cx);
        let is_end = self.is_end_stream();
        if let Some(copy) = &mut self.copy
            && copy.see(&polled, is_end) == Progress::Over
        {
            self.copy = None;
        }
        if let Some(hold) = &mut self.hold {
            hold.see(&polled, is_end);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        if !self.rest.is_empty() {
            return false;
        }
        match &self.source {
            Source::Backend(body) | Source::BackendCall(body) => body.is_end_stream(),
            Source::EndReason => true,
            Source::Local(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match &self.source {
            Source::Backend(body) | Source::BackendCall(body) => body.size_hint(),
            Source::EndReason => SizeHint::with_exact(0),
            Source::Local(body) => body.size_hint(),
        };
        hint.exact().map_or(hint, |left| SizeHint::with_exact(left + self.rest.len() as u64))
    }
}

impl ResponseBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, client::Error>>> {
        if self.hold.as_ref().is_none_or(|hold| hold.flow.is_none()) {
            return self.poll_source(cx);
        }
        if self.rest.is_empty() {
            let frame = match ready!(self.poll_source(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(MAX_STREAM_FRAME));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, client::Error>>> {
        let Self { source, hold, .. } = self;
        match source {
            Source::Backend(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| without_report(frame, hold.as_mut())))
            }
            Source::BackendCall(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(match frame {
                    Some(Err(error)) => {
                        *source = Source::EndReason;
                        if let Some(fact) = hold.as_mut().and_then(|hold| hold.active.fact.as_mut()) {
                            fact.broke();
                        }
                        Some(Ok(Frame::trailers(error.to_trailers())))
                    }
                    frame => frame.map(|frame| without_report(frame, hold.as_mut())),
                })
            }
            Source::EndReason => Poll::Ready(None),
            Source::Local(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }
}

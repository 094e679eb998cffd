//! The body of a response over HTTP/2, held to the rules that HTTP/1 has for it.
//!
//! h2 checks lengths and the order of frames. It accepts data after a status that allows none, and
//! trailers with fields that HTTP/1 cannot have. Other clients would not expect the data, and the
//! trailer would be no field.

use crate::address::Address;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_http1::{are_valid, strip_forbidden_trailers};

use super::error::{Cause, Error};

/// A body that a backend sends over HTTP/2.
pub(super) struct Http2Body {
    incoming: Incoming,
    /// The status allows a body.
    has_content: bool,
}

impl Http2Body {
    /// The body of a response with `status`.
    pub(super) fn new(incoming: Incoming, status: StatusCode) -> Self {
        Self { incoming, has_content: !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) }
    }

    /// The next frame from the backend at `address`.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        address: Address,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        frame.map(|frame| {
            Some(match frame? {
                Ok(frame) => self.check(frame).map_err(|fault| Error::BadResponse {
                    address,
                    cause: Cause::out_of_turn(fault),
                    attempts: 1,
                }),
                Err(cause) => Err(Error::from_hyper(address, cause)),
            })
        })
    }

    fn check(&self, mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, &'static str> {
        if !self.has_content && frame.data_ref().is_some_and(|data| !data.is_empty()) {
            return Err("it has a body, which its status does not allow");
        }
        if let Some(trailers) = frame.trailers_mut() {
            strip_forbidden_trailers(trailers);
            if !are_valid(trailers) {
                return Err("a field in its trailers is malformed");
            }
        }
        Ok(frame)
    }

    /// Whether nothing follows.
    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Bytes that are still to come, as far as that is known.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

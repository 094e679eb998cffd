//! The body of a response on an HTTP/1 connection, read by the polls of its reader.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use plimsoll_http1::Piece;

use super::Lease;
use super::duplex::Duplex;
use crate::client::error::Cause;
use crate::client::outgoing::Progress;

/// The rest of a response. At its end the connection goes back to its pool; dropped before, it is
/// closed.
pub(crate) struct Incoming(Source);

enum Source {
    /// All of it was taken.
    Over,
    Connection(Lease),
    /// The request is still being sent.
    Duplex(Duplex),
}

impl Incoming {
    /// The body of a response that follows its request; its head is already off the connection.
    pub(super) fn new(lease: Lease) -> Self {
        let mut incoming = Self(Source::Connection(lease));
        incoming.end_if_done();
        incoming
    }

    /// The body of a response that arrived while its request is still being sent.
    pub(super) fn beside(duplex: Duplex) -> Self {
        Self(Source::Duplex(duplex))
    }

    /// The progress of the request's body, if it is still being sent, for its one follower.
    pub(crate) fn take_upload(&mut self) -> Option<Progress> {
        match &mut self.0 {
            Source::Duplex(duplex) => duplex.take_progress(),
            Source::Over | Source::Connection(_) => None,
        }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let piece = match &mut self.0 {
            Source::Over => return Poll::Ready(None),
            Source::Connection(lease) => ready!(lease.poll_piece(cx)),
            Source::Duplex(duplex) => ready!(duplex.poll_piece(cx)),
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(cause) => {
                self.0 = Source::Over;
                return Poll::Ready(Some(Err(cause)));
            }
        };
        self.end_if_done();
        Poll::Ready(piece.map(|piece| {
            Ok(match piece {
                Piece::Data(data) => Frame::data(data),
                Piece::Trailers(trailers) => Frame::trailers(trailers),
            })
        }))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        matches!(self.0, Source::Over)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let remaining = match &self.0 {
            Source::Over => Some(0),
            Source::Connection(lease) => lease.remaining(),
            Source::Duplex(duplex) => duplex.remaining(),
        };
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn end_if_done(&mut self) {
        let is_done = match &self.0 {
            Source::Over => false,
            Source::Connection(lease) => lease.is_done(),
            Source::Duplex(duplex) => duplex.is_done(),
        };
        if is_done {
            match std::mem::replace(&mut self.0, Source::Over) {
                Source::Over => {}
                Source::Connection(lease) => lease.end(),
                Source::Duplex(duplex) => duplex.end(),
            }
        }
    }
}

//! The meaning of hyper's errors on HTTP/2 connections.

use std::io;

/// Where an error of hyper's comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The request's own body failed.
    RequestBody,
    /// The backend broke the protocol.
    Malformed,
    /// The connection ended, or the backend ended the stream.
    Connection,
}

impl Origin {
    /// A stream that *hyper* reset had a request body that failed: hyper resets no other that
    /// awaits its response. A stream or connection that *h2* ended was malformed, since h2 checks
    /// its input: fields, lengths, and the order of frames.
    pub(super) fn of(cause: &hyper::Error) -> Self {
        let Some(error) = h2_error(cause) else {
            let io = std::error::Error::source(cause).and_then(|source| source.downcast_ref());
            return match (cause.is_user(), cause.is_parse() || io.is_some_and(is_protocol_error)) {
                (true, _) => Self::RequestBody,
                (false, true) => Self::Malformed,
                (false, false) => Self::Connection,
            };
        };
        // h2 reports CANCEL for a stream that this side left, and NO_ERROR for a connection that it
        // closed.
        let is_fault = !matches!(error.reason(), Some(h2::Reason::NO_ERROR | h2::Reason::CANCEL));
        if error.is_library() && is_fault || error.get_io().is_some_and(is_protocol_error) {
            Self::Malformed
        } else if cause.is_user() || error.is_reset() && !error.is_remote() && !error.is_library() {
            Self::RequestBody
        } else {
            Self::Connection
        }
    }
}

/// Whether a layer below h2 read bytes that break its protocol: a TLS record, or the frames that the pool watches.
fn is_protocol_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Whether the backend broke the protocol, so that it would do so again.
pub(crate) fn is_malformed(cause: &hyper::Error) -> bool {
    Origin::of(cause) == Origin::Malformed
}

/// Whether the peer did not look at the request, by its own word. Then it may be sent again, with
/// any method (RFC 9113, 8.7).
pub(crate) fn refused(cause: &hyper::Error) -> bool {
    h2_error(cause).is_some_and(|e| {
        e.is_remote()
            && (e.is_reset() && e.reason() == Some(h2::Reason::REFUSED_STREAM)
                || e.is_go_away() && e.reason() == Some(h2::Reason::NO_ERROR))
    })
}

/// Whether the peer ended this one request: an answer of a kind, so the request was looked at.
pub(crate) fn was_reset(cause: &hyper::Error) -> bool {
    h2_error(cause).is_some_and(h2::Error::is_reset)
}

pub(crate) fn h2_error(cause: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(cause)?.downcast_ref()
}

//! Why a request got no response.
//!
//! One enum for all that can go wrong between the call and the last byte of the body. Each reason says
//! whether anything was sent, because that decides whether a caller may safely send the request again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_wire::shed::ShedReason;

use super::cluster::Ending;

/// Why there is no (further) response.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No backend may get requests: none is configured, or all are lame ducks. Nothing was sent.
    #[error("no backend is usable")]
    NoBackend,
    /// All backends were at their limit of active requests for too long, or too many requests were
    /// waiting already. Nothing was sent.
    #[error("all backends are at their limit of active requests (waited {waited:?})")]
    Saturated {
        /// Time in the queue; zero when the queue was full.
        waited: Duration,
    },
    /// No connection could be opened, at as many backends as were tried. Nothing was sent.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// The last backend that was tried.
        address: SocketAddr,
        /// Why.
        cause: ConnectError,
    },
    /// No head of a response in time. The request may have been carried out.
    #[error("no response within {after:?}")]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// The body stopped arriving.
    #[error("no byte of the response's body for {after:?}")]
    BodyIdle {
        /// The limit.
        after: Duration,
    },
    /// The request's own body failed while it was being sent: the caller's side, not the backend's.
    #[error("the request's body failed: {0}")]
    RequestBody(Arc<hyper::Error>),
    /// The connection closed, or was reset, before the response was complete. The request may have been
    /// carried out.
    #[error("connection to {address} closed: {cause}")]
    Closed {
        /// Which backend.
        address: SocketAddr,
        /// What hyper says.
        cause: Arc<hyper::Error>,
    },
    /// The backend reset the response in its middle, though without an error.
    #[error("{address} cut its response off")]
    CutOff {
        /// Which backend.
        address: SocketAddr,
    },
    /// The backend's answer is not HTTP.
    #[error("bad response from {address}: {cause}")]
    BadResponse {
        /// Which backend.
        address: SocketAddr,
        /// What hyper says.
        cause: Arc<hyper::Error>,
    },
}

/// Why a connection could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The system said no.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// Nothing was said for too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It was opened, and closed again before a request was on it.
    #[error("connections are closed as soon as they are opened")]
    ClosedAtOnce,
    /// The HTTP set-up failed.
    #[error("{0}")]
    Handshake(Arc<hyper::Error>),
}

impl Error {
    /// The word for it in metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoBackend => "no-backend",
            Self::Saturated { .. } => "saturated",
            Self::Connect { .. } => "connect-failed",
            Self::Timeout { .. } => "timeout",
            Self::BodyIdle { .. } => "body-idle",
            Self::RequestBody(_) => "request-body",
            Self::Closed { .. } | Self::CutOff { .. } => "closed",
            Self::BadResponse { .. } => "bad-response",
        }
    }

    /// The row of the table of answers without service, for those that have one.
    #[must_use]
    pub fn shed_reason(&self) -> Option<ShedReason> {
        match self {
            // For whoever sent the request it is the same: nobody took it, and somebody may in a while.
            Self::NoBackend | Self::Connect { .. } => Some(ShedReason::NoBackend),
            Self::Saturated { .. } => Some(ShedReason::Saturated),
            Self::Timeout { .. } => Some(ShedReason::Deadline),
            _ => None,
        }
    }

    /// Whether it is certain that no backend saw the request.
    #[must_use]
    pub fn nothing_sent(&self) -> bool {
        matches!(self, Self::NoBackend | Self::Saturated { .. } | Self::Connect { .. })
    }

    /// How an attempt that ended like this is counted.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::RequestBody(_) => Ending::Cancelled,
            Self::Connect { .. } => Ending::ConnectFailed,
            Self::Timeout { .. } | Self::BodyIdle { .. } => Ending::TimedOut,
            _ => Ending::Broken,
        }
    }

    /// Sorts an error of hyper's, met on a connection to `address`.
    pub(crate) fn from_hyper(address: SocketAddr, cause: hyper::Error) -> Self {
        let cause = Arc::new(cause);
        // On HTTP/2 a failed request body shows as a stream that this side reset.
        if cause.is_user() || h2_error(&cause).is_some_and(|e| e.is_reset() && !e.is_remote()) {
            Self::RequestBody(cause)
        } else if cause.is_parse() {
            Self::BadResponse { address, cause }
        } else {
            Self::Closed { address, cause }
        }
    }
}

/// Whether the peer said that it did not look at the request, so that it may be sent again whatever
/// its method (RFC 9113, 8.7).
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

fn h2_error(cause: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(cause)?.downcast_ref()
}

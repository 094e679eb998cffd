//! Why a request was not served, in the words of HTTP and of gRPC.
//!
//! Reasons of overload protection are in the one table of the wire crate. Those here are the rest: what the
//! proxy refuses by itself, and what befalls it between two connections.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, StatusCode};
use plimsoll::client;
use plimsoll_wire::grpc::{self, Code};

/// Why the proxy answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No route matches.
    NoRoute,
    /// `CONNECT`: this is no forward proxy.
    Connect,
    /// The body is longer than the listener allows.
    BodyTooLarge,
    /// No host in HTTP/1.1, or more than one: whoever stands behind might take another than was routed by.
    BadHost,
}

impl Refusal {
    /// All of them, in the order in which they are counted: that of their declaration.
    const ALL: [Self; 4] = [Self::NoRoute, Self::Connect, Self::BodyTooLarge, Self::BadHost];

    /// Its name in metrics, and how it is said in HTTP, in gRPC, and to a person.
    pub(crate) fn row(self) -> (&'static str, StatusCode, Code, &'static str) {
        match self {
            Self::NoRoute => {
                ("no-route", StatusCode::NOT_FOUND, Code::Unimplemented, "no-route: no route matches this request")
            }
            Self::Connect => (
                "connect",
                StatusCode::METHOD_NOT_ALLOWED,
                Code::Unimplemented,
                "connect: this is a reverse proxy, it opens no tunnels",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::ResourceExhausted,
                "body-too-large: the body is longer than this listener allows",
            ),
            Self::BadHost => (
                "bad-host",
                StatusCode::BAD_REQUEST,
                Code::InvalidArgument,
                "bad-host: a request has one host field, neither none nor several",
            ),
        }
    }

    /// The word for it in metrics.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }
}

/// Requests that the proxy answered itself, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.into_iter().map(|refusal| (refusal.name(), self.0[refusal as usize].load(Ordering::Relaxed)))
    }
}

/// How an error is said that has no row in the table of the wire crate.
pub(crate) fn of_error(error: &client::Error) -> (StatusCode, Code, &'static str) {
    match error {
        client::Error::RequestBody(_) => {
            (StatusCode::BAD_REQUEST, Code::Cancelled, "request-body: the body of the request ended too early")
        }
        client::Error::BadResponse { .. } => {
            (StatusCode::BAD_GATEWAY, Code::Internal, "bad-response: the backend's answer is not HTTP")
        }
        _ => {
            (StatusCode::BAD_GATEWAY, Code::Unavailable, "closed: the backend closed the connection before it answered")
        }
    }
}

/// What ends a gRPC response whose body failed.
pub(crate) fn trailers_for(error: &client::Error) -> HeaderMap {
    let (code, message) = match error {
        client::Error::BodyIdle { .. } => (Code::Unavailable, "body-idle: the backend sent nothing more for too long"),
        client::Error::BadResponse { .. } => (Code::Internal, "bad-response: the backend's answer broke the protocol"),
        _ => (Code::Unavailable, "closed: the backend closed the connection before its answer was complete"),
    };
    grpc::trailers(code, message)
}

//! Answers that the proxy gives itself, when no backend can.
//!
//! Reasons of overload protection are answered by the one table of the wire crate. Those here are the rest: no
//! route, a body that is too large, and what befalls a proxy between two connections. Shaped as gRPC when the
//! request is: status 200, trailers only. A gRPC response that breaks off after its head gets trailers that say so,
//! since a client makes less of a stream that was reset.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll::client;
use plimsoll_wire::grpc::{self, Code};

use crate::body::ResponseBody;

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
    fn row(self) -> (&'static str, StatusCode, Code, &'static str) {
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

    /// The whole answer.
    pub(crate) fn response(self, is_grpc: bool) -> Response<ResponseBody> {
        let (_, status, code, message) = self.row();
        let mut response = plain(is_grpc, status, code, message);
        if self == Self::Connect {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        }
        response
    }
}

/// The answer to a request that the client side could not get served.
pub(crate) fn for_error(error: &client::Error, is_grpc: bool) -> Response<ResponseBody> {
    if let Some(reason) = error.shed_reason() {
        let head = reason.head(is_grpc, None);
        let message = if is_grpc { "" } else { reason.row().message };
        return with_text(head, is_grpc, message);
    }
    let (status, code, message) = match error {
        client::Error::RequestBody(_) => {
            (StatusCode::BAD_REQUEST, Code::Cancelled, "request-body: the body of the request ended too early")
        }
        client::Error::BadResponse { .. } => {
            (StatusCode::BAD_GATEWAY, Code::Internal, "bad-response: the backend's answer is not HTTP")
        }
        _ => {
            (StatusCode::BAD_GATEWAY, Code::Unavailable, "closed: the backend closed the connection before it answered")
        }
    };
    plain(is_grpc, status, code, message)
}

/// The answer in place of one that speaks another protocol from here on, which nobody had asked the backend for.
pub(crate) fn for_switch(is_grpc: bool) -> Response<ResponseBody> {
    let message = "bad-response: the backend switched protocols unasked";
    plain(is_grpc, StatusCode::BAD_GATEWAY, Code::Internal, message)
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

fn plain(is_grpc: bool, status: StatusCode, code: Code, message: &'static str) -> Response<ResponseBody> {
    let mut head = Response::new(());
    if is_grpc {
        let headers = head.headers_mut();
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
        headers.insert("grpc-status", code.to_header_value());
        headers.insert("grpc-message", grpc::encode_message(message));
        with_text(head, true, "")
    } else {
        *head.status_mut() = status;
        with_text(head, false, message)
    }
}

fn with_text(mut head: Response<()>, is_grpc: bool, text: &'static str) -> Response<ResponseBody> {
    if !is_grpc {
        head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    let body = if text.is_empty() { Bytes::new() } else { Bytes::from(format!("{text}\n")) };
    head.map(|()| ResponseBody::local(body))
}

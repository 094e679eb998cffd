//! Answers that the proxy gives itself, when no backend can.
//!
//! Shaped as gRPC when the request is: status 200, trailers only. (A gRPC response that breaks off
//! after its head gets trailers that say so, see `response_body`: a client makes less of a stream
//! that was reset.)

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use plimsoll::client;
use plimsoll_core::admit::Shed;
use plimsoll_http1::{Framing, write};
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::shed;

use crate::date;
use crate::reason::Refusal;
use crate::request::response_body::ResponseBody;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The answer to a request that the proxy refuses.
pub(crate) fn for_refusal(refusal: Refusal, is_grpc: bool) -> Response<ResponseBody> {
    let Shed { reason, after } = match refusal {
        Refusal::Rejected(shed) => shed,
        Refusal::Malformed(_) => return plain(is_grpc, refusal.status(), refusal.code(), &refusal.text()),
    };
    let mut response = with_text(shed::head(reason, is_grpc, after), is_grpc, reason.row().text);
    if refusal.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    if let Some(seconds) = reason.row().retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    response
}

/// An answer to `HEAD`: one of the proxy's own says how long its body would be.
pub(crate) fn without_body(mut answer: Response<ResponseBody>) -> Response<ResponseBody> {
    if let Some(length) = answer.body_mut().drop_if_local() {
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer
}

/// Appends the response to bytes on an HTTP/1 connection that are no valid request; the connection
/// ends with it.
pub(crate) fn write_refusal(into: &mut Vec<u8>, refusal: Refusal) {
    let text = refusal.text() + "\n";
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(DATE, date::now());
    write::response_head(
        into,
        refusal.status(),
        &headers,
        Framing::Length(text.len() as u64),
        write::Connection::Close,
    );
    into.extend_from_slice(text.as_bytes());
}

/// The answer to a request that the client side could not get served.
pub(crate) fn for_error(error: &client::Error, is_grpc: bool) -> Response<ResponseBody> {
    error.to_response(is_grpc).map(line)
}

/// The response in place of a switch to another protocol that was not asked for.
pub(crate) fn for_switch(is_grpc: bool) -> Response<ResponseBody> {
    let message = "bad-response: the backend switched protocols unasked";
    plain(is_grpc, StatusCode::BAD_GATEWAY, Code::Internal, message)
}

/// The answer in place of one that looks like the switch to another protocol and is none.
pub(crate) fn for_no_switch() -> Response<ResponseBody> {
    let message = "bad-response: the answer did not switch protocols";
    plain(false, StatusCode::BAD_GATEWAY, Code::Internal, message)
}

fn plain(is_grpc: bool, status: StatusCode, code: Code, message: &str) -> Response<ResponseBody> {
    let mut head = Response::new(());
    if is_grpc {
        let headers = head.headers_mut();
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
        headers.insert("grpc-status", code.to_header_value());
        headers.insert("grpc-message", grpc::encode_message(message));
        with_text(head, true, message)
    } else {
        *head.status_mut() = status;
        with_text(head, false, message)
    }
}

/// The text is the body of an HTTP answer; one of gRPC has it in its head.
fn with_text(mut head: Response<()>, is_grpc: bool, text: &str) -> Response<ResponseBody> {
    if is_grpc {
        return head.map(|()| line(""));
    }
    head.headers_mut().insert(CONTENT_TYPE, TEXT);
    head.map(|()| line(text))
}

fn line(text: &str) -> ResponseBody {
    ResponseBody::local(if text.is_empty() { Bytes::new() } else { [text, "\n"].concat().into() })
}

//! The answer of a gateway to a request that got no response, in HTTP and in gRPC.
//!
//! The status, the code and the text are in the table of ends ([`AttemptEnd`](super::attempt_end)) and in
//! the table of rejections ([`Rejection`]). The text names no backend: its
//! reader may be a stranger. [`Error::in_full`] is for operators.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll_core::Rejection;
use plimsoll_core::retry::CallerAnswer;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::shed::{self, say_no_retry};

use super::attempt_end::Gateway;
use super::error::Error;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Error {
    /// The answer of a gateway for this error: the reason, and whether and when to retry.
    ///
    /// The advice stands in `x-plimsoll-shed`, `Retry-After` and the pushback of gRPC. Without it a
    /// client would try the next gateway, and attempts would multiply with each layer. The body is
    /// a line for people. For `grpc` the response is only a head (trailers-only), with the line in
    /// it.
    #[must_use]
    pub fn to_response(&self, grpc: bool) -> Response<&'static str> {
        let (status, code, message) = self.row();
        let mut response = match self.shed_reason() {
            Some(reason) => shed::head(reason, grpc, self.retry_after()),
            None => {
                let mut head = Response::new(());
                if grpc {
                    *head.headers_mut() = grpc::trailers(code, message);
                    head.headers_mut().insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
                } else {
                    *head.status_mut() = status;
                }
                if self.caller_answer() == CallerAnswer::DoNotRetry {
                    say_no_retry(head.headers_mut(), grpc);
                }
                head
            }
        };
        if grpc {
            return response.map(|()| "");
        }
        response.headers_mut().insert(CONTENT_TYPE, TEXT);
        response.map(|()| message)
    }

    /// The reason in [`Error::to_response`]: the word that the caller sees. [`Error::reason`] may say more.
    #[must_use]
    pub fn answered_reason(&self) -> &'static str {
        self.shed_reason().map_or_else(|| self.reason(), Rejection::name)
    }

    /// The trailers of a forwarded gRPC response whose body failed with this error.
    ///
    /// A client learns more from them than from a stream reset.
    #[must_use]
    pub fn to_trailers(&self) -> HeaderMap {
        let (_, code, message) = self.row();
        grpc::trailers(code, message)
    }

    /// The status, the code and the line for people.
    pub(crate) fn row(&self) -> (StatusCode, Code, &'static str) {
        match self.gateway() {
            Gateway::Shed(reason) => (shed::status(reason), shed::code(reason), reason.row().text),
            Gateway::Own(status, code, message) => (status, code, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::rejection::Retry;
    use plimsoll_http1::Fault;
    use plimsoll_wire::shed::Shed;

    use super::*;
    use crate::client::{Cause, Refusal};

    fn closed(caller_answer: CallerAnswer) -> Error {
        let (address, cause) = ("127.0.0.1:9".parse().unwrap(), Cause::from(Fault::CutOff));
        Error::Closed { address, cause, attempts: 3, caller_answer }
    }

    fn refused(caller_answer: CallerAnswer) -> Error {
        let after = Some(Duration::from_secs(20));
        let refused = Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: None,
            why: Some(Rejection::Overloaded),
            retry: Retry::After,
            after,
            is_certain: true,
        };
        Error::Refused { address: "127.0.0.1:9".parse().unwrap(), refused, attempts: 1, caller_answer }
    }

    #[test]
    fn the_layer_above_reads_what_it_is_to_do_in_either_protocol() {
        let shed = |reason, retry, after| Some(Shed { reason: Some(reason), retry, after });
        let never = Some(Shed { reason: None, retry: Retry::Never, after: None });
        let later = Some(Duration::from_secs(20));
        let timeout = Error::Timeout { after: Duration::from_secs(1), address: None, attempts: 1 };
        for (error, status, code, expected) in [
            (Error::NoBackend, 503, Code::Unavailable, shed(Rejection::NoBackend, Retry::After, None)),
            (timeout, 504, Code::DeadlineExceeded, shed(Rejection::Deadline, Retry::Never, None)),
            (refused(CallerAnswer::Answer), 503, Code::Unavailable, shed(Rejection::Overloaded, Retry::After, later)),
            (
                refused(CallerAnswer::DoNotRetry),
                503,
                Code::Unavailable,
                shed(Rejection::OverloadedNoRetry, Retry::Never, None),
            ),
            (closed(CallerAnswer::DoNotRetry), 502, Code::Unavailable, never),
            (closed(CallerAnswer::Answer), 502, Code::Unavailable, None),
            (Error::BodyIdle { after: Duration::from_secs(1) }, 504, Code::Unavailable, None),
        ] {
            let (plain, call) = (error.to_response(false), error.to_response(true));
            assert_eq!((plain.status().as_u16(), plain.headers()["content-type"] == TEXT), (status, true), "{error}");
            assert_eq!(Shed::read(plain.status(), plain.headers()), expected, "{error}");
            assert!(!plain.body().is_empty() && !plain.body().contains("127.0.0.1"), "{error}");

            assert_eq!((call.status(), *call.body(), grpc::is_grpc(call.headers())), (StatusCode::OK, "", true));
            assert_eq!(Code::read(call.headers()), Some(code), "{error}");
            assert_eq!(Shed::read(call.status(), call.headers()), expected, "{error}");
            assert_eq!(Code::read(&error.to_trailers()), Some(code), "{error}");
        }
    }
}

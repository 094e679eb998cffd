//! Answers that stand in the configuration: of routes that need no backend, and in place of errors.
//!
//! A gRPC client reads the end of its call in `grpc-status`, and cannot use any other body. So it
//! gets the code nearest to the status, and pushback says when to retry: after `retry_after`, else
//! never.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use plimsoll_core::Rejection;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{GRPC_MESSAGE, GRPC_RETRY_PUSHBACK_MS, GRPC_STATUS};

use crate::config::{Answer, Config};
use crate::reason::Refusal;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer that stands in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct FixedAnswer {
    status: Option<StatusCode>,
    /// `None` if nothing was said of it.
    body: Option<Bytes>,
    content_type: HeaderValue,
    retry_after: Option<Duration>,
}

impl FixedAnswer {
    /// `answer` is one of `config`'s.
    pub(crate) fn new(config: &Config, answer: &Answer) -> Self {
        let said = answer.content_type.clone();
        let by_name = || match answer.file.as_ref().and_then(|file| file.extension()) {
            Some("html" | "htm") => HTML,
            Some("json") => JSON,
            _ => PLAIN,
        };
        Self {
            status: answer.status,
            body: config.body(answer),
            content_type: said.unwrap_or_else(by_name),
            retry_after: answer.retry_after,
        }
    }

    /// Its status, if it says one.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The answer to a request whose route has this one for all.
    pub(crate) fn of_route(&self, is_grpc: bool) -> Response<Bytes> {
        let otherwise = Refusal::of(Rejection::RouteAnswer).status();
        let status = self.status.unwrap_or(otherwise);
        if is_grpc {
            return self.to_call(status);
        }
        let text = || if has_body(status) { Refusal::of(Rejection::RouteAnswer).text() + "\n" } else { String::new() };
        self.with_body(status, self.body.clone().unwrap_or_else(|| text().into()))
    }

    /// The answer in place of an error with the status `otherwise`.
    pub(crate) fn in_place_of(&self, otherwise: StatusCode) -> Response<Bytes> {
        self.with_body(self.status.unwrap_or(otherwise), self.body.clone().unwrap_or_default())
    }

    fn with_body(&self, status: StatusCode, body: Bytes) -> Response<Bytes> {
        let is_empty = body.is_empty();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if !is_empty {
            headers.insert(CONTENT_TYPE, self.content_type.clone());
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, whole_seconds(after).into());
        }
        response
    }

    fn to_call(&self, status: StatusCode) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let pushback = self.retry_after.map_or(-1, |after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
        headers.insert(GRPC_STATUS, code_for(status).to_header_value());
        headers.insert(GRPC_MESSAGE, grpc::encode_message(&Refusal::of(Rejection::RouteAnswer).text()));
        headers.insert(GRPC_RETRY_PUSHBACK_MS, pushback.into());
        response
    }
}

/// Rounded up, so that no client comes too early.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

fn has_body(status: StatusCode) -> bool {
    ![StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

/// The code that gRPC clients derive from a status, except where this proxy says it in another way
/// (429 and 504; see [`crate::reason`]). A call that is not made is no success, whatever the
/// status.
fn code_for(status: StatusCode) -> Code {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        status if status.is_success() => Code::Unimplemented,
        status => Code::from_http(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(toml: &str) -> FixedAnswer {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:1\"\n[[routes]]\nanswer = {{ {toml} }}\n[clusters.a]\nbackends = [\"10.0.0.1:80\"]\n"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        FixedAnswer::new(&config, config.routes()[0].answer.as_ref().unwrap())
    }

    fn field(response: &Response<Bytes>, name: &str) -> String {
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }

    #[test]
    fn answer_without_settings_is_a_403_with_a_text() {
        let response = answer("").of_route(false);
        assert_eq!(
            (response.status().as_u16(), field(&response, "content-type").as_str()),
            (403, "text/plain; charset=utf-8")
        );
        assert!(!response.body().is_empty());
        let response = answer("status = 204").of_route(false);
        assert_eq!((response.status().as_u16(), response.body().len()), (204, 0));
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        let response = answer("status = 429, retry_after = \"1500ms\", body = \"later\"").of_route(false);
        assert_eq!((response.status().as_u16(), field(&response, "retry-after").as_str()), (429, "2"));
    }

    #[test]
    fn a_call_ends_with_the_code_that_comes_nearest_and_is_never_a_success() {
        for (status, code) in [(200, "12"), (401, "16"), (403, "7"), (404, "12"), (429, "8"), (503, "14"), (504, "4")] {
            let response = answer(&format!("status = {status}, body = \"x\"")).of_route(true);
            assert_eq!((response.status().as_u16(), field(&response, "grpc-status").as_str()), (200, code), "{status}");
            assert_eq!(field(&response, "grpc-retry-pushback-ms"), "-1");
            assert!(response.body().is_empty());
        }
        let response = answer("status = 429, retry_after = \"1500ms\"").of_route(true);
        assert_eq!(field(&response, "grpc-retry-pushback-ms"), "1500");
    }

    #[test]
    fn degraded_answer_keeps_the_status_unless_it_has_its_own() {
        let error = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(answer("body = \"x\"").in_place_of(error).status(), error);
        assert_eq!(answer("status = 200, body = \"[]\"").in_place_of(error).status(), StatusCode::OK);
    }
}

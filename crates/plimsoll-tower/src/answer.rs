//! A rejection as an answer of a server, as clients of Plimsoll, Envoy and gRPC read it.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use plimsoll_core::rejection::{Pushback, Retry};

use crate::Rejected;

/// Pushback of zero: gRPC's C core never retries after a zero.
const AT_ONCE: HeaderValue = HeaderValue::from_static("1");
const NEVER: HeaderValue = HeaderValue::from_static("-1");

impl Rejected {
    /// The head of the answer in HTTP: status, `x-plimsoll-shed`, and `Retry-After` if the advice
    /// names a time. For a service of axum, in its `HandleErrorLayer`:
    ///
    /// ```
    /// use http::Response;
    /// use plimsoll_tower::{BoxError, Rejected};
    ///
    /// async fn answer(error: BoxError) -> Response<String> {
    ///     match Rejected::find(&*error) {
    ///         Some(rejected) => rejected.to_http().map(|()| rejected.to_string()),
    ///         None => Response::builder().status(502).body(error.to_string()).expect("valid"),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn to_http(&self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() =
            StatusCode::from_u16(self.reason().row().http).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        self.add_header(&mut response);
        response
    }

    /// The whole answer in gRPC, without a body: code, message, pushback and `x-plimsoll-shed`.
    #[must_use]
    pub fn to_grpc(&self) -> Response<()> {
        let row = self.reason().row();
        let mut response = Response::new(());
        self.add_header(&mut response);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(row.grpc)));
        headers.insert("grpc-message", HeaderValue::from_static(row.text));
        if let Some(pushback) = row.pushback {
            let value = match (pushback, self.after()) {
                (Pushback::AtOnce, None) => AT_ONCE,
                // Rounded up: a retry before that is rejected again.
                (Pushback::AtOnce, Some(after)) => {
                    let millis = after.as_nanos().div_ceil(1_000_000).max(1);
                    HeaderValue::from(u64::try_from(millis).unwrap_or(u64::MAX))
                }
                (Pushback::Never, _) => NEVER,
            };
            headers.insert("grpc-retry-pushback-ms", value);
        }
        response
    }

    fn add_header(&self, response: &mut Response<()>) {
        let Some(shed) = self.reason().header(self.after()) else { return };
        let headers = response.headers_mut();
        headers.insert("x-plimsoll-shed", HeaderValue::from_static(shed.value));
        if let (Retry::After, Some(after)) = (shed.retry, self.after()) {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::Rejection;
    use plimsoll_core::admit::Shed;
    use plimsoll_core::rejection::Evidence;
    use plimsoll_core::retry::Advice;

    use super::*;
    use crate::End;
    use crate::classify::{grpc_head_end, http_end};

    /// A client with a layer of this crate reads an answer as the server meant it.
    #[test]
    fn answer_is_classified_as_its_reason() {
        for &reason in Rejection::SHED {
            for after in [None, Some(Duration::from_millis(2_500))] {
                let rejected = Rejected::from(Shed { reason, after });
                let row = reason.row();
                let expected = |advice| match row.evidence {
                    // Not retried over a quota, nor over a rate limit without a time.
                    _ if row.http == 429 => match advice {
                        Advice::After(_) if reason == Rejection::RateLimit => End::RateLimited(advice),
                        _ => End::RateLimited(Advice::Never),
                    },
                    Evidence::Overload => End::Overloaded(advice),
                    Evidence::Headroom => End::Throttled,
                    Evidence::TooLate => End::TooLate,
                };
                let rounded = Rejected::from(Shed { reason, after: after.map(|_| Duration::from_secs(3)) });
                let http = rejected.to_http();
                assert_eq!(http_end(http.status(), http.headers()), expected(rounded.advice()), "{reason}, {after:?}");
                let grpc = rejected.to_grpc();
                let found = grpc_head_end(grpc.status(), grpc.headers());
                assert_eq!(found, Some(expected(rounded.advice())), "{reason}, {after:?}: {grpc:?}");
            }
        }
        let pushback = |reason, after| {
            let answer = Rejected::from(Shed { reason, after }).to_grpc();
            answer.headers().get("grpc-retry-pushback-ms").map(|value| value.to_str().expect("text").to_owned())
        };
        assert_eq!(pushback(Rejection::Overloaded, None).as_deref(), Some("1"));
        assert_eq!(pushback(Rejection::Overloaded, Some(Duration::from_micros(1_500))).as_deref(), Some("2"));
        assert_eq!(pushback(Rejection::OverloadedNoRetry, None).as_deref(), Some("-1"));
        assert_eq!(pushback(Rejection::Throttled, None), None);
    }
}

//! The classifier of HTTP.

use http::{HeaderMap, Method, Request, Response, StatusCode};
use plimsoll_core::Criticality;
use plimsoll_core::retry::Advice;

use super::head::{forbids_retry, limited_end, unserved_end};
use super::{Classify, DynError, error_end};
use crate::{End, Report, RequestFacts};

/// The field of a criticality, as proxies and servers of Plimsoll read and write it.
const CRITICALITY: &str = "x-criticality";

/// Classifies HTTP by status and header fields: [`http_end`].
///
/// The facts of a request are its extension of the type [`RequestFacts`], if it has one. Otherwise
/// they are the defaults, and a request is idempotent by its method (RFC 9110, 9.2.2).
///
/// The end of a request is that of the head of its response: a body that breaks later does not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http {
    reads_claims: bool,
}

impl Http {
    /// Also reads the criticality in `x-criticality`. For servers whose callers are trusted with
    /// it.
    #[must_use]
    pub fn with_claims(self) -> Self {
        Self { reads_claims: true }
    }
}

impl Http {
    pub(super) fn facts<B>(self, request: &Request<B>) -> RequestFacts {
        let known = request.extensions().get::<RequestFacts>().copied();
        let mut facts = known.unwrap_or_else(|| facts_of(request.method()));
        if self.reads_claims
            && let Some(claim) = request.headers().get(CRITICALITY)
            && let Some(claimed) = claim.to_str().ok().and_then(|name| Criticality::from_name(name.trim()))
        {
            facts.criticality = claimed;
        }
        facts
    }
}

impl<B, T> Classify<Request<B>, Response<T>> for Http {
    type Response<R: Report> = Response<T>;

    fn facts(&self, request: &Request<B>) -> RequestFacts {
        Self::facts(*self, request)
    }

    fn end(&self, result: Result<&Response<T>, &DynError>) -> Option<End> {
        Some(match result {
            Ok(response) => http_end(response.status(), response.headers()),
            Err(error) => error_end(error),
        })
    }

    fn respond<R: Report>(&self, response: Response<T>, report: R) -> Response<T> {
        report.end(http_end(response.status(), response.headers()));
        response
    }
}

/// The facts of a request by its method.
fn facts_of(method: &Method) -> RequestFacts {
    if method.is_idempotent() { RequestFacts::default().idempotent() } else { RequestFacts::default() }
}

/// A classifier of HTTP for other types than those of `http`: see [`http_by`].
#[derive(Clone, Copy, Debug)]
pub struct HttpBy<F, G> {
    method: F,
    head: G,
}

/// The classifier [`Http`] for a service with types of its own, from the method of its requests and
/// the head of its responses. For reqwest:
///
/// ```text
/// use plimsoll_tower::classify::http_by;
/// use plimsoll_tower::{BoxError, RetryLayer, ThrottleLayer};
/// use reqwest::{Method, Request, Response};
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// #[tokio::main]
/// async fn main() -> Result<(), BoxError> {
///     let classify = http_by(Request::method, |response: &Response| {
///         (response.status(), response.headers())
///     });
///     let mut client = ServiceBuilder::new()
///         .layer(RetryLayer::new(classify).clone_by(Request::try_clone))
///         .layer(ThrottleLayer::new(classify))
///         .service(reqwest::Client::new());
///
///     let request = Request::new(Method::GET, "http://search:8080/".parse()?);
///     let response = client.ready().await?.call(request).await?;
///     println!("{}", response.status());
///     Ok(())
/// }
/// ```
///
/// Other facts than the method come from a closure: [`with_facts`](super::with_facts).
pub fn http_by<Req, Res, F, G>(method: F, head: G) -> HttpBy<F, G>
where
    F: Fn(&Req) -> &Method,
    G: Fn(&Res) -> (StatusCode, &HeaderMap),
{
    HttpBy { method, head }
}

impl<Req, Res, F, G> Classify<Req, Res> for HttpBy<F, G>
where
    F: Fn(&Req) -> &Method,
    G: Fn(&Res) -> (StatusCode, &HeaderMap),
{
    type Response<R: Report> = Res;

    fn facts(&self, request: &Req) -> RequestFacts {
        facts_of((self.method)(request))
    }

    fn end(&self, result: Result<&Res, &DynError>) -> Option<End> {
        Some(match result {
            Ok(response) => {
                let (status, headers) = (self.head)(response);
                http_end(status, headers)
            }
            Err(error) => error_end(error),
        })
    }

    fn respond<R: Report>(&self, response: Res, report: R) -> Res {
        let (status, headers) = (self.head)(&response);
        report.end(http_end(status, headers));
        response
    }
}

/// The end of a request by the head of its response.
///
/// | response | end |
/// |---|---|
/// | 429 | rate limited; with a time only if the reason is `rate-limit` |
/// | other status below 500 | served |
/// | 503 with a reason in `x-plimsoll-shed`, or `x-envoy-overloaded` | overloaded |
/// | 503 with a time before a retry, or advice in `x-plimsoll-shed` alone | busy |
/// | 503 with the reason `throttled` | throttled |
/// | 503, 504 with the reason `deadline` | too late |
/// | 502, other 503 | unavailable |
/// | other status from 500 | failed |
///
/// A server gives a reason, and its advice on a retry, in this form. Any other has no effect:
///
/// ```text
/// x-plimsoll-shed: reason=overloaded, retry=elsewhere
/// ```
///
/// Both are optional. A reason is one of [`Rejection`](plimsoll_core::Rejection), and advice one of
/// `elsewhere`, `after` (the time in `Retry-After`) and `never`. In Rust,
/// [`Rejected::to_http`](crate::Rejected::to_http) writes the answer.
#[must_use]
pub fn http_end(status: StatusCode, headers: &HeaderMap) -> End {
    match status {
        StatusCode::TOO_MANY_REQUESTS => limited_end(headers),
        status if status.as_u16() < 500 => End::Served,
        StatusCode::SERVICE_UNAVAILABLE => unserved_end(headers, false).unwrap_or_else(|| unavailable(headers)),
        StatusCode::BAD_GATEWAY => unavailable(headers),
        StatusCode::GATEWAY_TIMEOUT if unserved_end(headers, false) == Some(End::TooLate) => End::TooLate,
        _ => End::Failed,
    }
}

pub(super) fn unavailable(headers: &HeaderMap) -> End {
    End::Unavailable(if forbids_retry(headers) { Advice::Never } else { Advice::Elsewhere })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn response_head_decides_the_end_by_the_table() {
        let after = |seconds| Advice::After(Duration::from_secs(seconds));
        for (status, pairs, expected) in [
            (200, &[][..], End::Served),
            (404, &[], End::Served),
            (429, &[("retry-after", "7")], End::RateLimited(Advice::Never)),
            (429, &[("x-plimsoll-shed", "reason=rate-limit"), ("retry-after", "7")], End::RateLimited(after(7))),
            (500, &[], End::Failed),
            (501, &[("retry-after", "7")], End::Failed),
            (502, &[], End::Unavailable(Advice::Elsewhere)),
            (502, &[("x-plimsoll-shed", "retry=never")], End::Unavailable(Advice::Never)),
            (503, &[], End::Unavailable(Advice::Elsewhere)),
            (503, &[("x-plimsoll-shed", "retry=never")], End::Unavailable(Advice::Never)),
            (503, &[("retry-after", "7")], End::Busy(after(7))),
            (503, &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], End::Busy(Advice::Elsewhere)),
            (
                503,
                &[("x-amz-retry-after", "20"), ("retry-after", "1")],
                End::Busy(Advice::After(Duration::from_millis(20))),
            ),
            (503, &[("x-envoy-overloaded", "true")], End::Overloaded(Advice::Elsewhere)),
            (503, &[("x-plimsoll-shed", "reason=overloaded, retry=elsewhere")], End::Overloaded(Advice::Elsewhere)),
            (
                503,
                &[("x-plimsoll-shed", "reason=overloaded, retry=after"), ("retry-after", "2")],
                End::Overloaded(after(2)),
            ),
            (503, &[("x-plimsoll-shed", "reason=overloaded-no-retry, retry=never")], End::Overloaded(Advice::Never)),
            (503, &[("x-plimsoll-shed", "reason=lame-duck")], End::Overloaded(Advice::Elsewhere)),
            (503, &[("x-plimsoll-shed", "reason=throttled, retry=never")], End::Throttled),
            (503, &[("x-plimsoll-shed", "reason=of-later, retry=elsewhere;x=1")], End::Busy(Advice::Elsewhere)),
            (503, &[("x-plimsoll-shed", "nonsense")], End::Unavailable(Advice::Elsewhere)),
            (504, &[], End::Failed),
            (504, &[("x-plimsoll-shed", "reason=deadline, retry=never")], End::TooLate),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(http_end(status, &headers(pairs)), expected, "{status} {pairs:?}");
        }
    }

    #[test]
    fn request_is_idempotent_by_its_method_unless_its_extension_says() {
        let facts = |method: Method| Http::default().facts(&Request::builder().method(method).body(()).expect("valid"));
        assert_eq!(facts(Method::GET), RequestFacts::default().idempotent());
        assert_eq!(facts(Method::DELETE), RequestFacts::default().idempotent());
        assert_eq!(facts(Method::POST), RequestFacts::default());
        let mut request = Request::new(());
        request.extensions_mut().insert(RequestFacts::default());
        assert_eq!(Http::default().facts(&request), RequestFacts::default());
    }

    #[test]
    fn other_types_are_classified_by_method_and_head() {
        let classify =
            http_by(Request::<()>::method, |response: &Response<()>| (response.status(), response.headers()));
        let facts = |method: Method| {
            let request = Request::builder().method(method).body(()).expect("valid");
            Classify::<_, Response<()>>::facts(&classify, &request)
        };
        assert_eq!(facts(Method::PUT), RequestFacts::default().idempotent());
        assert_eq!(facts(Method::PATCH), RequestFacts::default());
        let response = Response::builder().status(429).body(()).expect("valid");
        let end = Classify::<Request<()>, _>::end(&classify, Ok(&response));
        assert_eq!(end, Some(End::RateLimited(Advice::Never)));
    }

    #[test]
    fn claimed_criticality_counts_only_when_claims_are_read() {
        let mut request = Request::new(());
        request.headers_mut().insert(CRITICALITY, "sheddable".parse().expect("a value"));
        assert_eq!(Http::default().facts(&request).criticality, Criticality::Critical);
        assert_eq!(Http::default().with_claims().facts(&request).criticality, Criticality::Sheddable);
        request.headers_mut().insert(CRITICALITY, "urgent".parse().expect("a value"));
        assert_eq!(Http::default().with_claims().facts(&request).criticality, Criticality::Critical);
    }
}

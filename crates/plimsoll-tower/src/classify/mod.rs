//! Classifiers: facts of requests, and the ends of requests by their responses and errors.
//!
//! | classifier | for | reads |
//! |---|---|---|
//! | [`ByResult`] | any service | errors alone: each response counts as served |
//! | `Http` | `http` requests and responses | status and header fields of any server |
//! | `http_by` | other types of HTTP, such as reqwest's | the same |
//! | `Grpc` | the same for gRPC | `grpc-status` in the head or the trailers |
//! | [`by`] | any service | results, by a closure |
//! | [`with_facts`] | any of these | facts of requests, by a closure |
//!
//! A layer turns the error of its service into a [`BoxError`](crate::BoxError) first, as tower's
//! layers do. So a classifier sees the errors of layers below it, at any depth: by
//! [`Error::source`].
//!
//! A classifier that does not fit the types of a service makes the layer no service of them. Of a
//! call of `ready` the compiler then says: *its trait bounds were not satisfied*. For the reason,
//! have it compile `tower::Service::call(&mut client, request)`.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::rejected::sources;
use crate::{End, Rejected, Report, RequestFacts};

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod grpc;
#[cfg(feature = "http")]
mod head;
#[cfg(feature = "http")]
mod http;

#[cfg(feature = "http")]
pub use self::body::GrpcBody;
#[cfg(feature = "http")]
pub use self::grpc::{Grpc, grpc_head_end, grpc_trailers_end};
#[cfg(feature = "http")]
pub use self::http::{Http, HttpBy, http_by, http_end};

/// An error of a service, as a classifier sees it.
pub type DynError = dyn Error + Send + Sync;

/// Reads facts of requests, and the ends of requests.
///
/// `Req` and `Res` are the request and response of the service. Most services need no classifier of
/// their own: see the [module](self).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not classify requests `{Req}` with responses `{Res}`",
    note = "`Http` and `Grpc` are for types of the crate `http`; other types of HTTP need `classify::http_by`",
    note = "`ByResult` fits any service, and so does a closure by `classify::by`"
)]
pub trait Classify<Req, Res> {
    /// The response with a report in it; `Res` where the end of a request is known from the head of
    /// its response.
    type Response<R: Report>;

    /// The facts of a request that is about to be sent.
    fn facts(&self, request: &Req) -> RequestFacts {
        let _ = request;
        RequestFacts::default()
    }

    /// The end of a request by its result; `None` if only the rest of the response will tell.
    fn end(&self, result: Result<&Res, &DynError>) -> Option<End>;

    /// Reports the end of a request by its response, at once or later.
    fn respond<R: Report>(&self, response: Res, report: R) -> Self::Response<R>;
}

/// Classifies by the error alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByResult;

impl<Req, Res> Classify<Req, Res> for ByResult {
    type Response<R: Report> = Res;

    fn end(&self, result: Result<&Res, &DynError>) -> Option<End> {
        Some(result.map_or_else(error_end, |_| End::Served))
    }

    fn respond<R: Report>(&self, response: Res, report: R) -> Res {
        report.end(End::Served);
        response
    }
}

/// A classifier by a closure: see [`by`].
#[derive(Clone, Copy, Debug)]
pub struct By<F>(F);

/// A classifier of results by a closure.
///
/// ```
/// use plimsoll_tower::plimsoll_core::retry::Advice;
/// use plimsoll_tower::classify::{DynError, by, error_end};
/// use plimsoll_tower::End;
///
/// let classify = by(|result: Result<&String, &DynError>| match result {
///     Ok(answer) if answer == "BUSY" => End::Overloaded(Advice::None),
///     Ok(_) => End::Served,
///     Err(error) => error_end(error),
/// });
/// ```
pub fn by<Res, F>(end: F) -> By<F>
where
    F: Fn(Result<&Res, &DynError>) -> End,
{
    By(end)
}

impl<Req, Res, F> Classify<Req, Res> for By<F>
where
    F: Fn(Result<&Res, &DynError>) -> End,
{
    type Response<R: Report> = Res;

    fn end(&self, result: Result<&Res, &DynError>) -> Option<End> {
        Some((self.0)(result))
    }

    fn respond<R: Report>(&self, response: Res, report: R) -> Res {
        report.end((self.0)(Ok(&response)));
        response
    }
}

/// A classifier with the facts of a closure: see [`with_facts`].
#[derive(Clone, Copy, Debug)]
pub struct WithFacts<C, F> {
    classify: C,
    facts: F,
}

/// `classify` with the facts of requests from a closure. It gets the facts that `classify` reads,
/// and returns those that count.
///
/// ```
/// use plimsoll_tower::plimsoll_core::Criticality;
/// use plimsoll_tower::RequestFacts;
/// use plimsoll_tower::classify::{ByResult, with_facts};
///
/// struct Query {
///     is_batch: bool,
/// }
///
/// let classify = with_facts(ByResult, |query: &Query, facts: RequestFacts| match query.is_batch {
///     true => facts.with_criticality(Criticality::Sheddable),
///     false => facts,
/// });
/// ```
pub fn with_facts<C, Req, F>(classify: C, facts: F) -> WithFacts<C, F>
where
    F: Fn(&Req, RequestFacts) -> RequestFacts,
{
    WithFacts { classify, facts }
}

impl<Req, Res, C, F> Classify<Req, Res> for WithFacts<C, F>
where
    C: Classify<Req, Res>,
    F: Fn(&Req, RequestFacts) -> RequestFacts,
{
    type Response<R: Report> = C::Response<R>;

    fn facts(&self, request: &Req) -> RequestFacts {
        (self.facts)(request, self.classify.facts(request))
    }

    fn end(&self, result: Result<&Res, &DynError>) -> Option<End> {
        self.classify.end(result)
    }

    fn respond<R: Report>(&self, response: Res, report: R) -> Self::Response<R> {
        self.classify.respond(response, report)
    }
}

/// The end of a request by its error and the sources of that.
///
/// | in the error | end |
/// |---|---|
/// | a [`Rejected`] of a layer below | rejected |
/// | [`io::Error`]: refused; unreachable; timed out | no connection; no connection; timed out |
/// | an expired timeout of tokio (or of tower, with the feature `tower_0_5`) | timed out |
/// | anything else | broken |
///
/// An error of unknown kind counts as a broken connection: the request may have been served, and
/// the throttle waits for more evidence.
#[must_use]
pub fn error_end(error: &DynError) -> End {
    let found = sources(error).find_map(|error| {
        if let Some(rejected) = error.downcast_ref::<Rejected>() {
            return Some(End::Rejected(*rejected));
        }
        #[cfg(feature = "tower_0_5")]
        if error.is::<tower::timeout::error::Elapsed>() {
            return Some(End::TimedOut);
        }
        if error.is::<tokio::time::error::Elapsed>() {
            return Some(End::TimedOut);
        }
        match error.downcast_ref::<io::Error>()?.kind() {
            ErrorKind::ConnectionRefused => Some(End::ConnectRefused),
            ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
            | ErrorKind::NetworkDown => Some(End::ConnectFailed),
            ErrorKind::TimedOut => Some(End::TimedOut),
            // It may wrap one of the others.
            _ => None,
        }
    });
    found.unwrap_or(End::Broken)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use plimsoll_core::Rejection;

    use super::*;
    use crate::BoxError;

    #[derive(Debug)]
    struct Outer(BoxError);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    #[test]
    fn error_is_classified_by_its_first_known_source() {
        let rejected = Rejected::new(Rejection::Throttled);
        for (error, expected) in [
            (BoxError::from("unknown"), End::Broken),
            (io::Error::from(ErrorKind::ConnectionRefused).into(), End::ConnectRefused),
            (io::Error::from(ErrorKind::NetworkUnreachable).into(), End::ConnectFailed),
            (io::Error::from(ErrorKind::TimedOut).into(), End::TimedOut),
            (io::Error::from(ErrorKind::ConnectionReset).into(), End::Broken),
            (rejected.into(), End::Rejected(rejected)),
        ] {
            assert_eq!(error_end(&*error), expected, "{error}");
            assert_eq!(error_end(&Outer(Box::new(Outer(error)))), expected);
        }
    }
}

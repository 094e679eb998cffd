//! Why a request got no response.
//!
//! One enum for every failure between the call and the last byte of the body. Each reason says
//! whether anything was sent, because that decides whether a caller may safely send the request
//! again.
//!
//! Each error displays its own part, and the cause is its source. A walk along the chain shows
//! every part once, and finds the [`io::Error`] or [`hyper::Error`] in it. [`Error::in_full`] does
//! that walk.

use crate::address::Address;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::retry::CallerAnswer;
use plimsoll_core::{Criticality, Ratio, Rejection};
use plimsoll_http1::Fault;
use rustix::io::Errno;

use super::attempt_end::{AttemptEnd, Gateway};
#[cfg(feature = "http2")]
use super::hyper_error::{Origin, h2_error, refused};
use super::refused::Refusal;
use super::request_body::BoxError;

/// The reason why there is no (further) response.
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
    /// The client throttled the request: most requests of this criticality are shed. Nothing was
    /// sent.
    #[error("throttled: {:.0}% of {criticality} requests to this cluster are not sent, because most are shed", held.as_f64() * 100.0)]
    Throttled {
        /// Of the request.
        criticality: Criticality,
        /// The share of such requests that was throttled then.
        held: Ratio,
    },
    /// No locality has headroom for requests of this criticality. Nothing was sent.
    #[error("no locality has headroom for {criticality} requests")]
    NoRoom {
        /// Of the request.
        criticality: Criticality,
    },
    /// Batch work was shed: its queue was full, or it waited too long.
    #[error("batch request shed: {reason} (waited {waited:?}{})", Tries(*attempts))]
    TurnedAway {
        /// The reason of the last backend; [`Rejection::Overloaded`] if there was none.
        reason: Rejection,
        /// Time in the queue and at backends.
        waited: Duration,
        /// When to come again.
        after: Duration,
        /// Attempts that were made.
        attempts: u32,
    },
    /// Connections to all tried backends failed. Nothing was sent.
    #[error("cannot connect to {address}{}", Tries(*attempts))]
    Connect {
        /// The last backend that was tried.
        address: Address,
        /// Why.
        #[source]
        cause: ConnectError,
        /// Attempts that were made.
        attempts: u32,
        /// One that was tried before has seen the request.
        was_seen: bool,
    },
    /// A backend asked for a later retry. Then no backend was available, or requests were
    /// throttled.
    #[error("{address} {refused}; no other backend was available{}", Tries(*attempts))]
    Refused {
        /// The backend that said so.
        address: Address,
        /// Its refusal.
        refused: Refusal,
        /// Attempts that were made.
        attempts: u32,
        /// The failure that its caller is told.
        caller_answer: CallerAnswer,
    },
    /// No head of a response in time. The request may have been carried out.
    #[error("no response within {after:?}{}{}", Whence(*address), Tries(*attempts))]
    Timeout {
        /// The limit.
        after: Duration,
        /// The last backend that was tried; `None` if it is no backend any more.
        address: Option<Address>,
        /// Attempts that were made.
        attempts: u32,
    },
    /// No head of a response in the time of one attempt. The request went to another backend.
    #[error("no response within {after:?}{}, the time of one attempt", Whence(*address))]
    Overdue {
        /// The limit.
        after: Duration,
        /// The backend; `None` if it is no backend any more.
        address: Option<Address>,
    },
    /// The body stopped arriving.
    #[error("no byte of the response's body for {after:?}")]
    BodyIdle {
        /// The limit.
        after: Duration,
    },
    /// The request's caller was slow while others waited for a slot
    /// ([`preempt`](plimsoll_core::slots::preempt)).
    #[error("preempted for other requests: its client was slower than 8 KiB a second")]
    Preempted,
    /// The request's own body failed while it was being sent: the caller's side, not the backend's.
    #[error("the request's body failed")]
    RequestBody(#[source] Cause),
    /// The connection closed, or was reset, before the response was complete. The request may have been
    /// carried out.
    #[error("connection to {address} closed{}", Tries(*attempts))]
    Closed {
        /// Which backend, the last that was tried.
        address: Address,
        /// Why.
        #[source]
        cause: Cause,
        /// Attempts that were made.
        attempts: u32,
        /// The failure that its caller is told.
        caller_answer: CallerAnswer,
    },
    /// The backend ended the response early, but without an error.
    #[error("{address} cut off its response")]
    CutOff {
        /// Which backend.
        address: Address,
    },
    /// The backend's answer is not HTTP.
    #[error("bad response from {address}{}", Tries(*attempts))]
    BadResponse {
        /// Which backend, the last that was tried.
        address: Address,
        /// Why.
        #[source]
        cause: Cause,
        /// Attempts that were made.
        attempts: u32,
    },
}

/// Says how many attempts there were, if there was more than one.
struct Tries(u32);

impl fmt::Display for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 1 { write!(f, " (the last of {} attempts)", self.0) } else { Ok(()) }
    }
}

/// Names the backend, if it is known.
struct Whence(Option<Address>);

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| write!(f, " from {address}"))
    }
}

/// An error and its causes, in one line.
struct InFull<'a>(&'a Error);

impl fmt::Display for InFull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut behind = std::error::Error::source(self.0);
        while let Some(cause) = behind {
            write!(f, ": {cause}")?;
            behind = cause.source();
        }
        Ok(())
    }
}

/// The defect of a message or its connection, or the caller's own error of a request body.
#[derive(Clone, Debug)]
pub struct Cause(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// HTTP/2.
    #[cfg(feature = "http2")]
    Hyper(Arc<hyper::Error>),
    /// HTTP/1: bytes that are no response, or only half of one.
    Fault(Fault),
    /// HTTP/1: bytes that are one, in a place where none may be.
    OutOfTurn(OutOfTurn),
    /// HTTP/1: the connection broke, or ended.
    Io(Arc<io::Error>),
    /// The caller's own error.
    Body(Arc<dyn std::error::Error + Send + Sync>),
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
struct OutOfTurn(&'static str);

impl Cause {
    pub(crate) fn out_of_turn(what: &'static str) -> Self {
        Self(Kind::OutOfTurn(OutOfTurn(what)))
    }

    /// Whether the connection went, and not the message was bad.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(self.0, Kind::Io(_))
    }

    /// Whether the backend broke the protocol of a connection that other requests share.
    fn is_of_shared_connection(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "http2")]
            Kind::Hyper(error) => h2_error(error).is_none_or(|error| !error.is_reset()),
            _ => false,
        }
    }

    /// Whether the peer said that it did not look at the request.
    fn was_refused(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "http2")]
            Kind::Hyper(error) => refused(error),
            _ => false,
        }
    }

    pub(crate) fn body(error: BoxError) -> Self {
        Self(Kind::Body(error.into()))
    }
}

impl From<Fault> for Cause {
    fn from(fault: Fault) -> Self {
        Self(Kind::Fault(fault))
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self(Kind::Io(Arc::new(error)))
    }
}

impl Deref for Cause {
    type Target = dyn std::error::Error + Send + Sync + 'static;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            #[cfg(feature = "http2")]
            Kind::Hyper(error) => &**error,
            Kind::Fault(fault) => fault,
            Kind::OutOfTurn(what) => what,
            Kind::Io(error) => &**error,
            Kind::Body(error) => &**error,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// The reason why no connection could be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system said no.
    #[error(transparent)]
    Io(Arc<io::Error>),
    /// The TLS handshake failed, or the backend's certificate is not the expected one.
    #[error("TLS failed")]
    Tls(#[source] Arc<io::Error>),
    /// Nothing was said for too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It was opened, and closed again before a request was on it.
    #[error("connections are closed as soon as they are opened")]
    ClosedAtOnce,
    /// The request is gRPC, no protocol is configured, and the backend has not shown that it speaks
    /// HTTP/2.
    #[error("backend seems not to speak HTTP/2, which gRPC needs")]
    NotHttp2,
    /// The HTTP set-up failed.
    #[error(transparent)]
    #[cfg(feature = "http2")]
    Handshake(Arc<hyper::Error>),
}

impl ConnectError {
    /// The end of an attempt that got no connection for this reason.
    pub(crate) fn end(&self) -> AttemptEnd {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => AttemptEnd::ConnectRefused,
            Self::Io(_) if self.is_own_shortage() => AttemptEnd::ConnectLocal,
            // It is the request that needs HTTP/2.
            Self::NotHttp2 => AttemptEnd::ConnectLocal,
            Self::Io(_) | Self::Tls(_) | Self::Timeout(_) | Self::ClosedAtOnce => AttemptEnd::ConnectFailed,
            #[cfg(feature = "http2")]
            Self::Handshake(_) => AttemptEnd::ConnectFailed,
        }
    }

    /// Whether this process, or its machine, lacked a descriptor, a port or memory for a
    /// connection. It is no evidence about the backend.
    #[must_use]
    pub fn is_own_shortage(&self) -> bool {
        let Self::Io(error) = self else { return false };
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
        Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
    }
}

impl Error {
    /// The error with its causes in one line, for logs and people.
    pub fn in_full(&self) -> impl fmt::Display + '_ {
        InFull(self)
    }

    /// The backend that failed, if the error is about one.
    #[must_use]
    pub fn backend_address(&self) -> Option<Address> {
        match self {
            Self::Connect { address, .. }
            | Self::Refused { address, .. }
            | Self::Closed { address, .. }
            | Self::CutOff { address }
            | Self::BadResponse { address, .. } => Some(*address),
            Self::Timeout { address, .. } | Self::Overdue { address, .. } => *address,
            _ => None,
        }
    }

    /// The number of attempts. Zero if there was none.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        match self {
            Self::NoBackend | Self::Saturated { .. } | Self::Throttled { .. } | Self::NoRoom { .. } => 0,
            Self::TurnedAway { attempts, .. }
            | Self::Connect { attempts, .. }
            | Self::Refused { attempts, .. }
            | Self::Timeout { attempts, .. }
            | Self::Closed { attempts, .. }
            | Self::BadResponse { attempts, .. } => *attempts,
            Self::Overdue { .. }
            | Self::BodyIdle { .. }
            | Self::RequestBody(_)
            | Self::CutOff { .. }
            | Self::Preempted => 1,
        }
    }

    /// The same, after `tried` attempts. A backend may have seen `seen` of them.
    pub(crate) fn after(mut self, tried: u32, seen: u32) -> Self {
        if let Self::Connect { was_seen, .. } = &mut self {
            *was_seen = seen > 0;
        }
        if let Self::Connect { attempts, .. }
        | Self::Refused { attempts, .. }
        | Self::Timeout { attempts, .. }
        | Self::Closed { attempts, .. }
        | Self::BadResponse { attempts, .. } = &mut self
        {
            *attempts = tried;
        }
        self
    }

    /// The same, with this advice for the caller.
    pub(crate) fn with_caller_answer(mut self, answer: CallerAnswer) -> Self {
        if let Self::Refused { caller_answer, .. } | Self::Closed { caller_answer, .. } = &mut self {
            *caller_answer = answer;
        }
        self
    }

    /// The advice for the caller of a gateway.
    ///
    /// [`CallerAnswer::DoNotRetry`] says that another attempt would only come back here. An error with a
    /// [`shed_reason`](Error::shed_reason) gives its advice by that.
    #[must_use]
    pub fn caller_answer(&self) -> CallerAnswer {
        match self {
            Self::Refused { caller_answer, .. } | Self::Closed { caller_answer, .. } => *caller_answer,
            _ => CallerAnswer::Answer,
        }
    }

    /// The word for it in metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause() {
            Ok(end) => end.row().name,
            Err(reason) => reason.name(),
        }
    }

    /// The reason in the table of answers without service, if it has one.
    #[must_use]
    pub fn shed_reason(&self) -> Option<Rejection> {
        match self.gateway() {
            Gateway::Shed(reason) => Some(reason),
            Gateway::Own(..) => None,
        }
    }

    /// The answer of a gateway.
    pub(crate) fn gateway(&self) -> Gateway {
        match self.cause() {
            _ if self.caller_answer() == CallerAnswer::DoNotRetry && matches!(self, Self::Refused { .. }) => {
                Gateway::Shed(Rejection::OverloadedNoRetry)
            }
            Ok(end) => end.row().gateway,
            Err(reason) => Gateway::Shed(reason),
        }
    }

    /// The end of the last attempt; or the reason why there was none, or none that counts.
    fn cause(&self) -> Result<AttemptEnd, Rejection> {
        Ok(match self {
            Self::NoBackend => return Err(Rejection::NoBackend),
            Self::Saturated { .. } => return Err(Rejection::Saturated),
            Self::Throttled { .. } => return Err(Rejection::Throttled),
            Self::NoRoom { .. } => return Err(Rejection::OverloadedNoRetry),
            Self::TurnedAway { reason, .. } => return Err(*reason),
            Self::Connect { cause, .. } => cause.end(),
            Self::Refused { refused, .. } => refused.end(),
            Self::Timeout { .. } => AttemptEnd::Timeout,
            Self::Overdue { .. } => AttemptEnd::Overdue,
            Self::BodyIdle { .. } => AttemptEnd::BodyIdle,
            Self::Preempted => AttemptEnd::Preempted,
            Self::RequestBody(_) => AttemptEnd::RequestBody,
            Self::Closed { cause, .. } if cause.was_refused() => AttemptEnd::RefusedStream,
            Self::Closed { .. } => AttemptEnd::Closed,
            Self::CutOff { .. } => AttemptEnd::CutOff,
            Self::BadResponse { cause, .. } if cause.is_of_shared_connection() => AttemptEnd::MalformedConnection,
            Self::BadResponse { .. } => AttemptEnd::Malformed,
        })
    }

    /// The end of the attempt with this error. Without an attempt nothing was sent.
    pub(crate) fn end(&self) -> AttemptEnd {
        self.cause().unwrap_or(AttemptEnd::Removed)
    }

    /// The time before a retry, if it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TurnedAway { after, .. } => Some(*after),
            Self::Refused { refused, caller_answer: CallerAnswer::Answer, .. } => refused.after,
            _ => None,
        }
    }

    /// Whether certainly no backend saw the request.
    #[must_use]
    pub fn nothing_sent(&self) -> bool {
        match self {
            Self::NoBackend | Self::Saturated { .. } | Self::Throttled { .. } | Self::NoRoom { .. } => true,
            Self::TurnedAway { attempts, .. } => *attempts == 0,
            Self::Connect { was_seen, .. } => !was_seen,
            _ => false,
        }
    }

    #[cfg(feature = "http2")]
    /// Sorts an error of hyper's, met on a connection to `address`.
    pub(crate) fn from_hyper(address: Address, cause: hyper::Error) -> Self {
        let origin = Origin::of(&cause);
        let cause = Cause(Kind::Hyper(Arc::new(cause)));
        match origin {
            Origin::RequestBody => Self::RequestBody(cause),
            Origin::Malformed => Self::BadResponse { address, cause, attempts: 1 },
            Origin::Connection => Self::Closed { address, cause, attempts: 1, caller_answer: CallerAnswer::Answer },
        }
    }

    /// Sorts a fault of an HTTP/1 connection to `address`.
    pub(crate) fn from_http1(address: Address, cause: Cause) -> Self {
        match &cause.0 {
            Kind::Body(_) => Self::RequestBody(cause),
            Kind::Io(_) | Kind::Fault(Fault::CutOff) => {
                Self::Closed { address, cause, attempts: 1, caller_answer: CallerAnswer::Answer }
            }
            Kind::Fault(_) | Kind::OutOfTurn(_) => Self::BadResponse { address, cause, attempts: 1 },
            #[cfg(feature = "http2")]
            Kind::Hyper(_) => Self::Closed { address, cause, attempts: 1, caller_answer: CallerAnswer::Answer },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    const ADDRESS: &str = "127.0.0.1:9";

    fn closed(cause: Cause) -> Error {
        Error::from_http1(ADDRESS.parse().unwrap(), cause)
    }

    fn unreachable(cause: ConnectError) -> Error {
        Error::Connect { address: ADDRESS.parse().unwrap(), cause, attempts: 1, was_seen: false }
    }

    #[test]
    fn each_error_of_a_chain_says_its_own_part_once() {
        let io = |text: &str| io::Error::other(text.to_owned());
        let tls = || Arc::new(io("unknown issuer"));
        for (error, alone, behind) in [
            (closed(io("broken pipe").into()), "connection to 127.0.0.1:9 closed", "broken pipe"),
            (closed(Fault::CutOff.into()), "connection to 127.0.0.1:9 closed", Fault::CutOff.message()),
            (closed(Cause::out_of_turn("early")), "bad response from 127.0.0.1:9", "early"),
            (closed(Cause::body("no more".into())), "the request's body failed", "no more"),
            (unreachable(ConnectError::Io(tls())), "cannot connect to 127.0.0.1:9", "unknown issuer"),
            (unreachable(ConnectError::Tls(tls())), "cannot connect to 127.0.0.1:9", "TLS failed: unknown issuer"),
        ] {
            assert_eq!(error.to_string(), alone);
            assert_eq!(error.in_full().to_string(), format!("{alone}: {behind}"));
        }
        assert_eq!(Error::NoBackend.in_full().to_string(), Error::NoBackend.to_string());
    }

    #[test]
    fn what_the_system_said_is_found_by_who_walks_the_chain() {
        let error = closed(io::Error::from(io::ErrorKind::ConnectionReset).into());
        let found = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(found.map(io::Error::kind), Some(io::ErrorKind::ConnectionReset));
    }
}

//! What is told of attempts that failed, to whoever has to explain them.
//!
//! Of a request that is answered at once there is nothing to tell, and nothing is allocated for it.

use std::net::SocketAddr;
use std::time::Duration;

use super::error::Error;

/// An attempt at a backend that brought no answer.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// Where; `None` if it is no backend any more.
    pub backend: Option<SocketAddr>,
    /// When it had failed, since the request came.
    pub after: Duration,
    /// Why it failed.
    pub error: Error,
    /// What came of it.
    pub next: Next,
}

/// What comes of an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Nothing had been sent: another backend was asked.
    Elsewhere,
    /// No other backend was left to ask.
    NoOther,
    /// As many were asked as may be.
    TooMany,
    /// No time was left.
    TooLate,
    /// The backend may have seen the request, so that it must not be sent again.
    MayBeSeen,
}

impl Next {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Elsewhere => "tried elsewhere: nothing had been sent",
            Self::NoOther => "given up: no other backend was left",
            Self::TooMany => "given up: as many backends were tried as may be",
            Self::TooLate => "given up: no time was left",
            Self::MayBeSeen => "not tried again: the backend may have seen the request",
        }
    }
}

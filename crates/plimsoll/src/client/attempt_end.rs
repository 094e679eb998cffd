//! The end of an attempt at a backend.

use http::StatusCode;

/// How one attempt at a backend ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a response of this status.
    Answered(StatusCode),
    /// The caller went away first.
    Cancelled,
    /// No connection; nothing was sent.
    ConnectFailed,
    /// The connection broke, or what came was not HTTP.
    Broken,
    /// Too late.
    TimedOut,
}

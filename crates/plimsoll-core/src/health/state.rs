//! The states of a backend, and the reasons for them.

use core::fmt;

/// One client's judgment of a backend's fitness to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Added, not yet reached or not yet checked.
    Connecting,
    /// Gets new requests.
    Healthy,
    /// Asked for no more requests, or was drained by an operator: finishes its requests in flight.
    LameDuck,
    /// Does not accept connections, or fails its checks: checked again with growing delay.
    Refusing,
    /// An outlier: left out for a while.
    Ejected,
}

impl State {
    /// All states, in the order of a backend's life.
    pub const ALL: [Self; 5] = [Self::Connecting, Self::Healthy, Self::LameDuck, Self::Refusing, Self::Ejected];

    /// The word for it in metrics, logs and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Healthy => "healthy",
            Self::LameDuck => "lame-duck",
            Self::Refusing => "refusing",
            Self::Ejected => "ejected",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason for a backend's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It was just added.
    Added,
    /// A connection was set up, and no check is required.
    Connected,
    /// A connection could not be set up.
    ConnectFailed,
    /// Its health check passed.
    CheckPassed,
    /// Its health check failed as often as the configuration tolerates.
    CheckFailed,
    /// Its health check answered that it is not serving.
    NotServing,
    /// Its own load report said that it is a lame duck.
    Reported,
    /// It was a lame duck and its process ended.
    ProcessEnded,
    /// An operator drained it.
    Drained,
    /// An operator ended the drain.
    Undrained,
    /// It failed several requests in a row.
    ConsecutiveFailures,
    /// Its success rate was far below that of its peers.
    SuccessRate,
    /// Its ejection expired.
    EjectionOver,
}

impl Reason {
    /// The word for it in metrics, logs and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Connected => "connected",
            Self::ConnectFailed => "connect-failed",
            Self::CheckPassed => "check-passed",
            Self::CheckFailed => "check-failed",
            Self::NotServing => "not-serving",
            Self::Reported => "reported",
            Self::ProcessEnded => "gone",
            Self::Drained => "drained",
            Self::Undrained => "undrained",
            Self::ConsecutiveFailures => "consecutive-failures",
            Self::SuccessRate => "success-rate",
            Self::EjectionOver => "ejection-over",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

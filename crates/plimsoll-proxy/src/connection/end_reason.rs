//! Why the proxy ended a client's connection, other than because it or the client was done.

use crate::counts::Label;
use plimsoll_http2::{Abuse, Breach};

/// Which limit a connection has overstayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// No request for too long.
    Idle,
    /// A head that takes too long.
    Head,
    /// A body that comes too slowly.
    Body,
    /// An answer that is taken too slowly.
    Answer,
}

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The client took too long.
    Timeout(Timeout),
    /// The client did too much.
    Abuse(Abuse),
    /// The client broke the protocol.
    Protocol,
    /// Something was in flight on it when the time to drain was over.
    Drain,
    /// An HTTP/2 client did not answer a PING.
    NoPong,
}

impl Label for EndReason {
    type Name = &'static str;

    const ALL: &'static [Self] = &[
        Self::Timeout(Timeout::Idle),
        Self::Timeout(Timeout::Head),
        Self::Timeout(Timeout::Body),
        Self::Timeout(Timeout::Answer),
        Self::Abuse(Abuse::Resets),
        Self::Abuse(Abuse::ControlFrames),
        Self::Abuse(Abuse::Stall),
        Self::Protocol,
        Self::Drain,
        Self::NoPong,
    ];

    fn index(self) -> usize {
        match self {
            Self::Timeout(overdue) => overdue as usize,
            Self::Abuse(abuse) => 4 + abuse as usize,
            Self::Protocol => 7,
            Self::Drain => 8,
            Self::NoPong => 9,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Timeout(Timeout::Idle) => "idle",
            Self::Timeout(Timeout::Head) => "slow-head",
            Self::Timeout(Timeout::Body) => "slow-body",
            Self::Timeout(Timeout::Answer) => "slow-answer",
            Self::Abuse(Abuse::Resets) => "resets",
            Self::Abuse(Abuse::ControlFrames) => "control-frames",
            Self::Abuse(Abuse::Stall) => "stall",
            Self::Protocol => "protocol",
            Self::Drain => "drain",
            Self::NoPong => "no-pong",
        }
    }
}

impl From<Breach> for EndReason {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::Abuse(abuse) => Self::Abuse(abuse),
            Breach::Protocol => Self::Protocol,
        }
    }
}

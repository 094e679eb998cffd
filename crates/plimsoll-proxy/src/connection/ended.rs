//! Why the proxy ended a client's connection, other than because it or the client was done.

use crate::counts::Label;
use plimsoll_http2::{Abuse, Breach};

/// Which limit a connection has overstayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
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
pub(crate) enum Ended {
    /// The client took too long.
    Overdue(Overdue),
    /// The client did too much.
    Abuse(Abuse),
    /// The client broke the protocol.
    Protocol,
    /// Something was in flight on it when the time to drain was over.
    Drain,
}

impl Label for Ended {
    type Name = &'static str;

    const ALL: &'static [Self] = &[
        Self::Overdue(Overdue::Idle),
        Self::Overdue(Overdue::Head),
        Self::Overdue(Overdue::Body),
        Self::Overdue(Overdue::Answer),
        Self::Abuse(Abuse::Resets),
        Self::Abuse(Abuse::ControlFrames),
        Self::Abuse(Abuse::Stall),
        Self::Protocol,
        Self::Drain,
    ];

    fn index(self) -> usize {
        match self {
            Self::Overdue(overdue) => overdue as usize,
            Self::Abuse(abuse) => 4 + abuse as usize,
            Self::Protocol => 7,
            Self::Drain => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Overdue(Overdue::Idle) => "idle",
            Self::Overdue(Overdue::Head) => "slow-head",
            Self::Overdue(Overdue::Body) => "slow-body",
            Self::Overdue(Overdue::Answer) => "slow-answer",
            Self::Abuse(Abuse::Resets) => "resets",
            Self::Abuse(Abuse::ControlFrames) => "control-frames",
            Self::Abuse(Abuse::Stall) => "stall",
            Self::Protocol => "protocol",
            Self::Drain => "drain",
        }
    }
}

impl From<Breach> for Ended {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::Abuse(abuse) => Self::Abuse(abuse),
            Breach::Protocol => Self::Protocol,
        }
    }
}

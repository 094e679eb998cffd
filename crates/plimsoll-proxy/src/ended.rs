//! Why the proxy ended a client's connection, other than because it or the client was done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time_limits::Overdue;
use plimsoll_http2::{Abuse, Breach};

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

impl Ended {
    /// All of them, in the order in which they are counted.
    const ALL: [Self; 9] = [
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

    /// The word for it in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
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

/// Connections that were ended, by reason.
#[derive(Debug, Default)]
pub(crate) struct EndedCounts([AtomicU64; Ended::ALL.len()]);

impl EndedCounts {
    pub(crate) fn count(&self, ended: Ended) {
        self.0[ended.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ended::ALL.into_iter().map(|ended| (ended.name(), self.0[ended.index()].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_in_a_place_of_its_own() {
        let counts = EndedCounts::default();
        for (times, ended) in (1..).zip(Ended::ALL) {
            (0..times).for_each(|_| counts.count(ended));
        }
        assert_eq!(counts.counts().map(|(_, count)| count).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    }
}

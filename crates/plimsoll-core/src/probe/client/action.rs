//! The results of a client's probes: the path, the work for the caller, the judgment of a datagram.

use super::super::message::{Query, ServerState};
use crate::LoadReport;

/// Whether datagrams get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Not known yet.
    Unknown,
    /// Queries are answered.
    Works,
    /// Probes are of no use.
    Silent(SilenceCause),
}

impl Path {
    /// The word for it in metrics and views.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Works => "works",
            Self::Silent(cause) => cause.name(),
        }
    }
}

/// The reason for a silent path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SilenceCause {
    /// Queries get no answer while TCP works: a firewall drops UDP.
    NoAnswer,
    /// The UDP port is closed.
    Refused,
    /// The responder does not speak for the TCP port.
    NoSuchPort,
    /// The responder speaks another version.
    OtherVersion,
    /// Several processes answer in turn: there is a packet balancer in between.
    Alternating,
}

impl SilenceCause {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::NoAnswer, Self::Refused, Self::NoSuchPort, Self::OtherVersion, Self::Alternating];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no-answer",
            Self::Refused => "refused",
            Self::NoSuchPort => "no-such-port",
            Self::OtherVersion => "other-version",
            Self::Alternating => "alternating",
        }
    }
}

/// Work for the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Send a query to the backend.
    Send(Query),
    /// The backend is inactive: close its idle connections.
    CloseConnections,
    /// Stop the TCP or HTTP checks of the backend.
    PauseChecks,
    /// Go on with the checks of the backend.
    ResumeChecks,
    /// Run one check now, and pass its outcome to [`Prober::on_check`](super::Prober::on_check).
    CheckNow,
    /// The load of the backend.
    Report(LoadReport),
    /// The backend wants no new requests.
    StopRequests(ServerState),
    /// The process that wanted no new requests has ended; another one may listen. Check it now.
    ProcessEnded,
    /// Log that probes are of no use, with the firewall rule that they need.
    PathSilent(SilenceCause),
}

/// The judgment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It counts.
    Believed,
    /// It repeats known news.
    Repeated,
    /// It changes nothing: forged, late, replayed or outdated.
    Doubted,
}

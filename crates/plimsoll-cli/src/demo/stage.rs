//! The four stages of the demo, each with the setting of the proxy that it shows.

use plimsoll_core::pick::PolicyKind;

/// One stage. The first two are the balancing act, the others the overload act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Each backend gets the same number of requests.
    RoundRobin,
    /// Each backend gets the same CPU load.
    Weighted,
    /// One service gets three times its capacity, and serves requests in their order.
    OverloadUnprotected,
    /// The same load; the proxy sheds the least important requests.
    Overload,
}

impl Stage {
    /// All stages, in their order.
    pub(crate) const ALL: [Self; 4] = [Self::RoundRobin, Self::Weighted, Self::OverloadUnprotected, Self::Overload];

    /// Its name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Weighted => "weighted",
            Self::OverloadUnprotected => "overload-unprotected",
            Self::Overload => "overload",
        }
    }

    /// Whether it belongs to the overload act.
    pub(crate) fn is_overload(self) -> bool {
        matches!(self, Self::OverloadUnprotected | Self::Overload)
    }

    /// The policy of the proxy. A cluster of one backend has no use for another.
    pub(crate) fn policy(self) -> PolicyKind {
        match self {
            Self::RoundRobin => PolicyKind::RoundRobin,
            Self::Weighted | Self::OverloadUnprotected | Self::Overload => PolicyKind::Weighted,
        }
    }

    /// What happens in it, for its headline.
    pub(crate) fn headline(self) -> &'static str {
        match self {
            Self::RoundRobin => "the same number of requests for each backend",
            Self::Weighted => "the same CPU load for each backend",
            Self::OverloadUnprotected => "three times the capacity, no shedding",
            Self::Overload => "three times the capacity, least important shed first",
        }
    }

    /// The figure to look at.
    pub(crate) fn look_at(self) -> &'static str {
        match self {
            Self::RoundRobin => "the CPU column: the slow backends run hot",
            Self::Weighted => "the CPU column: all backends are equally busy",
            Self::OverloadUnprotected => "the column in time: hardly any request is",
            Self::Overload => "the column in time: the most important requests are served",
        }
    }
}

//! The stages of the demo, each with the setting of the proxy that it shows.

use plimsoll_core::pick::PolicyKind;

/// One stage. The first two are the balancing act, then two of the overload act, then two of the restarts.
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
    /// Equal backends under load.
    Steady,
    /// The same load; one backend after the other restarts, as in a deployment.
    Restarts,
}

impl Stage {
    /// All stages, in their order.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] =
        [Self::RoundRobin, Self::Weighted, Self::OverloadUnprotected, Self::Overload, Self::Steady, Self::Restarts];

    /// Its name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Weighted => "weighted",
            Self::OverloadUnprotected => "overload-unprotected",
            Self::Overload => "overload",
            Self::Steady => "steady",
            Self::Restarts => "restarts",
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
            _ => PolicyKind::Weighted,
        }
    }

    /// What happens in it, for its headline.
    pub(crate) fn headline(self) -> &'static str {
        match self {
            Self::RoundRobin => "the same number of requests for each backend",
            Self::Weighted => "the same CPU load for each backend",
            Self::OverloadUnprotected => "three times the capacity, no shedding",
            Self::Overload => "three times the capacity, least important shed first",
            Self::Steady => "four equal backends",
            Self::Restarts => "one backend after the other restarts",
        }
    }

    /// The figure to look at.
    pub(crate) fn look_at(self) -> &'static str {
        match self {
            Self::RoundRobin => "the CPU column: the slow backends run hot",
            Self::Weighted => "the CPU column: all backends are equally busy",
            Self::OverloadUnprotected => "the column in time: hardly any request is",
            Self::Overload => "the column in time: the most important requests are served",
            Self::Steady => "the CPU column: all backends are equally busy",
            Self::Restarts => "the failures: there are none, as each backend says that it ends",
        }
    }
}

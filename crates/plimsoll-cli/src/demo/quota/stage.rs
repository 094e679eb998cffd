//! The four stages of the scene `quota`, each with the demand of the customers that it shows.

use super::customer::GREEDY;

/// Demand of a customer below its limit, as a part of the limit.
const BELOW: f64 = 0.6;
/// Demand of the greedy customer, in multiples of its limit.
const EXCESS: f64 = 3.0;
/// Part of a stage in which the traffic settles, after the demand has changed. Half of a former demand is
/// forgotten in a second, so three times a limit is below the limit 2.7 s after it has ended.
const SETTLING: f64 = 0.4;
/// Part of a stage without the quota server.
const OUTAGE: f64 = 0.25;

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Every customer is below its limit.
    Below,
    /// One customer goes to three times its limit.
    Triple,
    /// The same load; the quota server is killed, and comes back.
    ServerLost,
    /// All are below their limits again.
    Back,
}

impl Stage {
    /// All stages, in their order.
    pub(crate) const ALL: [Self; 4] = [Self::Below, Self::Triple, Self::ServerLost, Self::Back];

    /// Its place, from 1.
    pub(crate) fn number(self) -> usize {
        1 + Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }

    /// Its name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Below => "below-limits",
            Self::Triple => "three-times",
            Self::ServerLost => "server-lost",
            Self::Back => "back",
        }
    }

    /// Its headline.
    pub(crate) fn headline(self) -> &'static str {
        match self {
            Self::Below => "four customers, each at 60% of its limit",
            Self::Triple => "acme goes to three times its limit",
            Self::ServerLost => "the quota server is killed, and comes back",
            Self::Back => "acme is back at 60% of its limit",
        }
    }

    /// The figure to look at.
    pub(crate) fn look_at(self) -> &'static str {
        match self {
            Self::Below => "the column refused: nothing is",
            Self::Triple => "the row of acme: it alone is cut, and uses its limit",
            Self::ServerLost => "the rows of the others: they are served on",
            Self::Back => "the column refused: acme is served again",
        }
    }

    /// Demand of a customer by its place, as a part of its limit.
    pub(crate) fn demand(self, customer: usize) -> f64 {
        match self {
            Self::Triple | Self::ServerLost if customer == GREEDY => EXCESS,
            _ => BELOW,
        }
    }

    /// Part of the stage that is not measured. The loss of the server is measured from its first moment.
    pub(crate) fn settling(self) -> f64 {
        if self == Self::ServerLost { 0.0 } else { SETTLING }
    }

    /// Part of the stage, from its beginning, without the quota server.
    pub(crate) fn outage(self) -> f64 {
        if self == Self::ServerLost { OUTAGE } else { 0.0 }
    }
}

//! The plan of a spill experiment: localities, requests, and the rules compared.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;
use plimsoll_core::spill::SpillConfig;

pub use crate::experiment::fleet::plan::Phase;
pub use crate::experiment::tiers::plan::Source;

/// Clients, localities from near to far, and the rules that choose one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// End of arrivals.
    pub duration: Duration,
    /// Beginning of the measurements; shorter than the run.
    pub warmup: Duration,
    /// Time between two points of figures over time; and the spans of the extremes of utilization.
    pub sample_every: Duration,
    /// Number of clients, each with a rule of its own. Each request is of a random one.
    pub clients: NonZeroU32,
    /// Time between two reports of the mean utilization since the last one. Above zero.
    pub report_every: Duration,
    /// Age of reports when clients see them.
    pub report_age: Duration,
    /// Sources of requests; at least one.
    pub sources: Vec<Source>,
    /// Nearest first; at least one.
    pub localities: Vec<Site>,
    /// Parts of the run, in the order of their beginnings. The load before the first is 1.
    pub phases: Vec<Phase>,
    /// Rules compared; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Time for some changes, and for the minutes in which they settle.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(120);
    /// Time for the rooms of localities to settle.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(20);
    /// The default of fleets.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A small fleet.
    pub const DEFAULT_CLIENTS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
    /// The interval at which clients update.
    pub const DEFAULT_REPORT_EVERY: Duration = Duration::from_secs(1);
    /// Smoothing at the backend, and the delay of the report.
    pub const DEFAULT_REPORT_AGE: Duration = Duration::from_secs(1);
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Self::DEFAULT_DURATION,
            warmup: Self::DEFAULT_WARMUP,
            sample_every: Self::DEFAULT_SAMPLE_EVERY,
            clients: Self::DEFAULT_CLIENTS,
            report_every: Self::DEFAULT_REPORT_EVERY,
            report_age: Self::DEFAULT_REPORT_AGE,
            sources: Vec::new(),
            localities: Vec::new(),
            phases: Vec::new(),
            arms: Vec::new(),
        }
    }
}

/// A locality.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Number of its backends.
    pub backends: NonZeroU32,
    /// Capacity of each backend, in requests per second; above zero. Requests beyond it fail.
    pub capacity: f64,
    /// Number of healthy backends in each phase; empty for all.
    pub healthy: Vec<u32>,
    /// Requests per second from elsewhere.
    pub others: f64,
}

impl Default for Site {
    fn default() -> Self {
        Self { name: String::new(), backends: NonZeroU32::MIN, capacity: 0.0, healthy: Vec::new(), others: 0.0 }
    }
}

/// One rule compared with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// The rule.
    pub rule: Rule,
}

impl Default for Arm {
    fn default() -> Self {
        Self { name: String::new(), rule: Rule::WATERFALL }
    }
}

/// A rule that chooses a locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// [`Spill`](plimsoll_core::spill::Spill)
    Waterfall {
        /// [`SpillConfig::target`]; above zero.
        target: Ratio,
        /// [`SpillConfig::drain_below`]
        drain_below: Ratio,
    },
    /// The nearest locality with a healthy backend gets all requests.
    Nearest,
    /// By the share of healthy backends, as Envoy's priority levels do. A locality takes 1.4 times
    /// its healthy share of all requests, at most the rest. The next locality does the same with
    /// the remainder.
    ByHealth,
}

impl Rule {
    /// The default of `Waterfall`.
    pub const WATERFALL: Self =
        Self::Waterfall { target: SpillConfig::DEFAULT_TARGET, drain_below: SpillConfig::DEFAULT_DRAIN_BELOW };
}

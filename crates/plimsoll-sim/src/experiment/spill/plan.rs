//! The plan of a spill experiment: localities, what is asked for, and the rules that are compared.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;
use plimsoll_core::spill::SpillConfig;

pub use crate::experiment::fleet::plan::Phase;
pub use crate::experiment::tiers::plan::Source;

/// Clients, localities in the order of nearness, and the ways to choose one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Until when requests arrive.
    pub duration: Duration,
    /// Until when nothing is measured; shorter than the run.
    pub warmup: Duration,
    /// Between two points of figures over time; and the spans of which the fullest and the emptiest are told.
    pub sample_every: Duration,
    /// Clients, each with a machine of its own; a request is of one of them at random.
    pub clients: NonZeroU32,
    /// Between two reports of utilization, each the mean since the one before. Above zero.
    pub report_every: Duration,
    /// So old are reports when clients see them.
    pub report_age: Duration,
    /// What is asked for; at least one.
    pub sources: Vec<Source>,
    /// Nearest first; at least one.
    pub localities: Vec<Site>,
    /// Parts of the run, in the order of their beginnings. Before the first the load is 1.
    pub phases: Vec<Phase>,
    /// Ways to choose; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Some changes, and the minutes in which they settle.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(120);
    /// By then rooms have settled.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(20);
    /// As the fleets'.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A small fleet.
    pub const DEFAULT_CLIENTS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
    /// As often as clients look.
    pub const DEFAULT_REPORT_EVERY: Duration = Duration::from_secs(1);
    /// Smoothing at the backend, and the way of the report.
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
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// Its backends.
    pub backends: NonZeroU32,
    /// Requests a second that each can serve; above zero. What comes beyond that fails.
    pub capacity: f64,
    /// How many are healthy in each phase, at most all; empty for all.
    pub healthy: Vec<u32>,
    /// Requests a second that come from elsewhere.
    pub others: f64,
}

impl Default for Site {
    fn default() -> Self {
        Self { name: String::new(), backends: NonZeroU32::MIN, capacity: 0.0, healthy: Vec::new(), others: 0.0 }
    }
}

/// A way to choose a locality.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// The rule.
    pub rule: Rule,
}

impl Default for Arm {
    fn default() -> Self {
        Self { name: String::new(), rule: Rule::WATERFALL }
    }
}

/// A rule by which a locality is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// [`Spill`](plimsoll_core::spill::Spill)
    Waterfall {
        /// [`SpillConfig::target`]; above zero.
        target: Ratio,
        /// [`SpillConfig::drain_below`]
        drain_below: Ratio,
    },
    /// The nearest that has a healthy backend gets all.
    Nearest,
    /// By the share of healthy backends, as Envoy's priority levels do: a locality takes 1.4 times its healthy share of all, at most all
    /// that is left; the next gets what is left, and so on.
    ByHealth,
}

impl Rule {
    /// `Waterfall` as it is unless it is told otherwise.
    pub const WATERFALL: Self =
        Self::Waterfall { target: SpillConfig::DEFAULT_TARGET, drain_below: SpillConfig::DEFAULT_DRAIN_BELOW };
}

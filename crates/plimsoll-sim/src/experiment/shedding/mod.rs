//! Shedding: one server that is asked for more than it can do, and what comes of it.
//!
//! The server shares its cores evenly among the requests that it has taken on, as threads and tasks do. Turning a request away
//! costs CPU, too, which those in progress do not get.

pub mod plan;
mod world;

use std::time::Duration;

pub use plan::Plan;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Of each source, in the order of the plan.
    pub sources: Vec<Tally>,
    /// In time and of use: CPU-seconds of the requests that were answered in time, over those that the server had.
    pub goodput: f64,
    /// Samples, a millisecond apart, from the beginning.
    pub samples: Vec<Sample>,
}

/// What became of requests that arrived after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many arrived.
    pub arrived: u64,
    /// Of these, turned away as too many.
    pub shed: u64,
    /// Turned away because their deadline could not be met.
    pub hopeless: u64,
    /// Answered in time.
    pub useful: u64,
    /// Answered too late.
    pub late: u64,
}

impl Tally {
    /// The part that was answered in time.
    #[must_use]
    pub fn useful_share(&self) -> f64 {
        self.useful as f64 / self.arrived.max(1) as f64
    }

    /// The part that was turned away.
    #[must_use]
    pub fn shed_share(&self) -> f64 {
        (self.shed + self.hopeless) as f64 / self.arrived.max(1) as f64
    }
}

/// How the server was at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Since the beginning.
    pub at: Duration,
    /// How long the work that was taken on and is not done takes all cores.
    pub delay: Duration,
    /// CPU-seconds used so far.
    pub cpu: f64,
    /// By rank of criticality: requests shed so far.
    pub shed: [u64; 4],
}

/// Runs a plan.
///
/// Rates, costs and cores are above zero, and loads in the order of their times.
#[must_use]
pub fn run(plan: &Plan, seed: u64) -> Found {
    world::World::new(plan, seed).run()
}

//! The plan of a shedding experiment: one server, and more than it can do.

use std::time::Duration;

use plimsoll_core::admit::{ProcrusteanConfig, RankedConfig};
use plimsoll_core::{Criticality, Weight};

pub use crate::model::cost::Cost;

/// One server, what is asked of it, and how it protects itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Until when requests arrive.
    pub duration: Duration,
    /// Until when nothing is measured.
    pub warmup: Duration,
    /// CPU that the server has, in cores.
    pub cores: f64,
    /// CPU time of a request; the server expects the mean.
    pub cost: Cost,
    /// CPU time of turning one away.
    pub rejection: Duration,
    /// After this time from its arrival nobody wants an answer any more. The server works on to the end all the same.
    pub patience: Duration,
    /// Whether requests say so, as their deadline.
    pub tells_deadline: bool,
    /// Who asks.
    pub sources: Vec<Source>,
    /// Changes of the load, each from its time on; 1 before the first.
    pub loads: Vec<(Duration, f64)>,
    /// How it protects itself.
    pub shedder: Shedder,
}

/// Requests of one customer and criticality.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Names it in what is found.
    pub name: String,
    /// How bad it is to lose them.
    pub criticality: Criticality,
    /// Whose they are.
    pub customer: u64,
    /// What the customer is entitled to, beside others.
    pub share: Weight,
    /// Requests a second at a load of 1, at random instants (Poisson).
    pub rate: f64,
}

/// How a server protects itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shedder {
    /// Not at all.
    None,
    /// [`Procrustean`](plimsoll_core::admit::Procrustean), by the requests in progress.
    Procrustean(ProcrusteanConfig),
    /// [`Ranked`](plimsoll_core::admit::Ranked).
    Ranked(RankedConfig),
}

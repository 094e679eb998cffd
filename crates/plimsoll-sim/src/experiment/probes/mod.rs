//! Probes by UDP: clients and backends run the machines of the core over a lossy network.
//!
//! Each client probes each backend. TCP always works, except to a process that is down: the
//! network of the experiment loses, delays, repeats and reorders datagrams alone. MACs are assumed
//! to be valid; the attacks are in the tests of the core.

mod figures;
mod findings;
mod link;
mod measure;
pub mod plan;
#[cfg(test)]
mod tests;
mod world;

pub use findings::metric_names;
pub use plan::Plan;

use super::run_arms;
use crate::findings::Findings;
use measure::Measure;
use plan::Arm;
use world::World;

/// The measurements of one arm.
struct Measured<'p> {
    arm: &'p Arm,
    measure: Measure,
    events: u64,
}

/// Runs all arms of a plan, one after the other. `progress` gets the part that is done, now and
/// then.
///
/// The numbers of a plan must be within the bounds of its fields. The reader of scenario files
/// checks them.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let measured = run_arms(plan.arms.iter(), progress, |arm, progress| World::new(plan, arm, seed).run(progress));
    findings::findings(plan, &measured)
}

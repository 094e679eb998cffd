//! Spill: clients choose among localities, as these fill up, are loaded by others, and lose backends.
//!
//! A locality serves at a rate, and what comes beyond it fails: how requests wait is for other experiments. What clients know of it is
//! what its backends report: the mean utilization of some time ago. Each arm meets the same requests.

mod figures;
mod findings;
mod measure;
pub mod plan;
mod rules;
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

/// What was measured in one arm.
struct Measured<'p> {
    arm: &'p Arm,
    measure: Measure,
    events: u64,
}

/// Runs all arms of a plan, one after the other. `progress` is told now and then which part of it is done.
///
/// A plan's numbers must be within the bounds that its fields name; the reader of scenario files sees to that.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let measured = run_arms(plan.arms.iter(), progress, |arm, progress| World::new(plan, arm, seed).run(progress));
    findings::findings(plan, &measured)
}

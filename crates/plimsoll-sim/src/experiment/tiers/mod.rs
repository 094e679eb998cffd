//! Tiers: clients of a service that may be a client itself, and what comes of it when more is asked for than can be done, or when something
//! fails.
//!
//! Each client, and each task of each tier, has a throttle and a retry budget of its own for the tier that it asks; all that is
//! decided by them is the core's. Who serves is simple on purpose: a rate that is kept to, a queue, or the core's shedder.
//! Whom an attempt goes to is drawn from the tasks that it was not at yet. Each arm meets the same requests.

mod figures;
mod findings;
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

/// What was measured in one arm.
struct Measured<'p> {
    arm: &'p Arm,
    clients: f64,
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

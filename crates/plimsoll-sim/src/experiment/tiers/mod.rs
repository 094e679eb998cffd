//! Tiers: clients of a service that may be a client itself, under overload and failures.
//!
//! Each client, and each task of each tier, has a throttle and a retry budget of its own for the
//! next tier. Their decisions are the core's. The servers are simple on purpose: a fixed rate, a
//! queue, or the core's shedder. The task for an attempt is drawn from the tasks that the request
//! has not tried. Each arm has the same requests.

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

/// The measurements of one arm.
struct Measured<'p> {
    arm: &'p Arm,
    clients: f64,
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

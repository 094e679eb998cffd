//! Quotas over a fleet: customers with a limit on the sum of their CPU at all tasks.
//!
//! Tasks decide alone, by the last messages of others. Unless tasks have a number of CPUs, requests take no
//! time, and only the limits refuse. Each arm has the same requests.

mod accidents;
mod changes;
mod cores;
mod customers;
mod customers_use;
mod doorman;
mod figures;
mod findings;
mod leases;
mod measure;
mod messages;
pub mod plan;
mod rules;
#[cfg(test)]
mod tests;
mod traffic;
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

//! Fleets: clients that balance over backends, under load and through mishaps.

mod figures;
mod findings;
mod groups;
mod marks;
mod measure;
pub mod plan;
mod script;
mod sizes;
mod sweep;
mod world;

use std::borrow::Cow;

pub(crate) use findings::is_group_metric;
pub use findings::metric_names;
pub use plan::Plan;

use super::run_arms;
use crate::findings::Findings;
use world::World;

/// Runs all arms of a plan with this seed, one after the other. `progress` gets the part that is
/// done, now and then.
///
/// The numbers of a plan must be within the bounds of its fields, and its selections must select
/// something. The reader of scenario files checks both.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let plans: Vec<Cow<'_, Plan>> = plan.arms.iter().map(|arm| plan.of_arm(arm)).collect();
    let measured = run_arms(plan.arms.iter().zip(&plans), progress, |(arm, plan), progress| {
        World::new(plan, arm, seed).run(progress)
    });
    findings::findings(plan, &measured)
}

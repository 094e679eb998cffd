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

/// Runs all arms of a plan, one after the other, with this seed. `progress` is told now and then which part of it is
/// done.
///
/// A plan's numbers must be within the bounds that its fields name, and its selections must select something; the
/// reader of scenario files sees to that.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let plans: Vec<Cow<'_, Plan>> = plan.arms.iter().map(|arm| plan.of_arm(arm)).collect();
    let measured = run_arms(plan.arms.iter().zip(&plans), progress, |(arm, plan), progress| {
        World::new(plan, arm, seed).run(progress)
    });
    findings::findings(plan, &measured)
}

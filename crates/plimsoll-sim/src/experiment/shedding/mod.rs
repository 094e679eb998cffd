//! Shedding: one server that is asked for more than it can do, and what comes of it.
//!
//! The server shares its cores evenly among the requests that run. All that are admitted run, as tasks that yield do;
//! or [`Plan::concurrency`] of them, as on worker threads, and the others wait for their turn. Shedding a request costs
//! CPU, too, which running requests do not get. What asks are tasks: users' wishes, each of one request or of several in turn,
//! some of which are sent again when they are turned away. Each arm meets the same tasks, and protects the server in another way.

mod figures;
mod findings;
mod measure;
mod meters;
pub mod plan;
#[cfg(test)]
mod tests;
mod world;

pub use findings::metric_names;
pub use measure::{Reading, Tally};
pub use plan::Plan;

use super::run_arms;
use crate::findings::Findings;
use measure::Measure;
use plan::Arm;
use world::World;

/// What was found in one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Of each source, in the order of the plan: tasks that arrived after the warm-up.
    pub sources: Vec<Tally>,
    /// In time and of use: CPU-seconds of the tasks that were answered in time, over those that the server had.
    pub goodput: f64,
    /// Of each source, the most CPU-seconds that its requests used in any second after the warm-up; and of all together.
    pub most_in_a_second: (Vec<f64>, f64),
    /// One each [`tick`](Plan::tick), from the beginning.
    pub readings: Vec<Reading>,
}

/// What was measured in one arm.
struct Measured<'p> {
    arm: &'p Arm,
    cores: f64,
    measure: Measure,
    events: u64,
}

/// Runs one arm of a plan.
///
/// A plan's numbers must be within the bounds that its fields name; the reader of scenario files sees to that.
#[must_use]
pub fn run_arm(plan: &Plan, arm: &Arm, seed: u64) -> Found {
    let Measured { cores, measure, .. } = World::new(plan, arm, seed).run(&mut |_| ());
    let [whole, ..] = measure.counted.as_slice() else { unreachable!("the whole run is always a window") };
    let sources: Vec<Tally> = whole.iter().map(|counted| counted.tally).collect();
    let useful: f64 = sources.iter().map(|tally| tally.useful_cpu).sum();
    let goodput = useful / (measure.course.windows[0].seconds() * cores);
    let most_in_a_second =
        (whole.iter().map(|counted| counted.most_in_a_second).collect(), measure.most_in_a_second[0]);
    Found { sources, goodput, most_in_a_second, readings: measure.readings }
}

/// Runs all arms of a plan, one after the other. `progress` is told now and then which part of it is done.
///
/// As for [`run_arm`], numbers must be within their bounds.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let measured = run_arms(plan.arms.iter(), progress, |arm, progress| World::new(plan, arm, seed).run(progress));
    findings::findings(plan, &measured)
}

//! Shedding: one server under overload.
//!
//! The server shares its cores evenly among running requests. All admitted requests run, as tasks
//! that yield do; or [`Plan::concurrency`] of them run, as on worker threads, and the others wait.
//! Shedding a request also costs CPU, which running requests then lack. The load is made of tasks:
//! a user's wish, of one request or of several in turn. Some sources retry shed requests. Each arm
//! has the same tasks and another protection of the server.

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

/// The results of one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// By source, in the order of the plan: tasks that arrived after the warm-up.
    pub sources: Vec<Tally>,
    /// CPU-seconds of tasks answered in time, over all CPU-seconds of the server.
    pub goodput: f64,
    /// By source, the most CPU-seconds of its requests in any second after the warm-up; and of all
    /// sources together.
    pub most_in_a_second: (Vec<f64>, f64),
    /// One each [`tick`](Plan::tick), from the beginning.
    pub readings: Vec<Reading>,
}

/// The measurements of one arm.
struct Measured<'p> {
    arm: &'p Arm,
    cores: f64,
    measure: Measure,
    events: u64,
}

/// Runs one arm of a plan.
///
/// The numbers of a plan must be within the bounds of its fields. The reader of scenario files
/// checks them.
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

/// Runs all arms of a plan, one after the other. `progress` gets the part that is done, now and
/// then.
///
/// As for [`run_arm`], numbers must be within their bounds.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let measured = run_arms(plan.arms.iter(), progress, |arm, progress| World::new(plan, arm, seed).run(progress));
    findings::findings(plan, &measured)
}

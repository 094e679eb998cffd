//! The kinds of experiments.

pub(crate) mod counts;
pub mod fleet;
pub mod probes;
pub mod quota;
pub mod rollout;
pub mod shedding;
pub mod spill;
pub mod subset;
pub mod tiers;
pub(crate) mod windows;
pub mod worked;

/// Runs the arms of a plan, one after the other, and reports the part of all that is done.
fn run_arms<A, M>(
    arms: impl ExactSizeIterator<Item = A>,
    progress: &mut dyn FnMut(f64),
    mut run: impl FnMut(A, &mut dyn FnMut(f64)) -> M,
) -> Vec<M> {
    let count = arms.len() as f64;
    let numbered = (0..).map(f64::from).zip(arms);
    numbered.map(|(number, arm)| run(arm, &mut |part| progress((number + part) / count))).collect()
}

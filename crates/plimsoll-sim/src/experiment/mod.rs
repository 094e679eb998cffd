//! The kinds of experiments.

pub mod fleet;
pub mod shedding;
pub mod spill;
pub mod subset;
pub mod tiers;
pub(crate) mod windows;
pub mod worked;

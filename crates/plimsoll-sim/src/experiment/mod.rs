//! The kinds of experiments.

pub mod fleet;
pub mod shedding;
pub mod spill;
pub mod subset;
pub mod tiers;
mod windows;
pub mod worked;

//! The kinds of experiments.

pub mod fleet;
pub mod shedding;
pub mod subset;
pub mod worked;

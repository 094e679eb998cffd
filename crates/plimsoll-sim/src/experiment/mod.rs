//! The kinds of experiments.

pub mod fleet;
pub mod subset;
pub mod worked;

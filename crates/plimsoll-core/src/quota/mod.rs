//! Quotas over a fleet: the limit of a customer, shared among all tasks of a service.
//!
//! SRE ch. 21: usage of all tasks is aggregated in real time, and effective limits are pushed to
//! each task. This module holds the two formulas; the owner of limits and the messages between it and
//! the tasks are not built yet.
//!
//! - [`Rule`]: the rate of a task from its demand and the sums over the fleet.
//! - [`Bucket`]: the local account of a task for one customer.
//!
//! Rates are whole numbers of µCPU (reference CPU-microseconds a second): sums over a fleet are then
//! exact, and stay so after any number of updates.

mod bucket;
mod rule;

pub use bucket::Bucket;
pub use rule::{Cut, Rule, Sums};

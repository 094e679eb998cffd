//! The rules that share a limit: the core's, and two for comparison.

use plimsoll_core::quota::Bucket;
use plimsoll_core::{Criticality, Timestamp};

use super::customers::Customers;
use super::plan::{Plan, Rule};

/// Seconds of its rate that a task may use at once, as with limiters that count by the second.
const DEPTH: f64 = 1.0;
/// Part of a limit that a task without demand keeps, as with weights that are never zero.
const LEAST: f64 = 0.01;

/// Rates that tasks get from outside, whatever their own demand is: by customer and task.
pub(super) struct Shares {
    rule: Rule,
    limits: Vec<f64>,
    buckets: Vec<Vec<Bucket>>,
    /// Demand since the last weights, in CPU-microseconds.
    offered: Vec<Vec<f64>>,
}

impl Shares {
    pub(super) fn new(now: Timestamp, rule: Rule, plan: &Plan) -> Self {
        let tasks = plan.tasks.get() as usize;
        let limits: Vec<f64> = Customers::new(plan).limits.iter().map(|limit| limit * 1e6).collect();
        let of = |limit: &f64| vec![Bucket::full(now, limit / tasks as f64, DEPTH * limit / tasks as f64); tasks];
        Self { rule, buckets: limits.iter().map(of).collect(), offered: vec![vec![0.0; tasks]; limits.len()], limits }
    }

    /// Whether a request is admitted. Criticality has no effect.
    pub(super) fn ask(&mut self, now: Timestamp, customer: usize, task: usize, cost: f64) -> bool {
        self.offered[customer][task] += cost;
        let bucket = &mut self.buckets[customer][task];
        let is_admitted = bucket.level(now) > 0.0;
        if is_admitted {
            bucket.take(cost);
        }
        is_admitted
    }

    /// The rates of all tasks, by customer, in µCPU: each rule gives out the whole limit.
    pub(super) fn held(&self) -> impl Iterator<Item = f64> {
        self.limits.iter().copied()
    }

    /// Weights by the demand since the last ones.
    pub(super) fn weigh(&mut self, now: Timestamp) {
        if !matches!(self.rule, Rule::Weights { .. }) {
            return;
        }
        for ((limit, buckets), offered) in self.limits.iter().zip(&mut self.buckets).zip(&mut self.offered) {
            let total: f64 = offered.iter().sum();
            let even = 1.0 / buckets.len() as f64;
            for (bucket, offered) in buckets.iter_mut().zip(offered.iter_mut()) {
                let part = if total > 0.0 { *offered / total } else { even };
                let rate = limit * ((1.0 - LEAST) * part + LEAST * even);
                bucket.set(now, rate, DEPTH * rate);
                *offered = 0.0;
            }
        }
    }
}

/// A request at a task.
pub(super) struct Request {
    pub(super) customer: usize,
    pub(super) task: usize,
    pub(super) criticality: Criticality,
    /// In CPU-microseconds.
    pub(super) cost: f64,
    /// A random number below 1, for a criticality that is admitted in part.
    pub(super) draw: f64,
}

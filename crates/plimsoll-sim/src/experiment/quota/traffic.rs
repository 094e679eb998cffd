//! The tasks that get the requests of a source.

use std::time::Duration;

use plimsoll_core::Timestamp;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::plan::{Plan, Source, Spread};
use crate::kernel::streams::unit;
use crate::model::arena::Arena;

/// The draws of a source.
pub(super) struct Traffic<'p> {
    source: &'p Source,
    /// The number of its customer.
    pub(super) customer: usize,
    tasks: u64,
    whose: Pcg64Mcg,
    /// The first of the tasks that get requests now, and the time until they do.
    from: u64,
    until: Timestamp,
    /// Sums of the parts of tasks.
    sums: Vec<f64>,
}

impl<'p> Traffic<'p> {
    pub(super) fn new<E: Copy>(plan: &'p Plan, number: usize, arena: &Arena<E>) -> Self {
        let source = &plan.sources[number];
        let tasks = u64::from(plan.tasks.get());
        let mut sum = 0.0;
        let sums = (1..=tasks).map(|i| {
            sum += 1.0 / i as f64;
            sum
        });
        Self {
            source,
            customer: plan.customers.iter().position(|customer| customer.name == source.customer).unwrap_or(0),
            tasks,
            whose: arena.streams.stream("whose", number as u64),
            from: 0,
            until: Timestamp::ZERO,
            sums: if source.spread == Spread::Uneven { sums.collect() } else { Vec::new() },
        }
    }

    /// Arrivals a second at a load of 1: requests, or bursts.
    pub(super) fn rate(&self) -> f64 {
        match self.source.spread {
            Spread::Bursts { requests, .. } => self.source.rate / f64::from(requests.get()),
            _ => self.source.rate,
        }
    }

    /// The task of an arrival, and the delay of each of its requests.
    pub(super) fn arrive(&mut self, now: Timestamp) -> (usize, Vec<Duration>) {
        let task = match self.source.spread {
            Spread::Even | Spread::Bursts { .. } => self.whose.next_u64() % self.tasks,
            Spread::Moving { tasks, every } => {
                if now >= self.until {
                    (self.from, self.until) = (self.whose.next_u64() % self.tasks, now + every);
                }
                (self.from + self.whose.next_u64() % u64::from(tasks.get())) % self.tasks
            }
            Spread::Uneven => {
                let point = unit(&mut self.whose) * self.sums.last().copied().unwrap_or(0.0);
                self.sums.partition_point(|sum| *sum <= point) as u64
            }
        };
        let delays = match self.source.spread {
            Spread::Bursts { requests, over } => {
                (0..requests.get()).map(|_| over.mul_f64(unit(&mut self.whose))).collect()
            }
            _ => vec![Duration::ZERO],
        };
        (task.min(self.tasks - 1) as usize, delays)
    }

    /// The cost of a request, in CPU-microseconds.
    pub(super) fn cost(&self) -> f64 {
        self.source.cost.as_secs_f64() * 1e6
    }
}

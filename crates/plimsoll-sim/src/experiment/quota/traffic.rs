//! The tasks that get the requests of a source, and the customers of these.

use std::ops::Range;
use std::time::Duration;

use plimsoll_core::{Ratio, Timestamp};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::customers::Customers;
use super::plan::{Plan, Source, Spread};
use crate::kernel::streams::unit;
use crate::model::arena::Arena;

/// The draws of a source.
pub(super) struct Traffic<'p> {
    source: &'p Source,
    customers: Range<usize>,
    /// Sums of the parts of customers; empty for one customer.
    customer_sums: Vec<f64>,
    which: Pcg64Mcg,
    tasks: usize,
    whose: Pcg64Mcg,
    /// The first of the tasks that get requests now, and the time until they do.
    from: u64,
    until: Timestamp,
    /// Rates of tasks that drift, in requests per second.
    rates: Vec<f64>,
    steps: Pcg64Mcg,
    /// Sums of the parts of tasks; empty where the part is not of the task.
    sums: Vec<f64>,
    /// Load of the phase.
    load: f64,
}

impl<'p> Traffic<'p> {
    pub(super) fn new<E: Copy>(plan: &'p Plan, customers: &Customers, number: usize, arena: &Arena<E>) -> Self {
        let source = &plan.sources[number];
        let customers = customers.named(plan, &source.customer);
        let tasks = plan.tasks.get() as usize;
        let stream = |label| arena.streams.stream(label, number as u64);
        let customer_sums = if customers.len() > 1 {
            running_sums((1..=customers.len()).map(|k| (k as f64).powf(-source.skew)))
        } else {
            Vec::new()
        };
        let rates = match source.spread {
            Spread::Drifting { .. } => vec![source.rate / tasks as f64; tasks],
            _ => Vec::new(),
        };
        let sums = match source.spread {
            Spread::Uneven => running_sums((1..=tasks).map(|i| 1.0 / i as f64)),
            Spread::Drifting { .. } => running_sums(rates.iter().copied()),
            _ => Vec::new(),
        };
        Self {
            source,
            customers,
            customer_sums,
            which: stream("which customer"),
            tasks,
            whose: stream("whose"),
            from: 0,
            until: Timestamp::ZERO,
            rates,
            steps: stream("steps of demand"),
            sums,
            load: 1.0,
        }
    }

    /// Arrivals a second at a load of 1: requests, or bursts.
    pub(super) fn rate(&self) -> f64 {
        match self.source.spread {
            Spread::Bursts { requests, .. } => self.source.rate / f64::from(requests.get()),
            _ => self.source.rate,
        }
    }

    /// The load of the phase is this.
    pub(super) fn set_load(&mut self, load: f64) {
        self.load = load;
    }

    /// The load of the phase, and of tasks that have drifted.
    pub(super) fn load(&self) -> f64 {
        let drifted = match self.source.spread {
            Spread::Drifting { .. } => self.sums.last().map_or(1.0, |sum| sum / self.source.rate),
            _ => 1.0,
        };
        self.load * drifted
    }

    /// The rate of each task changes by a random part of itself.
    pub(super) fn drift(&mut self, by: Ratio) {
        for rate in &mut self.rates {
            *rate *= 1.0 + by.as_f64() * (1.0 - 2.0 * unit(&mut self.steps));
        }
        self.sums = running_sums(self.rates.iter().copied());
    }

    /// The rate of a drifting task rises by this, in requests per second.
    pub(super) fn spike(&mut self, task: usize, by: f64) {
        if let Some(rate) = self.rates.get_mut(task) {
            *rate += by;
            self.sums = running_sums(self.rates.iter().copied());
        }
    }

    /// The task of an arrival, and the delay of each of its requests.
    pub(super) fn arrive(&mut self, now: Timestamp) -> (usize, Vec<Duration>) {
        let tasks = self.tasks as u64;
        let task = match self.source.spread {
            Spread::Even | Spread::Bursts { .. } => self.whose.next_u64() % tasks,
            Spread::Moving { tasks: some, every } => {
                if now >= self.until {
                    (self.from, self.until) = (self.whose.next_u64() % tasks, now + every);
                }
                (self.from + self.whose.next_u64() % u64::from(some.get())) % tasks
            }
            Spread::Uneven | Spread::Drifting { .. } => place_at_random(&self.sums, &mut self.whose) as u64,
        };
        let delays = match self.source.spread {
            Spread::Bursts { requests, over } => {
                (0..requests.get()).map(|_| over.mul_f64(unit(&mut self.whose))).collect()
            }
            _ => vec![Duration::ZERO],
        };
        (task.min(tasks - 1) as usize, delays)
    }

    /// The customer of a request.
    pub(super) fn customer(&mut self) -> usize {
        if self.customer_sums.is_empty() {
            return self.customers.start;
        }
        self.customers.start + place_at_random(&self.customer_sums, &mut self.which)
    }

    /// The cost of a request, in CPU-microseconds.
    pub(super) fn cost(&self) -> f64 {
        self.source.cost.as_secs_f64() * 1e6
    }

    /// The expected demand of a task for a customer, in µCPU.
    pub(super) fn demand(&self, task: usize, customer: usize) -> f64 {
        let Some(k) = self.customers.contains(&customer).then(|| customer - self.customers.start) else { return 0.0 };
        let requests = self.source.rate * self.load * self.cost();
        let of_customer = if self.customer_sums.is_empty() { 1.0 } else { part(&self.customer_sums, k) };
        let of_task = match self.source.spread {
            Spread::Even | Spread::Bursts { .. } => 1.0 / self.tasks as f64,
            Spread::Moving { tasks, .. } => {
                let (tasks, first) = (tasks.get() as usize, self.from as usize);
                let is_served = (task + self.tasks - first) % self.tasks < tasks;
                if is_served { 1.0 / tasks.min(self.tasks) as f64 } else { 0.0 }
            }
            Spread::Uneven => part(&self.sums, task),
            Spread::Drifting { .. } => self.rates[task] / self.source.rate,
        };
        requests * of_customer * of_task
    }
}

fn running_sums(parts: impl Iterator<Item = f64>) -> Vec<f64> {
    let sums = parts.scan(0.0, |sum, part| {
        *sum += part;
        Some(*sum)
    });
    sums.collect()
}

/// A place, by the size of its part.
fn place_at_random(sums: &[f64], rng: &mut Pcg64Mcg) -> usize {
    let point = unit(rng) * sums.last().copied().unwrap_or(0.0);
    sums.partition_point(|sum| *sum <= point).min(sums.len() - 1)
}

/// The part of a place in the whole.
fn part(sums: &[f64], at: usize) -> f64 {
    let before = at.checked_sub(1).map_or(0.0, |before| sums[before]);
    (sums[at] - before) / sums.last().copied().unwrap_or(1.0)
}

//! The counters: requests by source, CPU and rates by customer, and messages.

use plimsoll_core::Timestamp;

use super::customers::Customers;
use super::messages::{Messages, Sent};
use super::plan::Plan;
use crate::experiment::counts::{Counts, Course};
use crate::experiment::windows::Window;

/// More than rounding above a limit.
const ROUNDING: f64 = 1e-9;

/// The fate of the requests of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    pub(super) refused: u64,
}

/// The requests of one customer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    /// In CPU-microseconds, as is `used`.
    pub(super) offered: f64,
    pub(super) used: f64,
    pub(super) tally: Tally,
}

/// The rates that tasks may use of one customer's limit, over that limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) sum: f64,
    pub(super) max: f64,
    pub(super) samples: u64,
    /// Samples above the limit.
    pub(super) over: u64,
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    pub(super) customers: Customers,
    /// By source.
    pub(super) requests: Counts<Tally>,
    /// By customer, and by group.
    pub(super) cpu: Counts<Use>,
    /// The same.
    pub(super) held: Counts<Held>,
    /// One for all.
    pub(super) messages: Counts<Messages>,
    /// Entries of reports and assignments by customer.
    pub(super) entries: Counts<u64>,
    /// Samples of a span.
    span: usize,
}

impl Measure {
    pub(super) fn new(plan: &Plan, customers: Customers) -> Self {
        let course = Course::new(&plan.phases, plan.warmup, plan.duration, plan.sample_every);
        let count = customers.count();
        let span = plan.span.as_nanos().div_ceil(course.sample_every.as_nanos()).max(1) as usize;
        Self {
            requests: Counts::new(&course, plan.sources.len()),
            cpu: Counts::new(&course, count),
            held: Counts::new(&course, count),
            messages: Counts::new(&course, 1),
            entries: Counts::new(&course, count),
            course,
            customers,
            span,
        }
    }

    pub(super) fn request(&mut self, now: Timestamp, source: usize, customer: usize, cost: f64, is_admitted: bool) {
        let count = |tally: &mut Tally| {
            tally.arrived += 1;
            tally.refused += u64::from(!is_admitted);
        };
        self.requests.count(&self.course, now, source, count);
        for number in std::iter::once(customer).chain(self.customers.group_of[customer]) {
            self.cpu.count(&self.course, now, number, |cpu| {
                cpu.offered += cost;
                cpu.used += if is_admitted { cost } else { 0.0 };
                count(&mut cpu.tally);
            });
        }
    }

    /// The rates in use of the limit of each customer, and then of each group, in µCPU.
    pub(super) fn held(&mut self, now: Timestamp, held: impl Iterator<Item = f64>) {
        for (customer, held) in held.enumerate() {
            let part = held / 1e6 / self.customers.limit(customer);
            self.held.count(&self.course, now, customer, |held| {
                held.sum += part;
                held.max = held.max.max(part);
                held.samples += 1;
                held.over += u64::from(part > 1.0 + ROUNDING);
            });
        }
    }

    pub(super) fn messages(&mut self, now: Timestamp, sent: &Sent) {
        self.messages.count(&self.course, now, 0, |messages| {
            messages.reports += u64::from(sent.reports);
            messages.assignments += u64::from(sent.assignments);
            messages.reported += sent.reported.len() as u64;
            messages.assigned += sent.assigned.len() as u64;
        });
        for customer in sent.reported.iter().chain(&sent.assigned) {
            self.entries.count(&self.course, now, *customer as usize, |entries| *entries += 1);
        }
    }

    /// The highest use of a customer over the spans that lie within a window as a whole, in CPUs.
    pub(super) fn highest(&self, window: &Window, customer: usize) -> Option<f64> {
        let last = self.course.sample(window.to).min(self.course.samples);
        let first = window.from.as_nanos().div_ceil(self.course.sample_every.as_nanos()) as usize;
        let samples = &self.cpu.by_sample[first.min(last)..last];
        let seconds = self.span as f64 * self.course.sample_every.as_secs_f64();
        let used = samples.windows(self.span).map(|span| span.iter().map(|cpu| cpu[customer].used).sum::<f64>());
        used.reduce(f64::max).map(|used| used / 1e6 / seconds)
    }
}

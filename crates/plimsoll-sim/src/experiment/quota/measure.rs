//! The counters of requests by source, and of CPU by customer.

use plimsoll_core::Timestamp;

use super::plan::Plan;
use crate::experiment::counts::{Counts, Course};
use crate::experiment::windows::Window;

/// The fate of the requests of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    pub(super) refused: u64,
}

/// The CPU of one customer, in CPU-microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cpu {
    pub(super) offered: f64,
    pub(super) used: f64,
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    /// By source.
    pub(super) requests: Counts<Tally>,
    /// By customer.
    pub(super) cpu: Counts<Cpu>,
    /// Samples of a span.
    span: usize,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let course = Course::new(&plan.phases, plan.warmup, plan.duration, plan.sample_every);
        let (requests, cpu) = (Counts::new(&course, plan.sources.len()), Counts::new(&course, plan.customers.len()));
        let span = plan.span.as_nanos().div_ceil(course.sample_every.as_nanos()).max(1) as usize;
        Self { course, requests, cpu, span }
    }

    pub(super) fn request(&mut self, now: Timestamp, source: usize, customer: usize, cost: f64, is_admitted: bool) {
        self.requests.count(&self.course, now, source, |tally| {
            tally.arrived += 1;
            tally.refused += u64::from(!is_admitted);
        });
        self.cpu.count(&self.course, now, customer, |cpu| {
            cpu.offered += cost;
            cpu.used += if is_admitted { cost } else { 0.0 };
        });
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

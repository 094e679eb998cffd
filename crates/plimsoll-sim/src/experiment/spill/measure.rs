//! The counters of requests sent to localities.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::plan::Plan;
use crate::experiment::counts::{Counts, Course};
use crate::experiment::windows::Window;

/// The fate of the requests of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    pub(super) shed: u64,
    /// Sent to a locality without capacity for them.
    pub(super) failed: u64,
}

/// The requests of one locality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Got {
    pub(super) sent: u64,
    /// All requests, those from elsewhere included, over the capacity.
    pub(super) load: f64,
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    /// By source.
    pub(super) requests: Counts<Tally>,
    /// By locality.
    pub(super) sent: Counts<Got>,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let course = Course::new(&plan.phases, plan.warmup, plan.duration, plan.sample_every);
        let (requests, sent) = (Counts::new(&course, plan.sources.len()), Counts::new(&course, plan.localities.len()));
        Self { course, requests, sent }
    }

    pub(super) fn count(&mut self, now: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        self.requests.count(&self.course, now, source, count);
    }

    /// A request was sent to a locality; `load` is its part of a sample's capacity.
    pub(super) fn sent(&mut self, now: Timestamp, place: usize, load: f64) {
        self.sent.count(&self.course, now, place, |got| {
            got.sent += 1;
            got.load += load;
        });
    }

    /// Adds the load of others to all samples of a locality that begin between two times.
    pub(super) fn others(&mut self, place: usize, from: Duration, to: Duration, load: f64) {
        let begin = |at: Duration| at.as_nanos().div_ceil(self.course.sample_every.as_nanos()) as usize;
        let last = begin(to).min(self.course.samples);
        for got in &mut self.sent.by_sample[begin(from).min(last)..last] {
            got[place].load += load;
        }
    }

    /// The samples that lie within a window as a whole.
    pub(super) fn within(&self, window: &Window) -> &[Vec<Got>] {
        let last = self.course.sample(window.to).min(self.course.samples);
        let first = window.from.as_nanos().div_ceil(self.course.sample_every.as_nanos()) as usize;
        &self.sent.by_sample[first.min(last)..last]
    }
}

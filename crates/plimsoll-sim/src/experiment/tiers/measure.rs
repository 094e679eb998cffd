//! The counters of tiers.
//!
//! A request counts in the window of its arrival, however late it ends. An attempt counts in the
//! window in which it is sent.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::findings::sum;
use super::plan::Plan;
use crate::experiment::counts::{Counts, Course};
use crate::experiment::windows::Window;

/// The fate of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    /// Answered in time.
    pub(super) useful: u64,
}

/// The attempts at one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    /// Attempts that asked a client's throttle, and those of them that it stopped.
    pub(super) asked: u64,
    pub(super) held: u64,
    /// Attempts that were sent and shed, or that failed at once.
    pub(super) rejected: u64,
}

impl Sent {
    pub(super) fn sent(&self) -> u64 {
        self.asked - self.held
    }
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    /// By source.
    pub(super) requests: Counts<Tally>,
    /// By tier.
    pub(super) sent: Counts<Sent>,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let course = Course::new(&plan.phases, plan.warmup, plan.duration, plan.sample_every);
        let (requests, sent) = (Counts::new(&course, plan.sources.len()), Counts::new(&course, plan.tiers.len()));
        Self { course, requests, sent }
    }

    /// Counts something about a request of this source that arrived then.
    pub(super) fn request(&mut self, arrived: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        self.requests.count(&self.course, arrived, source, count);
    }

    /// Counts something about an attempt at a tier.
    pub(super) fn attempt(&mut self, now: Timestamp, tier: usize, count: impl Fn(&mut Sent)) {
        self.sent.count(&self.course, now, tier, count);
    }

    /// Recovery time in seconds: from the beginning of a window to the end of its last sample with
    /// less than 90% answered in time. 0 without such a sample, and `None` if no request arrived in
    /// the window.
    pub(super) fn recovered_after(&self, window: &Window) -> Option<f64> {
        let Course { sample_every, samples, .. } = self.course;
        let first = self.course.sample(window.begins);
        let last = self.course.sample(window.to.saturating_sub(Duration::from_nanos(1))).min(samples - 1);
        let mut arrived = 0;
        let mut end = Duration::ZERO;
        for i in first..=last {
            let tally = sum(&self.requests.by_sample[i]);
            arrived += tally.arrived;
            if (tally.useful as f64) < 0.9 * tally.arrived as f64 {
                end = sample_every * (i as u32 + 1);
            }
        }
        (arrived > 0).then(|| end.min(window.to).saturating_sub(window.begins).as_secs_f64())
    }
}

//! What is counted while tiers run.
//!
//! A request is counted in the part of the run in which it arrived, however late it ends; what a tier is sent, in the part in which that was.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::plan::Plan;
use crate::experiment::windows::{Window, windows};

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    /// Answered in time.
    pub(super) useful: u64,
}

/// What one tier was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    /// Attempts of its clients: asked of their throttles, and of these held back.
    pub(super) asked: u64,
    pub(super) held: u64,
    /// Of those that were sent, turned away or failed at once.
    pub(super) rejected: u64,
}

impl Sent {
    pub(super) fn sent(&self) -> u64 {
        self.asked - self.held
    }
}

/// All that is counted.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) windows: Vec<Window>,
    /// By source, of each window.
    pub(super) tallies: Vec<Vec<Tally>>,
    /// By tier, of each window.
    pub(super) sent: Vec<Vec<Sent>>,
    /// Of all sources, of each point of figures over time.
    pub(super) tally_samples: Vec<Tally>,
    /// By tier, of each point of figures over time.
    pub(super) sent_samples: Vec<Vec<Sent>>,
    sample_every: Duration,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let windows = windows(&plan.phases, plan.warmup, plan.duration);
        let samples = plan.duration.as_nanos().div_ceil(plan.sample_every.as_nanos().max(1)) as usize;
        Self {
            tallies: vec![vec![Tally::default(); plan.sources.len()]; windows.len()],
            sent: vec![vec![Sent::default(); plan.tiers.len()]; windows.len()],
            windows,
            tally_samples: vec![Tally::default(); samples],
            sent_samples: vec![vec![Sent::default(); plan.tiers.len()]; samples],
            sample_every: plan.sample_every,
        }
    }

    /// Counts something of a request of this source that arrived then.
    pub(super) fn request(&mut self, arrived: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        let arrived = arrived.since(Timestamp::ZERO);
        for (window, tallies) in self.windows.iter().zip(&mut self.tallies) {
            if window.holds(arrived) {
                count(&mut tallies[source]);
            }
        }
        let sample = self.sample(arrived);
        if let Some(tally) = self.tally_samples.get_mut(sample) {
            count(tally);
        }
    }

    /// Counts something of what a tier is sent.
    pub(super) fn attempt(&mut self, now: Timestamp, tier: usize, count: impl Fn(&mut Sent)) {
        let now = now.since(Timestamp::ZERO);
        for (window, sent) in self.windows.iter().zip(&mut self.sent) {
            if window.holds(now) {
                count(&mut sent[tier]);
            }
        }
        let sample = self.sample(now);
        if let Some(sent) = self.sent_samples.get_mut(sample) {
            count(&mut sent[tier]);
        }
    }

    fn sample(&self, at: Duration) -> usize {
        (at.as_nanos() / self.sample_every.as_nanos().max(1)) as usize
    }

    /// Seconds from the beginning of a window to the end of its last sample in which less than nine in ten were answered in time; 0 if
    /// there is none, and `None` if no request arrived in the window.
    pub(super) fn recovered_after(&self, window: &Window) -> Option<f64> {
        let first = self.sample(window.begins);
        let last = self.sample(window.to.saturating_sub(Duration::from_nanos(1))).min(self.tally_samples.len() - 1);
        let mut arrived = 0;
        let mut end = Duration::ZERO;
        for i in first..=last {
            let tally = self.tally_samples[i];
            arrived += tally.arrived;
            if (tally.useful as f64) < 0.9 * tally.arrived as f64 {
                end = self.sample_every * (i as u32 + 1);
            }
        }
        (arrived > 0).then(|| end.min(window.to).saturating_sub(window.begins).as_secs_f64())
    }
}

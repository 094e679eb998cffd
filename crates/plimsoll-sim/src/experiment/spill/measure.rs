//! What is counted while requests are sent to localities.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::spill::Route;

use super::plan::Plan;
use crate::experiment::windows::{Window, windows};

/// What became of the requests of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    pub(super) shed: u64,
    /// Sent to a locality that could not take it.
    pub(super) failed: u64,
}

/// What one locality was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Got {
    pub(super) sent: u64,
    /// Of all that came, those from elsewhere among them, over what it could serve.
    pub(super) load: f64,
}

/// All that is counted.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) windows: Vec<Window>,
    /// By source, of each window.
    pub(super) tallies: Vec<Vec<Tally>>,
    /// By locality, of each sample.
    pub(super) samples: Vec<Vec<Got>>,
    pub(super) sample_every: Duration,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let windows = windows(&plan.phases, plan.warmup, plan.duration);
        let samples = plan.duration.as_nanos().div_ceil(plan.sample_every.as_nanos().max(1)) as usize;
        Self {
            tallies: vec![vec![Tally::default(); plan.sources.len()]; windows.len()],
            windows,
            samples: vec![vec![Got::default(); plan.localities.len()]; samples],
            sample_every: plan.sample_every,
        }
    }

    pub(super) fn count(&mut self, now: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        let now = now.since(Timestamp::ZERO);
        for (window, tallies) in self.windows.iter().zip(&mut self.tallies) {
            if window.holds(now) {
                count(&mut tallies[source]);
            }
        }
    }

    /// A request went somewhere; `load` is what it is of what can be served in a sample.
    pub(super) fn went(&mut self, now: Timestamp, route: Route, load: f64) {
        let sample = (now.as_nanos() / self.sample_every.as_nanos().max(1) as u64) as usize;
        if let (Route::To(place), Some(sample)) = (route, self.samples.get_mut(sample)) {
            sample[place].sent += 1;
            sample[place].load += load;
        }
    }

    /// Adds what comes from elsewhere, to all samples of a locality between two times.
    pub(super) fn others(&mut self, place: usize, from: Duration, to: Duration, load: f64) {
        for got in samples_mut(&mut self.samples, self.sample_every, from, to) {
            got[place].load += load;
        }
    }

    /// The samples that lie within a window as a whole.
    pub(super) fn within(&self, window: &Window) -> &[Vec<Got>] {
        let every = self.sample_every.as_nanos().max(1);
        let first = window.from.as_nanos().div_ceil(every) as usize;
        let last = (window.to.as_nanos() / every) as usize;
        let last = last.min(self.samples.len());
        &self.samples[first.min(last)..last]
    }
}

fn samples_mut(samples: &mut [Vec<Got>], every: Duration, from: Duration, to: Duration) -> &mut [Vec<Got>] {
    let every = every.as_nanos().max(1);
    let last = (to.as_nanos().div_ceil(every) as usize).min(samples.len());
    let first = (from.as_nanos().div_ceil(every) as usize).min(last);
    &mut samples[first..last]
}

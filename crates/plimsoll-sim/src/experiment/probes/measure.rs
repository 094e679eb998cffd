//! The counters of an experiment with probes.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::plan::Plan;

/// The time in which a burst is counted.
const BURST: Duration = Duration::from_millis(10);

/// Counts of one arm.
#[derive(Clone, Debug, Default)]
pub(super) struct Measure {
    /// Queries of the whole run, acknowledgements not included.
    pub(super) queries: u64,
    /// Changes of a backend's state that nothing had caused.
    pub(super) wrong: u64,
    /// Paths that fell silent.
    pub(super) silenced: u64,
    /// Datagrams, both ways, after the warm-up.
    pub(super) datagrams: u64,
    /// Health checks after the warm-up.
    pub(super) checks: u64,
    /// Notices, first ones and resends.
    pub(super) notices: u64,
    /// Share of inactive pairs, at each sample after the warm-up.
    pub(super) inactive: Vec<f64>,
    /// Datagrams in each sample of the run.
    pub(super) by_sample: Vec<u64>,
    /// Largest number of datagrams that one client sent within 10 ms.
    pub(super) burst: u32,
    /// Clients at which probes worked when the backends became lame ducks.
    pub(super) probing: Knowledge,
    /// The other clients: they know by a check.
    pub(super) others: Knowledge,
    /// Longest time from an unanswered query to the resumption of checks.
    pub(super) resumed: Option<Duration>,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let samples = plan.duration.as_nanos().div_ceil(plan.sample_every.as_nanos()) as usize;
        Self { by_sample: vec![0; samples], ..Self::default() }
    }

    /// A datagram is sent.
    pub(super) fn sent(&mut self, now: Timestamp, plan: &Plan) {
        let at = now.since(Timestamp::ZERO);
        self.datagrams += u64::from(at >= plan.warmup);
        if let Some(sample) = self.by_sample.get_mut((at.as_nanos() / plan.sample_every.as_nanos()) as usize) {
            *sample += 1;
        }
    }
}

/// The spread of news among some clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    /// Times from the lame duck until a client knew of it.
    pub(super) known: Vec<Duration>,
    /// Clients that did not know before the end.
    pub(super) unaware: u64,
}

impl Knowledge {
    pub(super) fn clients(&self) -> f64 {
        self.known.len() as f64 + self.unaware as f64
    }

    pub(super) fn with(&self, other: &Self) -> Self {
        let known = self.known.iter().chain(&other.known).copied().collect();
        Self { known, unaware: self.unaware + other.unaware }
    }

    /// The time until this share of the clients knew; `None` if they never did.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let mut known = self.known.clone();
        known.sort_unstable();
        let rank = ((share * self.clients()).ceil() as usize).max(1);
        known.get(rank - 1).copied()
    }
}

/// Datagrams of one client in the present 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    window: u64,
    count: u32,
}

impl Burst {
    pub(super) fn count(&mut self, now: Timestamp) -> u32 {
        let window = now.as_nanos() / BURST.as_nanos() as u64;
        if window != self.window {
            *self = Self { window, count: 0 };
        }
        self.count += 1;
        self.count
    }
}

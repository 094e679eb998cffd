//! The requests of both sides during one slot.

use super::estimate::{Batch, Pair};
use super::latencies::Latencies;
use super::{Cost, FinishedRequest, QUANTILES, RequestEnd, SLOT_REQUESTS, SLOT_TIME, Side, Sum};
use crate::Timestamp;

/// One side of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Requests with a known result.
    requests: u64,
    failures: u64,
    abandoned: u64,
    /// Requests that are known to be quicker or slower than a threshold, and the slower among them.
    compared: [u64; 2],
    slower: [u64; 2],
    costs: [Sum; 2],
}

impl Part {
    fn record(&mut self, request: &FinishedRequest, thresholds: [f64; 2]) {
        match request.end {
            RequestEnd::Failed => {
                self.requests += 1;
                self.failures += 1;
            }
            RequestEnd::Answered => self.requests += 1,
            RequestEnd::Abandoned => self.abandoned += 1,
        }
        let latency = request.latency.as_secs_f64();
        for (i, threshold) in thresholds.into_iter().enumerate() {
            let is_slower = latency > threshold;
            let is_known = match request.end {
                RequestEnd::Answered => true,
                RequestEnd::Abandoned => is_slower,
                RequestEnd::Failed => false,
            };
            self.compared[i] += u64::from(is_known);
            self.slower[i] += u64::from(is_known && is_slower);
        }
    }

    /// Requests that are a part of the latencies.
    fn timed(&self) -> u64 {
        self.requests - self.failures + self.abandoned
    }
}

/// A slot in progress.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    began: Timestamp,
    main: Part,
    canary: Part,
    /// Latencies of the main version.
    latencies: Latencies,
    /// Latencies in seconds that count as slow, fixed before the slot.
    thresholds: [f64; 2],
}

impl Slot {
    pub(super) fn new(now: Timestamp) -> Self {
        let (main, canary) = (Part::default(), Part::default());
        Self { began: now, main, canary, latencies: Latencies::default(), thresholds: [f64::INFINITY; 2] }
    }

    /// Begins the next one. A request is slow above the quantiles of the main version before.
    pub(super) fn restart(&mut self, now: Timestamp, main: &Latencies) {
        (self.began, self.main, self.canary) = (now, Part::default(), Part::default());
        self.latencies.clear();
        let known = |share| main.quantile(share).filter(|quantile| quantile.is_exact);
        self.thresholds = QUANTILES.map(|share| known(share).map_or(f64::INFINITY, |quantile| quantile.seconds));
    }

    pub(super) fn is_complete(&self, now: Timestamp) -> bool {
        let all = |part: &Part| part.requests + part.abandoned;
        all(&self.main).min(all(&self.canary)) >= SLOT_REQUESTS && now.since(self.began) >= SLOT_TIME
    }

    /// Takes a request, with the part of its cost that counts.
    pub(super) fn record(&mut self, side: Side, request: &FinishedRequest, cost: Option<Cost>) {
        let part = match side {
            Side::Main => &mut self.main,
            Side::Canary => &mut self.canary,
        };
        part.record(request, self.thresholds);
        if let Some(cost) = cost {
            part.costs[cost.kind()].add(cost.value());
        }
        if side == Side::Main {
            request.add_to(&mut self.latencies);
        }
    }

    /// Adds the main version's latencies to `all`, as many as the canary has in this slot.
    pub(super) fn add_latencies(&self, all: &mut Latencies) {
        if self.main.timed() > 0 {
            all.add(&self.latencies, self.canary.timed() as f64 / self.main.timed() as f64);
        }
    }

    /// The sums of the slot: the canary's, and those that the main version would have had for as
    /// many requests.
    pub(super) fn batch(&self) -> Batch {
        let (main, canary) = (&self.main, &self.canary);
        let cost = |kind: usize| match main.costs[kind].mean() {
            Some(mean) if canary.costs[kind].count > 0 => {
                let Sum { count, sum } = canary.costs[kind];
                Pair { y: sum, x: count as f64 * mean, n: count as f64 }
            }
            _ => Pair::default(),
        };
        let difference = |canary: [u64; 2], main: [u64; 2]| {
            let ([count, of], [main_count, main_of]) =
                (canary.map(|count| count as f64), main.map(|count| count as f64));
            if of > 0.0 && main_of > 0.0 {
                Pair { y: count - of * main_count / main_of, x: of, n: of }
            } else {
                Pair::default()
            }
        };
        let slower = |i: usize| difference([canary.slower[i], canary.compared[i]], [main.slower[i], main.compared[i]]);
        let errors = difference([canary.failures, canary.requests], [main.failures, main.requests]);
        Batch { pairs: [cost(0), cost(1), errors, slower(0), slower(1)] }
    }
}

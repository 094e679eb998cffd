//! The requests of both sides during one slot.

use super::estimate::{Batch, Pair};
use super::{CAP, Cost, FinishedRequest, SLOT_REQUESTS, SLOT_TIME, Side, Sum, Totals};
use crate::Timestamp;

/// One side of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    requests: u64,
    failures: u64,
    answered: u64,
    /// Answered later than the median and the 99th percentile of all requests before the slot.
    slower: [u64; 2],
    measured: Sum,
    mean: Sum,
}

/// A slot in progress.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    began: Timestamp,
    main: Part,
    canary: Part,
    /// Latencies in seconds that count as slow, fixed before the slot.
    thresholds: [f64; 2],
    /// Greatest costs that count, measured and mean; fixed before the slot.
    caps: [f64; 2],
}

impl Slot {
    pub(super) fn new(now: Timestamp) -> Self {
        let (main, canary) = (Part::default(), Part::default());
        Self { began: now, main, canary, thresholds: [f64::INFINITY; 2], caps: [f64::INFINITY; 2] }
    }

    /// Begins the next one, with scales from all requests before.
    pub(super) fn restart(&mut self, now: Timestamp, [main, canary]: [&Totals; 2]) {
        let cap = |main: Sum, canary: Sum| {
            let both = Sum { count: main.count + canary.count, sum: main.sum + canary.sum };
            both.mean().filter(|mean| *mean > 0.0).map_or(f64::INFINITY, |mean| CAP * mean)
        };
        *self = Self {
            thresholds: [0.5, 0.99].map(|share| main.latencies.quantile(share).unwrap_or(f64::INFINITY)),
            caps: [cap(main.measured, canary.measured), cap(main.mean, canary.mean)],
            ..Self::new(now)
        };
    }

    pub(super) fn is_complete(&self, now: Timestamp) -> bool {
        self.main.requests.min(self.canary.requests) >= SLOT_REQUESTS && now.since(self.began) >= SLOT_TIME
    }

    /// Takes a request. Returns the cost that counts.
    pub(super) fn record(&mut self, side: Side, request: &FinishedRequest) -> Option<Cost> {
        let part = match side {
            Side::Main => &mut self.main,
            Side::Canary => &mut self.canary,
        };
        part.requests += 1;
        if request.is_failure {
            part.failures += 1;
        } else {
            let latency = request.latency.as_secs_f64();
            part.answered += 1;
            for (slower, threshold) in part.slower.iter_mut().zip(self.thresholds) {
                *slower += u64::from(latency > threshold);
            }
        }
        let is_valid = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        match request.cost {
            Some(Cost::Measured(cost)) if is_valid(&cost) => {
                let cost = cost.min(self.caps[0]);
                part.measured.add(cost);
                Some(Cost::Measured(cost))
            }
            Some(Cost::Mean(cost)) if is_valid(&cost) => {
                let cost = cost.min(self.caps[1]);
                part.mean.add(cost);
                Some(Cost::Mean(cost))
            }
            _ => None,
        }
    }

    /// The sums of the slot: the canary's, and what the main version would have had for as many.
    pub(super) fn batch(&self) -> Batch {
        let (main, canary) = (&self.main, &self.canary);
        let cost = |main: Sum, canary: Sum| match main.mean() {
            Some(mean) if canary.count > 0 => Pair { y: canary.sum, x: canary.count as f64 * mean },
            _ => Pair::default(),
        };
        let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
        let difference = |canary: [u64; 2], main: [u64; 2]| {
            let ([count, of], number) = (canary, canary[1] as f64);
            let is_comparable = of > 0 && main[1] > 0;
            if is_comparable {
                Pair { y: count as f64 - number * share(main[0], main[1]), x: number }
            } else {
                Pair::default()
            }
        };
        let slower = |i: usize| difference([canary.slower[i], canary.answered], [main.slower[i], main.answered]);
        let errors = difference([canary.failures, canary.requests], [main.failures, main.requests]);
        let pairs = [cost(main.measured, canary.measured), cost(main.mean, canary.mean), errors, slower(0), slower(1)];
        Batch { pairs }
    }
}

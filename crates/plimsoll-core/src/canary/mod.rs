//! The comparison of a canary with the main version that serves beside it.
//!
//! A rollout asks one question: may the new version get all traffic? [`Comparison`] answers it from
//! one fact per finished request of either side, for four metrics ([`Metric`]): CPU per request, the
//! share of failed requests, the median latency and its 99th percentile. Each has an estimate, an
//! interval and a finding; together they give one [`Verdict`]. *No difference* is a verdict of its
//! own and needs evidence, as *worse* does. Absence of an alarm is none.
//!
//! # Both sides at the same time
//! Load, mix and caches change over a day. So the sides are compared slot by slot. A slot lasts until
//! both sides have [`SLOT_REQUESTS`] requests in it, and [`SLOT_TIME`] at least. With S the CPU of the
//! canary's requests in the slot, n their number and x̄ the main version's CPU per request in the same
//! slot, E = n·x̄ is the CPU that the main version would have used for as many. Over all slots
//!
//! ```text
//! 1 + d = ΣS ÷ ΣE,    var d = Σ(S − (1 + d)·E)² ÷ (ΣE)²
//! ```
//!
//! Errors and slow requests are counts in place of CPU: d = Σ(S − E) ÷ Σn. The variance comes from
//! whole slots, not from single requests. So a pause that slows a thousand requests counts as one
//! event. Slots are merged in pairs whenever there are [`MAX_BATCHES`], so that the *batches* become
//! as long as a run needs, and memory is bounded: the method of batch means.
//!
//! # Looking at any time
//! Operators look at an interval again and again, and stop when they like the answer. An ordinary 95%
//! interval is wrong in far more than 5% of such rollouts. The interval here holds at all times
//! together. It is the normal mixture of Robbins: with v the variance and m the relevant difference
//! of the metric ([`Margins`]),
//!
//! ```text
//! w² = v · (1 + v/m²) · ln((1 + m²/v) ÷ α²)
//! ```
//!
//! The prior variance m² makes w smallest, 3.5 standard errors, where w is about m: there the
//! decision falls. α is [`FALSE_ALARM`] ÷ 4, so that all four metrics together hold. Few batches
//! estimate v roughly, so w is widened as Student's quantile is. The mixture is exact for normal
//! sums; [`MIN_BATCHES`] batches of 32 requests or more bring sums near that.
//!
//! # Findings
//! | finding | condition, with the interval (d − w, d + w) and the margin m |
//! |---|---|
//! | worse | the interval is above 0, and d ≥ m |
//! | better | the interval is below 0, and d ≤ −m |
//! | no difference | the interval is within ±m, or below 0 |
//! | undecided | else |
//!
//! A finding stays until another one replaces it: it does not return to undecided.
//! - If both versions are equal, a metric is found worse in at most α/2 of all rollouts, all four in
//!   [`FALSE_ALARM`] ÷ 2 together. If the canary is worse by m or more, *no difference* is as rare.
//! - A difference of 2·m is found.
//! - A difference between 0 and m may end either way. It is real, and smaller than relevant.
//!
//! # Requests until a verdict
//! *No difference* takes most: |d| + w < m. With σ² the variance of one request in units of the
//! metric and k the requests of the main version for each of the canary, v = σ²·(1 + 1/k) ÷ n. In
//! 98 of 100 rollouts |d| is below 2.4 standard errors, and w is 3.9 or a little more. So
//!
//! ```text
//! n = (6.5 ÷ m)² · σ² · (1 + 1/k)
//! ```
//!
//! requests of the canary are enough for each metric ([`requests_until_verdict`]), and for all four
//! in 19 of 20 rollouts; and at least 33 slots. For CPU, σ² is the squared coefficient of variation.
//! For errors it is p·(1 − p). For a quantile p it is p·(1 − p) ÷ (q·f(q))², with f the density of
//! latencies: 1.9 at the median of exponential latencies, 4.7 at the 99th percentile.
//!
//! # Heavy tails
//! The cost of one request counts up to [`CAP`] times the mean so far. Without a cap, one request of
//! a million costs would decide a rollout alone. With costs 1000 times apart and evenly spread over
//! the decades, none reaches the cap.
//!
//! # Why not
//! - *The mean of logarithms*: it is steady, but the bill is the sum. A canary whose few expensive
//!   requests cost twice as much would look equal.
//! - *A comparison with the hour before* needs no second version, and finds the time of day.
//! - *A score of weighted metrics* (as in Kayenta) cannot be turned into requests or CPUs.
//! - *Mann–Whitney tests*, repeated at each look: false alarms grow with the looks.
//!
//! # Where it is weak
//! - By a cohort, the sides serve different users. The interval covers requests and times, not the
//!   choice of users. Few heavy users look like a difference.
//! - Differences between machines look like differences between versions. The canary's backends
//!   must be as large as the others.
//! - All evidence since the start has one weight. A canary that becomes slow after days of equality
//!   is found late.
//!
//! Sources: H. Robbins, "Statistical methods related to the law of the iterated logarithm" (1970);
//! R. Johari et al., "Always valid inference" (2015); I. Waudby-Smith et al., "Time-uniform central
//! limit theory and asymptotic confidence sequences" (2021); the ratio estimator of W. G. Cochran,
//! "Sampling techniques" (1977).

mod estimate;
mod latencies;
mod metric;
mod slot;

use alloc::vec::Vec;
use core::time::Duration;

use estimate::{Batch, Interval, Pair};
use latencies::Latencies;
use slot::Slot;

use crate::Timestamp;

pub use metric::{Finding, Margins, Metric, MetricReport, Verdict};

/// Fewest requests of each side in a slot: a sum of so many is not far from normal.
pub const SLOT_REQUESTS: u64 = 32;
/// Shortest slot: longer than pauses of a garbage collector, which hit many requests at once.
pub const SLOT_TIME: Duration = Duration::from_secs(1);
/// Fewest batches with an interval: their variance is then known to an eighth.
pub const MIN_BATCHES: usize = 32;
/// Batches that are kept; when there are so many, they are merged in pairs.
pub const MAX_BATCHES: usize = 64;
/// Greatest part of all rollouts in which any interval is wrong at any time.
pub const FALSE_ALARM: f64 = 0.05;
/// The cost of one request counts up to this multiple of the mean so far.
pub const CAP: f64 = 64.0;

/// Requests of the canary that are enough for *no difference* in one metric, in 98 of 100 rollouts.
///
/// `variance` is that of one request in units of the metric, `margin` the relevant difference,
/// `share` the canary's part of the requests.
#[must_use]
pub fn requests_until_verdict(variance: f64, margin: f64, share: f64) -> f64 {
    let reach = 6.5 / margin;
    reach * reach * variance / (1.0 - share)
}

/// The version that served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The version that serves most requests.
    Main,
    /// The version on trial.
    Canary,
}

/// The CPU that a request used, by a load report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Reference CPU-seconds of this request.
    Measured(f64),
    /// The backend's utilization over its requests per second: the mean of its latest requests, as
    /// a share of its machine.
    Mean(f64),
}

/// One request that a side has finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedRequest {
    /// It failed: an error of the backend, a timeout, no backend.
    pub is_failure: bool,
    /// Time to the head of the response. That of a failure has no effect: failures are quick.
    pub latency: Duration,
    /// The CPU that it used; `None` without a load report.
    pub cost: Option<Cost>,
}

/// Compares the two sides of a split. Each request is O(1) and allocates nothing.
#[derive(Clone, Debug)]
pub struct Comparison {
    margins: Margins,
    since: Timestamp,
    slot: Slot,
    /// No slot has ended yet: the first one only sets the scales of the others.
    is_first: bool,
    batches: Vec<Batch>,
    /// Slots in each batch but the last.
    slots_each: u32,
    /// Slots in the last batch.
    in_last: u32,
    main: Totals,
    canary: Totals,
    metrics: [MetricReport; Metric::ALL.len()],
    verdict: Verdict,
    /// Requests of both sides when the verdict was reached.
    reached_at: Option<u64>,
}

/// Sums over all requests of a side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    requests: u64,
    failures: u64,
    measured: Sum,
    mean: Sum,
    latencies: Latencies,
}

/// A sum and the number of its terms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    count: u64,
    sum: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The state of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// When it began.
    pub since: Timestamp,
    /// Requests of the main version and of the canary.
    pub requests: [u64; 2],
    /// Failed requests of the main version and of the canary.
    pub failures: [u64; 2],
    /// In the order of [`Metric::ALL`].
    pub metrics: [MetricReport; Metric::ALL.len()],
    /// The verdict.
    pub verdict: Verdict,
    /// Requests of both sides when the verdict was reached.
    pub reached_at: Option<u64>,
    /// Estimate of the requests of the canary that an undecided verdict still needs.
    pub needed: Option<u64>,
}

impl Comparison {
    /// Begins a comparison.
    #[must_use]
    pub fn new(now: Timestamp, margins: Margins) -> Self {
        Self {
            margins,
            since: now,
            slot: Slot::new(now),
            is_first: true,
            batches: Vec::with_capacity(MAX_BATCHES),
            slots_each: 1,
            in_last: 0,
            main: Totals::default(),
            canary: Totals::default(),
            metrics: [MetricReport::UNKNOWN; Metric::ALL.len()],
            verdict: Verdict::Undecided,
            reached_at: None,
        }
    }

    /// The relevant differences that it uses.
    #[must_use]
    pub const fn margins(&self) -> &Margins {
        &self.margins
    }

    /// Sets other relevant differences. The evidence stays; findings are made anew.
    pub fn set_margins(&mut self, margins: Margins) {
        if margins == self.margins {
            return;
        }
        self.margins = margins;
        self.metrics = [MetricReport::UNKNOWN; Metric::ALL.len()];
        (self.verdict, self.reached_at) = (Verdict::Undecided, None);
        self.judge();
    }

    /// Takes one finished request. Returns the verdict if this request changed it.
    pub fn record(&mut self, now: Timestamp, side: Side, request: &FinishedRequest) -> Option<Verdict> {
        let totals = match side {
            Side::Main => &mut self.main,
            Side::Canary => &mut self.canary,
        };
        totals.requests += 1;
        totals.failures += u64::from(request.is_failure);
        if !request.is_failure {
            totals.latencies.record(request.latency);
        }
        let cost = self.slot.record(side, request);
        match cost {
            Some(Cost::Measured(cost)) => totals.measured.add(cost),
            Some(Cost::Mean(cost)) => totals.mean.add(cost),
            None => {}
        }
        if !self.slot.is_complete(now) {
            return None;
        }
        let before = self.verdict;
        self.end_slot(now);
        (self.verdict != before).then_some(self.verdict)
    }

    /// The state.
    #[must_use]
    pub fn report(&self) -> Report {
        let needed = self.metrics.iter().filter_map(|metric| metric.finding.needed()).max();
        Report {
            since: self.since,
            requests: [self.main.requests, self.canary.requests],
            failures: [self.main.failures, self.canary.failures],
            metrics: self.metrics,
            verdict: self.verdict,
            reached_at: self.reached_at,
            needed: needed.filter(|_| self.verdict == Verdict::Undecided),
        }
    }

    fn end_slot(&mut self, now: Timestamp) {
        if !core::mem::replace(&mut self.is_first, false) {
            self.push(self.slot.batch());
            self.judge();
        }
        self.slot.restart(now, [&self.main, &self.canary]);
    }

    fn push(&mut self, slot: Batch) {
        if self.in_last < self.slots_each
            && self.in_last > 0
            && let Some(last) = self.batches.last_mut()
        {
            last.add(&slot);
            self.in_last += 1;
            return;
        }
        if self.batches.len() == MAX_BATCHES {
            for i in 0..MAX_BATCHES / 2 {
                let [mut first, second] = [self.batches[2 * i], self.batches[2 * i + 1]];
                first.add(&second);
                self.batches[i] = first;
            }
            self.batches.truncate(MAX_BATCHES / 2);
            self.slots_each = self.slots_each.saturating_mul(2);
        }
        self.batches.push(slot);
        self.in_last = 1;
    }

    /// Makes the findings and the verdict.
    fn judge(&mut self) {
        for (i, metric) in Metric::ALL.into_iter().enumerate() {
            let margin = self.margins.of(metric);
            let seen = self.look(metric, margin);
            let before = self.metrics[i].finding;
            self.metrics[i] = match seen {
                Some(seen) => seen.judged(margin, before, self.canary.requests),
                None => MetricReport { finding: self.unseen(metric, before), ..MetricReport::UNKNOWN },
            };
        }
        let verdict = Verdict::of(&self.metrics);
        if verdict != self.verdict {
            let is_reached = verdict != Verdict::Undecided;
            self.reached_at = is_reached.then(|| self.main.requests + self.canary.requests);
            self.verdict = verdict;
        }
    }

    /// The finding on a metric without an interval.
    fn unseen(&self, metric: Metric, before: Finding) -> Finding {
        let batches = self.batches.len();
        match metric {
            _ if before.is_decided() => before,
            Metric::Cpu if batches >= MIN_BATCHES && self.cpu().is_none() => Finding::Unmeasured,
            _ => {
                let each = self.canary.requests / (batches as u64 + 1);
                let missing = MIN_BATCHES.saturating_sub(batches).max(1) as u64;
                Finding::Undecided { needed: missing * each.max(SLOT_REQUESTS) }
            }
        }
    }

    /// The place of the CPU in a batch, and each side's CPU per request: as measured by the
    /// backends, else by their utilization; `None` if the sides have no common measure.
    fn cpu(&self) -> Option<(usize, [f64; 2])> {
        let of = |place: usize, main: Sum, canary: Sum| {
            let has_both = self.batches.iter().filter(|batch| batch.pairs[place].x > 0.0).count() >= MIN_BATCHES;
            has_both.then_some((place, [main.mean()?, canary.mean()?]))
        };
        of(Batch::MEASURED, self.main.measured, self.canary.measured)
            .or_else(|| of(Batch::MEAN, self.main.mean, self.canary.mean))
    }

    /// The estimate and the interval of a metric.
    fn look(&self, metric: Metric, margin: f64) -> Option<MetricReport> {
        match metric {
            Metric::Cpu => {
                let (place, [main, canary]) = self.cpu()?;
                let interval = self.interval(place, 0.0, margin)?;
                // The ratio has 1 for equality.
                let [low, high] = interval.bounds().map(|bound| bound - 1.0);
                Some(MetricReport::of(main, canary, interval.ratio - 1.0, low, high))
            }
            Metric::Errors => {
                let rate = |side: &Totals| side.failures as f64 / side.requests.max(1) as f64;
                let requests = self.canary.requests as f64;
                // Even no failure at all is no proof of none: as if there were two more, half a chance
                // each way (Agresti and Coull).
                let few = (self.canary.failures as f64 + 2.0) / (requests + 4.0);
                let interval = self.interval(Batch::ERRORS, few * (1.0 - few) / requests.max(1.0), margin)?;
                let [low, high] = interval.bounds();
                Some(MetricReport::of(rate(&self.main), rate(&self.canary), interval.ratio, low, high))
            }
            Metric::Median => self.look_at_quantile(0.5, Batch::MEDIAN, margin),
            Metric::P99 => self.look_at_quantile(0.99, Batch::P99, margin),
        }
    }

    /// The interval of a quantile, by that of the share of requests above it.
    fn look_at_quantile(&self, quantile: f64, place: usize, margin: f64) -> Option<MetricReport> {
        let [main, canary] = [&self.main, &self.canary].map(|side| side.latencies.quantile(quantile));
        let (main, canary) = (main?, canary?);
        // The margin as a share of requests: those between the quantile and the margin above it.
        let beyond =
            self.canary.latencies.share_above(canary) - self.canary.latencies.share_above(canary * (1.0 + margin));
        let answered = self.canary.latencies.count() as f64;
        let floor = quantile * (1.0 - quantile) / answered.max(1.0);
        let width = self.interval(place, floor, beyond.max(1e-4))?.width;
        let at = |share: f64| match share {
            share if share >= 1.0 => Some(f64::INFINITY),
            share if share <= 0.0 => Some(0.0),
            share => self.canary.latencies.quantile(share),
        };
        let (low, high) = (at(quantile - width)?, at(quantile + width)?);
        Some(MetricReport::of(main, canary, canary / main - 1.0, low / main - 1.0, high / main - 1.0))
    }

    fn interval(&self, place: usize, floor: f64, margin: f64) -> Option<Interval> {
        let pairs = || self.batches.iter().map(|batch| batch.pairs[place]).filter(|pair| pair.x > 0.0);
        Interval::of(pairs, floor, margin)
    }
}

impl Batch {
    const MEASURED: usize = 0;
    const MEAN: usize = 1;
    const ERRORS: usize = 2;
    const MEDIAN: usize = 3;
    const P99: usize = 4;

    fn add(&mut self, other: &Self) {
        for (pair, other) in self.pairs.iter_mut().zip(&other.pairs) {
            *pair = Pair { y: pair.y + other.y, x: pair.x + other.x };
        }
    }
}

#[cfg(test)]
mod tests;

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
//! A disturbance of one side for T seconds is one event only in batches of about T. So the variance
//! is also taken over batches merged by 2 and by 4, and the greatest counts. A disturbance of k batches
//! is then √k standard errors away, however large it is. At the end of [`MIN_TIME`], batches merged by 4
//! last 8 s, and a disturbance of 20 s is less than two standard errors away. After an hour the same
//! holds for disturbances of ten minutes.
//!
//! Latencies are compared within slots too. The quantile of the main version is that of a mixture:
//! in each slot its requests count as many as the canary's. So a share that changes with the time of
//! day (a fallback, a few heavy users) does not look like a difference.
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
//! n = (7 ÷ m)² · σ² · (1 + 1/k)
//! ```
//!
//! requests of the canary are enough for each metric ([`requests_until_verdict`]), and for all four
//! in 19 of 20 rollouts; and at least [`MIN_TIME`]. 2.4 and 3.9 make 6.3; the greatest of three
//! variances takes a seventh more requests. For CPU, σ² is the squared coefficient of variation.
//! For errors it is p·(1 − p). For a quantile p it is p·(1 − p) ÷ (q·f(q))², with f the density of
//! latencies: 1.9 at the median of exponential latencies, 4.7 at the 99th percentile.
//!
//! # Heavy tails
//! The cost of one request counts up to [`CAP`] times the mean so far. Without a cap, one request of
//! a million costs would decide a rollout alone. With costs 1000 times apart and evenly spread over
//! the decades, none reaches the cap. The first costs of a comparison only set the scale.
//!
//! # Clients that leave
//! A request that its client abandoned is no failure: its latency is above the time until then, and
//! counts as that ([`RequestEnd::Abandoned`]). So a canary that hangs is slow, whether its clients
//! wait for a timeout or not. Clients that leave sooner than the main version answers prove nothing.
//!
//! # Requests that fall back
//! A request of a side without a usable backend is a failure of that side, even if another side
//! serves it. A canary that crashes at its start gets no requests, and would stay undecided.
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
mod scale;
mod slot;

use alloc::vec::Vec;
use core::time::Duration;

use estimate::{Batch, Interval, Pair};
use latencies::Latencies;
use scale::Cap;
use slot::Slot;

use crate::Timestamp;

pub use metric::{Finding, Margins, Metric, MetricReport, Verdict};

/// Fewest requests of each side in a slot: a sum of 32 is not far from normal.
pub const SLOT_REQUESTS: u64 = 32;
/// Shortest slot: longer than pauses of a garbage collector, which hit many requests at once.
pub const SLOT_TIME: Duration = Duration::from_secs(1);
/// Fewest batches with an interval: their variance is then known to an eighth.
pub const MIN_BATCHES: usize = 32;
/// Batches that are kept. At this number they are merged in pairs.
pub const MAX_BATCHES: usize = 64;
/// Times that batches are merged by two for the variance: at least eight batches are left.
pub const MERGERS: usize = 2;
/// Least time before a verdict: six times a disturbance of one side, such as a cold cache.
pub const MIN_TIME: Duration = Duration::from_secs(120);
/// Greatest part of all rollouts in which any interval is wrong at any time.
pub const FALSE_ALARM: f64 = 0.05;
/// The cost of one request counts up to this multiple of the mean so far.
pub const CAP: f64 = 64.0;

/// The quantiles of latency that are compared.
const QUANTILES: [f64; 2] = [0.5, 0.99];

/// Requests of the canary that are enough for *no difference* in one metric, in 98 of 100 rollouts.
///
/// `variance` is that of one request in units of the metric, `margin` the relevant difference,
/// `share` the canary's part of the requests. A verdict takes [`MIN_TIME`] at least.
#[must_use]
pub fn requests_until_verdict(variance: f64, margin: f64, share: f64) -> f64 {
    let reach = REACH / margin;
    reach * reach * variance / (1.0 - share)
}

/// Standard errors within the margin at *no difference*.
const REACH: f64 = 7.0;

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

impl Cost {
    /// Kinds of costs.
    const KINDS: usize = 2;

    const fn kind(self) -> usize {
        match self {
            Self::Measured(_) => Batch::MEASURED,
            Self::Mean(_) => Batch::MEAN,
        }
    }

    const fn value(self) -> f64 {
        match self {
            Self::Measured(value) | Self::Mean(value) => value,
        }
    }

    const fn with(self, value: f64) -> Self {
        match self {
            Self::Measured(_) => Self::Measured(value),
            Self::Mean(_) => Self::Mean(value),
        }
    }
}

/// The end of a request of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It got a response, and did not fail.
    Answered,
    /// It failed: an error of the backend, a timeout, no backend. A request that another side
    /// served, because this one had no backend, is a failure of this one.
    Failed,
    /// Its client left before the response, or had set a deadline of its own. That is no failure:
    /// its latency is above the time until then.
    Abandoned,
}

/// One request that a side has finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedRequest {
    /// The end.
    pub end: RequestEnd,
    /// Time to the head of the response, or to the departure of the client. That of a failure has
    /// no effect: failures are quick.
    pub latency: Duration,
    /// The CPU that it used; `None` without a load report.
    pub cost: Option<Cost>,
}

impl FinishedRequest {
    fn add_to(&self, latencies: &mut Latencies) {
        match self.end {
            RequestEnd::Answered => latencies.answered(self.latency),
            RequestEnd::Abandoned => latencies.abandoned(self.latency),
            RequestEnd::Failed => {}
        }
    }
}

/// Compares the two sides of a split. Each request is O(1) and allocates nothing.
#[derive(Clone, Debug)]
pub struct Comparison {
    margins: Margins,
    since: Timestamp,
    /// The first request came at this time.
    first: Option<Timestamp>,
    /// From the first request to the end of the last slot.
    elapsed: Duration,
    slot: Slot,
    caps: [Cap; Cost::KINDS],
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
    /// Without abandoned ones.
    requests: u64,
    failures: u64,
    /// Counted costs, by kind.
    costs: [Sum; Cost::KINDS],
    /// Requests with a cost above zero, counted or not.
    measured: [u64; Cost::KINDS],
    /// Of the main version, those of a slot count as many as the canary's in the same slot.
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
    /// Requests of the main version and of the canary with a known result.
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
            first: None,
            elapsed: Duration::ZERO,
            slot: Slot::new(now),
            caps: [Cap::UNKNOWN; Cost::KINDS],
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
        self.first.get_or_insert(now);
        let totals = match side {
            Side::Main => &mut self.main,
            Side::Canary => &mut self.canary,
        };
        totals.requests += u64::from(request.end != RequestEnd::Abandoned);
        totals.failures += u64::from(request.end == RequestEnd::Failed);
        if side == Side::Canary {
            request.add_to(&mut totals.latencies);
        }
        let cost = request.cost.filter(|cost| cost.value().is_finite() && cost.value() >= 0.0).and_then(|cost| {
            totals.measured[cost.kind()] += u64::from(cost.value() > 0.0);
            let counted = self.caps[cost.kind()].counted(cost.value())?;
            totals.costs[cost.kind()].add(counted);
            Some(cost.with(counted))
        });
        self.slot.record(side, request, cost);
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
        self.elapsed = now.since(self.first.unwrap_or(now));
        self.slot.add_latencies(&mut self.main.latencies);
        if !core::mem::replace(&mut self.is_first, false) {
            self.push(self.slot.batch());
            self.judge();
        }
        self.slot.restart(now, &self.main.latencies);
        for (kind, cap) in self.caps.iter_mut().enumerate() {
            let [main, canary] = [self.main.costs[kind], self.canary.costs[kind]];
            cap.renew(Sum { count: main.count + canary.count, sum: main.sum + canary.sum });
        }
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
        let wait = self.wait();
        for (i, metric) in Metric::ALL.into_iter().enumerate() {
            let margin = self.margins.of(metric);
            let seen = self.look(metric, margin);
            let before = self.metrics[i].finding;
            self.metrics[i] = match seen {
                Some(seen) => seen.judged(margin, before, self.canary.requests, wait),
                None => MetricReport { finding: self.unseen(metric, before, wait), ..MetricReport::UNKNOWN },
            };
        }
        let verdict = Verdict::of(&self.metrics);
        if verdict != self.verdict {
            let is_reached = verdict != Verdict::Undecided;
            self.reached_at = is_reached.then(|| self.main.requests + self.canary.requests);
            self.verdict = verdict;
        }
    }

    /// Estimate of the requests of the canary until [`MIN_TIME`] is over; zero afterwards.
    fn wait(&self) -> u64 {
        let left = MIN_TIME.saturating_sub(self.elapsed).as_secs_f64();
        let rate = self.canary.requests as f64 / self.elapsed.as_secs_f64().max(1.0);
        if left > 0.0 { ((rate * left) as u64).max(1) } else { 0 }
    }

    /// The finding on a metric without an interval.
    fn unseen(&self, metric: Metric, before: Finding, wait: u64) -> Finding {
        let batches = self.batches.len();
        // A few reports on both sides are evidence to wait for.
        let is_measured = (0..Cost::KINDS).any(|kind| self.main.measured[kind].min(self.canary.measured[kind]) > 0);
        match metric {
            _ if before.is_decided() => before,
            Metric::Cpu if wait == 0 && batches >= MIN_BATCHES && !is_measured => Finding::Unmeasured,
            _ => {
                let each = self.canary.requests / (batches as u64 + 1);
                let missing = MIN_BATCHES.saturating_sub(batches).max(1) as u64;
                Finding::Undecided { needed: (missing * each.max(SLOT_REQUESTS)).max(wait) }
            }
        }
    }

    /// The interval of the CPU: as measured by the backends, else by their utilization; `None` if
    /// the sides have no common measure in enough slots.
    fn cpu(&self, margin: f64) -> Option<Interval> {
        let of = |place: usize| self.interval(place, 1.0, 0.0, margin);
        of(Batch::MEASURED).or_else(|| of(Batch::MEAN))
    }

    /// The estimate and the interval of a metric.
    fn look(&self, metric: Metric, margin: f64) -> Option<MetricReport> {
        match metric {
            Metric::Cpu => {
                let interval = self.cpu(margin)?;
                let [low, high] = interval.bounds().map(|bound| bound - 1.0);
                let Pair { y, x, n } = interval.sums;
                Some(MetricReport::of(x / n, y / n, interval.ratio - 1.0, low, high))
            }
            Metric::Errors => {
                let rate = |side: &Totals| side.failures as f64 / side.requests.max(1) as f64;
                let requests = self.canary.requests as f64;
                // Even no failure at all is no proof of none: as if there were two more, half a chance
                // each way (Agresti and Coull).
                let few = (self.canary.failures as f64 + 2.0) / (requests + 4.0);
                let interval = self.interval(Batch::ERRORS, 0.0, few * (1.0 - few) / requests.max(1.0), margin)?;
                let [low, high] = interval.bounds();
                Some(MetricReport::of(rate(&self.main), rate(&self.canary), interval.ratio, low, high))
            }
            Metric::Median => self.look_at_quantile(QUANTILES[0], Batch::MEDIAN, margin),
            Metric::P99 => self.look_at_quantile(QUANTILES[1], Batch::P99, margin),
        }
    }

    /// The interval of a quantile, by that of the share of requests above it.
    fn look_at_quantile(&self, quantile: f64, place: usize, margin: f64) -> Option<MetricReport> {
        let (of, all_main) = (&self.canary.latencies, &self.main.latencies);
        let main = all_main.quantile(quantile).filter(|main| main.is_exact)?.seconds;
        // Clients that leave sooner than the main version answers prove nothing.
        let canary = of.quantile(quantile).filter(|canary| canary.is_exact || canary.seconds > main)?.seconds;
        // The margin as a share of requests: those between the quantile and the margin above it.
        let beyond = all_main.share_above(main) - all_main.share_above(main * (1.0 + margin));
        let floor = quantile * (1.0 - quantile) / of.count().max(1.0);
        let width = self.interval(place, 0.0, floor, beyond.max(1e-4))?.width;
        let low = if quantile > width { of.quantile(quantile - width)?.seconds } else { 0.0 };
        let high = Some(quantile + width).filter(|share| *share < 1.0).and_then(|share| of.quantile(share));
        let high = high.filter(|high| high.is_exact).map_or(f64::INFINITY, |high| high.seconds);
        Some(MetricReport::of(main, canary, canary / main - 1.0, low / main - 1.0, high / main - 1.0))
    }

    fn interval(&self, place: usize, equal: f64, floor: f64, margin: f64) -> Option<Interval> {
        let pairs = self.batches.iter().map(|batch| batch.pairs[place]).filter(|pair| pair.x > 0.0);
        Interval::of(pairs, equal, floor, margin)
    }
}

impl Batch {
    const MEASURED: usize = 0;
    const MEAN: usize = 1;
    const ERRORS: usize = 2;
    const MEDIAN: usize = 3;
    const P99: usize = 4;
}

#[cfg(test)]
mod tests;

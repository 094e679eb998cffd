//! Hedging: a second attempt while the first is unanswered, for idempotent requests.
//!
//! Few requests exceed the delay. One that does is likely to be at a backend that is slow just now,
//! and another would answer sooner (Dean and Barroso, "The Tail at Scale", 2013). A delay at the
//! 95th percentile of latencies hedges one request in twenty, well within the retry
//! [budget](super::Budget) of a tenth. The budget limits hedges, too: when everything becomes slow
//! at once, all requests exceed the delay, and hedges would double the load. The delay follows
//! latencies within some dozens of requests, but a budget binds at once.
//!
//! Proportional steps find the quantile. Each latency above the estimate raises it by η · q, and
//! each one below lowers it by η · (1 − q). So it rests where a share q of latencies is below
//! (Robbins and Monro, 1951). Steps are on the logarithm, so no scale has to be known. It takes one
//! number and one multiplication.
//!
//! The latency of a request that its hedge overtook is unknown. But it is above the estimate, and a
//! step needs no more. Without these requests, each winning hedge would lower the estimate, and
//! hedges would multiply.

use core::time::Duration;

use super::{Budget, MaxAttempts, Repeat};
use crate::{Operation, Ratio, Timestamp};

/// Settings for the delay of a hedge.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HedgeConfig {
    /// Share of requests whose latency is below the delay.
    pub quantile: Ratio,
    /// Smallest delay.
    pub at_least: Duration,
}

impl HedgeConfig {
    /// Hedges one in twenty, half of the budget.
    pub const DEFAULT_QUANTILE: Ratio = Ratio::from_percent(95);
    /// Below a few milliseconds the scheduler is the slow part, and a hedge costs more than it
    /// gains.
    pub const DEFAULT_AT_LEAST: Duration = Duration::from_millis(5);

    /// The same with another quantile.
    #[must_use]
    pub fn quantile(mut self, quantile: Ratio) -> Self {
        self.quantile = quantile;
        self
    }

    /// The same with another smallest delay.
    #[must_use]
    pub fn at_least(mut self, delay: Duration) -> Self {
        self.at_least = delay;
        self
    }
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self { quantile: Self::DEFAULT_QUANTILE, at_least: Self::DEFAULT_AT_LEAST }
    }
}

/// Weight of one latency in the estimate: some 50 that are all above it raise it e-fold.
const STEP: f64 = 0.02;
/// Largest estimate, in seconds: many requests without an answer must not make it endless.
const MAX_DELAY_S: f64 = 3_600.0;
/// Number of latencies before the first hedge.
const MIN_LATENCIES: u32 = 20;

/// Decides when to hedge requests of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Hedge {
    config: HedgeConfig,
    /// The estimate, in seconds.
    delay: f64,
    latencies: u32,
}

/// A request that may be hedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeCandidate {
    /// Number of attempts; the last one is unanswered.
    pub number: u32,
    /// Limit of its attempts.
    pub max_attempts: MaxAttempts,
    /// Only a safe request is hedged: both attempts may be served.
    pub repeat: Repeat,
    /// End of the caller's interest in the answer.
    pub deadline: Option<Timestamp>,
    /// The request's operation.
    pub operation: Operation,
}

/// Decision on a hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Hedge at another backend. The hedge is withdrawn from the budget already.
    Hedge,
    /// Do not hedge this request.
    Wait(HedgeObstacle),
}

/// Reason against a hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeObstacle {
    /// The request must not, or cannot, be served twice.
    Unsafe,
    /// The limit of attempts was reached.
    Attempts,
    /// No answer could arrive before the deadline.
    Deadline,
    /// The budget of retries and hedges is exhausted.
    Budget,
}

impl Hedge {
    /// A hedge without latencies.
    #[must_use]
    pub const fn new(config: HedgeConfig) -> Self {
        Self { config, delay: 0.0, latencies: 0 }
    }

    /// Counts the latency of an answered attempt. Report accepted requests only: rejections are
    /// quick.
    pub fn on_latency(&mut self, latency: Duration) {
        let latency = latency.as_secs_f64();
        if self.latencies == 0 {
            self.delay = latency;
        }
        self.step(latency > self.delay);
    }

    /// Counts a request that was not answered within [`delay`](Hedge::delay) and is abandoned: its
    /// hedge was answered, or its time was up. Before there is a delay it has no effect.
    pub fn on_overtaken(&mut self) {
        if self.delay().is_some() {
            self.step(true);
        }
    }

    fn step(&mut self, is_above: bool) {
        self.latencies = self.latencies.saturating_add(1);
        if self.latencies > 1 {
            // The first few take larger steps, so that the estimate is close before it is used.
            let step = STEP.max(1.0 / f64::from(self.latencies));
            let quantile = self.config.quantile.as_f64();
            self.delay *= if is_above { 1.0 + step * quantile } else { 1.0 - step * (1.0 - quantile) };
        }
        // With a clock that stands still it would stay at zero for ever.
        self.delay = self.delay.clamp(1e-9, MAX_DELAY_S);
    }

    /// Replaces the settings and keeps the estimate.
    pub const fn set_config(&mut self, config: HedgeConfig) {
        self.config = config;
    }

    /// Time without an answer before [`ask`](Hedge::ask); `None` while too little is known.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        (self.latencies >= MIN_LATENCIES).then(|| Duration::from_secs_f64(self.delay).max(self.config.at_least))
    }

    /// Decides whether to hedge a request without an answer within [`delay`](Hedge::delay). Ask
    /// once.
    pub fn ask(&self, now: Timestamp, candidate: &HedgeCandidate, budget: &mut Budget) -> Verdict {
        if candidate.repeat != Repeat::Safe {
            return Verdict::Wait(HedgeObstacle::Unsafe);
        }
        if candidate.number >= u32::from(candidate.max_attempts.get()) {
            return Verdict::Wait(HedgeObstacle::Attempts);
        }
        // As a rule, half of all requests take less than half of the 95th percentile. Less time
        // than that is not worth an attempt.
        let takes = Duration::from_secs_f64(self.delay / 2.0);
        if candidate.deadline.is_some_and(|deadline| now + takes >= deadline) {
            return Verdict::Wait(HedgeObstacle::Deadline);
        }
        if budget.take(now, candidate.operation) { Verdict::Hedge } else { Verdict::Wait(HedgeObstacle::Budget) }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::retry::BudgetConfig;
    use crate::rng;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    /// Seed 5, uniform latencies from 0 to 100 ms. With steps of 2% the estimate of a quantile at
    /// 95 ms has a standard deviation of about √(η q (1 − q) · x / 2f), 2.1 ms; four of these.
    #[test]
    fn delay_is_the_quantile_of_latencies() {
        let (mut hedge, mut rng) = (Hedge::new(HedgeConfig::default()), Pcg64Mcg::seed_from_u64(5));
        let mut draw = |scale: f64| Duration::from_secs_f64(rng::unit(&mut rng) * scale);
        for n in 0..5_000 {
            assert_eq!(hedge.delay().is_some(), n >= MIN_LATENCIES, "{n}");
            hedge.on_latency(draw(0.1));
        }
        let delay = hedge.delay().map(|delay| delay.as_secs_f64()).unwrap_or_default();
        assert!((delay - 0.095).abs() < 0.0085, "{delay}");
        // It follows a cluster that becomes ten times slower.
        (0..300).for_each(|_| hedge.on_latency(draw(1.0)));
        let delay = hedge.delay().map(|delay| delay.as_secs_f64()).unwrap_or_default();
        assert!((0.75..1.05).contains(&delay), "{delay}");
    }

    /// As above, but latencies above the delay are overtaken and never seen.
    #[test]
    fn overtaken_requests_do_not_lower_the_delay() {
        let (mut hedge, mut rng) = (Hedge::new(HedgeConfig::default()), Pcg64Mcg::seed_from_u64(5));
        for _ in 0..5_000 {
            let latency = Duration::from_secs_f64(rng::unit(&mut rng) * 0.1);
            match hedge.delay() {
                Some(delay) if latency > delay => hedge.on_overtaken(),
                _ => hedge.on_latency(latency),
            }
        }
        let delay = hedge.delay().map(|delay| delay.as_secs_f64()).unwrap_or_default();
        assert!((delay - 0.095).abs() < 0.0085, "{delay}");
    }

    #[test]
    fn overtaken_requests_have_no_effect_before_answers() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_overtaken());
        (0..20).for_each(|_| hedge.on_latency(Duration::from_millis(50)));
        assert!(hedge.delay().is_some_and(|delay| delay > Duration::from_millis(40)), "{hedge:?}");
    }

    #[test]
    fn changed_quantile_keeps_the_estimate() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(20)));
        let before = hedge.delay();
        hedge.set_config(HedgeConfig::default().quantile(Ratio::from_percent(50)));
        assert_eq!(hedge.delay(), before);
        assert!(before.is_some());
    }

    #[test]
    fn request_is_hedged_only_if_safe_in_time_and_in_budget() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(20)));
        let mut budget = Budget::new(ms(0), BudgetConfig { share: Ratio::ZERO, floor: 1 });
        let candidate = HedgeCandidate {
            number: 1,
            max_attempts: MaxAttempts::DEFAULT,
            repeat: Repeat::Safe,
            deadline: Some(ms(100)),
            operation: Operation::UNKNOWN,
        };
        for (candidate, expected) in [
            (HedgeCandidate { repeat: Repeat::Unsafe, ..candidate }, Verdict::Wait(HedgeObstacle::Unsafe)),
            (HedgeCandidate { number: 3, ..candidate }, Verdict::Wait(HedgeObstacle::Attempts)),
            (HedgeCandidate { deadline: Some(ms(58)), ..candidate }, Verdict::Wait(HedgeObstacle::Deadline)),
            (candidate, Verdict::Hedge),
            (candidate, Verdict::Wait(HedgeObstacle::Budget)),
        ] {
            assert_eq!(hedge.ask(ms(50), &candidate, &mut budget), expected, "{candidate:?}");
        }
    }

    #[test]
    fn delay_is_bounded_in_an_endless_outage() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(10)));
        (0..10_000).for_each(|_| hedge.on_overtaken());
        assert_eq!(hedge.delay(), Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn delay_is_raised_to_its_minimum() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::ZERO));
        assert_eq!(hedge.delay(), Some(HedgeConfig::DEFAULT_AT_LEAST));
    }

    #[test]
    fn first_latency_is_the_first_estimate() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        hedge.on_latency(Duration::from_millis(100));
        assert_eq!(hedge.delay, 0.1);
    }

    /// Latencies are spread evenly over 1 to 100 ms.
    #[test]
    fn delay_moves_to_another_quantile_when_that_is_set() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        let mut settle = |percent| {
            hedge.set_config(HedgeConfig::default().quantile(Ratio::from_percent(percent)));
            (0..1_000).for_each(|n| hedge.on_latency(Duration::from_millis(n * 37 % 100 + 1)));
            hedge.delay().map(|delay| delay.as_millis()).unwrap_or_default()
        };
        assert!((90..100).contains(&settle(95)), "{} ms", settle(95));
        assert!((45..56).contains(&settle(50)), "{} ms", settle(50));
        assert!((20..31).contains(&settle(25)), "{} ms", settle(25));
    }

    #[test]
    fn request_is_hedged_if_half_of_the_delay_is_left() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(20)));
        let half = Duration::from_secs_f64(hedge.delay / 2.0);
        let candidate = |left| HedgeCandidate {
            number: 1,
            max_attempts: MaxAttempts::DEFAULT,
            repeat: Repeat::Safe,
            deadline: Some(ms(50) + left),
            operation: Operation::UNKNOWN,
        };
        let mut budget = Budget::new(ms(0), BudgetConfig::default());
        assert_eq!(hedge.ask(ms(50), &candidate(half), &mut budget), Verdict::Wait(HedgeObstacle::Deadline));
        assert_eq!(hedge.ask(ms(50), &candidate(half + Duration::from_nanos(1)), &mut budget), Verdict::Hedge);
    }
}

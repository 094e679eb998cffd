//! Hedging: a second attempt while the first is still out, for idempotent requests (Dean and Barroso, "The Tail at Scale", 2013).
//!
//! After a delay that few requests exceed, one that is not answered is likely to be at a backend that is slow just now, and another would
//! answer it sooner. A delay of the 95th percentile of latencies hedges one in twenty, which is well within the retry
//! [budget](super::Budget) of a tenth, and it is behind that budget: when everything gets slow at once, the delay is exceeded by
//! all, and hedges would double the load. The delay follows the latencies within some dozens of requests, but a budget binds at once.
//!
//! The quantile is found by steps in proportion: each latency above the estimate raises it by η · q, each one below lowers it by
//! η · (1 − q), so that it rests where a share q is below (Robbins and Monro, 1951; on the logarithm, so no scale has to be
//! known). One number, one multiplication.
//!
//! Of a request that its hedge overtook the latency is not known, but that it is above the estimate is, and that is all that a step asks.
//! Were such requests left out, the estimate would sink with each hedge that wins, and more and more would be sent.

use core::time::Duration;

use super::{Budget, MaxAttempts, Repeat};
use crate::{Operation, Ratio, Timestamp};

/// When a request is hedged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeConfig {
    /// The delay is the latency that this share of requests stays below.
    pub quantile: Ratio,
    /// The delay is at least this.
    pub at_least: Duration,
}

impl HedgeConfig {
    /// One in twenty is hedged, half of what the budget allows.
    pub const DEFAULT_QUANTILE: Ratio = Ratio::from_percent(95);
    /// Below a few milliseconds it is the scheduler that is slow, and a hedge costs more than it gains.
    pub const DEFAULT_AT_LEAST: Duration = Duration::from_millis(5);
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self { quantile: Self::DEFAULT_QUANTILE, at_least: Self::DEFAULT_AT_LEAST }
    }
}

/// How far one latency moves the estimate: e-fold in some 50 that are all above it.
const STEP: f64 = 0.02;
/// The estimate is this many seconds at most: many that are not answered for a long time must not make it a time that ends never.
const LONGEST: f64 = 3_600.0;
/// Before so many were seen nothing is hedged.
const ENOUGH: u32 = 20;

/// When requests of a cluster are hedged.
#[derive(Clone, Copy, Debug)]
pub struct Hedge {
    config: HedgeConfig,
    /// Seconds; the estimate.
    delay: f64,
    seen: u32,
}

/// What is known of a request that could be hedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Attempts so far; the one that is out is the last.
    pub number: u32,
    /// How many it may have.
    pub max_attempts: MaxAttempts,
    /// Only what is safe is hedged: both attempts may be served.
    pub repeat: Repeat,
    /// After this nobody wants the answer.
    pub deadline: Option<Timestamp>,
    /// The operation it asks for.
    pub operation: Operation,
}

/// Whether a second attempt is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is, to another backend; it was taken from the budget.
    Hedge,
    /// It is not, nor will it be.
    Wait(Why),
}

/// Why no second attempt is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It must not, or cannot, be served twice.
    Unsafe,
    /// It had as many attempts as it may have.
    Attempts,
    /// It could not be answered before its deadline.
    Deadline,
    /// The client has sent as many retries and hedges as it can afford.
    Budget,
}

impl Hedge {
    /// One that has seen nothing yet.
    #[must_use]
    pub const fn new(config: HedgeConfig) -> Self {
        Self { config, delay: 0.0, seen: 0 }
    }

    /// A request was answered, so long after its attempt was sent. Tell it of accepted requests only: rejections are quick.
    pub fn on_latency(&mut self, latency: Duration) {
        let latency = latency.as_secs_f64();
        if self.seen == 0 {
            self.delay = latency;
        }
        self.step(latency > self.delay);
    }

    /// A request was not answered within [`delay`](Hedge::delay), and is not waited for any longer: its hedge was answered, or its time is
    /// up. While too little is known for a delay this says nothing.
    pub fn on_overtaken(&mut self) {
        if self.delay().is_some() {
            self.step(true);
        }
    }

    fn step(&mut self, is_above: bool) {
        self.seen = self.seen.saturating_add(1);
        if self.seen > 1 {
            // The first few take greater steps, to be near by the time that it counts.
            let step = STEP.max(1.0 / f64::from(self.seen));
            let quantile = self.config.quantile.as_f64();
            self.delay *= if is_above { 1.0 + step * quantile } else { 1.0 - step * (1.0 - quantile) };
        }
        // A clock that stands would have it stay at nothing for ever.
        self.delay = self.delay.clamp(1e-9, LONGEST);
    }

    /// Goes by `config` from now on, from where it is.
    pub const fn set_config(&mut self, config: HedgeConfig) {
        self.config = config;
    }

    /// After which time without an answer to [`ask`](Hedge::ask); `None` while too little is known.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        (self.seen >= ENOUGH).then(|| Duration::from_secs_f64(self.delay).max(self.config.at_least))
    }

    /// Whether a request that was not answered within [`delay`](Hedge::delay) is sent a second time. Ask once.
    pub fn ask(&self, now: Timestamp, waiting: &Waiting, budget: &mut Budget) -> Verdict {
        if waiting.repeat != Repeat::Safe {
            return Verdict::Wait(Why::Unsafe);
        }
        if waiting.number >= u32::from(waiting.max_attempts.get()) {
            return Verdict::Wait(Why::Attempts);
        }
        // Half of requests take less than half of what 95% stay below, as a rule: less than that is not worth a try.
        let takes = Duration::from_secs_f64(self.delay / 2.0);
        if waiting.deadline.is_some_and(|deadline| now + takes >= deadline) {
            return Verdict::Wait(Why::Deadline);
        }
        if budget.take(now, waiting.operation) { Verdict::Hedge } else { Verdict::Wait(Why::Budget) }
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

    /// Seed 5, uniform latencies from 0 to 100 ms. With steps of 2% the estimate of a quantile at 95 ms has a standard deviation of
    /// about √(η q (1 − q) · x / 2f), 2.1 ms; four of these.
    #[test]
    fn the_delay_is_what_so_many_stay_below() {
        let (mut hedge, mut rng) = (Hedge::new(HedgeConfig::default()), Pcg64Mcg::seed_from_u64(5));
        let mut draw = |scale: f64| Duration::from_secs_f64(rng::unit(&mut rng) * scale);
        for n in 0..5_000 {
            assert_eq!(hedge.delay().is_some(), n >= ENOUGH, "{n}");
            hedge.on_latency(draw(0.1));
        }
        let delay = hedge.delay().map(|delay| delay.as_secs_f64()).unwrap_or_default();
        assert!((delay - 0.095).abs() < 0.0085, "{delay}");
        // It follows a cluster that gets ten times slower.
        (0..300).for_each(|_| hedge.on_latency(draw(1.0)));
        let delay = hedge.delay().map(|delay| delay.as_secs_f64()).unwrap_or_default();
        assert!((0.75..1.05).contains(&delay), "{delay}");
    }

    /// As above, but all that take longer than the delay are overtaken, so that their latencies are never seen.
    #[test]
    fn what_is_overtaken_does_not_make_answers_look_quick() {
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
    fn before_answers_are_known_none_was_overtaken() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_overtaken());
        (0..20).for_each(|_| hedge.on_latency(Duration::from_millis(50)));
        assert!(hedge.delay().is_some_and(|delay| delay > Duration::from_millis(40)), "{hedge:?}");
    }

    #[test]
    fn another_quantile_is_found_from_where_it_is() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(20)));
        let before = hedge.delay();
        hedge.set_config(HedgeConfig { quantile: Ratio::from_percent(50), ..HedgeConfig::default() });
        assert_eq!(hedge.delay(), before);
        assert!(before.is_some());
    }

    #[test]
    fn only_what_is_safe_in_time_and_affordable_is_hedged() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(20)));
        let mut budget = Budget::new(ms(0), BudgetConfig { share: Ratio::ZERO, floor: 1 });
        let waiting = Waiting {
            number: 1,
            max_attempts: MaxAttempts::DEFAULT,
            repeat: Repeat::Safe,
            deadline: Some(ms(100)),
            operation: Operation::UNKNOWN,
        };
        for (waiting, expected) in [
            (Waiting { repeat: Repeat::Unsafe, ..waiting }, Verdict::Wait(Why::Unsafe)),
            (Waiting { number: 3, ..waiting }, Verdict::Wait(Why::Attempts)),
            (Waiting { deadline: Some(ms(58)), ..waiting }, Verdict::Wait(Why::Deadline)),
            (waiting, Verdict::Hedge),
            (waiting, Verdict::Wait(Why::Budget)),
        ] {
            assert_eq!(hedge.ask(ms(50), &waiting, &mut budget), expected, "{waiting:?}");
        }
    }

    #[test]
    fn an_outage_without_end_leaves_a_delay_that_can_be_waited_for() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        (0..100).for_each(|_| hedge.on_latency(Duration::from_millis(10)));
        (0..10_000).for_each(|_| hedge.on_overtaken());
        assert_eq!(hedge.delay(), Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn very_short_delays_are_raised() {
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
            hedge.set_config(HedgeConfig { quantile: Ratio::from_percent(percent), ..HedgeConfig::default() });
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
        let waiting = |left| Waiting {
            number: 1,
            max_attempts: MaxAttempts::DEFAULT,
            repeat: Repeat::Safe,
            deadline: Some(ms(50) + left),
            operation: Operation::UNKNOWN,
        };
        let mut budget = Budget::new(ms(0), BudgetConfig::default());
        assert_eq!(hedge.ask(ms(50), &waiting(half), &mut budget), Verdict::Wait(Why::Deadline));
        assert_eq!(hedge.ask(ms(50), &waiting(half + Duration::from_nanos(1)), &mut budget), Verdict::Hedge);
    }
}

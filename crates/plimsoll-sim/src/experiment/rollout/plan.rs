//! The plan of a rollout: the requests, and the canaries compared.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;

/// A service, and the canaries beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Requests per second of both sides together.
    pub rate: f64,
    /// The canary's share of the requests.
    pub share: Ratio,
    /// The share of requests that fail on the main version.
    pub errors: Ratio,
    /// The cost of the most expensive request over that of the cheapest one.
    pub cost_ratio: f64,
    /// Mean latency beside a tenth of it, which each request has.
    pub latency: Duration,
    /// Latency is this many times higher and lower at the extremes of an hour.
    pub swing: f64,
    /// Latency and cost of a side in a twentieth of the time, over those at other times.
    pub disturbance: f64,
    /// Requests of a rollout without a verdict.
    pub max_requests: NonZeroU32,
    /// The canaries; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// A service with some backends.
    pub const DEFAULT_RATE: f64 = 2000.0;
    /// Enough for an answer within minutes.
    pub const DEFAULT_SHARE: Ratio = Ratio::from_percent(10);
    /// The greatest ratio that capacity must be measured at, not requests.
    pub const DEFAULT_COST_RATIO: f64 = 1000.0;
    /// A page of a web service.
    pub const DEFAULT_LATENCY: Duration = Duration::from_millis(20);
    /// Night and day.
    pub const DEFAULT_SWING: f64 = 2.0;
    /// A collection of garbage.
    pub const DEFAULT_DISTURBANCE: f64 = 1.2;
    /// More than most verdicts need.
    pub const DEFAULT_MAX_REQUESTS: NonZeroU32 = NonZeroU32::new(2_000_000).expect("not zero");
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rate: Self::DEFAULT_RATE,
            share: Self::DEFAULT_SHARE,
            errors: Ratio::new(0.005).expect("a share"),
            cost_ratio: Self::DEFAULT_COST_RATIO,
            latency: Self::DEFAULT_LATENCY,
            swing: Self::DEFAULT_SWING,
            disturbance: Self::DEFAULT_DISTURBANCE,
            max_requests: Self::DEFAULT_MAX_REQUESTS,
            arms: Vec::new(),
        }
    }
}

/// One canary, over the main version.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Names it in metrics; no dots.
    pub name: String,
    /// CPU per request.
    pub cpu: f64,
    /// More requests that fail, as a share of all.
    pub more_errors: Ratio,
    /// Latency.
    pub latency: f64,
    /// Length of each disturbance of one side, in whole seconds.
    pub disturbed_for: Duration,
    /// The right verdict.
    pub expects: Expected,
}

impl Arm {
    /// A collection of garbage.
    pub const DEFAULT_DISTURBED_FOR: Duration = Duration::from_secs(1);
}

impl Default for Arm {
    fn default() -> Self {
        Self {
            name: String::new(),
            cpu: 1.0,
            more_errors: Ratio::ZERO,
            latency: 1.0,
            disturbed_for: Self::DEFAULT_DISTURBED_FOR,
            expects: Expected::NoDifference,
        }
    }
}

/// A verdict on a canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Equal in all metrics.
    #[default]
    NoDifference,
    /// Neither worse nor better; more requests may be needed.
    NoAlarm,
    /// Better in one, and worse in none.
    Better,
    /// More CPU per request, and no more errors.
    WorseCpu,
    /// More errors, and no more CPU per request.
    WorseErrors,
    /// Slower, and neither more errors nor more CPU.
    WorseLatency,
}

impl Expected {
    /// All, by their names in files.
    pub const ALL: [(&'static str, Self); 6] = [
        ("no-difference", Self::NoDifference),
        ("no-alarm", Self::NoAlarm),
        ("better", Self::Better),
        ("worse-cpu", Self::WorseCpu),
        ("worse-errors", Self::WorseErrors),
        ("worse-latency", Self::WorseLatency),
    ];
}

//! Rollouts: a canary beside the main version, and the verdict of the shipped comparison.
//!
//! One run is one rollout for each arm. Requests arrive at a constant rate, and each is one fact for
//! [`Comparison`]; the shipped [`split`](plimsoll_core::split) selects its side. There are no queues
//! and no backends: the question is what a comparison learns from noisy requests. The cost of a
//! request is spread evenly over the decades between the cheapest and the most expensive one, and
//! its latency is exponential, with a swing over the day. In a twentieth of the time one side alone is
//! slower and more expensive: for a second at once, as during a collection of garbage, or for
//! longer, as with a cold cache. Metrics of each arm:
//!
//! | metric | meaning |
//! |---|---|
//! | `NAME.right_share` | 1 if the verdict is the expected one, by the expected metric; 0 else |
//! | `NAME.requests` | requests of both sides until the verdict; the limit, without one |
//! | `NAME.cpu_difference`, `.errors_difference`, `.latency_difference` | estimates; of the latency
//! the median |
//!
//! An arm ends with its first verdict.

mod figures;
pub mod plan;

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::canary::{Comparison, Cost, Finding, FinishedRequest, Margins, Report, RequestEnd, Side, Verdict};
use plimsoll_core::split::{Split, turn};
use rand_pcg::Pcg64Mcg;

pub use plan::Plan;
use plan::{Arm, Expected};

use super::run_arms;
use crate::findings::Findings;
use crate::kernel::streams::{Streams, unit};

/// Part of the time in which one side is disturbed.
const DISTURBED: f64 = 0.05;
/// Period of the swing of latency: a day would be longer than a rollout.
const SWING_PERIOD: f64 = 3600.0;
/// Latency beside the exponential part, over its mean.
const LEAST_LATENCY: f64 = 0.1;
/// Requests between two reports of progress.
const PROGRESS: u64 = 1 << 16;

/// The metrics of one arm.
const METRICS: [&str; 5] = ["right_share", "requests", "cpu_difference", "errors_difference", "latency_difference"];

/// The names of the metrics of a run.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    plan.arms.iter().flat_map(|arm| METRICS.map(|metric| format!("{}.{metric}", arm.name))).collect()
}

/// What became of one rollout.
struct Measured<'p> {
    arm: &'p Arm,
    requests: u64,
    report: Report,
}

/// Runs all arms of a plan, one after the other. `progress` gets the part that is done, now and
/// then.
#[must_use]
pub fn run(plan: &Plan, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
    let measured = run_arms(plan.arms.iter(), progress, |arm, progress| Rollout::new(plan, arm, seed).run(progress));
    let mut findings = Findings::default();
    for Measured { arm, requests, report } in &measured {
        let [cpu, errors, median, _] = report.metrics;
        let values = [
            f64::from(u8::from(arm.expects.is_met_by(report))),
            *requests as f64,
            cpu.difference,
            errors.difference,
            median.difference,
        ];
        for (metric, value) in METRICS.into_iter().zip(values).filter(|(_, value)| value.is_finite()) {
            findings.metric(format!("{}.{metric}", arm.name), value);
        }
    }
    findings.figures = vec![figures::requests(&measured), figures::cpu(&measured)];
    findings
}

impl Expected {
    /// Whether a verdict is this one. A worse canary has to be worse in the right metric.
    fn is_met_by(self, report: &Report) -> bool {
        let is_worse = |i: usize| report.metrics[i].finding == Finding::Worse;
        match self {
            Self::NoDifference => report.verdict == Verdict::NoDifference,
            Self::Better => report.verdict == Verdict::Better,
            Self::NoAlarm => matches!(report.verdict, Verdict::NoDifference | Verdict::Undecided),
            Self::WorseCpu => is_worse(0) && !is_worse(1),
            Self::WorseErrors => is_worse(1) && !is_worse(0),
            Self::WorseLatency => (is_worse(2) || is_worse(3)) && !is_worse(0) && !is_worse(1),
        }
    }
}

/// One rollout in progress.
struct Rollout<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    split: Split,
    comparison: Comparison,
    rng: Pcg64Mcg,
    /// Draws of the seconds in which a side is disturbed.
    disturbances: Pcg64Mcg,
    /// Seconds that the current disturbances of the main version and of the canary still last.
    disturbed: [u64; 2],
    second: u64,
}

impl<'p> Rollout<'p> {
    fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let share = plan.share.as_f64();
        // All arms meet the same draws.
        let streams = Streams::new(seed);
        Self {
            plan,
            arm,
            split: Split::new(&[1.0 - share, share]).expect("a share of the whole"),
            comparison: Comparison::new(Timestamp::ZERO, Margins::default()),
            rng: streams.stream("requests", 0),
            disturbances: streams.stream("disturbances", 0),
            disturbed: [0; 2],
            second: 0,
        }
    }

    fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        let most = u64::from(self.plan.max_requests.get());
        for number in 0..most {
            if self.request(number) {
                return self.measured(number + 1);
            }
            if number % PROGRESS == 0 {
                progress(number as f64 / most as f64);
            }
        }
        self.measured(most)
    }

    fn measured(self, requests: u64) -> Measured<'p> {
        Measured { arm: self.arm, requests, report: self.comparison.report() }
    }

    /// Serves request `number`. Returns whether there is a verdict.
    fn request(&mut self, number: u64) -> bool {
        let seconds = number as f64 / self.plan.rate;
        if seconds as u64 > self.second {
            self.second = seconds as u64;
            self.disturb();
        }
        let place = self.split.side(turn(number));
        let (side, arm) = (if place == 0 { Side::Main } else { Side::Canary }, self.arm);
        let (cpu, errors, latency) =
            if place == 0 { (1.0, 0.0, 1.0) } else { (arm.cpu, arm.more_errors.as_f64(), arm.latency) };
        let plan = self.plan;
        let disturbed = if self.disturbed[place] > 0 { plan.disturbance } else { 1.0 };
        // The unit does not count: the cheapest request costs a tenth of a millisecond.
        let cost = 1e-4 * plan.cost_ratio.powf(unit(&mut self.rng)) * cpu * disturbed;
        let swing = plan.swing.powf((seconds * std::f64::consts::TAU / SWING_PERIOD).sin());
        let wait = LEAST_LATENCY - (1.0 - unit(&mut self.rng)).ln();
        let is_failure = unit(&mut self.rng) < plan.errors.as_f64() + errors;
        let request = FinishedRequest {
            end: if is_failure { RequestEnd::Failed } else { RequestEnd::Answered },
            latency: Duration::from_secs_f64(plan.latency.as_secs_f64() * wait * latency * swing * disturbed),
            cost: Some(Cost::Measured(cost)),
        };
        self.comparison.record(Timestamp::from_nanos((seconds * 1e9) as u64), side, &request).is_some()
    }

    /// Draws the disturbances of the next second.
    fn disturb(&mut self) {
        let length = self.arm.disturbed_for.as_secs().max(1);
        for left in &mut self.disturbed {
            let begins = *left == 0 && unit(&mut self.disturbances) < DISTURBED / length as f64;
            *left = if begins { length } else { left.saturating_sub(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(cpu: f64, expects: Expected) -> Plan {
        Plan { arms: vec![Arm { name: "a".to_owned(), cpu, expects, ..Arm::default() }], ..Plan::default() }
    }

    #[test]
    fn metric_names_lists_exactly_the_metrics_of_a_run() {
        let plan = plan(1.5, Expected::WorseCpu);
        let found: Vec<String> = run(&plan, 1, &mut |_| ()).metrics.into_keys().collect();
        let mut announced = metric_names(&plan);
        announced.sort_unstable();
        assert_eq!(found, announced);
    }

    #[test]
    fn wrong_verdict_is_not_right() {
        for (expects, right) in [(Expected::WorseCpu, 1.0), (Expected::WorseErrors, 0.0), (Expected::NoDifference, 0.0)]
        {
            let findings = run(&plan(1.5, expects), 1, &mut |_| ());
            assert_eq!(findings.metrics["a.right_share"], right, "{expects:?}");
            assert!((findings.metrics["a.cpu_difference"] - 0.5).abs() < 0.25);
        }
    }
}

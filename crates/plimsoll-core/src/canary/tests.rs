use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;

extern crate std;

/// A service under a rollout; factors are those of the canary over the main version.
#[derive(Clone, Copy)]
struct Rollout {
    seed: u64,
    /// The canary's part of the requests.
    share: f64,
    /// Requests per second, all together.
    rate: f64,
    cpu: f64,
    more_errors: f64,
    latency: f64,
    /// Latency swings by this factor within an hour, on both sides.
    swing: f64,
    /// In a twentieth of the time, one side alone is this much slower and costs this much more.
    bursts: f64,
    /// Seconds of each such time.
    burst_seconds: u64,
    /// The canary's requests that get no response; their clients leave after a second.
    hangs: f64,
    has_reports: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            seed: 1,
            share: 0.1,
            rate: 2_000.0,
            cpu: 1.0,
            more_errors: 0.0,
            latency: 1.0,
            swing: 1.0,
            bursts: 1.0,
            burst_seconds: 1,
            hangs: 0.0,
            has_reports: true,
        }
    }
}

/// The error rate of the main version.
const ERRORS: f64 = 0.005;

fn unit(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Rollout {
    /// Feeds requests until there is a verdict, `most` at the most. Returns the number.
    fn run(self, most: u64) -> (Comparison, u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
        let (mut bursts, mut second) = ([0_u64; 2], 0);
        for number in 0..most {
            let seconds = number as f64 / self.rate;
            if seconds as u64 > second {
                second = seconds as u64;
                for left in &mut bursts {
                    let begins = *left == 0 && unit(&mut rng) < 0.05 / self.burst_seconds as f64;
                    *left = if begins { self.burst_seconds } else { left.saturating_sub(1) };
                }
            }
            let is_canary = unit(&mut rng) < self.share;
            let (cpu, latency) = if is_canary { (self.cpu, self.latency) } else { (1.0, 1.0) };
            let burst = if bursts[usize::from(is_canary)] > 0 { self.bursts } else { 1.0 };
            let errors = ERRORS + if is_canary { self.more_errors } else { 0.0 };
            // A thousand times between the cheapest and the most expensive.
            let cost = std::primitive::f64::powf(1000.0, unit(&mut rng)) * 1e-5 * cpu * burst;
            let swing = std::primitive::f64::powf(self.swing, std::primitive::f64::sin(seconds / 600.0));
            let wait = -std::primitive::f64::ln(1.0 - unit(&mut rng)) * 0.02 * latency * swing * burst;
            let end = if unit(&mut rng) < errors { RequestEnd::Failed } else { RequestEnd::Answered };
            let latency = Duration::from_secs_f64(wait + 0.002);
            let request = if is_canary && unit(&mut rng) < self.hangs {
                FinishedRequest { end: RequestEnd::Abandoned, latency: Duration::from_secs(1), cost: None }
            } else {
                FinishedRequest { end, latency, cost: self.has_reports.then_some(Cost::Measured(cost)) }
            };
            let side = if is_canary { Side::Canary } else { Side::Main };
            let now = Timestamp::from_nanos((seconds * 1e9) as u64);
            if comparison.record(now, side, &request).is_some() {
                return (comparison, number + 1);
            }
        }
        (comparison, most)
    }

    fn verdicts(self, seeds: core::ops::Range<u64>, most: u64) -> [usize; 4] {
        let mut found = [0; 4];
        for seed in seeds {
            let verdict = Self { seed, ..self }.run(most).0.report().verdict;
            found[Verdict::ALL.iter().position(|known| *known == verdict).unwrap()] += 1;
        }
        found
    }
}

/// The squared coefficient of variation of costs evenly spread over three decades:
/// (10⁶ − 1)·ln 1000 ÷ (2·999²) − 1.
const COST_VARIANCE: f64 = 2.46;

/// Requests of both sides that are enough for each metric, the largest.
fn bound(share: f64) -> u64 {
    let margins = Margins::default();
    // Latencies of 2 ms and exponential 20 ms: q ÷ 20 ms is 0.79 and 4.7; q·f(q) 0.40 and 0.047.
    let quantile = |p: f64, density: f64| p * (1.0 - p) / (density * density);
    let each = [
        (COST_VARIANCE, margins.cpu),
        (ERRORS * (1.0 - ERRORS), margins.errors),
        (quantile(0.5, 0.40), margins.latency),
        (quantile(0.99, 0.047), margins.latency),
    ];
    let of_canary = each.map(|(variance, margin)| requests_until_verdict(variance, margin, share));
    (of_canary.into_iter().fold(0.0, f64::max) / share) as u64
}

#[test]
fn equal_versions_are_found_equal_within_the_stated_requests() {
    let found = Rollout::default().verdicts(1..21, bound(0.1));
    assert!(found[1] >= 19 && found[3] == 0, "{found:?} within {}", bound(0.1));
}

#[test]
fn ten_percent_more_cpu_is_found_worse() {
    let rollout = Rollout { cpu: 1.1, ..Rollout::default() };
    assert_eq!(rollout.verdicts(1..21, bound(0.1)), [0, 0, 0, 20]);
    let (comparison, _) = rollout.run(bound(0.1));
    let [cpu, errors, ..] = comparison.report().metrics;
    assert_eq!((cpu.finding, errors.finding == Finding::Worse), (Finding::Worse, false));
    assert!(cpu.low < 0.1 && 0.1 < cpu.high && (cpu.main / 1.446e-3 - 1.0).abs() < 0.05, "{cpu:?}");
}

#[test]
fn one_point_more_errors_is_found_worse() {
    let rollout = Rollout { more_errors: 0.01, ..Rollout::default() };
    assert_eq!(rollout.verdicts(1..21, bound(0.1)), [0, 0, 0, 20]);
    let report = rollout.run(bound(0.1)).0.report();
    assert_eq!(report.metrics[1].finding, Finding::Worse);
    assert!(report.metrics[1].low < 0.01 && report.metrics[1].high > 0.01, "{report:?}");
}

#[test]
fn slower_and_better_versions_are_found() {
    let slower = Rollout { latency: 1.25, ..Rollout::default() };
    assert_eq!(slower.verdicts(1..6, bound(0.1)), [0, 0, 0, 5]);
    let cheaper = Rollout { cpu: 0.85, ..Rollout::default() };
    assert_eq!(cheaper.verdicts(1..6, bound(0.1)), [0, 0, 5, 0]);
}

#[test]
fn false_alarms_are_rare_when_looking_all_the_time() {
    // With a swing over the day and bursts of one side. Two and a half percent may be wrong: more
    // than 9 of 150 have a probability below 1 in 100.
    let rollout = Rollout { share: 0.3, swing: 3.0, bursts: 4.0, rate: 300.0, ..Rollout::default() };
    let found = rollout.verdicts(1..151, 60_000);
    assert!(found[3] + found[2] <= 9, "{found:?}");
}

#[test]
fn without_load_reports_the_other_metrics_decide() {
    let rollout = Rollout { has_reports: false, ..Rollout::default() };
    let (comparison, _) = rollout.run(bound(0.1));
    let report = comparison.report();
    assert_eq!((report.verdict, report.metrics[0].finding), (Verdict::NoDifference, Finding::Unmeasured));
    assert!(!report.metrics[0].is_known());
}

fn record(comparison: &mut Comparison, ms: u64, side: Side, request: FinishedRequest) -> Option<Verdict> {
    comparison.record(Timestamp::from_origin(Duration::from_millis(ms)), side, &request)
}

const QUICK: FinishedRequest =
    FinishedRequest { end: RequestEnd::Answered, latency: Duration::from_millis(5), cost: None };

#[test]
fn no_failure_at_all_is_no_proof_when_requests_are_few() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    // 130 slots of 32 requests of the canary: up to 4.9 in 4,160 may fail.
    for second in 0..130 {
        for i in 0..320 {
            let side = if i % 10 == 0 { Side::Canary } else { Side::Main };
            record(&mut comparison, second * 1000 + i * 3, side, QUICK);
        }
    }
    let errors = comparison.report().metrics[1];
    assert!(errors.high > 0.0012, "{errors:?}");
}

#[test]
fn needed_requests_come_near_the_true_number() {
    let mut estimates: Vec<f64> = Vec::new();
    for seed in 1..12 {
        let rollout = Rollout { seed, has_reports: false, rate: 300.0, ..Rollout::default() };
        let (_, at) = rollout.run(u64::MAX);
        let (early, _) = rollout.run(at / 2);
        let report = early.report();
        estimates.push((report.requests[1] + report.needed.unwrap()) as f64 / (at as f64 * 0.1));
        assert_eq!(rollout.run(at).0.report().reached_at, Some(at));
    }
    estimates.sort_by(f64::total_cmp);
    // Half of the requests are seen, so none needed at all would be 0.5.
    assert!((0.8..1.8).contains(&estimates[5]), "{estimates:?}");
}

#[test]
fn batches_are_bounded_when_a_comparison_goes_on() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    for second in 0..1000 {
        for i in 0..64 {
            let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
            record(&mut comparison, second * 1001 + i * 15, side, QUICK);
        }
    }
    assert!(comparison.batches.len() <= MAX_BATCHES && comparison.batches.capacity() == MAX_BATCHES);
    // No slot is lost by a merger.
    let requests: f64 = comparison.batches.iter().map(|batch| batch.pairs[Batch::ERRORS].x).sum();
    assert!(requests >= 0.9 * 32_000.0, "{requests}");
}

#[test]
fn finding_stays_until_another_one_replaces_it() {
    let unsure = MetricReport::of(1.0, 1.0, 0.03, -0.05, 0.2);
    assert_eq!(unsure.judged(0.1, Finding::Worse, 100, 0).finding, Finding::Worse);
    let equal = MetricReport::of(1.0, 1.0, 0.0, -0.05, 0.05);
    assert_eq!(equal.judged(0.1, Finding::Worse, 100, 0).finding, Finding::NoDifference);
    let undecided = unsure.judged(0.1, Finding::Undecided { needed: 0 }, 100, 0).finding;
    // Halves of 0.08 and 0.17: a width of 0.117. With the difference of 0.03, 1.47² times as many.
    assert_eq!(undecided, Finding::Undecided { needed: 114 });
    let early = equal.judged(0.1, Finding::Undecided { needed: 0 }, 100, 700).finding;
    assert_eq!(early, Finding::Undecided { needed: 700 }, "no finding before the least time");
}

#[test]
fn wild_costs_are_limited_and_junk_is_ignored() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    for second in 0..130 {
        for i in 0..200 {
            let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
            let cost = match (second, i) {
                // The main version's, in the slot that sets the scale, in the first one that counts,
                // and later; then the canary's.
                (0, 1) | (1, 1) | (5, 1) => 1e9,
                (7, 0) => 1e9,
                (6, 0) => f64::NAN,
                (6, 2) => -1.0,
                _ => 0.001 * (1.0 + f64::from(i as u32 % 20) / 10.0),
            };
            let request = FinishedRequest { cost: Some(Cost::Mean(cost)), ..QUICK };
            record(&mut comparison, second * 1000 + i * 5, side, request);
        }
    }
    let cpu = comparison.report().metrics[0];
    assert!(cpu.difference.abs() < 0.1 && cpu.main < 0.003, "{cpu:?}");
}

#[test]
fn costs_that_begin_late_have_their_scale_first() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    for second in 0..200 {
        for i in 0..100 {
            let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
            let cost = if (second, i) == (50, 1) { 1e12 } else { 0.001 };
            let request = FinishedRequest { cost: (second >= 50).then_some(Cost::Measured(cost)), ..QUICK };
            record(&mut comparison, second * 1000 + i * 10, side, request);
        }
    }
    let cpu = comparison.report().metrics[0];
    assert_eq!((cpu.finding, cpu.difference.abs() < 1e-9), (Finding::NoDifference, true), "{cpu:?}");
}

#[test]
fn long_disturbances_of_one_side_are_no_difference() {
    // Twenty seconds each. One in twenty may be wrong: more than 5 of 25 have a probability below
    // 1 in 100.
    for bursts in [1.5, 4.0] {
        let rollout = Rollout { share: 0.3, bursts, burst_seconds: 20, rate: 300.0, ..Rollout::default() };
        let found = rollout.verdicts(1..26, 60_000);
        assert!(found[3] + found[2] <= 5, "{bursts}: {found:?}");
    }
}

#[test]
fn hanging_canary_is_found_worse_when_clients_leave() {
    for hangs in [0.05, 1.0] {
        let rollout = Rollout { hangs, rate: 500.0, ..Rollout::default() };
        let (comparison, requests) = rollout.run(100_000);
        let report = comparison.report();
        let findings = report.metrics.map(|metric| metric.finding);
        assert_eq!((report.verdict, findings[3]), (Verdict::Worse, Finding::Worse), "{report:?}");
        assert!(requests as f64 <= 500.0 * MIN_TIME.as_secs_f64() * 1.1, "{requests}");
        assert_ne!(findings[1], Finding::Worse, "an abandoned request is no error");
    }
}

#[test]
fn clients_that_leave_at_once_prove_nothing() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    for second in 0..200 {
        for i in 0..100 {
            let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
            let left = FinishedRequest { end: RequestEnd::Abandoned, latency: Duration::from_millis(1), cost: None };
            let request = if side == Side::Canary && i % 4 == 0 { left } else { QUICK };
            record(&mut comparison, second * 1000 + i * 10, side, request);
        }
    }
    let [_, errors, median, p99] = comparison.report().metrics;
    assert!([errors, median, p99].iter().all(|metric| metric.finding == Finding::NoDifference), "{median:?} {p99:?}");
}

#[test]
fn share_that_changes_with_the_time_of_day_is_no_difference() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    for second in 0..400 {
        // At night requests are quick and half of them are the canary's; by day a twentieth.
        let (share, mean) = if second < 200 { (0.5, 0.01) } else { (0.1, 0.03) };
        for i in 0..500 {
            let side = if unit(&mut rng) < share { Side::Canary } else { Side::Main };
            let latency = -std::primitive::f64::ln(1.0 - unit(&mut rng)) * mean;
            let request = FinishedRequest { latency: Duration::from_secs_f64(latency), ..QUICK };
            record(&mut comparison, second * 1000 + i * 2, side, request);
        }
    }
    let [_, _, median, p99] = comparison.report().metrics;
    assert!(median.difference.abs() < 0.03 && p99.difference.abs() < 0.06, "{median:?} {p99:?}");
}

#[test]
fn cpu_is_unmeasured_only_without_any_report_of_a_side() {
    let measured = |every: u64, seconds: u64| {
        let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
        for second in 0..seconds {
            for i in 0..100 {
                let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
                let has_report = side == Side::Main || second % every == every - 1;
                let request = FinishedRequest { cost: has_report.then_some(Cost::Measured(0.001)), ..QUICK };
                record(&mut comparison, second * 1000 + i * 10, side, request);
            }
        }
        let report = comparison.report();
        (report.metrics[0].finding, report.verdict)
    };
    let is_undecided = |finding| matches!(finding, Finding::Undecided { .. });
    // One report in thirty seconds is too few for an interval, and some.
    let (rare, verdict) = measured(30, 300);
    assert!(is_undecided(rare) && verdict == Verdict::Undecided, "{rare:?}");
    let (early, verdict) = measured(u64::MAX, 100);
    assert!(is_undecided(early) && verdict == Verdict::Undecided, "{early:?}");
    assert_eq!(measured(u64::MAX, 300), (Finding::Unmeasured, Verdict::NoDifference));
}

#[test]
fn least_time_begins_with_the_first_request() {
    let mut comparison = Comparison::new(Timestamp::ZERO, Margins::default());
    let mut told = None;
    for i in 0..40_000 {
        // After an hour without requests; every canary fails.
        let side = if i % 2 == 0 { Side::Canary } else { Side::Main };
        let end = if side == Side::Canary { RequestEnd::Failed } else { RequestEnd::Answered };
        let verdict = record(&mut comparison, 3_600_000 + i * 5, side, FinishedRequest { end, ..QUICK });
        if told.is_none() && verdict.is_some() {
            told = Some((i * 5, verdict));
        }
    }
    let (at, verdict) = told.expect("there is a verdict");
    assert_eq!(verdict, Some(Verdict::Worse));
    assert!((120_000..122_500).contains(&at), "{at}");
}

#[test]
fn new_margins_judge_the_same_evidence() {
    let (mut comparison, _) = Rollout { cpu: 1.1, ..Rollout::default() }.run(bound(0.1));
    assert_eq!(comparison.report().verdict, Verdict::Worse);
    comparison.set_margins(Margins { cpu: 0.5, ..Margins::default() });
    assert_eq!(comparison.report().metrics[0].finding, Finding::NoDifference);
}

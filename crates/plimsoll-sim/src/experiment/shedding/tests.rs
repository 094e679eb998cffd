//! Shedding in cases that are small enough to compute by hand.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Criticality;

use super::plan::{Abandoned, Arm, Cost, Phase, Plan, Shedder, Source};
use super::world::World;
use super::{Found, metric_names, run, run_arm};
use crate::reference::schedule::Schedule;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One core with half of its load, by requests of 10 ms.
fn plan() -> Plan {
    let source = Source { name: "users".to_owned(), rate: 50.0, ..Source::default() };
    Plan {
        duration: Duration::from_secs(20),
        warmup: Duration::ZERO,
        cost: Cost::Fixed { mean: ms(10) },
        sources: vec![source],
        arms: vec![Arm { name: "a".to_owned(), ..Arm::default() }],
        ..Plan::default()
    }
}

fn found(plan: &Plan) -> Found {
    run_arm(plan, &plan.arms[0], 1)
}

/// A server that admits one request, which lasts longer than the run, and sheds all others.
fn taken(plan: Plan) -> Plan {
    let shedder = Shedder::Procrustean { soft: 0.0, hard: 1e-9 };
    let arms = vec![Arm { name: "taken".to_owned(), shedder, ..Arm::default() }];
    Plan { arms, cost: Cost::Fixed { mean: Duration::from_secs(3_600) }, ..plan }
}

/// Three sources in two phases, under all shedders.
fn everything() -> Plan {
    let source = |name: &str| Source { name: name.to_owned(), rate: 40.0, ..Source::default() };
    let arm = |name: &str, shedder| Arm { name: name.to_owned(), shedder, ..Arm::default() };
    Plan {
        duration: Duration::from_secs(4),
        sources: vec![
            Source { load: vec![1.0, 0.0], ..source("stops") },
            Source { calls: NonZeroU32::new(3).unwrap(), retries: 2, ..source("tasks") },
            Source { age: ms(500), wait: ms(20), retries: 1, ..source("old") },
        ],
        phases: [("one", 0), ("two", 2)]
            .map(|(name, at)| Phase { name: name.to_owned(), at: Duration::from_secs(at), ..Phase::default() })
            .into(),
        arms: vec![
            arm("none", Shedder::None),
            arm("procrustean", Shedder::Procrustean { soft: 5.0, hard: 20.0 }),
            arm("ranked", Shedder::RANKED),
        ],
        ..plan()
    }
}

#[test]
fn metric_names_lists_the_finite_metrics_of_a_run() {
    let findings = run(&everything(), 1, &mut |_| ());
    assert!(findings.metrics.values().all(|value| value.is_finite()));
    let mut announced = metric_names(&everything());
    // In the second phase one source has no arrivals. Without a shedder no task is answered in
    // time.
    let of_tasks = [".tasks", ".most_in_a_second"];
    announced.retain(|name| !name.contains("two.stops.") || of_tasks.iter().any(|metric| name.ends_with(metric)));
    let of_useful = [".p50", ".p99", ".last"];
    announced.retain(|name| !name.starts_with("none.two.") || !of_useful.iter().any(|metric| name.ends_with(metric)));
    announced.sort_unstable();
    assert_eq!(findings.metrics.into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn figure_by_phase_plots_the_checked_values() {
    let findings = run(&everything(), 1, &mut |_| ());
    let figure = findings.figures.iter().find(|figure| figure.id == "useful-by-phase-ranked").unwrap();
    for (series, source) in figure.series.iter().zip(["stops", "tasks", "old"]) {
        let metric = |phase: &str| findings.metrics.get(&format!("ranked.{phase}.{source}.useful_share"));
        let points = [(1.0, metric("one")), (2.0, metric("two"))];
        let expected: Vec<_> = points.into_iter().filter_map(|(x, share)| Some((x, 100.0 * share?))).collect();
        // One source has no arrivals in the second phase, so there is nothing to draw.
        assert_eq!(expected.len(), if source == "stops" { 1 } else { 2 });
        assert_eq!(series.points, expected);
    }
}

#[test]
fn every_task_counts_once_and_arms_have_the_same_tasks() {
    for arm in &everything().arms {
        let found = run_arm(&everything(), arm, 3);
        for (tally, same) in found.sources.iter().zip(found_in_the_first_arm()) {
            let ended = tally.shed + tally.hopeless + tally.cancelled + tally.useful + tally.late + tally.expired;
            assert!(ended <= tally.arrived, "{}: {tally:?}", arm.name);
            assert_eq!(tally.arrived, same, "{}", arm.name);
        }
    }
}

fn found_in_the_first_arm() -> Vec<u64> {
    run_arm(&everything(), &everything().arms[0], 3).sources.iter().map(|tally| tally.arrived).collect()
}

#[test]
fn server_below_its_capacity_answers_all_tasks_in_time() {
    let found = found(&plan());
    // Arrivals of the last second may still be in progress.
    assert!(found.sources[0].useful_share() > Some(0.998), "{:?}", found.sources);
    assert!((found.goodput - 0.5).abs() < 0.06, "{}", found.goodput);
}

#[test]
fn task_of_several_calls_sends_them_in_turn() {
    let mut plan = plan();
    plan.sources[0].calls = NonZeroU32::new(3).unwrap();
    plan.sources[0].rate = 1.0;
    let findings = run(&plan, 1, &mut |_| ());
    assert!((findings.metrics["a.requests_per_task"] - 3.0).abs() < 0.2);
    assert!((30.0..45.0).contains(&findings.metrics["a.p50"]), "{}", findings.metrics["a.p50"]);
}

#[test]
fn request_is_retried_up_to_its_limit_and_within_the_patience() {
    let mut plan = taken(plan());
    let requests = |plan: &Plan| {
        let tally = found(plan).sources[0];
        tally.requests_shed as f64 / (tally.arrived - 1) as f64
    };
    plan.sources[0].retries = 3;
    assert_eq!(requests(&plan), 4.0);
    // Waits of 150 to 450 ms use up the patience of a second after two to six retries.
    plan.sources[0] = Source { retries: 1_000, wait: ms(300), ..plan.sources[0].clone() };
    let sent = requests(&plan);
    assert!((3.0..6.0).contains(&sent), "{sent}");
}

#[test]
fn abandoned_request_is_finished_or_dropped_as_configured() {
    // At twice the capacity, and with a patience of five requests, nearly all are late.
    let mut plan = plan();
    plan.patience = ms(50);
    plan.sources[0].rate = 200.0;
    let finished = found(&plan).sources[0];
    assert!(finished.late > 500 && finished.expired == 0, "{finished:?}");
    plan.abandoned = Abandoned::Dropped;
    let dropped = found(&plan).sources[0];
    assert!(dropped.late == 0 && dropped.expired > 1_000, "{dropped:?}");
    assert!(dropped.useful > 5 * finished.useful, "{dropped:?} {finished:?}");
}

#[test]
fn load_of_a_phase_multiplies_the_load_of_a_source() {
    let mut plan = plan();
    plan.phases = vec![
        Phase { name: "calm".to_owned(), ..Phase::default() },
        Phase { name: "spike".to_owned(), at: Duration::from_secs(10), load: 2.0, ..Phase::default() },
    ];
    plan.sources[0].load = vec![0.5, 3.0];
    let metrics = run(&plan, 1, &mut |_| ()).metrics;
    // 250 ± 16 and 3,000 ± 55: four deviations.
    assert!((metrics["a.calm.tasks"] - 250.0).abs() < 64.0);
    assert!((metrics["a.spike.tasks"] - 3_000.0).abs() < 220.0);
}

#[test]
fn task_past_its_schedule_is_cancelled_at_no_cost() {
    let mut plan = plan();
    plan.sources[0].age = Duration::from_secs(1);
    let end = Duration::from_secs(2);
    let schedule =
        Schedule { full_until: Duration::from_secs(1), then: Criticality::Sheddable, cancelled_after: Some(end) };
    plan.arms[0].schedule = Some(schedule);
    let tally = found(&plan).sources[0];
    // At a mean age of a second, e⁻² of the ages are above two seconds: 0.135 ± 0.011; four
    // deviations.
    let share = tally.cancelled as f64 / tally.arrived as f64;
    assert!((share - 0.135).abs() < 0.044, "{share}");
    assert_eq!(tally.requests + tally.cancelled, tally.arrived);
}

#[test]
fn cores_of_an_arm_are_its_own() {
    let mut plan = plan();
    plan.sources[0].rate = 150.0;
    plan.arms[0].cores = Some(2.0);
    assert!(found(&plan).sources[0].useful_share() > Some(0.99));
    plan.arms[0].cores = None;
    assert!(found(&plan).sources[0].useful_share().is_some_and(|share| share < 0.5));
}

/// Mean time from arrival to answer over 150,000 requests of one source, at half of a core, in
/// milliseconds.
fn mean_latency(cost: Cost, concurrency: Option<NonZeroU32>) -> f64 {
    let plan = Plan {
        duration: Duration::from_secs(3_000),
        tick: Duration::from_secs(1),
        patience: Duration::from_secs(3_600),
        cost,
        concurrency,
        ..plan()
    };
    let measured = World::new(&plan, &plan.arms[0], 1).run(&mut |_| ());
    measured.measure.counted[0][0].latency.mean() / 1e3
}

/// With mean cost s = 10 ms and utilization ρ = 1/2, mean times from arrival to answer are
///
/// ```text
/// sharing, any costs (M/M/1-PS, M/D/1-PS)     s / (1 − ρ)               20 ms
/// first come, first served, M/M/1             s / (1 − ρ)               20 ms
/// first come, first served, M/D/1             s · (1 + ρ / (2(1 − ρ)))  15 ms
/// ```
///
/// The number present in M/M/1 has an asymptotic variance of 2ρ(1 + ρ)/(1 − ρ)⁴ = 24 in units of s.
/// So its mean over n = 150,000 requests, which last 2n units, has a standard error of √(24/2n) =
/// 0.9% of itself. The bound is five of these: false alarm 6e-7, and less for fixed costs, which
/// vary less. Seed 1.
#[test]
fn latency_follows_its_formula_when_shared_or_in_order() {
    let one = Some(NonZeroU32::MIN);
    let (exponential, fixed) = (Cost::Exponential { mean: ms(10) }, Cost::Fixed { mean: ms(10) });
    for (cost, concurrency, formula) in
        [(exponential, None, 20.0), (fixed, None, 20.0), (exponential, one, 20.0), (fixed, one, 15.0)]
    {
        let mean = mean_latency(cost, concurrency);
        assert!((mean / formula - 1.0).abs() < 0.045, "{mean} for {formula}: {cost:?}, {concurrency:?}");
    }
}

#[test]
fn shedder_counts_waiting_requests_when_one_runs_at_a_time() {
    let mut plan = Plan { concurrency: Some(NonZeroU32::MIN), ..plan() };
    plan.sources[0].rate = 400.0;
    plan.arms[0].shedder = Shedder::Procrustean { soft: 2.0, hard: 2.1 };
    let found = found(&plan);
    let most = found.readings.iter().map(|reading| reading.in_progress).max();
    assert_eq!(most, Some(3), "two are found at most, and the one that finds them");
    // Each waits for at most two others, of 10 ms each.
    assert!(found.sources[0].late == 0 && found.sources[0].useful > 1_900, "{:?}", found.sources);
}

#[test]
fn abandoned_request_leaves_the_queue_and_the_work_to_do() {
    let mut plan = Plan { concurrency: Some(NonZeroU32::MIN), patience: ms(50), ..plan() };
    plan.sources[0].rate = 200.0;
    plan.abandoned = Abandoned::Dropped;
    let found = found(&plan);
    let dropped = found.sources[0];
    assert!(dropped.late == 0 && dropped.expired > 1_000 && dropped.useful > 500, "{dropped:?}");
    // In 50 ms 10 requests arrive, with 10 ms of work each. More than 40 have a probability of
    // 1e-12 in each of 400 such spans. Seed 1.
    let most = found.readings.iter().map(|reading| reading.delay).max();
    assert!(most < Some(ms(400)), "{most:?}");
}

#[test]
fn concurrency_of_an_arm_replaces_that_of_the_plan() {
    let one = Some(NonZeroU32::MIN);
    let mut plan = Plan { concurrency: None, ..plan() };
    plan.arms[0].concurrency = one;
    let of_arm = found(&plan);
    plan.arms[0].concurrency = None;
    assert_ne!(found(&plan), of_arm);
    plan.concurrency = one;
    assert_eq!(found(&plan), of_arm);
}

#[test]
fn overhead_takes_cpu_and_is_no_useful_work() {
    let plan = Plan { overhead: ms(5), ..plan() };
    let metrics = run(&plan, 1, &mut |_| ()).metrics;
    // The same requests, of 10 and 5 ms: all are answered but those in progress at the end.
    let ratio = metrics["a.cpu"] / metrics["a.goodput"];
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
    assert!(metrics["a.p50"] >= 15.0, "{}", metrics["a.p50"]);
}

/// The gate measures it as CPU usage that it can charge to no request, and sheds more.
#[test]
fn gate_compensates_for_overhead_it_cannot_charge() {
    let mut plan = Plan { overhead: ms(5), concurrency: Some(NonZeroU32::MIN), ..plan() };
    plan.warmup = Duration::from_secs(5);
    plan.sources[0].rate = 200.0;
    plan.arms[0].shedder = Shedder::RANKED;
    let found = found(&plan);
    // Costs are 2/3 of the core. Requests wait for each other, so less than all of that is useful.
    assert!((0.6..0.667).contains(&found.goodput), "{}", found.goodput);
    assert_eq!(found.sources[0].late, 0, "{:?}", found.sources);
}

//! Against the formulas of queues. With mean cost s and utilization ρ, mean times from arrival to answer:
//!
//! ```text
//! processor sharing, any costs, one core      s / (1 − ρ)
//! two cores (M/M/2)                           s / (1 − ρ²)
//! first come first served, equal costs        s · (1 + ρ / (2(1 − ρ)))
//! ```
//!
//! The mean over n requests in a row has, for one core at ρ = 1/2 and exponential costs, a standard error of 2.7/√n
//! of itself (the asymptotic variance of M/M/1, and the same law of the number present under processor sharing). Here
//! n is about 150,000, so 0.7%; bounds are four of them, rounded up to 3%: false alarm about 6e-5. Costs that vary
//! more make the queue vary more; their bounds are wider.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;

use super::{count, find, ms, plain, secs};
use crate::experiment::fleet::plan::{
    Abandoned, Antagonist, Arrivals, BackendGroup, Clients, Cost, Interference, Network, Plan, Reports, Requests,
    Speed, Usage,
};

const MEAN: Duration = Duration::from_millis(10);

fn mean_ms(plan: Plan) -> f64 {
    let plan = Plan { duration: secs(3_100), warmup: secs(100), sample_every: secs(10), ..plan };
    let metrics = find(&plan, 1).metrics;
    assert_eq!(metrics["arm.error_share"], 0.0);
    metrics["arm.mean_latency"]
}

#[track_caller]
fn near(got: f64, want: f64, bound: f64) {
    assert!((got / want - 1.0).abs() < bound, "{got} for {want}");
}

#[test]
fn processor_sharing_has_the_mean_of_its_formula_whatever_the_costs() {
    for (cost, bound) in [
        (Cost::Exponential { mean: MEAN }, 0.03),
        (Cost::Fixed { mean: MEAN }, 0.03),
        (Cost::LogNormal { mean: MEAN, sigma: 1.0 }, 0.05),
    ] {
        near(mean_ms(plain(1, 0.5, cost)), 20.0, bound);
    }
}

#[test]
fn two_cores_have_the_mean_of_their_formula() {
    let mut plan = plain(1, 0.5, Cost::Exponential { mean: MEAN });
    plan.backends[0].cores = 2.0;
    near(mean_ms(plan), 10.0 / 0.75, 0.03);
}

#[test]
fn one_at_a_time_has_the_mean_of_first_come_first_served() {
    let mut plan = plain(1, 0.5, Cost::Fixed { mean: MEAN });
    plan.backends[0].concurrency = Some(NonZeroU32::MIN);
    near(mean_ms(plan), 15.0, 0.03);
}

#[test]
fn round_robin_over_many_backends_makes_their_arrivals_more_regular() {
    // Each of ten gets an Erlang-10 stream: less than Poisson's 20 ms, more than the bare cost.
    let plan = Plan { duration: secs(400), ..plain(10, 0.5, Cost::Exponential { mean: MEAN }) };
    let mean = find(&plan, 1).metrics["arm.mean_latency"];
    assert!((11.0..18.0).contains(&mean), "{mean}");
}

/// Costs are fixed, so utilization is the count of requests times the cost: 5 standard deviations of the Poisson
/// count of 24,000 are 3.2%.
#[test]
fn utilization_is_rate_times_cost_over_capacity() {
    let mut plan = Plan { duration: secs(60), ..plain(4, 0.6, Cost::Fixed { mean: MEAN }) };
    plan.backends[0].cores = 2.5;
    let metrics = find(&plan, 1).metrics;
    near(metrics["arm.cpu"], 0.6, 0.04);
    near(metrics["arm.max_over_mean"], 1.0, 0.02);
    let exact = metrics["arm.requests"] * 0.01 / (40.0 * 4.0 * 2.5);
    near(metrics["arm.cpu"], exact, 0.002);
}

#[test]
fn overhead_takes_cpu_and_time_of_every_request() {
    let mut plan = Plan { duration: secs(60), ..plain(1, 0.5, Cost::Fixed { mean: MEAN }) };
    plan.overhead = ms(15);
    let metrics = find(&plan, 1).metrics;
    // A load is a share of CPU: 20 requests a second of 25 ms each, and of 800 five deviations are 18%.
    near(metrics["arm.requests"], 800.0, 0.18);
    near(metrics["arm.cpu"], metrics["arm.requests"] * 0.025 / 40.0, 0.01);
    assert!(metrics["arm.p50"] >= 25.0, "{}", metrics["arm.p50"]);
}

#[test]
fn capacity_counts_speed_and_slow_machines_use_more_cpu() {
    let mut plan = Plan { duration: secs(60), ..plain(1, 0.5, Cost::Fixed { mean: MEAN }) };
    let group = |name: &str, speed| BackendGroup {
        name: name.to_owned(),
        count: count(2),
        speed: Speed::Fixed(speed),
        ..BackendGroup::default()
    };
    plan.backends = vec![group("slow", 0.5), group("fast", 1.5)];
    let metrics = find(&plan, 1).metrics;
    // Round robin: each gets 50 requests a second, 10 ms at speed 1: 100% and 33% of a core.
    near(metrics["arm.max_over_min"], 3.0, 0.05);
    near(metrics["arm.share.slow"], 0.5, 0.001);
    near(metrics["arm.cpu.slow"] / metrics["arm.cpu.fast"], 3.0, 0.05);
    near(f64::midpoint(metrics["arm.cpu.slow"], metrics["arm.cpu.fast"]), metrics["arm.cpu"], 1e-9);
    // The slow ones are nearly full, and the slowest requests of all are theirs.
    let (slow, fast) = (metrics["arm.p99.slow"], metrics["arm.p99.fast"]);
    assert!(slow > metrics["arm.p99"] && metrics["arm.p99"] > fast && fast > 6.6, "{slow} {fast}");
}

#[test]
fn what_antagonists_take_of_cores_is_counted_where_reports_count_it() {
    let half = Ratio::from_percent(40);
    let usage = Usage { low: half, high: half, jitter: Ratio::ZERO, holds: secs(1) };
    let cpu = |interference, reports| {
        let mut plan = Plan { duration: secs(60), ..plain(1, 0.3, Cost::Fixed { mean: MEAN }) };
        plan.backends[0].antagonist = Antagonist::Some { usage, interference };
        plan.backends[0].reports = reports;
        find(&plan, 1).metrics["arm.cpu"]
    };
    near(cpu(Interference::Cores, Reports::Honest), 0.3, 0.06);
    near(cpu(Interference::Cores, Reports::Machine), 0.7, 0.04);
    near(cpu(Interference::Speed, Reports::Honest), 0.5, 0.06);
    let allocation = |slowdown| Interference::Allocation { machine: 4.0, slowdown };
    near(cpu(allocation(Ratio::ZERO), Reports::Honest), 0.3, 0.06);
    // Speed 1 − 0.5 · 0.4.
    near(cpu(allocation(Ratio::from_percent(50)), Reports::Honest), 0.375, 0.06);
}

#[test]
fn users_of_a_closed_loop_send_as_fast_as_they_are_answered() {
    let mut plan = Plan { duration: secs(60), ..plain(1, 0.5, Cost::Fixed { mean: MEAN }) };
    plan.arrivals = Arrivals::Closed { users: count(1), think: Duration::ZERO };
    plan.network = Network { delay: ms(5), ..Network::default() };
    let metrics = find(&plan, 1).metrics;
    near(metrics["arm.answered_per_second"], 50.0, 0.001);
    near(metrics["arm.p50"], 20.0, 0.001);
    // With ten there is always work, once they need not travel (else equal costs end together, and the core waits for
    // all).
    plan.network.delay = Duration::ZERO;
    plan.arrivals = Arrivals::Closed { users: count(10), think: Duration::ZERO };
    near(find(&plan, 1).metrics["arm.answered_per_second"], 100.0, 0.001);
    // Ten users who think for 180 ms on average: 10/(0.18 + 0.01 + waiting), a little less than 53 a second. n = 2000.
    plan.arrivals = Arrivals::Closed { users: count(10), think: ms(180) };
    let rate = find(&plan, 1).metrics["arm.answered_per_second"];
    assert!((43.0..54.0).contains(&rate), "{rate}");
}

#[test]
fn users_are_dealt_to_clients_to_the_last() {
    let mut plan = Plan { duration: secs(30), ..plain(1, 0.5, Cost::Fixed { mean: MEAN }) };
    plan.clients = Clients { count: count(7), ..Clients::default() };
    plan.arrivals = Arrivals::Closed { users: count(24), think: Duration::ZERO };
    // All in flight all the time: 24 on one core of 10 ms each.
    near(find(&plan, 1).metrics["arm.p50"], 240.0, 0.01);
}

#[test]
fn recalled_requests_leave_their_cpu_to_others() {
    let goodput = |abandoned| {
        let mut plan = Plan { duration: secs(60), ..plain(1, 1.5, Cost::Exponential { mean: MEAN }) };
        plan.requests = Requests { timeout: ms(500), abandoned, ..Requests::default() };
        find(&plan, 1).metrics["arm.answered_per_second"]
    };
    let (finished, dropped) = (goodput(Abandoned::Finished), goodput(Abandoned::Dropped));
    assert!(finished < 30.0 && dropped > 60.0, "finished {finished}, dropped {dropped} a second");
}

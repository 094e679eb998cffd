//! Failures: losses, detection and recovery.

use std::time::Duration;

use plimsoll_core::health::State;
use plimsoll_core::pick::{PolicyKind, ProbeSource};
use plimsoll_core::subset::{Algorithm, SubsetConfig};
use plimsoll_core::{Ratio, Timestamp};

use super::{count, find, first, happening, ms, policy, ran, secs, until};
use crate::experiment::fleet::measure::Ending;
use crate::experiment::fleet::plan::{
    Abandoned, Antagonist, Arm, Arrivals, BackendGroup, Change, Clients, Cold, Conduct, Cost, Failures, Interference,
    Network, Phase, Plan, Rate, Reports, Requests, Restart, Retries, Selection, Speed, Switch, Usage,
};
use crate::findings::Findings;
use crate::model::arena;
use crate::model::client::Client;

/// Ten clients, ten backends at half load: 500 requests of 10 ms per second.
fn fleet(arm: Arm) -> Plan {
    Plan {
        duration: secs(60),
        warmup: secs(20),
        arrivals: Arrivals::Open { rate: Rate::PerSecond(500.0) },
        arms: vec![Arm { name: "arm".to_owned(), ..arm }],
        ..Plan::default()
    }
}

fn budgeted(share: f64) -> Retries {
    Retries::Budgeted { attempts: 3, share: Ratio::new(share).unwrap() }
}

fn metric(findings: &Findings, name: &str) -> f64 {
    findings.metrics[&format!("arm.{name}")]
}

#[test]
fn every_request_ends_once_through_all_kinds_of_failures() {
    for (seed, abandoned) in [(1, Abandoned::Finished), (2, Abandoned::Dropped)] {
        let mut plan = fleet(Arm { retries: budgeted(0.5), ..policy(PolicyKind::Weighted) });
        plan.warmup = Duration::ZERO;
        plan.network = Network { jitter: ms(1), loss: Ratio::from_percent(2), ..Network::default() };
        plan.requests = Requests { timeout: ms(300), abandoned, max_pending: 3, ..Requests::default() };
        plan.arms[0].balancer.max_active_requests = count(3);
        plan.backends[0].queue = 5;
        plan.backends[0].concurrency = Some(count(5));
        let conduct = |at, conduct| happening(secs(at), Change::Conduct { backends: first(8), conduct });
        let group = BackendGroup { name: "later".to_owned(), ..BackendGroup::default() };
        plan.timeline = vec![
            conduct(5, Conduct::Down),
            conduct(10, Conduct::Serve),
            conduct(15, Conduct::FailFast),
            conduct(20, Conduct::Hang),
            conduct(25, Conduct::Overloaded),
            conduct(30, Conduct::Err(Ratio::from_percent(30))),
            happening(secs(35), Change::Restart { backends: first(9), restart: Restart::default() }),
            happening(secs(50), Change::AddBackends { group }),
            happening(secs(51), Change::AddClients { count: count(3) }),
            happening(secs(52), Change::RemoveBackends { backends: first(3) }),
            happening(secs(53), Change::RemoveClients { count: count(5) }),
        ];
        let world = ran(&plan, seed);
        let (tallies, _) = world.measure.finish();
        let ended: u64 = tallies[0].ended.iter().sum();
        assert_eq!(tallies[0].arrived, ended);
        assert!(tallies[0].ended.iter().all(|count| *count > 0), "every ending occurs: {:?}", tallies[0].ended);
    }
}

#[test]
fn request_times_out_at_the_configured_time() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.backends[0].conduct = Conduct::Hang;
    plan.requests.timeout = ms(700);
    plan.arms[0].balancer.outlier.consecutive_failures = None;
    plan.arms[0].balancer.outlier.success_rate_stdev = None;
    let findings = find(&plan, 1);
    // Checks fail too, but no backend is better, so the panic threshold keeps sending.
    assert_eq!(metric(&findings, "error_share"), 1.0);
    let timed_out = metric(&findings, "timeout_share");
    assert!(timed_out > 0.0, "{timed_out}");
    assert_eq!(metric(&findings, "p99"), 700.0);
}

#[test]
fn full_backend_sheds_requests_beyond_its_queue() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.arrivals = Arrivals::Open { rate: Rate::OfCapacity(2.0) };
    plan.backends[0].concurrency = Some(count(4));
    plan.backends[0].queue = 4;
    let findings = find(&plan, 1);
    let (overloaded, cpu) = (metric(&findings, "overloaded_share"), metric(&findings, "cpu"));
    assert!((0.47..0.53).contains(&overloaded) && cpu > 0.98, "{overloaded} {cpu}");
    // At most eight requests of 10 ms at a time.
    assert!(metric(&findings, "p50") < 100.0);
}

#[test]
fn killed_backend_loses_its_own_requests_only() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.arrivals = Arrivals::Open { rate: Rate::OfCapacity(0.9) };
    plan.backends[0].concurrency = Some(count(1));
    plan.timeline = vec![happening(secs(30), Change::Conduct { backends: first(1), conduct: Conduct::Down })];
    let mut world = until(&plan, 1, secs(30) - Duration::from_nanos(1));
    let had = u64::from(world.backends[0].in_flight());
    assert!(had > 1, "a seed that shows nothing: one runs, others wait");
    arena::run(&mut world, &mut |_| ());
    let (tallies, _) = world.measure.finish();
    // The backend refuses connections of requests in flight when it goes down, and they go
    // elsewhere.
    assert_eq!(tallies[0].ended[Ending::Failed as usize], had);
}

#[test]
fn clients_learn_of_a_lame_duck_and_of_its_end_at_once() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    let restart = Restart { lame_duck: secs(2), down: secs(1), ..Restart::default() };
    plan.timeline = vec![happening(secs(30), Change::Restart { backends: first(1), restart })];
    let in_state = |at: Duration, state| {
        let world = until(&plan, 1, at);
        let its = |client: &Client| {
            let id = client.id(0).expect("all backends are members");
            client.balancer.snapshot(world.arena.now).into_iter().any(|b| b.id == id && b.state == state)
        };
        world.clients.iter().filter(|client| its(client)).count()
    };
    // One direction takes 0.1 ms. Each client sends five requests per second to it, so most could
    // not learn of it so early by an answer.
    assert_eq!(in_state(secs(30) + Duration::from_micros(101), State::LameDuck), 10);
    assert_eq!(in_state(secs(32) + Duration::from_micros(101), State::Refusing), 10);
    // It is back after a second. Checks follow each other at 0.1, 0.2, 0.4 ... s, ± a fifth.
    assert_eq!(in_state(secs(34) + ms(200), State::Healthy), 10);
}

#[test]
fn announced_restart_loses_no_request() {
    let mut plan = fleet(policy(PolicyKind::Weighted));
    let cold = Cold { factor: 0.5, lasts: secs(5), ..Cold::default() };
    let restart = Restart { lame_duck: secs(2), down: secs(1), cold, stagger: secs(3) };
    plan.timeline = vec![happening(secs(25), Change::Restart { backends: Selection::default(), restart })];
    let findings = find(&plan, 1);
    assert_eq!(metric(&findings, "error_share"), 0.0);
}

#[test]
fn cold_backend_is_slow_for_the_configured_time() {
    let cpu_at = |at: u64| {
        let mut plan = fleet(policy(PolicyKind::RoundRobin));
        plan.cost = Cost::Fixed { mean: ms(10) };
        let cold = Cold { factor: 0.5, lasts: secs(10), ..Cold::default() };
        let restart = Restart { lame_duck: Duration::ZERO, down: secs(1), cold, stagger: Duration::ZERO };
        plan.timeline = vec![happening(secs(20), Change::Restart { backends: first(1), restart })];
        plan.arms[0].balancer.slow_start.window = Duration::ZERO;
        let mut world = until(&plan, 1, secs(at));
        let before = world.backends[0].usage(world.arena.now);
        arena::run_until(&mut world, Timestamp::from_origin(secs(at + 3)));
        world.backends[0].usage(world.arena.now).since(&before).load().expect("it is up")
    };
    // 50 requests a second of 10 ms, at half the speed and at the whole.
    let (cold, warm) = (cpu_at(25), cpu_at(33));
    assert!((0.9..=1.0).contains(&cold) && (0.4..0.6).contains(&warm), "{cold} {warm}");
}

#[test]
fn failed_member_is_replaced_and_comes_back() {
    let size = count(3);
    let mut arm = policy(PolicyKind::LeastLoaded);
    arm.subset = Some(SubsetConfig { algorithm: Algorithm::Rendezvous, size, seed: 0 });
    let mut plan = fleet(arm);
    let conduct = |at, conduct| happening(secs(at), Change::Conduct { backends: first(2), conduct });
    plan.timeline = vec![conduct(20, Conduct::Down), conduct(40, Conduct::Serve)];
    let mut world = until(&plan, 1, secs(19));
    let before: Vec<_> = world.clients.iter().map(|client| client.members()).collect();
    assert!(before.iter().all(|members| members.len() == 3));
    arena::run_until(&mut world, Timestamp::from_origin(secs(39)));
    for (client, before) in world.clients.iter().zip(&before) {
        let lost = before.iter().filter(|backend| **backend < 2).count();
        let members = client.members();
        assert!(before.iter().all(|member| members.contains(member)), "one that failed is still looked after");
        let healthy = client.balancer.snapshot(world.arena.now).iter().filter(|b| b.state == State::Healthy).count();
        assert_eq!((healthy, members.len() >= 3 + lost), (3, true), "{before:?} became {members:?}");
    }
    arena::run_until(&mut world, Timestamp::from_origin(secs(59)));
    let after: Vec<_> = world.clients.iter().map(|client| client.members()).collect();
    assert_eq!(after, before);
}

/// Half of all requests fail, independently. Seed 1, n = 20,000: five standard deviations of the
/// shares are 1.8% and 1.2%.
#[test]
fn retries_go_elsewhere_up_to_the_configured_attempts() {
    let failed = |attempts| {
        let mut plan = fleet(Arm { retries: Retries::Naive { attempts }, ..policy(PolicyKind::RoundRobin) });
        plan.backends[0].conduct = Conduct::Err(Ratio::from_percent(50));
        plan.arrivals = Arrivals::Open { rate: Rate::OfCapacity(0.4) };
        plan.duration = secs(70);
        plan.arms[0].balancer.outlier.consecutive_failures = None;
        plan.arms[0].balancer.outlier.success_rate_stdev = None;
        let findings = find(&plan, 1);
        (metric(&findings, "failure_share"), metric(&findings, "attempts_per_request"))
    };
    let (once, thrice) = (failed(1), failed(3));
    assert!((once.0 - 0.5).abs() < 0.018 && once.1 == 1.0, "{once:?}");
    assert!((thrice.0 - 0.125).abs() < 0.012 && (thrice.1 - 1.75).abs() < 0.04, "{thrice:?}");
}

/// All requests fail. The budget adds a tenth, and without a budget every attempt is made.
#[test]
fn total_failure_adds_no_more_attempts_than_the_budget() {
    let attempts = |retries| {
        let mut plan = fleet(Arm { retries, ..policy(PolicyKind::RoundRobin) });
        plan.backends[0].conduct = Conduct::FailFast;
        plan.arrivals = Arrivals::Open { rate: Rate::OfCapacity(0.4) };
        plan.duration = secs(70);
        plan.arms[0].balancer.outlier.consecutive_failures = None;
        plan.arms[0].balancer.outlier.success_rate_stdev = None;
        let findings = find(&plan, 1);
        assert_eq!(metric(&findings, "failure_share"), 1.0, "each ends with its failure");
        metric(&findings, "attempts_per_request")
    };
    assert_eq!(attempts(Retries::None), 1.0);
    assert_eq!(attempts(Retries::Naive { attempts: 3 }), 3.0);
    let budgeted = attempts(budgeted(0.1));
    assert!((1.08..=1.101).contains(&budgeted), "{budgeted}");
}

/// A retry waits up to 25 ms. With 5 ms left a fifth of the retries is made, and the others end at
/// once.
#[test]
fn retry_past_the_deadline_is_not_awaited() {
    let mut plan = fleet(Arm { retries: budgeted(1.0), ..policy(PolicyKind::RoundRobin) });
    plan.backends[0].conduct = Conduct::FailFast;
    plan.requests.timeout = ms(5);
    plan.arms[0].balancer.outlier.consecutive_failures = None;
    plan.arms[0].balancer.outlier.success_rate_stdev = None;
    let findings = find(&plan, 1);
    let (attempts, timed_out) = (metric(&findings, "attempts_per_request"), metric(&findings, "timeout_share"));
    assert!((1.1..1.3).contains(&attempts) && timed_out < 0.02, "{attempts} {timed_out}");
}

/// The proxy answers `no-backend` both without a backend and without a connection.
#[test]
fn request_ends_as_no_backend_when_all_refuse_connections() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.backends[0].conduct = Conduct::Down;
    let findings = find(&plan, 1);
    assert!(metric(&findings, "attempts_per_request") > 0.0, "some connections are tried");
    assert_eq!(metric(&findings, "no_backend_share"), 1.0);
}

#[test]
fn user_without_a_backend_asks_again_after_a_moment() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.clients = Clients { count: count(1), ..Clients::default() };
    plan.arrivals = Arrivals::Closed { users: count(4), think: Duration::ZERO };
    plan.backends[0] = BackendGroup { count: count(1), conduct: Conduct::Hang, ..BackendGroup::default() };
    plan.arms[0].balancer.max_active_requests = count(1);
    plan.requests.max_pending = 1;
    // One is swallowed, one waits, and two are shed every millisecond.
    let findings = find(&plan, 1);
    let (requests, turned_away) = (metric(&findings, "requests"), metric(&findings, "no_backend_share"));
    assert!((requests - 80_000.0).abs() < 100.0 && turned_away > 0.999, "{requests} {turned_away}");
}

#[test]
fn every_subset_algorithm_serves_through_a_resize() {
    for algorithm in Algorithm::ALL {
        let mut arm = policy(PolicyKind::Weighted);
        arm.subset = Some(SubsetConfig { algorithm, size: count(4), seed: 0 });
        let mut plan = fleet(arm);
        plan.arrivals = Arrivals::Open { rate: Rate::PerSecond(150.0) };
        let group = BackendGroup { name: "later".to_owned(), count: count(5), ..BackendGroup::default() };
        plan.timeline = vec![
            happening(secs(25), Change::AddBackends { group }),
            happening(secs(35), Change::RemoveBackends { backends: first(6) }),
            happening(secs(40), Change::AddClients { count: count(5) }),
        ];
        let mut world = until(&plan, 1, secs(50));
        assert!(world.clients.iter().all(|client| client.members().len() == 4), "{algorithm}");
        assert!(world.clients.iter().all(|client| client.members().iter().all(|backend| *backend >= 6)), "{algorithm}");
        arena::run(&mut world, &mut |_| ());
        let (tallies, _) = world.measure.finish();
        assert_eq!(tallies[0].arrived, tallies[0].ended[0], "{algorithm}: a resize loses nothing");
        let received = tallies[0].used[0].received;
        assert!(received > 0 && tallies[0].used[12].received > 0, "{algorithm}");
    }
}

#[test]
fn reports_follow_a_step_of_load_within_a_window_and_not_before() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.clients = Clients { count: count(1), ..Clients::default() };
    plan.backends[0].count = count(1);
    plan.backends[0].cores = 10.0;
    plan.cost = Cost::Fixed { mean: ms(1) };
    plan.phases = [(0, 1.0), (30, 4.0)]
        .map(|(at, load)| Phase { name: format!("{load}"), at: secs(at), settle: Duration::ZERO, load })
        .to_vec();
    let qps_at = |at: Duration| {
        let world = until(&plan, 1, at);
        let snapshot = &world.clients[0].balancer.snapshot(world.arena.now)[0];
        snapshot.report.expect("answers carry reports").1.qps
    };
    // Seed 1; 500 and 2,000 requests a second over a second: five standard deviations are 112 and
    // 224.
    let (before, halfway, after) = (qps_at(secs(30)), qps_at(ms(30_500)), qps_at(ms(31_200)));
    assert!((before - 500.0).abs() < 112.0, "{before}");
    assert!((900.0..1_600.0).contains(&halfway), "{halfway}");
    assert!((after - 2_000.0).abs() < 224.0, "{after}");
}

#[test]
fn each_pick_sends_probes_and_their_answers_are_used() {
    let mut arm = policy(PolicyKind::Prequal);
    arm.balancer.prequal.source = ProbeSource::Live;
    let mut plan = fleet(arm);
    let usage = Usage { low: Ratio::ZERO, high: Ratio::from_percent(90), jitter: Ratio::ZERO, holds: secs(1) };
    plan.backends[0].antagonist = Antagonist::Some { usage, interference: Interference::Cores };
    let prequal = find(&plan, 1);
    let probes = metric(&prequal, "probes_per_request");
    assert!((probes - 3.0).abs() < 0.01, "{probes}");
    plan.arms = vec![Arm { name: "arm".to_owned(), ..policy(PolicyKind::Random) }];
    let (with, without) = (metric(&prequal, "p99"), metric(&find(&plan, 1), "p99"));
    assert!(with * 2.0 < without, "{with} ms with probes, {without} ms at random");
    plan.arms = vec![Arm { name: "arm".to_owned(), ..policy(PolicyKind::Prequal) }];
    plan.arms[0].balancer.prequal.source = ProbeSource::Live;
    plan.network.delay = ms(2);
    let late = find(&plan, 1);
    assert!(metric(&late, "p99") > 2.0 * with, "answers that come after 4 ms are of no use");
}

#[test]
fn fast_failures_attract_only_clients_that_do_not_see_them() {
    let share = |kind, failures| {
        let mut arm = Arm { failures, ..policy(kind) };
        arm.balancer.outlier.consecutive_failures = None;
        arm.balancer.outlier.success_rate_stdev = None;
        let mut plan = fleet(arm);
        plan.arrivals = Arrivals::Open { rate: Rate::OfCapacity(0.9) };
        plan.clients.count = count(1);
        plan.backends[0].count = count(9);
        let sink = BackendGroup {
            name: "sink".to_owned(),
            count: count(1),
            conduct: Conduct::FailFast,
            reports: Reports::HidesFailures,
            ..BackendGroup::default()
        };
        plan.backends.push(sink);
        metric(&find(&plan, 1), "share.sink")
    };
    assert!(share(PolicyKind::LeastLoaded, Failures::Unseen) > 0.3);
    assert!(share(PolicyKind::LeastLoaded, Failures::Counted) < 0.1);
    assert!(share(PolicyKind::Weighted, Failures::Unseen) > 0.3);
    assert!(share(PolicyKind::Weighted, Failures::Counted) < 0.1);
}

#[test]
fn switch_of_policy_takes_effect_at_its_time() {
    let mut plan = fleet(policy(PolicyKind::RoundRobin));
    plan.backends[0].speed = Speed::Uniform { low: 0.6, high: 1.4 };
    plan.duration = secs(80);
    let weighted = policy(PolicyKind::Weighted).balancer;
    plan.arms[0].switches = vec![Switch { at: secs(40), balancer: weighted }];
    let phase = |name: &str, at| Phase { name: name.to_owned(), at: secs(at), settle: secs(20), load: 1.0 };
    plan.phases = vec![phase("before", 0), phase("after", 40)];
    let findings = find(&plan, 1);
    let (before, after) = (metric(&findings, "before.max_over_min"), metric(&findings, "after.max_over_min"));
    assert!(before > 1.5 && after < 1.3, "{before} {after}");
}

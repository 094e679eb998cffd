//! The throttle's promises for a cluster of many operations, in virtual time. A failing operation
//! throttles itself alone, and an overloaded cluster is throttled as if it had no operations.
//!
//! Seeds are fixed, so nothing fails by chance.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_core::throttle::adaptive::DEFAULT_WINDOW;
use plimsoll_core::throttle::{Multiple, Outcome, Throttle, ThrottlePolicy, Verdict};
use plimsoll_core::{Criticality, Operation, Timestamp};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use proptest::test_runner::RngSeed;
use rand_core::{Rng, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const ADAPTIVE: ThrottlePolicy = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: DEFAULT_WINDOW };
const PACED: ThrottlePolicy = ThrottlePolicy::Paced { k: Multiple::DEFAULT };
const SEEDS: [u64; 3] = [1, 2, 3];
/// From a request to its outcome.
const LATENCY: u64 = 5_000_000;

/// Distribution of a service's URLs over operations.
#[derive(Clone, Copy, Debug)]
enum Paths {
    /// One endpoint.
    One,
    /// Each request asks for a path of its own, in one group.
    Group,
    /// A number of endpoints, each of a group of its own.
    Endpoints(u64),
}

/// Answers to a load: all requests are accepted, or none, or limited. All limited loads together
/// share a number of accepted requests a second.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Accepts,
    Rejects,
    Limited,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    rate: f64,
    paths: Paths,
    answers: Answers,
}

/// The outcomes of one load in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    asked: u64,
    sent: u64,
    accepted: u64,
}

/// An event of a load at a time: an arrival, or the outcome of a request for this endpoint and
/// group.
type Event = (u64, usize, Option<(u64, u64, bool)>);

struct World {
    policy: ThrottlePolicy,
    /// Accepted a second, of all limited loads together.
    capacity: f64,
    /// Seconds in which no request is accepted.
    outage: (f64, f64),
    seed: u64,
}

impl World {
    fn new(policy: ThrottlePolicy, seed: u64) -> Self {
        Self { policy, capacity: f64::INFINITY, outage: (f64::INFINITY, f64::INFINITY), seed }
    }

    fn run(&self, loads: &[Load], seconds: usize) -> Vec<Vec<Second>> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut throttle = Throttle::new(at(0), self.policy);
        let mut found = vec![vec![Second::default(); seconds]; loads.len()];
        let gap = |rng: &mut Pcg64Mcg, rate: f64| (-(1.0 - unit(rng)).ln() / rate * 1e9) as u64;
        let mut events: BinaryHeap<Reverse<Event>> =
            loads.iter().enumerate().map(|(load, of)| Reverse((gap(&mut rng, of.rate), load, None))).collect();
        let (mut tokens, mut filled) = (0.0_f64, 0);
        while let Some(Reverse((now, load, outcome))) = events.pop() {
            let Some(second) = found[load].get_mut((now / 1_000_000_000) as usize) else { break };
            let time = Timestamp::from_nanos(now);
            if let Some((endpoint, group, is_accepted)) = outcome {
                let outcome = if is_accepted { Outcome::Accepted } else { Outcome::Rejected };
                throttle.on_outcome_of(time, Criticality::Critical, Operation::new(endpoint, group), outcome);
                continue;
            }
            events.push(Reverse((now + gap(&mut rng, loads[load].rate), load, None)));
            let offset = load as u64 * 1_000_000;
            let (endpoint, group) = match loads[load].paths {
                Paths::One => (offset, offset),
                Paths::Group => (rng.next_u64(), offset),
                Paths::Endpoints(count) => {
                    let number = offset + rng.next_u64() % count;
                    (number, number)
                }
            };
            second.asked += 1;
            let verdict = throttle.ask_for(time, Criticality::Critical, Operation::new(endpoint, group), &mut rng);
            if let Verdict::Throttle(_) = verdict {
                continue;
            }
            second.sent += 1;
            let is_out = (self.outage.0..self.outage.1).contains(&(now as f64 / 1e9));
            let is_accepted = !is_out
                && match loads[load].answers {
                    Answers::Accepts => true,
                    Answers::Rejects => false,
                    Answers::Limited => {
                        // A queue of a tenth of a second.
                        tokens =
                            (tokens + (now - filled) as f64 / 1e9 * self.capacity).min((self.capacity * 0.1).max(10.0));
                        filled = now;
                        let is_accepted = tokens >= 1.0;
                        tokens -= f64::from(u8::from(is_accepted));
                        is_accepted
                    }
                };
            second.accepted += u64::from(is_accepted);
            events.push(Reverse((now + LATENCY, load, Some((endpoint, group, is_accepted)))));
        }
        found
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn unit(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn sum(found: &[Second], of: fn(&Second) -> u64) -> f64 {
    found.iter().map(of).sum::<u64>() as f64
}

/// The share of the requests of a load that was sent.
fn sent(found: &[Second]) -> f64 {
    sum(found, |second| second.sent) / sum(found, |second| second.asked).max(1.0)
}

const fn load(rate: f64, paths: Paths, answers: Answers) -> Load {
    Load { rate, paths, answers }
}

/// From the first request on; the others are one endpoint, a few, or one for each request.
#[test]
fn rejected_operation_throttles_no_other() {
    for policy in [PACED, ADAPTIVE] {
        for times in [1.0, 10.0, 100.0] {
            for faulty in [Paths::One, Paths::Group, Paths::Endpoints(3)] {
                for honest in [Paths::One, Paths::Endpoints(5), Paths::Group] {
                    for seed in SEEDS {
                        let loads =
                            [load(10.0 * times, faulty, Answers::Rejects), load(10.0, honest, Answers::Accepts)];
                        let found = World::new(policy, seed).run(&loads, 60);
                        let served = sent(&found[1]);
                        let case = format!("{} {times} {faulty:?} {honest:?}, seed {seed}", policy.name());
                        assert!(served >= 0.995, "{case}: {served}");
                        // The throttle's bound: a load that is never accepted is sent as probes
                        // alone.
                        let probes = sum(&found[0][10..], |second| second.sent) / 50.0;
                        assert!(policy == ADAPTIVE || probes < 6.0, "{case}: {probes} a second");
                    }
                }
            }
        }
    }
}

/// The shown value is the throttled share of requests, and nothing half a minute after the end.
#[test]
fn throttled_share_counts_requests_throttled_by_operations() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut throttle = Throttle::new(at(0), PACED);
    let mut shown = vec![];
    for ms in 0..60_000 {
        let is_over = ms >= 20_000;
        for (endpoint, every) in [(1, 10), (2, 5)] {
            let operation = Operation::new(endpoint, endpoint);
            if ms % every == 0
                && let Verdict::Send(_) = throttle.ask_for(at(ms), Criticality::Critical, operation, &mut rng)
            {
                let outcome = if endpoint == 1 && !is_over { Outcome::Rejected } else { Outcome::Accepted };
                throttle.on_outcome_of(at(ms), Criticality::Critical, operation, outcome);
            }
        }
        if ms % 10_000 == 9_999 {
            shown.push(throttle.throttled_share(at(ms), Criticality::Critical).as_f64());
        }
    }
    // A third of all requests are for the first.
    assert!((0.3..=0.34).contains(&shown[1]) && shown[5] < 0.01, "{shown:?}");
}

/// A limit within one handler: that endpoint is sent twice its accepted requests, and the others
/// everything.
#[test]
fn operation_with_its_own_limit_is_sent_k_times_that() {
    for seed in SEEDS {
        let loads = [load(200.0, Paths::One, Answers::Limited), load(20.0, Paths::One, Answers::Accepts)];
        let world = World { capacity: 20.0, ..World::new(PACED, seed) };
        let found = world.run(&loads, 120);
        assert!(sent(&found[1]) >= 0.995, "seed {seed}: {}", sent(&found[1]));
        let each_second = sum(&found[0][20..], |second| second.sent) / 100.0;
        assert!((36.0..=42.0).contains(&each_second), "seed {seed}: {each_second}");
    }
}

/// As without operations: requests sent are at most K times those accepted, and the capacity is
/// used.
#[test]
fn overloaded_cluster_is_sent_k_times_its_accepts_with_any_paths() {
    for paths in [Paths::One, Paths::Endpoints(3), Paths::Endpoints(30), Paths::Endpoints(1_000), Paths::Group] {
        for over in [4.0, 20.0] {
            for seed in SEEDS {
                let world = World { capacity: 50.0, ..World::new(PACED, seed) };
                let found = &world.run(&[load(50.0 * over, paths, Answers::Limited)], 200)[0][50..];
                let (sent, accepted) = (sum(found, |s| s.sent) / 7_500.0, sum(found, |s| s.accepted) / 7_500.0);
                let case = format!("{paths:?} at {over}×, seed {seed}: sent {sent:.2}, accepted {accepted:.2}");
                assert!(sent <= 2.15 && accepted >= 0.95, "{case}");
            }
        }
    }
}

/// One endpoint has half of the load: the others must not be sent more because of its accepted
/// requests.
#[test]
fn overloaded_cluster_with_a_large_operation_is_sent_k_times() {
    for seed in SEEDS {
        let loads = [load(250.0, Paths::One, Answers::Limited), load(250.0, Paths::Endpoints(1_000), Answers::Limited)];
        let world = World { capacity: 50.0, ..World::new(PACED, seed) };
        let found = world.run(&loads, 200);
        let sent: f64 = found.iter().map(|of| sum(&of[50..], |s| s.sent)).sum::<f64>() / 7_500.0;
        assert!(sent <= 2.3, "seed {seed}: {sent}");
    }
}

#[test]
fn throttle_by_operation_follows_an_outage_within_seconds() {
    for paths in [Paths::One, Paths::Endpoints(3), Paths::Endpoints(8), Paths::Endpoints(1_000), Paths::Group] {
        for seed in SEEDS {
            let world = World { outage: (30.0, 210.0), ..World::new(PACED, seed) };
            let found = &world.run(&[load(100.0, paths, Answers::Accepts)], 230)[0];
            let each = |from: usize, to: usize| sum(&found[from..to], |s| s.sent) / (to - from) as f64;
            let recovered = (210..230).find(|s| found[*s].accepted as f64 >= 0.9 * found[*s].asked as f64);
            let case = format!("{paths:?}, seed {seed}: {}, then {}, {recovered:?}", each(35, 45), each(150, 210));
            assert!(each(35, 45) < 4.0 && each(150, 210) < 4.0, "{case}");
            assert!(recovered.is_some_and(|second| second + 1 - 210 <= 6), "{case}");
        }
    }
}

/// Seed 1. The ratio has no headroom, so a few rejections would throttle most of the next requests.
#[test]
fn adaptive_cluster_throttles_operations_after_32_outcomes() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut throttle = Throttle::new(at(0), ADAPTIVE);
    let mut holds = |throttle: &mut Throttle, operation| {
        let verdicts = (0..20).map(|_| throttle.ask_for(at(0), Criticality::Critical, operation, &mut rng));
        verdicts.filter(|verdict| matches!(verdict, Verdict::Throttle(_))).count()
    };
    let other = Operation::new(1_000, 1_000);
    for number in 1..=32 {
        assert_eq!(holds(&mut throttle, other), 0, "before rejection {number}");
        let operation = Operation::new(number, number);
        throttle.on_outcome_of(at(0), Criticality::Critical, operation, Outcome::Rejected);
    }
    assert!(holds(&mut throttle, other) > 10);
    // Unknown operations are throttled from the first rejection on.
    let mut throttle = Throttle::new(at(0), ADAPTIVE);
    let _verdict = throttle.ask(at(0), Criticality::Critical, &mut Pcg64Mcg::seed_from_u64(1));
    throttle.on_outcome(at(0), Criticality::Critical, Outcome::Rejected);
    assert!(holds(&mut throttle, Operation::UNKNOWN) > 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(32), ..ProptestConfig::default() })]

    /// Up to three faulty endpoints, at any rates, and any honest ones.
    #[test]
    fn faulty_operations_throttle_no_other(
        faulty in prop::collection::vec((1.0..200.0_f64, any::<bool>()), 1..=3),
        honest in prop::collection::vec((1.0..40.0_f64, 1..20_u64), 1..4),
        seed: u64,
    ) {
        let bad = faulty.iter().map(|(rate, is_group)| {
            load(*rate, if *is_group { Paths::Group } else { Paths::One }, Answers::Rejects)
        });
        let good = honest.iter().map(|(rate, count)| load(*rate, Paths::Endpoints(*count), Answers::Accepts));
        let loads: Vec<Load> = bad.chain(good).collect();
        let found = World::new(PACED, seed).run(&loads, 30);
        let good = &found[faulty.len()..];
        let asked: f64 = good.iter().map(|of| sum(of, |s| s.asked)).sum();
        let sent: f64 = good.iter().map(|of| sum(of, |s| s.sent)).sum();
        prop_assert!(sent >= 0.995 * asked, "{sent} of {asked} were sent");
    }
}

//! `prequal` with frugal live probes: which backends are probed, and the use of their answers.

use plimsoll_core::pick::{PolicyKind, PrequalConfig, ProbeSource};
use plimsoll_core::{BackendId, Balancer, BalancerConfig, Completion, LoadReport, Outcome, Pick, Timestamp, Weight};
use rand_pcg::Pcg64Mcg;
use std::num::NonZeroU32;
use std::time::Duration;

const FRUGAL: ProbeSource = ProbeSource::Frugal;

#[test]
fn only_backends_without_a_recent_report_are_probed() {
    let mut fleet = Fleet::new(10, FRUGAL);
    let mut probed = vec![0; 10];
    for _ in 0..5_000 {
        for index in 0..10 {
            // Only just too old: the last report of 3 and 8 was a second ago.
            if ![3, 8].contains(&index) || fleet.ticks.is_multiple_of(100) {
                fleet.report(index, 5);
            }
        }
        fleet.request(|_| None);
        fleet.probes().iter().for_each(|index| probed[*index] += 1);
        fleet.pass(20);
    }
    assert!(probed[3] > 20 && probed[8] > 20, "{probed:?}");
    probed[3] = 0;
    probed[8] = 0;
    assert_eq!(probed, vec![0; 10]);
}

#[test]
fn a_pick_requests_half_a_probe_at_most() {
    let mut fleet = Fleet::new(1_000, FRUGAL);
    let mut total = 0;
    for _ in 0..1_000 {
        fleet.request(|_| None);
        let probes = fleet.probes().len();
        assert!(probes <= 1);
        total += probes;
        fleet.pass(10);
    }
    assert_eq!(total, 500, "no backend has ever reported");
}

#[test]
fn no_backend_is_probed_unless_the_policy_has_live_probes() {
    let policies = PolicyKind::ALL.into_iter().filter(|policy| *policy != PolicyKind::Prequal);
    let all = policies.map(|policy| (policy, FRUGAL)).chain([(PolicyKind::Prequal, ProbeSource::Responses)]);
    for (policy, source) in all {
        let mut fleet = Fleet::of(policy, 10, source);
        for _ in 0..100 {
            fleet.request(|_| None);
            assert_eq!(fleet.probes(), [], "{policy}");
            fleet.pass(100);
        }
    }
}

/// One of 20 backends is idle, each for five seconds. Answers to probes find it; without them, a
/// request that is sent in place of the unanswered probe may.
#[test]
fn answers_lead_requests_to_an_idle_backend() {
    let share_of_idle = |answers: bool| {
        let mut fleet = Fleet::new(20, FRUGAL);
        let mut idle_picks = 0;
        for step in 0..5_000 {
            let idle = (step / 50) % 20;
            let in_flight = |index| if index == idle { 0 } else { 20 };
            let before = fleet.picked[idle];
            fleet.request(|index| Some(in_flight(index)));
            idle_picks += fleet.picked[idle] - before;
            for index in fleet.probes() {
                if answers {
                    fleet.report(index, in_flight(index));
                }
            }
            fleet.pass(100);
        }
        idle_picks as f64 / 5_000.0
    };
    let (with, without) = (share_of_idle(true), share_of_idle(false));
    assert!(with > 0.3 && without < 0.2, "{with} with answers, {without} without");
}

/// Found by probes alone: no response brings a report.
#[test]
fn answers_decide_where_responses_bring_no_report() {
    let mut fleet = Fleet::new(20, FRUGAL);
    for _ in 0..4_000 {
        fleet.request(|_| None);
        for index in fleet.probes() {
            fleet.report(index, if index < 5 { 2 } else { 20 });
        }
        fleet.pass(20);
    }
    let idle: u64 = fleet.picked[..5].iter().sum();
    // Of 20 backends 5 are idle; best of three of four.
    assert!(idle > 2_000, "{:?}", fleet.picked);
}

#[test]
fn silent_backend_gets_no_more_than_its_even_share_and_is_not_starved() {
    let mut fleet = Fleet::new(10, FRUGAL);
    for _ in 0..20_000 {
        fleet.request(|index| (index != 0).then_some(5));
        for index in fleet.probes() {
            if index != 0 {
                fleet.report(index, 5);
            }
        }
        fleet.pass(50);
    }
    let share = fleet.picked[0] as f64 / 20_000.0;
    assert!((0.005..=0.1).contains(&share), "{share}");
}

#[test]
fn unanswered_probe_is_not_repeated_within_the_useful_age() {
    let mut fleet = Fleet::new(2, FRUGAL);
    let mut last = [None; 2];
    for _ in 0..2_000 {
        fleet.request(|_| None);
        for index in fleet.probes() {
            let waited = last[index].replace(fleet.now).map(|before| fleet.now.since(before));
            assert!(waited.is_none_or(|waited| waited >= PrequalConfig::DEFAULT_MAX_AGE), "{waited:?}");
        }
        fleet.pass(30);
    }
    assert!(last.iter().all(Option::is_some));
}

#[test]
fn backend_that_is_drained_or_gone_is_neither_probed_nor_picked() {
    let mut fleet = Fleet::new(3, FRUGAL);
    for _ in 0..50 {
        fleet.request(|_| None);
        fleet.pass(1_000);
    }
    fleet.balancer.drain(fleet.now, fleet.ids[0], &mut ());
    fleet.balancer.remove(fleet.now, fleet.ids[1], &mut ());
    assert!(fleet.probes().iter().all(|index| *index == 2));
    let before = fleet.picked.clone();
    for _ in 0..200 {
        // It still answers the requests that it has.
        fleet.report(0, 0);
        fleet.request(|_| Some(50));
        assert!(fleet.probes().iter().all(|index| *index == 2));
        fleet.pass(10);
    }
    assert_eq!(fleet.picked, [before[0], before[1], before[2] + 200]);
}

#[test]
fn probes_that_nobody_polls_do_not_pile_up() {
    let mut fleet = Fleet::new(100, FRUGAL);
    for _ in 0..10_000 {
        fleet.request(|_| None);
        fleet.pass(10);
    }
    assert!((1..=4).contains(&fleet.probes().len()));
}

#[test]
fn live_probes_begin_with_a_change_of_configuration() {
    let mut fleet = Fleet::new(10, ProbeSource::Responses);
    for index in 0..10 {
        fleet.report(index, 3);
        fleet.request(|_| Some(3));
    }
    fleet.balancer.set_config(fleet.now, config(PolicyKind::Prequal, FRUGAL));
    for _ in 0..10 {
        fleet.request(|_| None);
    }
    assert_eq!(fleet.probes().len(), 4, "polled late, so no more than are kept");
    assert_eq!(fleet.picked.iter().sum::<u64>(), 20);
}

fn config(policy: PolicyKind, source: ProbeSource) -> BalancerConfig {
    let mut config = BalancerConfig::new(policy);
    config.prequal.source = source;
    config.max_active_requests = NonZeroU32::new(1_000_000).expect("not zero");
    config.outlier.consecutive_failures = None;
    config.outlier.success_rate_stdev = None;
    config
}

/// Backends with scripted reports.
struct Fleet {
    balancer: Balancer,
    ids: Vec<BackendId>,
    rng: Pcg64Mcg,
    now: Timestamp,
    ticks: u64,
    picked: Vec<u64>,
}

impl Fleet {
    fn new(backends: usize, source: ProbeSource) -> Self {
        Self::of(PolicyKind::Prequal, backends, source)
    }

    fn of(policy: PolicyKind, backends: usize, source: ProbeSource) -> Self {
        let mut balancer = Balancer::new(config(policy, source));
        let now = Timestamp::ZERO;
        let ids: Vec<BackendId> = (0..backends).map(|_| balancer.add(now, Weight::ONE, &mut ())).collect();
        for id in &ids {
            balancer.on_connected(now, *id, &mut ());
        }
        Self { balancer, ids, rng: plimsoll_testkit::seeded(5), now, ticks: 0, picked: vec![0; backends] }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.ticks += 1;
    }

    fn report(&mut self, index: usize, in_flight: u32) {
        let latency = Some(Duration::from_millis(20));
        let report = LoadReport { in_flight: Some(in_flight), latency, ..LoadReport::default() };
        self.balancer.on_report(self.now, self.ids[index], &report, &mut ());
    }

    /// A request that ends at once, with this report of its backend.
    fn request(&mut self, in_flight: impl Fn(usize) -> Option<u32>) {
        let Pick::Backend(id) = self.balancer.pick(self.now, &mut self.rng) else { panic!("no backend") };
        let index = self.ids.iter().position(|known| *known == id).expect("a member");
        self.picked[index] += 1;
        let completion = Completion { outcome: Outcome::Success, latency: Some(Duration::from_millis(20)) };
        self.balancer.finish(self.now, id, completion, &mut ());
        if let Some(in_flight) = in_flight(index) {
            self.report(index, in_flight);
        }
    }

    fn probes(&mut self) -> Vec<usize> {
        let mut probes = Vec::new();
        while let Some(id) = self.balancer.poll_probe(&mut self.rng) {
            probes.push(self.ids.iter().position(|known| *known == id).expect("a member"));
        }
        probes
    }
}

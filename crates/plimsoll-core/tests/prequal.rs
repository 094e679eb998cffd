//! The rules of `prequal`: pool, hot and cold, probes.

use plimsoll_core::pick::{PolicyKind, PrequalConfig, ProbeAnswer, ProbeRule, ProbeSource};
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, LoadReport, Outcome, Pick, Ratio, Timestamp, Weight,
};
use plimsoll_testkit::stats::assert_share;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

const FALSE_ALARM: f64 = 1e-6;

#[test]
fn quickest_cold_backend_is_picked_and_a_hot_one_is_not() {
    let mut config = live();
    config.hot_quantile = Ratio::from_percent(75);
    let mut table = Table::new(4, config);
    // The last is quickest, and hot: three quarters of the probed have at most 3 in flight.
    table.answers(&[(1, 30), (2, 10), (3, 20), (90, 1)]);
    assert_eq!(table.pick(), 1);
}

#[test]
fn when_all_are_hot_the_fewest_in_flight_is_chosen() {
    let mut config = live();
    config.hot_quantile = Ratio::ZERO;
    let mut table = Table::new(3, config);
    // The threshold is the lowest count of any probe, and that backend is probed again.
    table.answers(&[(1, 90), (7, 10), (5, 20)]);
    table.answer(0, 9, 90);
    assert_eq!(table.pick(), 2);
}

#[test]
fn fewer_than_two_answers_decide_nothing() {
    let mut table = Table::new(4, live());
    for _ in 0..40_000 {
        table.answer(2, 0, 1);
        table.step();
        table.pass(1_000);
    }
    for count in table.picked.clone() {
        assert_share("uniform", count, 40_000, 0.25, FALSE_ALARM);
    }
}

#[test]
fn an_answer_is_too_old_after_a_second() {
    let mut table = Table::new(2, live());
    table.answers(&[(5, 10), (0, 1)]);
    table.pass(999);
    assert_eq!(table.pick(), 1);
    let mut drawn = BTreeSet::new();
    for _ in 0..40 {
        table.answers(&[(5, 10), (0, 1)]);
        table.pass(1_000);
        // Finished, or the backend's own load would move requests away from it.
        drawn.insert(table.pick_and_finish());
    }
    assert_eq!(drawn, BTreeSet::from([0, 1]));
}

#[test]
fn each_use_counts_as_a_request_in_flight() {
    let mut config = live();
    config.rule = ProbeRule::LeastInFlight;
    config.removals_per_pick = 0.0;
    let mut table = Table::new(2, config);
    table.answers(&[(0, 1), (3, 1)]);
    let picks: Vec<usize> = (0..4).map(|_| table.pick_and_finish()).collect();
    assert_eq!(picks[..3], [0, 0, 0]);
    // Now they are equal; either, then the other.
    let next = table.pick_and_finish();
    assert_ne!(picks[3], next);
}

#[test]
fn an_answer_is_used_as_often_as_the_formula_says() {
    // 100 backends, pool 16, 2 probes and no removal a pick, δ = 1: 2 ÷ (0.84 · 2) = 1.19 uses on
    // average.
    let mut config = live();
    config.probes_per_pick = 2.0;
    config.removals_per_pick = 0.0;
    let mut table = Table::new(100, config);
    let mut twice = 0;
    for _ in 0..1_000 {
        // Two answers, one by far the better: it is used until it leaves the pool.
        table.pass(2_000);
        table.answer(7, 0, 1);
        twice += usize::from(table.uses_of(7) == 2);
    }
    let share = f64::from(twice as u32) / 1_000.0;
    // Of the later picks, one in a hundred goes to it by chance.
    assert!((share - 0.19).abs() < 0.02, "a second use of {share} of the answers");
}

#[test]
fn three_distinct_backends_are_probed_for_each_pick() {
    let mut table = Table::new(10, live());
    let mut probed = [0_u64; 10];
    for _ in 0..10_000 {
        table.step();
        let round: Vec<usize> = table.probes();
        assert_eq!(round.len(), 3);
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 3, "{round:?}");
        round.iter().for_each(|index| probed[*index] += 1);
    }
    // The draws are not quite independent. Draws without replacement vary less, which only makes
    // the assert laxer.
    for count in probed {
        assert_share("probes", count, 30_000, 0.1, FALSE_ALARM);
    }
}

#[test]
fn fractions_of_a_probe_add_up() {
    let mut config = live();
    config.probes_per_pick = 0.25;
    let mut table = Table::new(10, config);
    let probes: usize = (0..1_000)
        .map(|_| {
            table.step();
            table.probes().len()
        })
        .sum();
    assert_eq!(probes, 250);
}

#[test]
fn fast_failing_backend_is_hot_when_it_reports_none_in_flight() {
    let mut table = Table::new(10, live());
    let mut drawn = 0;
    for i in 0..2_000 {
        let answers: Vec<(u32, u64)> = (0..10).map(|index| if index == 0 { (0, 0) } else { (3, 20) }).collect();
        table.answers(&answers);
        let index = table.pick();
        let outcome = if index == 0 { Outcome::Failure } else { Outcome::Success };
        table.finish_as(index, outcome, if index == 0 { 0 } else { 20 });
        drawn += u64::from(i >= 100 && index == 0);
        table.pass(5);
    }
    assert!(drawn <= 190, "{drawn} of 1900 went to the backend that fails");
}

/// A server that waits for others has hundreds of requests in flight. A penalty of a hundred would
/// leave a fast-failing one the least loaded. This client has a tenth of the requests in flight of
/// 10 clients.
#[test]
fn fast_failing_backend_is_hot_at_any_load_of_the_others() {
    for source in [ProbeSource::Live, ProbeSource::Responses, ProbeSource::Frugal] {
        let mut config = live();
        config.source = source;
        let mut table = Table::new(10, config);
        let mut drawn = 0;
        for i in 0..4_000 {
            for index in 0..10 {
                let (in_flight, latency_ms) = if index == 0 { (0, 0) } else { (800, 20) };
                match source {
                    ProbeSource::Live => table.answer(index, in_flight, latency_ms),
                    ProbeSource::Responses | ProbeSource::Frugal => table.report(index, in_flight, latency_ms),
                }
            }
            let index = table.pick();
            let outcome = if index == 0 { Outcome::Failure } else { Outcome::Success };
            table.finish_as(index, outcome, if index == 0 { 0 } else { 20 });
            drawn += u64::from(i >= 1_000 && index == 0);
            table.pass(5);
        }
        // Once in a while its failures have faded, and it gets another request.
        assert!(drawn <= 60, "{source:?}: {drawn} of 3000 went to the backend that fails");
    }
}

/// A silent backend's requests in flight for other clients are unknown. It must not look idle
/// beside backends that report.
#[test]
fn a_backend_that_reports_nothing_gets_no_more_than_others() {
    let mut table = Table::new(10, PrequalConfig::default());
    for _ in 0..20_000 {
        for index in 1..10 {
            table.report(index, 300, 20);
        }
        table.step();
        table.pass(1);
    }
    // Drawn among three of ten each time, and then one of three alike.
    assert_share("silent", table.picked[0], 20_000, 0.1, FALSE_ALARM);
}

/// Weights are relative: with all at 8, or all at 1/8, the same backends are hot. Three have 20 in
/// flight and one, the quickest, has 22. It is hot by a threshold of 75%.
#[test]
fn hot_backends_do_not_depend_on_the_scale_of_weights() {
    for weight in [0.125, 1.0, 1.25, 8.0] {
        let mut config = live();
        config.hot_quantile = Ratio::from_percent(75);
        let mut table = Table::of_weight(weight, 4, config);
        table.answers(&[(20, 30), (20, 10), (20, 20), (22, 1)]);
        assert_eq!(table.pick(), 1, "all of weight {weight}");
    }
}

#[test]
fn settings_and_answers_that_make_no_sense_do_no_harm() {
    for strange in [f64::NAN, f64::INFINITY, 1e300, 0.0] {
        let mut config = live();
        config.pool = NonZeroU32::MAX;
        config.probes_per_pick = strange;
        config.removals_per_pick = strange;
        config.reuse_delta = strange;
        let mut table = Table::new(3, config);
        for _ in 0..20 {
            (0..3).for_each(|index| table.answer(index, u32::MAX, 1));
            table.step();
            table.probes();
        }
        assert_eq!(table.picked.iter().sum::<u64>(), 20, "{strange}");
    }
}

#[test]
fn reports_in_responses_decide_without_probes() {
    let mut table = Table::new(3, PrequalConfig::default());
    for _ in 0..200 {
        for (index, (in_flight, latency_ms)) in [(4, 30), (4, 10), (4, 20)].into_iter().enumerate() {
            table.report(index, in_flight, latency_ms);
        }
        table.step();
        table.pass(10);
    }
    assert!(table.probes().is_empty(), "no backend is probed");
    assert!(table.picked[1] > 150, "{:?}", table.picked);
}

#[test]
fn own_requests_decide_without_reports() {
    let mut table = Table::new(3, PrequalConfig::default());
    for _ in 0..9 {
        table.pick();
    }
    assert_eq!(table.picked, [3, 3, 3]);
}

#[test]
fn requests_sent_since_a_report_count_on_top_of_it() {
    let mut table = Table::new(2, PrequalConfig::default());
    for (index, in_flight) in [(0, 2), (1, 5)] {
        let report = LoadReport { in_flight: Some(in_flight), ..LoadReport::default() };
        table.balancer.on_report(table.now, table.ids[index], &report, &mut ());
    }
    // Three bring the first level with the second; then either.
    let picks: Vec<usize> = (0..5).map(|_| table.pick()).collect();
    assert_eq!(picks[..3], [0, 0, 0]);
    assert_ne!(picks[3], picks[4]);
}

#[test]
fn answers_of_backends_that_left_are_dropped() {
    let mut table = Table::new(3, live());
    table.answers(&[(0, 1), (5, 50), (5, 50)]);
    let gone = table.ids[0];
    table.balancer.remove(table.now, gone, &mut ());
    table.balancer.on_probe(table.now, gone, ProbeAnswer { in_flight: 0, latency: None });
    assert_ne!(table.pick(), 0);
}

#[test]
fn c3_weighs_its_own_requests_by_the_number_of_clients() {
    let mut config = live();
    config.rule = ProbeRule::C3 { clients: 10 };
    let mut table = Table::new(2, config);
    table.answers(&[(10, 10), (0, 10)]);
    assert_eq!(table.pick(), 1);
    // One request of this client stands for ten: 0 + 10 + 1 (the use) against 10.
    table.answer(0, 10, 10);
    assert_eq!(table.pick(), 0);
}

#[test]
fn linear_weighs_latency_against_requests_in_flight() {
    let rule = |percent| ProbeRule::Linear {
        in_flight_share: Ratio::from_percent(percent),
        per_request: Duration::from_millis(75),
    };
    for (percent, expected) in [(0, 0), (100, 1)] {
        let mut config = live();
        config.rule = rule(percent);
        let mut table = Table::new(2, config);
        table.answers(&[(9, 10), (1, 90)]);
        assert_eq!(table.pick(), expected, "{percent}%");
    }
}

fn live() -> PrequalConfig {
    let mut config = PrequalConfig::default();
    config.source = ProbeSource::Live;
    config
}

/// Backends with scripted answers.
struct Table {
    balancer: Balancer,
    ids: Vec<BackendId>,
    rng: Pcg64Mcg,
    now: Timestamp,
    picked: Vec<u64>,
}

impl Table {
    fn new(backends: usize, prequal: PrequalConfig) -> Self {
        Self::of_weight(1.0, backends, prequal)
    }

    fn of_weight(weight: f64, backends: usize, prequal: PrequalConfig) -> Self {
        let weight = Weight::new(weight).expect("in range");
        let mut config = BalancerConfig::new(PolicyKind::Prequal);
        config.prequal = prequal;
        config.max_active_requests = NonZeroU32::new(1_000_000).expect("not zero");
        config.outlier.consecutive_failures = None;
        config.outlier.success_rate_stdev = None;
        let mut balancer = Balancer::new(config);
        let now = Timestamp::ZERO;
        let ids: Vec<BackendId> = (0..backends).map(|_| balancer.add(now, weight, &mut ())).collect();
        for id in &ids {
            balancer.on_connected(now, *id, &mut ());
        }
        Self { balancer, ids, rng: plimsoll_testkit::seeded(3), now, picked: vec![0; backends] }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn answer(&mut self, index: usize, in_flight: u32, latency_ms: u64) {
        let answer = ProbeAnswer { in_flight, latency: Some(Duration::from_millis(latency_ms)) };
        self.balancer.on_probe(self.now, self.ids[index], answer);
    }

    fn report(&mut self, index: usize, in_flight: u32, latency_ms: u64) {
        let latency = Some(Duration::from_millis(latency_ms));
        let report = LoadReport { in_flight: Some(in_flight), latency, ..LoadReport::default() };
        self.balancer.on_report(self.now, self.ids[index], &report, &mut ());
    }

    fn answers(&mut self, answers: &[(u32, u64)]) {
        for (index, (in_flight, latency_ms)) in answers.iter().enumerate() {
            self.answer(index, *in_flight, *latency_ms);
        }
    }

    fn pick(&mut self) -> usize {
        let Pick::Backend(id) = self.balancer.pick(self.now, &mut self.rng) else { panic!("no backend") };
        let index = self.ids.iter().position(|known| *known == id).expect("a member");
        self.picked[index] += 1;
        index
    }

    fn finish_as(&mut self, index: usize, outcome: Outcome, latency_ms: u64) {
        let completion = Completion { outcome, latency: Some(Duration::from_millis(latency_ms)) };
        self.balancer.finish(self.now, self.ids[index], completion, &mut ());
    }

    fn pick_and_finish(&mut self) -> usize {
        let index = self.pick();
        self.finish_as(index, Outcome::Success, 1);
        index
    }

    fn step(&mut self) {
        self.pick_and_finish();
    }

    fn probes(&mut self) -> Vec<usize> {
        let mut probes = Vec::new();
        while let Some(id) = self.balancer.poll_probe(&mut self.rng) {
            probes.push(self.ids.iter().position(|known| *known == id).expect("a member"));
        }
        probes
    }

    /// Picks that the last answer of `index` decides, beside another that is much worse.
    fn uses_of(&mut self, index: usize) -> usize {
        let bad = (index + 1) % self.ids.len();
        self.answer(bad, 500, 5_000);
        let mut uses = 0;
        // Once the better one has left the pool, one answer is left and decides nothing. The choice
        // is then any of a hundred.
        while self.pick_and_finish() == index {
            uses += 1;
        }
        uses
    }
}

//! Each policy against a plain reference: a scan, or a formula.
//!
//! Backends have been healthy for a long time and fail nothing, so that the test sees the policy
//! alone. Statistical asserts: the seed is that of [`Table::new`], n is the number of picks, the
//! chance of a false alarm is [`FALSE_ALARM`] each.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::pick::{PolicyKind, WeightedConfig};
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, LoadReport, Operation, Outcome, Pick, Timestamp, Weight,
};
use plimsoll_testkit::seeded;
use plimsoll_testkit::stats::assert_share;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

const FALSE_ALARM: f64 = 1e-6;

/// Backends that have been healthy for a long time.
struct Table {
    balancer: Balancer,
    ids: Vec<BackendId>,
    rng: Pcg64Mcg,
    now: Timestamp,
}

impl Table {
    fn new(policy: PolicyKind, weights: &[f64]) -> Self {
        let max_active_requests = NonZeroU32::new(1_000_000).expect("not zero");
        let mut config = BalancerConfig::new(policy);
        config.max_active_requests = max_active_requests;
        let mut balancer = Balancer::new(config);
        let ids: Vec<BackendId> = weights
            .iter()
            .map(|weight| {
                let id = balancer.add(Timestamp::ZERO, Weight::new(*weight).expect("in range"), &mut ());
                balancer.on_connected(Timestamp::ZERO, id, &mut ());
                id
            })
            .collect();
        let mut table = Self { balancer, ids, rng: seeded(1), now: Timestamp::ZERO };
        table.pass(60_000);
        table
    }

    fn equal(policy: PolicyKind, n: usize) -> Self {
        Self::new(policy, &vec![1.0; n])
    }

    /// As [`Table::equal`], without ejection.
    fn without_ejection(policy: PolicyKind, n: usize) -> Self {
        let mut table = Self::equal(policy, n);
        let mut config = BalancerConfig::new(policy);
        config.outlier.consecutive_failures = None;
        config.outlier.success_rate_stdev = None;
        table.balancer.set_config(table.now, config);
        table
    }

    /// Changes all weights, as an update of membership does.
    fn weigh(&mut self, weights: &[f64]) {
        for (id, weight) in self.ids.iter().zip(weights) {
            self.balancer.set_weight(self.now, *id, Weight::new(*weight).expect("in range"));
        }
        self.pass(0);
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.balancer.handle_timeout(self.now, &mut ());
    }

    fn pick(&mut self) -> usize {
        match self.balancer.pick(self.now, &mut self.rng) {
            Pick::Backend(id) => self.ids.iter().position(|known| *known == id).expect("a member"),
            other => panic!("all are healthy, yet {other:?}"),
        }
    }

    fn finish_as(&mut self, index: usize, outcome: Outcome, latency_ms: u64) {
        let completion = Completion { outcome, latency: Some(Duration::from_millis(latency_ms)) };
        self.balancer.finish(self.now, self.ids[index], completion, &mut ());
    }

    fn finish(&mut self, index: usize) {
        self.finish_as(index, Outcome::Success, 10);
    }

    /// Gives each backend this many active requests, against the policy if needed.
    fn load(&mut self, active: &[usize]) {
        let mut missing = active.to_vec();
        let mut surplus = Vec::new();
        while missing.iter().any(|n| *n > 0) {
            let index = self.pick();
            match missing[index].checked_sub(1) {
                Some(fewer) => missing[index] = fewer,
                None => surplus.push(index),
            }
        }
        surplus.into_iter().for_each(|index| self.finish(index));
    }

    /// The number of picks of each backend, if each request ends before the next begins.
    fn shares(&mut self, picks: usize) -> Vec<u64> {
        let mut counts = vec![0; self.ids.len()];
        for _ in 0..picks {
            let index = self.pick();
            counts[index] += 1;
            self.finish(index);
        }
        counts
    }

    fn report(&mut self, index: usize, utilization: f64, qps: f64) {
        let report = LoadReport { cpu_utilization: utilization, qps, ..LoadReport::default() };
        self.balancer.on_report(self.now, self.ids[index], &report, &mut ());
    }
}

#[test]
fn names_are_read_back() {
    for policy in PolicyKind::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert!("fastest".parse::<PolicyKind>().is_err());
}

#[test]
fn random_draws_in_proportion_to_configured_weights() {
    let weights = [1.0, 1.0, 2.0, 4.0];
    let counts = Table::new(PolicyKind::Random, &weights).shares(40_000);
    for (weight, count) in weights.iter().zip(counts) {
        assert_share("random", count, 40_000, weight / 8.0, FALSE_ALARM);
    }
}

#[test]
fn random_draws_are_independent_of_the_draw_before() {
    let mut table = Table::equal(PolicyKind::Random, 4);
    let picks: Vec<usize> = (0..40_000).map(|_| table.pick()).collect();
    for first in 0..4 {
        for second in 0..4 {
            let count = picks.windows(2).filter(|pair| *pair == [first, second]).count();
            assert_share("pairs", count as u64, 39_999, 1.0 / 16.0, FALSE_ALARM);
        }
    }
}

proptest! {
    /// In any n picks in a row each of n backends is picked once, with any events in between.
    #[test]
    fn round_robin_takes_each_in_turn(n in 1..40_usize, finished in prop::collection::vec(any::<bool>(), 200)) {
        let mut table = Table::equal(PolicyKind::RoundRobin, n);
        let mut picks = Vec::new();
        for finish in finished {
            let index = table.pick();
            picks.push(index);
            if finish {
                table.finish(index);
            }
        }
        for window in picks.windows(n) {
            let mut window = window.to_vec();
            window.sort_unstable();
            prop_assert_eq!(window, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn round_robin_keeps_to_configured_weights(weights in prop::collection::vec(1..9_u32, 2..12)) {
        let total: u32 = weights.iter().sum();
        let as_f64: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
        let counts = Table::new(PolicyKind::RoundRobin, &as_f64).shares(1_000 * total as usize);
        for (weight, count) in weights.iter().zip(counts) {
            let want = f64::from(1_000 * weight);
            prop_assert!((count as f64 - want).abs() <= 3.0 + 0.002 * want, "{count} for {want}");
        }
    }

    /// Against a scan: the fewest active requests. Among equals, the backend that has had this
    /// number, or was passed over, the longest.
    #[test]
    fn least_loaded_is_what_a_scan_finds(n in 1..12_usize, steps in prop::collection::vec((any::<bool>(), 0..64_usize), 1..400)) {
        let mut table = Table::equal(PolicyKind::LeastLoaded, n);
        let mut active = vec![0_u32; n];
        let mut waiting_since: Vec<usize> = (0..n).collect();
        let mut outstanding: Vec<usize> = Vec::new();
        for (time, (pick, which)) in steps.into_iter().enumerate() {
            let changed = if pick || outstanding.is_empty() {
                let want = (0..n).min_by_key(|i| (active[*i], waiting_since[*i])).expect("there are some");
                prop_assert_eq!(table.pick(), want, "active {:?}", active);
                active[want] += 1;
                outstanding.push(want);
                want
            } else {
                let index = outstanding.swap_remove(which % outstanding.len());
                table.finish(index);
                active[index] -= 1;
                index
            };
            waiting_since[changed] = n + time;
        }
    }

    /// With any loads and weights, no picked backend has a load by weight that exceeds another's by
    /// a whole request.
    #[test]
    fn least_loaded_counts_by_weight(weights in prop::collection::vec(1..5_u32, 1..8), picks in 1..120_usize) {
        let as_f64: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
        let mut table = Table::new(PolicyKind::LeastLoaded, &as_f64);
        let mut active = vec![0.0_f64; weights.len()];
        for _ in 0..picks {
            let index = table.pick();
            let least = active.iter().zip(&as_f64).map(|(a, w)| a / w).fold(f64::INFINITY, f64::min);
            prop_assert!(active[index] / as_f64[index] < least + 1.0, "{} of {:?} by {:?}", index, active, weights);
            active[index] += 1.0;
        }
    }
}

/// Weights of up to eleven backends before and after a change, and whether the backend reports its
/// load.
fn changed_weights() -> impl Strategy<Value = Vec<((u32, u32), bool)>> {
    prop::collection::vec(((1..5_u32, 1..5_u32), any::<bool>()), 1..12)
}

proptest! {
    /// A balancer with changed weights picks exactly like one built with them.
    #[test]
    fn changed_weights_pick_as_weights_from_the_start(
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        backends in changed_weights(),
        steps in prop::collection::vec((any::<bool>(), 0..64_usize), 1..200),
    ) {
        let before: Vec<f64> = backends.iter().map(|((before, _), _)| f64::from(*before)).collect();
        let after: Vec<f64> = backends.iter().map(|((_, after), _)| f64::from(*after)).collect();
        let [mut changed, mut built] = [&before, &after].map(|weights| {
            let mut table = Table::new(policy, weights);
            // After the blackout, so that known capabilities and configured weights are mixed.
            for _ in 0..3 {
                let reports = backends.iter().enumerate().filter(|(_, (_, reports))| *reports);
                reports.for_each(|(index, _)| table.report(index, 0.2 + 0.1 * index as f64, 100.0));
                table.pass(6_000);
            }
            table
        });
        changed.weigh(&after);
        built.pass(0);
        let mut outstanding = Vec::new();
        for (pick, which) in steps {
            if pick || outstanding.is_empty() {
                let index = changed.pick();
                prop_assert_eq!(index, built.pick(), "{} of {:?}", outstanding.len(), backends);
                outstanding.push(index);
            } else {
                let index = outstanding.swap_remove(which % outstanding.len());
                changed.finish(index);
                built.finish(index);
            }
        }
        let weights = |table: &Table| table.balancer.snapshot(table.now).iter().map(|b| b.weight).collect::<Vec<_>>();
        prop_assert_eq!(weights(&changed), weights(&built));
    }

    /// As [`least_loaded_counts_by_weight`], for backends that have requests while their weights
    /// change.
    #[test]
    fn least_loaded_counts_by_changed_weights(backends in changed_weights(), picks in 1..120_usize) {
        let weights = |of: fn(&(u32, u32)) -> u32| backends.iter().map(|(w, _)| f64::from(of(w))).collect::<Vec<_>>();
        let (before, after) = (weights(|(before, _)| *before), weights(|(_, after)| *after));
        let mut table = Table::new(PolicyKind::LeastLoaded, &before);
        let mut active = vec![0.0_f64; backends.len()];
        (0..picks).for_each(|_| active[table.pick()] += 1.0);
        table.weigh(&after);
        for _ in 0..picks {
            let index = table.pick();
            let least = active.iter().zip(&after).map(|(a, w)| a / w).fold(f64::INFINITY, f64::min);
            prop_assert!(active[index] / after[index] < least + 1.0, "{} of {:?} by {:?}", index, active, after);
            active[index] += 1.0;
        }
    }
}

/// During traffic, from the opposite of the weights of [`every_policy_heeds_configured_weights`] to
/// these weights.
#[test]
fn every_policy_heeds_changed_weights() {
    for policy in PolicyKind::ALL {
        let mut table = Table::new(policy, &[2.0, 1.0, 2.0, 1.0]);
        table.load(&[30; 4]);
        table.weigh(&[1.0, 2.0, 1.0, 2.0]);
        assert_odd_backends_get_two_thirds(policy, &mut table);
    }
}

#[test]
fn changed_weight_keeps_the_knowledge_of_a_backend() {
    for policy in PolicyKind::ALL {
        let mut table = Table::new(policy, &[1.0, 1.0, 1.0]);
        table.load(&[3, 1, 2]);
        table.finish_as(0, Outcome::Failure, 40);
        table.finish_as(2, Outcome::Success, 20);
        table.report(1, 0.5, 100.0);
        let known = |table: &Table| {
            let mut snapshot = table.balancer.snapshot(table.now);
            snapshot.iter_mut().for_each(|backend| backend.weight = 1.0);
            snapshot
        };
        let before = known(&table);
        table.weigh(&[0.5, 4.0, 1.0]);
        assert_eq!(known(&table), before, "{policy}");
        let configured = table.balancer.snapshot(table.now).iter().map(|backend| backend.weight).collect::<Vec<_>>();
        assert_eq!(configured, [0.5, 4.0, 1.0], "{policy}");
    }
}

/// With n backends of different loads, the i-th least loaded wins against the n − 1 − i above it,
/// of n(n − 1)/2 pairs.
fn assert_wins_by_rank(counts: &[u64], by_rank: &[usize], picks: u64) {
    let n = by_rank.len();
    for (rank, index) in by_rank.iter().enumerate() {
        let p = (n - 1 - rank) as f64 / (n * (n - 1) / 2) as f64;
        assert_share(&format!("rank {rank}"), counts[*index], picks, p, FALSE_ALARM);
    }
}

#[test]
fn p2c_picks_the_less_loaded_of_two_distinct_backends() {
    let mut table = Table::equal(PolicyKind::P2c, 5);
    table.load(&[4, 1, 3, 0, 2]);
    let counts = table.shares(50_000);
    assert_wins_by_rank(&counts, &[3, 1, 4, 2, 0], 50_000);
}

#[test]
fn least_loaded_takes_turns_among_large_idle_backends() {
    // One request is a quarter of the load at a backend of weight 4, so it still counts as idle.
    let mut table = Table::new(PolicyKind::LeastLoaded, &[4.0; 3]);
    let picked: Vec<usize> = (0..9).map(|_| table.pick()).collect();
    for turn in picked.chunks(3) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2], "{picked:?}");
    }
}

#[test]
fn p2c_breaks_ties_evenly() {
    let counts = Table::equal(PolicyKind::P2c, 3).shares(30_000);
    for count in counts {
        assert_share("ties", count, 30_000, 1.0 / 3.0, FALSE_ALARM);
    }
}

#[test]
fn peak_ewma_picks_the_faster_of_two_equally_loaded_backends() {
    let mut table = Table::equal(PolicyKind::PeakEwma, 4);
    let latency_ms = [40, 10, 80, 20];
    // All active at once, so that each is picked.
    table.load(&[30; 4]);
    for (index, ms) in latency_ms.into_iter().enumerate() {
        (0..30).for_each(|_| table.finish_as(index, Outcome::Success, ms));
    }
    let mut counts = vec![0; 4];
    for _ in 0..40_000 {
        let index = table.pick();
        counts[index] += 1;
        table.finish_as(index, Outcome::Success, latency_ms[index]);
    }
    assert_wins_by_rank(&counts, &[1, 3, 0, 2], 40_000);
}

#[test]
fn peak_ewma_weighs_latency_by_active_requests() {
    let mut table = Table::equal(PolicyKind::PeakEwma, 2);
    table.load(&[30; 2]);
    for (index, ms) in [(0, 10), (1, 20)] {
        (0..30).for_each(|_| table.finish_as(index, Outcome::Success, ms));
    }
    // 10 ms × (active + 1) against 20 ms × (active + 1): the faster one gets up to twice as many.
    let mut active = [0.0_f64; 2];
    for _ in 0..300 {
        active[table.pick()] += 1.0;
    }
    assert!((active[0] / active[1] - 2.0).abs() < 0.05, "{active:?}");
}

/// Backends that differ only in their configured weight: twice the weight, twice the load.
#[test]
fn every_policy_heeds_configured_weights() {
    for policy in PolicyKind::ALL {
        let mut table = Table::new(policy, &[1.0, 2.0, 1.0, 2.0]);
        table.load(&[30; 4]);
        assert_odd_backends_get_two_thirds(policy, &mut table);
    }
}

#[test]
fn p2c_prefers_the_larger_of_two_idle_backends() {
    assert_eq!(Table::new(PolicyKind::P2c, &[1.0, 2.0]).shares(100), [0, 100]);
}

/// Backend 0 is idle after ten failures, backend 1 has five requests. The failures weigh more until
/// they fade.
#[test]
fn recent_failures_count_as_active_requests_and_fade() {
    for policy in [PolicyKind::LeastLoaded, PolicyKind::P2c, PolicyKind::PeakEwma] {
        let mut table = Table::without_ejection(policy, 2);
        table.load(&[15, 15]);
        (0..5).for_each(|_| table.finish(0));
        (0..10).for_each(|_| table.finish(1));
        (0..10).for_each(|_| table.finish_as(0, Outcome::Failure, 10));
        let next: Vec<usize> = (0..20).map(|_| table.pick()).collect();
        assert!(next.iter().filter(|index| **index == 0).count() <= 1, "{policy}: {next:?}");
        // A minute later the two differ only in their active requests.
        table.pass(60_000);
        table.finish(0);
        table.finish(1);
        let next: Vec<usize> = (0..10).map(|_| table.pick()).collect();
        assert!(next.iter().filter(|index| **index == 0).count() >= 9, "{policy}: {next:?}");
    }
}

#[test]
fn an_overloaded_answer_weighs_more_than_a_failure() {
    for policy in PolicyKind::ALL {
        let error_share = |outcome| {
            let mut table = Table::equal(policy, 1);
            (0..3).for_each(|_| {
                table.pick();
                table.finish_as(0, outcome, 1);
            });
            table.balancer.snapshot(table.now)[0].error_share
        };
        assert!(error_share(Outcome::Overloaded) > 1.5 * error_share(Outcome::Failure), "{policy}");
        assert_eq!(error_share(Outcome::Cancelled), 0.0, "{policy}");
    }
}

/// The formula again: capability = qps ÷ utilization, at most 10 × median and then at least 0.01 ×
/// mean, shares in proportion.
fn expected_shares(reports: &[(f64, f64)]) -> Vec<f64> {
    let capabilities: Vec<f64> = reports.iter().map(|(utilization, qps)| qps / utilization).collect();
    let mut sorted = capabilities.clone();
    sorted.sort_by(f64::total_cmp);
    let most = 10.0 * sorted[(sorted.len() - 1) / 2];
    let mean = capabilities.iter().map(|c| c.min(most)).sum::<f64>() / capabilities.len() as f64;
    let bounded: Vec<f64> = capabilities.iter().map(|c| c.min(most).max(0.01 * mean)).collect();
    let total: f64 = bounded.iter().sum();
    bounded.iter().map(|c| c / total).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn weighted_is_in_proportion_to_reported_capability(
        reports in prop::collection::vec((0.05..1.5_f64, 1.0..1000.0_f64), 2..16),
    ) {
        let mut table = Table::equal(PolicyKind::Weighted, reports.len());
        for second in 0..20 {
            if second < 12 {
                for (index, (utilization, qps)) in reports.iter().enumerate() {
                    table.report(index, *utilization, *qps);
                }
            }
            table.pass(1_000);
        }
        let picks = 20_000;
        let counts = table.shares(picks);
        for (want, count) in expected_shares(&reports).iter().zip(&counts) {
            let want = want * picks as f64;
            prop_assert!((*count as f64 - want).abs() <= 4.0 + 0.01 * want, "{} for {:.0}: {:?}", count, want, reports);
        }
    }
}

/// Backend 2 reports three times the capability of the others.
fn weighted_with(known: usize) -> Table {
    let mut table = Table::equal(PolicyKind::Weighted, 4);
    for index in (4 - known)..4 {
        table.report(index, 0.5, if index == 2 { 300.0 } else { 100.0 });
    }
    table
}

#[test]
fn weighted_is_least_loaded_while_fewer_than_two_are_known() {
    let mut table = weighted_with(1);
    table.pass(11_000);
    table.load(&[5, 3, 0, 5]);
    let next: Vec<usize> = (0..3).map(|_| table.pick()).collect();
    assert_eq!(next, [2, 2, 2]);
}

#[test]
fn weighted_ignores_reports_during_blackout_and_after_expiry() {
    let mut table = weighted_with(4);
    let even = |counts: Vec<u64>| counts.iter().all(|count| *count == 250);
    table.pass(9_000);
    assert!(even(table.shares(1_000)), "in blackout");
    table.pass(2_000);
    let counts = table.shares(1_200);
    assert!((597..=603).contains(&counts[2]), "known: {counts:?}");
    let expiry = WeightedConfig::DEFAULT_EXPIRY.as_millis() as u64;
    table.pass(expiry);
    assert!(even(table.shares(1_000)), "stale");
}

/// After a restart the process may be another; after an ejection it is the same one.
#[test]
fn weighted_resets_unreachable_backend_but_not_ejected_one() {
    let share_of_2 = |table: &mut Table| table.shares(1_200)[2];
    let mut table = weighted_with(4);
    table.pass(11_000);
    let id = table.ids[2];
    table.balancer.on_connect_failed(table.now, id, &mut table.rng, &mut ());
    table.balancer.on_connected(table.now, id, &mut ());
    // Past slow start; it has not reported since.
    table.pass(11_000);
    assert!((297..=303).contains(&share_of_2(&mut table)), "of the mean");

    let mut table = weighted_with(4);
    table.pass(11_000);
    table.load(&[0, 0, 5, 0]);
    (0..5).for_each(|_| table.finish_as(2, Outcome::Failure, 10));
    assert_eq!(share_of_2(&mut table), 0, "ejected");
    // Time for the ejection, slow start, and the fading of failures.
    table.pass(30_000);
    table.pass(60_000);
    let share = share_of_2(&mut table);
    assert!((597..=603).contains(&share), "{share}");
}

#[test]
fn weighted_takes_an_unknown_backend_at_the_mean() {
    // Capabilities of 600 and 200; the two without reports count as 400.
    let mut table = weighted_with(2);
    table.pass(11_000);
    let counts = table.shares(16_000);
    let want = [4_000.0, 4_000.0, 6_000.0, 2_000.0];
    for (count, want) in counts.iter().zip(want) {
        assert!((*count as f64 - want).abs() <= 0.01 * want, "{counts:?}");
    }
}

#[test]
fn weighted_keeps_a_trickle_to_the_lowest_capability() {
    let mut table = Table::equal(PolicyKind::Weighted, 3);
    for (index, utilization) in [(0, 0.5), (1, 0.5), (2, 1e9)] {
        table.report(index, utilization, 100.0);
    }
    table.pass(11_000);
    let counts = table.shares(30_000);
    let share = counts[2] as f64 / 30_000.0;
    // 0.01 of the mean, which is two thirds of the capability of either other backend: 0.0067 : 1 :
    // 1.
    assert!((share - 0.0033).abs() < 0.0005, "{counts:?}");
}

/// Of `n` backends, the first sends a wild report at 11 s; all others report the same as before and
/// after.
fn weighted_with_a_wild_report(n: usize, utilization: f64, qps: f64) -> Table {
    let mut table = Table::equal(PolicyKind::Weighted, n);
    for _ in 0..11 {
        (0..n).for_each(|index| table.report(index, 0.5, 100.0));
        table.pass(1_000);
    }
    table.report(0, utilization, qps);
    (1..n).for_each(|index| table.report(index, 0.5, 100.0));
    table.pass(1_000);
    table
}

#[test]
fn weighted_bounds_one_wild_report_to_ten_shares_for_seconds() {
    for (utilization, qps) in [(0.5, 1e6), (1e-9, 100.0), (0.5, 1e300), (0.01, f64::MAX / 100.0)] {
        for n in [2, 3, 10, 100] {
            let mut table = weighted_with_a_wild_report(n, utilization, qps);
            let share = table.shares(20_000)[0] as f64 / 20_000.0;
            let ten_times = 10.0 / (10.0 + (n - 1) as f64);
            assert!(share < 1.02 * ten_times, "{share} of {n} after {qps}");
            for _ in 0..10 {
                (0..n).for_each(|index| table.report(index, 0.5, 100.0));
                table.pass(1_000);
            }
            let share = table.shares(20_000)[0] as f64 / 20_000.0;
            assert!(share < 2.0 / n as f64, "{share} of {n} ten seconds after {qps}");
        }
    }
}

/// A server with fast failures is no measure of a serving one's capability, even if most fail.
#[test]
fn weighted_prefers_the_few_that_serve() {
    let mut table = Table::without_ejection(PolicyKind::Weighted, 5);
    for _ in 0..15 {
        for index in 0..5 {
            let eps = if index < 3 { 99.9 } else { 0.0 };
            let report = LoadReport { cpu_utilization: 0.5, qps: 100.0, eps, ..LoadReport::default() };
            table.balancer.on_report(table.now, table.ids[index], &report, &mut ());
        }
        table.pass(1_000);
    }
    let counts = table.shares(20_000);
    assert!(counts[3] + counts[4] > 19_500, "{counts:?}");
}

/// Backend 0 reports a fifth of the others' utilization at a fifth of their rate. Its capability is
/// the same, and its weight must rise. Returns the weights after `secs`.
fn weights_when_one_is_less_utilized(table: &mut Table, secs: u64) -> Vec<f64> {
    for second in 0..secs {
        for index in 0..4 {
            let part = if index == 0 { 0.2 } else { 1.0 } * (1.0 + (second % 2) as f64 * 0.01);
            table.report(index, 0.5 * part, 100.0 * part);
        }
        table.pass(1_000);
    }
    table.balancer.snapshot(table.now).iter().map(|backend| backend.weight).collect()
}

#[test]
fn weights_follow_utilization_until_that_is_switched_off() {
    let mut table = Table::equal(PolicyKind::Weighted, 4);
    let weights = weights_when_one_is_less_utilized(&mut table, 60);
    assert!(weights[0] > 2.0 * weights[1], "{weights:?}");
    let mut config = BalancerConfig::new(PolicyKind::Weighted);
    config.weighted.feedback = Duration::ZERO;
    table.balancer.set_config(table.now, config);
    for backend in table.balancer.snapshot(table.now) {
        assert!((backend.weight - 1.0).abs() < 1e-3, "{}", backend.weight);
    }
}

/// In slow start a backend has a low utilization at any weight. A weight that rose meanwhile would
/// act on it all at once.
#[test]
fn weights_do_not_wind_up_during_slow_start() {
    let mut table = Table::equal(PolicyKind::Weighted, 4);
    let mut config = BalancerConfig::new(PolicyKind::Weighted);
    config.slow_start.window = Duration::from_secs(180);
    table.balancer.set_config(table.now, config);
    let id = table.ids[0];
    table.balancer.on_connect_failed(table.now, id, &mut table.rng, &mut ());
    table.balancer.on_connected(table.now, id, &mut ());
    let weights = weights_when_one_is_less_utilized(&mut table, 170);
    assert!((weights[0] - weights[1]).abs() < 0.01, "{weights:?}");
    let weights = weights_when_one_is_less_utilized(&mut table, 60);
    assert!(weights[0] > 2.0 * weights[1], "and are not forgotten after: {weights:?}");
}

/// By weight alone it would get 400 of 1,000 requests.
#[test]
fn changed_weight_does_not_end_slow_start() {
    let mut table = Table::equal(PolicyKind::RoundRobin, 4);
    let id = table.ids[0];
    table.balancer.on_connect_failed(table.now, id, &mut table.rng, &mut ());
    table.balancer.on_connected(table.now, id, &mut ());
    table.weigh(&[2.0, 1.0, 1.0, 1.0]);
    let counts = table.shares(1_000);
    assert!(counts[0] < 50, "{counts:?}");
    // Its window is over.
    table.pass(60_000);
    assert_eq!(table.shares(1_000)[0], 400);
}

/// Fast errors make a backend look idle. It may not know of them, for example if a proxy in front
/// made them.
#[test]
fn weighted_counts_failures_that_the_backend_does_not_report() {
    let mut table = Table::without_ejection(PolicyKind::Weighted, 4);
    // Long enough to forget the first report, from before the failures, at its half-life of 3 s.
    for _ in 0..45 {
        for index in 0..4 {
            table.report(index, if index == 0 { 0.001 } else { 0.5 }, 100.0);
        }
        for _ in 0..200 {
            let index = table.pick();
            table.finish_as(index, if index == 0 { Outcome::Failure } else { Outcome::Success }, 1);
        }
        table.pass(1_000);
    }
    let weights: Vec<f64> = table.balancer.snapshot(table.now).iter().map(|backend| backend.weight).collect();
    assert!(weights[0] < weights[1], "{weights:?}");
}

#[test]
fn weighted_ignores_an_infinite_report() {
    let mut table = weighted_with(4);
    table.report(0, 1e-300, 1e300);
    table.pass(11_000);
    let counts = table.shares(6_000);
    assert!((2_990..=3_010).contains(&counts[2]), "{counts:?}");
}

#[test]
fn weighted_is_not_bursty() {
    let mut table = Table::equal(PolicyKind::Weighted, 4);
    for (index, speed) in [1.0, 1.0, 2.0, 4.0].into_iter().enumerate() {
        table.report(index, 0.5 / speed, 100.0);
    }
    table.pass(11_000);
    let picks: Vec<usize> = (0..8_000).map(|_| table.pick()).collect();
    // Every second pick on average; evenly apart, never more than two in a row.
    assert!(picks.windows(3).all(|w| w != [3, 3, 3]), "three in a row");
    // A backend with an eighth of the picks is picked again within twice the mean distance.
    let places: Vec<usize> = (0..picks.len()).filter(|place| picks[*place] == 0).collect();
    let longest = places.windows(2).map(|w| w[1] - w[0]).max().expect("it is picked");
    assert!(longest <= 16, "{longest} picks apart, 8 on average");
}

#[test]
fn changed_policy_keeps_active_requests_and_knowledge() {
    let mut table = weighted_with(4);
    table.load(&[3, 1, 2, 0]);
    table.pass(11_000);
    let mut policies = PolicyKind::ALL.to_vec();
    policies.push(PolicyKind::Weighted);
    for policy in policies {
        table.balancer.set_config(table.now, BalancerConfig::new(policy));
        let active: Vec<u32> = table.balancer.snapshot(table.now).iter().map(|b| b.active).collect();
        assert_eq!(active, [3, 1, 2, 0], "{policy}");
    }
    let counts = table.shares(1_200);
    assert!((597..=603).contains(&counts[2]), "{counts:?}");
    table.balancer.set_config(table.now, BalancerConfig::new(PolicyKind::LeastLoaded));
    assert_eq!(table.pick(), 3, "the least loaded");
}

/// Further attempts after a backend's failures must not all go to one other backend.
#[test]
fn further_attempts_are_spread_over_the_others() {
    for policy in PolicyKind::ALL {
        let mut table = Table::equal(policy, 5);
        let tried = [table.ids[0]];
        let mut counts: BTreeMap<BackendId, u64> = BTreeMap::new();
        for _ in 0..20_000 {
            match table.balancer.pick_except(table.now, &mut table.rng, &tried) {
                Pick::Backend(id) => {
                    *counts.entry(id).or_default() += 1;
                    let index = table.ids.iter().position(|known| *known == id).expect("a member");
                    table.finish(index);
                }
                other => panic!("{policy}: {other:?}"),
            }
        }
        assert_eq!(counts.get(&tried[0]), None, "{policy}");
        let most = counts.values().max().copied().unwrap_or_default();
        assert!(most < 8_000, "{policy}: {counts:?}");
    }
}

/// Ten thousand requests, eight at a time, each rate limited with this probability at any backend.
/// Returns each backend's number of requests, and the mean lead of the most over the least loaded
/// in active requests.
fn spread_when_limited(policy: PolicyKind, percent: u32) -> (Vec<u64>, f64) {
    let mut table = Table::equal(policy, 4);
    let mut customers = seeded(9);
    let (mut counts, mut active, mut ahead) = (vec![0; 4], Vec::new(), 0);
    for _ in 0..10_000 {
        table.pass(5);
        let index = table.pick();
        counts[index] += 1;
        active.push(index);
        if active.len() > 8 {
            let index = active.remove(customers.next_u32() as usize % active.len());
            let is_limited = customers.next_u32() % 100 < percent;
            let outcome = if is_limited { Outcome::RateLimited } else { Outcome::Success };
            table.finish_as(index, outcome, 40);
        }
        let of = |index| active.iter().filter(|at| **at == index).count();
        let loads: Vec<usize> = (0..4).map(of).collect();
        ahead += loads.iter().max().expect("four") - loads.iter().min().expect("four");
    }
    (counts, ahead as f64 / 10_000.0)
}

/// Seed 9 for the customers. A quarter each, within 2%: seven standard deviations of a random
/// choice.
#[test]
fn customer_that_is_limited_everywhere_moves_no_traffic() {
    for policy in PolicyKind::ALL {
        let (_, usual) = spread_when_limited(policy, 0);
        for percent in [2, 50, 95] {
            let (counts, ahead) = spread_when_limited(policy, percent);
            assert!(counts.iter().all(|count| count.abs_diff(2_500) < 320), "{policy}, {percent}%: {counts:?}");
            assert!(ahead < usual * 1.1 + 0.1, "{policy}, {percent}%: ahead by {ahead}, usually {usual}");
        }
    }
}

#[test]
fn limited_backend_is_neither_ejected_nor_starved() {
    for policy in PolicyKind::ALL {
        let mut table = Table::equal(policy, 3);
        let mut counts = [0; 3];
        for _ in 0..6_000 {
            table.pass(2);
            let index = table.pick();
            counts[index] += 1;
            table.finish_as(index, if index == 0 { Outcome::RateLimited } else { Outcome::Success }, 1);
        }
        assert!(counts[0] > 0 && counts[0] < 1_000, "{policy}: {counts:?}");
        let states = table.balancer.snapshot(table.now).iter().map(|backend| backend.state).collect::<Vec<_>>();
        assert_eq!(states, [plimsoll_core::health::State::Healthy; 3], "{policy}");
    }
}

/// One timeout at a good backend must not hide a bad one's failures from picks.
#[test]
fn failures_count_for_the_choice_though_another_backend_shares_them() {
    let mut table = Table::equal(PolicyKind::LeastLoaded, 3);
    let operation = Operation::new(1, 1);
    for index in [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
        let completion = Completion { outcome: Outcome::Failure, latency: None };
        table.balancer.finish_for(table.now, table.ids[index], operation, completion, &mut ());
    }
    let shares: Vec<f64> = table.balancer.snapshot(table.now).iter().map(|backend| backend.error_share).collect();
    assert!(shares[0] > 0.6 && shares[1] < 0.2 && shares[2] == 0.0, "{shares:?}");
}

/// Of four backends that are equally busy, the second and the fourth have twice the weight.
fn assert_odd_backends_get_two_thirds(policy: PolicyKind, table: &mut Table) {
    for index in 0..4 {
        (0..30).for_each(|_| table.finish_as(index, Outcome::Success, 10));
    }
    let mut active = [0.0_f64; 4];
    for _ in 0..6_000 {
        active[table.pick()] += 1.0;
    }
    let share = (active[1] + active[3]) / 6_000.0;
    assert!((share - 2.0 / 3.0).abs() < 0.03, "{policy}: {share:.3} of {active:?}");
}

//! The subset algorithms: the properties of each, on many shapes, and the published numbers.
//!
//! Seeds are fixed and the generators portable: none of these can fail by chance on one machine and
//! pass on another.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use plimsoll_core::Weight;
use plimsoll_core::health::State;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::subset::{Algorithm, Backend, Client, MissingInput, Subset, SubsetConfig, order};
use proptest::prelude::*;

/// All algorithms that work without a coordinator.
const STATELESS: [Algorithm; 5] = [
    Algorithm::Random,
    Algorithm::Deterministic,
    Algorithm::Ringsteady,
    Algorithm::Rocksteadier,
    Algorithm::Rendezvous,
];

/// Clients, backends and subset size of the published grid.
const GRID: [(u32, u32, u32); 4] = [(300, 300, 30), (137, 60, 10), (1000, 230, 20), (50, 1000, 20)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// After each of 90 clients: every number of clients is its own shape, of whole rounds and
    /// parts.
    #[test]
    fn deterministic_connections_differ_by_at_most_one(
        (backends, size, seed) in (fleets(), 1..60_u32, any::<u64>()),
    ) {
        let mut connections = vec![0_u32; backends.len()];
        for client in 0..90 {
            for backend in subset_of(Algorithm::Deterministic, seed, client, &backends, size) {
                connections[backend as usize] += 1;
            }
            let (least, most) = range(&connections);
            prop_assert!(most <= least + 1, "{least} to {most} after client {client}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_order_names_twice_the_size_of_different_backends(
        algorithm in prop::sample::select(&STATELESS),
        (backends, size, seed, index) in (fleets(), 1..40_u32, any::<u64>(), prop_oneof![0..500_u32, any::<u32>()]),
    ) {
        let order = order_of(algorithm, seed, index, &backends, size);
        prop_assert_eq!(order.len(), (2 * size as usize).min(backends.len()));
        let distinct: BTreeSet<u32> = order.iter().copied().collect();
        prop_assert_eq!(distinct.len(), order.len(), "none twice");
        prop_assert!(distinct.last().is_none_or(|last| (*last as usize) < backends.len()), "none that is not there");
    }

    #[test]
    fn deterministic_rounds_are_slices_of_one_shuffle_where_the_size_divides(
        (slices, size, seed, round) in (1..20_u32, 1..20_u32, any::<u64>(), 0..50_u32),
    ) {
        let backends = alike(slices * size);
        let clients = round * slices..(round + 1) * slices;
        let taken: BTreeSet<u32> =
            clients.flat_map(|client| subset_of(Algorithm::Deterministic, seed, client, &backends, size)).collect();
        prop_assert_eq!(taken.len(), backends.len());
    }

    /// Only the new backend's connections move: the least churn for its number of connections.
    #[test]
    fn one_more_backend_moves_only_its_own_connections(
        algorithm in prop::sample::select(&[Algorithm::Ringsteady, Algorithm::Rocksteadier, Algorithm::Rendezvous]),
        (n, size, seed, index) in (1..300_u32, 1..40_u32, any::<u64>(), any::<u32>()),
    ) {
        let before: BTreeSet<u32> = subset_of(algorithm, seed, index, &alike(n), size).into_iter().collect();
        let after: BTreeSet<u32> = subset_of(algorithm, seed, index, &alike(n + 1), size).into_iter().collect();
        prop_assert!(after.difference(&before).all(|backend| *backend == n), "{before:?} {after:?}");
        prop_assert!(before.difference(&after).count() <= 1, "{before:?} {after:?}");
    }

    /// Rendezvous goes by keys: neither the position in the list nor its other backends matter.
    #[test]
    fn rendezvous_depends_on_keys_alone(
        (mut keys, size, seed, id) in (prop::collection::btree_set(any::<u64>(), 2..100), 1..20_u32, any::<u64>(), any::<u64>()),
    ) {
        let config = SubsetConfig { algorithm: Algorithm::Rendezvous, size: count(size), seed };
        let client = Client { id, index: None };
        let ranked = |keys: &[u64]| -> Vec<u64> {
            let backends: Vec<Backend> = keys.iter().map(|key| Backend { key: *key, ..ORDINARY }).collect();
            let order = order(&config, client, &backends).expect("rendezvous needs no index");
            order.iter().map(|number| keys[*number as usize]).collect()
        };
        let list: Vec<u64> = keys.iter().copied().collect();
        let backwards: Vec<u64> = list.iter().rev().copied().collect();
        prop_assert_eq!(ranked(&list), ranked(&backwards));
        let gone = keys.pop_first().expect("there are two");
        let rest: Vec<u64> = keys.into_iter().collect();
        let expected: Vec<u64> = ranked(&list).into_iter().filter(|key| *key != gone).collect();
        prop_assert!(ranked(&rest).starts_with(&expected));
    }

    /// Each domain has its share of the cluster, rounded down or up. `deterministic` puts balance
    /// first and may have up to two more or less: one in about a hundred subsets, two in 2 million.
    #[test]
    fn a_subset_has_its_share_of_each_domain(
        algorithm in prop::sample::select(&STATELESS),
        (backends, size, seed, index) in (fleets(), 1..40_u32, any::<u64>(), 0..500_u32),
    ) {
        let size = size.min(backends.len() as u32);
        let slack = 2 * i64::from(algorithm == Algorithm::Deterministic);
        let subset = subset_of(algorithm, seed, index, &backends, size);
        for (domain, share) in shares(&backends, size) {
            let has = subset.iter().filter(|b| backends[**b as usize].domain == domain).count() as i64;
            prop_assert!(has <= share.ceil() as i64 + slack, "{has} of {share} of domain {domain}");
            prop_assert!(has >= share.floor() as i64 - slack, "{has} of {share} of domain {domain}");
        }
    }

    /// Any sequence of ups and downs, against the rule in its plainest form.
    #[test]
    fn members_are_the_shortest_head_with_enough_usable_ones(
        (n, size, said) in (1..30_u32, 1..12_u32, prop::collection::vec((0..35_u32, any::<bool>()), 0..80)),
    ) {
        let order: Vec<u32> = (0..n).map(|i| i * 7 % 31).collect();
        let mut subset = Subset::new(order.clone(), count(size));
        let mut down = BTreeSet::new();
        for (backend, usable) in said {
            let before = subset.members().to_vec();
            let changed = subset.on_usable(backend, usable);
            if usable { down.remove(&backend) } else { down.insert(backend) };
            let usable_in = |len: usize| order[..len].iter().filter(|b| !down.contains(b)).count();
            let expected = (0..=order.len()).find(|len| usable_in(*len) == size as usize).unwrap_or(order.len());
            prop_assert_eq!(subset.members(), &order[..expected]);
            prop_assert_eq!(changed, subset.members() != before);
        }
        for backend in down {
            subset.on_usable(backend, true);
        }
        prop_assert_eq!(subset.members(), &order[..order.len().min(size as usize)], "all is as before");
    }
}

/// The reason for near exactness: ten clients of a lot take all ten backends of a lot equally
/// often, in zones too.
#[test]
fn rocksteadier_lots_of_clients_load_lots_of_backends_evenly() {
    for zones in [1, 3] {
        let backends: Vec<Backend> = (0..120).map(|i| Backend { domain: i % zones, ..numbered(i) }).collect();
        for size in 1..50 {
            let connections = connections(&subsets(Algorithm::Rocksteadier, 0, 70, &backends, size), 120);
            for zone in 0..zones {
                let of_zone: Vec<u32> =
                    connections.iter().skip(zone as usize).step_by(zones as usize).copied().collect();
                for lot in of_zone.chunks(10) {
                    let (least, most) = range(lot);
                    assert_eq!(least, most, "{zones} zones, subsets of {size}: {lot:?}");
                }
            }
        }
    }
}

#[test]
fn three_hundred_by_three_hundred_have_ten_each() {
    for algorithm in [Algorithm::Deterministic, Algorithm::Ledger] {
        assert_eq!(range(&connections(&subsets(algorithm, 1, 300, &alike(300), 10), 300)), (10, 10), "{algorithm}");
    }
}

#[test]
fn twelve_backends_and_ten_clients_of_three_have_two_or_three_each() {
    for algorithm in [Algorithm::Deterministic, Algorithm::Ledger] {
        assert_eq!(range(&connections(&subsets(algorithm, 1, 10, &alike(12), 3), 12)), (2, 3), "{algorithm}");
    }
}

/// Connections per backend over their average, and the share of connections that one more backend
/// moves, on the grid. The published figures are one draw over all rows; on the last row all but
/// two algorithms leave backends out.
#[test]
fn balance_and_churn_are_as_published() {
    use Algorithm::*;
    let published = [
        // Algorithm, least and greatest balance, least and greatest churn in percent.
        (Ringsteady, 0.919, 1.095, 0.1, 1.55),
        (Rocksteadier, 0.94, 1.055, 0.2, 1.7),
        (Deterministic, 0.96, 1.01, 61.0, 98.0),
        (Ledger, 0.96, 1.01, 0.0, 1.64),
    ];
    for (algorithm, low, high, least_churn, most_churn) in published {
        for (clients, n, size) in GRID {
            let before = subsets(algorithm, 0, clients, &alike(n), size);
            let balance = spread_of(&before, n);
            if n < clients * size / 5 || matches!(algorithm, Deterministic | Ledger) {
                assert!(balance.0 >= low && balance.1 <= high, "{algorithm} ({clients}, {n}, {size}): {balance:?}");
            } else {
                assert!(balance.1 <= 2.0, "{algorithm} ({clients}, {n}, {size}): {balance:?}");
            }
            let churn = 100.0 * churn(algorithm, clients, n, size);
            assert!(
                (least_churn..=most_churn).contains(&churn),
                "{algorithm} ({clients}, {n}, {size}): {churn}% moved"
            );
        }
    }
}

/// With seed 1: 300 draws of 90 of 300. The published draw is 57 to 109 with a mean of 90. The
/// distribution is binomial with standard deviation √(300·0.3·0.7) = 7.9, so the least and most of
/// 300 are near 90 ∓ 2.9·7.9 = 67 and 113.
#[test]
fn random_subsets_are_as_uneven_as_chance() {
    let (least, most) = range(&connections(&subsets(Algorithm::Random, 1, 300, &alike(300), 90), 300));
    assert!((55..=75).contains(&least) && (105..=125).contains(&most), "{least} to {most}");
}

/// Each client spreads one unit of load over its subset in proportion to weight. Half of the
/// machines have twice the weight, alternating or in two halves. The bound is the most loaded
/// machine's excess over the average, per unit of weight. It is zero with exact balance, 1.1 for
/// `rocksteadier` and 1.2 for `ringsteady`, as with equal machines. Without regard to weights, the
/// best would have 1.03 and up, and `ringsteady` 1.5.
#[test]
fn machines_of_two_sizes_are_loaded_alike() {
    use Algorithm::*;
    for (clients, n, size) in [(300, 300, 30), (137, 60, 10), (1000, 230, 20), (100, 100, 20)] {
        for heavy in [|i: u32, _: u32| i.is_multiple_of(2), |i: u32, n: u32| i < n / 2] {
            let weight = |i| if heavy(i, n) { Weight::new(2.0).expect("in range") } else { Weight::ONE };
            let backends: Vec<Backend> = (0..n).map(|i| Backend { weight: weight(i), ..numbered(i) }).collect();
            for (algorithm, bound) in [(Deterministic, 1.01), (Ledger, 1.01), (Rocksteadier, 1.10), (Ringsteady, 1.20)]
            {
                let fair = load_per_weight(&subsets(algorithm, 0, clients, &backends, size), &backends);
                assert!(fair <= bound, "{algorithm} ({clients}, {n}, {size}): {fair}");
            }
            for algorithm in [Deterministic, Ledger] {
                let blind = load_per_weight(&subsets(algorithm, 0, clients, &alike(n), size), &backends);
                assert!(blind >= 1.03, "{algorithm} ({clients}, {n}, {size}): {blind} without the rule");
            }
        }
    }
}

/// Zones in turn and in blocks, of equal and of unequal size. If domains were spread by skipping
/// backends of a domain with its share, `ringsteady` would give some backends five times their
/// share.
#[test]
fn domains_do_not_cost_balance() {
    use Algorithm::*;
    let zones: [fn(u32, u32) -> u32; 3] = [|i, _| i % 3, |i, n| i * 3 / n, |i, _| [0, 0, 0, 1, 1, 2][i as usize % 6]];
    for (clients, n, size) in [(300, 300, 30), (137, 60, 10), (1000, 230, 20)] {
        for zone in zones {
            let backends: Vec<Backend> = (0..n).map(|i| Backend { domain: zone(i, n), ..numbered(i) }).collect();
            for (algorithm, low, high) in
                [(Deterministic, 0.96, 1.01), (Ledger, 0.96, 1.01), (Rocksteadier, 0.85, 1.15), (Ringsteady, 0.6, 1.4)]
            {
                let balance = spread_of(&subsets(algorithm, 0, clients, &backends, size), n);
                assert!(balance.0 >= low && balance.1 <= high, "{algorithm} ({clients}, {n}, {size}): {balance:?}");
            }
        }
    }
}

/// A backend that has yet to be reached has not failed; otherwise each client would at once connect
/// to twice its subset.
#[test]
fn only_unusable_members_are_replaced() {
    for (state, members) in
        [(State::Connecting, 3), (State::Healthy, 3), (State::LameDuck, 4), (State::Refusing, 4), (State::Ejected, 4)]
    {
        let mut subset = Subset::new((0..6).collect(), count(3));
        assert_eq!(subset.on_state(1, state), members > 3, "{state:?}");
        assert_eq!(subset.members().len(), members, "{state:?}");
    }
}

#[test]
fn a_failed_zone_is_replaced_from_the_others() {
    let backends: Vec<Backend> = (0..90).map(|i| Backend { domain: i % 3, ..numbered(i) }).collect();
    for algorithm in STATELESS {
        for client in 0..50 {
            let mut subset = Subset::new(order_of(algorithm, 1, client, &backends, 12), count(12));
            let before = subset.members().to_vec();
            for failed in (0..90).step_by(3) {
                subset.on_usable(failed, false);
            }
            let usable = subset.members().iter().filter(|b| **b % 3 != 0).count();
            assert!(usable >= 12, "{algorithm}: client {client} has {usable}");
            for healed in (0..90).step_by(3) {
                subset.on_usable(healed, true);
            }
            assert_eq!(subset.members(), before, "{algorithm}: client {client} is not back");
        }
    }
}

/// One of 300 backends fails and had 30 clients. If all clients followed one shuffle, they would
/// all go to one other backend. Here no backend takes over more than a few.
#[test]
fn the_load_of_a_failed_backend_is_spread() {
    for (algorithm, at_most) in [
        (Algorithm::Random, 4),
        (Algorithm::Deterministic, 4),
        (Algorithm::Rendezvous, 4),
        (Algorithm::Rocksteadier, 4),
        (Algorithm::Ledger, 4),
    ] {
        let backends = alike(300);
        let ledger = ledger_of(1, 300, &backends, 30);
        let mut taken_over = vec![0; 300];
        for client in 0..300 {
            let order = match algorithm {
                Algorithm::Ledger => ledger.order(client.into(), &backends).expect("it was added"),
                _ => order_of(algorithm, 1, client, &backends, 30),
            };
            let mut subset = Subset::new(order, count(30));
            if subset.on_usable(7, false) {
                taken_over[*subset.members().last().expect("31") as usize] += 1;
            }
        }
        let (_, most) = range(&taken_over);
        assert!(most <= at_most, "{algorithm}: one took over {most} of {}", taken_over.iter().sum::<u32>());
    }
}

#[test]
fn seeds_give_different_subsets() {
    let backends = alike(100);
    for algorithm in STATELESS {
        let orders: BTreeSet<Vec<u32>> = (0..8).map(|seed| order_of(algorithm, seed, 3, &backends, 10)).collect();
        assert!(orders.len() >= 7, "{algorithm}: {} orders from 8 seeds", orders.len());
    }
}

#[test]
fn missing_input_error_says_how_to_fix_it() {
    let backends = alike(10);
    let nameless = Client { id: 5, index: None };
    for algorithm in Algorithm::ALL {
        let config = SubsetConfig { algorithm, size: count(3), seed: 0 };
        let said = order(&config, nameless, &backends);
        match algorithm {
            Algorithm::Random | Algorithm::Rendezvous => assert_eq!(said.map(|order| order.len()), Ok(6)),
            Algorithm::Ledger => assert_eq!(said, Err(MissingInput::Ledger)),
            _ => assert_eq!(said, Err(MissingInput::ClientIndex(algorithm))),
        }
        assert_eq!(algorithm.needs_client_index(), is_missing_index(algorithm));
    }
    assert_eq!(
        MissingInput::ClientIndex(Algorithm::Ringsteady).to_string(),
        "subset algorithm ringsteady needs each client's number: number the clients from 0 up, or use rendezvous instead"
    );
    assert_eq!(
        MissingInput::Ledger.to_string(),
        "subset algorithm ledger needs a coordinator that assigns backends: name one, or use rocksteadier instead"
    );
}

#[test]
fn names_are_read_back() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    assert_eq!(
        "dice".parse::<Algorithm>().expect_err("no algorithm").to_string(),
        "unknown subset algorithm, expected one of: random, deterministic, ringsteady, rocksteadier, rendezvous, ledger"
    );
}

/// The agreement of clients of different versions: a change here moves connections all over a
/// fleet.
#[test]
fn orders_never_change_between_versions() {
    let backends: Vec<Backend> = (0..40).map(|i| Backend { domain: i / 20, ..numbered(i) }).collect();
    let golden = [
        (Algorithm::Random, [36, 35, 34, 22, 14, 16], [30, 11, 15, 24, 6, 4]),
        (Algorithm::Deterministic, [20, 39, 15, 25, 32, 5], [15, 20, 13, 5, 25, 9]),
        (Algorithm::Ringsteady, [28, 2, 34, 18, 10, 26], [32, 2, 18, 22, 10, 6]),
        (Algorithm::Rocksteadier, [26, 11, 31, 2, 25, 15], [21, 11, 3, 38, 10, 2]),
        (Algorithm::Rendezvous, [2, 37, 8, 15, 22, 35], [37, 2, 8, 22, 15, 16]),
    ];
    for (algorithm, of_alike, of_two_zones) in golden {
        assert_eq!(order_of(algorithm, 7, 13, &alike(40), 3), of_alike, "{algorithm}");
        assert_eq!(order_of(algorithm, 7, 13, &backends, 3), of_two_zones, "{algorithm} with two zones");
    }
}

/// Slices of one shuffle while rounds are whole; the head of another client's slice replaces lost
/// backends. The test above pins a slice that straddles two rounds.
#[test]
fn deterministic_slices_never_change_between_versions() {
    let order = |client| order_of(Algorithm::Deterministic, 7, client, &alike(12), 3);
    let rounds = [
        [[5, 4, 2, 7, 10, 3], [7, 10, 3, 0, 8, 11], [0, 8, 11, 6, 1, 9], [6, 1, 9, 5, 4, 2]],
        [[3, 1, 6, 8, 7, 9], [8, 7, 9, 0, 11, 4], [0, 11, 4, 5, 2, 10], [5, 2, 10, 3, 1, 6]],
    ];
    for (client, golden) in (0..).zip(rounds.as_flattened()) {
        assert_eq!(order(client), golden, "client {client}");
    }
}

fn is_missing_index(algorithm: Algorithm) -> bool {
    let config = SubsetConfig { algorithm, size: count(1), seed: 0 };
    matches!(order(&config, Client { id: 0, index: None }, &alike(2)), Err(MissingInput::ClientIndex(_)))
}

const ORDINARY: Backend = Backend { key: 0, domain: 0, weight: Weight::ONE };

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a test's count is not zero")
}

fn numbered(i: u32) -> Backend {
    Backend { key: u64::from(i), ..ORDINARY }
}

fn alike(n: u32) -> Vec<Backend> {
    (0..n).map(numbered).collect()
}

/// Equal clusters, or clusters of up to four zones of any sizes and up to three sizes of machines.
fn fleets() -> impl Strategy<Value = Vec<Backend>> {
    (1..130_usize, 1..=4_u32, 1..=3_i32).prop_flat_map(|(n, domains, sizes)| {
        prop::collection::vec((0..domains, 0..sizes), n).prop_map(|marks| {
            let backend = |(i, (domain, size)): (usize, (u32, i32))| Backend {
                domain,
                weight: Weight::new(2_f64.powi(size)).expect("1 to 4 are in range"),
                ..numbered(i as u32)
            };
            marks.into_iter().enumerate().map(backend).collect()
        })
    })
}

fn order_of(algorithm: Algorithm, seed: u64, client: u32, backends: &[Backend], size: u32) -> Vec<u32> {
    let config = SubsetConfig { algorithm, size: count(size), seed };
    order(&config, Client::numbered(client), backends).expect("the client is numbered")
}

fn subset_of(algorithm: Algorithm, seed: u64, client: u32, backends: &[Backend], size: u32) -> Vec<u32> {
    let order = order_of(algorithm, seed, client, backends, size);
    Subset::new(order, count(size)).members().to_vec()
}

fn ledger_of(seed: u64, clients: u32, backends: &[Backend], size: u32) -> Ledger {
    let mut ledger = Ledger::new(count(size), seed);
    for backend in backends {
        ledger.add_backend(backend);
    }
    for client in 0..clients {
        ledger.add_client(client.into());
    }
    ledger
}

fn assignments(ledger: &Ledger, clients: u32) -> Vec<Vec<u32>> {
    let of = |client: u32| ledger.assignment(client.into()).expect("it was added");
    (0..clients).map(|client| of(client).iter().map(|key| *key as u32).collect()).collect()
}

fn subsets(algorithm: Algorithm, seed: u64, clients: u32, backends: &[Backend], size: u32) -> Vec<Vec<u32>> {
    match algorithm {
        Algorithm::Ledger => assignments(&ledger_of(seed, clients, backends, size), clients),
        _ => (0..clients).map(|client| subset_of(algorithm, seed, client, backends, size)).collect(),
    }
}

/// The share of connections that one more backend moves.
fn churn(algorithm: Algorithm, clients: u32, n: u32, size: u32) -> f64 {
    let (before, after) = if algorithm == Algorithm::Ledger {
        let mut ledger = ledger_of(0, clients, &alike(n), size);
        let before = assignments(&ledger, clients);
        ledger.add_backend(&numbered(n));
        (before, assignments(&ledger, clients))
    } else {
        (subsets(algorithm, 0, clients, &alike(n), size), subsets(algorithm, 0, clients, &alike(n + 1), size))
    };
    let moved = |(a, b): (&Vec<u32>, &Vec<u32>)| b.iter().filter(|backend| !a.contains(backend)).count();
    before.iter().zip(&after).map(moved).sum::<usize>() as f64 / f64::from(clients * size)
}

fn connections(subsets: &[Vec<u32>], n: u32) -> Vec<u32> {
    let mut connections = vec![0; n as usize];
    for backend in subsets.iter().flatten() {
        connections[*backend as usize] += 1;
    }
    connections
}

fn range(connections: &[u32]) -> (u32, u32) {
    (*connections.iter().min().expect("a backend"), *connections.iter().max().expect("a backend"))
}

/// Least and most connections over their average.
fn spread_of(subsets: &[Vec<u32>], n: u32) -> (f64, f64) {
    let (least, most) = range(&connections(subsets, n));
    let mean = subsets.iter().map(Vec::len).sum::<usize>() as f64 / f64::from(n);
    (f64::from(least) / mean, f64::from(most) / mean)
}

/// The greatest load per unit of weight over the mean.
fn load_per_weight(subsets: &[Vec<u32>], backends: &[Backend]) -> f64 {
    let mut load = vec![0.0; backends.len()];
    for subset in subsets {
        let total: f64 = subset.iter().map(|b| backends[*b as usize].weight.as_f64()).sum();
        for backend in subset {
            load[*backend as usize] += 1.0 / total;
        }
    }
    let weight: f64 = backends.iter().map(|backend| backend.weight.as_f64()).sum();
    load.into_iter().fold(0.0, f64::max) / (subsets.len() as f64 / weight)
}

/// Each domain's share of `size`.
fn shares(backends: &[Backend], size: u32) -> Vec<(u32, f64)> {
    let domains: BTreeSet<u32> = backends.iter().map(|backend| backend.domain).collect();
    let of = |domain: u32| backends.iter().filter(|backend| backend.domain == domain).count();
    domains.into_iter().map(|d| (d, f64::from(size) * of(d) as f64 / backends.len() as f64)).collect()
}

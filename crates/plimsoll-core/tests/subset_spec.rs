//! The guarantees of subsetting, through public calls alone: balance, the cost of a failure and the
//! cost of a resize. For the ledger, also its distance from the least possible number of moves,
//! computed exactly.
//!
//! Cases of proptest are drawn anew in each run, and each guarantee is for all of them, so none can
//! fail by chance. A measured bound has a fixed seed, and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use plimsoll_core::Weight;
use plimsoll_core::subset::ledger::{Change, Ledger};
use plimsoll_core::subset::{Algorithm, Backend, Client, Subset, SubsetConfig, order};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Whole rounds and parts of one: checked after every client.
    #[test]
    fn deterministic_is_even_at_every_number_of_clients((n, size, clients, seed) in shapes(60, 50)) {
        even_throughout(n, size, clients, seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn deterministic_is_even_in_large_fleets((n, size, clients, seed) in shapes(700, 300)) {
        even_throughout(n, size, clients, seed)?;
    }
}

fn even_throughout(n: u32, size: u32, clients: u32, seed: u64) -> Result<(), TestCaseError> {
    let backends = alike(n);
    let mut connections = vec![0_u32; n as usize];
    for client in 0..clients {
        let subset = Subset::new(preference(Algorithm::Deterministic, seed, client, &backends, size), count(size));
        prop_assert_eq!(subset.members().len() as u32, size.min(n));
        for backend in subset.members() {
            connections[*backend as usize] += 1;
        }
        let (least, most) = (connections.iter().min(), connections.iter().max());
        prop_assert!(most <= least.map(|least| least + 1).as_ref(), "{least:?} to {most:?} after client {client}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn clients_of_the_first_round_share_no_backend((n, size, _, seed) in shapes(120, 1)) {
        let backends = alike(n);
        let mut taken = BTreeSet::new();
        for client in 0..n / size.min(n) {
            for backend in head(Algorithm::Deterministic, seed, client, &backends, size) {
                prop_assert!(taken.insert(backend), "client {client} takes {backend} again");
            }
        }
    }

    /// One backend fails: each of its clients makes one connection, to a backend that works, and no
    /// other client does anything. It returns: all is as before.
    #[test]
    fn failure_moves_one_connection_per_client_and_recovery_undoes_it(
        algorithm in prop::sample::select(&Algorithm::ALL),
        (n, size, clients, seed) in shapes(60, 12),
        (failed, zones) in (any::<prop::sample::Index>(), 1..4_u32),
    ) {
        let backends = in_zones(n, zones);
        let failed = failed.index(n as usize) as u32;
        for (client, order) in preferences(algorithm, seed, clients, &backends, size).into_iter().enumerate() {
            let mut subset = Subset::new(order, count(size));
            let before = members(&subset);
            let changed = subset.on_usable(failed, false);
            let new: Vec<u32> = members(&subset).difference(&before).copied().collect();
            let has_spare = n > before.len() as u32;
            prop_assert_eq!(new.len(), usize::from(before.contains(&failed) && has_spare), "client {}", client);
            prop_assert_eq!(changed, !new.is_empty());
            prop_assert!(members(&subset).is_superset(&before), "a member that may return stays");
            prop_assert_eq!(subset.on_usable(failed, true), changed);
            prop_assert_eq!(members(&subset), before, "client {}", client);
        }
    }

    /// Any number fail and return, in any order. While enough are left, a client has its number of
    /// usable ones, and in the end its first subset.
    #[test]
    fn subset_returns_to_the_first_one_after_any_failures(
        algorithm in prop::sample::select(&Algorithm::ALL),
        (n, size, clients, seed) in shapes(40, 6),
        said in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let backends = in_zones(n, 3);
        for order in preferences(algorithm, seed, clients, &backends, size) {
            let mut subset = Subset::new(order.clone(), count(size));
            let first = subset.members().to_vec();
            let mut down = BTreeSet::new();
            for (backend, usable) in &said {
                let backend = backend.index(n as usize) as u32;
                subset.on_usable(backend, *usable);
                if *usable { down.remove(&backend) } else { down.insert(backend) };
                let left = order.iter().filter(|backend| !down.contains(backend)).count();
                let usable = subset.members().iter().filter(|backend| !down.contains(backend)).count();
                prop_assert_eq!(usable, left.min(size as usize));
            }
            for backend in down {
                subset.on_usable(backend, true);
            }
            prop_assert_eq!(subset.members(), &first[..]);
        }
    }

    /// The ends of all ranges: no panic, and no client gets a backend twice.
    #[test]
    fn the_ends_of_all_ranges_are_ordinary(
        algorithm in prop::sample::select(&STATELESS),
        n in prop::sample::select(&[0_u32, 1, 2, 9, 10, 11]),
        size in prop::sample::select(&[1_u32, 2, 10, u32::MAX]),
        index in prop::sample::select(&[0_u32, 1, 9, 10, u32::MAX - 1, u32::MAX]),
        seed in prop::sample::select(&[0, 1, u64::MAX]),
    ) {
        let order = preference(algorithm, seed, index, &alike(n), size);
        prop_assert_eq!(order.len() as u64, u64::from(n).min(2 * u64::from(size)));
        let distinct: BTreeSet<u32> = order.iter().copied().collect();
        prop_assert_eq!(distinct.len(), order.len());
        prop_assert!(distinct.last().is_none_or(|last| *last < n));
    }
}

/// With ⌈n·g⌉ more backends at least that many of n·(1 + g) connections move, since the new ones
/// get their share. Both algorithms walk past the new ones only, so only chance moves more: it
/// decides which clients meet new ones. Here it adds up to 1.8% of all connections. Shapes and
/// seeds are fixed.
#[test]
fn resize_moves_little_more_than_the_share_of_new_backends() {
    for algorithm in [Algorithm::Ringsteady, Algorithm::Rocksteadier] {
        for (clients, n, size, zones) in [(200, 100, 10, 1), (137, 150, 20, 1), (300, 300, 30, 1), (150, 90, 12, 3)] {
            for (more, slack) in [(1, 0.01), (n / 4, 0.03), (n, 0.03)] {
                let (small, large) = (in_zones(n, zones), in_zones(n + more, zones));
                let moved: usize = (0..clients)
                    .map(|client| {
                        let before = head(algorithm, 7, client, &small, size);
                        head(algorithm, 7, client, &large, size).difference(&before).count()
                    })
                    .sum();
                let moved = moved as f64 / f64::from(clients * size);
                let ideal = f64::from(more) / f64::from(n + more);
                assert!(
                    moved <= ideal + slack,
                    "{algorithm} ({clients}, {n} and {more} more, {size}, zones: {zones}): {moved:.4} moved, ideal {ideal:.4}"
                );
            }
        }
    }
}

proptest! {
    // The bound of one connection beyond the exact least, after a loss or another size, is measured
    // and not proven. It held in 40,000 sequences with another seed, so the cases are always the
    // same.
    #![proptest_config(ProptestConfig { cases: 1_500, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    /// After any earlier events: complete, within one, and at most one connection beyond the least
    /// possible.
    #[test]
    fn ledger_moves_at_most_one_connection_above_the_minimum(
        size in 1..6_u32, seed in any::<u64>(), events in prop::collection::vec(event(), 1..40),
    ) {
        let mut ledger = Ledger::new(count(size), seed);
        let (mut size, mut backends, mut had) = (size as usize, BTreeSet::new(), Assignments::new());
        for event in events {
            let changes = match &event {
                Event::ClientComes(id) => { had.entry(*id).or_default(); ledger.add_client(*id) }
                Event::ClientLeaves(id) => { had.remove(id); ledger.remove_client(*id) }
                Event::BackendComes(backend) => { backends.insert(backend.key); ledger.add_backend(backend) }
                Event::BackendLeaves(key) => { backends.remove(key); ledger.remove_backend(*key) }
                Event::Resize(to) => { size = *to as usize; ledger.set_size(count(*to)) }
            };
            let has: Assignments =
                had.keys().map(|id| (*id, ledger.assignment(*id).expect("it is there").into_iter().collect())).collect();
            complete_and_even(&has, &backends, size)?;
            prop_assert_eq!(&apply_changes(&had, &changes), &has, "the changes give the assignments");
            let made: usize = has.iter().map(|(id, now)| now.difference(&had[id]).count()).sum();
            let least = least_to_make(&had, &backends, size);
            prop_assert!(made >= least, "the least is right: {made} made, {least} must be");
            prop_assert!(made <= least + 1, "{event:?} made {made} connections, {least} must be");
            had = has;
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    ClientComes(u64),
    ClientLeaves(u64),
    BackendComes(Backend),
    BackendLeaves(u64),
    Resize(u32),
}

/// Small fleets, in which every kind of change happens in every position. Some have two zones and
/// machines of two sizes.
fn event() -> impl Strategy<Value = Event> {
    let backend = (0..10_u64, 0..2_u32, 0..2_u32).prop_map(|(key, domain, size)| Backend {
        key,
        domain,
        weight: Weight::new(f64::from(1 << size)).expect("1 and 2 are in range"),
    });
    prop_oneof![
        8 => (0..14_u64).prop_map(Event::ClientComes),
        4 => (0..14_u64).prop_map(Event::ClientLeaves),
        7 => backend.prop_map(Event::BackendComes),
        4 => (0..10_u64).prop_map(Event::BackendLeaves),
        1 => (1..7_u32).prop_map(Event::Resize),
    ]
}

/// Backends by client.
type Assignments = BTreeMap<u64, BTreeSet<u64>>;

fn complete_and_even(has: &Assignments, backends: &BTreeSet<u64>, size: usize) -> Result<(), TestCaseError> {
    for (client, assigned) in has {
        prop_assert!(assigned.is_subset(backends), "client {client} has {assigned:?} of {backends:?}");
        prop_assert_eq!(assigned.len(), size.min(backends.len()), "client {}", client);
    }
    let connections = |key: &u64| has.values().filter(|assigned| assigned.contains(key)).count();
    let (least, most) = (backends.iter().map(connections).min(), backends.iter().map(connections).max());
    prop_assert!(most <= least.map(|least| least + 1), "{least:?} to {most:?}");
    Ok(())
}

/// `had`, with the changes applied.
fn apply_changes(had: &Assignments, changes: &[Change]) -> Assignments {
    let mut changed = had.clone();
    for Change { client, removed, added } in changes {
        let of = changed.get_mut(client).expect("changes name only present clients");
        for key in removed {
            assert!(of.remove(key), "client {client} gives up {key}, which it does not have");
        }
        for key in added {
            assert!(of.insert(*key), "client {client} is given {key}, which it has");
        }
    }
    changed
}

/// The least number of connections to make so that every client has its number and backends are
/// within one. It is a flow of least cost from clients, each with its number, over pairs, to
/// backends. Connected pairs are free and others cost 1. Each backend takes ⌊total/n⌋, and one more
/// at a prohibitive price.
fn least_to_make(had: &Assignments, backends: &BTreeSet<u64>, size: usize) -> usize {
    const EXPENSIVE: i64 = 1_000_000;
    let (clients, n) = (had.len(), backends.len());
    if n == 0 || clients == 0 {
        return 0;
    }
    let wanted = size.min(n);
    let total = clients * wanted;
    let (source, sink) = (clients + n, clients + n + 1);
    let mut flow = Flow::new(clients + n + 2);
    for (c, has) in had.values().enumerate() {
        flow.edge(source, c, wanted as i64, 0);
        for (b, key) in backends.iter().enumerate() {
            flow.edge(c, clients + b, 1, i64::from(!has.contains(key)));
        }
    }
    for b in 0..n {
        flow.edge(clients + b, sink, (total / n) as i64, 0);
        flow.edge(clients + b, sink, 1, EXPENSIVE);
    }
    let (sent, cost) = flow.run(source, sink);
    assert_eq!(sent, total as i64, "there always is an even assignment");
    assert_eq!(cost / EXPENSIVE, (total % n) as i64, "and no more backends than must have one more");
    (cost % EXPENSIVE) as usize
}

/// Flows of least cost, by shortest augmenting paths; plain and not fast.
struct Flow {
    /// By node: the edges that leave it.
    out: Vec<Vec<usize>>,
    /// Target, capacity and cost. Edge `e ^ 1` is the way back.
    edges: Vec<(usize, i64, i64)>,
}

impl Flow {
    fn new(nodes: usize) -> Self {
        Self { out: vec![Vec::new(); nodes], edges: Vec::new() }
    }

    fn edge(&mut self, from: usize, to: usize, capacity: i64, cost: i64) {
        self.out[from].push(self.edges.len());
        self.edges.push((to, capacity, cost));
        self.out[to].push(self.edges.len());
        self.edges.push((from, 0, -cost));
    }

    /// Sends as much as the capacity allows; returns the amount and its cost.
    fn run(&mut self, source: usize, sink: usize) -> (i64, i64) {
        let (mut sent, mut cost) = (0, 0);
        loop {
            let mut best = vec![(i64::MAX, usize::MAX); self.out.len()];
            best[source].0 = 0;
            let mut pending = vec![source];
            while !pending.is_empty() {
                let mut next = Vec::new();
                for node in pending {
                    for edge in &self.out[node] {
                        let (to, capacity, price) = self.edges[*edge];
                        if capacity > 0 && best[node].0 + price < best[to].0 {
                            best[to] = (best[node].0 + price, *edge);
                            if !next.contains(&to) {
                                next.push(to);
                            }
                        }
                    }
                }
                pending = next;
            }
            if best[sink].0 == i64::MAX {
                return (sent, cost);
            }
            let mut path = Vec::new();
            let mut node = sink;
            while node != source {
                path.push(best[node].1);
                node = self.edges[best[node].1 ^ 1].0;
            }
            let capacity = path.iter().map(|edge| self.edges[*edge].1).min().expect("source and sink differ");
            for edge in path {
                self.edges[edge].1 -= capacity;
                self.edges[edge ^ 1].1 += capacity;
            }
            sent += capacity;
            cost += capacity * best[sink].0;
        }
    }
}

/// All algorithms that work without a coordinator.
const STATELESS: [Algorithm; 5] = [
    Algorithm::Random,
    Algorithm::Deterministic,
    Algorithm::Ringsteady,
    Algorithm::Rocksteadier,
    Algorithm::Rendezvous,
];

/// Backends, size of a subset (sometimes all and more), clients, seed.
fn shapes(most_backends: u32, most_clients: u32) -> impl Strategy<Value = (u32, u32, u32, u64)> {
    (1..=most_backends).prop_flat_map(move |n| (Just(n), 1..=n + 2, 1..=most_clients, any::<u64>()))
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a test's count is not zero")
}

fn alike(n: u32) -> Vec<Backend> {
    in_zones(n, 1)
}

/// Zones in turn.
fn in_zones(n: u32, zones: u32) -> Vec<Backend> {
    (0..n).map(|i| Backend { key: i.into(), domain: i % zones, weight: Weight::ONE }).collect()
}

fn preference(algorithm: Algorithm, seed: u64, client: u32, backends: &[Backend], size: u32) -> Vec<u32> {
    let config = SubsetConfig { algorithm, size: count(size), seed };
    order(&config, Client::numbered(client), backends).expect("the client is numbered")
}

/// The preferences of each client, also for the ledger.
fn preferences(algorithm: Algorithm, seed: u64, clients: u32, backends: &[Backend], size: u32) -> Vec<Vec<u32>> {
    if algorithm != Algorithm::Ledger {
        return (0..clients).map(|client| preference(algorithm, seed, client, backends, size)).collect();
    }
    let mut ledger = Ledger::new(count(size), seed);
    for backend in backends {
        ledger.add_backend(backend);
    }
    for client in 0..clients {
        ledger.add_client(client.into());
    }
    (0..clients).map(|client| ledger.order(client.into(), backends).expect("it was added")).collect()
}

fn head(algorithm: Algorithm, seed: u64, client: u32, backends: &[Backend], size: u32) -> BTreeSet<u32> {
    members(&Subset::new(preference(algorithm, seed, client, backends, size), count(size)))
}

fn members(subset: &Subset) -> BTreeSet<u32> {
    subset.members().iter().copied().collect()
}

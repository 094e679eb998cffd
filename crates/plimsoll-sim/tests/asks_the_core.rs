//! What the simulator finds is what the core decides: the same questions, put to the core directly, have the same answers.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};

use plimsoll_core::Weight;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::subset::{Algorithm, Backend, Client, Subset, SubsetConfig, order};
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;

/// Those whose subsets depend on numbers alone: rendezvous and the ledger go by keys, which the simulator makes up.
const BY_NUMBER: [Algorithm; 4] =
    [Algorithm::Random, Algorithm::Deterministic, Algorithm::Ringsteady, Algorithm::Rocksteadier];
/// Clients, backends, size.
const ROWS: [(u32, u32, u32); 4] = [(40, 33, 7), (12, 60, 10), (30, 9, 9), (25, 100, 3)];

#[test]
fn balance_and_churn_are_those_of_the_cores_subsets() {
    for seed in [0, 1, 77] {
        let metrics = measured(&rows(), seed);
        for algorithm in BY_NUMBER {
            for (clients, n, size) in ROWS {
                let subsets = |n| subsets(algorithm, seed, clients, n, size);
                let (before, more, fewer) = (subsets(n), subsets(n + 1), subsets(n - 1));
                let mut connections = vec![0.0; n as usize];
                before.iter().flatten().for_each(|backend| connections[*backend as usize] += 1.0);
                let alone = before.iter().filter(|a| before.iter().filter(|b| a == b).count() == 1).count();
                let total = before.iter().map(BTreeSet::len).sum::<usize>();
                for (metric, expected) in [
                    ("least", connections.iter().copied().fold(f64::INFINITY, f64::min)),
                    ("most", connections.iter().copied().fold(0.0, f64::max)),
                    ("without", connections.iter().filter(|has| **has == 0.0).count() as f64),
                    ("diversity", alone as f64 / f64::from(clients)),
                    ("churn_add_backend", made(&before, &more) as f64 / total as f64),
                    ("churn_remove_backend", made(&before, &fewer) as f64 / total as f64),
                ] {
                    let name = format!("{algorithm}.{clients}x{n}x{size}.{metric}");
                    let got = metrics[&name];
                    assert!((got - expected).abs() < 1e-9, "seed {seed}: {name} is {got}, by the core {expected}");
                }
            }
        }
    }
}

/// For the ledger, whatever the keys: within one, the newcomer's even share and nothing else moves.
#[test]
fn the_ledger_of_the_simulator_has_the_memory_of_the_cores() {
    let metrics = measured(&rows(), 5);
    for (clients, n, size) in ROWS {
        let mut ledger = Ledger::new(NonZeroU32::new(size).unwrap(), 5);
        (0..n).for_each(|i| drop(ledger.add_backend(&numbered(i))));
        (0..clients).for_each(|client| drop(ledger.add_client(client.into())));
        let moved: usize = ledger.add_backend(&numbered(n)).iter().map(|change| change.added.len()).sum();
        let metric = |name: &str| metrics[&format!("ledger.{clients}x{n}x{size}.{name}")];
        assert!(metric("spread") <= 1.0);
        let total = f64::from(clients * size.min(n));
        assert!((metric("churn_add_backend") * total - moved as f64).abs() < 1e-6, "({clients}, {n}, {size})");
        assert!(metric("excess_add_backend") * total <= 1.0 + 1e-6);
    }
}

/// Equation 21-1 as it is printed, at points of every regime.
#[test]
fn throttling_is_equation_21_1() {
    let points =
        [(100, 100, 2.0), (100, 50, 2.0), (100, 10, 2.0), (1000, 0, 2.0), (100, 80, 1.1), (0, 0, 2.0), (7, 3, 1.0)];
    let tables: Vec<String> = (points.iter().enumerate())
        .map(|(i, (requests, accepts, k))| {
            format!("[[throttle]]\nname = \"p{i}\"\nrequests = {requests}\naccepts = {accepts}\nk = {k:?}\n")
        })
        .collect();
    let text = format!(
        "name = \"t\"\nkind = \"worked\"\n{}[[checks]]\nmetric = \"throttle.p0\"\nlow = 0\nwhy = \"it is a share\"\n",
        tables.concat()
    );
    let metrics = run(&Scenario::parse("t.toml", &text).unwrap(), NonZeroUsize::MIN, &|_| {}).unwrap().metrics;
    for (i, (requests, accepts, k)) in points.into_iter().enumerate() {
        let (requests, accepts) = (f64::from(requests), f64::from(accepts));
        let expected = ((requests - k * accepts) / (requests + 1.0)).max(0.0);
        let got = metrics[&format!("throttle.p{i}")];
        assert!(
            (got - expected).abs() < 1e-9,
            "{requests} requests, {accepts} accepted, K = {k}: {got}, not {expected}"
        );
    }
}

fn rows() -> String {
    let rows = ROWS.map(|(clients, n, size)| format!("[[rows]]\nclients = {clients}\nbackends = {n}\nsize = {size}\n"));
    let check = "[[checks]]\nmetric = \"random.40x33x7.least\"\nlow = 0\nwhy = \"it is a number\"\n";
    format!("name = \"t\"\nkind = \"subset\"\n{}{check}", rows.concat())
}

fn measured(text: &str, seed: u64) -> BTreeMap<String, f64> {
    let scenario = Scenario::parse("t.toml", text).unwrap().with_seeds(vec![seed]);
    run(&scenario, NonZeroUsize::MIN, &|_| {}).unwrap().metrics
}

fn numbered(i: u32) -> Backend {
    Backend { key: i.into(), domain: 0, weight: Weight::ONE }
}

fn subsets(algorithm: Algorithm, seed: u64, clients: u32, n: u32, size: u32) -> Vec<BTreeSet<u32>> {
    let backends: Vec<Backend> = (0..n).map(numbered).collect();
    let config = SubsetConfig { algorithm, size: NonZeroU32::new(size).unwrap(), seed };
    let subset = |client| Subset::new(order(&config, Client::numbered(client), &backends).unwrap(), config.size);
    (0..clients).map(|client| subset(client).members().iter().copied().collect()).collect()
}

/// Connections of `after` that were not there before.
fn made(before: &[BTreeSet<u32>], after: &[BTreeSet<u32>]) -> usize {
    before.iter().zip(after).map(|(before, after)| after.difference(before).count()).sum()
}

//! Counts connections: how even they are, what a change moves, who takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use plimsoll_core::subset::{Algorithm, Subset};

use super::assign::Assigned;
use super::{Arm, DISTRIBUTED, QUANTILES, Row};
use crate::findings::Findings;

/// What was measured of one arm in one row.
pub(super) struct Measured {
    /// Of the first draw, by backend.
    pub(super) connections: Vec<u32>,
    values: BTreeMap<String, f64>,
}

impl Measured {
    pub(super) fn of(arm: &Arm, row: &Row, draws: NonZeroU32, seed: u64) -> Self {
        let mut balances = Vec::with_capacity(draws.get() as usize);
        let mut first = None;
        for draw in 0..draws.get() {
            let fleet =
                Assigned::new(arm, row, seed.wrapping_mul(u64::from(draws.get())).wrapping_add(u64::from(draw)));
            let orders = fleet.orders();
            let connections = count(&orders, row.size, fleet.backends());
            balances.push(Balance::of(&connections));
            if draw == 0 {
                first = Some((fleet, orders, connections));
            }
        }
        let (fleet, orders, connections) = first.expect("there is at least one draw");
        let mut measured = Self { connections, values: BTreeMap::new() };
        measured.balance(&balances, row);
        measured.company(&orders, row.size);
        measured.changes(&fleet, &orders, row, arm.algorithm);
        if row.failures > 0 {
            measured.failures(&orders, row);
        }
        measured
    }

    pub(super) fn mean_of(&self, metric: &str) -> f64 {
        self.values[metric]
    }

    /// Notes all under `prefix`.
    pub(super) fn note(&self, prefix: &str, findings: &mut Findings) {
        for (metric, value) in &self.values {
            findings.metric(format!("{prefix}.{metric}"), *value);
        }
    }

    fn set(&mut self, metric: &str, value: f64) {
        self.values.insert(metric.to_owned(), value);
    }

    fn balance(&mut self, balances: &[Balance], row: &Row) {
        let draws = balances.len() as f64;
        let mean = |of: fn(&Balance) -> f64| balances.iter().map(of).sum::<f64>() / draws;
        self.set("least", mean(|b| b.least));
        self.set("most", mean(|b| b.most));
        self.set("spread", mean(|b| b.most - b.least));
        self.set("least_over_mean", mean(Balance::least_over_mean));
        self.set("most_over_mean", mean(Balance::most_over_mean));
        self.set("without", mean(|b| b.without));
        if balances.len() > 1 {
            for (metric, of) in DISTRIBUTED.into_iter().zip([Balance::least_over_mean, Balance::most_over_mean]) {
                let mut values: Vec<f64> = balances.iter().map(of).collect();
                values.sort_unstable_by(f64::total_cmp);
                for (name, quantile) in QUANTILES {
                    let value = values[((values.len() - 1) as f64 * quantile).round() as usize];
                    self.set(&format!("{metric}_{name}"), value);
                }
            }
        }
        if let Some(published) = row.published {
            let rank = |of: fn(&Balance) -> f64, limit: u32| {
                balances.iter().filter(|balance| of(balance) <= f64::from(limit)).count() as f64 / draws
            };
            self.set("published_least_rank", rank(|b| b.least, published.least));
            self.set("published_most_rank", rank(|b| b.most, published.most));
        }
    }

    /// Whom clients share their subsets with, and who takes over from a backend that fails.
    fn company(&mut self, orders: &[Vec<u32>], size: NonZeroU32) {
        let mut seen: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        for order in orders {
            let mut members = head(order, size).to_vec();
            members.sort_unstable();
            *seen.entry(members).or_default() += 1;
        }
        let alone = seen.values().filter(|clients| **clients == 1).count();
        self.set("diversity", alone as f64 / orders.len() as f64);

        let backends = self.connections.len();
        let mut takers = vec![BTreeSet::new(); backends];
        for order in orders {
            let Some(next) = order.get(size.get() as usize) else { continue };
            for failed in head(order, size) {
                takers[*failed as usize].insert(*next);
            }
        }
        let most_takers = |connections: u32| (connections as usize).min(backends - 1).max(1);
        let shares = takers.iter().zip(&self.connections).filter(|(_, connections)| **connections > 0);
        let shares: Vec<f64> = shares.map(|(takers, c)| takers.len() as f64 / most_takers(*c) as f64).collect();
        self.set("takers", shares.iter().sum::<f64>() / shares.len() as f64);
    }

    /// What moves when there is one more or one less of something.
    fn changes(&mut self, fleet: &Assigned, before: &[Vec<u32>], row: &Row, algorithm: Algorithm) {
        let (clients, backends) = (row.clients.get(), row.backends.get());
        let connections: u32 = self.connections.iter().sum();
        let after = |clients: u32, backends: u32| {
            let mut changed = fleet.clone();
            changed.resize(clients, backends);
            changed.subsets()
        };
        let moved = |after: &[Vec<u32>]| moved(before, after, row.size, backends + 1);

        let added = moved(&after(clients, backends + 1));
        // With a whole cluster in each subset the newcomer is only added, to all.
        let ideal = f64::from(connections) / f64::from(backends + 1);
        self.set("churn_add_backend", added / f64::from(connections));
        self.set("excess_add_backend", added - ideal);

        let of_last = self.connections[backends as usize - 1];
        let removed = if backends > 1 { moved(&after(clients, backends - 1)) } else { 0.0 };
        self.set("churn_remove_backend", removed / f64::from(connections));
        self.set("excess_remove_backend", removed - f64::from(of_last));

        // Without memory an order depends on nothing but the client and the backends: nothing of the others can move.
        let remembers = algorithm == Algorithm::Ledger;
        let more = if remembers { moved(&after(clients + 1, backends)) } else { 0.0 };
        let fewer = if remembers && clients > 1 { moved(&after(clients - 1, backends)) } else { 0.0 };
        self.set("churn_add_client", more / f64::from(connections));
        self.set("churn_remove_client", fewer / f64::from(connections));
    }

    /// What becomes of the others when some of the first client's backends fail.
    fn failures(&mut self, orders: &[Vec<u32>], row: &Row) {
        let backends = self.connections.len();
        let failed: Vec<u32> = head(&orders[0], row.size).iter().copied().take(row.failures as usize).collect();
        let mut up = vec![true; backends];
        failed.iter().for_each(|backend| up[*backend as usize] = false);
        let (mut replaced, mut unreplaced) = (vec![0.0; backends], vec![0.0; backends]);
        for order in orders {
            let mut subset = Subset::new(order.clone(), row.size);
            for backend in &failed {
                subset.on_usable(*backend, false);
            }
            let left = |members: &[u32]| -> Vec<u32> {
                members.iter().copied().filter(|member| up[*member as usize]).collect()
            };
            left(subset.members()).into_iter().for_each(|member| replaced[member as usize] += 1.0);
            let left = left(head(order, row.size));
            left.iter().for_each(|member| unreplaced[*member as usize] += 1.0 / left.len() as f64);
        }
        let most_over_mean = |load: Vec<f64>| {
            let survivors: Vec<f64> = load.into_iter().zip(&up).filter(|(_, up)| **up).map(|(load, _)| load).collect();
            let mean = survivors.iter().sum::<f64>() / survivors.len() as f64;
            survivors.into_iter().fold(0.0, f64::max) / mean
        };
        self.set("replaced_most_over_mean", most_over_mean(replaced));
        self.set("unreplaced_most_over_mean", most_over_mean(unreplaced));
    }
}

/// How even connections are.
struct Balance {
    least: f64,
    most: f64,
    mean: f64,
    without: f64,
}

impl Balance {
    fn of(connections: &[u32]) -> Self {
        let total: u32 = connections.iter().sum();
        Self {
            least: f64::from(connections.iter().copied().min().unwrap_or_default()),
            most: f64::from(connections.iter().copied().max().unwrap_or_default()),
            mean: f64::from(total) / connections.len() as f64,
            without: connections.iter().filter(|connections| **connections == 0).count() as f64,
        }
    }

    fn least_over_mean(&self) -> f64 {
        self.least / self.mean
    }

    fn most_over_mean(&self) -> f64 {
        self.most / self.mean
    }
}

/// The subset while all are usable.
fn head(order: &[u32], size: NonZeroU32) -> &[u32] {
    &order[..order.len().min(size.get() as usize)]
}

/// Connections by backend.
fn count(orders: &[Vec<u32>], size: NonZeroU32, backends: usize) -> Vec<u32> {
    let mut connections = vec![0; backends];
    for order in orders {
        head(order, size).iter().for_each(|backend| connections[*backend as usize] += 1);
    }
    connections
}

/// Connections of the clients that are in both that were not there before.
fn moved(before: &[Vec<u32>], after: &[Vec<u32>], size: NonZeroU32, backends: u32) -> f64 {
    // By backend: the last client that had it, counted from one.
    let mut had = vec![0_u32; backends as usize];
    let mut moved = 0_u32;
    for ((before, after), client) in before.iter().zip(after).zip(1..) {
        head(before, size).iter().for_each(|backend| had[*backend as usize] = client);
        moved += head(after, size).iter().filter(|backend| had[**backend as usize] != client).count() as u32;
    }
    f64::from(moved)
}

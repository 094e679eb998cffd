//! The customers of several proxies, by name.
//!
//! Each proxy lists the customers that ask for most, so a customer's figures are the sums over the
//! proxies that list it. The soft limit, the hard limit and the part of the fleet limit are limits
//! at one proxy, and add up. The fleet limit, its use and its demand are the same figure at every
//! proxy, some seconds old: the largest is shown, with the strictest cut.

use std::collections::BTreeMap;

use plimsoll_admin::parts::significant;
use plimsoll_admin::{LiveCluster, LiveCustomer, LiveFleetLimit};
use plimsoll_core::Criticality;

use super::{largest, plus};

/// Customers in the list: as many as a proxy has.
const MAX_CUSTOMERS: usize = 10;

pub(super) fn merge(clusters: &[&LiveCluster]) -> Vec<LiveCustomer> {
    let mut merged: BTreeMap<&str, LiveCustomer> = BTreeMap::new();
    for of in clusters.iter().flat_map(|cluster| &cluster.customers) {
        match merged.get_mut(of.name.as_str()) {
            None => drop(merged.insert(&of.name, of.clone())),
            Some(sum) => add(sum, of),
        }
    }
    let mut customers: Vec<LiveCustomer> = merged.into_values().collect();
    customers.sort_by(|a, b| b.offered_cpus.total_cmp(&a.offered_cpus));
    customers.truncate(MAX_CUSTOMERS);
    customers
}

fn add(sum: &mut LiveCustomer, of: &LiveCustomer) {
    for (sum, of) in [
        (&mut sum.offered_qps, of.offered_qps),
        (&mut sum.offered_cpus, of.offered_cpus),
        (&mut sum.used_cpus, of.used_cpus),
        (&mut sum.shed_qps, of.shed_qps),
        (&mut sum.shed_cpus, of.shed_cpus),
        (&mut sum.soft_limit_cpus, of.soft_limit_cpus),
    ] {
        *sum = significant(*sum + of);
    }
    for (reason, qps) in &of.shed {
        let known = sum.shed.entry(reason.clone()).or_default();
        *known = significant(*known + qps);
    }
    // One proxy without a limit takes as much as it likes.
    sum.hard_limit_cpus = match (sum.hard_limit_cpus, of.hard_limit_cpus) {
        (Some(sum), Some(of)) => Some(significant(sum + of)),
        _ => None,
    };
    limit(&mut sum.fleet, &of.fleet);
}

fn limit(sum: &mut LiveFleetLimit, of: &LiveFleetLimit) {
    sum.fleet_limit_cpus = largest(sum.fleet_limit_cpus, of.fleet_limit_cpus);
    sum.fleet_used_cpus = largest(sum.fleet_used_cpus, of.fleet_used_cpus);
    sum.fleet_demand_cpus = largest(sum.fleet_demand_cpus, of.fleet_demand_cpus);
    sum.fleet_rate_cpus = plus(sum.fleet_rate_cpus, of.fleet_rate_cpus);
    // The most critical class that is cut, and the smaller part of it.
    let place = |cut: &Option<String>| {
        let name = cut.as_deref()?;
        Criticality::ALL.into_iter().position(|each| each.name() == name)
    };
    let strictness = |limit: &LiveFleetLimit| (place(&limit.fleet_cut), limit.fleet_cut_admitted.unwrap_or(1.0));
    let is_stricter = match (strictness(sum), strictness(of)) {
        (_, (None, _)) => false,
        ((None, _), _) => true,
        ((Some(known), known_part), (Some(new), new_part)) => new < known || (new == known && new_part < known_part),
    };
    if is_stricter {
        sum.fleet_cut.clone_from(&of.fleet_cut);
        sum.fleet_cut_admitted = of.fleet_cut_admitted;
    }
}

//! Several proxies as one fleet: a row for each, and their sums.
//!
//! Pure: the same answers give the same rows. A proxy that does not answer has no part in the sums, and
//! is counted. Loads in CPUs can be added up because all are reference CPUs. A verdict cannot: that of
//! the fleet is the worst one. Backends that two proxies share count twice, as each proxy judges them
//! by itself.

use plimsoll_admin::Live;
use plimsoll_admin::parts::significant;
use serde::Serialize;

use crate::words::rank;

/// The load of the cluster that a proxy shows in detail, or its sum over several proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sums {
    /// The worst verdict; `null` where no cluster has a gate.
    pub(crate) verdict: Option<String>,
    /// Requests a second that arrived.
    pub(crate) offered_qps: f64,
    /// Admitted requests a second.
    pub(crate) admitted_qps: f64,
    /// Shed requests a second.
    pub(crate) shed_qps: f64,
    /// CPUs that the requests would keep busy; `null` without a gate.
    pub(crate) offered_cpus: Option<f64>,
    /// CPUs that the admitted ones keep busy.
    pub(crate) admitted_cpus: Option<f64>,
    /// CPUs that the shed ones would keep busy.
    pub(crate) shed_cpus: Option<f64>,
    /// CPUs in use by the protected processes.
    pub(crate) used_cpus: Option<f64>,
    /// CPUs that the protected processes can use.
    pub(crate) capacity_cpus: Option<f64>,
    /// Healthy backends.
    pub(crate) healthy: u64,
    /// All backends.
    pub(crate) backends: u64,
}

/// A sum whose parts may be unknown: unknown only if all are.
fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

impl Sums {
    /// Of one proxy.
    pub(crate) fn of(live: &Live) -> Self {
        let Some(cluster) = &live.cluster else { return Self::default() };
        let gate = cluster.gate.as_ref();
        let demand = &cluster.demand;
        let cpus = |part: fn(&plimsoll_admin::LiveDemand) -> Option<f64>| demand.iter().map(part).sum();
        let healthy = cluster.backends.by_state.get("healthy").copied().unwrap_or_default();
        Self {
            verdict: gate.map(|gate| gate.verdict.clone()),
            offered_qps: demand.iter().map(|of| of.offered_qps).sum(),
            admitted_qps: demand.iter().map(|of| of.admitted_qps).sum(),
            shed_qps: demand.iter().map(|of| of.shed_qps).sum(),
            offered_cpus: gate.and_then(|_| cpus(|of| of.offered_cpus)),
            admitted_cpus: gate.and_then(|_| cpus(|of| of.admitted_cpus)),
            shed_cpus: gate.and_then(|_| cpus(|of| of.shed_cpus)),
            used_cpus: gate.and_then(|gate| gate.used_cpus),
            capacity_cpus: gate.map(|gate| gate.capacity_cpus),
            healthy: healthy.into(),
            backends: cluster.backends.total.into(),
        }
    }

    /// The same to three digits, for people.
    pub(crate) fn rounded(self) -> Self {
        Self {
            offered_qps: significant(self.offered_qps),
            admitted_qps: significant(self.admitted_qps),
            shed_qps: significant(self.shed_qps),
            offered_cpus: self.offered_cpus.map(significant),
            admitted_cpus: self.admitted_cpus.map(significant),
            shed_cpus: self.shed_cpus.map(significant),
            ..self
        }
    }

    /// Adds those of another proxy.
    fn add(&mut self, other: &Self) {
        if rank(other.verdict.as_deref()) > rank(self.verdict.as_deref()) {
            self.verdict.clone_from(&other.verdict);
        }
        self.offered_qps += other.offered_qps;
        self.admitted_qps += other.admitted_qps;
        self.shed_qps += other.shed_qps;
        self.offered_cpus = plus(self.offered_cpus, other.offered_cpus);
        self.admitted_cpus = plus(self.admitted_cpus, other.admitted_cpus);
        self.shed_cpus = plus(self.shed_cpus, other.shed_cpus);
        self.used_cpus = plus(self.used_cpus, other.used_cpus);
        self.capacity_cpus = plus(self.capacity_cpus, other.capacity_cpus);
        self.healthy += other.healthy;
        self.backends += other.backends;
    }
}

/// A row of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row<'a> {
    /// The proxy's admin address, as it was given.
    pub(crate) admin: &'a str,
    /// The name of its machine; `None` if it does not answer.
    pub(crate) name: Option<&'a str>,
    /// Its sums; `None` if it does not answer.
    pub(crate) sums: Option<Sums>,
}

/// A fleet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fleet<'a> {
    /// The proxies, in the order given.
    pub(crate) rows: Vec<Row<'a>>,
    /// The sums of those that answer.
    pub(crate) sums: Sums,
    /// Proxies that answer.
    pub(crate) answering: usize,
}

/// Merges the answers of several proxies: each with its admin address.
pub(crate) fn merge<'a>(answers: impl IntoIterator<Item = (&'a str, Option<&'a Live>)>) -> Fleet<'a> {
    let mut fleet = Fleet { rows: Vec::new(), sums: Sums::default(), answering: 0 };
    for (admin, live) in answers {
        let sums = live.map(Sums::of);
        if let Some(sums) = &sums {
            fleet.sums.add(sums);
            fleet.answering += 1;
        }
        fleet.rows.push(Row { admin, name: live.map(|live| live.process.name.as_str()), sums });
    }
    fleet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::examples::{fine, no_gate, overload};

    #[test]
    fn sums_add_what_is_known_and_take_the_worst_verdict() {
        let (fine, overload, no_gate) = (fine(), overload(), no_gate());
        let fleet = merge([("a:1", Some(&fine)), ("b:1", Some(&overload)), ("c:1", Some(&no_gate)), ("d:1", None)]);
        assert_eq!((fleet.rows.len(), fleet.answering), (4, 3));
        assert_eq!(fleet.rows[3], Row { admin: "d:1", name: None, sums: None });
        let of = |row: usize| fleet.rows[row].sums.clone().unwrap();
        assert_eq!(fleet.sums.verdict.as_deref(), Some("users-affected"));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(fleet.sums.offered_qps, of(0).offered_qps + of(1).offered_qps + of(2).offered_qps));
        assert!(near(fleet.sums.offered_cpus.unwrap(), of(0).offered_cpus.unwrap() + of(1).offered_cpus.unwrap()));
        assert!(near(fleet.sums.capacity_cpus.unwrap(), 16.0) && of(2).capacity_cpus.is_none());
        assert_eq!(fleet.sums.healthy, of(0).healthy + of(1).healthy + of(2).healthy);
    }

    #[test]
    fn order_of_the_proxies_does_not_change_the_sums() {
        let (fine, overload) = (fine(), overload());
        let [a, b] = [[&fine, &overload], [&overload, &fine]].map(|of| merge(of.map(|live| ("a:1", Some(live)))).sums);
        assert_eq!((a.verdict, a.healthy, a.used_cpus), (b.verdict, b.healthy, b.used_cpus));
    }

    #[test]
    fn unknown_parts_stay_unknown() {
        let no_gate = no_gate();
        let fleet = merge([("a:1", Some(&no_gate)), ("b:1", None)]);
        assert_eq!((fleet.sums.verdict, fleet.sums.offered_cpus, fleet.sums.used_cpus), (None, None, None));
        assert_eq!(merge([("a:1", None)]).sums, Sums::default());
    }
}

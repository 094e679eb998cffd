//! One cluster at several proxies.
//!
//! - Verdict, meaning, its time, binding signal: of the proxy with the worst verdict. A dry run counts
//!   only where nothing is shed for real.
//! - Capacity, load line and use in CPUs: the sum. Each proxy protects a process of its own.
//! - CPUs that would be enough: the sum. A proxy without a shortage adds its capacity. Unknown while
//!   one with a shortage does not know.
//! - Load by signal, time of shedding: the largest.
//! - Offered, admitted and shed requests and CPUs: the sum, by criticality and reason.

use std::collections::BTreeMap;

use plimsoll_admin::parts::significant;
use plimsoll_admin::{LiveCluster, LiveDemand, LiveGate};

use super::{Member, backends, customers, largest, plus, traffic};
use crate::words::rank;

/// The cluster that these proxies show in detail; `None` without one.
pub(super) fn merge(shown: &[Member<'_>]) -> Option<LiveCluster> {
    let clusters: Vec<&LiveCluster> =
        shown.iter().filter_map(|member| member.live).filter_map(|live| live.cluster.as_ref()).collect();
    let first = clusters.first()?;
    let mut policies: Vec<&str> = clusters.iter().map(|cluster| cluster.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    Some(LiveCluster {
        name: first.name.clone(),
        policy: policies.join(", "),
        gate: gate(shown),
        demand: demand(&clusters),
        backends: backends::merge(&clusters),
        customers: customers::merge(&clusters),
        traffic: traffic::merge(&clusters),
    })
}

fn gate(shown: &[Member<'_>]) -> Option<LiveGate> {
    let gates: Vec<(&Member<'_>, &LiveGate)> =
        shown.iter().filter_map(|member| Some((member, member.live?.cluster.as_ref()?.gate.as_ref()?))).collect();
    let of_verdict = |gate: &LiveGate| rank(Some(&gate.verdict));
    let fine = rank(Some("fine"));
    let severity = |gate: &LiveGate| (of_verdict(gate) > fine && !gate.dry_run, of_verdict(gate), gate.verdict_for_s);
    let (member, worst) = gates.iter().max_by(|(_, a), (_, b)| {
        let (a, b) = (severity(a), severity(b));
        (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
    })?;
    let sum = |part: fn(&LiveGate) -> Option<f64>| gates.iter().fold(None, |sum, (_, gate)| plus(sum, part(gate)));
    let max = |part: fn(&LiveGate) -> Option<f64>| gates.iter().fold(None, |max, (_, gate)| largest(max, part(gate)));
    let mut signals: BTreeMap<String, f64> = BTreeMap::new();
    for (signal, load) in gates.iter().flat_map(|(_, gate)| &gate.signals) {
        let known = signals.entry(signal.clone()).or_insert(*load);
        *known = known.max(*load);
    }
    Some(LiveGate {
        verdict: worst.verdict.clone(),
        meaning: worst.meaning.clone(),
        verdict_for_s: worst.verdict_for_s,
        proxy: Some(member.label().to_owned()),
        throttled_for_s: max(|gate| gate.throttled_for_s),
        dry_run: worst.dry_run,
        capacity_cpus: sum(|gate| Some(gate.capacity_cpus)).unwrap_or_default(),
        load_line_cpus: sum(|gate| Some(gate.load_line_cpus)).unwrap_or_default(),
        used_cpus: sum(|gate| gate.used_cpus),
        enough_cpus: enough(gates.iter().map(|(_, gate)| *gate)),
        binding_signal: worst.binding_signal.clone(),
        signals,
    })
}

fn enough<'a>(gates: impl Iterator<Item = &'a LiveGate>) -> Option<f64> {
    let (mut sum, mut is_known) = (0.0, false);
    for gate in gates {
        let is_short = rank(Some(&gate.verdict)) > rank(Some("as-intended"));
        match gate.enough_cpus {
            Some(enough) => {
                sum += enough;
                is_known = true;
            }
            None if is_short => return None,
            None => sum += gate.capacity_cpus,
        }
    }
    is_known.then(|| significant(sum))
}

/// The sums by criticality, in the order of the proxies' lists: the most important first.
fn demand(clusters: &[&LiveCluster]) -> Vec<LiveDemand> {
    let mut merged: Vec<LiveDemand> = Vec::new();
    for of in clusters.iter().flat_map(|cluster| &cluster.demand) {
        match merged.iter_mut().find(|known| known.criticality == of.criticality) {
            None => merged.push(of.clone()),
            Some(sum) => add(sum, of),
        }
    }
    merged
}

fn add(sum: &mut LiveDemand, of: &LiveDemand) {
    sum.offered_qps = significant(sum.offered_qps + of.offered_qps);
    sum.admitted_qps = significant(sum.admitted_qps + of.admitted_qps);
    sum.shed_qps = significant(sum.shed_qps + of.shed_qps);
    sum.offered_cpus = plus(sum.offered_cpus, of.offered_cpus);
    sum.admitted_cpus = plus(sum.admitted_cpus, of.admitted_cpus);
    sum.shed_cpus = plus(sum.shed_cpus, of.shed_cpus);
    for (reason, shed) in &of.shed {
        let known = sum.shed.entry(reason.clone()).or_default();
        known.qps = significant(known.qps + shed.qps);
        known.cpus = plus(known.cpus, shed.cpus);
    }
}

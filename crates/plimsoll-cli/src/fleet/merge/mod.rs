//! The states of several proxies as one, in the shape that the live page shows.
//!
//! Pure: the same answers give the same state, in any order of the proxies. The rule of each figure
//! is in the file of its part. In short: load is the sum, a share or a limit that each proxy has
//! for itself is the largest, and the verdict is the worst one, with the name of its proxy. A proxy
//! that does not answer has a row and no part in the figures.

mod backends;
mod changes;
mod cluster;
mod customers;
mod traffic;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_admin::parts::{MAX_BATCH, MAX_CLUSTERS, significant};
use plimsoll_admin::{Live, LiveBatch, LiveClusterRow, LiveProcess, LiveSample, LiveVerdict};
use serde::Serialize;

use super::sums::Sums;
use crate::words::rank;

/// A proxy, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    /// Its admin address, as it was given.
    pub(crate) admin: &'a str,
    /// Its state; `None` if it does not answer now.
    pub(crate) live: Option<&'a Live>,
    /// The name of its machine, from its latest answer.
    pub(crate) name: Option<&'a str>,
    /// Why it does not answer.
    pub(crate) problem: Option<&'a str>,
    /// Time for which it answers, or does not, in seconds.
    pub(crate) for_s: f64,
    /// How far its clock is ahead of ours, in seconds.
    pub(crate) ahead_s: f64,
}

impl Member<'_> {
    /// The name that people know it by.
    fn label(&self) -> &str {
        self.name.unwrap_or(self.admin)
    }
}

/// The names of proxies, each with its address: that of its machine, or the address where the machine is
/// not known or has several proxies.
pub(crate) fn labels<'a>(proxies: &[(Option<&'a str>, &'a str)]) -> Vec<&'a str> {
    let is_own = |name: &str| proxies.iter().filter(|(other, _)| *other == Some(name)).count() == 1;
    let label = |(name, admin): &(Option<&'a str>, &'a str)| {
        name.filter(|name| !name.is_empty() && is_own(name)).unwrap_or(admin)
    };
    proxies.iter().map(label).collect()
}

/// A row of the proxies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProxyRow {
    /// Its admin address, as it was given.
    pub(crate) address: String,
    /// The name of its machine; its address where that is not known, or has several proxies.
    pub(crate) name: String,
    /// Whether it answers now.
    pub(crate) answers: bool,
    /// Time for which it answers, or does not, in seconds.
    pub(crate) for_s: f64,
    /// Why it has no part in the figures; `null` if it has one.
    pub(crate) problem: Option<String>,
    /// Version of its program; `null` while it does not answer.
    pub(crate) version: Option<String>,
    /// `"starting"`, `"ready"` or `"draining"`; `null` while it does not answer.
    pub(crate) state: Option<String>,
    /// Its load; `null` if it has no part in the figures.
    pub(crate) load: Option<Sums>,
}

/// The state of a fleet: that of one proxy, and a row for each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FleetLive {
    #[serde(flatten)]
    pub(crate) live: Live,
    /// The proxies, in the order given.
    pub(crate) proxies: Vec<ProxyRow>,
}

/// The cluster to show of those that the proxies have: the one with the worst verdict, else the
/// first by name.
pub(crate) fn worst_cluster<'a>(members: &[Member<'a>]) -> Option<&'a str> {
    let rows = members.iter().filter_map(|member| member.live).flat_map(|live| &live.clusters);
    rows.min_by_key(|row| (Reverse(rank(row.verdict.as_deref())), &row.name)).map(|row| row.name.as_str())
}

/// The rank of the worst verdict that a proxy has for this cluster; `None` if no proxy has the
/// cluster.
pub(crate) fn rank_of(members: &[Member<'_>], cluster: &str) -> Option<usize> {
    let rows = members.iter().filter_map(|member| member.live).flat_map(|live| &live.clusters);
    rows.filter(|row| row.name == cluster).map(|row| rank(row.verdict.as_deref())).max()
}

/// The states of the proxies as one at `at`, in seconds since 1970, with this cluster in detail.
/// `sample` is the last second of the cluster.
pub(crate) fn merge(
    members: &[Member<'_>],
    cluster: Option<&str>,
    process: LiveProcess,
    at: f64,
    sample: Option<LiveSample>,
) -> FleetLive {
    let names: Vec<_> = members.iter().map(|member| (member.name, member.admin)).collect();
    let named = members.iter().zip(labels(&names));
    let members = &named.map(|(member, label)| Member { name: Some(label), ..*member }).collect::<Vec<_>>()[..];
    let detail = |member: &Member<'_>| {
        let found = member.live?.cluster.as_ref()?;
        (Some(found.name.as_str()) == cluster).then_some(())
    };
    let shown: Vec<Member<'_>> = members.iter().copied().filter(|member| detail(member).is_some()).collect();
    let answering = members.iter().filter(|member| member.live.is_some());
    let answers: Vec<&Live> = answering.clone().filter_map(|member| member.live).collect();
    let (clusters, clusters_left_off) = clusters(&answers);
    FleetLive {
        live: Live {
            at,
            process: LiveProcess {
                kind: "fleet".to_owned(),
                name: format!("{} of {} proxies", answers.len(), members.len()),
                ..process
            },
            verdict: verdict(members),
            clusters,
            clusters_left_off,
            cluster: cluster::merge(&shown),
            batch: batch(&answers),
            changes: changes::merge(members),
            sample,
        },
        proxies: members.iter().map(|member| row(member, cluster)).collect(),
    }
}

fn row(member: &Member<'_>, cluster: Option<&str>) -> ProxyRow {
    let live = member.live;
    let found = live.filter(|live| live.cluster.as_ref().map(|found| found.name.as_str()) == cluster);
    let missing = || match cluster {
        Some(name) if live.is_some() => Some(format!("it has no cluster {name}")),
        _ => None,
    };
    ProxyRow {
        address: member.admin.to_owned(),
        name: member.label().to_owned(),
        answers: live.is_some(),
        for_s: significant(member.for_s),
        problem: member.problem.map(ToOwned::to_owned).or_else(|| if found.is_none() { missing() } else { None }),
        version: live.map(|live| live.process.version.clone()),
        state: live.map(|live| live.process.state.clone()),
        load: found.map(|live| Sums::of(live).rounded()),
    }
}

/// The worst verdict of all clusters at all proxies; of equal ones the longest.
fn verdict(members: &[Member<'_>]) -> Option<LiveVerdict> {
    let verdicts = members.iter().filter_map(|member| Some((member, member.live?.verdict.as_ref()?)));
    let worst = verdicts.max_by(|(_, a), (_, b)| {
        let ranks = rank(Some(&a.verdict)).cmp(&rank(Some(&b.verdict)));
        ranks.then(a.for_s.total_cmp(&b.for_s)).then_with(|| b.cluster.cmp(&a.cluster))
    });
    worst.map(|(member, verdict)| LiveVerdict { proxy: Some(member.label().to_owned()), ..verdict.clone() })
}

/// The clusters of all proxies: the worst verdict, the sum of requests, and the most backends that
/// one proxy has, as proxies share them.
fn clusters(answers: &[&Live]) -> (Vec<LiveClusterRow>, usize) {
    let mut merged: BTreeMap<&str, LiveClusterRow> = BTreeMap::new();
    for row in answers.iter().flat_map(|live| &live.clusters) {
        match merged.get_mut(row.name.as_str()) {
            None => drop(merged.insert(&row.name, row.clone())),
            Some(known) => {
                if rank(row.verdict.as_deref()) > rank(known.verdict.as_deref()) {
                    known.verdict.clone_from(&row.verdict);
                }
                known.healthy = known.healthy.max(row.healthy);
                known.backends = known.backends.max(row.backends);
                known.requests_qps = significant(known.requests_qps + row.requests_qps);
            }
        }
    }
    // Clusters that a proxy left off may be those that another one listed.
    let left_off = answers.iter().map(|live| live.clusters_left_off).max().unwrap_or(0);
    let left_off = left_off + merged.len().saturating_sub(MAX_CLUSTERS);
    let mut rows: Vec<LiveClusterRow> = merged.into_values().collect();
    rows.sort_by_key(|row| Reverse(rank(row.verdict.as_deref())));
    rows.truncate(MAX_CLUSTERS);
    (rows, left_off)
}

/// The listeners for batch work of all proxies by name: sums, and the largest utilization.
fn batch(answers: &[&Live]) -> Vec<LiveBatch> {
    let mut merged: BTreeMap<&str, LiveBatch> = BTreeMap::new();
    for of in answers.iter().flat_map(|live| &live.batch) {
        let sum = merged
            .entry(&of.listener)
            .or_insert_with(|| LiveBatch { listener: of.listener.clone(), ..LiveBatch::default() });
        sum.queued = sum.queued.saturating_add(of.queued);
        sum.active = sum.active.saturating_add(of.active);
        sum.credit = significant(sum.credit + of.credit);
        sum.max_active = sum.max_active.saturating_add(of.max_active);
        sum.utilization = largest(sum.utilization, of.utilization);
    }
    merged.into_values().take(MAX_BATCH).collect()
}

/// The larger of two figures that may be unknown.
fn largest(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}

/// The sum of two figures that may be unknown: unknown only if both are.
fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(significant(a + b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;

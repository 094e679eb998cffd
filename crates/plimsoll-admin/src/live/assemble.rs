//! The answer of the live page, from a snapshot and the memory of its clusters.

use std::collections::BTreeMap;

use plimsoll::client::{self, NoRetryReason};
use plimsoll_core::health::State as Health;
use plimsoll_core::shedding::{Share, Verdict};
use plimsoll_core::signal::Signal;
use plimsoll_core::{Criticality, LoadMeasure, Rejection};

use super::source::{LiveClusterSnapshot, LiveSnapshot, LiveSource};
use super::totals::{Rate, Rates};
use super::track::Track;
use super::view::*;
use super::{NoCluster, State};
use crate::round::significant;
use crate::shedding::{CustomerView, FleetView, meaning};
use crate::snapshot::{BatchSnapshot, InboundSnapshot};

/// The fleet at `at`, in seconds since 1970, with one cluster in detail: the one named, else the one with
/// the worst verdict.
pub(super) fn assemble(
    fleet: &dyn LiveSource,
    snapshot: &LiveSnapshot,
    state: &State,
    named: Option<&str>,
    at: f64,
) -> Result<Live, NoCluster> {
    let ranked = ranked(snapshot);
    let chosen = match named {
        Some(name) => Some(*ranked.iter().find(|cluster| *cluster.overview.name == *name).ok_or(NoCluster)?),
        None => ranked.first().copied(),
    };
    let cluster = chosen.map(|chosen| {
        let is_many = chosen.overview.backends.total() as usize > MAX_ROWS;
        let rows = if is_many { MAX_ROWS_OF_MANY } else { MAX_ROWS };
        fleet.live_cluster(&chosen.overview.name, rows).ok_or(NoCluster)
    });
    let cluster = cluster.transpose()?;
    let track = cluster.as_ref().and_then(|cluster| state.tracks.get(&cluster.overview.name));
    let worst = ranked.first().and_then(|cluster| Some((&cluster.overview.name, cluster.inbound.as_ref()?)));
    Ok(Live {
        at,
        process: LiveProcess::new("proxy", fleet.readiness().name(), state.began.elapsed()),
        verdict: worst.map(|(name, gate)| LiveVerdict {
            cluster: name.to_string(),
            verdict: gate.shedding.verdict.name().to_owned(),
            meaning: meaning(&gate.shedding, gate),
            for_s: significant(gate.shedding.verdict_for.as_secs_f64()),
            proxy: None,
        }),
        clusters: ranked.iter().take(MAX_CLUSTERS).map(|cluster| row(cluster, state)).collect(),
        clusters_left_off: ranked.len().saturating_sub(MAX_CLUSTERS),
        cluster: cluster.as_ref().map(|cluster| detail(cluster, track)),
        batch: snapshot.batch.iter().take(MAX_BATCH).map(|(listener, batch)| batch_view(listener, batch)).collect(),
        changes: state.changes.latest(),
        sample: track.and_then(|track| track.history.latest()).map(|sample| LiveSample::new(state.at, sample)),
    })
}

/// The clusters, the worst verdict first; a cluster without a gate has none, and comes last.
fn ranked(snapshot: &LiveSnapshot) -> Vec<&LiveClusterSnapshot> {
    let mut ranked: Vec<_> = snapshot.clusters.iter().collect();
    let badness = |cluster: &LiveClusterSnapshot| {
        let verdict = cluster.inbound.as_ref().map(|gate| gate.shedding.verdict);
        verdict.and_then(|verdict| Verdict::ALL.iter().position(|each| *each == verdict))
    };
    ranked.sort_by(|a, b| badness(b).cmp(&badness(a)).then_with(|| a.overview.name.cmp(&b.overview.name)));
    ranked
}

fn row(cluster: &LiveClusterSnapshot, state: &State) -> LiveClusterRow {
    let LiveClusterSnapshot { overview, inbound } = cluster;
    let rates = state.tracks.get(&overview.name).and_then(Track::rates);
    LiveClusterRow {
        name: overview.name.to_string(),
        verdict: inbound.as_ref().map(|gate| gate.shedding.verdict.name().to_owned()),
        healthy: overview.backends.states[Health::Healthy as usize],
        backends: overview.backends.total(),
        requests_qps: rates.map_or(0.0, |rates| significant(rates.requests)),
    }
}

fn detail(cluster: &LiveClusterSnapshot, track: Option<&Track>) -> LiveCluster {
    let LiveClusterSnapshot { overview, inbound } = cluster;
    let rates = track.and_then(Track::rates).unwrap_or_default();
    LiveCluster {
        name: overview.name.to_string(),
        policy: overview.policy.name().to_owned(),
        gate: inbound.as_ref().map(gate),
        demand: demand(&rates, inbound.is_some()),
        backends: backends(overview),
        customers: inbound.iter().flat_map(|gate| &gate.shedding.customers).map(customer).collect(),
        traffic: traffic(overview, &rates),
    }
}

fn gate(of: &InboundSnapshot) -> LiveGate {
    let shedding = &of.shedding;
    LiveGate {
        verdict: shedding.verdict.name().to_owned(),
        meaning: meaning(shedding, of),
        verdict_for_s: significant(shedding.verdict_for.as_secs_f64()),
        proxy: None,
        throttled_for_s: shedding.shedding_for.map(|time| significant(time.as_secs_f64())),
        dry_run: of.dry_run,
        capacity_cpus: significant(of.capacity),
        load_line_cpus: significant(of.load_line()),
        used_cpus: of.cpus.map(significant),
        enough_cpus: shedding.enough.map(significant),
        binding_signal: of.loads.binding.map(|signal| Signal::name(signal).to_owned()),
        signals: of.loads.known().map(|(signal, load)| (signal.name().to_owned(), significant(load))).collect(),
    }
}

fn demand(rates: &Rates, has_costs: bool) -> Vec<LiveDemand> {
    let cpus = |rate: Rate| has_costs.then(|| significant(rate.cpus));
    let sum = |shed: &[Rate]| {
        shed.iter().fold(Rate::default(), |sum, rate| Rate { qps: sum.qps + rate.qps, cpus: sum.cpus + rate.cpus })
    };
    let demand = |(rank, criticality): (usize, Criticality)| {
        let (offered, admitted, shed) = (rates.offered[rank], rates.admitted[rank], &rates.shed[rank]);
        let all = sum(shed);
        LiveDemand {
            criticality: criticality.name().to_owned(),
            offered_qps: significant(offered.qps),
            offered_cpus: cpus(offered),
            admitted_qps: significant(admitted.qps),
            admitted_cpus: cpus(admitted),
            shed_qps: significant(all.qps),
            shed_cpus: cpus(all),
            shed: Rejection::REPORTED
                .iter()
                .zip(shed)
                .filter(|(_, rate)| rate.qps > 0.0)
                .map(|(reason, rate)| {
                    (reason.name().to_owned(), LiveShed { qps: significant(rate.qps), cpus: cpus(*rate) })
                })
                .collect(),
        }
    };
    Criticality::ALL.into_iter().enumerate().map(demand).collect()
}

fn backends(overview: &client::ClusterOverview) -> LiveBackends {
    let (sums, rows) = (&overview.backends, &overview.rows);
    let distribution = sums.distribution();
    let measure = distribution.as_ref().map(|of| of.measure).unwrap_or_default();
    let spread = distribution.as_ref().and_then(|of| of.spread);
    let unhealthy = rows.iter().filter(|backend| backend.snapshot.state != Health::Healthy).count();
    LiveBackends {
        total: sums.total(),
        known: overview.known,
        by_state: Health::ALL.into_iter().zip(sums.states).map(|(state, n)| (state.name().to_owned(), n)).collect(),
        measure: measure.name().to_owned(),
        max: distribution.as_ref().map(|of| significant(of.max)),
        mean: distribution.as_ref().map(|of| significant(of.mean)),
        max_over_mean: spread.map(|of| significant(of.max_over_mean)),
        waste: spread.map(|of| significant(of.waste)),
        histogram: distribution.as_ref().map(|of| of.histogram.to_vec()).unwrap_or_default(),
        bin: distribution.as_ref().map_or(0.0, |of| of.bin),
        is_complete: rows.len() as u32 == sums.total(),
        left_off: sums.unhealthy().saturating_sub(unhealthy),
        rows: rows.iter().map(|row| backend(row, overview, measure)).collect(),
    }
}

fn backend(view: &client::BackendView, overview: &client::ClusterOverview, measure: LoadMeasure) -> LiveBackend {
    let client::BackendView { backend, locality, snapshot, .. } = view;
    let report = snapshot.report.map(|(_, report)| report);
    let load = match measure {
        LoadMeasure::Utilization => report.and_then(|report| report.utilization()),
        LoadMeasure::InFlight => Some(f64::from(snapshot.active)),
    };
    LiveBackend {
        address: backend.label().to_owned(),
        locality: locality.as_ref().map(ToString::to_string),
        state: snapshot.state.name().to_owned(),
        reason: snapshot.reason.name().to_owned(),
        since_s: significant(overview.at.since(snapshot.since).as_secs_f64()),
        load: load.map(significant),
        in_flight: snapshot.active,
        qps: report.map(|report| significant(report.qps)),
        latency_ms: snapshot.latency.map(|latency| significant(latency.as_secs_f64() * 1e3)),
        error_share: significant(snapshot.error_share),
        seen: None,
    }
}

fn customer(share: &Share) -> LiveCustomer {
    let CustomerView { share, soft_limit_cpus, hard_limit_cpus, fleet, fleet_group: _ } = share.into();
    LiveCustomer {
        name: share.name,
        offered_qps: share.qps,
        offered_cpus: share.cpus,
        used_cpus: share.used_cpus,
        shed_qps: share.shed_qps,
        shed_cpus: share.shed_cpus,
        shed: share.shed.into_iter().map(|(reason, qps)| (reason.to_owned(), qps)).collect(),
        soft_limit_cpus: significant(soft_limit_cpus),
        hard_limit_cpus: hard_limit_cpus.map(significant),
        fleet: fleet.map(fleet_limit).unwrap_or_default(),
    }
}

fn fleet_limit(of: FleetView) -> LiveFleetLimit {
    LiveFleetLimit {
        fleet_limit_cpus: of.fleet_limit_cpus,
        fleet_rate_cpus: of.fleet_rate_cpus,
        fleet_used_cpus: of.fleet_used_cpus,
        fleet_demand_cpus: of.fleet_demand_cpus,
        fleet_cut: of.fleet_cut.map(ToOwned::to_owned),
        fleet_cut_admitted: of.fleet_cut_admitted,
    }
}

fn traffic(overview: &client::ClusterOverview, rates: &Rates) -> LiveTraffic {
    let named = |values: &[f64]| -> BTreeMap<String, f64> {
        let named = Criticality::ALL.into_iter().zip(values).filter(|(_, value)| **value > 0.0);
        named.map(|(criticality, value)| (criticality.name().to_owned(), significant(*value))).collect()
    };
    let nonzero = |named: &mut dyn Iterator<Item = (&'static str, f64)>| -> BTreeMap<String, f64> {
        named.filter(|(_, qps)| *qps > 0.0).map(|(name, qps)| (name.to_owned(), significant(qps))).collect()
    };
    let unserved = [(Rejection::Saturated, rates.saturated), (Rejection::NoBackend, rates.no_backend)];
    LiveTraffic {
        requests_qps: significant(rates.requests),
        failures_qps: significant(rates.failures),
        throttled: named(&rates.throttled),
        held: named(&overview.restraint.held.map(|(_, share)| share.as_f64())),
        retries_qps: significant(rates.retries),
        retries_denied: nonzero(&mut NoRetryReason::ALL.into_iter().map(NoRetryReason::name).zip(rates.retries_denied)),
        retry_budget_used: significant(overview.restraint.budget_used.as_f64()),
        hedges_qps: significant(rates.hedges),
        hedges_won_qps: significant(rates.hedges_won),
        unserved: nonzero(&mut unserved.into_iter().map(|(reason, qps)| (reason.name(), qps))),
        waiting: overview.waiting,
        in_flight: overview.backends.active,
        p50_ms: rates.quantile_ms(0.5).map(significant),
        p99_ms: rates.quantile_ms(0.99).map(significant),
    }
}

fn batch_view(listener: &str, batch: &BatchSnapshot) -> LiveBatch {
    LiveBatch {
        listener: listener.to_owned(),
        queued: batch.queued.iter().map(|(_, queued)| *queued).sum(),
        active: batch.active,
        credit: significant(batch.credit),
        max_active: batch.max_active,
        utilization: batch.utilization.map(significant),
    }
}

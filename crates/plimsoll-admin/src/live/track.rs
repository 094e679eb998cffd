//! The memory of one cluster: ten seconds of counters, ten minutes of samples.

use std::collections::VecDeque;

use plimsoll_core::Criticality;
use plimsoll_core::shedding::Verdict;

use super::changes::Seen;
use super::history::History;
use super::series::Sample;
use super::source::LiveClusterSnapshot;
use super::totals::{Rates, Totals};
use super::view::LiveChange;
use crate::snapshot::InboundSnapshot;

/// Seconds over which rates are averaged: long enough for a few requests a second, short enough to
/// follow an incident.
const RATE_SECONDS: usize = 10;

/// Requests of all batch listeners.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchSums {
    pub(super) queued: usize,
    pub(super) active: u32,
}

/// The memory of one cluster.
#[derive(Debug, Default)]
pub(super) struct Track {
    totals: VecDeque<Totals>,
    pub(super) history: History<Sample>,
    seen: Seen,
    verdict: Option<Verdict>,
    /// Kept for a viewer only, beyond the number of clusters that are always followed.
    pub(super) is_extra: bool,
}

impl Track {
    pub(super) fn new(is_extra: bool) -> Self {
        Self { is_extra, ..Self::default() }
    }

    /// A second has ended. Returns the changes in it, the oldest first.
    pub(super) fn tick(&mut self, at: f64, cluster: &LiveClusterSnapshot, batch: BatchSums) -> Vec<LiveChange> {
        let totals = Totals::of(cluster);
        let is_first = self.totals.is_empty();
        if self.totals.back().is_some_and(|before| !totals.continues(before)) {
            self.totals.clear();
        }
        if let Some(before) = self.totals.back() {
            self.history.push(sample(cluster, &totals.since(before), batch));
        }
        if self.totals.len() > RATE_SECONDS {
            self.totals.pop_front();
        }
        self.totals.push_back(totals);
        let mut changes = self.seen.look(at, cluster);
        changes.extend(self.judge(at, cluster));
        // The state at the start is none.
        if is_first { Vec::new() } else { changes }
    }

    /// Rates of the last ten seconds.
    pub(super) fn rates(&self) -> Option<Rates> {
        Some(self.totals.back()?.since(self.totals.front()?))
    }

    fn judge(&mut self, at: f64, cluster: &LiveClusterSnapshot) -> Option<LiveChange> {
        let verdict = cluster.inbound.as_ref().map(|gate| gate.shedding.verdict);
        let before = std::mem::replace(&mut self.verdict, verdict);
        let (verdict, before) = (verdict?, before?);
        (verdict != before).then(|| LiveChange {
            at,
            kind: "verdict".to_owned(),
            cluster: Some(cluster.overview.name.to_string()),
            subject: verdict.name().to_owned(),
            text: format!("was {}", before.name()),
            proxies: Vec::new(),
        })
    }
}

/// The sample of a second with these rates.
fn sample(cluster: &LiveClusterSnapshot, rates: &Rates, batch: BatchSums) -> Sample {
    let (overview, gate) = (&cluster.overview, cluster.inbound.as_ref());
    let cpus = |of: f64| if gate.is_some() { of as f32 } else { f32::NAN };
    let known = |of: Option<f64>| of.map_or(f32::NAN, |of| of as f32);
    let distribution = overview.backends.distribution();
    let healthy = overview.backends.states[plimsoll_core::health::State::Healthy as usize];
    Sample {
        offered_cpus: rates.offered.map(|rate| cpus(rate.cpus)),
        admitted_cpus: rates.admitted.map(|rate| cpus(rate.cpus)),
        offered_qps: rates.offered.map(|rate| rate.qps as f32),
        admitted_qps: rates.admitted.map(|rate| rate.qps as f32),
        capacity_cpus: known(gate.map(|gate| gate.capacity)),
        load_line_cpus: known(gate.map(InboundSnapshot::load_line)),
        used_cpus: known(gate.and_then(|gate| gate.cpus)),
        load_max: known(distribution.as_ref().map(|of| of.max)),
        load_mean: known(distribution.as_ref().map(|of| of.mean)),
        throttled_qps: rates.throttled.iter().sum::<f64>() as f32,
        retries_qps: rates.retries as f32,
        hedges_qps: rates.hedges as f32,
        batch_queued: batch.queued as f32,
        batch_active: batch.active as f32,
        requests_qps: rates.requests as f32,
        failures_qps: rates.failures as f32,
        backends_healthy: healthy as f32,
        backends_total: overview.backends.total() as f32,
        in_flight: overview.backends.active as f32,
        waiting: overview.waiting as f32,
        p50_ms: known(rates.quantile_ms(0.5)),
        p99_ms: known(rates.quantile_ms(0.99)),
        verdict: gate.map_or(f32::NAN, |gate| {
            Verdict::ALL.iter().position(|each| *each == gate.shedding.verdict).unwrap_or(0) as f32
        }),
    }
}

const _: () = assert!(Criticality::ALL.len() == 4, "a series for each criticality");

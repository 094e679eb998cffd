//! Several proxies as clients of the backends.
//!
//! Rates and counts add up. A share that each proxy has for itself (of throttled requests, of the
//! retry budget) is the largest one. The median is the mean of the medians, weighted by requests.
//! The p99 is the largest one: that of all requests is no larger.

use std::collections::BTreeMap;

use plimsoll_admin::parts::significant;
use plimsoll_admin::{LiveCluster, LiveTraffic};

use super::largest;

pub(super) fn merge(clusters: &[&LiveCluster]) -> LiveTraffic {
    let mut sum = LiveTraffic::default();
    let (mut medians, mut weights) = (0.0, 0.0);
    for of in clusters.iter().map(|cluster| &cluster.traffic) {
        sum.requests_qps += of.requests_qps;
        sum.failures_qps += of.failures_qps;
        sum.retries_qps += of.retries_qps;
        sum.hedges_qps += of.hedges_qps;
        sum.hedges_won_qps += of.hedges_won_qps;
        add(&mut sum.throttled, &of.throttled);
        add(&mut sum.retries_denied, &of.retries_denied);
        add(&mut sum.unserved, &of.unserved);
        for (criticality, share) in &of.held {
            let known = sum.held.entry(criticality.clone()).or_default();
            *known = known.max(*share);
        }
        sum.retry_budget_used = sum.retry_budget_used.max(of.retry_budget_used);
        sum.waiting = sum.waiting.saturating_add(of.waiting);
        sum.in_flight = sum.in_flight.saturating_add(of.in_flight);
        if let Some(median) = of.p50_ms {
            // A proxy whose requests have ended still has their median.
            let weight = of.requests_qps.max(1e-3);
            medians += median * weight;
            weights += weight;
        }
        sum.p99_ms = largest(sum.p99_ms, of.p99_ms);
    }
    for rate in [
        &mut sum.requests_qps,
        &mut sum.failures_qps,
        &mut sum.retries_qps,
        &mut sum.hedges_qps,
        &mut sum.hedges_won_qps,
    ] {
        *rate = significant(*rate);
    }
    sum.p50_ms = (weights > 0.0).then(|| significant(medians / weights));
    sum
}

fn add(sums: &mut BTreeMap<String, f64>, of: &BTreeMap<String, f64>) {
    for (name, qps) in of {
        let sum = sums.entry(name.clone()).or_default();
        *sum = significant(*sum + qps);
    }
}

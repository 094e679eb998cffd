//! The series of a cluster's charts: one number each per second.

use super::history::{NamedSeries, Series};

/// One second of a cluster. Arrays are by criticality, the most important first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) offered_cpus: [f32; 4],
    pub(crate) admitted_cpus: [f32; 4],
    pub(crate) offered_qps: [f32; 4],
    pub(crate) admitted_qps: [f32; 4],
    pub(crate) capacity_cpus: f32,
    pub(crate) load_line_cpus: f32,
    pub(crate) used_cpus: f32,
    pub(crate) load_max: f32,
    pub(crate) load_mean: f32,
    pub(crate) throttled_qps: f32,
    pub(crate) retries_qps: f32,
    pub(crate) hedges_qps: f32,
    pub(crate) batch_queued: f32,
    pub(crate) batch_active: f32,
    pub(crate) requests_qps: f32,
    pub(crate) failures_qps: f32,
    pub(crate) backends_healthy: f32,
    pub(crate) backends_total: f32,
    pub(crate) in_flight: f32,
    pub(crate) waiting: f32,
    pub(crate) p50_ms: f32,
    pub(crate) p99_ms: f32,
    /// The place of the verdict in [`Verdict::ALL`](plimsoll_core::shedding::Verdict::ALL).
    pub(crate) verdict: f32,
}

/// The names of the series of a cluster, in a fixed order.
pub fn live_series() -> impl ExactSizeIterator<Item = &'static str> {
    Sample::ALL.iter().map(|(name, _)| *name)
}

impl Series for Sample {
    const ALL: &'static [NamedSeries<Self>] = &[
        ("offered_cpus.critical-plus", |of| of.offered_cpus[0]),
        ("offered_cpus.critical", |of| of.offered_cpus[1]),
        ("offered_cpus.sheddable-plus", |of| of.offered_cpus[2]),
        ("offered_cpus.sheddable", |of| of.offered_cpus[3]),
        ("admitted_cpus.critical-plus", |of| of.admitted_cpus[0]),
        ("admitted_cpus.critical", |of| of.admitted_cpus[1]),
        ("admitted_cpus.sheddable-plus", |of| of.admitted_cpus[2]),
        ("admitted_cpus.sheddable", |of| of.admitted_cpus[3]),
        ("offered_qps.critical-plus", |of| of.offered_qps[0]),
        ("offered_qps.critical", |of| of.offered_qps[1]),
        ("offered_qps.sheddable-plus", |of| of.offered_qps[2]),
        ("offered_qps.sheddable", |of| of.offered_qps[3]),
        ("admitted_qps.critical-plus", |of| of.admitted_qps[0]),
        ("admitted_qps.critical", |of| of.admitted_qps[1]),
        ("admitted_qps.sheddable-plus", |of| of.admitted_qps[2]),
        ("admitted_qps.sheddable", |of| of.admitted_qps[3]),
        ("capacity_cpus", |of| of.capacity_cpus),
        ("load_line_cpus", |of| of.load_line_cpus),
        ("used_cpus", |of| of.used_cpus),
        ("load_max", |of| of.load_max),
        ("load_mean", |of| of.load_mean),
        ("throttled_qps", |of| of.throttled_qps),
        ("retries_qps", |of| of.retries_qps),
        ("hedges_qps", |of| of.hedges_qps),
        ("batch_queued", |of| of.batch_queued),
        ("batch_active", |of| of.batch_active),
        ("requests_qps", |of| of.requests_qps),
        ("failures_qps", |of| of.failures_qps),
        ("backends_healthy", |of| of.backends_healthy),
        ("backends_total", |of| of.backends_total),
        ("in_flight", |of| of.in_flight),
        ("waiting", |of| of.waiting),
        ("p50_ms", |of| of.p50_ms),
        ("p99_ms", |of| of.p99_ms),
        ("verdict", |of| of.verdict),
    ];
}

//! The figures of backends for one answer with metrics: plain numbers for each, or sums over a cluster.
//!
//! Samples of one metric stay together in the text, so the backends are gone through once for each
//! metric, and their figures are needed until the last. Views of ten thousand backends would be 3 MB, in which each pass
//! misses the cache several times. [`Row`] has the numbers that metrics show, one after the other, and the
//! labels of a part of backends are one text, escaped once.
//!
//! Figures are taken from parts of views, so the lock of a cluster is free between two parts.

use plimsoll::client::{BackendCounts, BackendView, ClusterSummary};
use plimsoll_core::Speed;
use plimsoll_core::health::State;
use plimsoll_core::spread::{Spread, Tally};

use super::text::escape;
use crate::snapshot::InboundSnapshot;
use crate::view::healthy_utilization;

/// Metrics of single backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendMetrics {
    /// Of each backend.
    #[default]
    All,
    /// Sums over the backends of a cluster.
    Aggregate,
}

/// One cluster, for metrics.
#[derive(Clone, Debug)]
pub struct ClusterScrape {
    /// The cluster without its single backends.
    pub summary: ClusterSummary,
    /// The figures of its backends.
    pub backends: BackendFigures,
    /// Its gate; `None` if it has none.
    pub inbound: Option<InboundSnapshot>,
}

/// The figures of a cluster's backends.
#[derive(Clone, Debug)]
pub struct BackendFigures {
    utilization: Tally,
    pub(super) kept: Kept,
}

/// The figures as the metrics need them.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// Of each backend, in parts as they were read.
    Each(Vec<Part>),
    /// Sums; `None` without a backend.
    Sum(Option<Total>),
}

/// Backends that were read together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Their labels, one after the other, escaped.
    labels: Vec<u8>,
    rows: Vec<Row>,
}

/// The figures of one backend.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The end of its label among those of its part.
    label_end: u32,
    pub(super) state: State,
    pub(super) sums: Additive,
    pub(super) single: Single,
}

/// Sums over backends.
#[derive(Clone, Debug)]
pub(super) struct Total {
    /// Backends by state, in the order of [`State::ALL`].
    pub(super) states: [u64; State::ALL.len()],
    pub(super) sums: Additive,
}

/// The results of an attempt, in the order of [`Additive::results`].
pub(super) const RESULTS: [&str; 9] =
    ["1xx", "2xx", "3xx", "4xx", "5xx", "cancelled", "connect-failed", "broken", "timed-out"];

/// Figures whose sum over backends has a meaning.
#[derive(Clone, Debug)]
pub(super) struct Additive {
    pub(super) results: [u64; RESULTS.len()],
    pub(super) failures: u64,
    pub(super) active: u64,
    pub(super) reports: u64,
    pub(super) malformed_reports: u64,
    pub(super) connections: u64,
    pub(super) connections_opened: u64,
    pub(super) connections_failed: u64,
    /// Not a number if it is unknown.
    pub(super) qps: f64,
    /// Not a number if it is unknown.
    pub(super) eps: f64,
}

/// Figures of a backend alone. Each is not a number if it is unknown: an `Option` has twice the size.
#[derive(Clone, Debug)]
pub(super) struct Single {
    pub(super) weight: f64,
    pub(super) utilization: f64,
    pub(super) speed: f64,
    /// In seconds.
    pub(super) latency: f64,
    pub(super) error_share: f64,
}

impl BackendFigures {
    /// Of no backend yet.
    #[must_use]
    pub fn new(metrics: BackendMetrics) -> Self {
        let kept = match metrics {
            BackendMetrics::All => Kept::Each(Vec::new()),
            BackendMetrics::Aggregate => Kept::Sum(None),
        };
        Self { utilization: Tally::default(), kept }
    }

    /// Adds these backends.
    pub fn add(&mut self, backends: &[BackendView]) {
        backends.iter().filter_map(healthy_utilization).for_each(|load| self.utilization.add(load));
        match &mut self.kept {
            Kept::Each(parts) => parts.push(Part::of(backends)),
            Kept::Sum(total) => backends.iter().for_each(|backend| add(total, backend)),
        }
    }

    /// The spread of utilization over the healthy backends that report it.
    pub(super) fn spread(&self) -> Option<Spread> {
        self.utilization.spread()
    }
}

impl Part {
    fn of(backends: &[BackendView]) -> Self {
        let mut labels = Vec::with_capacity(backends.iter().map(|backend| backend.backend.label().len()).sum());
        let row = |backend: &BackendView| {
            escape(&mut labels, backend.backend.label());
            let label_end = labels.len() as u32;
            Row { label_end, state: backend.snapshot.state, sums: Additive::of(backend), single: Single::of(backend) }
        };
        let rows = backends.iter().map(row).collect();
        Self { labels, rows }
    }

    /// Each backend with its label, escaped.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &Row)> {
        let mut begin = 0;
        self.rows.iter().map(move |row| {
            let end = row.label_end as usize;
            (&self.labels[std::mem::replace(&mut begin, end)..end], row)
        })
    }
}

fn add(total: &mut Option<Total>, backend: &BackendView) {
    let sums = Additive::of(backend);
    let total = match total {
        Some(total) => {
            total.sums.add(&sums);
            total
        }
        None => total.insert(Total { states: [0; State::ALL.len()], sums }),
    };
    total.states[backend.snapshot.state as usize] += 1;
}

impl Additive {
    fn of(backend: &BackendView) -> Self {
        let BackendCounts { responses: [r1, r2, r3, r4, r5], cancelled, connect_failed, broken, timed_out, .. } =
            backend.counts;
        let load = backend.snapshot.report.as_ref().map(|(_, load)| load);
        Self {
            results: [r1, r2, r3, r4, r5, cancelled, connect_failed, broken, timed_out],
            failures: backend.snapshot.failures,
            active: u64::from(backend.snapshot.active),
            reports: backend.counts.reports,
            malformed_reports: backend.counts.malformed_reports,
            connections: backend.counts.connections_open(),
            connections_opened: backend.counts.connections_opened,
            connections_failed: backend.counts.connections_failed,
            qps: load.map_or(f64::NAN, |load| load.qps),
            eps: load.map_or(f64::NAN, |load| load.eps),
        }
    }

    fn add(&mut self, other: &Self) {
        self.results.iter_mut().zip(other.results).for_each(|(sum, count)| *sum += count);
        self.failures += other.failures;
        self.active += other.active;
        self.reports += other.reports;
        self.malformed_reports += other.malformed_reports;
        self.connections += other.connections;
        self.connections_opened += other.connections_opened;
        self.connections_failed += other.connections_failed;
        for (sum, rate) in [(&mut self.qps, other.qps), (&mut self.eps, other.eps)] {
            if rate.is_finite() {
                *sum = if sum.is_finite() { *sum + rate } else { rate };
            }
        }
    }
}

impl Single {
    fn of(backend: &BackendView) -> Self {
        let snapshot = &backend.snapshot;
        let load = snapshot.report.as_ref().map(|(_, load)| load);
        Self {
            weight: snapshot.weight,
            utilization: load.and_then(|load| load.utilization()).unwrap_or(f64::NAN),
            speed: backend.speed().map_or(f64::NAN, Speed::as_f64),
            latency: snapshot.latency.map_or(f64::NAN, |latency| latency.as_secs_f64()),
            error_share: snapshot.error_share,
        }
    }
}

//! Samples of backends: of each one, or their sums over a cluster, for `backend_metrics = "aggregate"`.
//!
//! A sum has the labels of the metric without `backend`. So a query that sums over backends has the
//! same answer for either setting.
//!
//! Ten thousand backends have 250,000 samples. Nearly all of a line is the same for the backends of a cluster, so
//! that is formatted once ([`Opening`](super::text::Opening)).

use plimsoll_core::health::State;

use super::figures::{Additive, Kept, Part, RESULTS, Row, Single, Total};
use super::text::{Kind, Value};
use super::{Metric, Samples, Scrape};

/// Gauges that may be summed over backends. Counters always may.
const ADDITIVE: [&str; 5] =
    ["in_flight_requests", "backend_state", "backend_qps", "backend_eps", "backend_connections"];

/// Whether a metric has a sample for each backend.
pub(super) fn is_of_backend(metric: &Metric) -> bool {
    metric.labels.get(1) == Some(&"backend")
}

/// Whether a sum over backends has a meaning.
pub(super) fn is_additive(metric: &Metric) -> bool {
    metric.kind == Kind::Counter || ADDITIVE.contains(&metric.name)
}

/// The labels of the sums of a metric of backends.
pub(super) fn labels_of_sums(metric: &Metric) -> &'static [&'static str] {
    match metric.labels {
        ["cluster", "backend", "result"] => &["cluster", "result"],
        ["cluster", "backend", "state"] => &["cluster", "state"],
        _ => &["cluster"],
    }
}

/// A counter of each backend.
pub(super) fn counts(scrape: &Scrape, out: &mut Samples<'_>, count: impl Fn(&Additive) -> u64) {
    let (row, total) = (|row: &Row, _| Value::Count(count(&row.sums)), |of: &Total, _| Value::Count(count(&of.sums)));
    samples(scrape, out, &[], row, total);
}

/// A gauge of each backend that may be summed.
pub(super) fn gauges(scrape: &Scrape, out: &mut Samples<'_>, gauge: impl Fn(&Additive) -> f64) {
    let (row, total) = (|row: &Row, _| Value::Gauge(gauge(&row.sums)), |of: &Total, _| Value::Gauge(gauge(&of.sums)));
    samples(scrape, out, &[], row, total);
}

/// A gauge of each backend that has no sum.
pub(super) fn singles(scrape: &Scrape, out: &mut Samples<'_>, gauge: impl Fn(&Single) -> f64) {
    samples(scrape, out, &[], |row, _| Value::Gauge(gauge(&row.single)), |_, _| Value::Gauge(f64::NAN));
}

/// Attempts at each backend by result.
pub(super) fn results(scrape: &Scrape, out: &mut Samples<'_>) {
    let row = |row: &Row, at: usize| Value::Count(row.sums.results[at]);
    samples(scrape, out, &RESULTS, row, |of, at| Value::Count(of.sums.results[at]));
}

/// The state of each backend, or the number of backends by state.
pub(super) fn states(scrape: &Scrape, out: &mut Samples<'_>) {
    let row = |row: &Row, at: usize| Value::Gauge(f64::from(u8::from(row.state == State::ALL[at])));
    samples(scrape, out, &State::ALL.map(State::name), row, |of, at| Value::Gauge(of.states[at] as f64));
}

/// Writes the samples of the section: those of each backend in it, or the sums. There is one for each value of the
/// last label, or one without it.
fn samples(
    scrape: &Scrape,
    out: &mut Samples<'_>,
    last: &[&str],
    row: impl Fn(&Row, usize) -> Value,
    total: impl Fn(&Total, usize) -> Value,
) {
    let Samples { writer: out, section } = out;
    let Some(cluster) = scrape.snapshot.clusters.get(section.cluster) else { return };
    let name = &*cluster.summary.name;
    match &cluster.backends.kept {
        Kept::Each(parts) => {
            let opening = out.opening(name);
            let closings = match last {
                [] => vec![out.closing(None)],
                last => last.iter().map(|last| out.closing(Some(last))).collect(),
            };
            for (label, each) in parts.get(section.part).into_iter().flat_map(Part::rows) {
                for (at, closing) in closings.iter().enumerate() {
                    out.line(&opening, label, closing, row(each, at));
                }
            }
        }
        Kept::Sum(None) => {}
        Kept::Sum(Some(sum)) if last.is_empty() => out.value(&[name], total(sum, 0)),
        Kept::Sum(Some(sum)) => {
            last.iter().enumerate().for_each(|(at, last)| out.value(&[name, last], total(sum, at)));
        }
    }
}

/// The backends whose samples are written in one go: a part of those of a cluster, or all if they are summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Section {
    /// Index of the cluster.
    cluster: usize,
    /// Index of the part.
    part: usize,
}

impl Section {
    /// The one after it; `None` after the last.
    pub(super) fn next(self, scrape: &Scrape) -> Option<Self> {
        let Self { cluster, part } = self;
        let parts = match &scrape.snapshot.clusters.get(cluster)?.backends.kept {
            Kept::Each(parts) => parts.len(),
            Kept::Sum(_) => 1,
        };
        if part + 1 < parts {
            return Some(Self { cluster, part: part + 1 });
        }
        (cluster + 1 < scrape.snapshot.clusters.len()).then_some(Self { cluster: cluster + 1, part: 0 })
    }
}

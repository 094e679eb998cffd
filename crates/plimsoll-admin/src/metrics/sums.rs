//! Sums over the backends of a cluster, for `backend_metrics = "aggregate"`.
//!
//! A sum has the labels of the metric without `backend`. So a query that sums over backends has the
//! same answer for either setting.

use super::Metric;
use super::text::{Kind, Writer};

/// Gauges that may be summed over backends. Counters always may.
const ADDITIVE: [&str; 5] =
    ["in_flight_requests", "backend_state", "backend_qps", "backend_eps", "backend_connections"];

/// Whether a sum over backends has a meaning.
pub(super) fn is_additive(metric: &Metric) -> bool {
    metric.kind == Kind::Counter || ADDITIVE.contains(&metric.name)
}

/// The labels of the sums of a metric of backends.
pub(super) fn labels(metric: &Metric) -> &'static [&'static str] {
    match metric.labels {
        ["cluster", "backend", "result"] => &["cluster", "result"],
        ["cluster", "backend", "state"] => &["cluster", "state"],
        _ => &["cluster"],
    }
}

/// The sums of one cluster.
#[derive(Debug, Default)]
pub(super) struct Sums {
    cluster: String,
    /// By the label after `backend`; empty without one.
    sums: Vec<(String, f64)>,
    /// The next place: backends have their samples in the same order.
    next: usize,
}

impl Sums {
    /// Adds a sample of a backend. The samples of a cluster come one after the other.
    pub(super) fn add(&mut self, labels: &[&str], value: f64, writer: &mut Writer<'_>) {
        let (cluster, last) = (labels[0], labels.get(2).copied().unwrap_or_default());
        if self.cluster != cluster {
            std::mem::take(self).write(writer);
            self.cluster = cluster.to_owned();
        }
        let is_here = self.sums.get(self.next).is_some_and(|(known, _)| known == last);
        let place = if is_here { Some(self.next) } else { self.sums.iter().position(|(known, _)| known == last) };
        match place {
            Some(place) => {
                self.sums[place].1 += value;
                self.next = (place + 1) % self.sums.len();
            }
            None => {
                self.sums.push((last.to_owned(), value));
                self.next = 0;
            }
        }
    }

    /// Writes the sums of a cluster.
    pub(super) fn write(self, writer: &mut Writer<'_>) {
        for (last, sum) in &self.sums {
            let labels: &[&str] = if last.is_empty() { &[&self.cluster] } else { &[&self.cluster, last] };
            match writer.kind() {
                // All counters of backends count whole things.
                Kind::Counter => writer.count(labels, *sum as u64),
                _ => writer.quantity(labels, *sum),
            }
        }
    }
}

//! The backends of clusters: each one, or their sums over a cluster.

use std::fmt;

use plimsoll_core::Speed;
use plimsoll_core::health::State;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::{Head, Samples};
use crate::client::{BackendCounts, BackendView, ClusterView};

/// A metric of backends.
pub(super) struct OfBackends {
    head: Head,
    /// The last label with its values, or none.
    last: Option<(&'static str, &'static [&'static str])>,
    is_additive: bool,
    /// The value for that of the last label, by index; not finite if it is unknown.
    value: fn(&BackendView, usize) -> f64,
}

/// The results of an attempt.
const RESULTS: &[&str] = &["1xx", "2xx", "3xx", "4xx", "5xx", "cancelled", "connect-failed", "broken", "timed-out"];
/// The states of a backend.
static STATES: [&str; State::ALL.len()] = {
    let mut names = [""; State::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = State::ALL[at].name();
        at += 1;
    }
    names
};

impl OfBackends {
    pub(super) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        views: &[ClusterView],
        is_aggregate: bool,
    ) -> fmt::Result {
        if is_aggregate && !self.is_additive {
            return Ok(());
        }
        let mut labels = vec!["cluster"];
        labels.extend((!is_aggregate).then_some("backend"));
        labels.extend(self.last.map(|(label, _)| label));
        self.head.encode(encoder, &labels, |samples| {
            views.iter().try_for_each(
                |view| {
                    if is_aggregate { self.sums(view, samples) } else { self.singles(view, samples) }
                },
            )
        })
    }

    /// The values of the last label, or one sample without it.
    fn values(&self) -> impl Iterator<Item = (usize, Option<&'static str>)> + use<> {
        let values = self.last.map_or(&[][..], |(_, values)| values);
        let without = self.last.is_none().then_some((0, None));
        values.iter().copied().map(Some).enumerate().chain(without)
    }

    fn singles(&self, view: &ClusterView, samples: &mut Samples<'_, '_>) -> fmt::Result {
        for backend in &view.backends {
            for (at, last) in self.values() {
                let labels = [Some(&*view.summary.name), Some(backend.backend.label()), last];
                self.sample(samples, &labels, (self.value)(backend, at))?;
            }
        }
        Ok(())
    }

    fn sums(&self, view: &ClusterView, samples: &mut Samples<'_, '_>) -> fmt::Result {
        for (at, last) in self.values() {
            let known = view.backends.iter().map(|backend| (self.value)(backend, at)).filter(|value| value.is_finite());
            if let Some(sum) = known.reduce(|sum, value| sum + value) {
                self.sample(samples, &[Some(&*view.summary.name), last], sum)?;
            }
        }
        Ok(())
    }

    fn sample(&self, samples: &mut Samples<'_, '_>, labels: &[Option<&str>], value: f64) -> fmt::Result {
        let labels: Vec<&str> = labels.iter().copied().flatten().collect();
        match self.head.kind {
            // Counts of single things stay below 2^53.
            MetricType::Counter => samples.count(&labels, value as u64),
            _ => samples.gauge(&labels, value),
        }
    }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&BackendView, usize) -> f64) -> OfBackends {
    OfBackends { head: Head { name, kind: MetricType::Counter, help }, last: None, is_additive: true, value }
}

/// A gauge with a meaningful sum over backends.
const fn additive(name: &'static str, help: &'static str, value: fn(&BackendView, usize) -> f64) -> OfBackends {
    OfBackends { head: Head { name, kind: MetricType::Gauge, help }, last: None, is_additive: true, value }
}

const fn single(name: &'static str, help: &'static str, value: fn(&BackendView, usize) -> f64) -> OfBackends {
    OfBackends { head: Head { name, kind: MetricType::Gauge, help }, last: None, is_additive: false, value }
}

/// The table.
pub(super) static TABLE: &[OfBackends] = &[
    OfBackends {
        last: Some(("result", RESULTS)),
        ..counter(
            "plimsoll_requests",
            "Attempts by result: the class of the status, or the reason for no response",
            |b, at| {
                let BackendCounts { responses, cancelled, connect_failed, broken, timed_out, .. } = b.counts;
                let [r1, r2, r3, r4, r5] = responses;
                [r1, r2, r3, r4, r5, cancelled, connect_failed, broken, timed_out][at] as f64
            },
        )
    },
    counter(
        "plimsoll_failures",
        "Requests that count as failures for load balancing, by HTTP or gRPC status",
        |b, _| b.snapshot.failures as f64,
    ),
    additive("plimsoll_in_flight_requests", "Requests in flight at a backend", |b, _| f64::from(b.snapshot.active)),
    OfBackends {
        last: Some(("state", &STATES)),
        ..additive("plimsoll_backend_state", "1 for the state of a backend, 0 for the others", |b, at| {
            f64::from(u8::from(b.snapshot.state == State::ALL[at]))
        })
    },
    single(
        "plimsoll_backend_weight_ratio",
        "Share of requests that the policy intends for a backend, relative to the mean",
        |b, _| b.snapshot.weight,
    ),
    single("plimsoll_backend_utilization_ratio", "Utilization reported by a backend; 1 is full", |b, _| {
        b.snapshot.report.and_then(|(_, load)| load.utilization()).unwrap_or(f64::NAN)
    }),
    additive("plimsoll_backend_qps", "Requests per second reported by a backend, over all of its clients", |b, _| {
        b.snapshot.report.map_or(f64::NAN, |(_, load)| load.qps)
    }),
    additive("plimsoll_backend_eps", "Failures per second reported by a backend, over all of its clients", |b, _| {
        b.snapshot.report.map_or(f64::NAN, |(_, load)| load.eps)
    }),
    single(
        "plimsoll_backend_speed_ratio",
        "Speed of a backend's machine relative to the reference core, by its report or its source; no sample without either",
        |b, _| b.speed().map_or(f64::NAN, Speed::as_f64),
    ),
    single(
        "plimsoll_backend_latency_seconds",
        "Recent peak latency of a backend, which decays by half in 7 s; used by `peak-ewma`",
        |b, _| b.snapshot.latency.map_or(f64::NAN, |latency| latency.as_secs_f64()),
    ),
    single("plimsoll_backend_error_ratio", "Share of failures among recent requests to a backend", |b, _| {
        b.snapshot.error_share
    }),
    counter("plimsoll_load_reports", "Load reports received", |b, _| b.counts.reports as f64),
    counter("plimsoll_malformed_load_reports", "Malformed load reports, ignored", |b, _| {
        b.counts.malformed_reports as f64
    }),
    additive("plimsoll_backend_connections", "Open connections to a backend", |b, _| {
        b.counts.connections_open() as f64
    }),
    counter("plimsoll_backend_connections_opened", "Connections opened to a backend", |b, _| {
        b.counts.connections_opened as f64
    }),
    counter("plimsoll_backend_connections_failed", "Failed attempts to connect to a backend", |b, _| {
        b.counts.connections_failed as f64
    }),
];

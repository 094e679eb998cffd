//! Metrics of clusters and servers for the crate `prometheus-client`.
//!
//! [`Metrics`] is a `Collector`: a registry asks it at each scrape, and it reads the counts that
//! clusters and servers keep anyway. So a request costs nothing more. Names, units, types and labels
//! are those of the proxy's metrics, and its dashboards and alerts work for a service as well. The
//! page `docs/metrics.md` of the repository explains each.
//!
//! ```
//! use plimsoll::client::Cluster;
//! use plimsoll::metrics::Metrics;
//! use plimsoll::server::{Lifecycle, ServerLayer};
//! use prometheus_client::encoding::text::encode;
//! use prometheus_client::registry::Registry;
//!
//! let search = Cluster::builder("search").backends(["10.0.0.1:8080"]).build()?;
//! let layer = ServerLayer::new(Lifecycle::serving());
//!
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(Metrics::new().cluster(&search).server("web", &layer)));
//!
//! let mut text = String::new();
//! encode(&mut text, &registry)?;
//! assert!(text.contains("plimsoll_known_backends{cluster=\"search\"} 1.0"));
//! assert!(text.contains("plimsoll_throttling_verdict{cluster=\"web\",verdict=\"fine\"} 1.0"));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! All clusters and servers of a registry go into one `Metrics`: two collectors would write each
//! metric twice, which scrapers refuse.

mod backends;
mod clusters;
mod servers;

use std::fmt;

pub use prometheus_client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use self::servers::Served;
use crate::client::{Cluster, ClusterView, Latencies};
use crate::server::ServerLayer;

/// The metrics of clusters and servers, at each scrape.
#[derive(Debug, Default)]
#[must_use = "a registry gets it by `register_collector`"]
pub struct Metrics {
    clusters: Vec<Cluster>,
    servers: Vec<(Box<str>, Server)>,
    is_aggregate: bool,
}

/// A layer, without the fields that are of no use in a log.
struct Server(ServerLayer);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerLayer")
    }
}

impl Metrics {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a cluster. Its name is the label `cluster`, so each name is to be used once.
    ///
    /// The cluster stays as long as this.
    pub fn cluster(mut self, cluster: &Cluster) -> Self {
        self.clusters.push(cluster.clone());
        self
    }

    /// Adds the gate of a server, with the label `cluster` of this value.
    ///
    /// The proxy calls a service before which it has a gate a cluster with `inbound`; here the service
    /// has its own.
    pub fn server(mut self, name: &str, layer: &ServerLayer) -> Self {
        self.servers.push((name.into(), Server(layer.clone())));
        self
    }

    /// Has sums over the backends of a cluster in place of single backends, as `backend_metrics =
    /// "aggregate"` of the proxy: for clusters of hundreds of backends, with some 25 lines each.
    pub fn aggregate_backends(mut self) -> Self {
        self.is_aggregate = true;
        self
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if !self.servers.is_empty() {
            let served: Vec<Served> = self.servers.iter().map(|(name, layer)| Served::of(name, &layer.0)).collect();
            servers::TABLE.iter().try_for_each(|metric| metric.encode(&mut encoder, &served))?;
        }
        if !self.clusters.is_empty() {
            let views: Vec<ClusterView> = self.clusters.iter().map(Cluster::view).collect();
            clusters::TABLE.iter().try_for_each(|metric| metric.encode(&mut encoder, &views))?;
            let is_aggregate = self.is_aggregate;
            backends::TABLE.iter().try_for_each(|metric| metric.encode(&mut encoder, &views, is_aggregate))?;
        }
        Ok(())
    }
}

/// The head of a metric.
struct Head {
    /// In full, but without the suffix `_total` of a counter.
    name: &'static str,
    kind: MetricType,
    help: &'static str,
}

/// A metric of facts of one kind.
struct Metric<T: 'static> {
    head: Head,
    labels: &'static [&'static str],
    fill: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
}

impl<T> Metric<T> {
    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        fill: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self { head: Head { name, kind: MetricType::Counter, help }, labels, fill }
    }

    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        fill: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self { head: Head { name, kind: MetricType::Gauge, help }, labels, fill }
    }

    const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        fill: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self { head: Head { name, kind: MetricType::Histogram, help }, labels, fill }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, facts: &[T]) -> fmt::Result {
        self.head.encode(encoder, self.labels, |samples| facts.iter().try_for_each(|fact| (self.fill)(fact, samples)))
    }
}

/// Units that are suffixes of names.
const UNITS: [&str; 2] = ["seconds", "ratio"];

impl Head {
    /// Writes the head, then the samples.
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        labels: &[&'static str],
        fill: impl FnOnce(&mut Samples<'_, '_>) -> fmt::Result,
    ) -> fmt::Result {
        // The encoder puts name and unit together.
        let with_unit =
            UNITS.into_iter().find_map(|unit| Some((self.name.strip_suffix(unit)?.strip_suffix('_')?, unit)));
        let (name, unit) = match with_unit {
            Some((name, "seconds")) => (name, Some(Unit::Seconds)),
            Some((name, unit)) => (name, Some(Unit::Other(unit.to_owned()))),
            None => (self.name, None),
        };
        let encoder = encoder.encode_descriptor(name, self.help, unit.as_ref(), self.kind)?;
        fill(&mut Samples { encoder, labels })
    }
}

/// The samples of one metric.
struct Samples<'e, 'l> {
    encoder: MetricEncoder<'e>,
    labels: &'l [&'static str],
}

impl Samples<'_, '_> {
    /// The labels of a sample, in the order of the metric's.
    fn labelled<R>(
        &mut self,
        values: &[&str],
        write: impl FnOnce(&mut MetricEncoder<'_>) -> R,
    ) -> Result<R, fmt::Error> {
        let labels: Vec<(&str, &str)> = self.labels.iter().copied().zip(values.iter().copied()).collect();
        Ok(write(&mut self.encoder.encode_family(&labels)?))
    }

    /// A count of whole things.
    fn count(&mut self, values: &[&str], count: u64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&count, None))?
    }

    /// A count of a quantity, such as seconds.
    fn quantity(&mut self, values: &[&str], quantity: f64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&quantity, None))?
    }

    /// A gauge. An unknown value has no sample.
    fn gauge(&mut self, values: &[&str], value: impl Into<Option<f64>>) -> fmt::Result {
        match value.into().filter(|value| value.is_finite()) {
            Some(value) => self.labelled(values, |encoder| encoder.encode_gauge(&value))?,
            None => Ok(()),
        }
    }

    /// 1 for a fact, 0 for its opposite.
    fn flag(&mut self, values: &[&str], is_so: bool) -> fmt::Result {
        self.gauge(values, f64::from(u8::from(is_so)))
    }

    fn histogram(&mut self, values: &[&str], latencies: &Latencies) -> fmt::Result {
        let bounds = Latencies::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latencies.buckets).collect();
        let (sum, count) = (latencies.sum.as_secs_f64(), latencies.buckets.iter().sum());
        self.labelled(values, |encoder| encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None))?
    }
}

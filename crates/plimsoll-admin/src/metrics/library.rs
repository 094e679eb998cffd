//! Holds the collector of the library to the metrics of the proxy: a service and a proxy have the same
//! dashboards and alerts.

use std::collections::BTreeSet;

use plimsoll::client::Cluster;
use plimsoll::discover::Endpoint;
use plimsoll::metrics::Metrics;
use plimsoll::metrics::prometheus_client::encoding::text::encode;
use plimsoll::metrics::prometheus_client::registry::Registry;
use plimsoll::server::{Lifecycle, ServerLayer};
use plimsoll_core::pick::PolicyKind;

use super::figures::{BackendFigures, BackendMetrics, ClusterScrape};
use super::*;
use crate::api::tests::fleet;
use crate::fleet::Fleet as _;

/// The text of the proxy about these clusters alone.
fn of_proxy(clusters: &[Cluster], backends: BackendMetrics) -> String {
    let mut snapshot = fleet().scrape(backends);
    let scrape = |cluster: &Cluster| {
        let mut figures = BackendFigures::new(backends);
        let summary = cluster.view_in_parts(|part| figures.add(part));
        ClusterScrape { summary, backends: figures, inbound: None }
    };
    snapshot.clusters = clusters.iter().map(scrape).collect();
    let scrape = Scrape { readiness: Readiness::Ready, snapshot, backends };
    String::from_utf8(Encoder::new(scrape).flatten().collect()).expect("it is text")
}

fn of_library(metrics: Metrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    let mut text = String::new();
    encode(&mut text, &registry).expect("it is written to memory");
    text
}

/// The lines about the clusters, without units, which the proxy does not write, and without the
/// splits of the other figures.
fn lines(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter(|line| ["plain", "hash"].iter().any(|name| line.contains(&format!("cluster=\"{name}\""))))
        .collect()
}

/// The heads of metrics.
fn heads(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| line.starts_with("# HELP ") || line.starts_with("# TYPE ")).collect()
}

#[tokio::test(start_paused = true)]
async fn samples_of_the_library_are_those_of_the_proxy() {
    let near = |port| Endpoint::new(([10, 0, 0, 1], port));
    let plain = Cluster::builder("plain").endpoints([near(80), near(81)]).build().expect("it is valid");
    let hash = Cluster::builder("hash").policy(PolicyKind::Hash).endpoints([near(80)]).configure(|config| {
        config.probes = Some(plimsoll::client::ProbeConfig::default());
    });
    let clusters = [plain, hash.build().expect("it is valid")];
    let metrics = || clusters.iter().fold(Metrics::new(), Metrics::cluster);
    for (backends, metrics) in
        [(BackendMetrics::All, metrics()), (BackendMetrics::Aggregate, metrics().aggregate_backends())]
    {
        let (proxy, library) = (of_proxy(&clusters, backends), of_library(metrics));
        assert_eq!(lines(&library), lines(&proxy));
        let unknown: Vec<_> = heads(&library).difference(&heads(&proxy)).copied().collect();
        assert!(unknown.is_empty(), "the proxy has no {unknown:?}");
        assert!(lines(&library).len() > 100, "{library}");
    }
}

#[test]
fn metrics_of_a_server_are_those_of_a_gate() {
    let layer = ServerLayer::new(Lifecycle::serving());
    let library = of_library(Metrics::new().server("web", &layer));
    let proxy = of_proxy(&[], BackendMetrics::All);
    let unknown: Vec<_> = heads(&library).difference(&heads(&proxy)).copied().collect();
    assert!(unknown.is_empty(), "the proxy has no {unknown:?}");
    assert_eq!(heads(&library).len(), 28, "{library}");
}

//! Metrics of clusters and servers, as a registry of `prometheus-client` writes them.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use plimsoll::client::{Client, Cluster};
use plimsoll::metrics::Metrics;
use plimsoll::metrics::prometheus_client::encoding::text::encode;
use plimsoll::metrics::prometheus_client::registry::Registry;
use plimsoll::server::{Lifecycle, ServerLayer, Trust};
use plimsoll_core::throttle::ThrottlePolicy;
use tower::{Layer as _, ServiceExt as _};

use self::support::{Server, Speaks, get, plain_config, status, text};

fn scrape(metrics: Metrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "no line {line} in\n{text}");
    }
}

async fn answered(client: &Client<Empty<Bytes>>) -> StatusCode {
    let response = client.send(get("/")).await.unwrap();
    let status = response.status();
    response.into_body().collect().await.unwrap();
    status
}

#[tokio::test]
async fn cluster_has_the_metrics_of_its_requests_and_backends() {
    let well = Server::start(Speaks::Http1, |_| text("ok")).await;
    let ill = Server::start(Speaks::Http1, |_| status(500)).await;
    let mut config = plain_config();
    config.throttle = ThrottlePolicy::Off;
    let cluster = Cluster::builder("search").configure(|settings| *settings = config);
    let cluster = cluster.endpoints([well.address, ill.address]).spawn().unwrap();
    let client = Client::new(&cluster);
    let mut by_status = [0_u64; 2];
    for _ in 0..6 {
        by_status[usize::from(answered(&client).await == StatusCode::OK)] += 1;
    }
    // The policy avoids a backend that fails.
    let [failed, served] = by_status;
    assert!(failed > 0 && served > 0, "{by_status:?}");
    let all = scrape(Metrics::new().cluster(&cluster));
    let of = |line: &str, server: &Server| {
        let line = line.replace("ADDRESS", &server.address.to_string());
        line.replace("SERVED", &served.to_string()).replace("FAILED", &failed.to_string())
    };
    assert_lines(
        &all,
        &[
            "# TYPE plimsoll_requests counter",
            &of("plimsoll_requests_total{cluster=\"search\",backend=\"ADDRESS\",result=\"2xx\"} SERVED", &well),
            &of("plimsoll_requests_total{cluster=\"search\",backend=\"ADDRESS\",result=\"5xx\"} FAILED", &ill),
            &of("plimsoll_requests_total{cluster=\"search\",backend=\"ADDRESS\",result=\"timed-out\"} 0", &ill),
            &of("plimsoll_failures_total{cluster=\"search\",backend=\"ADDRESS\"} FAILED", &ill),
            &of("plimsoll_in_flight_requests{cluster=\"search\",backend=\"ADDRESS\"} 0.0", &ill),
            &of("plimsoll_backend_state{cluster=\"search\",backend=\"ADDRESS\",state=\"healthy\"} 1.0", &well),
            &of("plimsoll_backend_state{cluster=\"search\",backend=\"ADDRESS\",state=\"ejected\"} 0.0", &well),
            &of("plimsoll_backend_connections_opened_total{cluster=\"search\",backend=\"ADDRESS\"} 1", &well),
            "# TYPE plimsoll_latency_seconds histogram",
            "# UNIT plimsoll_latency_seconds seconds",
            "plimsoll_latency_seconds_count{cluster=\"search\"} 6",
            "plimsoll_latency_seconds_bucket{le=\"+Inf\",cluster=\"search\"} 6",
            "# UNIT plimsoll_retry_budget_used_ratio ratio",
            "# TYPE plimsoll_known_backends gauge",
            "plimsoll_known_backends{cluster=\"search\"} 2.0",
            "plimsoll_discovery_info{cluster=\"search\",kind=\"static\",source=\"\"} 1.0",
            "plimsoll_unserved_requests_total{cluster=\"search\",reason=\"no-backend\"} 0",
        ],
    );
    assert!(!all.contains("plimsoll_backend_utilization_ratio{"), "there was no report, so there is no sample:\n{all}");
    assert!(all.ends_with("# EOF\n"));

    let sums = scrape(Metrics::new().cluster(&cluster).aggregate_backends());
    assert!(!sums.contains("backend=\""), "{sums}");
    assert_lines(
        &sums,
        &[
            &of("plimsoll_requests_total{cluster=\"search\",result=\"2xx\"} SERVED", &well),
            &of("plimsoll_requests_total{cluster=\"search\",result=\"5xx\"} FAILED", &ill),
            &of("plimsoll_failures_total{cluster=\"search\"} FAILED", &ill),
            "plimsoll_backend_state{cluster=\"search\",state=\"healthy\"} 2.0",
            "plimsoll_backend_connections_opened_total{cluster=\"search\"} 2",
        ],
    );
    assert!(!sums.contains("plimsoll_backend_error_ratio"), "a sum of ratios says nothing");
}

#[tokio::test]
async fn each_metric_is_written_once_for_all_clusters() {
    let clusters = ["a", "b"].map(|name| Cluster::builder(name).backends(["10.0.0.1:80"]).build().unwrap());
    let text = scrape(clusters.iter().fold(Metrics::new(), Metrics::cluster));
    let mut families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count);
    assert!(count > 40, "{count}");
    for name in ["a", "b"] {
        assert_lines(&text, &[&format!("plimsoll_known_backends{{cluster=\"{name}\"}} 1.0")]);
    }
}

#[tokio::test]
async fn server_has_the_metrics_of_its_gate() {
    let layer = ServerLayer::builder(Lifecycle::serving()).trust(Trust::Full).cpus(2.0).build();
    let service = layer.layer(tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    for (criticality, timeout) in [("sheddable", "5S"), ("critical", "5S"), ("critical", "0S")] {
        let request = Request::get("/").header("x-criticality", criticality).header("grpc-timeout", timeout);
        let request = request.header("grpc-previous-rpc-attempts", "1").body(Empty::new()).unwrap();
        service.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    }
    let without = ServerLayer::builder(Lifecycle::serving()).admission(None).build();
    let text = scrape(Metrics::new().server("web", &layer).server("other", &without));
    assert_lines(
        &text,
        &[
            "# TYPE plimsoll_admission_requests counter",
            "plimsoll_admission_requests_total{cluster=\"web\",criticality=\"critical\",decision=\"admitted\"} 1",
            "plimsoll_admission_requests_total{cluster=\"web\",criticality=\"critical\",decision=\"deadline\"} 1",
            "plimsoll_admission_requests_total{cluster=\"web\",criticality=\"sheddable\",decision=\"admitted\"} 1",
            "plimsoll_admission_requests_total{cluster=\"web\",criticality=\"sheddable\",decision=\"overloaded\"} 0",
            "# UNIT plimsoll_offered_cost_seconds seconds",
            "plimsoll_retried_requests_total{cluster=\"web\",criticality=\"critical\"} 2",
            "plimsoll_throttling_verdict{cluster=\"web\",verdict=\"users-affected\"} 0.0",
            "plimsoll_inbound_capacity_cpus{cluster=\"web\"} 2.0",
            "plimsoll_inbound_process_seen{cluster=\"web\"} 1.0",
            "plimsoll_inbound_machine_speed_ratio{cluster=\"web\"} 1.0",
        ],
    );
    assert!(text.contains("plimsoll_inbound_signal_load{cluster=\"web\",signal=\"cpu\"} "), "{text}");
    assert!(!text.contains("\"other\""), "without a gate there is nothing to count:\n{text}");
    assert!(!text.contains("plimsoll_known_backends"), "without a cluster neither:\n{text}");
}

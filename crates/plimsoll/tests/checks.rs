//! Active health checks over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use plimsoll::client::{Check, Client, Cluster, ClusterConfig, Protocol, ReportFormat};
use plimsoll_core::health::{Reason, State};
use plimsoll_core::{LoadReport, Rejection};
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{HealthCheckResponse, ServingStatus};
use plimsoll_wire::shed;

use support::*;

fn checked_by(check: Check) -> ClusterConfig {
    let mut config = plain_config();
    config.check = check;
    config.balancer.checks.interval = Duration::from_millis(10);
    config
}

fn http_check() -> Check {
    Check::Http { path: "/healthz".parse().unwrap(), host: None }
}

fn start(config: ClusterConfig, server: &Server) -> Cluster {
    let cluster = Cluster::new("test", config, [server.address]);
    tokio::spawn(cluster.run());
    cluster
}

#[tokio::test]
async fn a_check_passes_whose_answer_ends_its_connection() {
    let server = Server::start(Speaks::Http1, |_| {
        let response = http::Response::builder().status(204).header("connection", "close");
        now(response.body(http_body_util::Empty::new().boxed()).unwrap())
    })
    .await;
    let mut config = checked_by(http_check());
    config.balancer.checks.failures_to_refuse = std::num::NonZeroU32::MIN;
    let cluster = start(config, &server);
    until(|| server.requests() >= 20).await;
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
    assert!(cluster.counts().transitions.iter().all(|(state, ..)| *state != State::Refusing));
}

#[tokio::test]
async fn the_status_of_an_http_check_decides() {
    let answer = Arc::new(AtomicU16::new(503));
    let told = answer.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        assert_eq!(request.uri().path(), "/healthz");
        status(told.load(Ordering::SeqCst))
    })
    .await;
    let cluster = start(checked_by(http_check()), &server);
    let reason = || view_of(&cluster, server.address).snapshot.reason;
    until(|| reason() == Reason::NotServing).await;
    assert_eq!(state_of(&cluster, server.address), State::LameDuck);
    answer.store(204, Ordering::SeqCst);
    until(|| reason() == Reason::CheckPassed).await;
    assert_eq!(state_of(&cluster, server.address), State::Healthy);
    answer.store(500, Ordering::SeqCst);
    until(|| reason() == Reason::CheckFailed).await;
    assert_eq!(state_of(&cluster, server.address), State::Refusing);
    answer.store(200, Ordering::SeqCst);
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
}

/// An overloaded backend that lost its requests to this check would take its peers along.
#[tokio::test]
async fn a_check_that_is_turned_away_for_load_has_found_a_backend_that_serves() {
    for is_grpc in [false, true] {
        let reason = Arc::new(Mutex::new(Rejection::NoBackend));
        let told = reason.clone();
        let speaks = if is_grpc { Speaks::Http2(100) } else { Speaks::Http1 };
        let server = Server::start(speaks, move |_| {
            let head = shed::head(*told.lock().unwrap(), is_grpc, None);
            now(head.map(|()| Empty::new().boxed()))
        })
        .await;
        let mut config = checked_by(if is_grpc { Check::Grpc { service: String::new() } } else { http_check() });
        config.requests.protocol = if is_grpc { Protocol::Http2 } else { Protocol::Http1 };
        let cluster = start(config, &server);
        let view = || view_of(&cluster, server.address).snapshot;
        for &rejection in Rejection::SHED {
            until(|| view().reason == Reason::NotServing && view().state == State::LameDuck).await;
            *reason.lock().unwrap() = rejection;
            let seen = server.requests();
            until(|| server.requests() > seen + 2).await;
            let is_left = !rejection.is_of_load();
            assert_eq!(view().state == State::LameDuck, is_left, "{rejection} {is_grpc}");
            *reason.lock().unwrap() = Rejection::LameDuck;
        }
    }
}

#[tokio::test]
async fn an_http_check_speaks_http2_where_the_cluster_does() {
    let answer = Arc::new(AtomicU16::new(204));
    let told = answer.clone();
    let server = Server::start(Speaks::Http2(100), move |request| {
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let is_as_asked = authority == Some("web.internal") && request.uri().path() == "/healthz";
        status(if is_as_asked { told.load(Ordering::SeqCst) } else { 400 })
    })
    .await;
    let check = Check::Http { path: "/healthz".parse().unwrap(), host: Some("web.internal".parse().unwrap()) };
    let mut config = checked_by(check);
    config.requests.protocol = Protocol::Http2;
    let cluster = start(config, &server);
    let reason = || view_of(&cluster, server.address).snapshot.reason;
    until(|| reason() == Reason::CheckPassed).await;
    answer.store(503, Ordering::SeqCst);
    until(|| reason() == Reason::NotServing).await;
    answer.store(500, Ordering::SeqCst);
    until(|| reason() == Reason::CheckFailed).await;
    answer.store(200, Ordering::SeqCst);
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
}

#[tokio::test]
async fn an_http_check_without_a_host_names_the_backend_on_http2() {
    let server = Server::start(Speaks::Http2(100), |request| {
        let is_named = request.uri().authority().is_some_and(|authority| authority.as_str().starts_with("127.0.0.1:"));
        status(if is_named { 200 } else { 400 })
    })
    .await;
    let mut config = checked_by(http_check());
    config.requests.protocol = Protocol::Http2;
    let cluster = start(config, &server);
    until(|| view_of(&cluster, server.address).snapshot.reason == Reason::CheckPassed).await;
}

#[tokio::test]
async fn a_connection_alone_does_not_heal_where_checks_are_active() {
    let server = Server::start(Speaks::Http1, |_| status(404)).await;
    let mut config = checked_by(http_check());
    config.pool.min_connections = 1;
    let cluster = start(config, &server);
    let _client = Client::<http_body_util::Empty<bytes::Bytes>>::new(&cluster);
    until(|| view_of(&cluster, server.address).counts.connections_open() > 0).await;
    until(|| view_of(&cluster, server.address).snapshot.reason == Reason::CheckFailed).await;
}

#[tokio::test]
async fn a_lame_duck_flag_in_the_answer_of_a_check_is_obeyed() {
    let leaving = Arc::new(AtomicBool::new(false));
    let told = leaving.clone();
    let server = Server::start(Speaks::Http1, move |_| {
        reporting(LoadReport { lame_duck: told.load(Ordering::SeqCst), qps: 1.0, ..LoadReport::default() })
    })
    .await;
    let cluster = start(checked_by(http_check()), &server);
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
    until(|| view_of(&cluster, server.address).snapshot.report.is_some()).await;
    leaving.store(true, Ordering::SeqCst);
    until(|| state_of(&cluster, server.address) == State::LameDuck).await;
}

#[tokio::test]
async fn check_requests_a_report_and_reads_the_named_metric() {
    let server = Server::start(Speaks::Http1, |request| {
        let report = match request.headers().get("endpoint-load-metrics-format") {
            Some(format) if format == "json" => r#"JSON {"named_metrics": {"kv": 0.25}, "cpu_utilization": 0.75}"#,
            _ => "TEXT cpu_utilization=1",
        };
        let response = http::Response::builder().header("endpoint-load-metrics", report);
        now(response.body(Empty::new().boxed()).unwrap())
    })
    .await;
    let mut config = checked_by(http_check());
    let utilization = Arc::from(["named_metrics.kv".parse().unwrap()]);
    config.load_reports.request = Some(ReportFormat::Json);
    config.load_reports.utilization = utilization;
    let cluster = start(config, &server);
    let utilization = || view_of(&cluster, server.address).snapshot.report.and_then(|(_, load)| load.utilization());
    until(|| utilization().is_some()).await;
    assert_eq!(utilization(), Some(0.25));
}

#[tokio::test]
async fn a_grpc_check_asks_the_standard_service() {
    let serving = Arc::new(AtomicBool::new(true));
    let told = serving.clone();
    let server = Server::start(Speaks::Http2(100), move |request| {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        let status = if told.load(Ordering::SeqCst) { ServingStatus::Serving } else { ServingStatus::NotServing };
        support::grpc(grpc::frame(&HealthCheckResponse::of(status)), grpc::trailers(Code::Ok, ""))
    })
    .await;
    let cluster = start(checked_by(Check::Grpc { service: String::new() }), &server);
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
    serving.store(false, Ordering::SeqCst);
    until(|| state_of(&cluster, server.address) == State::LameDuck).await;
}

#[tokio::test]
async fn a_check_that_hangs_fails_by_its_timeout() {
    let server = Server::start(Speaks::Http1, |_| Box::pin(std::future::pending())).await;
    let mut config = checked_by(http_check());
    config.check_timeout.0 = Duration::from_millis(20);
    let cluster = start(config, &server);
    until(|| view_of(&cluster, server.address).snapshot.reason == Reason::CheckFailed).await;
}

#[tokio::test]
async fn a_tcp_check_finds_out_when_nobody_listens_and_when_somebody_does_again() {
    let server = Server::plain().await;
    let address = server.address;
    let cluster = start(checked_by(Check::Tcp), &server);
    until(|| state_of(&cluster, address) == State::Healthy).await;
    server.stop().await;
    until(|| state_of(&cluster, address) == State::Refusing).await;
    let _successor = Server::start_at(address, Speaks::Http1, |_| text("new")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
}

#[tokio::test]
async fn an_upgraded_connection_counts_as_active_until_its_body_is_dropped() {
    let server = Server::start(Speaks::Http1, |_| {
        let response = http::Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
        now(response.body(http_body_util::Empty::new().boxed()).unwrap())
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Client::<http_body_util::Empty<bytes::Bytes>>::new(&cluster);
    let mut request = get("/");
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let response = client.send(request).await.unwrap();
    assert_eq!(active(&cluster), 1);
    drop(response);
    assert_eq!(active(&cluster), 0);
    assert_eq!(view_of(&cluster, server.address).counts.responses, [1, 0, 0, 0, 0]);
}

//! The client as the transport of a tonic client.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::time::Duration;

use plimsoll::client::{Client, Cluster};
use plimsoll_core::LoadReport;
use plimsoll_core::pick::PolicyKind;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use support::*;

/// What a generated client does for a unary call.
async fn call(cluster: &Cluster, service: &str) -> Result<HealthCheckResponse, tonic::Status> {
    let mut grpc = Grpc::new(Client::<tonic::body::Body>::new(cluster));
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let message = HealthCheckRequest { service: service.to_owned() };
    Ok(grpc.unary(tonic::Request::new(message), path, codec).await?.into_inner())
}

#[tokio::test]
async fn a_tonic_client_calls_through_it_and_reports_are_read() {
    let report = LoadReport { application_utilization: 0.5, qps: 10.0, ..LoadReport::default() };
    let server = Server::start(Speaks::Http2(100), move |request| {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        let mut trailers = grpc::trailers(Code::Ok, "");
        trailers.extend(report_headers(report));
        support::grpc(grpc::frame(&HealthCheckResponse::of(ServingStatus::Serving)), trailers)
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let answer = call(&cluster, "").await.unwrap();
    assert_eq!(answer.status(), ServingStatus::Serving);
    let view = view_of(&cluster, server.address);
    assert_eq!(view.snapshot.report.map(|(_, report)| report), Some(report));
    assert_eq!((view.snapshot.active, view.snapshot.failures), (0, 0));
}

#[tokio::test]
async fn an_error_of_the_call_reaches_the_caller_and_the_machine() {
    let server = Server::start(Speaks::Http2(100), |_| {
        let mut response = http::Response::new(http_body_util::BodyExt::boxed(http_body_util::Empty::new()));
        response.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
        response.headers_mut().extend(grpc::trailers(Code::Internal, "broken"));
        now(response)
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let status = call(&cluster, "").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Internal, "broken"));
    let view = view_of(&cluster, server.address);
    assert_eq!((view.snapshot.active, view.snapshot.failures), (0, 1));
}

#[tokio::test]
async fn calls_are_split_by_what_the_servers_report() {
    const CALLS: u64 = 3_500;
    const MOST_CALLS: u64 = 50_000;
    let mut servers = Vec::new();
    for utilization in [0.2, 0.4, 0.8] {
        let report = LoadReport { application_utilization: utilization, qps: 100.0, ..LoadReport::default() };
        let answer = move |_| {
            let mut trailers = grpc::trailers(Code::Ok, "");
            trailers.extend(report_headers(report));
            support::grpc(grpc::frame(&HealthCheckResponse::of(ServingStatus::Serving)), trailers)
        };
        servers.push(Server::start(Speaks::Http2(100), answer).await);
    }
    let mut config = plain_config();
    config.balancer.policy = PolicyKind::Weighted;
    config.balancer.weighted.blackout = Duration::ZERO;
    config.balancer.weighted.update = Duration::from_millis(100);
    let cluster = running(config, &servers.iter().collect::<Vec<_>>()).await;
    let mut grpc = Grpc::new(Client::<tonic::body::Body>::new(&cluster));
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let weights_differ = || cluster.backends().iter().any(|view| view.snapshot.weight > 1.5);
    let mut before = [0; 3];
    let mut counted = 0;
    // Calls until all have reported and the weights are in force, and then the calls that count.
    for _ in 0..MOST_CALLS {
        if counted == CALLS {
            break;
        }
        let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
        grpc.ready().await.unwrap();
        grpc.unary(tonic::Request::new(HealthCheckRequest::default()), path.clone(), codec).await.unwrap();
        if counted > 0 {
            counted += 1;
        } else if weights_differ() {
            before = std::array::from_fn(|i| view_of(&cluster, servers[i].address).snapshot.requests);
            counted = 1;
        }
    }
    assert_eq!(counted, CALLS, "the weights never came into force");
    let shares = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0];
    for ((server, before), share) in servers.iter().zip(before).zip(shares) {
        let requests = view_of(&cluster, server.address).snapshot.requests - before;
        let got = requests as f64 / CALLS as f64;
        assert!((got / share - 1.0).abs() < 0.05, "{got:.3} of the calls, {share:.3} expected");
    }
}

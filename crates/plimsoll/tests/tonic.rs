//! The client as the transport of a tonic client.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use plimsoll::client::{Client, Cluster};
use plimsoll_core::LoadReport;
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

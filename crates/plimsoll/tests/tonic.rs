//! The client as the transport of a tonic client.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use plimsoll::client::{Client, Cluster, ConnectError, Error};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{LoadReport, Rejection};
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus, WATCH_PATH};
use plimsoll_wire::shed;
use tokio::sync::Notify;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use tower::ServiceExt as _;

use support::*;

/// The steps of a generated client for a unary call.
async fn call(cluster: &Cluster, service: &str) -> Result<HealthCheckResponse, tonic::Status> {
    let message = HealthCheckRequest { service: service.to_owned() };
    ask(&Client::new(cluster), tonic::Request::new(message)).await
}

async fn ask(
    client: &Client<tonic::body::Body>,
    request: tonic::Request<HealthCheckRequest>,
) -> Result<HealthCheckResponse, tonic::Status> {
    let mut grpc = Grpc::new(client.clone());
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let path = http::uri::PathAndQuery::from_static(CHECK_PATH);
    Ok(grpc.unary(request, path, codec).await?.into_inner())
}

/// The shed reason in a status.
fn said(status: &tonic::Status) -> Option<&str> {
    status.metadata().get("x-plimsoll-shed").map(|said| said.to_str().unwrap())
}

/// The value of `x-plimsoll-shed` for this reason, without a time.
fn value(rejection: Rejection) -> Option<&'static str> {
    rejection.header(None).map(|header| header.value)
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

/// A cluster with one backend that no longer listens.
async fn gone() -> (Cluster, SocketAddr) {
    let server = Server::start(Speaks::Http2(100), |_| status(200)).await;
    let address = server.address;
    let mut config = plain_config();
    config.pool.min_connections = 0;
    let cluster = running(config, &[&server]).await;
    server.stop().await;
    (cluster, address)
}

#[tokio::test]
async fn a_call_to_a_backend_that_is_down_is_unavailable_and_says_of_which() {
    let (cluster, address) = gone().await;
    let status = call(&cluster, "").await.unwrap_err();
    assert_eq!((status.code(), said(&status)), (tonic::Code::Unavailable, value(Rejection::NoBackend)));
    let message = status.message();
    assert!(message.starts_with(&format!("cannot connect to {address}: ")) && message.contains("refused"), "{status}");
}

#[tokio::test]
async fn a_call_without_an_answer_in_time_has_exceeded_its_deadline() {
    let mute = Server::start(Speaks::Http2(100), |_| Box::pin(std::future::pending())).await;
    let mut config = plain_config();
    config.requests.request_timeout = Duration::from_millis(50);
    let cluster = running(config, &[&mute]).await;
    let status = call(&cluster, "").await.unwrap_err();
    let expected = (tonic::Code::DeadlineExceeded, value(Rejection::Deadline));
    assert_eq!((status.code(), said(&status)), expected, "{status}");
}

#[tokio::test]
async fn a_call_that_is_held_back_is_unavailable_and_says_why() {
    let turn_away = |_| now(shed::head(Rejection::Overloaded, true, None).map(|()| Empty::new().boxed()));
    let server = Server::start(Speaks::Http2(100), turn_away).await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Client::new(&cluster);
    // A draw decides whether a single request is throttled: of this many with near certainty.
    for _ in 0..200 {
        let status = ask(&client, tonic::Request::new(HealthCheckRequest::default())).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        if said(&status) == value(Rejection::Throttled) {
            assert!(status.message().starts_with("throttled: "), "{status}");
            return;
        }
    }
    panic!("nothing was held back");
}

/// A peer that begins each response with this, and breaks it off when it is told to.
async fn breaking(reason: h2::Reason, message: &'static [u8], broken: Arc<Notify>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let broken = broken.clone();
            tokio::spawn(async move {
                // A health check closes before it says anything.
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let head = http::Response::builder().header("content-type", grpc::CONTENT_TYPE_GRPC);
                    let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    stream.send_data(Bytes::from_static(message), false).unwrap();
                    let broken = broken.clone();
                    tokio::spawn(async move {
                        broken.notified().await;
                        stream.send_reset(reason);
                    });
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_response_that_breaks_off_is_unavailable_however_it_does() {
    const WHOLE: &[u8] = b"\0\0\0\0\x02\x08\x01";
    for reason in [h2::Reason::INTERNAL_ERROR, h2::Reason::CANCEL, h2::Reason::NO_ERROR] {
        for message in [WHOLE, &WHOLE[..5]] {
            let broken = Arc::<Notify>::default();
            let cluster = Cluster::new("test", plain_config(), [breaking(reason, message, broken.clone()).await]);
            tokio::spawn(cluster.run());
            let mut grpc = Grpc::new(Client::<tonic::body::Body>::new(&cluster));
            grpc.ready().await.unwrap();
            let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(WATCH_PATH);
            let request = tonic::Request::new(HealthCheckRequest::default());
            let mut stream = grpc.server_streaming(request, path, codec).await.unwrap().into_inner();
            if message == WHOLE {
                stream.message().await.unwrap().unwrap();
            }
            broken.notify_one();
            let status = stream.message().await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unavailable, "{reason:?} {message:?}: {status}");
        }
    }
}

#[tokio::test]
async fn a_response_that_stops_coming_is_unavailable() {
    let server = Server::start(Speaks::Http2(100), |_| {
        let (send, body) = by_hand();
        // It never ends.
        std::mem::forget(send);
        let head = http::Response::builder().header("content-type", grpc::CONTENT_TYPE_GRPC);
        now(head.body(body).unwrap())
    })
    .await;
    let mut config = plain_config();
    config.requests.body_idle_timeout = Duration::from_millis(50);
    let cluster = running(config, &[&server]).await;
    let status = call(&cluster, "").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    assert!(status.message().contains("no byte of the response's body"), "{status}");
}

#[tokio::test]
async fn a_layer_between_finds_the_error_of_a_call_and_other_requests_end_with_theirs() {
    let (cluster, address) = gone().await;
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let is_refusal = |error: &Error| matches!(error, Error::Connect { cause: ConnectError::Io(_), .. });
    let error = client.clone().oneshot(get("/")).await.unwrap_err();
    assert!(is_refusal(&error), "{error}");

    let mut request = get(CHECK_PATH);
    request.headers_mut().insert("content-type", grpc::CONTENT_TYPE_GRPC);
    let response = client.clone().oneshot(request.clone()).await.unwrap();
    assert_eq!(Code::read(response.headers()), Some(Code::Unavailable));
    assert_eq!((response.body().backend_address(), response.body().attempts()), (Some(address.into()), 1));
    let error = response.extensions().get::<Error>().unwrap();
    assert!(is_refusal(error) && error.nothing_sent(), "{error}");
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());

    let error = client.send(request).await.unwrap_err();
    assert!(is_refusal(&error), "{error}");
}

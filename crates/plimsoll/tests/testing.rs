//! The tools for tests of services.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use plimsoll::Body;
use plimsoll::client::{Client, Cluster, Error};
use plimsoll::server::{
    Customer, Lifecycle, Pressure, RequestContext, ServerLayer, Trust, charge, current, pressure, spawn, used,
};
use plimsoll::test::{Cpu, charged, scope, throttle};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{Criticality, Ratio, Rejection};
use plimsoll_wire::shed::Shed;
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _};

use self::support::{Server, Speaks, plain_config, text};

fn get() -> Request<Body> {
    Request::get("/").body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn scope_is_the_request_of_its_code_and_its_tasks() {
    let context = RequestContext::new(Criticality::SheddablePlus)
        .with_customer(Customer::new("ann").unwrap())
        .within(Duration::from_secs(2))
        .with_attempt(3);
    let seen = || {
        let context = current().unwrap();
        let customer = context.customer.map(|customer| customer.name().to_vec());
        let left = context.deadline.map(|deadline| deadline.duration_since(Instant::now()));
        (context.criticality, customer, left, context.attempt, pressure())
    };
    let test = async {
        tokio::time::advance(Duration::from_millis(500)).await;
        let in_task = spawn(async move { seen() }).await.unwrap();
        assert_eq!(in_task, seen());
        let inner = scope(RequestContext::new(Criticality::Critical), Pressure::None, async { pressure() }).await;
        assert_eq!(inner, Pressure::None);
        charge("tokens", 3.0);
        charge("tokens", 4.0);
        assert_eq!((charged("tokens"), charged("rows")), (7.0, 0.0));
        assert_eq!(used(), Some(Duration::ZERO), "nothing is measured");
        seen()
    };
    let expected =
        (Criticality::SheddablePlus, Some(b"ann".to_vec()), Some(Duration::from_millis(1_500)), 3, Pressure::Severe);
    assert_eq!(scope(context, Pressure::Severe, test).await, expected);
    assert!(current().is_none() && pressure() == Pressure::None && charged("tokens") == 0.0);
}

#[tokio::test]
async fn layer_in_a_scope_has_its_pressure_and_its_own_context() {
    let service = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        charge("rows", 5.0);
        let said = format!("{:?} {} {}", pressure(), current().unwrap().criticality, charged("rows"));
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(said)))
    });
    for layer in [
        ServerLayer::builder(Lifecycle::serving()).build(),
        ServerLayer::builder(Lifecycle::serving()).admission(None).build(),
    ] {
        let request = Request::get("/").header("x-criticality", "sheddable").body(Empty::new()).unwrap();
        let served = layer.layer(service).oneshot(request);
        let answer = scope(RequestContext::new(Criticality::Critical), Pressure::Degrade, served).await.unwrap();
        let said = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        assert_eq!(said, "Degrade sheddable 5");
    }
}

#[tokio::test]
async fn requests_sent_in_a_scope_inherit_its_context() {
    let seen = Arc::<Mutex<HeaderMap>>::default();
    let note = seen.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        note.lock().unwrap().clone_from(request.headers());
        text("ok")
    })
    .await;
    let cluster = Cluster::builder("next").endpoints([server.address]).spawn().unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = HeaderMap::from_iter([("traceparent".parse().unwrap(), parent.parse().unwrap())]);
    let context =
        RequestContext::new(Criticality::Sheddable).within(Duration::from_secs(3)).with_attempt(2).with_trace(&trace);
    let client = Client::new(&cluster);
    scope(context, Pressure::None, async { client.send(get()).await }).await.unwrap();
    let seen = seen.lock().unwrap();
    let field = |name: &str| seen.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    assert_eq!(["x-criticality", "x-envoy-attempt-count", "traceparent"].map(field), ["sheddable", "2", parent]);
    let left: u64 = field("x-envoy-expected-rq-timeout-ms").parse().unwrap();
    assert!((1..=3_000).contains(&left), "{left}");
}

#[tokio::test]
async fn stated_share_of_one_criticality_is_throttled() {
    let server = Server::plain().await;
    let builder = || Cluster::builder("search").configure(|config| *config = plain_config());
    let cluster = builder().endpoints([server.address]).seed(1).spawn().unwrap();
    let client = Client::new(&cluster);
    let send = async |criticality: Criticality| {
        let mut request = get();
        request.headers_mut().insert("x-criticality", criticality.name().parse().unwrap());
        client.send(request).await.map(|response| response.status())
    };
    throttle(&cluster, Criticality::Sheddable, Ratio::ONE);
    for _ in 0..20 {
        let error = send(Criticality::Sheddable).await.unwrap_err();
        assert_eq!((error.shed_reason(), error.nothing_sent()), (Some(Rejection::Throttled), true));
        let Error::Throttled { criticality, held } = error else { panic!("{error}") };
        assert_eq!((criticality, held), (Criticality::Sheddable, Ratio::ONE));
        assert_eq!(send(Criticality::Critical).await.unwrap(), StatusCode::OK);
    }
    assert_eq!((cluster.counts().throttled, server.requests()), ([0, 0, 0, 20], 20));
    throttle(&cluster, Criticality::Sheddable, Ratio::from_percent(25));
    let mut held = 0;
    for _ in 0..200 {
        held += u32::from(send(Criticality::Sheddable).await.is_err());
    }
    // Seed 1; 6 standard deviations of 200 draws at 25% are 37.
    assert!((13..=87).contains(&held), "{held} of 200");
    throttle(&cluster, Criticality::Sheddable, Ratio::ZERO);
    assert_eq!(send(Criticality::Sheddable).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn same_seed_picks_the_same_backends() {
    let servers = [Server::plain().await, Server::plain().await, Server::plain().await];
    let picks = async |seed| {
        let builder = Cluster::builder("search").policy(PolicyKind::Random).seed(seed);
        let cluster = builder.endpoints(servers.iter().map(|server| server.address)).spawn().unwrap();
        let client = Client::new(&cluster);
        let mut picks = Vec::new();
        for _ in 0..30 {
            let response = client.send(get()).await.unwrap();
            picks.push(response.body().backend_address());
            http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        }
        picks
    };
    let first = picks(1).await;
    assert_eq!(picks(1).await, first);
    assert_ne!(picks(2).await, first);
}

/// Five seconds at twice the load that one CPU can serve, half of it sheddable. Each request: whether
/// it was served. And the CPU time that was used.
async fn overload(seed: u64) -> (Vec<(Criticality, bool)>, Duration) {
    let cpu = Cpu::new(1);
    let layer = cpu.drive(ServerLayer::builder(Lifecycle::serving())).trust(Trust::Full).seed(seed).build();
    let service = tower::service_fn({
        let cpu = cpu.clone();
        move |_: Request<Empty<Bytes>>| {
            let cpu = cpu.clone();
            async move {
                cpu.work(Duration::from_millis(10)).await;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
            }
        }
    });
    let protected = layer.layer(service);
    let requests = (0..1_000_u64).map(|number| {
        let criticality = if number % 2 == 0 { Criticality::Critical } else { Criticality::Sheddable };
        let request = Request::get("/").header("x-criticality", criticality.name()).body(Empty::new()).unwrap();
        let mut service = protected.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5 * number)).await;
            let response = service.call(request).await.unwrap();
            (criticality, Shed::read(response.status(), response.headers()).is_none())
        }
    });
    let ends = join_all(requests).await;
    (ends, cpu.used())
}

#[tokio::test(start_paused = true)]
async fn overload_in_virtual_time_sheds_the_least_important() {
    let begun = std::time::Instant::now();
    let (ends, used) = overload(1).await;
    let served = |criticality| ends.iter().filter(|end| **end == (criticality, true)).count();
    let (critical, sheddable) = (served(Criticality::Critical), served(Criticality::Sheddable));
    assert!(critical > 450 && sheddable < 150, "{critical} critical and {sheddable} sheddable of 500 each");
    assert_eq!(used, Duration::from_millis(10) * (critical + sheddable) as u32);
    assert!(begun.elapsed() < Duration::from_secs(4), "five virtual seconds took {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn overload_in_virtual_time_is_the_same_with_the_same_seed() {
    assert_eq!(overload(7).await, overload(7).await);
}

//! A cluster with backends in several localities, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use plimsoll::client::{Client, Cluster, ClusterConfig, Error, Localities, LocalityView, RequestOptions};
use plimsoll::discover::{Endpoint, Fixed};
use plimsoll_core::health::State;
use plimsoll_core::spill::SpillConfig;
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{Criticality, LoadReport, Rejection};

use support::*;

type Plain = Client<Empty<Bytes>>;

fn localities(order: &[&str]) -> Option<Localities> {
    Some(Localities::new(order.iter().copied(), SpillConfig::default()).unwrap())
}

fn config() -> ClusterConfig {
    let mut config = plain_config();
    config.localities = localities(&["near", "far"]);
    config.throttle = ThrottlePolicy::Off;
    config
}

/// A cluster that runs, of servers in localities, all healthy.
async fn located(config: ClusterConfig, servers: &[(&Server, &str)]) -> Cluster {
    let endpoints = servers.iter().map(|(server, locality)| Endpoint::new(server.address).locality(*locality));
    let cluster = Cluster::new("test", config, endpoints);
    tokio::spawn(cluster.run());
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    until(|| cluster.localities().iter().all(|view| view.snapshot.locality.healthy > 0)).await;
    // The last state is known to the balancer only after the driver has had its turn.
    until(|| cluster.localities().iter().all(|view| !view.snapshot.standing.is_drained)).await;
    cluster
}

async fn send(client: &Plain, count: usize) {
    for _ in 0..count {
        let response = client.send(get("/")).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
    }
}

fn requests(cluster: &Cluster) -> Vec<(Arc<str>, u64)> {
    cluster.localities().into_iter().map(|LocalityView { name, snapshot }| (name, snapshot.requests)).collect()
}

#[tokio::test]
async fn the_nearest_gets_all_while_nobody_says_how_full_it_is() {
    let servers = [Server::plain().await, Server::plain().await, Server::plain().await];
    let [near, other, far] = &servers;
    let cluster = located(config(), &[(far, "far"), (near, "near"), (other, "near")]).await;
    send(&Plain::new(&cluster), 20).await;
    assert_eq!([near, other, far].map(Server::requests), [10, 10, 0]);
    assert_eq!(requests(&cluster), [("near".into(), 20), ("far".into(), 0)]);
    assert_eq!(view_of(&cluster, far.address).locality.as_deref(), Some("far"));
}

#[tokio::test]
async fn what_nearby_backends_refuse_is_tried_further_away() {
    let refuses = || {
        Server::start(Speaks::Http1, |_| {
            let Ok(shed) = "reason=overloaded, retry=elsewhere".parse() else { unreachable!("it is visible ASCII") };
            let mut response = http::Response::builder().status(503).body(Empty::new().boxed()).unwrap();
            response.headers_mut().insert("x-plimsoll-shed", shed);
            now(response)
        })
    };
    let (near, other, far) = (refuses().await, refuses().await, Server::plain().await);
    let cluster = located(config(), &[(&near, "near"), (&other, "near"), (&far, "far")]).await;
    send(&Plain::new(&cluster), 3).await;
    assert_eq!((near.requests(), other.requests(), far.requests()), (3, 3, 3));
}

#[tokio::test]
async fn what_nobody_has_room_for_is_shed_and_counted_and_nothing_is_held_back_for_it() {
    let full = || {
        Server::start(Speaks::Http1, |_| {
            reporting(LoadReport { application_utilization: 3.0, ..LoadReport::default() })
        })
    };
    let (near, far) = (full().await, full().await);
    let mut settings = config();
    settings.throttle = ThrottlePolicy::default();
    let cluster = located(settings, &[(&near, "near"), (&far, "far")]).await;
    let client = Plain::new(&cluster);
    let options = || RequestOptions::default().with_criticality(Criticality::Sheddable);
    let error = async {
        loop {
            match client.send_with(get("/"), options()).await {
                Ok(response) => drop(response.into_body().collect().await.unwrap()),
                Err(error) => break error,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), error).await.expect("reports are heard");
    assert!(matches!(error, Error::NoRoom { criticality: Criticality::Sheddable }), "{error}");
    assert_eq!(error.shed_reason(), Some(Rejection::OverloadedNoRetry));
    assert!(error.nothing_sent() && error.attempts() == 0);
    let counts = cluster.counts();
    assert_eq!((counts.no_room[Criticality::Sheddable.rank()], counts.throttled), (1, [0; 4]));
}

#[tokio::test]
async fn a_cluster_that_is_given_localities_keeps_its_connections_and_counts() {
    let (near, far) = (Server::plain().await, Server::plain().await);
    let cluster = running(plain_config(), &[&near, &far]).await;
    let client = Plain::new(&cluster);
    send(&client, 10).await;
    assert_eq!((near.requests(), far.requests(), cluster.localities()), (5, 5, vec![]));
    let ids = |cluster: &Cluster| cluster.backends().iter().map(|view| view.snapshot.id).collect::<Vec<_>>();
    let (before, connections) = (ids(&cluster), (near.connections(), far.connections()));
    let endpoint = |server: &Server, locality: &str| Endpoint::new(server.address).locality(locality);
    cluster.set_config(config());
    cluster.follow(Fixed::new([endpoint(&near, "near"), endpoint(&far, "far")]));
    send(&client, 10).await;
    // The other way round, and back to none.
    let mut settings = config();
    settings.localities = localities(&["far", "near"]);
    cluster.set_config(settings);
    send(&client, 10).await;
    assert_eq!((near.requests(), far.requests()), (15, 15));
    cluster.set_config(plain_config());
    send(&client, 10).await;
    assert_eq!((near.requests(), far.requests()), (20, 20));
    assert_eq!((ids(&cluster), (near.connections(), far.connections())), (before, connections));
    assert_eq!(view_of(&cluster, far.address).locality, None);
}

#[tokio::test]
async fn a_locality_that_dies_is_left_and_comes_back() {
    let (near, far) = (Server::plain().await, Server::plain().await);
    let address = near.address;
    let cluster = located(config(), &[(&near, "near"), (&far, "far")]).await;
    let client = Plain::new(&cluster);
    send(&client, 5).await;
    near.stop().await;
    send(&client, 5).await;
    assert_eq!(far.requests(), 5, "no request is lost by it");
    let near = Server::start_at(address, Speaks::Http1, |_| text("ok")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
    until(|| !cluster.localities()[0].snapshot.standing.is_drained).await;
    let before = near.requests();
    send(&client, 5).await;
    assert_eq!((near.requests() - before, far.requests()), (5, 5));
}

//! Backends that an operator adds, removes, weighs and drains, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Empty, Full};
use plimsoll::client::{Client, Cluster};
use plimsoll::discover::{
    Answer as Listed, Discover, Endpoint, Fixed, FollowConfig, OverrideChange, OverrideCommand, OverrideError,
};
use plimsoll_core::health::{Reason, State};
use plimsoll_core::{Speed, Weight};
use tokio::sync::{Semaphore, mpsc};

use support::*;

type Plain = Client<Empty<Bytes>>;

struct Fake(mpsc::UnboundedReceiver<Listed>);

impl Discover for Fake {
    async fn next(&mut self) -> Option<Listed> {
        self.0.recv().await
    }
}

fn fake() -> (mpsc::UnboundedSender<Listed>, Fake) {
    let (lists, answers) = mpsc::unbounded_channel();
    (lists, Fake(answers))
}

fn put(endpoint: Endpoint) -> OverrideCommand<Endpoint> {
    OverrideCommand::Put(endpoint)
}

fn weigh(weight: f64) -> OverrideCommand<Endpoint> {
    OverrideCommand::Patch { weight: Some(Weight::new(weight)), is_drained: None }
}

/// The addresses of the members, sorted.
fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    let mut addresses: Vec<_> = cluster.backends().iter().filter_map(|view| view.backend.address().inet()).collect();
    addresses.sort_unstable();
    addresses
}

fn port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Answers `/slow` after a permit.
async fn gated() -> (Arc<Semaphore>, Server) {
    let gate = Arc::new(Semaphore::new(0));
    let at_gate = gate.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        let gate = (request.uri().path() == "/slow").then(|| at_gate.clone());
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            Response::new(Full::new(Bytes::from_static(b"ok")).boxed())
        })
    })
    .await;
    (gate, server)
}

async fn ask(client: &Plain, path: &str) -> Bytes {
    client.send(get(path)).await.unwrap().into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn added_backend_serves_and_others_keep_connections_and_averages() {
    let (first, second) = (Server::plain().await, Server::plain().await);
    let cluster = running(plain_config(), &[&first]).await;
    let client = Plain::new(&cluster);
    for _ in 0..3 {
        ask(&client, "/").await;
    }
    let (before, connections) = (view_of(&cluster, first.address), first.connections());
    let endpoint = Endpoint::new(second.address).weight(Weight::new(2.0).unwrap()).zone("b");
    let outcome = cluster.override_backend(second.address, put(endpoint), None).unwrap();
    assert_eq!(outcome.serving, 2);
    until(|| state_of(&cluster, second.address) == State::Healthy).await;
    for _ in 0..4 {
        ask(&client, "/").await;
    }
    // By weight the second gets 8 of 12.
    assert_eq!(first.requests() + second.requests(), 7);
    assert!((2..=3).contains(&second.requests()), "{}", second.requests());
    let after = view_of(&cluster, first.address);
    assert_eq!((after.snapshot.id, after.snapshot.since), (before.snapshot.id, before.snapshot.since));
    assert_eq!((after.snapshot.requests, first.connections()), (first.requests() as u64, connections));
    assert_eq!(view_of(&cluster, second.address).snapshot.weight, 2.0);
}

#[tokio::test]
async fn removed_backend_finishes_its_requests_and_gets_no_other() {
    let ((gate, leaves), stays) = (gated().await, Server::plain().await);
    let cluster = running(plain_config(), &[&leaves]).await;
    let client = Plain::new(&cluster);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { ask(&client, "/slow").await }
    });
    until(|| leaves.requests() == 1).await;
    cluster.override_backend(stays.address, put(stays.address.into()), None).unwrap();
    until(|| state_of(&cluster, stays.address) == State::Healthy).await;
    assert_eq!(cluster.override_backend(leaves.address, OverrideCommand::Remove, None).unwrap().serving, 1);
    assert_eq!(addresses(&cluster), [stays.address]);
    for _ in 0..4 {
        ask(&client, "/").await;
    }
    gate.add_permits(1);
    assert_eq!(slow.await.unwrap(), "ok");
    assert_eq!((leaves.requests(), stays.requests()), (1, 4));
    until(|| leaves.open_connections() == 0).await;
    cluster.override_backend(leaves.address, OverrideCommand::Revoke, None).unwrap();
    assert_eq!(addresses(&cluster).len(), 2);
}

#[tokio::test]
async fn weight_by_hand_changes_in_place_and_the_source_has_it_back() {
    let server = Server::plain().await;
    let cluster = running(plain_config(), &[&server]).await;
    let before = view_of(&cluster, server.address).snapshot;
    cluster.override_backend(server.address, weigh(0.5), None).unwrap();
    let weighed = view_of(&cluster, server.address).snapshot;
    assert_eq!((weighed.weight, weighed.id, weighed.state), (0.5, before.id, State::Healthy));
    cluster.follow(Fixed::new([Endpoint::new(server.address).weight(Weight::new(4.0).unwrap())]));
    assert_eq!(view_of(&cluster, server.address).snapshot.weight, 0.5);
    let no_weight = OverrideCommand::Patch { weight: Some(None), is_drained: None };
    cluster.override_backend(server.address, no_weight, None).unwrap();
    let after = view_of(&cluster, server.address).snapshot;
    assert_eq!((after.weight, after.id, after.since), (4.0, before.id, before.since));
}

#[tokio::test]
async fn put_of_a_listed_backend_keeps_its_authority_and_state() {
    let server = Server::plain().await;
    let listed = Endpoint::new(server.address).authority("web.example:80".parse().unwrap());
    let cluster = running(plain_config(), &[&server]).await;
    cluster.follow(Fixed::new([listed.clone()]));
    let id = view_of(&cluster, server.address).snapshot.id;
    cluster.override_backend(server.address, put(Endpoint::new(server.address).zone("b")), None).unwrap();
    let view = view_of(&cluster, server.address);
    assert_eq!(*view.backend.endpoint(), listed.zone("b"));
    assert_eq!((view.snapshot.id, view.snapshot.state), (id, State::Healthy));
}

#[tokio::test]
async fn put_states_the_speed_or_leaves_that_of_the_source() {
    let server = Server::plain().await;
    let cluster = running(plain_config(), &[&server]).await;
    let [slow, fast] = [1.0, 2.0].map(|speed| Speed::new(speed).unwrap());
    cluster.follow(Fixed::new([Endpoint::new(server.address).speed(slow)]));
    let speed_after = |endpoint| {
        cluster.override_backend(server.address, put(endpoint), None).unwrap();
        view_of(&cluster, server.address).speed()
    };
    assert_eq!(speed_after(Endpoint::new(server.address).speed(fast)), Some(fast));
    assert_eq!(speed_after(Endpoint::new(server.address).zone("b")), Some(slow));
    cluster.override_backend(server.address, OverrideCommand::Revoke, None).unwrap();
    assert_eq!(view_of(&cluster, server.address).speed(), Some(slow));
}

#[tokio::test]
async fn drained_backend_stays_drained_until_undrained_and_is_one_override() {
    let (first, second) = (Server::plain().await, Server::plain().await);
    let cluster = running(plain_config(), &[&first, &second]).await;
    assert!(cluster.drain(first.address));
    assert_eq!(cluster.overrides()[0].change, OverrideChange::Drained);
    let drain = OverrideCommand::Patch { weight: None, is_drained: Some(true) };
    assert_eq!(cluster.override_backend(second.address, drain, None).unwrap().serving, 0);
    assert!(cluster.backends().iter().all(|view| view.snapshot.reason == Reason::Drained));
    cluster.follow(Fixed::new([second.address]));
    cluster.follow(Fixed::new([first.address, second.address]));
    assert_eq!(state_of(&cluster, first.address), State::LameDuck, "also after it was unlisted for a time");
    assert!(cluster.undrain(first.address) && cluster.undrain(second.address));
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    assert_eq!(cluster.overrides(), []);
}

#[tokio::test]
async fn override_of_an_unknown_address_is_refused_unless_it_adds() {
    let cluster = Cluster::new("test", plain_config(), [port(1)]);
    for command in [OverrideCommand::Remove, OverrideCommand::Revoke, weigh(2.0)] {
        assert_eq!(cluster.override_backend(port(9), command, None), Err(OverrideError::Unknown));
    }
    assert!(!cluster.drain(port(9)));
    assert_eq!(addresses(&cluster), [port(1)]);
}

/// A new source, a list, a hold and fixed backends leave the operator's word in force.
#[tokio::test(start_paused = true)]
async fn overrides_outlive_lists_and_sources() {
    let cluster = Cluster::new("test", plain_config(), [port(1), port(2)]);
    tokio::spawn(cluster.run());
    cluster.override_backend(port(1), OverrideCommand::Remove, None).unwrap();
    cluster.override_backend(port(9), put(port(9).into()), None).unwrap();
    assert_eq!(addresses(&cluster), [port(2), port(9)]);
    let (lists, source) = fake();
    cluster.follow_with(source, FollowConfig::default().fixed(Fixed::new([port(5)])));
    assert_eq!(addresses(&cluster), [2, 5, 9].map(port), "before its first list");
    assert_eq!(cluster.known(), 3);
    lists.send(Ok([1, 2, 3, 4].map(|at| port(at).into()).to_vec())).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(addresses(&cluster), [2, 3, 4, 5, 9].map(port));
    lists.send(Ok(vec![port(2).into()])).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.discovery().backends.held, 3);
    assert_eq!(addresses(&cluster), [2, 3, 4, 5, 9].map(port), "a held backend stays removed");
    cluster.override_backend(port(1), OverrideCommand::Revoke, None).unwrap();
    cluster.override_backend(port(9), OverrideCommand::Remove, None).unwrap();
    assert_eq!(addresses(&cluster), [1, 2, 3, 4, 5].map(port), "the word of the source");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(addresses(&cluster), [2, 5].map(port));
}

#[tokio::test(start_paused = true)]
async fn override_ends_after_its_time_and_a_restored_one_after_the_rest() {
    let cluster = Cluster::new("test", plain_config(), [port(1), port(2)]);
    tokio::spawn(cluster.run());
    let minute = Duration::from_secs(60);
    cluster.override_backend(port(1), OverrideCommand::Remove, Some(minute)).unwrap();
    cluster.override_backend(port(2), weigh(0.5), Some(2 * minute)).unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(addresses(&cluster), [port(2)]);
    let saved = cluster.overrides();
    let remaining: Vec<u64> = saved.iter().map(|each| each.remaining.unwrap().as_secs_f64().round() as u64).collect();
    assert_eq!(remaining, [1, 61]);
    let successor = Cluster::new("test", plain_config(), [port(1), port(2)]);
    tokio::spawn(successor.run());
    assert_eq!(successor.restore_overrides(saved), 0);
    for cluster in [&cluster, &successor] {
        assert_eq!(addresses(cluster), [port(2)]);
    }
    tokio::time::sleep(Duration::from_millis(1_010)).await;
    for cluster in [&cluster, &successor] {
        assert_eq!((addresses(cluster).len(), cluster.overrides().len()), (2, 1));
        assert_eq!(view_of(cluster, port(2)).snapshot.weight, 0.5);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for cluster in [&cluster, &successor] {
        assert_eq!(view_of(cluster, port(2)).snapshot.weight, 1.0);
        assert_eq!(cluster.overrides(), []);
    }
}

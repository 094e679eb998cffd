//! A client that connects to some of the backends only, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use plimsoll::client::{Client, Cluster, Coordination, SubsetChoice};
use plimsoll::discover::{Endpoint, Fixed};
use plimsoll_core::Weight;
use plimsoll_core::health::State;
use plimsoll_core::subset::{Algorithm, Client as Who, MissingInput, SubsetConfig};

use support::*;

type Plain = Client<Empty<Bytes>>;

fn choice(algorithm: Algorithm, size: u32, index: u32) -> Option<SubsetChoice> {
    let config = SubsetConfig { algorithm, size: NonZeroU32::new(size).unwrap(), seed: 0 };
    Some(SubsetChoice::new(config, Who::numbered(index)).unwrap())
}

fn members(cluster: &Cluster) -> BTreeSet<SocketAddr> {
    cluster.backends().iter().filter_map(|view| view.backend.address().inet()).collect()
}

async fn servers(count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::plain().await);
    }
    servers
}

#[tokio::test]
async fn only_the_subset_is_connected_to_and_clients_share_the_backends_out() {
    let servers = servers(6).await;
    let all: Vec<&Server> = servers.iter().collect();
    let mut met = BTreeSet::new();
    for index in 0..3 {
        let mut config = plain_config();
        config.subset = choice(Algorithm::Deterministic, 2, index);
        let cluster = running(config, &all).await;
        assert_eq!((cluster.backends().len(), cluster.known()), (2, 6));
        let client = Plain::new(&cluster);
        for _ in 0..10 {
            client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
        }
        met.extend(members(&cluster));
    }
    assert_eq!(met.len(), 6, "three clients with two each meet all six");
    assert!(servers.iter().all(|server| server.requests() == 5), "each client sends five to each of its two");
}

#[tokio::test]
async fn a_dead_member_is_replaced_and_given_back_when_it_returns() {
    let mut servers = servers(4).await;
    let all: Vec<&Server> = servers.iter().collect();
    let mut config = plain_config();
    config.subset = choice(Algorithm::Rendezvous, 2, 7);
    // A connection opened in advance finds that the dead one refuses.
    config.pool.min_connections = 1;
    let cluster = running(config, &all).await;
    let client = Plain::new(&cluster);
    let before = members(&cluster);
    let at = servers.iter().position(|server| before.contains(&server.address)).unwrap();
    let dead = servers.remove(at);
    let address = dead.address;
    dead.stop().await;
    until(|| state_of(&cluster, address) == State::Refusing).await;
    // The dead one stays a member, to be looked at again; another comes in for it, and is sent to.
    assert_eq!(members(&cluster).len(), 3);
    assert!(members(&cluster).is_superset(&before));
    until(|| cluster.backends().iter().filter(|view| view.snapshot.state == State::Healthy).count() == 2).await;
    for _ in 0..10 {
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    }
    let _back = Server::start_at(address, Speaks::Http1, |_| text("ok")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
    assert_eq!(members(&cluster), before);
}

/// Zones by turns, so that any list of these begins in another zone when it is turned round.
fn in_zones() -> Vec<Endpoint> {
    let endpoint = |port| Endpoint::new(SocketAddr::from(([127, 0, 0, 1], port)));
    (1..=12).map(|port| endpoint(port).zone(["a", "b", "c"][usize::from(port) % 3])).collect()
}

/// `rendezvous` goes by keys: neither the order of the list nor that of the zones has an effect.
#[tokio::test]
async fn zones_are_the_same_zones_whichever_is_met_first() {
    let endpoints = in_zones();
    let turned: Vec<Endpoint> = endpoints.iter().rev().cloned().collect();
    for index in 0..50 {
        let mut config = plain_config();
        config.subset = choice(Algorithm::Rendezvous, 4, index);
        let cluster = Cluster::new("test", config, endpoints.clone());
        let before = members(&cluster);
        cluster.follow(Fixed::new(turned.clone()));
        assert_eq!(members(&cluster), before, "client {index}");
    }
}

#[tokio::test]
async fn a_member_whose_zone_becomes_known_stays_what_it_is() {
    let endpoints = in_zones();
    let without = endpoints.iter().map(|endpoint| Endpoint::new(endpoint.address));
    let cluster = Cluster::new("test", plain_config(), without);
    let ids = |cluster: &Cluster| cluster.backends().iter().map(|view| view.snapshot.id).collect::<Vec<_>>();
    let before = ids(&cluster);
    cluster.follow(Fixed::new(endpoints));
    assert_eq!(ids(&cluster), before);
}

/// Every algorithm that needs no coordinator.
fn algorithms() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Ledger)
}

/// Sizes of machines are half octaves of weight: 1.4 is as large as 1, and nothing moves.
#[test]
fn weights_of_one_size_and_authorities_leave_the_subset_alone() {
    let endpoints = in_zones();
    let change = |(at, endpoint): (usize, &Endpoint)| {
        let endpoint = endpoint.clone().weight(Weight::new(1.0 + 0.4 * (at % 2) as f64).unwrap());
        endpoint.authority(format!("backend-{at}.example").parse().unwrap())
    };
    for algorithm in algorithms() {
        for index in 0..20 {
            let mut config = plain_config();
            config.subset = choice(algorithm, 4, index);
            let cluster = Cluster::new("test", config, endpoints.clone());
            let ids = || cluster.backends().iter().map(|view| view.snapshot.id).collect::<Vec<_>>();
            let before = (members(&cluster), ids());
            cluster.follow(Fixed::new(endpoints.iter().enumerate().map(change)));
            assert_eq!((members(&cluster), ids()), before, "{algorithm} {index}");
            assert!(cluster.backends().iter().all(|view| view.backend.endpoint().authority.is_some()));
        }
    }
}

/// One backend of twelve gets another size or zone.
#[test]
fn changed_size_or_zone_moves_at_most_one_of_a_rendezvous_subset() {
    let endpoints = in_zones();
    for at in 0..endpoints.len() {
        let mut heavier = endpoints.clone();
        heavier[at].weight = Weight::new(2.0).unwrap();
        let mut elsewhere = endpoints.clone();
        elsewhere[at].zone = Some("d".into());
        for changed in [heavier, elsewhere] {
            for index in 0..50 {
                let mut config = plain_config();
                config.subset = choice(Algorithm::Rendezvous, 4, index);
                let cluster = Cluster::new("test", config, endpoints.clone());
                let before = members(&cluster);
                cluster.follow(Fixed::new(changed.clone()));
                let moved = members(&cluster).difference(&before).count();
                assert!(moved <= 1, "{moved} of client {index} for backend {at}");
            }
        }
    }
}

#[tokio::test]
async fn a_backend_that_is_drained_while_outside_the_subset_stays_so_when_it_comes_in() {
    let servers = servers(3).await;
    let all: Vec<&Server> = servers.iter().collect();
    let mut config = plain_config();
    config.subset = choice(Algorithm::Rendezvous, 1, 0);
    let cluster = running(config, &all).await;
    let first = *members(&cluster).first().unwrap();
    for server in servers.iter().filter(|server| server.address != first) {
        assert!(cluster.drain(server.address));
    }
    assert_eq!(members(&cluster), BTreeSet::from([first]));
    // Its replacement is drained too, so the one after that comes in.
    assert!(cluster.drain(first));
    assert_eq!(members(&cluster).len(), 2, "twice the size at most");
    assert!(cluster.backends().iter().all(|view| view.snapshot.state == State::LameDuck));
    let second = *members(&cluster).iter().find(|address| **address != first).unwrap();
    assert!(cluster.undrain(second));
    until(|| state_of(&cluster, second) == State::Healthy).await;
    assert!(cluster.undrain(first));
    until(|| members(&cluster) == BTreeSet::from([first])).await;
    assert!(!cluster.drain(([127, 0, 0, 1], 1)));
}

#[tokio::test]
async fn a_subset_is_spread_over_zones_and_follows_the_configuration() {
    let addresses: Vec<SocketAddr> = (1..=9).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let zone = |at: usize| ["a", "b", "c"][at / 3];
    let endpoints = addresses.iter().enumerate().map(|(at, address)| Endpoint::new(*address).zone(zone(at)));
    let mut config = plain_config();
    config.subset = choice(Algorithm::Random, 3, 0);
    let cluster = Cluster::new("test", config.clone(), endpoints);
    let zones = |cluster: &Cluster| {
        let zone = |address: &SocketAddr| zone(usize::from(address.port()) - 1);
        members(cluster).iter().map(zone).collect::<BTreeSet<_>>()
    };
    assert_eq!(zones(&cluster), BTreeSet::from(["a", "b", "c"]));
    let three = members(&cluster);
    let mut settings = config.clone();
    settings.subset = choice(Algorithm::Random, 6, 0);
    cluster.set_config(settings);
    assert_eq!(members(&cluster).len(), 6);
    let mut settings = config.clone();
    settings.subset = None;
    cluster.set_config(settings);
    assert_eq!(members(&cluster).len(), 9);
    cluster.set_config(config);
    assert_eq!(members(&cluster), three);
}

#[tokio::test]
async fn coordinator_moves_members_and_its_last_word_stays() {
    let servers = servers(6).await;
    let all: Vec<&Server> = servers.iter().collect();
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let config = |algorithm| {
        let config = SubsetConfig { algorithm, size: NonZeroU32::new(2).unwrap(), seed: 0 };
        let choice = SubsetChoice::coordinated(config, Who { id: 5, index: None });
        let mut config = plain_config();
        config.subset = Some(choice);
        config
    };
    let cluster = running(config(Algorithm::Ledger), &all).await;
    assert_eq!(members(&cluster).len(), 2, "it does not wait for a coordinator");
    let word = |assigned: &[usize]| {
        let assigned = assigned.iter().map(|at| addresses[*at].into()).collect();
        Coordination { index: None, assigned: Some(assigned) }
    };
    let set = |assigned: &[usize]| assigned.iter().map(|at| addresses[*at]).collect::<BTreeSet<_>>();
    cluster.coordinate(word(&[0, 1]));
    assert_eq!(members(&cluster), set(&[0, 1]));
    let kept = cluster
        .backends()
        .iter()
        .find(|view| view.backend.address().inet() == Some(addresses[1]))
        .unwrap()
        .snapshot
        .since;
    cluster.coordinate(word(&[0, 1, 4]));
    assert_eq!(members(&cluster), set(&[0, 1, 4]), "adds come before removes");
    cluster.coordinate(word(&[1, 4]));
    assert_eq!(members(&cluster), set(&[1, 4]));
    let view = cluster.backends().into_iter().find(|view| view.backend.address().inet() == Some(addresses[1])).unwrap();
    assert_eq!(view.snapshot.since, kept, "a member that stays keeps its state");
    cluster.follow(Fixed::new(addresses[..5].iter().copied()));
    assert_eq!(members(&cluster), set(&[1, 4]), "another list keeps the assignment");
    cluster.follow(Fixed::new(addresses[..4].iter().copied()));
    assert!(members(&cluster).contains(&addresses[1]) && members(&cluster).len() == 2, "one is replaced");

    cluster.follow(Fixed::new(addresses.iter().copied()));
    cluster.set_config(config(Algorithm::Deterministic));
    let mut met = BTreeSet::new();
    for index in 0..3 {
        cluster.coordinate(Coordination { index: Some(index), assigned: None });
        met.extend(members(&cluster));
    }
    assert_eq!(met.len(), 6, "three indices with two backends each meet all six");
}

#[tokio::test]
async fn own_number_wins_over_that_of_the_coordinator() {
    let servers = servers(6).await;
    let all: Vec<&Server> = servers.iter().collect();
    let config = |index| {
        let config = SubsetConfig { algorithm: Algorithm::Deterministic, size: NonZeroU32::new(2).unwrap(), seed: 0 };
        let choice = SubsetChoice::coordinated(config, Who { id: 5, index });
        let mut config = plain_config();
        config.subset = Some(choice);
        config
    };
    let cluster = running(config(Some(0)), &all).await;
    let own = members(&cluster);
    cluster.coordinate(Coordination { index: Some(1), assigned: None });
    assert_eq!(members(&cluster), own);
    cluster.set_config(config(None));
    assert!(members(&cluster).is_disjoint(&own), "without one, the number of the coordinator counts");
}

#[test]
fn a_choice_that_lacks_what_it_needs_cannot_be_made() {
    let config = |algorithm| SubsetConfig { algorithm, size: SubsetConfig::DEFAULT_SIZE, seed: 0 };
    let nameless = Who { id: 1, index: None };
    assert_eq!(
        SubsetChoice::new(config(Algorithm::Rocksteadier), nameless),
        Err(MissingInput::ClientIndex(Algorithm::Rocksteadier))
    );
    assert_eq!(SubsetChoice::new(config(Algorithm::Ledger), Who::numbered(0)), Err(MissingInput::Ledger));
    assert!(SubsetChoice::new(config(Algorithm::Rendezvous), nameless).is_ok());
}

#[tokio::test]
async fn nobody_else_moves_when_the_backend_of_an_ordinal_is_replaced() {
    let servers = servers(9).await;
    let (last, first) = servers.split_last().unwrap();
    let numbered = |server: &Server, ordinal| Endpoint::new(server.address).ordinal(ordinal);
    let list: Vec<Endpoint> = first.iter().zip(0..).map(|(server, ordinal)| numbered(server, ordinal)).collect();
    let mut with_vacancy = list.clone();
    with_vacancy.remove(3);
    with_vacancy.reverse();
    let mut replaced = with_vacancy.clone();
    replaced.push(numbered(last, 3));
    for index in 0..8 {
        let mut config = plain_config();
        config.subset = choice(Algorithm::Rocksteadier, 2, index);
        let cluster = Cluster::new("test", config, list.clone());
        let before = members(&cluster);
        cluster.follow(Fixed::new(with_vacancy.clone()));
        let without = members(&cluster);
        let had_it = before.contains(&first[3].address);
        assert_eq!(before.difference(&without).count(), usize::from(had_it), "client {index}");
        cluster.follow(Fixed::new(replaced.clone()));
        let has_it = members(&cluster).contains(&last.address);
        assert_eq!(has_it, had_it, "client {index}");
        let stayed = members(&cluster).intersection(&before).count();
        assert_eq!(stayed, 2 - usize::from(had_it), "client {index}");
    }
}

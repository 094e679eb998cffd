//! A process that has no descriptor left blames nobody. Alone in its file: the limit is the whole
//! process's.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use plimsoll::client::{Check, Client, Error};
use plimsoll::discover::Fixed;
use plimsoll_core::Event;
use plimsoll_core::health::State;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::*;

#[tokio::test]
async fn backends_stay_as_they_are_while_this_process_has_no_descriptors() {
    let server = Server::plain().await;
    let mut config = plain_config();
    config.check = Check::Tcp;
    config.pool.min_connections = 0;
    let (known, added) = (server.address, Server::plain().await);
    let cluster = running(config, &[&server]).await;
    let client: Client<_> = Client::new(&cluster);
    let refusals = Arc::new(AtomicUsize::new(0));
    let seen = refusals.clone();
    cluster.on_event(move |notice| {
        let refuses = matches!(notice.event, Event::StateChanged { to: State::Refusing, .. });
        seen.fetch_add(refuses.into(), Ordering::Relaxed);
    });

    // Its check has come all the way: the server, too, needs a descriptor for that.
    until(|| server.connections() == 1).await;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    cluster.follow(Fixed::new([known, added.address]));
    // More failures in a row than eject a backend.
    let mut errors = Vec::new();
    for _ in 0..8 {
        errors.push(client.send(get("/")).await);
    }
    let checked = cluster.now() + Duration::from_millis(50);
    until(|| cluster.now() > checked).await;
    let (state, new_state) = (state_of(&cluster, known), state_of(&cluster, added.address));
    setrlimit(Resource::Nofile, limit).unwrap();

    assert!(errors.iter().all(|result| matches!(result, Err(Error::Connect { .. }))), "{errors:?}");
    assert_eq!((state, new_state), (State::Healthy, State::Connecting));
    let view = view_of(&cluster, known);
    assert_eq!((view.snapshot.failures, view.counts.connections_failed), (0, 8));
    until(|| state_of(&cluster, added.address) == State::Healthy).await;
    client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(refusals.load(Ordering::Relaxed), 0);
}

//! Tasks that look for the owner among real servers at loopback.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll::server::{FleetLimits, Lifecycle, ServerLayer};
use tokio::time::{Instant, sleep};

use super::*;
use crate::config::Config;
use crate::fleet::Member as _;
use crate::ownership::{Owners, Ownership, SHARDS};
use crate::server::{Listening, Server};

const SERVICE: &str = "shop";

/// A server whose owners a test sets.
struct Site {
    server: Server,
    address: String,
}

impl Site {
    async fn start() -> Self {
        let text = "listen = \"127.0.0.1:0\"\nadmin.listen = \"off\"\n[services.shop.customers.acme]\nhard_limit = 2\n";
        let config = Config::parse("quota.toml", text).unwrap();
        let listening = Listening::bind(&config).await.unwrap();
        let address = listening.tasks.local_addr().unwrap().to_string();
        let server = Server::new(&config, Lifecycle::new());
        tokio::spawn(server.clone().serve(listening));
        Self { server, address }
    }

    fn own(&self, epoch: u64, until: Option<Instant>) {
        let ours = Ownership::Ours { epoch, until, address: self.address.as_str().into() };
        self.set(ours);
    }

    fn set(&self, ownership: Ownership) {
        self.server.set_owners(Owners::Shared(Arc::from(vec![ownership; SHARDS as usize])));
    }

    fn names(&self, owner: &Self, epoch: u64) {
        self.set(Ownership::Other { epoch, address: owner.address.as_str().into() });
    }

    fn tasks(&self) -> usize {
        let hosted = self.server.services().get(SERVICE);
        hosted.map_or(0, |hosted| hosted.lock().instances().filter(|task| task.is_connected).count())
    }
}

/// A task that knows these servers.
fn task(servers: &[&Site]) -> FleetLimits {
    let header = http::HeaderName::from_static("x-customer");
    let layer = ServerLayer::builder(Lifecycle::new()).customer_header(header).build();
    let limits = layer.fleet_limits().expect("a customer header makes a gate");
    let client = Client::new(servers.iter().map(|site| &site.address), SERVICE).unwrap();
    tokio::spawn(client.run(limits.clone()));
    limits
}

async fn wait(is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s");
        sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn task_follows_redirects_and_moves_with_the_service() {
    let (one, two) = (Site::start().await, Site::start().await);
    one.own(7, None);
    two.names(&one, 7);
    let limits = task(&[&two]);
    wait(|| one.tasks() == 1).await;
    // The server knows the task before the task has its answer.
    wait(|| limits.with(|_, limiter| limiter.epoch()) == 7).await;
    // The owner hears first that it is not the owner any more.
    two.own(9, None);
    one.names(&two, 9);
    wait(|| two.tasks() == 1 && one.tasks() == 0).await;
    wait(|| limits.with(|_, limiter| limiter.epoch()) == 9).await;
}

#[tokio::test]
async fn task_of_an_overdue_owner_moves_when_another_server_is_the_owner() {
    let (one, two) = (Site::start().await, Site::start().await);
    one.own(7, Some(Instant::now()));
    two.names(&one, 7);
    let limits = task(&[&one, &two]);
    wait(|| one.tasks() == 1).await;
    wait(|| limits.with(|_, limiter| limiter.is_doubtful())).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(one.tasks(), 1, "nobody else is the owner");
    two.own(9, None);
    wait(|| two.tasks() == 1).await;
    // A later task that knows the first server only has heard of no other owner.
    let other = task(&[&one]);
    wait(|| one.tasks() == 1).await;
    wait(|| other.with(|_, limiter| limiter.epoch()) == 7).await;
}

#[tokio::test]
async fn overdue_owner_ends_when_a_task_knows_a_later_one() {
    let (one, two) = (Site::start().await, Site::start().await);
    one.own(7, Some(Instant::now()));
    two.own(9, None);
    let limits = task(&[&two, &one]);
    wait(|| two.tasks() == 1).await;
    two.set(Ownership::Unknown);
    wait(|| one.server.services().get(SERVICE).is_none()).await;
    wait(|| limits.with(|_, limiter| limiter.epoch()) == 9).await;
    // Its own lease says nothing new.
    one.own(7, Some(Instant::now()));
    assert!(one.server.services().get(SERVICE).is_none());
    one.own(11, None);
    wait(|| one.tasks() == 1).await;
}

#[tokio::test]
async fn servers_that_name_each_other_are_asked_at_a_pace() {
    let (one, two) = (Site::start().await, Site::start().await);
    one.names(&two, 7);
    two.names(&one, 7);
    let _limits = task(&[&one, &two]);
    sleep(Duration::from_secs(2)).await;
    let redirects = [&one, &two].map(|site| site.server.services().redirects.load(Ordering::Relaxed));
    let all: u64 = redirects.iter().sum();
    // Four in a row, with a back-off from 0.1 s on that doubles.
    assert!((4..=40).contains(&all), "{redirects:?}");
}

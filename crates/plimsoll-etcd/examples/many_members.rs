//! As many members as a fleet has, in one process: each with a client, a session and a mirror of all.
//! `bench/etcd` measures etcd beneath them.
//!
//! Prints a line when all know all, and one a second then: `EVENTS FAILURES LEASES`, since the start.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_etcd::{Client, EtcdConfig, Mirror, Session, Txn, Update};
use tokio::time::{interval, sleep};

const PREFIX: &str = "services/bench/backends/";
/// About the length of a real record.
const VALUE: &str = r#"{"address":"10.123.45.67:8080","zone":"europe-west3-b","weight":1,"speed":1.0,"state":"ready"}"#;
const TTL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Counts {
    complete: AtomicUsize,
    events: AtomicU64,
    leases: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoints, members, changes] = &arguments[..] else {
        return Err("usage: many_members ENDPOINT[,ENDPOINT]... MEMBERS CHANGES_PER_SECOND".into());
    };
    let (members, changes): (usize, u32) = (members.parse()?, changes.parse()?);
    let config = EtcdConfig::new(endpoints.split(','))?;
    let counts = Arc::new(Counts::default());
    let clients: Vec<_> = (0..members).map(|_| Client::new(config.clone())).collect();
    for (number, client) in clients.iter().enumerate() {
        tokio::spawn(member(client.clone(), number, members, Arc::clone(&counts)));
        // As the tasks of a fleet start.
        sleep(Duration::from_millis(5)).await;
    }
    while counts.complete.load(Ordering::Relaxed) < members {
        sleep(Duration::from_millis(20)).await;
    }
    println!("complete");
    if changes > 0 {
        tokio::spawn(change(Client::new(config), changes));
    }
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let failures: u64 = clients.iter().map(|client| client.reach().failures()).sum();
        let [events, leases] = [&counts.events, &counts.leases].map(|count| count.load(Ordering::Relaxed));
        println!("{events} {failures} {leases}");
    }
}

/// One member: a record with its lease, and a mirror of the records of all.
async fn member(client: Client, number: usize, members: usize, counts: Arc<Counts>) {
    let session = Session::start(client.clone(), TTL);
    let (mut lease, key) = (session.lease(), format!("{}{PREFIX}{number}", client.prefix()));
    let mut mirror = Mirror::new(client.clone(), PREFIX);
    let (mut ids, mut is_complete) = (HashSet::new(), false);
    loop {
        tokio::select! {
            Ok(()) = lease.changed() => {
                let Some(id) = lease.borrow_and_update().map(|lease| lease.id) else { continue };
                if !ids.contains(&id) && client.txn(Txn::new().put(&key, VALUE, Some(id))).await.is_ok() {
                    ids.insert(id);
                    counts.leases.fetch_add(1, Ordering::Relaxed);
                }
            }
            update = mirror.next() => {
                if let Update::Events(events) = update {
                    counts.events.fetch_add(events.len() as u64, Ordering::Relaxed);
                }
                if !is_complete && mirror.records().len() == members {
                    is_complete = true;
                    counts.complete.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Changes records, one after the other.
async fn change(client: Client, changes: u32) {
    let mut ticks = interval(Duration::from_secs(1) / changes);
    let key = format!("{}{PREFIX}0", client.prefix());
    loop {
        ticks.tick().await;
        // Its failures are in the counts of etcd.
        if let Ok(Some(record)) = client.get(&key).await {
            drop(client.txn(Txn::new().put(&key, VALUE, Some(record.lease))).await);
        }
    }
}

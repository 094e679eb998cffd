//! The shards that this server claims and releases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::fleet::shards::{ShardOperation, Shards};
use plimsoll_core::fleet::{Members, TrustConfig};
use plimsoll_etcd::{Client, Condition, EtcdError, Event, Lease, Mirror, Record, Txn, TxnResult, Update};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{KEYS, LEASE, SERVERS, SHARD};

/// Time after an operation that was not done.
const PAUSE: Duration = Duration::from_millis(300);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Claims {
    client: Client,
    id: String,
    address: Arc<str>,
    shards: Shards,
    /// By name, and whether it is ending. After an outage of etcd those that have not returned are waited for.
    servers: Members<String, bool>,
    /// The server of each lease. A record names the address of its owner, which a process of before may have had.
    by_lease: BTreeMap<i64, String>,
    /// Operations under way.
    acting: JoinSet<Result<TxnResult, EtcdError>>,
    /// The revision of the last one that was done: older records do not show it.
    revision: i64,
    /// After a failure, or where another server was first, its record is to arrive before.
    not_before: Instant,
    /// When there may be something to do without any news.
    due: Option<Instant>,
    origin: Instant,
}

impl Claims {
    /// `id`: the name of this server, which no process of before had.
    pub(super) fn new(client: Client, id: String, address: Arc<str>) -> Self {
        let now = Instant::now();
        Self {
            client,
            shards: Shards::new(id.clone()),
            id,
            address,
            servers: Members::new(TrustConfig::of_lease(LEASE)),
            by_lease: BTreeMap::new(),
            acting: JoinSet::new(),
            revision: 0,
            not_before: now,
            due: None,
            origin: now,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// etcd answered.
    pub(super) fn on_contact(&mut self) {
        self.servers.on_contact(self.now());
    }

    /// The records changed.
    pub(super) fn on_update(&mut self, update: &Update, records: &BTreeMap<String, Record>) {
        let now = self.now();
        let live = |key: &str| key.strip_prefix(SERVERS).map(str::to_owned);
        match update {
            Update::Listed => {
                self.servers.set_list(now, records.iter().filter_map(|(key, of)| Some((live(key)?, is_ending(of)))));
            }
            Update::Events(events) => {
                self.servers.on_contact(now);
                for event in events {
                    match event {
                        Event::Put(record) => {
                            if let Some(id) = live(&record.key) {
                                self.servers.put(now, id, is_ending(record));
                            }
                        }
                        Event::Delete(key) => {
                            if let Some(id) = live(key) {
                                self.servers.remove(now, &id);
                            }
                        }
                    }
                }
            }
            Update::Contact => self.servers.on_contact(now),
            Update::Failed(_) => return,
        }
        let is_used: BTreeSet<i64> = records.values().map(|record| record.lease).collect();
        self.by_lease.retain(|lease, _| is_used.contains(lease));
        self.by_lease.extend(records.iter().filter_map(|(key, record)| Some((record.lease, live(key)?))));
    }

    /// Begins what is due, unless the last operations are under way. `held`: the lease of this server.
    pub(super) fn act(&mut self, mirror: &Mirror, held: Option<Lease>) {
        let (at, now) = (Instant::now(), self.now());
        self.servers.handle_timeout(now);
        self.due = Some(self.not_before).filter(|due| at < *due);
        let is_waiting = !self.acting.is_empty() || mirror.revision() < self.revision || self.due.is_some();
        let Some(held) = held.filter(|held| at < held.sure_until() && !is_waiting && mirror.revision() > 0) else {
            return;
        };
        let records = mirror.records();
        let shard = |(key, record): (&String, &Record)| {
            let number = key.strip_prefix(SHARD)?.parse().ok()?;
            let gone = || format!("lease {:x}", record.lease);
            Some((number, self.by_lease.get(&record.lease).cloned().unwrap_or_else(gone)))
        };
        let owners: BTreeMap<u32, String> = records.iter().filter_map(shard).collect();
        let servers: BTreeSet<String> =
            self.servers.iter().filter(|(_, is_ending)| !**is_ending).map(|(id, _)| id.clone()).collect();
        for operation in self.shards.decide(now, &servers, &owners) {
            let (ShardOperation::Claim(number) | ShardOperation::Release(number)) = operation;
            let key = format!("{}{KEYS}{SHARD}{number}", self.client.prefix());
            let txn = match operation {
                ShardOperation::Claim(_) => {
                    Txn::new().when(Condition::absent(&key)).put(&key, &*self.address, Some(held.id))
                }
                ShardOperation::Release(_) => {
                    let record = records.get(&format!("{SHARD}{number}")).filter(|record| record.lease == held.id);
                    let Some(record) = record else { continue };
                    Txn::new().when(Condition::created(&key, record.create_revision)).delete(&key)
                }
            };
            let client = self.client.clone();
            self.acting.spawn(async move { client.txn(txn).await });
        }
        self.due = self.shards.poll_timeout().filter(|_| self.acting.is_empty()).map(|due| self.instant(due));
    }

    /// When to act again without any news.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let servers = self.servers.poll_timeout().map(|due| self.instant(due));
        [self.due, servers].into_iter().flatten().min()
    }

    fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ZERO)
    }

    /// Ends the part of this server: others take its shards at once, also while they do not believe removals.
    pub(super) async fn end(&self, held: Lease) -> Result<(), EtcdError> {
        let key = format!("{}{KEYS}{SERVERS}{}", self.client.prefix(), self.id);
        self.client.txn(Txn::new().put(&key, "", Some(held.id))).await.map(drop)
    }

    /// Resolves when an operation has ended; never without one.
    pub(super) async fn ended(&mut self) {
        match self.acting.join_next().await {
            Some(Ok(Ok(TxnResult { is_done: true, revision }))) => self.revision = self.revision.max(revision),
            // Another server was first, or the client of etcd says why not.
            Some(_) => self.not_before = Instant::now() + PAUSE,
            None => std::future::pending().await,
        }
    }
}

/// A server that ends has no address any more.
fn is_ending(server: &Record) -> bool {
    server.value.is_empty()
}

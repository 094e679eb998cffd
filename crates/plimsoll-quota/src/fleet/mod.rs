//! Quota servers that share their services by etcd.
//!
//! ```text
//! quota/servers/ID         the address of a live server      ends with its lease of 5 s; empty: it is ending
//! quota/shards/N           the address of the owner          ends with the same lease
//! quota/config/SERVICE     the table of the service, TOML
//! quota/changes/SERVICE    author and time of its last change
//! ```
//!
//! The key of a shard is created by one server only, and its create revision is the epoch of the owner: each later
//! owner has a higher one. Another server can create it when the lease of this one has ended, so this server is sure of
//! its services until its lease can have expired by its own clock. Then [`Tenure`](plimsoll_core::quota::Tenure)
//! decides.
//!
//! While etcd is lost all of this stays as it is. A key that is gone has no new owner yet, so its former owner goes on
//! until there is one.

mod claims;
mod shards;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::server::Phase;
use plimsoll_etcd::{Client, Lease, Mirror, Record, Session, Txn, Update};
use rand_core::Rng as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use self::claims::Claims;
use self::shards::View;
pub(crate) use self::stored::StoredServices;
pub use self::stored::{Author, Change, Stored, StoredError};
use crate::config::OnSplit;
use crate::ownership::Owners;
use crate::random::rng;

/// The lease of a server. A lost one is replaced in this time and half a second.
const LEASE: Duration = Duration::from_secs(5);
/// Time between two attempts to announce the server.
const RETRY: Duration = Duration::from_millis(500);
/// All keys, after the prefix of the client.
const KEYS: &str = "quota/";
const SERVERS: &str = "servers/";
const SHARD: &str = "shards/";
const CONFIG: &str = "config/";

/// The settings of a server among others.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) client: Client,
    /// The address of this server for tasks.
    pub(crate) address: Arc<str>,
    pub(crate) on_split: OnSplit,
}

/// A server that is told of the fleet.
pub(crate) trait Member: Send + Sync + 'static {
    /// Takes the owners of services.
    fn set_owners(&self, owners: Owners);

    /// Takes the records of etcd with the settings of services.
    fn set_stored(&self, records: &BTreeMap<String, Record>);

    /// The phase of the server.
    fn phase(&self) -> watch::Receiver<Phase>;
}

/// Keeps the server's part of the fleet until it drains, and knows the owners until the process ends.
pub(crate) async fn run(server: impl Member, membership: Membership) {
    let Membership { client, address, on_split } = membership;
    let mut session = Some(Session::start(client.clone(), LEASE));
    let mut lease = session.as_ref().map(Session::lease).expect("it was started");
    let id = format!("{address}-{:08x}", rng().next_u32());
    let presence = tokio::spawn(announce(client.clone(), id.clone(), Arc::clone(&address), lease.clone()));
    let mut presence = Some(presence);
    let mut mirror = Mirror::new(client.clone(), KEYS);
    let mut view = View::new(Arc::clone(&address), on_split);
    let mut claims = Claims::new(client, id, Arc::clone(&address));
    let mut phase = server.phase();
    let mut is_overdue = false;
    loop {
        let held = session.as_ref().and_then(|_| *lease.borrow_and_update());
        let now = Instant::now();
        let was_overdue = std::mem::replace(&mut is_overdue, held.is_some_and(|held| held.sure_until() <= now));
        if is_overdue && !was_overdue {
            tracing::warn!("no contact with etcd for a lease: services keep their owners, another server may begin");
        } else if was_overdue && !is_overdue && held.is_some() {
            tracing::info!("contact with etcd again");
        }
        server.set_owners(Owners::Shared(view.owners(mirror.records(), held, now)));
        claims.act(&mirror, held);
        let due = [View::timeout(held, now), claims.timeout()].into_iter().flatten().fold(now + LEASE, Instant::min);
        tokio::select! {
            update = mirror.next() => {
                claims.on_update(&update, mirror.records());
                let is_new = match &update {
                    Update::Listed => true,
                    Update::Events(events) => events.iter().any(stored::is_of_a_service),
                    // The client of etcd says so.
                    Update::Contact | Update::Failed(_) => false,
                };
                if is_new {
                    server.set_stored(mirror.records());
                }
            }
            changed = lease.changed(), if session.is_some() => {
                match changed {
                    Ok(()) => claims.on_contact(),
                    Err(_) => session = None,
                }
            }
            () = claims.ended() => {}
            () = sleep_until(due) => {}
            () = async { drop(phase.wait_for(|phase| *phase >= Phase::LameDuck).await) }, if session.is_some() => {
                presence.take().iter().for_each(JoinHandle::abort);
                // All keys go, so that other servers have the services at once. Streams are sent there.
                let ended = async {
                    if let Some(held) = held {
                        claims.end(held).await?;
                    }
                    match session.take() {
                        Some(session) => session.end().await,
                        None => Ok(()),
                    }
                };
                if let Err(error) = ended.await {
                    tracing::warn!(%error, "services not handed over: the lease in etcd ends in 5 s");
                }
                session = None;
            }
        }
    }
}

/// Keeps the key of the server.
async fn announce(client: Client, id: String, address: Arc<str>, mut lease: watch::Receiver<Option<Lease>>) {
    let key = format!("{}{KEYS}{SERVERS}{id}", client.prefix());
    loop {
        let Ok(Some(of)) = lease.wait_for(Option::is_some).await.map(|lease| *lease) else { return };
        let put = Txn::new().put(&key, &*address, Some(of.id));
        if let Err(error) = client.txn(put).await {
            tracing::debug!(%error, "server not announced in etcd");
            sleep(RETRY).await;
            continue;
        }
        if lease.wait_for(|lease| lease.is_none_or(|lease| lease.id != of.id)).await.is_err() {
            return;
        }
    }
}

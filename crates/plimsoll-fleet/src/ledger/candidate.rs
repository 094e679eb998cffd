//! The election: the key `leader`, created only if it is absent, under the lease of its client.
//!
//! A leader that ends without a word is replaced when its lease expires. Candidates wait a random part
//! of a second then: most of them see the new leader before they ask.
//!
//! A key without a lease is of no client: somebody put it by hand, and it would never end. It is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::client::Cluster;
use plimsoll::discover::Freshness;
use plimsoll_etcd::{Backoff, Client, Condition, Mirror, Record, Txn, Update, rng};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::LedgerConfig;
use super::leader::Leader;
use crate::kept::Held;
use crate::layout::{LEADER, Name};
use crate::refusals::Refusals;

/// Time between two looks at a source that has not listed backends.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait before a candidacy.
const SPREAD: Duration = Duration::from_secs(1);

pub(super) struct Candidate {
    pub(super) client: Client,
    pub(super) group: Name,
    pub(super) id: Name,
    /// Of the ledger, after the prefix of the client.
    pub(super) folder: String,
    pub(super) config: LedgerConfig,
    pub(super) cluster: Cluster,
    /// Whether it leads, for readers outside the task.
    pub(super) leads: Arc<AtomicBool>,
}

impl Candidate {
    pub(super) async fn run(self, mut held: watch::Receiver<Option<Held>>) {
        let mut mirror = Mirror::new(self.client.clone(), &format!("{}{LEADER}", self.folder));
        let (mut rng, mut backoff, mut refusals) = (rng(), Backoff::new(), Refusals::default());
        // The sender ends with the member.
        while held.has_changed().is_ok() {
            self.has_backends().await;
            let Some(revision) = self.win(&mut mirror, &mut held, &mut rng, &mut refusals).await else {
                backoff.wait().await;
                continue;
            };
            let (service, group) = (&self.config.service, &self.group);
            tracing::info!(%service, %group, id = %self.id, "leads the ledger");
            self.leads.store(true, Ordering::Relaxed);
            let leader = Leader { candidate: &self, revision, key: self.key() };
            tokio::select! {
                // Its key is another's, and the mirror does not show that yet.
                () = leader.lead() => backoff.wait().await,
                () = replaced(&mut mirror, revision) => backoff.reset(),
            }
            self.leads.store(false, Ordering::Relaxed);
            tracing::info!(%service, %group, id = %self.id, "no longer leads the ledger");
        }
    }

    /// Waits until the source of the cluster has listed backends. A leader without a list would take the
    /// backends from all clients.
    async fn has_backends(&self) {
        let mut ready = self.cluster.ready_backends();
        loop {
            let is_empty = ready.borrow_and_update().is_empty();
            if !is_empty && self.cluster.discovery().freshness == Freshness::Fresh {
                return;
            }
            // A source may answer with the list that was saved.
            let _ = timeout(LOOK, ready.changed()).await;
        }
    }

    /// Waits until nobody leads, and wants to. Returns the revision of the creation of its leader key;
    /// `None`: it did not win.
    async fn win(
        &self,
        mirror: &mut Mirror,
        held: &mut watch::Receiver<Option<Held>>,
        rng: &mut Pcg64Mcg,
        refusals: &mut Refusals,
    ) -> Option<i64> {
        while mirror.revision() == 0 {
            if let Update::Failed(error) = mirror.next().await {
                refusals.on_error(&self.key(), &error);
            }
        }
        loop {
            // An own key is that of a leader before a reload, or of a candidacy without an answer.
            let own = mirror.records().get("").filter(|record| is_own(record, *held.borrow()));
            if let Some(own) = own {
                return Some(own.create_revision);
            }
            if mirror.records().get("").is_some_and(|record| record.lease != 0) {
                mirror.next().await;
                continue;
            }
            sleep(SPREAD.mul_f64(f64::from(rng.next_u32()) / f64::from(u32::MAX))).await;
            while ready(mirror.next()).await.is_some() {}
            match mirror.records().get("") {
                None => break,
                Some(record) if record.lease == 0 => {
                    self.delete_endless().await?;
                    mirror.next().await;
                }
                Some(_) => {}
            }
        }
        let held = held.wait_for(Option::is_some).await.ok().and_then(|held| *held)?;
        self.elect(held, refusals).await
    }

    /// Deletes a key of the leader that no lease ends. `None`: etcd is unreachable.
    async fn delete_endless(&self) -> Option<()> {
        let key = self.key();
        let result = self.client.txn(Txn::new().when(Condition::lease(&key, 0)).delete(&key)).await.ok()?;
        if result.is_done {
            tracing::warn!(key, "the ledger's leader has no lease, so it is no client: the key is deleted");
        }
        Some(())
    }

    /// The whole key of the leader.
    fn key(&self) -> String {
        format!("{}{}{LEADER}", self.client.prefix(), self.folder)
    }

    /// Returns the revision of the creation of its leader key; `None`: it did not win.
    async fn elect(&self, held: Held, refusals: &mut Refusals) -> Option<i64> {
        let key = self.key();
        let txn = Txn::new().when(Condition::absent(&key)).put(&key, self.id.as_str(), Some(held.lease.id));
        match self.client.txn(txn).await {
            Ok(result) => {
                refusals.on_success();
                result.is_done.then_some(result.revision)
            }
            // It may have won. Then the mirror shows the own key.
            Err(error) => {
                refusals.on_error(&key, &error);
                None
            }
        }
    }
}

/// Whether this client has made the key, by its present lease.
fn is_own(record: &Record, held: Option<Held>) -> bool {
    held.is_some_and(|held| held.lease.id == record.lease)
}

/// Waits until the key of the leader is not that of this revision.
async fn replaced(mirror: &mut Mirror, revision: i64) {
    loop {
        mirror.next().await;
        // An older view does not have the own key yet.
        let is_own = mirror.records().get("").is_some_and(|record| record.create_revision == revision);
        if mirror.revision() >= revision && !is_own {
            return;
        }
    }
}

/// The output of a future if it is ready.
async fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

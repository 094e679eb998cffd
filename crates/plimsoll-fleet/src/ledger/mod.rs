//! Subsets with memory: each client takes the backends that a leader assigns, and any client may lead.
//!
//! ```text
//! each client   follows its assignment, and wants to lead when nobody does
//! the leader    reads all assignments, follows clients and backends, writes the differences
//! ```
//!
//! The decisions are those of [`Assignments`](plimsoll_core::fleet::Assignments). Each write compares
//! the revision of the creation of the leader key, so a leader that was replaced writes nothing.
//! Backends are those of the leader's source, without its changes by hand.

mod assignment;
mod candidate;
mod follower;
mod leader;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::client::Cluster;
use plimsoll_etcd::{Client, Condition, Txn};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::kept::Held;
use crate::layout::{self, LEADER, Name};
use crate::member::Member;

/// Settings of a ledger: the same at all clients of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// The backends that it assigns.
    pub service: Name,
    /// Backends of each client.
    pub size: NonZeroU32,
    /// Seed of all draws.
    pub seed: u64,
}

/// The part of a client in a ledger, until it is dropped. The last assignment stays then.
#[derive(Debug)]
pub struct Ledger {
    tasks: [JoinHandle<()>; 2],
    leads: Arc<AtomicBool>,
    client: Client,
    /// The whole key of the leader.
    key: String,
    held: watch::Receiver<Option<Held>>,
}

impl Ledger {
    /// Has `cluster` take the assignments of `member`, and leads the ledger when nobody else does.
    /// Needs a cluster with [`SubsetChoice::coordinated`](plimsoll::client::SubsetChoice::coordinated).
    #[must_use]
    pub fn start(member: &Member, config: LedgerConfig, cluster: &Cluster) -> Self {
        let folder = layout::ledger(&config.service, member.group());
        let (client, key) = (member.client().clone(), format!("{}{folder}{LEADER}", member.client().prefix()));
        let follower = follower::follow(member.client().clone(), folder.clone(), member.id().clone(), cluster.clone());
        let leads = Arc::<AtomicBool>::default();
        let candidate = candidate::Candidate {
            client: member.client().clone(),
            group: member.group().clone(),
            id: member.id().clone(),
            folder,
            config,
            cluster: cluster.clone(),
            leads: Arc::clone(&leads),
        };
        Self {
            tasks: [tokio::spawn(follower), tokio::spawn(candidate.run(member.held()))],
            leads,
            client,
            key,
            held: member.held(),
        }
    }

    /// Whether this client leads the ledger.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let lease = self.held.borrow().map(|held| held.lease.id);
        // The lease goes on with the session, and a leader that does not lead would be in the way of all.
        if let (true, Some(lease), Ok(runtime)) = (self.is_leader(), lease, Handle::try_current()) {
            let (client, key) = (self.client.clone(), std::mem::take(&mut self.key));
            runtime.spawn(async move {
                let txn = Txn::new().when(Condition::lease(&key, lease)).delete(&key);
                if let Err(error) = client.txn(txn).await {
                    tracing::warn!(key, %error, "the ledger was not handed over: it waits for the end of the lease");
                }
            });
        }
    }
}

//! The owners of the shards of quotas: which shards this server claims, and which it releases.
//!
//! The services of a fleet are spread over 64 shards, each with one owner among the quota servers.
//! The store has a record for each owned shard, with the lease of its owner: the record disappears
//! when the owner dies. A claim is "create if absent", so a shard never has two owners, and servers
//! with different views only lose a race.
//!
//! ```text
//! fair share    ⌈64 / servers⌉
//! free shard    to its last owner, else to the server with the greatest hash of (server, shard);
//!               in both cases among those below their fair share
//! overdue       free for j · PATIENCE: also to the servers of the first j + 1 places by hash,
//!               with any number of shards
//! release       one shard, if this server is above its fair share, another is below, no shard is
//!               free, and the servers have been the same for SETTLE
//! ```
//!
//! All servers compute the same owners from the same view, so after a death the survivors claim at
//! once and seldom collide. Only the shards of the dead one are free, so nothing else moves.
//!
//! **Nothing flaps**, since a server claims only below its fair share and releases only above it.
//! Every server at or below its fair share is a fixed point, though the shares may then differ by
//! more than one (22, 22, 20). To even these out was rejected: a move costs the tasks of a shard a
//! new owner, and an owner has CPU to spare.
//!
//! **The last owner comes first** because of outages: if all leases expire at once, each owner gets
//! its own shards again. The caller counts unconfirmed servers ([`Members`](super::Members)) among
//! the servers, or the first one to come back would claim all 64.
//!
//! A server may be alive and not act. Then its shards are overdue, others own more than their fair
//! share, and nothing is released for a minute (`HOLD_OFF`).
//!
//! Rejected: rendezvous alone, without a fair share. With 64 shards and 4 servers the most loaded
//! would have 22 on average. Rejected: a leader that assigns shards. Its death and that of an owner
//! would add up.
//!
//! Where it is weak: a released shard has no owner until its next one sees it, some tens of
//! milliseconds; its tasks use their leases meanwhile. Shards are taken to be equally heavy.
//!
//! Source: etcd documentation, "Lease API" (keys of a lease are deleted with it).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use twox_hash::XxHash64;

use crate::Timestamp;

/// Number of shards. Enough that 10 servers differ by a sixth, and few enough that a server owns
/// them all with one watch and 64 keys.
pub const SHARDS: u32 = 64;
/// Time that the first choice for a free shard has, and each further one. Two round trips to the
/// store take a tenth of it; a takeover must end within 7 s of the death.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time without an arrival or departure before a shard is released: one lease. A server that
/// restarts over and over attracts no shards.
const SETTLE: Duration = Duration::from_secs(10);
/// Time without releases after one was of no use.
const HOLD_OFF: Duration = Duration::from_secs(60);

/// An operation to try. A claim is made only if there is no record, a release only if the record is
/// the server's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardOperation {
    /// Create the record of this shard.
    Claim(u32),
    /// Delete the record of this shard.
    Release(u32),
}

/// The shards of one quota server.
#[derive(Clone, Debug)]
pub struct Shards {
    own: String,
    /// The other servers and this one, and the time of the last change.
    servers: BTreeSet<String>,
    servers_since: Timestamp,
    /// Shards without an owner, and since when.
    free: BTreeMap<u32, Timestamp>,
    last_owner: BTreeMap<u32, String>,
    released: Option<u32>,
    /// No release before this time.
    held_off: Timestamp,
    timeout: Option<Timestamp>,
}

/// The numbers of shards of all servers in a view.
struct Load<'a> {
    counts: BTreeMap<&'a str, u32>,
    fair: u32,
}

impl<'a> Load<'a> {
    fn new(servers: &'a BTreeSet<String>, records: &BTreeMap<u32, String>) -> Self {
        let mut counts: BTreeMap<&str, u32> = servers.iter().map(|server| (server.as_str(), 0)).collect();
        for owner in owned(records).filter_map(|(_, owner)| owner) {
            if let Some(count) = counts.get_mut(owner.as_str()) {
                *count += 1;
            }
        }
        // At least one, and at most a few thousand servers.
        Self { counts, fair: SHARDS.div_ceil(servers.len().max(1) as u32) }
    }

    fn of(&self, server: &str) -> u32 {
        self.counts.get(server).copied().unwrap_or(0)
    }

    fn is_below(&self, server: &str) -> bool {
        self.counts.get(server).is_some_and(|count| *count < self.fair)
    }

    fn add(&mut self, server: &'a str) {
        *self.counts.entry(server).or_default() += 1;
    }

    /// The server below its fair share with the fewest shards.
    fn receiver(&self) -> Option<&'a str> {
        let below = self.counts.iter().filter(|(_, count)| **count < self.fair);
        below.min_by_key(|(_, count)| **count).map(|(server, _)| *server)
    }
}

/// All shards with their owners.
fn owned(records: &BTreeMap<u32, String>) -> impl Iterator<Item = (u32, Option<&String>)> {
    (0..SHARDS).map(|shard| (shard, records.get(&shard)))
}

/// How much a server is suited for a shard.
fn weight(server: &str, shard: u32) -> u64 {
    XxHash64::oneshot(shard.into(), server.as_bytes())
}

impl Shards {
    /// For the server `own`, a name that no other process has, also not after a restart.
    #[must_use]
    pub const fn new(own: String) -> Self {
        Self {
            own,
            servers: BTreeSet::new(),
            servers_since: Timestamp::ZERO,
            free: BTreeMap::new(),
            last_owner: BTreeMap::new(),
            released: None,
            held_off: Timestamp::ZERO,
            timeout: None,
        }
    }

    /// The operations to try by this view: any number of claims, or one release. None while this
    /// server is not among `servers`.
    ///
    /// `servers`: the known ones, the unconfirmed included. `records`: the owner of each shard. To
    /// be called for each view and at [`poll_timeout`](Self::poll_timeout), and not before the
    /// operations of the last call have ended.
    pub fn decide(
        &mut self,
        now: Timestamp,
        servers: &BTreeSet<String>,
        records: &BTreeMap<u32, String>,
    ) -> Vec<ShardOperation> {
        self.observe(now, servers, records);
        self.timeout = None;
        if !servers.contains(&self.own) {
            return Vec::new();
        }
        let mut load = Load::new(servers, records);
        let claims = self.claims(now, servers, &mut load);
        if !claims.is_empty() || !self.free.is_empty() {
            return claims;
        }
        self.release(now, &load, records).into_iter().collect()
    }

    /// The time at which [`decide`](Self::decide) may have operations for the same view.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.timeout
    }

    fn observe(&mut self, now: Timestamp, servers: &BTreeSet<String>, records: &BTreeMap<u32, String>) {
        if self.servers != *servers {
            self.servers.clone_from(servers);
            self.servers_since = now;
        }
        for (shard, owner) in owned(records) {
            match owner {
                None => {
                    self.free.entry(shard).or_insert(now);
                }
                Some(owner) => {
                    self.free.remove(&shard);
                    if self.last_owner.get(&shard) != Some(owner) {
                        self.last_owner.insert(shard, owner.clone());
                    }
                }
            }
        }
        if let Some(since) = self.released.and_then(|shard| self.free.get(&shard))
            && now >= *since + PATIENCE
        {
            // Its receiver does not act.
            self.held_off = now + HOLD_OFF;
            self.released = None;
        }
    }

    fn claims<'a>(
        &mut self,
        now: Timestamp,
        servers: &'a BTreeSet<String>,
        load: &mut Load<'a>,
    ) -> Vec<ShardOperation> {
        let mut claims = Vec::new();
        let mut next = None;
        for (shard, since) in &self.free {
            let last = self.last_owner.get(shard).and_then(|last| servers.get(last));
            let below = |server: &&String| load.is_below(server);
            let first = last.filter(below).or_else(|| {
                let suited = servers.iter().filter(below);
                suited.max_by_key(|server| weight(server, *shard))
            });
            if let Some(first) = first {
                load.add(first);
            }
            let patience = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
            let turns = now.nanos_since(*since) / patience;
            let before = servers.iter().filter(|server| weight(server, *shard) > weight(&self.own, *shard));
            if first == Some(&self.own) {
                claims.push(ShardOperation::Claim(*shard));
            } else if turns > 0 && before.count() as u64 <= turns {
                claims.push(ShardOperation::Claim(*shard));
                self.held_off = now + HOLD_OFF;
            }
            let turn = Timestamp::from_nanos(since.as_nanos().saturating_add((turns + 1).saturating_mul(patience)));
            next = Some(next.map_or(turn, |next: Timestamp| next.min(turn)));
        }
        self.timeout = next;
        claims
    }

    fn release(&mut self, now: Timestamp, load: &Load<'_>, records: &BTreeMap<u32, String>) -> Option<ShardOperation> {
        if load.of(&self.own) <= load.fair {
            return None;
        }
        let receiver = load.receiver()?;
        let at = self.held_off.max(self.servers_since + SETTLE);
        if now < at {
            self.timeout = Some(at);
            return None;
        }
        let own = owned(records).filter(|(_, owner)| *owner == Some(&self.own));
        // Of equal weights the lower number, so that the same view gives the same answer.
        let (shard, _) = own.max_by_key(|(shard, _)| (weight(receiver, *shard), Reverse(*shard)))?;
        self.released = Some(shard);
        Some(ShardOperation::Release(shard))
    }
}

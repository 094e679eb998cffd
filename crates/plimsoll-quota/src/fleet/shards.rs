//! The owners of shards, from the records in etcd and the lease of this server.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_etcd::{Lease, Record};
use tokio::time::Instant;

use super::SHARD;
use crate::config::OnSplit;
use crate::ownership::{Ownership, SHARDS};

/// Epochs of owners in etcd are above those of servers without it, which are milliseconds since 1970.
const FIRST_EPOCH: u64 = 1 << 52;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct View {
    address: Arc<str>,
    on_split: OnSplit,
    /// By shard: as last told.
    owners: Vec<Ownership>,
}

impl View {
    pub(super) fn new(address: Arc<str>, on_split: OnSplit) -> Self {
        Self { address, on_split, owners: vec![Ownership::Unknown; SHARDS as usize] }
    }

    /// The owners by shard. `held`: the lease of this server.
    pub(super) fn owners(
        &mut self,
        records: &BTreeMap<String, Record>,
        held: Option<Lease>,
        now: Instant,
    ) -> Arc<[Ownership]> {
        for (number, owner) in (0..).zip(&mut self.owners) {
            let record = records.get(&format!("{SHARD}{number}"));
            *owner = next(owner, record, held, &self.address);
            let is_over = matches!(owner, Ownership::Ours { until: Some(until), .. } if *until <= now);
            if is_over && self.on_split == OnSplit::Expire {
                *owner = Ownership::Unknown;
            }
        }
        self.owners.as_slice().into()
    }

    /// When to look again without any news.
    pub(super) fn timeout(held: Option<Lease>, now: Instant) -> Option<Instant> {
        held.map(|held| held.sure_until()).filter(|until| *until > now)
    }
}

/// The owner of a shard, by the one before and the record in etcd.
fn next(before: &Ownership, record: Option<&Record>, held: Option<Lease>, address: &Arc<str>) -> Ownership {
    let Some(record) = record else {
        // It has no other owner yet.
        return before.clone().if_ours();
    };
    let epoch = FIRST_EPOCH + record.create_revision.unsigned_abs();
    if let Some(held) = held.filter(|held| held.id == record.lease) {
        return Ownership::Ours { epoch, until: Some(held.sure_until()), address: Arc::clone(address) };
    }
    if record.value == address.as_bytes() {
        // By an earlier lease of this server, or of a process before it.
        let is_same = before.owner().is_some_and(|(of, _)| of == epoch);
        return if is_same { before.clone().if_ours() } else { Ownership::Unknown };
    }
    Ownership::Other { epoch, address: String::from_utf8_lossy(&record.value).into() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // Milliseconds in the year 2096.
    const _: () = assert!(FIRST_EPOCH > 4_000_000_000_000);
    const TTL: Duration = Duration::from_secs(5);
    const OWN: &str = "10.0.0.1:9800";
    const OTHER: &str = "10.0.0.2:9800";

    fn records(address: &str, create_revision: i64, lease: i64) -> BTreeMap<String, Record> {
        let key = format!("{SHARD}7");
        let value = address.as_bytes().to_vec();
        [(key.clone(), Record { key, value, create_revision, mod_revision: create_revision, lease })].into()
    }

    fn view(on_split: OnSplit) -> View {
        View::new(OWN.into(), on_split)
    }

    #[tokio::test(start_paused = true)]
    async fn shard_is_ours_by_our_lease_and_its_epoch_is_above_those_of_clocks() {
        let now = Instant::now();
        let (held, mut view) = (Lease { id: 3, ttl: TTL, renewed: now }, view(OnSplit::Keep));
        let own = records(OWN, 40, 3);
        let ours = Ownership::Ours { epoch: FIRST_EPOCH + 40, until: Some(held.sure_until()), address: OWN.into() };
        let owners = view.owners(&own, Some(held), now);
        assert_eq!((&owners[7], &owners[8]), (&ours, &Ownership::Unknown));
        // etcd is lost: the record and the lease stay as they were.
        assert_eq!(view.owners(&own, Some(held), now + 10 * TTL)[7], ours);
        // The lease expired, another one is there, and nobody has the shard.
        let another = Lease { id: 4, ttl: TTL, renewed: now + 11 * TTL };
        for records in [own, BTreeMap::new()] {
            assert_eq!(view.owners(&records, Some(another), now + 11 * TTL)[7], ours);
        }
        let other = Ownership::Other { epoch: FIRST_EPOCH + 50, address: OTHER.into() };
        assert_eq!(view.owners(&records(OTHER, 50, 9), Some(another), now + 12 * TTL)[7], other);
        assert_eq!(view.owners(&BTreeMap::new(), Some(another), now + 12 * TTL)[7], Ownership::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn shard_of_the_process_before_is_nobodys() {
        let now = Instant::now();
        let held = Lease { id: 4, ttl: TTL, renewed: now };
        assert_eq!(view(OnSplit::Keep).owners(&records(OWN, 40, 3), Some(held), now)[7], Ownership::Unknown);
        assert_eq!(view(OnSplit::Keep).owners(&records(OWN, 40, 3), None, now)[7], Ownership::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn expiring_owner_ends_with_its_lease() {
        let now = Instant::now();
        let (held, mut view) = (Lease { id: 3, ttl: TTL, renewed: now }, view(OnSplit::Expire));
        let own = records(OWN, 40, 3);
        assert_ne!(view.owners(&own, Some(held), now)[7], Ownership::Unknown);
        assert_eq!(View::timeout(Some(held), now), Some(held.sure_until()));
        assert_eq!(view.owners(&own, Some(held), held.sure_until())[7], Ownership::Unknown);
        let renewed = Lease { renewed: now + TTL, ..held };
        assert_ne!(view.owners(&own, Some(renewed), now + TTL)[7], Ownership::Unknown);
    }
}

//! A client's assignment: from its key to its cluster.

use std::sync::Arc;

use plimsoll::address::Address;
use plimsoll::client::{Cluster, Coordination};
use plimsoll_etcd::{Client, Mirror, Update};

use super::assignment;
use crate::layout::{Name, OF};

/// Has `cluster` take each assignment. A key that is deleted, or has another value, leaves the last one.
pub(super) async fn follow(client: Client, folder: String, id: Name, cluster: Cluster) {
    let mut mirror = Mirror::new(client, &format!("{folder}{OF}{id}"));
    let mut seen = 0;
    loop {
        if let Update::Contact | Update::Failed(_) = mirror.next().await {
            continue;
        }
        // Other keys of the mirror have this one as their beginning.
        let own = mirror.records().get("").filter(|record| record.mod_revision != seen);
        let Some(record) = own else { continue };
        seen = record.mod_revision;
        let Some(backends) = assignment::read(&record.value) else {
            tracing::warn!(cluster = cluster.name(), client = %id, "assignment is no list of addresses, the last one stays");
            continue;
        };
        let assigned: Arc<[Address]> =
            backends.iter().filter_map(|address| address.parse().ok().map(Address::Inet)).collect();
        tracing::debug!(cluster = cluster.name(), backends = assigned.len(), "backends assigned");
        cluster.coordinate(Coordination { index: None, assigned: Some(assigned) });
    }
}

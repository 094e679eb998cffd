//! The index of a client, from etcd to its cluster.

use plimsoll::client::{Cluster, Coordination};
use tokio::task::JoinHandle;

use crate::held_number::HeldNumber;

/// Keeps the index of a cluster's client that of a group, until it is dropped. The last one stays then.
#[derive(Debug)]
pub struct Index(JoinHandle<()>);

impl Index {
    /// Has `cluster` take the number, as it changes.
    #[must_use]
    pub fn follow(numbered: &HeldNumber, cluster: &Cluster) -> Self {
        let (mut number, cluster) = (numbered.number(), cluster.clone());
        Self(tokio::spawn(async move {
            loop {
                if let Some(index) = *number.borrow_and_update() {
                    cluster.coordinate(Coordination { index: Some(index), assigned: None });
                }
                if number.changed().await.is_err() {
                    return;
                }
            }
        }))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.0.abort();
    }
}

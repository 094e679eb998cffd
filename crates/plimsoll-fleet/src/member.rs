//! A client in its group: a key that says that it is live, and its index.

use plimsoll_core::fleet::Holes;
use plimsoll_etcd::{Client, EtcdError, Session, rng};
use rand_core::Rng as _;
use tokio::sync::watch;

use crate::held_number::{HeldNumber, NumberKeys};
use crate::kept::{Held, KeptKey};
use crate::layout::{self, MEMBERS, NUMBERS, Name};

/// A live client of a group, until it is ended or dropped; then its lease ends it.
#[derive(Debug)]
pub struct Member {
    client: Client,
    group: Name,
    id: Name,
    key: KeptKey,
}

impl Member {
    /// Joins `group` as the client `id`. A later process of this id replaces it.
    #[must_use]
    pub fn join(client: &Client, session: &Session, group: &Name, id: &Name) -> Self {
        let key = format!("{}{}{MEMBERS}{id}", client.prefix(), layout::clients(group));
        // Tells processes of one id apart, for people who look.
        let instance = format!("{}-{:08x}", std::process::id(), rng().next_u32());
        let key = KeptKey::start(client, session, key, instance.into_bytes());
        Self { client: client.clone(), group: group.clone(), id: id.clone(), key }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// The id of this client.
    #[must_use]
    pub fn id(&self) -> &Name {
        &self.id
    }

    /// The client of etcd.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn held(&self) -> watch::Receiver<Option<Held>> {
        self.key.held()
    }

    /// Takes an index among the clients of the group: 0, 1, 2 ..., the same again after a restart.
    #[must_use]
    pub fn index(&self) -> HeldNumber {
        let keys = NumberKeys { folder: layout::clients(&self.group), members: MEMBERS, numbers: NUMBERS };
        HeldNumber::start(&self.client, keys, &self.id, Holes::Closed, self.key.held())
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// etcd is unreachable: the lease ends the membership.
    pub async fn end(self) -> Result<(), EtcdError> {
        self.key.end().await
    }
}

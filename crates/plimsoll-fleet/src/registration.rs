//! A backend in the registry, under the lease of its process.

use parking_lot::Mutex;
use plimsoll::discover::{Endpoint, Readiness};
use plimsoll::server::{Lifecycle, Phase};
use plimsoll_core::fleet::Holes;
use plimsoll_etcd::{Client, EtcdError, Session};
use tokio::sync::watch;

use crate::held_number::{HeldNumber, NumberKeys};
use crate::kept::KeptKey;
use crate::layout::{self, BACKENDS, Name, SLOTS};
use crate::record;

/// A backend in the registry, until it is ended or dropped; then its lease ends it.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    service: Name,
    instance: Name,
    key: KeptKey,
    endpoint: Mutex<Endpoint>,
    slot: Option<HeldNumber>,
}

impl Registration {
    /// Registers `endpoint` as a backend of `service`. A later process with this instance name replaces
    /// it. Clients go by its readiness: change it with [`Self::set`].
    #[must_use]
    pub fn start(client: &Client, session: &Session, service: &Name, instance: &Name, endpoint: Endpoint) -> Self {
        let key = format!("{}{}{BACKENDS}{instance}", client.prefix(), layout::service(service));
        Self {
            key: KeptKey::start(client, session, key, record::write(&endpoint)),
            client: client.clone(),
            service: service.clone(),
            instance: instance.clone(),
            endpoint: Mutex::new(endpoint),
            slot: None,
        }
    }

    /// Takes a slot, too: a small number that no other backend has, and that is this one's again after a
    /// restart. For subset algorithms that number the backends.
    #[must_use]
    pub fn with_slot(mut self) -> Self {
        let keys = NumberKeys { folder: layout::service(&self.service), members: BACKENDS, numbers: SLOTS };
        self.slot = Some(HeldNumber::start(&self.client, keys, &self.instance, Holes::Kept, self.key.held()));
        self
    }

    /// Changes the backend's properties.
    pub fn set(&self, change: impl FnOnce(&mut Endpoint)) {
        let mut endpoint = self.endpoint.lock();
        change(&mut endpoint);
        self.key.set(record::write(&endpoint));
    }

    /// Waits until the backend is in the registry.
    pub async fn registered(&self) {
        // The sender ends with the registration.
        let _ = self.key.held().wait_for(Option::is_some).await;
    }

    /// The slot, as it changes; `None` before the first one, or without [`Self::with_slot`].
    #[must_use]
    pub fn slot(&self) -> Option<watch::Receiver<Option<u32>>> {
        self.slot.as_ref().map(HeldNumber::number)
    }

    /// Keeps the readiness that of a server: starting, ready, and draining as a lame duck. Ends the
    /// registration when the server is drained.
    pub async fn follow(self, lifecycle: &Lifecycle) {
        let mut phase = lifecycle.subscribe();
        loop {
            let readiness = match *phase.borrow_and_update() {
                Phase::Starting => Readiness::Starting,
                Phase::Serving => Readiness::Ready,
                Phase::LameDuck => Readiness::Draining,
                Phase::Drained => break,
            };
            self.set(|endpoint| endpoint.readiness = readiness);
            if phase.changed().await.is_err() {
                break;
            }
        }
        if let Err(error) = self.end().await {
            tracing::warn!(%error, "backend not removed from the registry: its lease ends it");
        }
    }

    /// Removes the backend from the registry, unless another process has its name.
    ///
    /// # Errors
    /// etcd is unreachable: the lease ends the backend.
    pub async fn end(self) -> Result<(), EtcdError> {
        self.key.end().await
    }
}

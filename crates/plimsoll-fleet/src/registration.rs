//! A backend in the registry: one key, which ends with the lease of its process.
//!
//! The key is written when it is new, when the backend changes, when the session has another lease, and
//! when a look every half a minute finds it missing or another's. A watch of the own key would tell
//! sooner, at the price of one watch for each backend; nobody but an operator removes it.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::discover::{Endpoint, Readiness};
use plimsoll::server::{Lifecycle, Phase};
use plimsoll_etcd::{Backoff, Client, Condition, EtcdError, Lease, Session, Txn};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::layout::{self, BACKENDS, Name};
use crate::record;

/// Time between two looks at the own key.
const LOOK: Duration = Duration::from_secs(30);
/// Time to tell etcd of the end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A backend in the registry, until it is ended or dropped; then its lease ends it.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    key: Arc<str>,
    endpoint: watch::Sender<Endpoint>,
    is_registered: watch::Receiver<bool>,
    lease: watch::Receiver<Option<Lease>>,
    task: JoinHandle<()>,
}

impl Registration {
    /// Registers `endpoint` as a backend of `service`. A later process with this instance name replaces
    /// it. Its readiness is what clients go by: change it with [`Self::set`].
    #[must_use]
    pub fn start(client: &Client, session: &Session, service: &Name, instance: &Name, endpoint: Endpoint) -> Self {
        let key: Arc<str> = format!("{}{}{BACKENDS}{instance}", client.prefix(), layout::service(service)).into();
        let (endpoint, wanted) = watch::channel(endpoint);
        let (sender, is_registered) = watch::channel(false);
        let lease = session.lease();
        let task = tokio::spawn(keep(client.clone(), Arc::clone(&key), session.lease(), wanted, sender));
        Self { client: client.clone(), key, endpoint, is_registered, lease, task }
    }

    /// Changes the backend's properties.
    pub fn set(&self, change: impl FnOnce(&mut Endpoint)) {
        self.endpoint.send_if_modified(|endpoint| {
            let former = endpoint.clone();
            change(endpoint);
            *endpoint != former
        });
    }

    /// Waits until the backend is in the registry.
    pub async fn registered(&mut self) {
        if self.is_registered.wait_for(|is_registered| *is_registered).await.is_err() {
            std::future::pending::<()>().await;
        }
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
        self.task.abort();
        let Some(lease) = *self.lease.borrow() else { return Ok(()) };
        let txn = Txn::new().when(Condition::lease(&self.key, lease.id)).delete(&self.key);
        let unreachable = |_| EtcdError::Unreachable("no answer within 2 s".to_owned());
        timeout(END_TIMEOUT, self.client.txn(txn)).await.map_err(unreachable)??;
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(
    client: Client,
    key: Arc<str>,
    mut lease: watch::Receiver<Option<Lease>>,
    mut wanted: watch::Receiver<Endpoint>,
    is_registered: watch::Sender<bool>,
) {
    let mut backoff = Backoff::new();
    loop {
        let Ok(of) = lease.wait_for(Option::is_some).await.map(|lease| *lease) else { return };
        let Some(of) = of else { continue };
        let endpoint = wanted.borrow_and_update().clone();
        let txn = Txn::new().put(&key, record::write(&endpoint), Some(of.id));
        if let Err(error) = client.txn(txn).await {
            tracing::debug!(%key, %error, "backend not written to the registry");
            backoff.wait().await;
            continue;
        }
        backoff.reset();
        if !is_registered.send_replace(true) {
            tracing::info!(%key, address = %endpoint.address, "backend registered");
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            ended = lease.wait_for(|lease| lease.is_none_or(|lease| lease.id != of.id)) => if ended.is_err() { return },
            () = gone(&client, &key, of.id) => tracing::warn!(%key, "backend was gone from the registry"),
        }
    }
}

/// Waits until the key is missing, or has another lease.
async fn gone(client: &Client, key: &str, lease: i64) {
    loop {
        sleep(LOOK).await;
        match client.get(key).await {
            Ok(Some(record)) if record.lease == lease => {}
            Ok(_) => return,
            // The client says so.
            Err(_) => {}
        }
    }
}

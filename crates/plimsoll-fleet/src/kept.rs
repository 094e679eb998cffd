//! A key that lives as long as its process: written under the lease of the session, and again when the
//! value changes or the session has another lease.
//!
//! The first write takes the key from any other process: a process that starts again, or takes over
//! from its predecessor, is the right holder. Later writes do so only if nobody else has it. So of two
//! processes with one key the later one wins, and they do not take it from each other for ever.
//!
//! A look every 15 s finds a key that somebody deleted or took. A watch would tell sooner, at
//! the price of one for each process.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_etcd::{Backoff, Client, Condition, EtcdError, Lease, Session, Txn};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::refusals::Refusals;

/// Time between two looks at the key.
const LOOK: Duration = Duration::from_secs(15);
/// The same while another process has it: it may end at any time.
const TAKEN_LOOK: Duration = Duration::from_secs(3);
/// Time to tell etcd of the end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The lease and the place in time of a key that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// The revision of the store with the key.
    pub(crate) revision: i64,
}

/// A key, until it is ended or dropped; then its lease ends it.
#[derive(Debug)]
pub(crate) struct KeptKey {
    client: Client,
    key: Arc<str>,
    value: watch::Sender<Vec<u8>>,
    held: watch::Receiver<Option<Held>>,
    task: JoinHandle<()>,
}

impl KeptKey {
    /// Keeps `key`, which begins with the prefix of the client.
    pub(crate) fn start(client: &Client, session: &Session, key: String, value: Vec<u8>) -> Self {
        let key: Arc<str> = key.into();
        let (value, values) = watch::channel(value);
        let (sender, held) = watch::channel(None);
        let keeper = Keeper { client: client.clone(), key: Arc::clone(&key), held: sender };
        let task = tokio::spawn(keeper.run(session.lease(), values));
        Self { client: client.clone(), key, value, held, task }
    }

    /// Changes the value.
    pub(crate) fn set(&self, value: Vec<u8>) {
        self.value.send_if_modified(|present| {
            let is_changed = *present != value;
            *present = value;
            is_changed
        });
    }

    /// The lease of the key, as it changes. `None` before the first write, and while another process has
    /// the key.
    pub(crate) fn held(&self) -> watch::Receiver<Option<Held>> {
        self.held.clone()
    }

    /// Deletes the key, unless another process has it.
    pub(crate) async fn end(self) -> Result<(), EtcdError> {
        self.task.abort();
        let Some(held) = *self.held.borrow() else { return Ok(()) };
        let txn = Txn::new().when(Condition::lease(&self.key, held.lease.id)).delete(&self.key);
        let unreachable = |_| EtcdError::Unreachable("no answer within 2 s".to_owned());
        timeout(END_TIMEOUT, self.client.txn(txn)).await.map_err(unreachable)??;
        Ok(())
    }
}

impl Drop for KeptKey {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The end of a write.
enum Written {
    Done,
    /// The key changed between the look and the write.
    Raced,
    /// Another process has the key.
    Taken,
}

/// The holder of the key.
enum Found {
    /// This process, by this lease.
    Own,
    Nobody,
    Another,
}

struct Keeper {
    client: Client,
    key: Arc<str>,
    held: watch::Sender<Option<Held>>,
}

impl Keeper {
    async fn run(self, mut lease: watch::Receiver<Option<Lease>>, mut value: watch::Receiver<Vec<u8>>) {
        let (mut backoff, mut refusals) = (Backoff::new(), Refusals::default());
        let mut is_first = true;
        // The lease under which the key was lost.
        let mut lost = None;
        loop {
            let Ok(of) = lease.wait_for(Option::is_some).await.map(|lease| *lease) else { return };
            let Some(of) = of else { continue };
            let content = value.borrow_and_update().clone();
            match self.write(of, content, is_first).await {
                Ok(Written::Done) => {
                    backoff.reset();
                    refusals.on_success();
                    // A key that went with its lease was not deleted.
                    if lost.take() == Some(of.id) {
                        tracing::warn!(key = %self.key, "key was deleted by somebody: it is written again");
                    }
                }
                Ok(Written::Raced) => {
                    backoff.wait().await;
                    continue;
                }
                Ok(Written::Taken) => {
                    if self.held.send_replace(None).is_some() {
                        tracing::warn!(key = %self.key, "another process has this name: give each its own");
                    }
                    sleep(TAKEN_LOOK).await;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(key = %self.key, %error, "key not written");
                    refusals.on_error(&self.key, &error);
                    backoff.wait().await;
                    continue;
                }
            }
            is_first = false;
            tokio::select! {
                changed = value.changed() => if changed.is_err() { return },
                ended = lease.wait_for(|lease| lease.is_none_or(|lease| lease.id != of.id)) => {
                    if ended.is_err() {
                        return;
                    }
                }
                () = self.lost(of) => lost = Some(of.id),
            }
        }
    }

    /// Writes the key; if `is_first`, over any holder.
    async fn write(&self, lease: Lease, value: Vec<u8>, is_first: bool) -> Result<Written, EtcdError> {
        let condition = if is_first {
            None
        } else {
            match self.find(lease).await? {
                Found::Own => Some(Condition::lease(&self.key, lease.id)),
                // An absent key has lease 0, too.
                Found::Nobody => Some(Condition::lease(&self.key, 0)),
                Found::Another => return Ok(Written::Taken),
            }
        };
        let txn = Txn::new().put(&self.key, value, Some(lease.id));
        let txn = condition.into_iter().fold(txn, Txn::when);
        let result = self.client.txn(txn).await?;
        if !result.is_done {
            return Ok(Written::Raced);
        }
        self.held.send_replace(Some(Held { lease, revision: result.revision }));
        Ok(Written::Done)
    }

    async fn find(&self, lease: Lease) -> Result<Found, EtcdError> {
        Ok(match self.client.get(&self.key).await? {
            None => Found::Nobody,
            Some(record) if record.lease == lease.id => Found::Own,
            // Put by hand: no process lives by it.
            Some(record) if record.lease == 0 => Found::Nobody,
            Some(_) => Found::Another,
        })
    }

    /// Waits until the key is missing, or another's.
    async fn lost(&self, lease: Lease) {
        loop {
            sleep(LOOK).await;
            // Of an error the client tells.
            if let Ok(Found::Nobody | Found::Another) = self.find(lease).await {
                return;
            }
        }
    }
}

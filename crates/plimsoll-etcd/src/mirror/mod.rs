//! The records of a prefix, as they change.
//!
//! ```text
//! start         list the prefix at revision R, watch from R + 1
//! stream broke  watch from the last revision + 1, at the next endpoint
//! gap           list again: the revision was compacted, the store is another one or an older one
//! contact       a question every 2 s that etcd answers on an idle watch; 4.5 s of silence: broke
//! ```
//!
//! A watch without changes looks like one without a server. So each answer
//! counts as a contact, and the users of a mirror judge removals by the time of the last one
//! ([`plimsoll_core`]'s `fleet::trust`).

mod follow;

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{Client, Record, check_size};
use crate::error::EtcdError;

/// Updates that wait for the user of a mirror. If there are more, the watch ends until half of them
/// are read.
const MAX_QUEUE: usize = 64;

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new, or has another value.
    Put(Record),
    /// It was deleted, or its lease expired: its key without the prefix.
    Delete(String),
}

/// A step of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// All records were listed: at the start, and after a gap.
    Listed,
    /// Some changed.
    Events(Vec<Event>),
    /// etcd answered, and nothing changed.
    Contact,
    /// The watch broke, or could not begin. The records stay, and the mirror goes on by itself.
    Failed(EtcdError),
}

/// A message of the task that follows a prefix.
enum Step {
    Listed { revision: i64, records: Vec<Record> },
    Events { revision: i64, events: Vec<Event> },
    Contact,
    Failed(EtcdError),
}

/// The records of a prefix.
#[derive(Debug)]
pub struct Mirror {
    client: Client,
    prefix: String,
    steps: mpsc::Receiver<Step>,
    records: BTreeMap<String, Record>,
    /// Bytes of their keys and values.
    bytes: usize,
    revision: i64,
    task: JoinHandle<()>,
}

impl Mirror {
    /// The records of all keys that begin with the client's prefix and this one, such as
    /// `services/web/`. A prefix with more than 100,000 records or 64 MiB is refused.
    ///
    /// # Panics
    /// Outside of a runtime of Tokio, as [`tokio::spawn`] does.
    #[must_use]
    pub fn new(client: Client, prefix: &str) -> Self {
        let prefix = format!("{}{prefix}", client.prefix());
        let (task, steps) = start(&client, &prefix);
        Self { client, prefix, steps, records: BTreeMap::new(), bytes: 0, revision: 0, task }
    }

    /// The next step, which is in [`Self::records`] already. It may be dropped without a loss.
    pub async fn next(&mut self) -> Update {
        let Some(step) = self.steps.recv().await else {
            // The task ends with the runtime alone.
            return std::future::pending().await;
        };
        match step {
            Step::Listed { revision, records } => {
                self.revision = revision;
                self.bytes = records.iter().map(size).sum();
                self.records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
                Update::Listed
            }
            Step::Events { revision, events } => {
                self.revision = revision;
                events.iter().for_each(|event| self.apply(event));
                if check_size(&self.prefix, self.records.len(), self.bytes).is_err() {
                    // A list is refused until the prefix is smaller; these records stay.
                    self.task.abort();
                    (self.task, self.steps) = start(&self.client, &self.prefix);
                }
                Update::Events(events)
            }
            Step::Contact => Update::Contact,
            Step::Failed(error) => Update::Failed(error),
        }
    }

    fn apply(&mut self, event: &Event) {
        let before = match event {
            Event::Put(record) => {
                self.bytes += size(record);
                self.records.insert(record.key.clone(), record.clone())
            }
            Event::Delete(key) => self.records.remove(key),
        };
        self.bytes -= before.as_ref().map_or(0, size);
    }

    /// The records by key, without the prefix. Empty before the first [`Update::Listed`].
    #[must_use]
    pub fn records(&self) -> &BTreeMap<String, Record> {
        &self.records
    }

    /// The revision of the store of the last change; 0 before the first list.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }
}

/// Bytes of a record.
fn size(record: &Record) -> usize {
    record.key.len() + record.value.len()
}

/// The task that follows a prefix, and its steps.
fn start(client: &Client, prefix: &str) -> (JoinHandle<()>, mpsc::Receiver<Step>) {
    let (sender, steps) = mpsc::channel(MAX_QUEUE);
    (tokio::spawn(follow::run(client.clone(), prefix.to_owned(), sender)), steps)
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

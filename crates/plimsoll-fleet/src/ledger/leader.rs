//! The leader: follows clients and backends, and writes the assignments that change.
//!
//! It reads them all again once a minute, and writes those anew that somebody else has changed: by hand,
//! or by a request of its own that seemed to have failed and was done later.
//!
//! It begins with the assignments in the store. Their clients and backends count as present until two
//! lease times have passed, since a new leader may have a short list. So it adds at once, and removes
//! later.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::discover::Endpoint;
use plimsoll_core::fleet::{AssignmentWrite, Assignments, AssignmentsConfig, ListedBackend, Members, TrustConfig};
use plimsoll_core::{Timestamp, Weight};
use plimsoll_etcd::{Backoff, Condition, EtcdError, Event, Mirror, Record, Txn, Update};
use tokio::time::{Instant, sleep_until};

use super::assignment;
use super::candidate::Candidate;
use crate::clock::Clock;
use crate::layout::{self, MEMBERS, Name, OF};
use crate::lease::LEASE;
use crate::refusals::Refusals;

/// Time for changes to gather: clients and backends that start or end together are one event.
const GATHER: Duration = Duration::from_millis(200);
/// Time between two looks at the assignments in the store: 10,000 are a megabyte.
const LOOK: Duration = Duration::from_secs(60);

/// A leader, by the revision of the creation of its key.
pub(super) struct Leader<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) revision: i64,
    /// The whole key of the leader.
    pub(super) key: String,
}

type Written = BTreeMap<String, BTreeSet<String>>;

/// The clients and the backends of the ledger.
struct View {
    clients: Members<String, ()>,
    backends: Members<String, (u32, Weight)>,
}

impl Leader<'_> {
    /// Leads until another client does.
    pub(super) async fn lead(&self) {
        let written = self.read().await;
        let (client, config) = (&self.candidate.client, &self.candidate.config);
        let mut mirror = Mirror::new(client.clone(), &format!("{}{MEMBERS}", layout::clients(&self.candidate.group)));
        let mut ready = self.candidate.cluster.ready_backends();
        let clock = Clock::start();
        let mut view = View::new(&written);
        // The first lists.
        while mirror.revision() == 0 {
            let update = mirror.next().await;
            view.take(clock.now(), &mirror, update);
        }
        view.set_backends(clock.now(), &ready.borrow_and_update().clone());

        let config = AssignmentsConfig::new(config.size, config.seed);
        let mut assignments = Assignments::new(config, &view.client_ids(), &view.listed(), written);
        let (mut backoff, mut refusals) = (Backoff::new(), Refusals::default());
        let (mut due, mut look) = (None, Instant::now() + LOOK);
        loop {
            while let Some(writes) = assignments.poll(clock.now()) {
                match self.write(&writes).await {
                    Ok(true) => {
                        backoff.reset();
                        refusals.on_success();
                        assignments.on_written(clock.now());
                    }
                    Ok(false) => return,
                    // It may have been written.
                    Err(error) => {
                        tracing::debug!(%error, "assignments not written");
                        refusals.on_error(&self.folder(), &error);
                        backoff.wait().await;
                        assignments.set_written(self.read().await);
                    }
                }
            }
            let timeouts = [view.clients.poll_timeout(), view.backends.poll_timeout(), assignments.poll_timeout()];
            let timeout = timeouts.into_iter().flatten().min().map(|at| clock.instant(at));
            let wake = [timeout, due].into_iter().flatten().fold(look, Instant::min);
            let is_changed = tokio::select! {
                update = mirror.next() => view.take(clock.now(), &mirror, update),
                changed = ready.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let list = ready.borrow_and_update().clone();
                    view.set_backends(clock.now(), &list)
                }
                () = sleep_until(wake) => view.handle_timeout(clock.now()),
            };
            if look <= Instant::now() {
                look = Instant::now() + LOOK;
                let written = self.read().await;
                if assignments.set_written(written) {
                    tracing::warn!("somebody else changed assignments of the ledger: they are written anew");
                }
            }
            if is_changed {
                due = due.or(Some(Instant::now() + GATHER));
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                due = None;
                assignments.set_view(&view.client_ids(), &view.listed());
            }
        }
    }

    /// The folder of the ledger, with the prefix of the client.
    fn folder(&self) -> String {
        format!("{}{}", self.candidate.client.prefix(), self.candidate.folder)
    }

    /// All assignments in the store, once it answers.
    async fn read(&self) -> Written {
        let folder = self.folder();
        let (mut backoff, mut refusals) = (Backoff::new(), Refusals::default());
        loop {
            match self.candidate.client.list(&format!("{folder}{OF}")).await {
                Ok(listing) => return assignment::all(&listing.records, &folder),
                Err(error) => {
                    refusals.on_error(&folder, &error);
                    backoff.wait().await;
                }
            }
        }
    }

    /// Writes a batch. Returns whether this client leads still.
    async fn write(&self, writes: &[AssignmentWrite]) -> Result<bool, EtcdError> {
        let key = |client: &str| format!("{}{}{OF}{client}", self.candidate.client.prefix(), self.candidate.folder);
        let txn = Txn::new().when(Condition::created(&self.key, self.revision));
        let txn = writes.iter().fold(txn, |txn, write| match write {
            AssignmentWrite::Put { client, backends } => txn.put(&key(client), assignment::write(backends), None),
            AssignmentWrite::Delete { client } => txn.delete(&key(client)),
        });
        Ok(self.candidate.client.txn(txn).await?.is_done)
    }
}

/// Whether a key is that of a client. One without a lease was put by hand, and would be one for ever.
fn is_live(member: &Record) -> bool {
    let is_live = member.lease != 0 && Name::new(&*member.key).is_ok();
    if !is_live {
        tracing::warn!(client = member.key, "key of a client without a lease, or without a name: it is ignored");
    }
    is_live
}

impl View {
    fn new(written: &Written) -> Self {
        let config = TrustConfig::of_lease(LEASE);
        let (mut clients, mut backends) = (Members::new(config), Members::new(config));
        clients.restore(written.keys().map(|client| (client.clone(), ())));
        let known: BTreeSet<&String> = written.values().flatten().collect();
        let is_address = |address: &&String| address.parse::<SocketAddr>().is_ok();
        backends.restore(known.into_iter().filter(is_address).map(|address| (address.clone(), (0, Weight::ONE))));
        Self { clients, backends }
    }

    /// Returns whether it changed.
    fn take(&mut self, now: Timestamp, mirror: &Mirror, update: Update) -> bool {
        if let Update::Failed(_) = update {
            return false;
        }
        // The backends come by another way, which has its own trust. Here those of the store count.
        self.backends.on_contact(now);
        match update {
            Update::Listed => {
                let live = mirror.records().values().filter(|record| is_live(record));
                self.clients.set_list(now, live.map(|record| (record.key.clone(), ())))
            }
            Update::Events(events) => events.into_iter().fold(false, |is_changed, event| {
                let changes = match event {
                    Event::Put(record) if is_live(&record) => self.clients.put(now, record.key, ()),
                    // If it was put over that of a client, that one writes it again.
                    Event::Put(_) => false,
                    Event::Delete(id) => self.clients.remove(now, &id),
                };
                is_changed | changes
            }),
            Update::Contact | Update::Failed(_) => {
                self.clients.on_contact(now);
                false
            }
        }
    }

    /// No list at all is none to go by: the backends stay.
    fn set_backends(&mut self, now: Timestamp, ready: &[Arc<Endpoint>]) -> bool {
        if ready.is_empty() {
            return false;
        }
        let backend =
            |endpoint: &Arc<Endpoint>| (endpoint.address.to_string(), (endpoint.failure_domain(), endpoint.weight));
        self.backends.set_list(now, ready.iter().map(backend))
    }

    fn handle_timeout(&mut self, now: Timestamp) -> bool {
        self.clients.handle_timeout(now) | self.backends.handle_timeout(now)
    }

    fn client_ids(&self) -> BTreeSet<String> {
        self.clients.iter().map(|(id, ())| id.clone()).collect()
    }

    fn listed(&self) -> Vec<ListedBackend> {
        let listed = |(address, (domain, weight)): (&String, &(u32, Weight))| ListedBackend {
            address: address.clone(),
            domain: *domain,
            weight: *weight,
        };
        self.backends.iter().map(listed).collect()
    }
}

//! The number of a member: the operations of [`Numbers`] as transactions.
//!
//! Each transaction compares the records that the machine expects, and the lease of the member's own
//! key. So a late view loses a race, and never gives two live members one number.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::fleet::{
    Expect, Holes, Members, NumberOperation, NumberOutcome, NumberRecord, Numbers, NumbersConfig, OwnRecord,
    TrustConfig,
};
use plimsoll_etcd::{Client, Condition, Event, Mirror, Record, Txn, Update, rng};
use rand_pcg::Pcg64Mcg;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::kept::Held;
use crate::layout::{self, Name};
use crate::lease::LEASE;
use crate::refusals::Refusals;

/// Time for changes to gather: a fleet that starts makes thousands.
const GATHER: Duration = Duration::from_millis(100);

/// Where members and numbers are.
#[derive(Clone, Debug)]
pub(crate) struct NumberKeys {
    /// The folder of both, after the prefix of the client.
    pub(crate) folder: String,
    /// The keys of live members, by id.
    pub(crate) members: &'static str,
    /// The ids, by number.
    pub(crate) numbers: &'static str,
}

/// The number of a member, until it is dropped. The record stays for its return.
#[derive(Debug)]
pub struct HeldNumber {
    number: watch::Receiver<Option<u32>>,
    task: JoinHandle<()>,
}

impl HeldNumber {
    /// Takes a number for the member `id` with the key `held`.
    pub(crate) fn start(
        client: &Client,
        keys: NumberKeys,
        id: &Name,
        holes: Holes,
        held: watch::Receiver<Option<Held>>,
    ) -> Self {
        let (sender, number) = watch::channel(None);
        let task = Task {
            mirror: Mirror::new(client.clone(), &keys.folder),
            view: View { records: BTreeMap::new(), members: Members::new(TrustConfig::of_lease(LEASE)) },
            numbers: Numbers::new(NumbersConfig::new(holes), id.to_string()),
            client: client.clone(),
            keys,
            id: id.clone(),
            clock: Clock::start(),
            rng: rng(),
            refusals: Refusals::default(),
        };
        Self { number, task: tokio::spawn(task.run(held, sender)) }
    }

    /// The number, as it changes; `None` before the first one. It stays while etcd is unreachable.
    #[must_use]
    pub fn number(&self) -> watch::Receiver<Option<u32>> {
        self.number.clone()
    }
}

impl Drop for HeldNumber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Members and numbers.
#[derive(Debug)]
struct View {
    records: BTreeMap<u32, NumberRecord>,
    members: Members<String, ()>,
}

struct Task {
    client: Client,
    keys: NumberKeys,
    id: Name,
    mirror: Mirror,
    view: View,
    numbers: Numbers,
    clock: Clock,
    rng: Pcg64Mcg,
    refusals: Refusals,
}

impl Task {
    async fn run(mut self, mut held: watch::Receiver<Option<Held>>, number: watch::Sender<Option<u32>>) {
        let mut due = Instant::now();
        loop {
            let timeouts = [self.view.members.poll_timeout(), self.numbers.poll_timeout()];
            let timeout = timeouts.into_iter().flatten().min().map(|at| self.clock.instant(at));
            let wake = timeout.map_or(due, |timeout| timeout.min(due));
            tokio::select! {
                update = self.mirror.next() => {
                    let is_changed = self.take(update);
                    if is_changed && due > Instant::now() + GATHER {
                        due = Instant::now() + GATHER;
                    }
                    continue;
                }
                changed = held.changed() => if changed.is_err() { return },
                () = sleep_until(wake) => {}
            }
            let now = self.clock.now();
            self.view.members.handle_timeout(now);
            due = Instant::now() + LEASE;
            let Some(of) = *held.borrow_and_update() else {
                self.numbers.pause(now);
                continue;
            };
            // A view without the own key would show the own number as that of a dead member.
            if self.mirror.revision() < of.revision {
                self.numbers.pause(now);
                due = Instant::now() + GATHER;
                continue;
            }
            if let Some(operation) = self.numbers.decide(now, &self.view.records, &self.view.members) {
                let outcome = self.execute(&operation, of).await;
                tracing::debug!(?operation, ?outcome, "operation on numbers");
                self.numbers.on_outcome(self.clock.now(), outcome, &mut self.rng);
            }
            // A record that was lost leaves the number in use until there is another.
            if let Some(own) = self.numbers.number(&self.view.records)
                && number.send_replace(Some(own)) != Some(own)
            {
                tracing::info!(folder = self.keys.folder, id = %self.id, number = own, "number taken");
            }
        }
    }

    /// Returns whether the view changed.
    fn take(&mut self, update: Update) -> bool {
        let (now, keys) = (self.clock.now(), &self.keys);
        match update {
            Update::Listed => self.view.set(now, keys, self.mirror.records()),
            Update::Events(events) => {
                self.view.members.on_contact(now);
                for event in events {
                    self.view.apply(now, keys, event);
                }
            }
            Update::Contact => {
                self.view.members.on_contact(now);
                return false;
            }
            Update::Failed(error) => {
                self.refusals.on_error(&keys.folder, &error);
                return false;
            }
        }
        true
    }

    async fn execute(&mut self, operation: &NumberOperation, held: Held) -> NumberOutcome {
        match self.client.txn(self.txn(operation, held)).await {
            Ok(result) => {
                self.refusals.on_success();
                if result.is_done { NumberOutcome::Won } else { NumberOutcome::Lost }
            }
            Err(error) => {
                self.refusals.on_error(&self.keys.folder, &error);
                NumberOutcome::Unknown
            }
        }
    }

    fn txn(&self, operation: &NumberOperation, held: Held) -> Txn {
        let own = Condition::lease(&self.member(self.id.as_str()), held.lease.id);
        let txn = Txn::new().when(own);
        match operation {
            NumberOperation::Claim { number, expect } => self.claim(txn, *number, expect),
            NumberOperation::Move { from: OwnRecord { number, mod_revision }, to, expect } => {
                let from = self.number(*number);
                let txn = txn.when(Condition::unchanged(&from, *mod_revision as i64)).delete(&from);
                self.claim(txn, *to, expect)
            }
            NumberOperation::Delete { number, id, mod_revision } => {
                let key = self.number(*number);
                txn.when(Condition::unchanged(&key, *mod_revision as i64))
                    .when(Condition::absent(&self.member(id)))
                    .delete(&key)
            }
            NumberOperation::Release(OwnRecord { number, mod_revision }) => {
                let key = self.number(*number);
                txn.when(Condition::unchanged(&key, *mod_revision as i64)).delete(&key)
            }
        }
    }

    fn claim(&self, txn: Txn, number: u32, expect: &Expect) -> Txn {
        let key = self.number(number);
        let txn = match expect {
            Expect::Absent => txn.when(Condition::absent(&key)),
            Expect::Dead { id, mod_revision } => {
                txn.when(Condition::unchanged(&key, *mod_revision as i64)).when(Condition::absent(&self.member(id)))
            }
        };
        txn.put(&key, self.id.as_str(), None)
    }

    fn member(&self, id: &str) -> String {
        format!("{}{}{}{id}", self.client.prefix(), self.keys.folder, self.keys.members)
    }

    fn number(&self, number: u32) -> String {
        format!("{}{}{}{number}", self.client.prefix(), self.keys.folder, self.keys.numbers)
    }
}

impl View {
    /// All records.
    fn set(&mut self, now: Timestamp, keys: &NumberKeys, records: &BTreeMap<String, Record>) {
        let ids = records.keys().filter_map(|key| Some((key.strip_prefix(keys.members)?.to_owned(), ())));
        self.members.set_list(now, ids.collect::<Vec<_>>());
        self.records = records.values().filter_map(|record| number(keys, record)).collect();
    }

    fn apply(&mut self, now: Timestamp, keys: &NumberKeys, event: Event) {
        match event {
            Event::Put(record) => {
                if let Some(id) = record.key.strip_prefix(keys.members) {
                    self.members.put(now, id.to_owned(), ());
                } else if let Some((number, record)) = number(keys, &record) {
                    self.records.insert(number, record);
                }
            }
            Event::Delete(key) => {
                if let Some(id) = key.strip_prefix(keys.members) {
                    self.members.remove(now, &id.to_owned());
                } else if let Some(number) = key.strip_prefix(keys.numbers).and_then(layout::number) {
                    self.records.remove(&number);
                }
            }
        }
    }
}

/// The record of a number. One that is no name is a holder that is never live.
fn number(keys: &NumberKeys, record: &Record) -> Option<(u32, NumberRecord)> {
    let number = layout::number(record.key.strip_prefix(keys.numbers)?)?;
    let id = String::from_utf8_lossy(&record.value).into_owned();
    Some((number, NumberRecord { id, mod_revision: record.mod_revision.unsigned_abs() }))
}

//! A process of the fleet: its view of the store, its lease, its machine.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::fleet::{
    HeldLease, Members, NumberOperation, NumberOutcome, NumberRecord, Numbers, NumbersConfig, TrustConfig,
};
use rand_pcg::Pcg64Mcg;

use crate::store::{Entry, LEASE_MS, Store};

pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

pub(crate) struct Task {
    pub(crate) id: String,
    instance: u64,
    pub(crate) machine: Numbers,
    pub(crate) records: BTreeMap<u32, NumberRecord>,
    pub(crate) members: Members<String, u64>,
    /// The revision of its view. None: it has no list yet.
    pub(crate) seen: Option<u64>,
    /// The revision of its registration.
    registered: Option<u64>,
    lease: HeldLease,
    pub(crate) operation: Option<NumberOperation>,
    /// Transactions that it made, the lost ones included.
    pub(crate) transactions: u32,
}

impl Task {
    pub(crate) fn new(id: String, instance: u64, config: NumbersConfig) -> Self {
        Self {
            machine: Numbers::new(config, id.clone()),
            id,
            instance,
            records: BTreeMap::new(),
            members: Members::new(TrustConfig::default()),
            seen: None,
            registered: None,
            lease: HeldLease::new(),
            operation: None,
            transactions: 0,
        }
    }

    /// Renews the lease, or registers.
    pub(crate) fn renew(&mut self, now: u64, store: &mut Store) {
        if self.registered.is_none() || !store.renew(now, &self.id, self.instance) {
            // Another instance for each registration, as a lease has another id.
            self.instance += 1_000_000;
            self.registered = Some(store.register(now, &self.id, self.instance));
        }
        self.lease.on_answer(at(now), Duration::from_millis(LEASE_MS));
        self.members.on_contact(at(now));
    }

    /// Gets the changes up to a revision, or the list of that moment if it has none.
    pub(crate) fn watch(&mut self, now: u64, store: &Store, upto: u64) {
        let Some(seen) = self.seen else {
            self.resync(now, store);
            return;
        };
        for entry in store.log[seen as usize..upto.max(seen) as usize].iter().flatten() {
            match entry {
                Entry::Number(number, Some(record)) => {
                    self.records.insert(*number, record.clone());
                }
                Entry::Number(number, None) => {
                    self.records.remove(number);
                }
                Entry::Member(id, Some(instance)) => {
                    self.members.put(at(now), id.clone(), *instance);
                }
                Entry::Member(id, None) => {
                    self.members.remove(at(now), id);
                }
            }
        }
        self.members.on_contact(at(now));
        self.seen = Some(upto.max(seen));
    }

    /// Gets the whole list.
    pub(crate) fn resync(&mut self, now: u64, store: &Store) {
        self.records = store.numbers.clone();
        self.members.set_list(at(now), store.members.iter().map(|(id, (instance, _))| (id.clone(), *instance)));
        self.seen = Some(store.revision());
    }

    /// Whether the view includes the own registration.
    fn is_current(&self) -> bool {
        self.registered.is_some_and(|registered| self.seen.is_some_and(|seen| seen >= registered))
    }

    pub(crate) fn decide(&mut self, now: u64) {
        self.members.handle_timeout(at(now));
        if self.is_current()
            && let Some(operation) = self.machine.decide(at(now), &self.records, &self.members)
        {
            assert!(self.operation.is_none(), "one operation at a time");
            self.operation = Some(operation);
        }
    }

    /// Makes the transaction in flight, and gets its answer unless it is lost.
    pub(crate) fn commit(&mut self, now: u64, store: &mut Store, answered: bool, rng: &mut Pcg64Mcg) {
        let Some(operation) = self.operation.take() else { return };
        self.transactions += 1;
        let made = store.commit(&self.id, self.instance, &operation);
        let outcome = match (answered, made) {
            (false, _) => NumberOutcome::Unknown,
            (true, true) => NumberOutcome::Won,
            (true, false) => NumberOutcome::Lost,
        };
        self.machine.on_outcome(at(now), outcome, rng);
    }

    /// The transaction in flight never reached the store.
    pub(crate) fn lose(&mut self, now: u64, rng: &mut Pcg64Mcg) {
        if self.operation.take().is_some() {
            self.machine.on_outcome(at(now), NumberOutcome::Unknown, rng);
        }
    }

    /// The number that it relies on: by its view, while its lease lives.
    pub(crate) fn held(&self, now: u64) -> Option<u32> {
        let relies = self.is_current() && !self.lease.could_have_expired(at(now));
        relies.then(|| self.machine.number(&self.records)).flatten()
    }
}

//! The registry of a service as a source of backends.
//!
//! It lists the backends with a record, and those with a removal that is not believed yet
//! (`plimsoll_core::fleet::trust`). A malformed record is skipped, or its last good value stays: one
//! faulty process must not take the others from the list.
//!
//! A backend's slot is its ordinal.

use std::collections::BTreeMap;

use plimsoll::discover::{Answer, Discover, Endpoint, LoggedError, Readiness, SourceError};
use plimsoll_core::Timestamp;
use plimsoll_core::fleet::{Members, TrustConfig};
use plimsoll_etcd::{Client, EtcdError, Event, Mirror, Record, Update};
use tokio::time::sleep_until;

use crate::clock::Clock;
use crate::layout::{self, BACKENDS, Name, SLOTS};
use crate::lease::LEASE;
use crate::record;

/// The backends of a service, from the registry.
///
/// A [`Discover`] for [`Cluster::follow`](plimsoll::client::Cluster::follow). Use it within a runtime.
#[derive(Debug)]
pub struct Registry {
    client: Client,
    mirror: Mirror,
    service: Name,
    view: View,
    clock: Clock,
    /// Whether a backend without a slot is ready.
    needs_slots: bool,
    /// The last list that was yielded.
    listed: Option<Vec<Endpoint>>,
}

impl Registry {
    /// The source of the backends of `service`.
    #[must_use]
    pub fn new(client: Client, service: &Name) -> Self {
        let mirror = Mirror::new(client.clone(), &layout::service(service));
        let clock = Clock::start();
        Self { client, mirror, service: service.clone(), view: View::new(), clock, needs_slots: false, listed: None }
    }

    /// The same for subset algorithms that number the backends: one without a slot is starting. It gets its
    /// slot a moment later, or never if its process takes none; the others are not affected.
    #[must_use]
    pub fn with_slots(self) -> Self {
        Self { needs_slots: true, ..self }
    }

    /// The list, if it differs from the last one or that was an error.
    fn changed(&mut self) -> Option<Vec<Endpoint>> {
        let list = self.view.list(self.needs_slots);
        if self.listed.as_ref() == Some(&list) {
            return None;
        }
        self.listed = Some(list.clone());
        Some(list)
    }
}

impl Discover for Registry {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            let timeout = self.view.members.poll_timeout().map(|at| self.clock.instant(at));
            let update = tokio::select! {
                update = self.mirror.next() => update,
                () = async { sleep_until(timeout.expect("it is polled only then")).await }, if timeout.is_some() => {
                    self.view.members.handle_timeout(self.clock.now());
                    match self.changed() {
                        Some(list) => return Some(Ok(list)),
                        None => continue,
                    }
                }
            };
            let now = self.clock.now();
            match update {
                Update::Listed => self.view.set(now, self.mirror.records()),
                Update::Events(events) => {
                    self.view.members.on_contact(now);
                    for event in events {
                        self.view.apply(now, event);
                    }
                }
                Update::Contact => self.view.members.on_contact(now),
                // The watch goes on at another endpoint.
                Update::Failed(EtcdError::Unreachable(_)) if self.client.reach().is_reachable() => continue,
                Update::Failed(error) => {
                    self.listed = None;
                    // That etcd is lost is one line in the log, and not one for each cluster.
                    let is_logged = matches!(error, EtcdError::Unreachable(_));
                    let error = SourceError::from(error);
                    return Some(Err(if is_logged { LoggedError(error).into() } else { error }));
                }
            }
            if self.mirror.revision() > 0
                && let Some(list) = self.changed()
            {
                return Some(Ok(list));
            }
        }
    }

    fn kind(&self) -> &'static str {
        "etcd"
    }

    fn description(&self) -> String {
        self.service.to_string()
    }
}

/// The records of a service.
#[derive(Debug)]
struct View {
    /// By instance.
    members: Members<String, Endpoint>,
    /// The instance of each slot.
    slots: BTreeMap<u32, String>,
}

impl View {
    fn new() -> Self {
        Self { members: Members::new(TrustConfig::of_lease(LEASE)), slots: BTreeMap::new() }
    }

    /// All records.
    fn set(&mut self, now: Timestamp, records: &BTreeMap<String, Record>) {
        self.slots = records.values().filter_map(slot).collect();
        let members: Vec<(String, Endpoint)> = records.values().filter_map(|record| self.backend(record)).collect();
        self.members.set_list(now, members);
    }

    fn apply(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Put(record) => {
                if let Some((instance, endpoint)) = self.backend(&record) {
                    self.members.put(now, instance, endpoint);
                } else if let Some((slot, instance)) = slot(&record) {
                    self.slots.insert(slot, instance);
                }
            }
            Event::Delete(key) => {
                if let Some(instance) = key.strip_prefix(BACKENDS) {
                    self.members.remove(now, &instance.to_owned());
                } else if let Some(slot) = key.strip_prefix(SLOTS).and_then(layout::number) {
                    self.slots.remove(&slot);
                }
            }
        }
    }

    /// The backend of a record, with its instance.
    fn backend(&self, record: &Record) -> Option<(String, Endpoint)> {
        let instance = record.key.strip_prefix(BACKENDS)?;
        match record::read(&record.value) {
            Ok(endpoint) => Some((instance.to_owned(), endpoint)),
            Err(error) => {
                let last = self.members.get(&instance.to_owned()).cloned();
                let used = if last.is_some() { "its last good record" } else { "nothing" };
                tracing::warn!(instance, %error, used, "record in the registry is none of a backend");
                last.map(|last| (instance.to_owned(), last))
            }
        }
    }

    /// The backends by instance, each with its slot.
    fn list(&self, needs_slots: bool) -> Vec<Endpoint> {
        // Of several slots of one instance the lowest is its own.
        let slots: BTreeMap<&str, u32> = self.slots.iter().rev().map(|(slot, of)| (&**of, *slot)).collect();
        let numbered = |(instance, endpoint): (&String, &Endpoint)| {
            let ordinal = slots.get(&**instance).copied();
            let mut endpoint = endpoint.clone();
            endpoint.ordinal = ordinal;
            if needs_slots && ordinal.is_none() && endpoint.readiness == Readiness::Ready {
                endpoint.readiness = Readiness::Starting;
            }
            endpoint
        };
        self.members.iter().map(numbered).collect()
    }
}

/// The slot of a record, and the instance that has it.
fn slot(record: &Record) -> Option<(u32, String)> {
    let slot = layout::number(record.key.strip_prefix(SLOTS)?)?;
    Some((slot, String::from_utf8(record.value.clone()).ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn record(key: &str, value: &str) -> Record {
        Record { key: key.to_owned(), value: value.into(), create_revision: 1, mod_revision: 1, lease: 0 }
    }

    fn backend(port: u16) -> Record {
        record(&format!("{BACKENDS}b{port}"), &format!(r#"{{"address": "10.0.0.1:{port}"}}"#))
    }

    fn view(records: impl IntoIterator<Item = Record>) -> View {
        let records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
        let mut view = View::new();
        view.set(at(0), &records);
        view
    }

    fn ports(view: &View) -> Vec<(u16, Option<u32>)> {
        view.list(false).iter().map(|endpoint| (endpoint.address.port().unwrap(), endpoint.ordinal)).collect()
    }

    #[test]
    fn slot_is_the_ordinal_of_its_backend() {
        let mut view = view([backend(1), backend(2), record("slots/0", "b2"), record("slots/7", "b3")]);
        assert_eq!(ports(&view), [(1, None), (2, Some(0))]);
        view.apply(at(1), Event::Put(record("slots/1", "b1")));
        view.apply(at(1), Event::Delete("slots/0".to_owned()));
        assert_eq!(ports(&view), [(1, Some(1)), (2, None)]);
    }

    #[test]
    fn backend_without_a_slot_starts_where_slots_are_needed() {
        let view = view([backend(1), backend(2), record("slots/3", "b2"), record("slots/1", "b2")]);
        let list = view.list(true);
        assert_eq!((list[0].readiness, list[1].readiness), (Readiness::Starting, Readiness::Ready));
        assert_eq!(list[1].ordinal, Some(1), "the lowest of its slots");
        assert_eq!(view.list(false)[0].readiness, Readiness::Ready);
    }

    #[test]
    fn wrong_record_leaves_the_others_and_the_last_good_value() {
        let mut view = view([backend(1), record("backends/b2", "{"), record("backends/b3", "")]);
        assert_eq!(ports(&view), [(1, None)]);
        view.apply(at(1), Event::Put(record("backends/b1", "not JSON")));
        assert_eq!(ports(&view), [(1, None)]);
    }

    #[test]
    fn backends_that_vanish_in_an_outage_stay_for_two_leases() {
        let mut view = view([backend(1), backend(2)]);
        for second in (1..60).step_by(2) {
            view.members.on_contact(at(second));
        }
        view.apply(at(60), Event::Delete("backends/b1".to_owned()));
        assert_eq!(ports(&view), [(2, None)], "etcd was there all the time");
        // Two minutes without a word, then the end of the lease.
        view.members.on_contact(at(180));
        view.apply(at(180), Event::Delete("backends/b2".to_owned()));
        assert_eq!(ports(&view), [(2, None)]);
        for second in (181..200).step_by(2) {
            view.members.on_contact(at(second));
        }
        view.members.handle_timeout(at(199));
        assert_eq!(ports(&view), [(2, None)]);
        view.members.handle_timeout(at(201));
        assert_eq!(ports(&view), []);
    }

    #[test]
    fn state_of_a_backend_is_that_of_its_record() {
        let view = view([record("backends/a", r#"{"address": "10.0.0.1:80", "state": "draining"}"#)]);
        assert_eq!(view.list(false)[0].readiness, Readiness::Draining);
    }
}

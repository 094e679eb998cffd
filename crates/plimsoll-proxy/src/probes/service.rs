//! The service behind a listener, as its answers to probes describe it.
//!
//! The control thread looks at the clusters every 20 ms, and publishes state and load. The thread of
//! the responder only reads what was published, so no lock of a cluster delays an answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll::client::{Cluster, ClusterOverview};
use plimsoll::probe::{ServerState, Subject, Waker};
use plimsoll_core::{LoadReport, Timestamp};

use super::load::{Look, Meter, together};
use super::state::{Backends, ServiceState};
use crate::inbound::Inbound;
use crate::phase::Life;

/// As often as a gate reads its process.
const EVERY: Duration = Duration::from_millis(20);

/// A cluster behind a listener, with its gate.
pub(crate) type Behind = (Cluster, Option<Arc<Inbound>>);

/// The published facts, for the thread of the responder. Clones are the same ones.
#[derive(Clone)]
pub(super) struct Facts(Arc<Published>);

struct Published {
    life: Life,
    /// The listener accepts connections.
    is_open: AtomicBool,
    /// The listener was removed.
    is_removed: AtomicBool,
    /// The state of the service, by its place in [`STATES`].
    service: AtomicU8,
    load: Mutex<Option<LoadReport>>,
}

const STATES: [ServerState; 3] = [ServerState::Starting, ServerState::Healthy, ServerState::LameDuck];

impl Subject for Facts {
    fn state(&self) -> ServerState {
        if self.0.life.is_leaving() || self.0.is_removed.load(Ordering::SeqCst) {
            ServerState::LameDuck
        } else if !self.0.is_open.load(Ordering::SeqCst) {
            ServerState::Starting
        } else {
            STATES[usize::from(self.0.service.load(Ordering::SeqCst)) % STATES.len()]
        }
    }

    fn load(&self) -> Option<LoadReport> {
        *self.0.load.lock()
    }
}

/// The service, for the control thread.
pub(super) struct Service {
    facts: Facts,
    looking: Mutex<Looking>,
}

struct Looking {
    origin: Instant,
    behind: Vec<Behind>,
    state: ServiceState,
    /// Of the clusters with a gate, by name.
    meters: BTreeMap<String, Meter>,
    waker: Option<Waker>,
}

impl Service {
    /// The service of a proxy with this life. Nothing is behind it yet.
    pub(super) fn new(life: Life) -> Arc<Self> {
        let published = Published {
            life,
            is_open: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            service: AtomicU8::new(0),
            load: Mutex::default(),
        };
        let looking = Looking {
            origin: Instant::now(),
            behind: Vec::new(),
            state: ServiceState::new(),
            meters: BTreeMap::new(),
            waker: None,
        };
        Arc::new(Self { facts: Facts(Arc::new(published)), looking: Mutex::new(looking) })
    }

    /// The facts, for a responder.
    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// The clusters that the listener's routes lead to.
    pub(super) fn set_behind(&self, behind: Vec<Behind>) {
        let mut looking = self.looking.lock();
        let name = |behind: &Behind| behind.1.is_some().then(|| behind.0.name().to_owned());
        let gated: Vec<String> = behind.iter().filter_map(name).collect();
        looking.meters.retain(|name, _| gated.contains(name));
        looking.behind = behind;
    }

    /// To be woken at changes.
    pub(super) fn set_waker(&self, waker: Waker) {
        self.looking.lock().waker = Some(waker);
    }

    /// The listener accepts from now on.
    pub(super) fn open(&self) {
        self.facts.0.is_open.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The listener was removed: a lame duck to its clients.
    pub(super) fn remove(&self) {
        self.facts.0.is_removed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Has the responder read the state.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.looking.lock().waker {
            waker.wake();
        }
    }

    /// Looks at the clusters, and publishes.
    pub(super) fn look(&self) {
        let looking = &mut *self.looking.lock();
        let now = Timestamp::from_origin(looking.origin.elapsed());
        let (state, load) = looking.look(now);
        *self.facts.0.load.lock() = load;
        let place = STATES.iter().position(|each| *each == state).and_then(|place| u8::try_from(place).ok());
        let place = place.unwrap_or_default();
        if self.facts.0.service.swap(place, Ordering::SeqCst) != place
            && let Some(waker) = &looking.waker
        {
            waker.wake();
        }
    }
}

impl Looking {
    fn look(&mut self, now: Timestamp) -> (ServerState, Option<LoadReport>) {
        let Self { behind, state, meters, .. } = self;
        let (mut sum, mut loads, mut seen) = (Backends::default(), Vec::new(), Vec::<&Inbound>::new());
        for (cluster, inbound) in behind.iter().filter_map(|(cluster, inbound)| Some((cluster, inbound.as_ref()?))) {
            let overview = cluster.overview(0);
            sum.iter_mut().zip(overview.backends.states).for_each(|(sum, count)| *sum += count);
            // Each request of a process counts once, by whichever of its clusters it comes.
            let is_seen = seen.iter().any(|other| other.has_process_of(inbound));
            seen.push(inbound);
            let look = look(&overview, inbound, is_seen);
            let meter = meters.entry(cluster.name().to_owned()).or_insert_with(|| Meter::new(now, look));
            loads.push(meter.on_look(now, look));
        }
        let state = if loads.is_empty() {
            state.on_unprotected_look(behind.is_empty() || behind.iter().any(|(cluster, _)| cluster.healthy() > 0))
        } else {
            state.on_look(now, &sum)
        };
        (state, together(loads))
    }
}

fn look(overview: &ClusterOverview, inbound: &Inbound, is_seen: bool) -> Look {
    let backends = &overview.backends;
    let (cpu, cpus) = inbound.cpu();
    let (at_process, latency) = inbound.in_flight();
    let waiting = u32::try_from(overview.waiting).unwrap_or(u32::MAX);
    Look {
        requests: backends.requests,
        failures: backends.failures,
        active: backends.active,
        in_flight: if is_seen { waiting } else { waiting.saturating_add(at_process) },
        latency,
        shed: inbound.shed(),
        cpu,
        cpus,
    }
}

/// Looks regularly, until the service is dropped.
pub(super) async fn watch(service: Weak<Service>) {
    while let Some(service) = service.upgrade() {
        service.look();
        drop(service);
        tokio::time::sleep(EVERY).await;
    }
}

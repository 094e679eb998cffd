//! The gate of a process that is not ours: the machine that decides, and what it has to be told.
//!
//! One for all threads, and for all clusters that name the same process in the same way: what can be used up is the CPU of the
//! whole process. Each request passes it twice, under a lock that is held for some hundred nanoseconds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_core::admit::{self, Arrival, Entry, Mode, Observed, Pressure, RankedConfig, Shed};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::Instant;

use super::cpus;
use super::source::Look;
use crate::config;

/// What a gate makes of a request.
pub(super) struct Asked {
    pub(super) at: Timestamp,
    /// None for one that is turned away.
    pub(super) entry: Option<Entry>,
    /// Why it is turned away, or would be.
    pub(super) shed: Option<Shed>,
    /// What it is expected to cost, in CPU-seconds.
    pub(super) expected: f64,
    pub(super) pressure: Pressure,
}

/// The gate of a process.
pub(super) struct Gate {
    origin: Instant,
    machine: Mutex<Machine>,
    /// Requests that are at the process, or on their way.
    pub(super) in_flight: AtomicU32,
    is_seen: AtomicBool,
    /// It has been seen at some time: until then nothing is known by which to turn anything away.
    was_seen: AtomicBool,
}

struct Machine {
    gate: admit::Gate,
    observed: Observed,
    /// CPUs.
    capacity: f64,
    rng: Pcg64Mcg,
}

impl Gate {
    pub(super) fn new(inbound: &config::Inbound) -> Self {
        let now = Timestamp::ZERO;
        let mode = if inbound.dry_run { Mode::DryRun } else { Mode::Protect };
        // Until the process is seen; nothing is decided by it before.
        let capacity = inbound.cpus.map_or(cpus::LEAST, |cpus| cpus.get());
        let gate = admit::Gate::new(now, with_capacity(capacity), mode, admit::Seen::default());
        // Nobody gains from knowing who is in luck; proxies of one fleet had better not agree.
        let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()));
        Self {
            origin: Instant::now(),
            machine: Mutex::new(Machine { gate, observed: Observed::new(now, capacity), capacity, rng }),
            in_flight: AtomicU32::new(0),
            is_seen: AtomicBool::new(false),
            was_seen: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// Whether a request is let in, and what is said of it; see [`admit::Gate::ask`]. All are until the process has been seen.
    pub(super) fn ask(&self, arrival: &Arrival) -> Asked {
        let at = self.now();
        let was_seen = self.was_seen();
        let mut machine = self.machine.lock();
        let Machine { gate, rng, .. } = &mut *machine;
        let (expected, pressure) = (gate.expected(arrival.kind), gate.pressure(arrival.criticality));
        let (entry, shed) = if was_seen { gate.ask(at, arrival, rng) } else { (None, None) };
        Asked { at, entry, shed, expected, pressure }
    }

    /// A request is in flight at the process.
    pub(super) fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is over, which was let in if it was asked about.
    pub(super) fn ended(&self, entry: Option<Entry>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(entry) = entry {
            let now = self.now();
            self.machine.lock().gate.ended_unmeasured(now, entry);
        }
    }

    /// What is seen of the process now; `None` if it cannot be seen.
    pub(super) fn see(&self, look: Option<Look>) {
        if let Some(Look { outside, is_first, cpus }) = look {
            let now = self.now();
            let in_flight = self.in_flight.load(Ordering::Relaxed);
            let mut machine = self.machine.lock();
            let Machine { gate, observed, capacity, .. } = &mut *machine;
            if let Some(cpus) = cpus {
                gate.resize(now, with_capacity(cpus));
                observed.resize(cpus);
                *capacity = cpus;
            }
            if is_first {
                gate.see_again(now, observed.begin(now, outside));
            } else {
                gate.see(now, observed.sample(now, outside, in_flight), 0.0);
            }
            drop(machine);
            self.was_seen.store(true, Ordering::Relaxed);
        }
        self.is_seen.store(look.is_some(), Ordering::Relaxed);
    }

    /// Whether it has ever been seen.
    pub(super) fn was_seen(&self) -> bool {
        self.was_seen.load(Ordering::Relaxed)
    }

    /// CPUs that the process can use.
    pub(super) fn capacity(&self) -> f64 {
        self.machine.lock().capacity
    }

    /// CPUs that the process uses; `None` while it cannot be seen.
    pub(super) fn cpus(&self) -> Option<f64> {
        self.is_seen.load(Ordering::Relaxed).then(|| self.machine.lock().gate.signals().cpus)
    }
}

fn with_capacity(cpus: f64) -> RankedConfig {
    RankedConfig::new(cpus.max(cpus::LEAST)).expect("a hundredth of a CPU or more")
}

//! The gate of a process that is not ours: the machine that decides, and what it has to be told.
//!
//! One for all threads, and for all clusters that name the same process in the same way: what can be used up is the CPU of the
//! whole process. Each request passes it twice, under a lock that is held for some hundred nanoseconds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use plimsoll::system::{LEAST_CPUS, ProcessSample};
use plimsoll_core::Timestamp;
use plimsoll_core::admit::{
    self, AdmissionConfig, Arrival, Entry, Flow, Mode, Pressure, ProcessObserver, Shed, Standing,
};
use plimsoll_core::signal::{Gauges, Loads, ResourceConfig, ResourceWatch};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::Instant;

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
    /// CPUs that the process can use.
    pub(super) capacity: f64,
    /// The customer's hard limit and use of it, of a request that is shed for its quota.
    pub(super) standing: Option<Standing>,
}

/// What is known of what a request used of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Use {
    /// Nothing: it never got there.
    None,
    Unknown,
    /// Nobody knows, and it may go on: it was given up before there was an answer.
    Unheard,
    /// CPU-seconds, as the process says.
    Said(f64),
}

/// The gate of a process.
pub(super) struct Gate {
    origin: Instant,
    machine: Mutex<Machine>,
    /// Requests that were ever sent to the process.
    sent: AtomicU64,
    /// Those of them that are there, or on their way, and that it has not begun to answer.
    pub(super) in_flight: AtomicU32,
    /// Those that were given up before that.
    given_up: AtomicU64,
    is_seen: AtomicBool,
    /// It has been seen at some time: until then nothing is known by which to turn anything away.
    was_seen: AtomicBool,
    watched: ResourceConfig,
}

struct Machine {
    gate: admit::Gate,
    observed: ProcessObserver,
    scarce: ResourceWatch,
    /// At the last look at it.
    gauges: Gauges,
    /// CPUs.
    capacity: f64,
    rng: Pcg64Mcg,
}

impl Gate {
    pub(super) fn new(inbound: &config::Inbound) -> Self {
        let now = Timestamp::ZERO;
        let mode = if inbound.dry_run { Mode::DryRun } else { Mode::Protect };
        // Until the process is seen; nothing is decided by it before.
        let capacity = inbound.cpus.map_or(LEAST_CPUS, |cpus| cpus.get());
        let mut config = with_capacity(capacity);
        config.outlook = inbound.outlook;
        let gate = admit::Gate::new(now, config, mode, admit::Observation::default());
        let watched = inbound.scarce;
        let (observed, scarce) = (ProcessObserver::new(now, capacity), ResourceWatch::new(&watched));
        // Nobody gains from knowing who is in luck; proxies of one fleet had better not agree.
        let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()));
        Self {
            origin: Instant::now(),
            machine: Mutex::new(Machine { gate, observed, scarce, gauges: Gauges::default(), capacity, rng }),
            sent: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            given_up: AtomicU64::new(0),
            is_seen: AtomicBool::new(false),
            was_seen: AtomicBool::new(false),
            watched,
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
        let Machine { gate, rng, capacity, .. } = &mut *machine;
        let (expected, pressure) = (gate.expected(arrival.kind), gate.pressure(arrival.criticality));
        let (entry, shed) = if was_seen { gate.ask(at, arrival, rng) } else { (None, None) };
        let is_over = shed.is_some_and(|shed| shed.reason == admit::Reason::Quota);
        let standing = if is_over { gate.standing(at, arrival.kind.customer, arrival.quota) } else { None };
        Asked { at, entry, shed, expected, pressure, capacity: *capacity, standing }
    }

    /// A request is in flight at the process.
    pub(super) fn began(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// One is not any more.
    pub(super) fn left(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// One is not any more, though it was not answered.
    pub(super) fn given_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        self.left();
    }

    /// What goes to the process.
    fn flow(&self) -> Flow {
        Flow {
            sent: self.sent.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            abandoned: self.given_up.load(Ordering::Relaxed),
        }
    }

    /// A request is over, which was let in if it was asked about.
    pub(super) fn ended(&self, entry: Option<Entry>, used: Use) {
        let Some(entry) = entry else { return };
        let now = self.now();
        let gate = &mut self.machine.lock().gate;
        match used {
            Use::None => gate.end_unsent(now, entry),
            Use::Unknown => gate.end_unmeasured(now, entry),
            Use::Unheard => gate.end_abandoned(now, entry),
            Use::Said(seconds) => gate.end_reported(now, entry, seconds),
        }
    }

    /// The last look at the process; `None` if it cannot be seen.
    pub(super) fn see(&self, sample: Option<ProcessSample>) {
        if let Some(ProcessSample { outside, is_first, cpus, readings }) = sample {
            let now = self.now();
            let flow = self.flow();
            let mut machine = self.machine.lock();
            let Machine { gate, observed, scarce, gauges, capacity, .. } = &mut *machine;
            if let Some(cpus) = cpus {
                gate.resize(now, with_capacity(cpus));
                observed.resize(cpus);
                *capacity = cpus;
            }
            if is_first {
                gate.resume(now, observed.begin(now, outside));
                *scarce = ResourceWatch::new(&self.watched);
            }
            if let Some(readings) = readings {
                *gauges = scarce.sample(now, &readings);
            }
            if !is_first {
                gate.observe(now, observed.sample(now, outside, flow), gauges);
            }
            drop(machine);
            self.was_seen.store(true, Ordering::Relaxed);
        }
        self.is_seen.store(sample.is_some(), Ordering::Relaxed);
    }

    /// Whether it has ever been seen.
    pub(super) fn was_seen(&self) -> bool {
        self.was_seen.load(Ordering::Relaxed)
    }

    /// CPUs that the process can use.
    pub(super) fn capacity(&self) -> f64 {
        self.machine.lock().capacity
    }

    /// How loaded the process is by each signal, and which one has requests turned away; nothing of that while it cannot be seen.
    pub(super) fn loads(&self) -> Loads {
        let now = self.now();
        if self.is_seen.load(Ordering::Relaxed) { self.machine.lock().gate.loads(now) } else { Loads::default() }
    }

    /// CPUs that the process uses; `None` while it cannot be seen.
    pub(super) fn cpus(&self) -> Option<f64> {
        self.is_seen.load(Ordering::Relaxed).then(|| self.machine.lock().gate.signals().cpus)
    }
}

fn with_capacity(cpus: f64) -> AdmissionConfig {
    AdmissionConfig::new(cpus.max(LEAST_CPUS)).expect("a hundredth of a CPU or more")
}

//! Admission: the core's gate behind a lock, with measurements, counts and the shedding report.
//!
//! A [`Gate`] decides for one process, because the CPU of the whole process is shared. Threads ask
//! it under a lock that is held for some hundred nanoseconds, twice for each request. Its
//! measurements come from [`Signals`]: of this process ([`ServerLayer`](super::ServerLayer)), or of
//! another one ([`ForeignProcess`], for the proxy as a sidecar).
//!
//! An [`Admission`] asks the gate and accounts for the decisions. Several may share a gate, such as
//! clusters whose backends are ports of one process.
//!
//! ```text
//! facts about a request ──▶ Admission::ask ──▶ Gate ── lock ──▶ plimsoll_core::admit::Gate::ask
//!                             │                  ▲
//!                  counts, shedding report     Signals: this process, or another one
//! ```

mod counts;
mod foreign;
mod own;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::admit::{
    self, AdmissionConfig, Arrival, Entry, GateVerdict, Mode, Observation, Pressure, Shed, Standing,
};
use plimsoll_core::quota::{Limiter, Refused};
use plimsoll_core::shedding::{self, KeyedName, SheddingReport, SheddingReportConfig, Summary};
use plimsoll_core::signal::Loads;
use plimsoll_core::{Criticality, Rejection, Speed, Timestamp};
use plimsoll_system::MIN_CPUS;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::coalescing;
use crate::clock::Clock;

pub use counts::{DecisionCounter, DecisionCounts};
pub use foreign::{ForeignProcess, Permit};
pub(super) use own::{Gauge, OwnProcess};
/// A measurement of a [`ForeignProcess`].
pub use plimsoll_system::ProcessSample;

/// The measurements that a gate decides by.
pub trait Signals {
    /// Reads slow measurements that are due. The caller holds no lock.
    fn refresh(&self, _now: Timestamp) {}

    /// Passes measurements that are due to the gate, whose lock the caller holds.
    fn update(&self, _now: Timestamp, _gate: &mut admit::Gate) {}

    /// Whether anything was ever measured. Until then the gate admits every request.
    fn is_known(&self) -> bool {
        true
    }

    /// Whether the measurements are of now.
    fn is_current(&self) -> bool {
        true
    }
}

/// The gate of a process, for all of its threads. CPUs and costs are those of the reference core
/// ([`Speed`]): they compare between machines.
#[derive(Debug)]
pub struct Gate<S> {
    clock: Clock,
    speed: Speed,
    signals: S,
    machine: Mutex<Machine>,
    /// A report on fleet limits is due earlier than planned.
    report_is_due: Notify,
}

/// The machine that decides, and its random numbers.
#[derive(Debug)]
struct Machine {
    gate: admit::Gate,
    rng: Pcg64Mcg,
}

/// Asks a gate about requests, and accounts for its decisions.
#[derive(Debug)]
pub struct Admission<S> {
    gate: Arc<Gate<S>>,
    is_dry_run: bool,
    by_criticality: [DecisionCounter; Criticality::ALL.len()],
    /// Apart from the gate's lock: a summary takes long, and delays no decision.
    shedding: Mutex<SheddingReport>,
}

/// The facts about a request that asks for admission.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The facts that the gate decides by.
    pub arrival: Arrival,
    /// Whether the deadline had passed on arrival.
    pub is_expired: bool,
    /// The name of its customer, for limits over the fleet. Empty without a customer.
    pub name: &'a [u8],
    /// The same as text, for the shedding report.
    pub customer: &'a dyn fmt::Display,
    /// The requested route, for the shedding report.
    pub route: &'a dyn fmt::Display,
}

/// A gate's assessment of a request, admitted or not.
#[derive(Clone, Copy, Debug)]
pub struct Assessment {
    /// The reason for which the request is shed, or would be without the dry run.
    pub shed: Option<Rejection>,
    /// Whether the gate only counts the requests that it would shed.
    pub is_dry_run: bool,
    /// The expected cost, in reference CPU-seconds.
    pub expected: f64,
    /// How close requests as critical as this one were to being shed.
    pub pressure: Pressure,
    /// The hard limit and the use of the customer, for a request that is over its quota.
    pub standing: Option<Standing>,
    /// The refusal by a limit over the fleet, if there was one.
    pub fleet: Option<Refused>,
}

impl<S: Signals> Gate<S> {
    fn new(clock: Clock, config: AdmissionConfig, mode: Mode, seen: Observation, signals: S) -> Arc<Self> {
        // Servers of one fleet do not draw alike.
        let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()));
        let gate = admit::Gate::new(clock.now(), config, mode, seen);
        Arc::new(Self {
            clock,
            speed: config.speed,
            signals,
            machine: Mutex::new(Machine { gate, rng }),
            report_is_due: Notify::new(),
        })
    }

    /// Draws from this seed from now on.
    #[cfg(feature = "test-util")]
    pub(super) fn set_seed(&self, seed: u64) {
        self.lock().rng = Pcg64Mcg::seed_from_u64(seed);
    }

    /// The time, by the clock of the gate.
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Has limits over the fleet enforced from now on. Those that are known already stay.
    pub(super) fn enforce_fleet_limits(&self) {
        let (now, gate) = (self.now(), &mut self.lock().gate);
        if gate.fleet_limits().is_none() {
            gate.set_fleet_limits(Limiter::new(now));
        }
    }

    /// Has no limits over a fleet from now on.
    pub fn end_fleet_limits(&self) {
        let (now, gate) = (self.now(), &mut self.lock().gate);
        if gate.fleet_limits().is_some() {
            // A client may still hold its handle.
            gate.set_fleet_limits(Limiter::new(now));
        }
    }

    pub(super) fn with_limiter(&self, call: &mut dyn FnMut(Timestamp, &mut Limiter)) {
        let mut machine = self.lock();
        let now = self.now();
        if let Some(limiter) = machine.gate.fleet_limits() {
            call(now, limiter);
        }
    }

    pub(super) fn report_is_due(&self) -> &Notify {
        &self.report_is_due
    }

    /// The instant of a time of the gate.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        self.clock.instant(at)
    }

    /// How close requests of this criticality are to being shed.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        self.lock().gate.pressure(criticality)
    }

    /// The speed of its machine.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The reference CPUs that the process may use.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.capacity_of(&self.lock().gate)
    }

    fn capacity_of(&self, gate: &admit::Gate) -> f64 {
        self.speed.reference(gate.capacity())
    }

    /// The reference CPUs that the process uses; `None` while it cannot be measured.
    #[must_use]
    pub fn cpus(&self) -> Option<f64> {
        self.signals.is_current().then(|| self.speed.reference(self.lock().gate.signals().cpus))
    }

    /// The load by each signal, and the signal that causes shedding; none while the process cannot
    /// be measured.
    #[must_use]
    pub fn loads(&self) -> Loads {
        let now = self.now();
        if self.signals.is_current() { self.lock().gate.loads(now) } else { Loads::default() }
    }
}

impl<S: Signals> Admission<S> {
    /// Counts and a report of its own, for requests to `gate`.
    #[must_use]
    pub fn new(gate: Arc<Gate<S>>, mode: Mode) -> Self {
        let shedding = SheddingReport::new(gate.now(), SheddingReportConfig::default());
        Self {
            gate,
            is_dry_run: mode == Mode::DryRun,
            by_criticality: Default::default(),
            shedding: Mutex::new(shedding),
        }
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate<S>> {
        &self.gate
    }

    /// Decides about a request: the answer if it is shed, else its entry. There is no entry while
    /// the gate knows nothing of its process.
    ///
    /// # Errors
    /// The answer to a request that is shed.
    pub fn ask(&self, facts: &Facts<'_>) -> (Result<Option<Entry>, Shed>, Assessment) {
        let arrival = &facts.arrival;
        let now = self.gate.now();
        let signals = &self.gate.signals;
        signals.refresh(now);
        let mut machine = self.gate.lock();
        let Machine { gate, rng } = &mut *machine;
        signals.update(now, gate);
        let (expected, capacity) = (gate.expected(arrival.kind), self.gate.capacity_of(gate));
        let pressure = gate.pressure(arrival.criticality);
        let verdict = signals.is_known().then(|| gate.ask_for(now, facts.name, arrival, rng));
        let (entry, shed) = verdict.map_or((None, None), GateVerdict::into_parts);
        let fleet = gate.refused_by_fleet().copied();
        let is_hurried = gate.fleet_limits().is_some_and(Limiter::take_hurry);
        let is_over = fleet.is_none() && shed.is_some_and(|shed| shed.reason == Rejection::Quota);
        let standing = if is_over { gate.standing(now, arrival.kind.customer, arrival.quota) } else { None };
        drop(machine);
        if is_hurried {
            self.gate.report_is_due.notify_one();
        }
        let reason = shed.map(|shed| shed.reason);
        let decision = match (entry, shed) {
            (None, Some(shed)) => {
                coalescing::note_shed(&shed);
                Err(shed)
            }
            (entry, _) => Ok(entry),
        };
        self.account(now, facts, expected, capacity, reason);
        self.by_criticality[arrival.criticality.rank()].count(decision.is_ok(), reason);
        let is_dry_run = self.is_dry_run;
        (decision, Assessment { shed: reason, is_dry_run, expected, pressure, standing, fleet })
    }

    /// Accounts for a request that is shed without a question to the gate.
    pub fn shed_unasked(&self, facts: &Facts<'_>, reason: Rejection) {
        let (expected, capacity) = {
            let gate = &self.gate.lock().gate;
            (gate.expected(facts.arrival.kind), self.gate.capacity_of(gate))
        };
        self.account(self.gate.now(), facts, expected, capacity, Some(reason));
        self.by_criticality[facts.arrival.criticality.rank()].count(false, Some(reason));
    }

    /// Accounts for a request that was admitted, and then lost for another reason.
    pub fn lost(&self, criticality: Criticality, assessment: Assessment, reason: Rejection) {
        self.shedding.lock().on_lost(self.gate.now(), criticality, assessment.expected, reason);
    }

    fn account(&self, now: Timestamp, facts: &Facts<'_>, cost: f64, capacity: f64, shed: Option<Rejection>) {
        let &Facts { arrival: Arrival { criticality, kind, quota, is_retry, .. }, is_expired, customer, route, .. } =
            facts;
        self.shedding.lock().on_decision(
            now,
            &shedding::Decision {
                criticality,
                cost,
                is_retry,
                shed,
                is_expired,
                customer: KeyedName { key: kind.customer, name: customer },
                quota,
                route: KeyedName { key: kind.route, name: route },
                capacity,
            },
        );
    }

    /// Admitted and shed requests since the start, in the order of [`Criticality::ALL`].
    #[must_use]
    pub fn counts(&self) -> [DecisionCounts; Criticality::ALL.len()] {
        self.by_criticality.each_ref().map(DecisionCounter::read)
    }

    /// The shedding report.
    #[must_use]
    pub fn shedding_report(&self) -> Summary {
        let mut summary = self.shedding.lock().summary(self.gate.now());
        self.gate.with_limiter(&mut |now, limiter| {
            for customer in &mut summary.customers {
                customer.fleet = limiter.standing(now, customer.key);
                customer.fleet_group = limiter.group_standing(now, customer.key);
            }
        });
        summary
    }
}

/// The settings of a gate for this many CPUs, at least [`MIN_CPUS`].
fn with_capacity(cpus: f64) -> AdmissionConfig {
    AdmissionConfig::new(cpus.max(MIN_CPUS)).expect("a finite number of CPUs, above zero")
}

//! Protects the process behind a cluster from overload: the proxy as its sidecar.
//!
//! ```text
//!       forward ──▶ Inbound::ask ──▶ Gate ──▶ admitted: a Permit until its response has ended
//!                                     ▲
//!   watch: every 20 ms ──▶ ProcessReader: CPU in use and waited for, of a process or control group
//! ```
//!
//! The library decides ([`plimsoll::server::admission`]), as in a server that protects itself. The
//! difference is the measurement: the process is seen from outside, so the CPU of a single request
//! is unknown. The core estimates it, unless the process states it in the `request_cost` of its
//! load reports.
//!
//! Fail open: every request is admitted until the process is found for the first time. If it is
//! lost, the gate goes on with the last known costs and capacity.

mod customers;
mod fleet;
mod watch;

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::server::admission::{Admission, Assessment, Facts, ForeignProcess, Gate, Permit};
use plimsoll::tls::TlsConfig;
use plimsoll_core::admit::{Mode, Shed};
use plimsoll_core::shedding::Summary;
use plimsoll_core::signal::Loads;
use plimsoll_core::{Criticality, Rejection, Speed};
use plimsoll_system::{MAX_OPEN_FILES, MachineSpeed};

use self::customers::Customers;
pub(crate) use self::customers::names as customer_names;
use self::fleet::FleetClient;
use crate::config;

/// Files that the reader of one process keeps open.
pub(crate) const FILES: u64 = MAX_OPEN_FILES as u64;

/// Decides which requests of a cluster are admitted.
pub(crate) struct Inbound {
    config: config::Inbound,
    /// `None` without a setting.
    speed: Option<MachineSpeed>,
    /// Counts and report are the cluster's own, though several clusters share a gate.
    admission: Admission<ForeignProcess>,
    customers: Customers,
    hasher: RandomState,
    /// The same for all clusters of a gate.
    fleet: Arc<FleetClient>,
}

/// The decisions about a cluster's requests, and the measurements of its process.
#[derive(Clone, Debug)]
pub struct InboundView {
    /// Requests by criticality and decision. In a dry run, a request that would have been shed
    /// counts as both.
    pub decisions: Vec<(Criticality, &'static str, u64)>,
    /// Requests by customer and decision, for customers that the file names. All others are one.
    pub customers: Vec<(Box<str>, &'static str, u64)>,
    /// Reference CPUs that the process uses; `None` while it cannot be measured.
    pub cpus: Option<f64>,
    /// Reference CPUs that it can use.
    pub capacity: f64,
    /// The speed of the machine; `None` without a setting, which counts as 1.
    pub speed: Option<MachineSpeed>,
    /// The load of the process by each signal, and the signal that causes shedding.
    pub loads: Loads,
    /// Whether the gate only counts the requests that it would shed.
    pub dry_run: bool,
    /// The shedding report.
    pub shedding: Summary,
}

impl Inbound {
    /// The gate of a cluster. It shares that of another one for the same process. Call it within a
    /// runtime, on which the process is watched.
    pub(crate) fn new<'o>(config: &config::Inbound, mut others: impl Iterator<Item = &'o Arc<Self>>) -> Arc<Self> {
        if let Some(other) = others.find(|other| other.config == *config) {
            return Arc::new(Self::before(
                Arc::clone(other.gate()),
                config,
                other.speed,
                other.hasher.clone(),
                Arc::clone(&other.fleet),
            ));
        }
        let inbound = Self::unwatched(config);
        if let Some(speed) = inbound.speed {
            let process = config.process();
            tracing::info!(%process, %speed, "costs and limits are in reference CPU-seconds");
        }
        tokio::spawn(watch::watch(Arc::downgrade(inbound.gate()), config.clone()));
        Arc::new(inbound)
    }

    fn unwatched(config: &config::Inbound) -> Self {
        let machine = config.machine_speed();
        let speed = machine.map_or(Speed::REFERENCE, |machine| machine.speed());
        let gate = Gate::of_process(mode(config), config.outlook, speed, config.cpus, config.scarce());
        let hasher = RandomState::new();
        let fleet = FleetClient::new(&gate, &hasher);
        Self::before(gate, config, machine, hasher, fleet)
    }

    /// `hasher` is the same for all clusters of a gate, so that a customer is one for all of them.
    fn before(
        gate: Arc<Gate<ForeignProcess>>,
        config: &config::Inbound,
        speed: Option<MachineSpeed>,
        hasher: RandomState,
        fleet: Arc<FleetClient>,
    ) -> Self {
        let admission = Admission::new(gate, mode(config));
        Self { config: config.clone(), speed, admission, customers: Customers::default(), hasher, fleet }
    }

    fn gate(&self) -> &Arc<Gate<ForeignProcess>> {
        self.admission.gate()
    }

    /// Gives these customers counters of their own from now on.
    pub(crate) fn set_customers(&self, names: &[&str]) {
        self.customers.set_names(names, |name| self.number_of(name));
    }

    /// Shares limits over a fleet by this server, or no longer. Call it within a runtime.
    pub(crate) fn set_quota(&self, quota: Option<&config::Quota>, tls: Option<&TlsConfig>) {
        self.fleet.set(quota, tls);
    }

    /// Its settings.
    pub(crate) fn config(&self) -> &config::Inbound {
        &self.config
    }

    /// The key of a customer or route.
    pub(crate) fn number_of(&self, name: impl Hash) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Decides about a request, and assesses it.
    pub(crate) fn ask(&self, facts: &Facts<'_>) -> (Result<Box<Permit>, Shed>, Assessment) {
        let (entry, assessment) = self.admission.ask(facts);
        self.customers.count(facts.arrival.kind.customer, entry.is_ok(), assessment.shed);
        (entry.map(|entry| Box::new(self.gate().permit(entry))), assessment)
    }

    /// An admitted request got no backend.
    pub(crate) fn lost(&self, criticality: Criticality, assessment: Assessment, reason: Rejection) {
        self.admission.lost(criticality, assessment, reason);
    }

    /// Admits a request without a decision. It counts as in flight at the process all the same.
    pub(crate) fn admit_exempt(&self) -> Box<Permit> {
        Box::new(self.gate().permit(None))
    }

    /// CPU time of the process so far, and the CPUs of this machine that it may use. No time while
    /// the process is not found.
    pub(crate) fn cpu(&self) -> (Option<Duration>, f64) {
        let gate = self.gate();
        (gate.cpu_time(), gate.capacity() / gate.speed().as_f64())
    }

    /// Whether it is another cluster of the same process.
    pub(crate) fn has_process_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.gate(), other.gate())
    }

    /// Requests in flight at the process, and the latency to expect with as many.
    pub(crate) fn in_flight(&self) -> (u32, Option<Duration>) {
        self.gate().in_flight()
    }

    /// Requests that were shed, those of a dry run left out.
    pub(crate) fn shed(&self) -> u64 {
        let shed = || self.admission.counts().iter().flat_map(|decided| decided.shed).sum();
        if self.config.dry_run { 0 } else { shed() }
    }

    /// The state for metrics and the admin API.
    pub(crate) fn view(&self) -> InboundView {
        let by_criticality = Criticality::ALL.into_iter().zip(self.admission.counts());
        let decisions = by_criticality.flat_map(|(criticality, decided)| {
            decided.by_name().map(move |(decision, count)| (criticality, decision, count))
        });
        let gate = self.gate();
        InboundView {
            decisions: decisions.collect(),
            customers: self.customers.counts(),
            cpus: gate.cpus(),
            capacity: gate.capacity(),
            speed: self.speed,
            loads: gate.loads(),
            dry_run: self.config.dry_run,
            shedding: self.admission.shedding_report(),
        }
    }
}

fn mode(config: &config::Inbound) -> Mode {
    if config.dry_run { Mode::DryRun } else { Mode::Protect }
}

#[cfg(test)]
mod tests;

//! Protects the process behind a cluster from more than it can do: the proxy as its sidecar.
//!
//! ```text
//!              forward ──▶ Inbound::ask ──▶ Gate ──▶ let in, with a Passage that ends when the answer has
//!                                            ▲
//!   watch: every 20 ms ──▶ source ──▶ process, or a control group: CPU used and waited for
//! ```
//!
//! The decision is the core's ([`plimsoll_core::admit::Gate`]), as in a server that protects itself with the library; what
//! differs is that the process is seen from outside, so that nobody knows which request used how much. The core fits that; or the
//! process says it itself, in the `request_cost` of its load reports.
//!
//! Fail open: until the process was seen for the first time, all requests are let in. When it is no longer to be seen, the gate
//! goes on with what it knows of costs and capacity.

mod customers;
mod gate;
mod watch;

use std::fmt::Display;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;
use plimsoll::server::coalescing;
use plimsoll::system;
use plimsoll_core::Criticality;
use plimsoll_core::admit::{Arrival, Entry, Pressure, Standing};
use plimsoll_core::shedding::{self, KeyedName, SheddingReport, SheddingReportConfig, Summary};
use plimsoll_core::signal::Loads;
use plimsoll_wire::orca;
use plimsoll_wire::shed::{ShedAnswer, ShedReason};

use self::customers::Customers;
pub(crate) use self::customers::names as customer_names;
use self::gate::{Asked, Gate, Use};
use crate::config;

/// Files by which one process is watched.
pub(crate) const FILES: u64 = system::MAX_OPEN_FILES as u64;

/// Decides which requests of a cluster are let in.
pub(crate) struct Inbound {
    config: config::Inbound,
    gate: Arc<Gate>,
    decided: [Decided; Criticality::ALL.len()],
    customers: Customers,
    /// What it means; each cluster's own, though several share a gate.
    shedding: Mutex<SheddingReport>,
    hasher: RandomState,
}

/// What became of the requests of one criticality that asked.
#[derive(Debug, Default)]
struct Decided {
    admitted: AtomicU64,
    /// In the order of [`REASONS`].
    turned_away: [AtomicU64; REASONS.len()],
}

/// Why requests are turned away.
pub(crate) const REASONS: [ShedReason; 4] =
    [ShedReason::Overloaded, ShedReason::OverloadedNoRetry, ShedReason::Deadline, ShedReason::Quota];
/// What those that are not count as.
const ADMITTED: &str = "admitted";

/// What became of a cluster's requests at its gate, and what is seen of its process.
#[derive(Clone, Debug)]
pub struct InboundView {
    /// How many were decided upon, by criticality and decision. In a dry run one that would have been turned away is in both.
    pub decisions: Vec<(Criticality, &'static str, u64)>,
    /// The same by customer, for those that the file names; all others are one.
    pub customers: Vec<(Box<str>, &'static str, u64)>,
    /// CPUs that the process uses; `None` while it cannot be seen.
    pub cpus: Option<f64>,
    /// CPUs that it can use.
    pub capacity: f64,
    /// How loaded the process is by each signal, and which one has requests turned away.
    pub loads: Loads,
    /// It is only counted who would be turned away.
    pub dry_run: bool,
    /// What all that means.
    pub shedding: Summary,
}

/// By what names a request's customer and route are remembered.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) customer: &'a dyn Display,
    pub(crate) route: &'a dyn Display,
}

/// What is said of a request at a gate, whatever becomes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    /// Why it is turned away, or would be if this were no dry run.
    pub(crate) shed: Option<ShedReason>,
    pub(crate) is_dry_run: bool,
    /// What it is expected to cost, in CPU-seconds.
    pub(crate) expected: f64,
    /// How near requests as critical as this one were to being turned away.
    pub(crate) pressure: Pressure,
    /// The customer's hard limit and use of it, of a request that is shed for its quota.
    pub(crate) standing: Option<Standing>,
}

/// A request that was let in, until this is dropped.
pub(crate) struct Passage {
    gate: Arc<Gate>,
    /// None for one that was not asked about.
    entry: Option<Entry>,
    /// What is known of what it used, so far.
    used: Use,
    is_in_flight: bool,
}

impl Passage {
    /// The request is about to go to the process.
    pub(crate) fn sent(&mut self) {
        self.used = Use::Unknown;
        if !std::mem::replace(&mut self.is_in_flight, true) {
            self.gate.began();
        }
    }

    /// The process waits for a CPU with it no longer, as far as can be seen: the answer has begun, which may last as long as its reader
    /// takes or as there are events, or there will be none.
    fn leave(&mut self) {
        if std::mem::take(&mut self.is_in_flight) {
            self.gate.left();
        }
    }

    /// It turned out that nothing of the request got there.
    pub(crate) fn nothing_sent(&mut self) {
        self.used = Use::None;
    }

    /// The head of the answer, or its trailers, have come: what they say of its cost is what it did cost. The last word counts, which
    /// is the one that knows of the whole.
    pub(crate) fn hear(&mut self, headers: &HeaderMap) {
        self.leave();
        self.used = orca::request_cpu(headers).map_or(self.used, Use::Said);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.used == Use::Unknown && std::mem::take(&mut self.is_in_flight) {
            self.used = Use::Unheard;
            self.gate.given_up();
        }
        self.leave();
        self.gate.ended(self.entry.take(), self.used);
    }
}

impl Inbound {
    /// The gate of a cluster; it shares what `others` have of the same process. To be called within a runtime, on which the
    /// process is watched.
    pub(crate) fn new<'o>(config: &config::Inbound, mut others: impl Iterator<Item = &'o Arc<Self>>) -> Arc<Self> {
        if let Some(other) = others.find(|other| other.config == *config) {
            return Arc::new(Self::before(Arc::clone(&other.gate), config, other.hasher.clone()));
        }
        let gate = Arc::new(Gate::new(config));
        tokio::spawn(watch::watch(Arc::downgrade(&gate), config.clone()));
        Arc::new(Self::before(gate, config, RandomState::new()))
    }

    /// `hasher` is the same for all of one gate: a customer is one by whichever cluster it comes.
    fn before(gate: Arc<Gate>, config: &config::Inbound, hasher: RandomState) -> Self {
        let shedding = SheddingReport::new(gate.now(), SheddingReportConfig::default());
        Self {
            config: config.clone(),
            gate,
            decided: Default::default(),
            customers: Customers::default(),
            shedding: Mutex::new(shedding),
            hasher,
        }
    }

    /// Counts the requests of these customers each by itself from now on.
    pub(crate) fn set_customers(&self, names: &[&str]) {
        self.customers.set_names(names, |name| self.number_of(name));
    }

    /// What it was made from.
    pub(crate) fn config(&self) -> &config::Inbound {
        &self.config
    }

    /// A number for what costs and shares are remembered by.
    pub(crate) fn number_of(&self, name: impl Hash) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Whether a request is let in, and what is said of it.
    pub(crate) fn ask(&self, arrival: &Arrival, names: Names<'_>) -> (Result<Box<Passage>, ShedAnswer>, Said) {
        let decided = &self.decided[arrival.criticality.rank()];
        let Asked { at, entry, shed, expected, pressure, capacity, standing } = self.gate.ask(arrival);
        if let (None, Some(shed)) = (&entry, &shed) {
            coalescing::turned_away(shed);
        }
        let turned_away = shed.map(ShedAnswer::from);
        let shed = turned_away.map(|said| said.reason);
        self.shedding.lock().on_decision(
            at,
            &shedding::Decision {
                criticality: arrival.criticality,
                cost: expected,
                is_retry: arrival.is_retry,
                shed: shed.and_then(ShedReason::cause),
                is_expired: arrival.timeout.is_some_and(|timeout| timeout.is_zero()),
                customer: KeyedName { key: arrival.kind.customer, name: names.customer },
                quota: arrival.quota,
                route: KeyedName { key: arrival.kind.route, name: names.route },
                capacity,
            },
        );
        let said = Said { shed, is_dry_run: self.config.dry_run, expected, pressure, standing };
        let is_admitted = entry.is_some() || shed.is_none();
        self.customers.count(arrival.kind.customer, is_admitted, shed);
        if let Some(turned_away) = turned_away {
            let place = REASONS.iter().position(|listed| *listed == turned_away.reason).expect("all are listed");
            decided.turned_away[place].fetch_add(1, Ordering::Relaxed);
            if entry.is_none() {
                return (Err(turned_away), said);
            }
        }
        decided.admitted.fetch_add(1, Ordering::Relaxed);
        (Ok(self.pass(entry)), said)
    }

    /// A request of which this was said was let in, and then got no backend.
    pub(crate) fn lost(&self, criticality: Criticality, said: Said, reason: ShedReason) {
        if let Some(cause) = reason.cause() {
            self.shedding.lock().on_lost(self.gate.now(), criticality, said.expected, cause);
        }
    }

    /// Lets a request in that is not asked about, and counts as in flight at the process all the same.
    pub(crate) fn let_in(&self) -> Box<Passage> {
        self.pass(None)
    }

    fn pass(&self, entry: Option<Entry>) -> Box<Passage> {
        Box::new(Passage { gate: Arc::clone(&self.gate), entry, used: Use::None, is_in_flight: false })
    }

    /// What can be seen of it.
    pub(crate) fn view(&self) -> InboundView {
        let by_criticality = Criticality::ALL.into_iter().zip(&self.decided);
        let decisions = by_criticality.flat_map(|(criticality, decided)| {
            let turned_away = REASONS.iter().map(|reason| reason.name()).zip(&decided.turned_away);
            let all = std::iter::once((ADMITTED, &decided.admitted)).chain(turned_away);
            all.map(move |(name, count)| (criticality, name, count.load(Ordering::Relaxed)))
        });
        InboundView {
            decisions: decisions.collect(),
            customers: self.customers.counts(),
            cpus: self.gate.cpus(),
            capacity: self.gate.capacity(),
            loads: self.gate.loads(),
            dry_run: self.config.dry_run,
            shedding: self.shedding.lock().summary(self.gate.now()),
        }
    }
}

#[cfg(test)]
mod tests;

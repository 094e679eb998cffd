//! Protects the process behind a cluster from more than it can do: the proxy as its sidecar.
//!
//! ```text
//!              forward ──▶ Inbound::ask ──▶ Gate ──▶ let in, with a Passage that ends when the answer has
//!                                            ▲
//!   watch: every 20 ms ──▶ source ──▶ process, or a control group: CPU used and waited for
//! ```
//!
//! The decision is the core's ([`plimsoll_core::admit::Gate`]), as in a server that protects itself with the library; what
//! differs is that the process is seen from outside, so that nobody knows which request used how much. The core fits that.
//!
//! Fail open: until the process was seen for the first time, all requests are let in. When it is no longer to be seen, the gate
//! goes on with what it knows of costs and capacity.

mod cpus;
mod gate;
mod process;
mod source;
mod watch;

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Criticality;
use plimsoll_core::admit::{Arrival, Entry, Reason, Retry, Shed};
use plimsoll_wire::shed::ShedReason;

use self::gate::Gate;
use crate::config;

/// Decides which requests of a cluster are let in.
pub(crate) struct Inbound {
    config: config::Inbound,
    gate: Arc<Gate>,
    decided: [Decided; Criticality::ALL.len()],
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
pub(crate) const REASONS: [ShedReason; 3] =
    [ShedReason::Overloaded, ShedReason::OverloadedNoRetry, ShedReason::Deadline];
/// What those that are not count as.
const ADMITTED: &str = "admitted";

/// What became of a cluster's requests at its gate, and what is seen of its process.
#[derive(Clone, Debug)]
pub struct InboundView {
    /// How many were decided upon, by criticality and decision. In a dry run one that would have been turned away is in both.
    pub decisions: Vec<(Criticality, &'static str, u64)>,
    /// CPUs that the process uses; `None` while it cannot be seen.
    pub cpus: Option<f64>,
}

/// A request that was let in, until this is dropped.
pub(crate) struct Passage {
    gate: Arc<Gate>,
    /// None for one that was not asked about.
    entry: Option<Entry>,
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.gate.ended(self.entry.take());
    }
}

impl Inbound {
    /// The gate of a cluster; it shares what `others` have of the same process. To be called within a runtime, on which the
    /// process is watched.
    pub(crate) fn new<'o>(config: &config::Inbound, mut others: impl Iterator<Item = &'o Arc<Self>>) -> Arc<Self> {
        let known = others.find(|other| other.config == *config).map(|other| Arc::clone(&other.gate));
        let gate = known.unwrap_or_else(|| {
            let gate = Arc::new(Gate::new(config));
            tokio::spawn(watch::watch(Arc::downgrade(&gate), config.clone()));
            gate
        });
        Arc::new(Self { config: config.clone(), gate, decided: Default::default(), hasher: RandomState::new() })
    }

    /// What it was made from.
    pub(crate) fn config(&self) -> &config::Inbound {
        &self.config
    }

    /// A number for what costs and shares are remembered by.
    pub(crate) fn number_of(&self, name: impl Hash) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Whether a request is let in.
    pub(crate) fn ask(&self, arrival: &Arrival) -> Result<Box<Passage>, ShedReason> {
        let decided = &self.decided[arrival.criticality.rank()];
        let (entry, shed) = if self.gate.was_seen() { self.gate.ask(arrival) } else { (None, None) };
        if let Some(shed) = shed {
            let reason = reason_of(shed);
            let place = REASONS.iter().position(|listed| *listed == reason).expect("all are listed");
            decided.turned_away[place].fetch_add(1, Ordering::Relaxed);
            if entry.is_none() {
                return Err(reason);
            }
        }
        decided.admitted.fetch_add(1, Ordering::Relaxed);
        Ok(self.pass(entry))
    }

    /// Lets a request in that is not asked about, and is in flight at the process all the same.
    pub(crate) fn let_in(&self) -> Box<Passage> {
        self.pass(None)
    }

    fn pass(&self, entry: Option<Entry>) -> Box<Passage> {
        self.gate.began();
        Box::new(Passage { gate: Arc::clone(&self.gate), entry })
    }

    /// What can be seen of it.
    pub(crate) fn view(&self) -> InboundView {
        let by_criticality = Criticality::ALL.into_iter().zip(&self.decided);
        let decisions = by_criticality.flat_map(|(criticality, decided)| {
            let turned_away = REASONS.iter().map(|reason| reason.name()).zip(&decided.turned_away);
            let all = std::iter::once((ADMITTED, &decided.admitted)).chain(turned_away);
            all.map(move |(name, count)| (criticality, name, count.load(Ordering::Relaxed)))
        });
        InboundView { decisions: decisions.collect(), cpus: self.gate.cpus() }
    }
}

fn reason_of(shed: Shed) -> ShedReason {
    match (shed.reason, shed.retry) {
        (Reason::Deadline, _) => ShedReason::Deadline,
        (Reason::Overloaded, Retry::Elsewhere) => ShedReason::Overloaded,
        (Reason::Overloaded, Retry::Never) => ShedReason::OverloadedNoRetry,
    }
}

#[cfg(test)]
mod tests;

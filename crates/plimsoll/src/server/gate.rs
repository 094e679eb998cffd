//! The gate of a [`ServerLayer`](super::ServerLayer): classified requests in, requests in progress
//! out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::admit::{Arrival, Mode, Shed};
use plimsoll_core::{Criticality, Rejection};

use super::admission::{Admission, DecisionCounts, Facts, Gate, OwnProcess};
use super::classify::Classified;
use super::context::{Cohort, Customer};
use super::cost::Request;

/// Decides which requests of a server are admitted.
#[derive(Debug)]
pub(super) struct ServerGate {
    pub(super) admission: Admission<OwnProcess>,
    malformed: AtomicU64,
}

/// Admitted and shed requests of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// By criticality, in the order of [`Criticality::ALL`].
    pub by_criticality: [DecisionCounts; Criticality::ALL.len()],
    /// Unreadable values of criticality, deadline and attempt.
    pub malformed: u64,
    /// CPU time charged to requests.
    pub charged: Duration,
}

impl ServerGate {
    pub(super) fn new(gate: Arc<Gate<OwnProcess>>, mode: Mode) -> Arc<Self> {
        Arc::new(Self { admission: Admission::new(gate, mode), malformed: AtomicU64::new(0) })
    }

    /// Admits a request for `route`, or sheds it.
    pub(super) fn ask(&self, classified: Classified, route: &dyn fmt::Display) -> Result<Arc<Request>, Shed> {
        if classified.malformed > 0 {
            self.malformed.fetch_add(u64::from(classified.malformed), Ordering::Relaxed);
        }
        let entry = with_facts(&classified, route, |facts| self.admission.ask(facts).0)?;
        Ok(Arc::new(match entry {
            Some(entry) => Request::new(classified.context, Arc::clone(self.admission.gate()), entry),
            None => Request::free(classified.context),
        }))
    }

    /// A request got no slot, so the gate is not asked about it.
    pub(super) fn got_no_slot(&self, classified: &Classified, reason: Rejection, route: &dyn fmt::Display) {
        with_facts(classified, route, |facts| self.admission.shed_unasked(facts, reason));
    }

    pub(super) fn counts(&self) -> AdmissionCounts {
        AdmissionCounts {
            by_criticality: self.admission.counts(),
            malformed: self.malformed.load(Ordering::Relaxed),
            charged: self.admission.gate().signals().charged(),
        }
    }
}

/// The facts about a request, which refer to values made for the call.
fn with_facts<R>(classified: &Classified, route: &dyn fmt::Display, call: impl FnOnce(&Facts<'_>) -> R) -> R {
    let &Classified { ref context, quota, left, is_expired, .. } = classified;
    let arrival = Arrival {
        criticality: context.criticality,
        kind: context.kind,
        quota,
        timeout: left,
        cohort: context.cohort.as_ref().and_then(Cohort::number),
        is_retry: context.attempt > 1,
    };
    let name = context.customer.as_ref().map(Customer::name);
    let customer = name.unwrap_or(Customer::NONE.as_bytes()).escape_ascii();
    call(&Facts { arrival, is_expired, name: name.unwrap_or_default(), customer: &customer, route })
}

//! Events of the state machines: each change of state, with its reason.
//!
//! The caller passes an observer; a log line, a metric and the `explain` ring are three of them.
//! Nothing in the core depends on the actions of an observer.

use crate::health::{Reason, State};
use crate::probe::SilenceCause;
use crate::{BackendId, Timestamp};

/// A change that an operator should know of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A backend went from one state to another.
    StateChanged {
        /// The backend.
        backend: BackendId,
        /// Its former state.
        from: State,
        /// Its present state.
        to: State,
        /// Reason for the change.
        reason: Reason,
    },
    /// Probes of a backend are of no use; it is treated as without them.
    ProbesSilent {
        /// The backend.
        backend: BackendId,
        /// The reason.
        cause: SilenceCause,
    },
    /// Too few backends are healthy: requests now go to all that are not lame ducks.
    PanicBegan {
        /// Backends in state healthy.
        healthy: usize,
        /// Backends that are not lame ducks.
        candidates: usize,
    },
    /// Enough backends are healthy again.
    PanicEnded {
        /// Backends in state healthy.
        healthy: usize,
        /// Backends that are not lame ducks.
        candidates: usize,
    },
}

/// Receives events as they happen.
pub trait Observe {
    /// Called once for each event, in order.
    fn observe(&mut self, now: Timestamp, event: Event);
}

/// Ignores all events.
impl Observe for () {
    fn observe(&mut self, _now: Timestamp, _event: Event) {}
}

impl<F: FnMut(Timestamp, Event)> Observe for F {
    fn observe(&mut self, now: Timestamp, event: Event) {
        self(now, event);
    }
}

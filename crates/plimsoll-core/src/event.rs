//! What a machine tells whoever watches: each change of state, with its reason.
//!
//! The caller hands in an observer; a log line, a metric and the `explain` ring are three of them.
//! Nothing in the core depends on what an observer does.

use crate::health::{Reason, State};
use crate::{BackendId, Timestamp};

/// Something that an operator would want to know happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A backend went from one state to another.
    StateChanged {
        /// Which.
        backend: BackendId,
        /// The state that it left.
        from: State,
        /// The state that it is in now.
        to: State,
        /// Why.
        reason: Reason,
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

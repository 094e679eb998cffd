//! An observer that remembers what it saw, and holds it to the rules that every stream of events obeys.

use std::collections::BTreeMap;

use plimsoll_core::health::{Reason, State};
use plimsoll_core::{BackendId, Event, Observe, Timestamp};

/// All events so far, in order.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// What came, and when.
    pub events: Vec<(Timestamp, Event)>,
    states: BTreeMap<BackendId, (State, Reason)>,
    panicking: bool,
}

impl Recorder {
    /// The state of a backend as told by events alone; a backend of which nothing was told is connecting.
    #[must_use]
    pub fn state(&self, id: BackendId) -> State {
        self.states.get(&id).map_or(State::Connecting, |(state, _)| *state)
    }

    /// Whether the last event on it said that there is panic.
    #[must_use]
    pub fn panicking(&self) -> bool {
        self.panicking
    }

    /// The changes of state of one backend: from, to, why.
    #[must_use]
    pub fn changes(&self, id: BackendId) -> Vec<(State, State, Reason)> {
        let change = |(_, event): &(Timestamp, Event)| match *event {
            Event::StateChanged { backend, from, to, reason } if backend == id => Some((from, to, reason)),
            _ => None,
        };
        self.events.iter().filter_map(change).collect()
    }
}

impl Observe for Recorder {
    /// # Panics
    /// When the event does not follow from those before it: a change from a state that the backend was not in, one that
    /// changes nothing, panic that begins twice.
    fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::StateChanged { backend, from, to, reason } => {
                let known = self.states.get(&backend).copied().unwrap_or((State::Connecting, Reason::Added));
                assert_eq!(known.0, from, "{backend} was {} but is said to leave {from}: {event:?}", known.0);
                assert_ne!(known, (to, reason), "{backend}: an event that changes nothing: {event:?}");
                self.states.insert(backend, (to, reason));
            }
            Event::PanicBegan { .. } => {
                assert!(!self.panicking, "panic began twice");
                self.panicking = true;
            }
            Event::PanicEnded { .. } => {
                assert!(self.panicking, "panic ended that had not begun");
                self.panicking = false;
            }
        }
        self.events.push((now, event));
    }
}

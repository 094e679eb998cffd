//! An observer that records events, and checks the rules of every stream of events.

use std::collections::BTreeMap;

use plimsoll_core::health::{Reason, State};
use plimsoll_core::{BackendId, Event, Observe, Timestamp};

/// All events so far, in order.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The events with their times.
    pub events: Vec<(Timestamp, Event)>,
    states: BTreeMap<BackendId, (State, Reason)>,
    panicking: bool,
}

impl Recorder {
    /// The state of a backend, as told by events alone; connecting before its first event.
    #[must_use]
    pub fn state(&self, id: BackendId) -> State {
        self.states.get(&id).map_or(State::Connecting, |(state, _)| *state)
    }

    /// Whether the last panic event was a beginning.
    #[must_use]
    pub fn panicking(&self) -> bool {
        self.panicking
    }

    /// The changes of state of one backend: from, to, reason.
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
    /// If the event does not follow from earlier ones: a change from a state that the backend was
    /// not in, a change without effect, or a panic that begins twice.
    fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::StateChanged { backend, from, to, reason } => {
                let known = self.states.get(&backend).copied().unwrap_or((State::Connecting, Reason::Added));
                assert_eq!(known.0, from, "{backend} was {} but leaves {from}: {event:?}", known.0);
                assert_ne!(known, (to, reason), "{backend}: an event that changes nothing: {event:?}");
                self.states.insert(backend, (to, reason));
            }
            Event::PanicBegan { .. } => {
                assert!(!self.panicking, "panic began twice");
                self.panicking = true;
            }
            Event::ProbesSilent { .. } => {}
            Event::PanicEnded { .. } => {
                assert!(self.panicking, "panic ended that had not begun");
                self.panicking = false;
            }
        }
        self.events.push((now, event));
    }
}

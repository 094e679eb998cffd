//! The processes that answer at one address.
//!
//! A restart replaces a process once, and the former one never answers again. If it does, a packet
//! balancer between client and servers spreads queries over several processes: the state of one
//! says nothing about the next connection. More than two of them may not repeat soon, so the third
//! change among eight answers counts too. A process that restarts that often looks the same, and
//! loses its probes for as long.

use super::super::message::Instance;

/// Answers of one process in a row after which an address counts as that of one process again.
const STEADY: u8 = 3;
/// Changes among the last eight answers that mean a packet balancer.
const MAX_CHANGES: u32 = 3;

/// The sender of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The process of the last answer, or the first one.
    Same,
    /// A new process.
    New,
    /// One of several behind the address.
    Alternating,
}

/// The latest processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instances {
    current: Option<Instance>,
    former: Option<Instance>,
    /// The last eight answers, the latest in the lowest bit: whether the process changed.
    changes: u8,
    /// Answers of the current process in a row.
    in_a_row: u8,
}

impl Instances {
    pub(super) fn is_current(&self, instance: Instance) -> bool {
        self.current == Some(instance)
    }

    /// Whether one process alone answered lately.
    pub(super) fn is_steady(&self) -> bool {
        self.in_a_row >= STEADY
    }

    pub(super) fn note(&mut self, instance: Instance) -> Sender {
        if self.current.is_none_or(|current| current == instance) {
            self.current = Some(instance);
            self.changes <<= 1;
            self.in_a_row = self.in_a_row.saturating_add(1);
            return Sender::Same;
        }
        let is_back = self.former == Some(instance);
        self.changes = self.changes << 1 | 1;
        self.in_a_row = 1;
        self.former = self.current.replace(instance);
        if is_back || self.changes.count_ones() >= MAX_CHANGES { Sender::Alternating } else { Sender::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders(order: &[u64]) -> alloc::vec::Vec<Sender> {
        let mut instances = Instances::default();
        order.iter().map(|number| instances.note(Instance::new(*number).unwrap())).collect()
    }

    #[test]
    fn restart_is_a_new_process_and_a_return_means_a_balancer() {
        use Sender::{Alternating, New, Same};
        assert_eq!(senders(&[1, 1, 2, 2, 3]), [Same, Same, New, Same, New]);
        assert_eq!(senders(&[1, 2, 1]), [Same, New, Alternating]);
        assert_eq!(senders(&[1, 2, 3, 4]), [Same, New, New, Alternating]);
        assert_eq!(senders(&[1, 2, 3, 3, 3, 3, 3, 3, 3, 4]).last(), Some(&New), "changes long ago do not count");
    }

    #[test]
    fn three_answers_of_one_process_are_steady() {
        let mut instances = Instances::default();
        let mut note = |number| {
            instances.note(Instance::new(number).unwrap());
            instances.is_steady()
        };
        assert_eq!([1, 1, 1, 2, 2, 2].map(&mut note), [false, false, true, false, false, true]);
    }
}

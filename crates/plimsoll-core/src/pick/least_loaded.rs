//! `least-loaded`: round robin among the backends with the fewest active requests.
//!
//! Recent failures count as active requests ([`errors`](super::errors)), and a backend of twice the
//! weight counts half of its own. The policy sees a slow backend, but not one that uses more CPU
//! per request. SRE ch. 20 found that it spreads CPU about as badly as round robin, but it needs
//! nothing from the backends.
//!
//! Backends stand in queues, one per load. The choice is the first of the lowest queue: the backend
//! that has waited longest there. It goes to the end of its queue. A change of load moves a backend
//! to the end of another queue. All of this takes constant time. The queues are lists threaded
//! through one array. The lowest queue is found by walking up from the last one, which pays back
//! the steps down of completions. A scan for the minimum was rejected because of clusters with ten
//! thousand backends.

use alloc::vec::Vec;

use super::{Candidate, Policy, View};
use crate::Random;

/// Number of queues. Higher loads share the last one: order no longer matters among backends that
/// full.
const QUEUES: usize = 1024;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// The queue of the backend, or `NIL`.
    queue: u32,
}

const UNLINKED: Link = Link { previous: NIL, next: NIL, queue: NIL };

/// The queues by load.
#[derive(Clone, Debug)]
pub(crate) struct LeastLoaded {
    links: Vec<Link>,
    heads: Vec<u32>,
    tails: Vec<u32>,
    /// All queues below this one are empty.
    lowest: usize,
}

impl Default for LeastLoaded {
    fn default() -> Self {
        let (heads, tails) = (alloc::vec![NIL; QUEUES], alloc::vec![NIL; QUEUES]);
        Self { links: Vec::new(), heads, tails, lowest: QUEUES }
    }
}

impl LeastLoaded {
    fn append(&mut self, slot: u32, queue: usize) {
        let tail = self.tails[queue];
        self.links[slot as usize] = Link { previous: tail, next: NIL, queue: queue as u32 };
        match tail {
            NIL => self.heads[queue] = slot,
            tail => self.links[tail as usize].next = slot,
        }
        self.tails[queue] = slot;
        self.lowest = self.lowest.min(queue);
    }

    fn unlink(&mut self, slot: u32) {
        let Link { previous, next, queue } = self.links[slot as usize];
        if queue == NIL {
            return;
        }
        match previous {
            NIL => self.heads[queue as usize] = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NIL => self.tails[queue as usize] = previous,
            next => self.links[next as usize].previous = previous,
        }
        self.links[slot as usize] = UNLINKED;
    }
}

/// The queue of a backend.
fn queue_of(candidate: &Candidate) -> usize {
    (candidate.relative_load() as usize).min(QUEUES - 1)
}

impl Policy for LeastLoaded {
    fn choose(&mut self, view: &View<'_>, _rng: &mut impl Random) -> u32 {
        while self.heads.get(self.lowest).is_some_and(|head| *head == NIL) {
            self.lowest += 1;
        }
        // A policy without its backends would be a bug of the balancer; the first usable one is
        // right even then.
        let Some(&slot) = self.heads.get(self.lowest) else { return view.usable[0] };
        let queue = self.lowest;
        if self.tails[queue] != slot {
            self.unlink(slot);
            self.append(slot, queue);
        }
        slot
    }

    fn on_usable(&mut self, slot: u32, candidate: &Candidate) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        self.unlink(slot);
        self.append(slot, queue_of(candidate));
    }

    fn on_unusable(&mut self, slot: u32) {
        if (slot as usize) < self.links.len() {
            self.unlink(slot);
        }
    }

    fn on_load(&mut self, slot: u32, candidate: &Candidate) {
        let queue = queue_of(candidate);
        if self.links[slot as usize].queue != queue as u32 {
            self.unlink(slot);
            self.append(slot, queue);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use rand_core::SeedableRng;

    use super::*;
    use crate::Timestamp;

    struct Table {
        candidates: Vec<Candidate>,
        usable: Vec<u32>,
        policy: LeastLoaded,
    }

    impl Table {
        fn new(loads: &[u32]) -> Self {
            let candidates: Vec<Candidate> = loads
                .iter()
                .map(|load| Candidate { load: *load, inverse_weight: 1.0, latency: Default::default() })
                .collect();
            let mut policy = LeastLoaded::default();
            for (slot, candidate) in candidates.iter().enumerate() {
                policy.on_usable(slot as u32, candidate);
            }
            Self { usable: (0..loads.len() as u32).collect(), candidates, policy }
        }

        fn pick(&mut self) -> usize {
            let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(0);
            let view = View {
                now: Timestamp::ZERO,
                usable: &self.usable,
                candidates: &self.candidates,
                least_inverse_weight: 1.0,
                key: None,
            };
            let slot = self.policy.choose(&view, &mut rng) as usize;
            self.set(slot, self.candidates[slot].load + 1);
            slot
        }

        fn set(&mut self, slot: usize, load: u32) {
            self.candidates[slot].load = load;
            self.policy.on_load(slot as u32, &self.candidates[slot]);
        }

        fn loads(&self) -> Vec<u32> {
            self.candidates.iter().map(|c| c.load).collect()
        }
    }

    /// The example of SRE ch. 20, "Least-Loaded Round Robin": ten tasks with these active requests.
    #[test]
    fn least_loaded_follows_the_worked_example_of_the_sre_book() {
        let mut table = Table::new(&[2, 1, 0, 0, 1, 0, 2, 0, 0, 1]);
        assert_eq!(table.pick(), 2);
        assert_eq!(table.loads(), [2, 1, 1, 0, 1, 0, 2, 0, 0, 1]);
        let next: Vec<usize> = (0..4).map(|_| table.pick()).collect();
        assert_eq!(next, [3, 5, 7, 8]);
        assert_eq!(table.loads(), [2, 1, 1, 1, 1, 1, 2, 1, 1, 1]);
        table.set(4, 0);
        assert_eq!(table.pick(), 4);
    }

    #[test]
    fn idle_backends_take_turns() {
        let mut table = Table::new(&[0, 0, 0]);
        let picks: Vec<usize> = (0..6)
            .map(|_| {
                let slot = table.pick();
                table.set(slot, 0);
                slot
            })
            .collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_backend_of_twice_the_weight_takes_twice_as_many() {
        let mut table = Table::new(&[0, 0]);
        table.candidates[1].inverse_weight = 0.5;
        for _ in 0..30 {
            table.pick();
        }
        assert_eq!(table.loads(), [10, 20]);
    }
}

//! Ends requests that only wait for their clients, when others wait for a slot.
//!
//! [`plimsoll_core::slots::preempt`] decides which of them. Here are the requests that may have to
//! end. They are compared as a request begins to wait, and every [`INTERVAL`] while any waits.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::slots::Holders;
use plimsoll_core::slots::preempt::{self, Candidate};
use slab::Slab;

use super::machine::{Machine, News};
use crate::client::preemption::Preemption;

/// Shortest time between two comparisons. Each looks at every request that waits for its client,
/// which takes at most a tenth of a millisecond for a thousand. A fair request waits this much
/// longer at most.
pub(super) const INTERVAL: Duration = Duration::from_millis(5);

/// Requests that may have to end early, by key, and when they were last compared.
#[derive(Default)]
pub(super) struct Preemptibles {
    held: Slab<(Arc<Preemption>, Holders)>,
    next: Timestamp,
}

impl Preemptibles {
    pub(super) fn insert(&mut self, preemption: Arc<Preemption>, holders: Holders) -> usize {
        self.held.insert((preemption, holders))
    }

    pub(super) fn remove(&mut self, key: usize) {
        self.held.try_remove(key);
    }
}

impl Machine {
    /// Finds requests to end for those that wait for a slot, one for each, and adds them to `news`.
    pub(super) fn preempt(&mut self, now: Timestamp, news: &mut News) {
        if self.waiting() == 0 || now < self.preemptibles.next || self.balancer.capacity() == 0 {
            return;
        }
        self.preemptibles.next = now + INTERVAL;
        let mut candidates = Vec::new();
        // Those that were chosen before and have not ended yet help as many of the waiting.
        let mut ending = 0;
        for (key, (preemption, holders)) in &self.preemptibles.held {
            if preemption.is_ended() {
                ending += usize::from(preemption.is_ending(now));
            } else if let Some(debt) = preemption.debt(now) {
                candidates.push(Candidate { key, held: self.slots.held_by_client(*holders), debt });
            }
        }
        let heads = self.queues.iter().flat_map(|queue| queue.heads());
        let waiting = heads.flat_map(|(holders, len)| std::iter::repeat_n(holders, len as usize)).skip(ending);
        for holders in waiting {
            let held = self.slots.held_by_client(holders);
            // A client at its limit gets no slot from the end of another's request.
            let is_at_limit = self.slots.is_at_limit(holders);
            let helps = |key: usize| !is_at_limit || self.preemptibles.held[key].1.client == holders.client;
            let helping = candidates.iter().copied().filter(|candidate| helps(candidate.key));
            let Some(victim) = preempt::victim(held, helping) else { continue };
            candidates.retain(|candidate| candidate.key != victim.key);
            self.counts.preempted += 1;
            news.preempted.push(self.preemptibles.held[victim.key].0.clone());
            if candidates.is_empty() {
                break;
            }
        }
    }
}

//! A queue for servers with a limit on requests in progress: chooses the next request.
//!
//! If the scarce resource is not CPU but something that each request holds one of, such as a
//! database connection, the right measure is a limit on requests in progress. A short queue in
//! front of it evens out bursts. Under overload such a queue fails: each request waits until its
//! caller leaves, and the work on it is then wasted. So:
//!
//! - The most critical requests are next. Among equals, the oldest is next, as is fair. Once the
//!   queue has not been empty for [`QueueConfig::newest_first_after`], the newest is next: its
//!   caller is the most likely to be still there (adaptive LIFO; Maurer, "Fail at Scale", 2015).
//!   The older ones had their chance while it was a burst.
//! - A request is not begun after its deadline, and none waits longer than
//!   [`QueueConfig::max_wait`].
//! - A full queue drops its least critical request, of these the oldest. A newcomer that is less
//!   critical than all others is shed.
//!
//! A decision takes as many steps as there are levels of criticality, and one for each dropped
//! request.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::Shed;
use crate::{Criticality, Timestamp};

/// The limit on requests in progress, and the limits of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// Largest number of requests in progress; at least 1.
    pub slots: usize,
    /// Largest number of requests that wait.
    pub max_waiting: usize,
    /// The longest wait of a request.
    pub max_wait: Duration,
    /// A queue that has not been empty for this long is no burst.
    pub newest_first_after: Duration,
}

impl QueueConfig {
    /// A quarter of a request that may take a second as a whole.
    pub const DEFAULT_MAX_WAIT: Duration = Duration::from_millis(250);
    /// Ten times as long as an even load keeps a queue, and shorter than a user notices.
    pub const DEFAULT_NEWEST_FIRST_AFTER: Duration = Duration::from_millis(100);
    /// Per slot. A shorter queue sheds bursts that would be over before a user notices.
    pub const DEFAULT_MAX_WAITING_PER_SLOT: usize = 16;

    /// The configuration for this many requests in progress; `None` if that is zero.
    #[must_use]
    pub fn new(slots: usize) -> Option<Self> {
        (slots > 0).then_some(Self {
            slots,
            max_waiting: slots.saturating_mul(Self::DEFAULT_MAX_WAITING_PER_SLOT),
            max_wait: Self::DEFAULT_MAX_WAIT,
            newest_first_after: Self::DEFAULT_NEWEST_FIRST_AFTER,
        })
    }
}

/// The decision on an arriving request.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum QueueVerdict<T> {
    /// A slot is free. Call [`Queue::next`] when the request ends.
    Begins(T),
    /// The request waits. It may have displaced the request given here.
    Waits(Option<T>),
    /// The request is shed.
    Shed(T),
}

/// A request that waits.
#[derive(Clone, Debug)]
struct Waiting<T> {
    since: Timestamp,
    deadline: Option<Timestamp>,
    request: T,
}

/// Requests that wait for a slot.
///
/// ```
/// use plimsoll_core::admit::{Queue, QueueConfig, QueueVerdict};
/// use plimsoll_core::{Criticality, Timestamp};
///
/// let now = Timestamp::ZERO;
/// let mut queue = Queue::new(now, QueueConfig::new(1).expect("one slot"));
/// assert_eq!(queue.enter(now, Criticality::Critical, None, "a"), QueueVerdict::Begins("a"));
/// assert_eq!(queue.enter(now, Criticality::Sheddable, None, "b"), QueueVerdict::Waits(None));
/// assert_eq!(queue.enter(now, Criticality::Critical, None, "c"), QueueVerdict::Waits(None));
/// // "a" has ended. Requests that waited too long would go to the first closure.
/// let next = queue.next(now, |abandoned| drop(abandoned), |_| true);
/// assert_eq!(next, Some("c"), "the most critical");
/// ```
#[derive(Clone, Debug)]
pub struct Queue<T> {
    config: QueueConfig,
    in_progress: usize,
    /// By criticality, each in the order of arrival.
    waiting: [VecDeque<Waiting<T>>; Criticality::ALL.len()],
    /// The last time that the queue was empty.
    empty_at: Timestamp,
}

impl<T> Queue<T> {
    /// The answer to a request that the full queue sheds or drops.
    pub const FULL: Shed = Shed::OVERLOADED;

    /// An empty queue.
    #[must_use]
    pub fn new(now: Timestamp, config: QueueConfig) -> Self {
        Self { config, in_progress: 0, waiting: Default::default(), empty_at: now }
    }

    /// A request arrives.
    pub fn enter(
        &mut self,
        now: Timestamp,
        criticality: Criticality,
        deadline: Option<Timestamp>,
        request: T,
    ) -> QueueVerdict<T> {
        if self.is_empty() {
            self.empty_at = self.empty_at.max(now);
            if self.in_progress < self.config.slots {
                self.in_progress += 1;
                return QueueVerdict::Begins(request);
            }
        }
        let rank = criticality.rank();
        let goes = if self.len() < self.config.max_waiting {
            None
        } else {
            // Less critical requests have higher ranks.
            match (rank..self.waiting.len()).rev().find_map(|rank| self.waiting[rank].pop_front()) {
                Some(waiting) => Some(waiting.request),
                None => return QueueVerdict::Shed(request),
            }
        };
        self.waiting[rank].push_back(Waiting { since: now, deadline, request });
        QueueVerdict::Waits(goes)
    }

    /// Frees the slot of a request that has ended, and returns the request that gets it. `gives_up`
    /// takes each request that has waited too long. `is_there` tells whether the caller of another
    /// one still waits.
    pub fn next(
        &mut self,
        now: Timestamp,
        mut gives_up: impl FnMut(AbandonedWait<T>),
        is_there: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let newest_first = self.is_newest_first(now);
        let max_wait = self.config.max_wait;
        let mut next = None;
        for waiting in &mut self.waiting {
            while waiting.front().is_some_and(|oldest| now.since(oldest.since) > max_wait) {
                waiting.pop_front().into_iter().for_each(|late| gives_up(AbandonedWait::WaitedTooLong(late.request)));
            }
            while next.is_none() {
                let Some(one) = (if newest_first { waiting.pop_back() } else { waiting.pop_front() }) else { break };
                if one.deadline.is_some_and(|deadline| deadline <= now) {
                    gives_up(AbandonedWait::Deadline(one.request));
                } else if is_there(&one.request) {
                    next = Some(one.request);
                }
            }
        }
        if self.is_empty() {
            self.empty_at = self.empty_at.max(now);
        }
        self.in_progress -= usize::from(next.is_none());
        next
    }

    /// Removes a waiting request of this criticality, because its caller left. Returns whether it
    /// waited.
    ///
    /// It takes as many steps as requests of the level wait before it. Otherwise abandoned requests
    /// would fill the queue until slots become free, and others would be shed for them.
    pub fn leave(&mut self, now: Timestamp, criticality: Criticality, mut is_it: impl FnMut(&T) -> bool) -> bool {
        let waiting = &mut self.waiting[criticality.rank()];
        let place = waiting.iter().position(|waiting| is_it(&waiting.request));
        place.is_some_and(|place| waiting.remove(place).is_some()) && {
            if self.is_empty() {
                self.empty_at = self.empty_at.max(now);
            }
            true
        }
    }

    /// Whether the queue is too old for a burst.
    fn is_newest_first(&self, now: Timestamp) -> bool {
        now.since(self.empty_at) >= self.config.newest_first_after
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Requests in progress.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.in_progress
    }
}

/// A request with an abandoned wait.
#[derive(Debug, PartialEq, Eq)]
pub enum AbandonedWait<T> {
    /// Its deadline has passed.
    Deadline(T),
    /// It waited for [`QueueConfig::max_wait`].
    WaitedTooLong(T),
}

impl<T> AbandonedWait<T> {
    /// The request, and the answer to it.
    #[must_use]
    pub fn into_shed(self) -> (T, Shed) {
        match self {
            Self::Deadline(request) => (request, Shed::DEADLINE),
            Self::WaitedTooLong(request) => (request, Queue::<T>::FULL),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::vec::Vec;

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::rng;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    fn queue(slots: usize, max_waiting: usize) -> Queue<u32> {
        Queue::new(ms(0), QueueConfig { max_waiting, ..QueueConfig::new(slots).expect("places") })
    }

    /// The request that gets the slot at `now`, and the requests that are dropped.
    fn next(queue: &mut Queue<u32>, now: u64) -> (Option<u32>, Vec<AbandonedWait<u32>>) {
        let mut gone = Vec::new();
        let next = queue.next(ms(now), |each| gone.push(each), |request| *request < 1_000);
        (next, gone)
    }

    #[test]
    fn burst_is_served_in_order_of_criticality_and_arrival() {
        let mut queue = queue(1, 10);
        assert_eq!(queue.enter(ms(0), Criticality::Critical, None, 0), QueueVerdict::Begins(0));
        for (request, criticality) in [
            (1, Criticality::Sheddable),
            (2, Criticality::Critical),
            (3, Criticality::CriticalPlus),
            (4, Criticality::Critical),
        ] {
            assert_eq!(queue.enter(ms(1), criticality, None, request), QueueVerdict::Waits(None));
        }
        let order: Vec<_> = (2..7).map(|at| next(&mut queue, at).0).collect();
        assert_eq!(order, [Some(3), Some(2), Some(4), Some(1), None]);
        assert_eq!((queue.len(), queue.in_progress()), (0, 0));
        assert_eq!(queue.enter(ms(8), Criticality::Critical, None, 5), QueueVerdict::Begins(5));
    }

    #[test]
    fn lasting_queue_is_served_newest_first_until_it_is_empty() {
        let mut queue = queue(1, 10);
        let enter = |queue: &mut Queue<u32>, at, request| queue.enter(ms(at), Criticality::Critical, None, request);
        assert_eq!(enter(&mut queue, 0, 0), QueueVerdict::Begins(0));
        for request in 1..5 {
            assert_eq!(enter(&mut queue, u64::from(request), request), QueueVerdict::Waits(None));
        }
        assert_eq!(next(&mut queue, 50).0, Some(1));
        assert_eq!(next(&mut queue, 100).0, Some(2));
        assert_eq!(next(&mut queue, 101).0, Some(4));
        assert_eq!(next(&mut queue, 102).0, Some(3));
        // Empty again: the next request begins a burst.
        assert_eq!(enter(&mut queue, 110, 5), QueueVerdict::Waits(None));
        assert_eq!(enter(&mut queue, 111, 6), QueueVerdict::Waits(None));
        assert_eq!(next(&mut queue, 150).0, Some(5));
    }

    #[test]
    fn full_queue_drops_its_oldest_least_critical_request() {
        let mut queue = queue(1, 2);
        let mut enter = |criticality, request| queue.enter(ms(0), criticality, None, request);
        assert_eq!(enter(Criticality::Critical, 0), QueueVerdict::Begins(0));
        assert_eq!(enter(Criticality::Critical, 1), QueueVerdict::Waits(None));
        assert_eq!(enter(Criticality::SheddablePlus, 2), QueueVerdict::Waits(None));
        assert_eq!(enter(Criticality::Sheddable, 3), QueueVerdict::Shed(3));
        assert_eq!(enter(Criticality::SheddablePlus, 4), QueueVerdict::Waits(Some(2)));
        assert_eq!(enter(Criticality::CriticalPlus, 5), QueueVerdict::Waits(Some(4)));
        assert_eq!(enter(Criticality::Critical, 6), QueueVerdict::Waits(Some(1)));
        assert_eq!(enter(Criticality::SheddablePlus, 7), QueueVerdict::Shed(7));
    }

    #[test]
    fn abandoned_requests_are_not_served() {
        let mut queue = queue(1, 10);
        assert_eq!(queue.enter(ms(0), Criticality::Critical, None, 0), QueueVerdict::Begins(0));
        for (request, deadline) in [(1, Some(ms(20))), (1_002, None), (3, None)] {
            assert_eq!(queue.enter(ms(10), Criticality::Critical, deadline, request), QueueVerdict::Waits(None));
        }
        assert_eq!(next(&mut queue, 20), (Some(3), [AbandonedWait::Deadline(1)].into()));
        assert_eq!(queue.enter(ms(30), Criticality::Sheddable, None, 4), QueueVerdict::Waits(None));
        assert_eq!(next(&mut queue, 281), (None, [AbandonedWait::WaitedTooLong(4)].into()));
        assert_eq!(AbandonedWait::WaitedTooLong(4).into_shed(), (4, Queue::<u32>::FULL));
    }

    #[test]
    fn request_that_leaves_makes_headroom_for_another() {
        let mut queue = queue(1, 2);
        for request in 0..3 {
            let _ = queue.enter(ms(0), Criticality::Critical, None, request);
        }
        assert!(!queue.leave(ms(1), Criticality::Sheddable, |request| *request == 1), "it is of another level");
        assert!(queue.leave(ms(1), Criticality::Critical, |request| *request == 1));
        assert!(!queue.leave(ms(1), Criticality::Critical, |request| *request == 1), "it left already");
        assert_eq!(queue.enter(ms(1), Criticality::Critical, None, 3), QueueVerdict::Waits(None));
        assert_eq!([2, 3, 4].map(|at| next(&mut queue, at).0), [Some(2), Some(3), None]);
        // The queue was empty when the last one left, so a new burst begins.
        let _ = queue.enter(ms(300), Criticality::Critical, None, 4);
        let _ = queue.enter(ms(300), Criticality::Critical, None, 5);
        assert!(queue.leave(ms(400), Criticality::Critical, |request| *request == 5));
        for request in 6..8 {
            let _ = queue.enter(ms(401), Criticality::Critical, None, request);
        }
        assert_eq!(next(&mut queue, 450).0, Some(6), "the oldest: the queue was empty at 400");
    }

    /// Runs eight slots for ten seconds. Requests hold one for 10 ms on average, and arrive at one
    /// and a half times the capacity. Callers wait for 300 ms. Returns the answers in time over the
    /// capacity.
    fn useful(config: QueueConfig, seed: u64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut queue = Queue::new(ms(0), config);
        // The end of each request in progress, latest last, and its arrival.
        let mut ends = BinaryHeap::<(Reverse<u64>, u64)>::new();
        let mut in_time = 0;
        let service = |rng: &mut Pcg64Mcg| (-(1.0 - rng::unit(rng)).ln() * 10.0 * MS as f64) as u64;
        let serve = |ends: &mut BinaryHeap<(Reverse<u64>, u64)>, now: u64, came: u64, took: u64| {
            ends.push((Reverse(now + took), came))
        };
        let (gap, seconds) = (10 * MS * 2 / 3 / 8, 10);
        for came in (0..seconds * 1_000 * MS).step_by(gap as usize) {
            while let Some(&(Reverse(at), began)) = ends.peek().filter(|(at, _)| at.0 <= came) {
                ends.pop();
                in_time += u32::from(at - began <= 300 * MS);
                if let Some(next) = queue.next(Timestamp::from_nanos(at), drop, |_| true) {
                    serve(&mut ends, at, next, service(&mut rng));
                }
            }
            let entered = queue.enter(Timestamp::from_nanos(came), Criticality::Critical, None, came);
            if let QueueVerdict::Begins(came) = entered {
                serve(&mut ends, came, came, service(&mut rng));
            }
        }
        f64::from(in_time) / (seconds as f64 * 8.0 / 0.01)
    }

    #[test]
    fn adaptive_lifo_serves_waiting_callers_under_overload() {
        // Callers state no deadlines, and the queue is longer than their patience.
        let config = QueueConfig {
            max_waiting: 1_000,
            max_wait: Duration::from_secs(5),
            ..QueueConfig::new(8).expect("places")
        };
        for seed in 1..=3 {
            let adaptive = useful(config, seed);
            let in_order = useful(QueueConfig { newest_first_after: Duration::MAX, ..config }, seed);
            assert!(adaptive > 0.95 && in_order < 0.2, "seed {seed}: {adaptive:.3}, in order {in_order:.3}");
        }
    }

    #[test]
    fn request_waits_for_the_longest_wait_and_no_longer() {
        let mut queue = queue(1, 10);
        for request in 0..3 {
            let _ = queue.enter(ms(0), Criticality::Critical, None, request);
        }
        assert_eq!(queue.in_progress(), 1);
        assert_eq!(next(&mut queue, 250), (Some(2), Vec::new()));
        assert_eq!(next(&mut queue, 251), (None, [AbandonedWait::WaitedTooLong(1)].into()));
    }
}

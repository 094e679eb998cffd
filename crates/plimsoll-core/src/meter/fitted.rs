//! What requests cost in a process that can only be seen from outside: what it uses as a whole, laid upon what ended meanwhile.
//!
//! Of a foreign process its CPU is known, and which requests were in it, but not which of them used how much. So windows of time are
//! looked at. With U the CPU-seconds that the process used in one, and eᵢ what each request that ended in it was expected to cost, each is
//! taken to have cost
//!
//! ```text
//! cᵢ = eᵢ · clamp(U ÷ Σe, 1/4, 4)
//! ```
//!
//! Costs remember the mean of that for each kind. It is one step of expectation maximization: what is used is shared out in
//! proportion to what is believed, and the shares are what is believed next. The sum is right after the first window whose ratio
//! is within the clamp. Kinds come apart since a window of many requests of one kind moves that one more than others: it takes
//! some tens of windows whose mixes differ. Where the mix never changes nobody could tell them apart, and nothing depends on it.
//!
//! Why not least squares over the windows: it needs a matrix of all kinds, which come and go, and gives costs below zero to rare ones.
//!
//! What may go wrong: a process that does something of its own (compaction, garbage) charges its requests with it. That is right
//! for admission, for the CPU is not there; but timers of a process that is all but idle would make its few requests look dear.
//! So below a tenth of its CPUs costs are only corrected downwards: no request has cost more than the process used.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Costs, Kind};
use crate::Timestamp;

/// Long beside most requests, which begin and end in it, and short beside what a lasting change may take to be believed.
const WINDOW: Duration = Duration::from_millis(250);
/// The first, after which each is twice as long as the one before: while nothing is known of costs, far too much may be taken on.
const FIRST_WINDOW: Duration = Duration::from_millis(50);
/// How far one window can be believed: requests that began long before it, or that go on, are in one sum and not in the other.
const MOST: f64 = 4.0;
/// Of the CPUs that there are. Below it, timers and the like may be more than what requests cause.
const IDLE: f64 = 0.1;
/// Requests of a window whose kinds are remembered, 24 bytes each: what is sixteen thousand a second is as good as all of more.
const REMEMBERED: usize = 4_096;

/// Shares out what a process used.
#[derive(Clone, Debug)]
pub struct Fitted {
    cpus: f64,
    /// How long the window is to be at least.
    window: Duration,
    began: Timestamp,
    /// CPU-seconds that the process had used when the window began.
    cpu: f64,
    /// Σe, in CPU-seconds.
    expected: f64,
    /// The kinds of what ended in the window, and what each was expected to cost.
    ended: Vec<(Kind, f64)>,
}

impl Fitted {
    /// For a process that may use so many CPUs, and has used so many CPU-seconds.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64, cpu: f64) -> Self {
        Self { cpus, window: FIRST_WINDOW, began: now, cpu, expected: 0.0, ended: Vec::new() }
    }

    /// The process may use so many CPUs from now on.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// A request of this kind has ended, which was expected to cost so many CPU-seconds.
    pub fn ended(&mut self, kind: Kind, expected: f64) {
        self.expected += expected;
        if self.ended.len() < REMEMBERED {
            self.ended.push((kind, expected));
        }
    }

    /// The process has used so many CPU-seconds; `costs` are told once a window is over. To be told a few times in each.
    pub fn sample(&mut self, now: Timestamp, cpu: f64, costs: &mut Costs) {
        if now.since(self.began) < self.window {
            return;
        }
        let used = cpu - self.cpu;
        let is_idle = used < IDLE * self.cpus * now.since(self.began).as_secs_f64();
        if self.ended.is_empty() {
            // What is used on requests that are longer than a window is theirs, once they end.
            if is_idle {
                self.restart(now, cpu);
            }
            return;
        }
        let most = if is_idle { 1.0 } else { MOST };
        let ratio = (used / self.expected).clamp(1.0 / MOST, most);
        for (kind, expected) in self.ended.drain(..) {
            costs.observe(kind, expected * ratio);
        }
        self.window = WINDOW.min(2 * self.window);
        self.restart(now, cpu);
    }

    /// Begins a window anew, as nothing is known of the one so far.
    pub fn restart(&mut self, now: Timestamp, cpu: f64) {
        self.ended.clear();
        (self.began, self.cpu, self.expected) = (now, cpu, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::rng;

    const A: Kind = Kind { route: 1, customer: 0 };
    const B: Kind = Kind { route: 2, customer: 0 };

    /// A process of one CPU, and how it is fitted.
    struct World {
        now: Timestamp,
        cpu: f64,
        costs: Costs,
        fitted: Fitted,
    }

    impl World {
        fn new() -> Self {
            let fitted = Fitted::new(Timestamp::ZERO, 1.0, 0.0);
            Self { now: Timestamp::ZERO, cpu: 0.0, costs: Costs::new(64), fitted }
        }

        /// A window in which so many requests of these kinds end that cost so much each, beside what the process uses for itself.
        fn window(&mut self, requests: &[(Kind, u32, f64)], itself: f64) {
            for &(kind, count, cost) in requests {
                for _ in 0..count {
                    let expected = self.costs.expected(kind);
                    self.fitted.ended(kind, expected);
                    self.cpu += cost;
                }
            }
            self.cpu += itself;
            self.now = self.now + WINDOW;
            self.fitted.sample(self.now, self.cpu, &mut self.costs);
        }

        fn assert_cost(&self, kind: Kind, cost: f64, tolerance: f64) {
            let expected = self.costs.expected(kind);
            assert!((expected / cost - 1.0).abs() < tolerance, "{kind:?}: {expected} and not {cost}");
        }
    }

    #[test]
    fn the_cost_of_one_kind_is_found_from_a_hundred_times_too_little_and_too_much() {
        for cost in [1e-5, 1e-1] {
            let mut world = World::new();
            let count = (0.2 / cost) as u32;
            (0..400).for_each(|_| world.window(&[(A, count, cost)], 0.0));
            world.assert_cost(A, cost, 0.02);
        }
    }

    #[test]
    fn what_a_busy_process_is_asked_for_at_first_is_known_after_some_tenths_of_a_second() {
        let mut world = World::new();
        // Every 20 ms ten more have ended.
        for _ in 0..20 {
            (0..10).for_each(|_| world.fitted.ended(A, world.costs.expected(A)));
            world.cpu += 0.02;
            world.now = world.now + Duration::from_millis(20);
            world.fitted.sample(world.now, world.cpu, &mut world.costs);
        }
        world.assert_cost(A, 0.002, 0.1);
    }

    #[test]
    fn kinds_come_apart_as_their_mix_changes() {
        let mut world = World::new();
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for _ in 0..400 {
            // Between none and twenty, and between two hundred and none.
            let a = rng::unit(&mut rng);
            world.window(&[(A, (20.0 * a) as u32, 0.01), (B, (200.0 * (1.0 - a)) as u32, 0.001)], 0.0);
        }
        world.assert_cost(A, 0.01, 0.15);
        world.assert_cost(B, 0.001, 0.15);
    }

    #[test]
    fn timers_of_an_idle_process_make_no_request_dear_but_its_requests_may_be_cheap() {
        let mut world = World::new();
        (0..400).for_each(|_| world.window(&[(A, 1, 0.001)], 0.02));
        world.assert_cost(A, 0.001, 0.02);
        (0..400).for_each(|_| world.window(&[(A, 10, 0.0001)], 0.0));
        world.assert_cost(A, 0.0001, 0.02);
    }

    #[test]
    fn what_a_request_longer_than_a_window_uses_is_its_own() {
        let mut world = World::new();
        for _ in 0..1_000 {
            (0..3).for_each(|_| world.window(&[], 0.2));
            world.window(&[(A, 1, 0.2)], 0.0);
        }
        world.assert_cost(A, 0.8, 0.02);
    }

    #[test]
    fn a_window_of_which_nothing_is_known_changes_nothing() {
        let mut world = World::new();
        (0..100).for_each(|_| world.window(&[(A, 100, 0.001)], 0.0));
        world.fitted.ended(A, 0.001);
        world.now = world.now + Duration::from_secs(9);
        world.fitted.restart(world.now, world.cpu);
        world.window(&[], 0.2);
        world.assert_cost(A, 0.001, 0.02);
    }

    #[test]
    fn more_than_is_remembered_still_counts() {
        let mut world = World::new();
        (0..200).for_each(|_| world.window(&[(A, 10_000, 2e-5)], 0.0));
        world.assert_cost(A, 2e-5, 0.02);
    }
}

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
//! Some processes say themselves what a request has used, in the `request_cost` of their load reports. Where most of those that ended in a
//! window did, there is nothing to be fitted: with r what is said,
//!
//! ```text
//! cᵢ = rᵢ · min(1, ΣU ÷ Σr) + beside,   beside = Σ(U − r) ÷ Σ requests
//! ```
//!
//! where beside is what the process does of which no report tells: reading, parsing, writing. It goes to all alike, and so the sum
//! is right. The factor is for those who speak of milliseconds, or of more than they used; it is a mean over some windows, since what
//! ends in one may have begun in another.
//!
//! Why not least squares over the windows: it needs a matrix of all kinds, which come and go, and gives costs below zero to rare ones.
//!
//! What may go wrong: a process that does something of its own (compaction, garbage) charges its requests with it. That is right
//! for admission, for the CPU is not there; but timers of a process that is all but idle would make its few requests look dear.
//! So below a tenth of its CPUs costs are only corrected downwards: no request has cost more than the process used. Of a process that
//! used nothing at all nothing is learned: it is stopped, and requests that ended meanwhile were given up.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Costs, Kind, Overhead, Used};
use crate::Timestamp;

/// Long beside most requests, which begin and end in it, and short beside what a lasting change may take to be believed.
const WINDOW: Duration = Duration::from_millis(250);
/// The first, after which each is twice as long as the one before: while nothing is known of costs, far too much may be taken on.
const FIRST_WINDOW: Duration = Duration::from_millis(50);
/// How far one window can be believed: requests that began long before it, or that go on, are in one sum and not in the other.
const MOST: f64 = 4.0;
/// Of the CPUs that there are. Below it, timers and the like may be more than what requests cause.
const IDLE: f64 = 0.1;
/// Of what was used and said before, what still counts a window later: some seconds.
const SAID: f64 = 0.9;
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
    /// Requests that are in `expected`.
    unsaid: u64,
    said: Said,
}

/// What the process says of its requests.
#[derive(Clone, Debug)]
struct Said {
    /// The kinds of what ended in the window, and what each is said to have used.
    ended: Vec<(Kind, f64)>,
    requests: u64,
    /// CPU-seconds, in the window.
    sum: f64,
    /// CPU-seconds that the process used, and that it said, in the windows before, decayed.
    before: (f64, f64),
    /// What it uses beside what it says; and all that was sampled for that.
    beside: Overhead,
    total: Used,
}

impl Fitted {
    /// For a process that may use so many CPUs, and has used so many CPU-seconds.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64, cpu: f64) -> Self {
        let said = Said {
            ended: Vec::new(),
            requests: 0,
            sum: 0.0,
            before: (0.0, 0.0),
            beside: Overhead::new(cpus, Used::default()),
            total: Used::default(),
        };
        Self { cpus, window: FIRST_WINDOW, began: now, cpu, expected: 0.0, ended: Vec::new(), unsaid: 0, said }
    }

    /// The process may use so many CPUs from now on.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
        self.said.beside.resize(cpus);
    }

    /// A request of this kind has ended, which was expected to cost so many CPU-seconds.
    pub fn ended(&mut self, kind: Kind, expected: f64) {
        self.expected += expected;
        self.unsaid += 1;
        if self.ended.len() < REMEMBERED {
            self.ended.push((kind, expected));
        }
    }

    /// A request of this kind has ended, of which the process says that it used so many CPU-seconds. Returns what it is to be counted
    /// with; `None` while it is not known how far the process is to be believed.
    pub fn ended_saying(&mut self, kind: Kind, used: f64) -> Option<f64> {
        self.said.requests += 1;
        self.said.sum += used;
        if self.said.ended.len() < REMEMBERED {
            self.said.ended.push((kind, used));
        }
        (self.said.before.1 > 0.0).then(|| used * self.said.factor() + self.said.beside.per_request())
    }

    /// The process has used so many CPU-seconds; `costs` are told once a window is over. To be told a few times in each.
    pub fn sample(&mut self, now: Timestamp, cpu: f64, costs: &mut Costs) {
        if now.since(self.began) < self.window {
            return;
        }
        let used = cpu - self.cpu;
        let is_idle = used < IDLE * self.cpus * now.since(self.began).as_secs_f64();
        if self.unsaid + self.said.requests == 0 {
            // What is used on requests that are longer than a window is theirs, once they end.
            if is_idle {
                self.restart(now, cpu);
            }
            return;
        }
        if used <= 0.0 {
            self.restart(now, cpu);
            return;
        }
        if self.said.requests >= self.unsaid {
            let window = now.since(self.began);
            self.said.over(window, used, self.expected, self.unsaid, costs);
        } else {
            let most = if is_idle { 1.0 } else { MOST };
            let ratio = ((used - self.said.sum) / self.expected).clamp(1.0 / MOST, most);
            for (kind, expected) in self.ended.drain(..) {
                costs.observe(kind, expected * ratio);
            }
        }
        self.window = WINDOW.min(2 * self.window);
        self.restart(now, cpu);
    }

    /// Begins a window anew, as nothing is known of the one so far.
    pub fn restart(&mut self, now: Timestamp, cpu: f64) {
        self.ended.clear();
        self.said.ended.clear();
        (self.said.requests, self.said.sum) = (0, 0.0);
        (self.began, self.cpu, self.expected, self.unsaid) = (now, cpu, 0.0, 0);
    }
}

impl Said {
    /// What has to be made of what the process says, for it to be no more than what it used.
    fn factor(&self) -> f64 {
        let (used, said) = self.before;
        if said > used { used / said } else { 1.0 }
    }

    /// A window is over in which the process has used so much, most of it for requests of which it said so; the few others are taken to
    /// have cost what was expected.
    fn over(&mut self, window: Duration, used: f64, unsaid: f64, unsaid_requests: u64, costs: &mut Costs) {
        self.before = (self.before.0 * SAID + used - unsaid.min(used), self.before.1 * SAID + self.sum);
        let factor = self.factor();
        self.total.wall += window.as_secs_f64();
        self.total.cpu += used;
        self.total.charged += self.sum * factor + unsaid;
        self.total.requests += self.requests + unsaid_requests;
        self.beside.sample(self.total);
        let beside = self.beside.per_request();
        for (kind, said) in self.ended.drain(..) {
            costs.observe(kind, said * factor + beside);
        }
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
    const C: Kind = Kind { route: 3, customer: 0 };

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

    /// A window of five dear requests and fifty cheap ones, as always, of which the process says so much each.
    fn told(world: &mut World, dear: f64, cheap: f64, used: f64) {
        (0..5).for_each(|_| {
            world.fitted.ended_saying(A, dear);
        });
        (0..50).for_each(|_| {
            world.fitted.ended_saying(B, cheap);
        });
        world.cpu += used;
        world.now = world.now + WINDOW;
        world.fitted.sample(world.now, world.cpu, &mut world.costs);
    }

    #[test]
    fn kinds_that_always_come_in_the_same_mix_are_told_apart_by_who_says_what_they_used() {
        let mut world = World::new();
        // A tenth of a second in all, half of which is of cheap ones.
        (0..40).for_each(|_| told(&mut world, 0.01, 0.001, 0.1));
        world.assert_cost(A, 0.01, 0.02);
        world.assert_cost(B, 0.001, 0.02);
        // Without a word of it, they are taken to cost alike.
        let mut silent = World::new();
        (0..40).for_each(|_| silent.window(&[(A, 5, 0.01), (B, 50, 0.001)], 0.0));
        assert!(silent.costs.expected(A) < 0.004, "{}", silent.costs.expected(A));
    }

    #[test]
    fn what_is_used_and_not_said_goes_to_all_alike() {
        let mut world = World::new();
        // A millisecond beside each of fifty-five requests.
        (0..200).for_each(|_| told(&mut world, 0.01, 0.001, 0.1 + 0.055));
        world.assert_cost(A, 0.011, 0.03);
        world.assert_cost(B, 0.002, 0.03);
        let counted = world.fitted.ended_saying(B, 0.001).expect("it is believed");
        assert!((counted - 0.002).abs() < 0.0001, "{counted}");
    }

    #[test]
    fn a_process_that_speaks_of_milliseconds_is_taken_at_its_proportions() {
        let mut world = World::new();
        assert_eq!(world.fitted.ended_saying(A, 10.0), None, "not at once");
        (0..200).for_each(|_| told(&mut world, 10.0, 1.0, 0.1));
        world.assert_cost(A, 0.01, 0.05);
        world.assert_cost(B, 0.001, 0.05);
    }

    #[test]
    fn the_few_of_which_nothing_is_said_stay_what_they_were_taken_for() {
        let mut world = World::new();
        for _ in 0..100 {
            world.fitted.ended(C, 0.001);
            told(&mut world, 0.01, 0.001, 0.101);
        }
        world.assert_cost(A, 0.01, 0.05);
        // And where the process says little, the others are fitted to what it does not speak of.
        for _ in 0..400 {
            world.fitted.ended_saying(A, 0.01);
            world.window(&[(C, 10, 0.004)], 0.01);
        }
        world.assert_cost(C, 0.004, 0.05);
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
    fn requests_that_are_given_up_at_a_stopped_process_do_not_look_cheap() {
        let mut world = World::new();
        (0..100).for_each(|_| world.window(&[(A, 100, 0.001)], 0.0));
        (0..20).for_each(|_| world.window(&[(A, 50, 0.0)], 0.0));
        world.assert_cost(A, 0.001, 0.02);
    }

    #[test]
    fn more_than_is_remembered_still_counts() {
        let mut world = World::new();
        (0..200).for_each(|_| world.window(&[(A, 10_000, 2e-5)], 0.0));
        world.assert_cost(A, 2e-5, 0.02);
    }

    #[test]
    fn process_below_a_tenth_of_its_cpus_only_makes_requests_cheaper() {
        // A quarter of a second, in which ten requests end that were expected to cost a millisecond each.
        let after = |cpus, used, itself| {
            let mut world = World::new();
            world.fitted.resize(cpus);
            world.window(&[(A, 10, used)], itself);
            world.costs.expected(A)
        };
        assert!(after(1.0, 0.0, 0.025) > 0.002, "just a tenth");
        assert!((after(4.0, 0.005, 0.0) - 0.001).abs() < 1e-9, "a fifth of a CPU of four");
        assert!(after(4.0, 0.011, 0.0) > 0.002);
    }

    #[test]
    fn timers_of_an_idle_process_are_not_laid_on_requests_it_reports() {
        let mut world = World::new();
        for _ in 0..100 {
            world.fitted.ended_saying(A, 0.001);
            world.window(&[], 0.021);
        }
        world.assert_cost(A, 0.001, 0.02);
    }

    /// Windows of four requests without a report and five with one. Each uses 10 ms; a report says `said`. The process uses `beside` more
    /// CPU-seconds.
    fn partly_reported(said: f64, beside: f64) -> World {
        let mut world = World::new();
        for _ in 0..200 {
            (0..4).for_each(|_| world.fitted.ended(C, 0.01));
            (0..5).for_each(|_| {
                world.fitted.ended_saying(A, said);
            });
            world.window(&[], 0.09 + beside);
        }
        world
    }

    #[test]
    fn overhead_is_shared_by_reported_and_other_requests() {
        partly_reported(0.01, 0.009).assert_cost(A, 0.011, 0.01);
    }

    #[test]
    fn reports_are_scaled_to_the_cpu_that_the_other_requests_leave() {
        partly_reported(10.0, 0.0).assert_cost(A, 0.01, 0.01);
    }

    #[test]
    fn cpu_that_is_no_longer_reported_is_overhead() {
        let mut world = World::new();
        // Reports say twice the CPU used at first, and then half of it.
        (0..20).for_each(|_| told(&mut world, 0.02, 0.002, 0.1));
        let beside = |world: &mut World| world.fitted.ended_saying(B, 0.0).expect("it is believed");
        assert!(beside(&mut world) < 1e-6);
        told(&mut world, 0.005, 0.000_5, 0.1);
        assert!(beside(&mut world) > 50e-6, "{}", beside(&mut world));
    }
}

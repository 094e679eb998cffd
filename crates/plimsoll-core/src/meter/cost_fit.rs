//! Fitted costs: the CPU of a whole process, shared out to the requests that ended in it.
//!
//! Of a foreign process only its total CPU and its requests are known, but not the use of each
//! request. So the fit goes by windows of time. With U the CPU-seconds that the process used in a
//! window, and eᵢ the expected cost of each request that ended in it, each counts as having cost
//!
//! ```text
//! cᵢ = eᵢ · clamp(U ÷ Σe, 1/4, 4)
//! ```
//!
//! [`Costs`] remembers the mean of that for each kind. This is one step of expectation
//! maximization: the CPU is shared out in proportion to the expected costs, and the shares are the
//! next expected costs. The sum is right after the first window with a ratio within the clamp.
//! Kinds separate because a window with many requests of one kind moves that kind more than others.
//! That takes some tens of windows with different mixes. If the mix never changes, no method could
//! tell the kinds apart, and nothing depends on it.
//!
//! Some processes report the cost of each request, in the `request_cost` of their load reports. If
//! most requests of a window have a report, no fit is needed. With r the reported cost,
//!
//! ```text
//! cᵢ = rᵢ · min(1, ΣU ÷ Σr) + beside,   beside = Σ(U − r) ÷ Σ requests
//! ```
//!
//! where beside is work of the process that is in no report: reading, parsing, writing. All
//! requests share it alike, and so the sum is right. The factor is for processes that report
//! milliseconds, or more than they used. It is a mean over some windows, since a request that ends
//! in one may have begun in another.
//!
//! Why not least squares over the windows: it needs a matrix of all kinds, which come and go, and
//! gives negative costs to rare kinds.
//!
//! Failure modes: a process with work of its own (compaction, garbage collection) charges it to
//! its requests. That is right for admission, since this CPU is not available. But the timers of an
//! almost idle process would make its few requests look expensive. So below a tenth of its CPUs,
//! costs are only corrected downwards: no request has cost more than the process used. A process
//! that used no CPU at all teaches nothing: it is stopped, and its requests were abandoned.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Costs, Kind, Overhead, UsageTotals};
use crate::Timestamp;

/// Long beside most requests, which begin and end in one window. Short beside the time until a
/// lasting change is believed.
const WINDOW: Duration = Duration::from_millis(250);
/// The first window; each is twice as long as the one before. While costs are unknown, far too many
/// requests may be admitted.
const FIRST_WINDOW: Duration = Duration::from_millis(50);
/// The largest correction by one window: for a request that began long before it or goes on, cost
/// and use fall into different windows.
const MAX_RATIO: f64 = 4.0;
/// A part of the CPUs. Below it, timers and the like may use more than requests.
const IDLE: f64 = 0.1;
/// The weight of earlier use and reports after one more window: a memory of some seconds.
const SAID: f64 = 0.9;
/// Requests of a window whose kinds are remembered, at 24 bytes each. Sixteen thousand a second are
/// as good a sample as all of more.
const REMEMBERED: usize = 4_096;

/// Shares out the CPU of a process.
#[derive(Clone, Debug)]
pub struct CostFit {
    cpus: f64,
    /// The shortest length of the window.
    window: Duration,
    began: Timestamp,
    /// CPU-seconds that the process had used when the window began.
    cpu: f64,
    /// Σe, in CPU-seconds.
    expected: f64,
    /// The kinds of requests that ended in the window, and the expected cost of each.
    ended: Vec<(Kind, f64)>,
    /// Requests without a report, those in `expected`.
    unsaid: u64,
    said: Reports,
}

/// The costs that the process reports.
#[derive(Clone, Debug)]
struct Reports {
    /// The kinds of requests that ended in the window with a report, and the reported cost of each.
    ended: Vec<(Kind, f64)>,
    requests: u64,
    /// Reported CPU-seconds in the window.
    sum: f64,
    /// CPU-seconds that the process used and that it reported in earlier windows, decayed.
    before: (f64, f64),
    /// Use outside the reports, and the totals that are sampled for it.
    beside: Overhead,
    total: UsageTotals,
}

impl CostFit {
    /// Begins with a process that may use this many CPUs and has used `cpu` CPU-seconds.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64, cpu: f64) -> Self {
        let said = Reports {
            ended: Vec::new(),
            requests: 0,
            sum: 0.0,
            before: (0.0, 0.0),
            beside: Overhead::new(cpus, UsageTotals::default()),
            total: UsageTotals::default(),
        };
        Self { cpus, window: FIRST_WINDOW, began: now, cpu, expected: 0.0, ended: Vec::new(), unsaid: 0, said }
    }

    /// Changes the CPUs that the process may use.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
        self.said.beside.resize(cpus);
    }

    /// A request of this kind has ended without a report, with its expected cost in CPU-seconds.
    pub fn end(&mut self, kind: Kind, expected: f64) {
        self.expected += expected;
        self.unsaid += 1;
        if self.ended.len() < REMEMBERED {
            self.ended.push((kind, expected));
        }
    }

    /// A request of this kind has ended, with the reported use in CPU-seconds. Returns the cost
    /// that it counts with; `None` until the first window with reports has ended.
    pub fn end_reported(&mut self, kind: Kind, used: f64) -> Option<f64> {
        self.said.requests += 1;
        self.said.sum += used;
        if self.said.ended.len() < REMEMBERED {
            self.said.ended.push((kind, used));
        }
        (self.said.before.1 > 0.0).then(|| used * self.said.factor() + self.said.beside.per_request())
    }

    /// Takes the CPU-seconds that the process has used, a few times in each window. The end of a
    /// window updates `costs`.
    pub fn sample(&mut self, now: Timestamp, cpu: f64, costs: &mut Costs) {
        if now.since(self.began) < self.window {
            return;
        }
        let used = cpu - self.cpu;
        let is_idle = used < IDLE * self.cpus * now.since(self.began).as_secs_f64();
        if self.unsaid + self.said.requests == 0 {
            // A request longer than a window gets all of its use when it ends.
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
            self.said.end_window(window, used, self.expected, self.unsaid, costs);
        } else {
            let most = if is_idle { 1.0 } else { MAX_RATIO };
            let ratio = ((used - self.said.sum) / self.expected).clamp(1.0 / MAX_RATIO, most);
            for (kind, expected) in self.ended.drain(..) {
                costs.observe(kind, expected * ratio);
            }
        }
        self.window = WINDOW.min(2 * self.window);
        self.restart(now, cpu);
    }

    /// Begins a new window and drops the present one.
    pub fn restart(&mut self, now: Timestamp, cpu: f64) {
        self.ended.clear();
        self.said.ended.clear();
        (self.said.requests, self.said.sum) = (0, 0.0);
        (self.began, self.cpu, self.expected, self.unsaid) = (now, cpu, 0.0, 0);
    }
}

impl Reports {
    /// The factor on reported costs: with it, they do not exceed the use of the process.
    fn factor(&self) -> f64 {
        let (used, said) = self.before;
        if said > used { used / said } else { 1.0 }
    }

    /// Ends a window in which most requests have a report. The few others count with their expected
    /// cost.
    fn end_window(&mut self, window: Duration, used: f64, unsaid: f64, unsaid_requests: u64, costs: &mut Costs) {
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

    /// A process of one CPU, and its fit.
    struct World {
        now: Timestamp,
        cpu: f64,
        costs: Costs,
        fitted: CostFit,
    }

    impl World {
        fn new() -> Self {
            let fitted = CostFit::new(Timestamp::ZERO, 1.0, 0.0);
            Self { now: Timestamp::ZERO, cpu: 0.0, costs: Costs::new(64), fitted }
        }

        /// Runs a window in which these requests end: a kind, a count, and a cost each. The process
        /// uses `itself` CPU-seconds more.
        fn window(&mut self, requests: &[(Kind, u32, f64)], itself: f64) {
            for &(kind, count, cost) in requests {
                for _ in 0..count {
                    let expected = self.costs.expected(kind);
                    self.fitted.end(kind, expected);
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
    fn cost_of_one_kind_converges_from_a_hundred_times_too_much() {
        for cost in [1e-5, 1e-1] {
            let mut world = World::new();
            let count = (0.2 / cost) as u32;
            (0..400).for_each(|_| world.window(&[(A, count, cost)], 0.0));
            world.assert_cost(A, cost, 0.02);
        }
    }

    #[test]
    fn first_costs_are_known_after_some_tenths_of_a_second() {
        let mut world = World::new();
        // Every 20 ms ten more have ended.
        for _ in 0..20 {
            (0..10).for_each(|_| world.fitted.end(A, world.costs.expected(A)));
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
    fn timers_of_an_idle_process_make_no_request_expensive() {
        let mut world = World::new();
        (0..400).for_each(|_| world.window(&[(A, 1, 0.001)], 0.02));
        world.assert_cost(A, 0.001, 0.02);
        (0..400).for_each(|_| world.window(&[(A, 10, 0.0001)], 0.0));
        world.assert_cost(A, 0.0001, 0.02);
    }

    #[test]
    fn request_longer_than_a_window_gets_all_of_its_use() {
        let mut world = World::new();
        for _ in 0..1_000 {
            (0..3).for_each(|_| world.window(&[], 0.2));
            world.window(&[(A, 1, 0.2)], 0.0);
        }
        world.assert_cost(A, 0.8, 0.02);
    }

    /// Runs a window of five expensive requests and fifty cheap ones, with these reported costs.
    fn told(world: &mut World, dear: f64, cheap: f64, used: f64) {
        (0..5).for_each(|_| {
            world.fitted.end_reported(A, dear);
        });
        (0..50).for_each(|_| {
            world.fitted.end_reported(B, cheap);
        });
        world.cpu += used;
        world.now = world.now + WINDOW;
        world.fitted.sample(world.now, world.cpu, &mut world.costs);
    }

    #[test]
    fn reports_separate_kinds_of_a_constant_mix() {
        let mut world = World::new();
        // A tenth of a second in all, half of it for cheap requests.
        (0..40).for_each(|_| told(&mut world, 0.01, 0.001, 0.1));
        world.assert_cost(A, 0.01, 0.02);
        world.assert_cost(B, 0.001, 0.02);
        // Without reports, they count with similar costs.
        let mut silent = World::new();
        (0..40).for_each(|_| silent.window(&[(A, 5, 0.01), (B, 50, 0.001)], 0.0));
        assert!(silent.costs.expected(A) < 0.004, "{}", silent.costs.expected(A));
    }

    #[test]
    fn unreported_use_is_shared_by_all_requests() {
        let mut world = World::new();
        // A millisecond of overhead for each of fifty-five requests.
        (0..200).for_each(|_| told(&mut world, 0.01, 0.001, 0.1 + 0.055));
        world.assert_cost(A, 0.011, 0.03);
        world.assert_cost(B, 0.002, 0.03);
        let counted = world.fitted.end_reported(B, 0.001).expect("it is believed");
        assert!((counted - 0.002).abs() < 0.0001, "{counted}");
    }

    #[test]
    fn reports_in_milliseconds_count_by_their_proportions() {
        let mut world = World::new();
        assert_eq!(world.fitted.end_reported(A, 10.0), None, "not at once");
        (0..200).for_each(|_| told(&mut world, 10.0, 1.0, 0.1));
        world.assert_cost(A, 0.01, 0.05);
        world.assert_cost(B, 0.001, 0.05);
    }

    #[test]
    fn few_unreported_requests_keep_their_expected_cost() {
        let mut world = World::new();
        for _ in 0..100 {
            world.fitted.end(C, 0.001);
            told(&mut world, 0.01, 0.001, 0.101);
        }
        world.assert_cost(A, 0.01, 0.05);
        // If the process reports little, the other requests share the rest of its use.
        for _ in 0..400 {
            world.fitted.end_reported(A, 0.01);
            world.window(&[(C, 10, 0.004)], 0.01);
        }
        world.assert_cost(C, 0.004, 0.05);
    }

    #[test]
    fn dropped_window_changes_no_cost() {
        let mut world = World::new();
        (0..100).for_each(|_| world.window(&[(A, 100, 0.001)], 0.0));
        world.fitted.end(A, 0.001);
        world.now = world.now + Duration::from_secs(9);
        world.fitted.restart(world.now, world.cpu);
        world.window(&[], 0.2);
        world.assert_cost(A, 0.001, 0.02);
    }

    #[test]
    fn requests_abandoned_at_a_stopped_process_do_not_look_cheap() {
        let mut world = World::new();
        (0..100).for_each(|_| world.window(&[(A, 100, 0.001)], 0.0));
        (0..20).for_each(|_| world.window(&[(A, 50, 0.0)], 0.0));
        world.assert_cost(A, 0.001, 0.02);
    }

    #[test]
    fn requests_beyond_the_remembered_ones_still_count() {
        let mut world = World::new();
        (0..200).for_each(|_| world.window(&[(A, 10_000, 2e-5)], 0.0));
        world.assert_cost(A, 2e-5, 0.02);
    }

    #[test]
    fn process_below_a_tenth_of_its_cpus_only_makes_requests_cheaper() {
        // A quarter of a second, in which ten requests end with an expected cost of a millisecond
        // each.
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
            world.fitted.end_reported(A, 0.001);
            world.window(&[], 0.021);
        }
        world.assert_cost(A, 0.001, 0.02);
    }

    /// Runs windows of four requests without a report and five with one. Each uses 10 ms; a report
    /// says `said`. The process uses `beside` more CPU-seconds.
    fn partly_reported(said: f64, beside: f64) -> World {
        let mut world = World::new();
        for _ in 0..200 {
            (0..4).for_each(|_| world.fitted.end(C, 0.01));
            (0..5).for_each(|_| {
                world.fitted.end_reported(A, said);
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
        let beside = |world: &mut World| world.fitted.end_reported(B, 0.0).expect("it is believed");
        assert!(beside(&mut world) < 1e-6);
        told(&mut world, 0.005, 0.000_5, 0.1);
        assert!(beside(&mut world) > 50e-6, "{}", beside(&mut world));
    }
}

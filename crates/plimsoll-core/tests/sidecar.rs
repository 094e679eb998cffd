//! A gate before a process that is observed from outside, in closed loop: admissions decide the
//! next sample.
//!
//! The process has threads that serve requests in order of arrival. Other work, such as the proxy,
//! may share its CPUs. Seeds are fixed and the generator is portable, so nothing here fails by
//! chance.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::admit::{
    AdmissionConfig, Arrival, Entry, Flow, Gate, Mode, Observation, ProcessCounters, ProcessObserver, Quota,
};
use plimsoll_core::meter::Kind;
use plimsoll_core::signal::Gauges;
use plimsoll_core::{Criticality, Timestamp};
use rand_core::{Rng, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Seconds in one step.
const STEP: f64 = 0.000_25;
/// Steps between two samples of the process.
const LOOK: u64 = 80;
/// Seconds.
const WARM_UP: f64 = 4.0;
const DEADLINE: f64 = 0.25;

/// A process, its neighbour, and the offered load.
#[derive(Clone, Copy)]
struct Plan {
    cpus: f64,
    threads: usize,
    /// The part of its CPUs that a neighbour takes.
    neighbour: f64,
    /// CPU-seconds of a request, lognormal with σ = 1.
    mean: f64,
    /// Seconds that a request waits for something else before it needs a CPU.
    elsewhere: f64,
    /// Offered load by criticality, as parts of its CPUs.
    loads: [f64; 4],
    /// Seconds after which a caller abandons its request. The process takes no notice.
    patience: f64,
    seconds: f64,
}

/// As in `bench/overload`: one thread, and the proxy beside it on its core.
const SHARED: Plan = Plan {
    cpus: 1.0,
    threads: 1,
    neighbour: 0.08,
    mean: 0.002,
    elsewhere: 0.0,
    loads: [0.0; 4],
    patience: f64::INFINITY,
    seconds: 14.0,
};

fn split(load: f64) -> [f64; 4] {
    [0.1, 0.3, 0.3, 0.3].map(|part| part * load)
}

struct Request {
    criticality: usize,
    came: f64,
    /// The start of its need for a CPU.
    ready: f64,
    left: f64,
    /// `None` once it was abandoned.
    entry: Option<Entry>,
}

/// Results after the warm-up.
#[derive(Debug, Default)]
struct Found {
    came: [u32; 4],
    useful: [u32; 4],
    late: u32,
    /// CPU-seconds a second, as a part of the CPUs.
    work: f64,
    /// Mean seconds from the arrival to the end of admitted requests.
    latency: f64,
}

impl Found {
    fn share(&self, criticality: usize) -> f64 {
        f64::from(self.useful[criticality]) / f64::from(self.came[criticality].max(1))
    }

    fn shares(&self) -> [f64; 4] {
        std::array::from_fn(|criticality| self.share(criticality))
    }

    /// Whether a criticality loses more than 5% only while each lower one has less than 5% left.
    fn keeps_order(&self) -> bool {
        let shares = self.shares();
        (0..4).all(|class| shares[class] >= 0.95 || shares[class + 1..].iter().all(|lower| *lower < 0.05))
    }
}

fn lognormal(rng: &mut impl Rng, mean: f64) -> f64 {
    let unit = |rng: &mut dyn FnMut() -> u64| (rng() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut next = || rng.next_u64();
    let (a, b) = (1.0 - unit(&mut next), unit(&mut next));
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    mean * (normal - 0.5).exp()
}

fn run(plan: &Plan, seed: u64) -> Found {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut gate =
        Gate::new(Timestamp::ZERO, AdmissionConfig::new(plan.cpus).unwrap(), Mode::Protect, Observation::default());
    let mut observed = ProcessObserver::new(Timestamp::ZERO, plan.cpus);
    let (mut outside, mut flow) = (ProcessCounters::default(), Flow::default());
    gate.resume(Timestamp::ZERO, observed.begin(Timestamp::ZERO, outside));
    let mut queue: VecDeque<Request> = VecDeque::new();
    let mut found = Found::default();
    let mut total = 0_u32;
    for step in 1..=(plan.seconds / STEP) as u64 {
        let seconds = step as f64 * STEP;
        let now = Timestamp::from_nanos((seconds * 1e9) as u64);
        let counts = seconds > WARM_UP;
        for (criticality, load) in plan.loads.into_iter().enumerate() {
            let expected = load * plan.cpus / plan.mean * STEP;
            // At most two in such a short time.
            for _ in 0..2 {
                if (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 >= expected / 2.0 {
                    continue;
                }
                let arrival = Arrival {
                    criticality: Criticality::ALL[criticality],
                    kind: Kind { route: 1, customer: rng.next_u64() % 3 },
                    quota: Quota::UNLIMITED,
                    timeout: Some(Duration::from_secs_f64(DEADLINE)),
                    cohort: None,
                    is_retry: false,
                };
                found.came[criticality] += u32::from(counts);
                let left = lognormal(&mut rng, plan.mean);
                if let Some(entry) = gate.ask(now, &arrival, &mut rng).entry() {
                    flow.sent += 1;
                    let ready = seconds + plan.elsewhere;
                    queue.push_back(Request { criticality, came: seconds, ready, left, entry: Some(entry) });
                }
            }
        }
        // The first ready requests, one for each thread, share the CPUs. A request behind a
        // finished one gets the rest of its time.
        let ready = queue.iter().take_while(|request| request.ready <= seconds).count();
        let runnable = ready.min(plan.threads);
        let there = plan.cpus * (1.0 - plan.neighbour) * STEP;
        let each = (there / runnable.max(1) as f64).min(STEP);
        let mut left = each * runnable as f64;
        for request in queue.iter_mut().take(ready) {
            let part = request.left.min(each).min(left);
            request.left -= part;
            left -= part;
        }
        let used = each * runnable as f64 - left;
        outside.cpu += used;
        outside.waited += runnable as f64 * (STEP - each);
        found.work += if counts { used } else { 0.0 };
        let mut at = 0;
        while at < queue.len().min(ready) {
            if queue[at].left > 0.0 || queue[at].ready > seconds {
                at += 1;
                continue;
            }
            let request = queue.remove(at).unwrap();
            let Some(entry) = request.entry else { continue };
            gate.end_unmeasured(now, entry);
            if request.came > WARM_UP {
                let latency = seconds - request.came;
                found.latency += latency;
                total += 1;
                if latency <= DEADLINE {
                    found.useful[request.criticality] += 1;
                } else {
                    found.late += 1;
                }
            }
        }
        for request in queue.iter_mut().filter(|request| seconds - request.came >= plan.patience) {
            if let Some(entry) = request.entry.take() {
                gate.end_abandoned(now, entry);
                flow.abandoned += 1;
            }
        }
        if step % LOOK == 0 {
            flow.in_flight = queue.iter().filter(|request| request.entry.is_some()).count() as u32;
            gate.observe(now, observed.sample(now, outside, flow), &Gauges::default());
        }
    }
    found.work /= (plan.seconds - WARM_UP) * plan.cpus;
    found.latency /= f64::from(total.max(1));
    found
}

/// Asserts a property with every seed.
#[track_caller]
fn always(plan: &Plan, holds: impl Fn(&Found) -> bool) {
    for seed in 1..=5 {
        let found = run(plan, seed);
        assert!(holds(&found), "seed {seed}: {:.3?} {found:?}", found.shares());
    }
}

#[test]
fn order_of_criticality_is_kept_beside_a_neighbour() {
    for load in [1.0, 1.2, 1.5, 2.0, 2.3, 4.0, 10.0] {
        always(&Plan { loads: split(load), ..SHARED }, |found| {
            found.keeps_order() && found.late == 0 && found.work > 0.97 * (1.0 - SHARED.neighbour)
        });
    }
}

#[test]
fn process_with_its_own_cpus_has_no_hidden_queue() {
    for load in [1.2, 4.0] {
        let plan = Plan { loads: split(load), neighbour: 0.0, ..SHARED };
        always(&plan, |found| found.keeps_order() && found.work > 0.94 && found.latency < 0.05);
    }
}

/// While nothing is known of costs, they are estimated at a twentieth of the real ones.
#[test]
fn expensive_requests_with_short_deadlines_keep_the_order() {
    let plan = Plan { loads: split(4.0), neighbour: 0.0, mean: 0.02, seconds: 34.0, ..SHARED };
    always(&plan, |found| {
        let shares = found.shares();
        // Chance matters: the core does fifty a second, and one in a hundred costs more than eight
        // times the mean.
        shares[0] > 0.8 && shares[1] > 0.35 && shares[2] < 0.02 && shares[3] < 0.01 && found.work > 0.87
    });
}

#[test]
fn requests_that_wait_for_others_are_no_overload() {
    let plan = Plan { cpus: 4.0, threads: 1_000, neighbour: 0.0, elsewhere: 0.1, ..SHARED };
    for load in [0.7, 0.85] {
        // A hundredth are still in flight at the end.
        always(&Plan { loads: split(load), ..plan }, |found| found.shares().iter().all(|share| *share > 0.97));
    }
    always(&Plan { loads: split(2.0), ..plan }, |found| found.keeps_order() && found.work > 0.9);
}

/// The patience is less than half of the time that a queue of all requests would take. Without a
/// reaction, the queue would always hold abandoned requests.
#[test]
fn abandoned_requests_do_not_fill_the_process() {
    for neighbour in [0.0, SHARED.neighbour] {
        let plan = Plan { loads: split(4.0), neighbour, patience: 0.03, ..SHARED };
        always(&plan, |found| found.share(0) > 0.6 && found.share(1) > 0.25 && found.share(3) < 0.01);
    }
}

//! Gates of tasks without enough CPU, and the owner that tells them of the others.

#[path = "fleet_gates/advice.rs"]
mod advice;
#[path = "fleet_gates/fleet.rs"]
mod fleet;
#[path = "fleet_gates/shares.rs"]
mod shares;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use plimsoll_core::admit::{AdmissionConfig, Arrival, Entry, Gate, GateVerdict, Mode, Observation, Quota};
use plimsoll_core::meter::Kind;
use plimsoll_core::quota::{
    Assignment, CustomerId, Introduction, Limit, Limiter, Limits, Owner, OwnerConfig, Report, TaskId, UNLIMITED,
};
use plimsoll_core::signal::Gauges;
use plimsoll_core::{Criticality, Rejection, Timestamp};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// Customers: one at the first task only, and one at all tasks.
const FEW: u64 = 1;
const ALL: u64 = 2;
const TASKS: usize = 4;
/// CPU-seconds of a request.
const COST: f64 = 0.001;

/// A task of one core.
struct Task {
    gate: Gate,
    /// Admitted requests: the use of the core at their end, their cost, and their entry.
    running: VecDeque<(f64, f64, Entry)>,
    seen: Observation,
    /// CPU-seconds of admitted work that the core still has to do.
    work: f64,
    id: TaskId,
    /// The owner's numbers of the task's customers, and the other way round.
    numbers: HashMap<CustomerId, CustomerId>,
    own: HashMap<CustomerId, CustomerId>,
}

impl Task {
    fn new(owner: &mut Owner, limits: Limits) -> Self {
        let (now, seen) = (Timestamp::ZERO, Observation::default());
        let mut gate = Gate::new(now, AdmissionConfig::new(1.0).expect("a core"), Mode::Protect, seen);
        let mut limiter = Limiter::new(now);
        limiter.set_limits(now, TASKS as u32, limits);
        let hello = limiter.connect(now, 1.0).message;
        gate.set_fleet_limits(limiter);
        let id = owner.join(now, &hello, None).expect("it holds nothing");
        Self { gate, running: VecDeque::new(), seen, work: 0.0, id, numbers: HashMap::new(), own: HashMap::new() }
    }

    /// A millisecond of work.
    fn work(&mut self, now: Timestamp) {
        self.run(now, 0.001);
        self.gate.observe(now, self.seen, &Gauges::default());
    }

    /// The core works for some seconds.
    fn run(&mut self, now: Timestamp, seconds: f64) {
        let done = self.work.min(seconds);
        self.work -= done;
        self.seen.cpu += done;
        while self.running.front().is_some_and(|(end, ..)| *end <= self.seen.cpu + 1e-9) {
            let (_, cost, entry) = self.running.pop_front().expect("just seen");
            self.seen.charged += cost;
            self.gate.end(now, entry, cost);
        }
    }

    /// The reason why a request is refused.
    fn ask(&mut self, now: Timestamp, customer: u64, rng: &mut Pcg64Mcg) -> Result<(), Rejection> {
        self.ask_at(now, customer, Criticality::Critical, COST, rng)
    }

    /// The same for a request of this criticality and cost.
    fn ask_at(
        &mut self,
        now: Timestamp,
        customer: u64,
        criticality: Criticality,
        cost: f64,
        rng: &mut Pcg64Mcg,
    ) -> Result<(), Rejection> {
        let arrival = Arrival {
            criticality,
            kind: Kind { route: 1, customer },
            quota: Quota::UNLIMITED,
            timeout: None,
            cohort: None,
            is_retry: false,
        };
        match self.gate.ask_for(now, &customer.to_be_bytes(), &arrival, rng) {
            GateVerdict::Admitted(entry) | GateVerdict::WouldShed(entry, _) => {
                self.work += cost;
                self.running.push_back((self.seen.cpu + self.work, cost, entry));
                Ok(())
            }
            GateVerdict::Shed(shed) => Err(shed.reason),
        }
    }

    /// The report that is due, with the owner's numbers.
    fn report(&mut self, now: Timestamp) -> Option<Report> {
        let report = self.gate.fleet_limits()?.poll(now)?;
        for Introduction { customer: number, name, .. } in report.names {
            // Requests without a customer have no name.
            let customer = name[..].try_into().map_or(0, u64::from_be_bytes);
            self.numbers.insert(number, CustomerId(customer as u32));
            self.own.insert(CustomerId(customer as u32), number);
        }
        let mut message = report.message;
        message.entries.iter_mut().for_each(|entry| entry.customer = self.numbers[&entry.customer]);
        message.dropped.clear();
        Some(message)
    }

    fn assign(&mut self, now: Timestamp, mut assignment: Assignment) {
        assignment.entries.iter_mut().for_each(|entry| entry.customer = self.own[&entry.customer]);
        self.gate.fleet_limits().expect("set").assign(now, &assignment).expect("in order");
    }
}

/// Each customer asks each of its tasks for `demand` CPUs, for 40 s. Returns the CPUs of both at the first task, and
/// the messages to all tasks, in the last 20 s.
fn first_task(soft: [Option<u64>; 2], demand: u64) -> ([f64; 2], usize) {
    let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
    let mut named = std::collections::BTreeMap::new();
    // Requests without a customer.
    owner.add_customer(Timestamp::ZERO, UNLIMITED);
    for (customer, soft) in [FEW, ALL].into_iter().zip(soft) {
        let id = owner.add_customer(Timestamp::ZERO, UNLIMITED);
        owner.set_soft_limit(id, soft.is_some());
        named.insert(customer, Limit { soft, ..Limit::new(UNLIMITED) });
    }
    let limits = Limits { named, ..Limits::default() };
    let mut tasks: Vec<Task> = (0..TASKS).map(|_| Task::new(&mut owner, limits.clone())).collect();
    let (mut served, mut messages) = ([0.0; 2], 0);
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for ms in 0..40_000_u64 {
        let now = Timestamp::ZERO + Duration::from_millis(ms);
        owner.handle_timeout(now);
        while let Some((id, assignment)) = owner.poll_assignment() {
            messages += usize::from(ms >= 20_000);
            tasks.iter_mut().find(|task| task.id == id).expect("it joined").assign(now, assignment);
        }
        for (at, task) in tasks.iter_mut().enumerate() {
            task.work(now);
            for customer in if at == 0 { &[FEW, ALL][..] } else { &[ALL] } {
                for _ in 0..demand {
                    let is_served = task.ask(now, *customer, &mut rng).is_ok();
                    if at == 0 && ms >= 20_000 && is_served {
                        served[*customer as usize - 1] += COST / 20.0;
                    }
                }
            }
            if let Some(report) = task.report(now) {
                let answer = owner.report(now, task.id, &report).expect("in order");
                task.assign(now, answer);
            }
        }
    }
    (served, messages)
}

#[test]
fn customer_at_few_tasks_gets_more_of_them_than_one_at_all() {
    // Without soft limits both get half. With equal ones, the demand of one is a quarter of that of the other.
    let ([few, all], _) = first_task([None; 2], 2);
    assert!((0.45..0.55).contains(&few) && (0.45..0.55).contains(&all), "{few} {all}");
    let ([few, all], messages) = first_task([Some(1_000_000); 2], 2);
    assert!((0.75..0.83).contains(&few) && (0.15..0.23).contains(&all), "{few} {all}");
    assert!(messages < 10, "a steady demand needs no messages: {messages}");
}

#[test]
fn shares_are_in_proportion_to_soft_limits() {
    // Four times the limit for the one at all tasks: both have the same demand over it.
    let ([few, all], _) = first_task([Some(1_000_000), Some(4_000_000)], 2);
    assert!((0.45..0.55).contains(&few) && (0.45..0.55).contains(&all), "{few} {all}");
}

#[test]
fn soft_limit_binds_nothing_while_there_is_enough_cpu() {
    let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
    let limit = Limit { soft: Some(1), ..Limit::new(UNLIMITED) };
    let mut task = Task::new(&mut owner, Limits { named: [(FEW, limit)].into(), ..Limits::default() });
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for ms in 0..10_000_u64 {
        let now = Timestamp::ZERO + Duration::from_millis(ms);
        task.work(now);
        // Half of the core.
        assert!(ms % 2 == 0 || task.ask(now, FEW, &mut rng).is_ok(), "{ms} ms");
    }
}

/// Twice the CPU is asked of the first `busy` of four tasks, for 4 s. Returns the reason of the last refusal.
fn refused(busy: usize) -> Rejection {
    let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
    let limits = Limits::default();
    let mut tasks: Vec<Task> = (0..TASKS).map(|_| Task::new(&mut owner, limits.clone())).collect();
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut last = None;
    for ms in 0..4_000_u64 {
        let now = Timestamp::ZERO + Duration::from_millis(ms);
        for (at, task) in tasks.iter_mut().enumerate() {
            task.work(now);
            for _ in 0..if at < busy { 2 } else { 0 } {
                last = task.ask(now, ALL, &mut rng).err().or(last);
            }
            if let Some(report) = task.report(now) {
                let answer = owner.report(now, task.id, &report).expect("in order");
                task.assign(now, answer);
            }
        }
    }
    assert_eq!(owner.overloaded() as usize, busy);
    for task in &tasks {
        owner.leave(task.id);
    }
    assert_eq!(owner.overloaded(), 0, "nothing is known of tasks that left");
    last.expect("one was refused")
}

#[test]
fn retries_are_advised_against_when_most_tasks_lack_cpu() {
    assert_eq!([1, 2, 3, 4].map(refused), {
        use Rejection::{Overloaded, OverloadedNoRetry};
        [Overloaded, Overloaded, OverloadedNoRetry, OverloadedNoRetry]
    });
}

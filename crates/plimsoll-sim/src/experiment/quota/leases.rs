//! Tasks and the owner of the limits, with messages that take time, and times without owner.

use std::collections::VecDeque;

use plimsoll_core::Timestamp;
use plimsoll_core::quota::{
    Accounts, Assignment, CustomerId, FairShare, Holder, Limit, Owner, OwnerConfig, Report, TaskId,
};

use super::changes::Changes;
use super::customers::Customers;
use super::messages::Sent;
use super::plan::Plan;
use super::rules::Request;

/// CPUs that a task may use: enough for any load here.
const CPUS: f64 = 1_000.0;
/// Weight of a cost in the expected one.
const COST_WEIGHT: f64 = 0.05;

/// A change of the fleet that is due at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A task acts.
    Task(u32),
    /// The owner acts.
    Owner,
    /// A report arrives at the owner.
    ToOwner(u32),
    /// An assignment arrives at a task.
    ToTask(u32),
    /// A task finds the owner.
    Connect(u32),
    /// A task gets the limits of this change.
    Limits(u32, u32),
    /// A step of a change of limits is due.
    RollOut,
    /// A task that crashed is back.
    Restart(u32),
}

pub(super) struct Task {
    holder: Holder,
    pub(super) id: Option<TaskId>,
    /// It crashed, and is not back yet.
    is_down: bool,
    /// Its number at the same owner before its stream ended.
    former: Option<TaskId>,
    reports: VecDeque<Report>,
    assignments: VecDeque<Assignment>,
    /// When it acts next.
    wake: Timestamp,
    /// The expected cost of each customer's requests.
    costs: Vec<f64>,
}

/// The fleet. Each call may make steps due later, which the world is told.
pub(super) struct Fleet<'p> {
    pub(super) plan: &'p Plan,
    config: OwnerConfig,
    /// Changes of limits are tried by one task.
    pub(super) has_trial: bool,
    /// Limits of the customers, and then of the groups that are enforced, in CPUs.
    pub(super) limits: Vec<f64>,
    /// Their soft limits.
    soft: Vec<Option<f64>>,
    /// The account of the group of each customer.
    group_of: Vec<Option<CustomerId>>,
    pub(super) changes: Changes,
    pub(super) owner: Option<Owner>,
    owner_wake: Timestamp,
    pub(super) tasks: Vec<Task>,
    /// The task of each number at the owner.
    by_id: Vec<u32>,
    pub(super) due: Vec<(Timestamp, Step)>,
    pub(super) sent: Sent,
}

impl<'p> Fleet<'p> {
    pub(super) fn new(now: Timestamp, plan: &'p Plan, config: OwnerConfig, has_trial: bool, has_groups: bool) -> Self {
        let Customers { mut limits, mut soft, groups, group_of, .. } = Customers::new(plan);
        let group_of = group_of.into_iter().map(|group| Some(CustomerId(group.filter(|_| has_groups)? as u32)));
        limits.extend(groups.into_iter().filter(|_| has_groups));
        soft.resize(limits.len(), None);
        let costs: Vec<f64> = plan
            .customers
            .iter()
            .flat_map(|customer| std::iter::repeat_n(mean_cost(plan, &customer.name), customer.count.get() as usize))
            .collect();
        let task = |_| Task {
            holder: holder(now, &limits, &soft),
            id: None,
            is_down: false,
            former: None,
            reports: VecDeque::new(),
            assignments: VecDeque::new(),
            wake: Timestamp::ZERO,
            costs: costs.clone(),
        };
        let tasks = (0..plan.tasks.get()).map(task).collect();
        let mut fleet = Self {
            plan,
            config,
            has_trial,
            limits,
            soft,
            group_of: group_of.collect(),
            changes: Changes::default(),
            owner: None,
            owner_wake: now,
            tasks,
            by_id: Vec::new(),
            due: Vec::new(),
            sent: Sent::default(),
        };
        fleet.begin(now);
        fleet
    }

    /// An owner begins, and knows nothing.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let mut owner = Owner::new(now, self.config);
        for (limit, soft) in self.limits.iter().zip(&self.soft) {
            let customer = owner.add_customer(now, (limit * 1e6) as u64);
            owner.set_soft_limit(customer, soft.is_some());
        }
        self.owner = Some(owner);
        self.by_id.clear();
        self.wake_owner(now);
    }

    /// The owner is lost, and all streams with it.
    pub(super) fn lose(&mut self) {
        self.owner = None;
        for task in &mut self.tasks {
            task.holder.disconnect();
            (task.id, task.former) = (None, None);
            task.reports.clear();
            task.assignments.clear();
        }
    }

    /// The steps that are due later, since the last call.
    pub(super) fn due(&mut self) -> impl Iterator<Item = (Timestamp, Step)> {
        std::mem::take(&mut self.due).into_iter()
    }

    /// Whether a request is admitted, also by `admit`: of its expected cost, with the share of its customer.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        request: &Request,
        admit: impl FnOnce(f64, Option<FairShare>) -> bool,
    ) -> bool {
        let Request { customer, task: at, criticality, cost, draw } = *request;
        let task = &mut self.tasks[at];
        if task.is_down {
            return false;
        }
        let expected = &mut task.costs[customer];
        *expected += COST_WEIGHT * (cost - *expected);
        let expected = *expected;
        let customer = CustomerId(customer as u32);
        let accounts = Accounts { customer: Some(customer), group: self.group_of[customer.0 as usize] };
        let (admitted, refusal) = task.holder.ask(now, accounts, criticality, expected, draw);
        let is_admitted = refusal.is_none() && admit(expected, task.holder.fair_share(now, customer, criticality));
        if is_admitted {
            task.holder.take(admitted, cost);
        }
        self.wake(now, at);
        is_admitted
    }

    /// The rates that tasks may use, by customer and group, in µCPU.
    pub(super) fn held(&mut self) -> Vec<f64> {
        let mut held = vec![0.0; self.limits.len()];
        for task in &mut self.tasks {
            for (customer, held) in (0..).zip(&mut held) {
                *held += task.holder.account(CustomerId(customer)).rate();
            }
        }
        held
    }

    pub(super) fn act(&mut self, now: Timestamp, step: Step) {
        match step {
            Step::Task(at) => {
                let task = &mut self.tasks[at as usize];
                if task.wake != now {
                    return;
                }
                if let Some(report) = task.holder.poll(now) {
                    self.sent.reports += 1;
                    self.sent.reported.extend(report.entries.iter().map(|entry| entry.customer.0));
                    task.reports.push_back(report);
                    self.due.push((now + self.plan.delay, Step::ToOwner(at)));
                }
                self.wake(now, at as usize);
                self.reconnect(now, at);
            }
            Step::ToOwner(at) => self.on_report(now, at as usize),
            Step::ToTask(at) => {
                let task = &mut self.tasks[at as usize];
                if let Some(assignment) = task.assignments.pop_front() {
                    task.holder.assign(now, &assignment).expect("messages are in order");
                    self.wake(now, at as usize);
                }
            }
            Step::Owner => {
                if self.owner_wake == now
                    && let Some(owner) = &mut self.owner
                {
                    owner.handle_timeout(now);
                    self.send(now);
                    self.wake_owner(now);
                }
            }
            Step::Connect(at) => self.connect(now, at),
            Step::Limits(at, number) => self.on_limits(now, at, number),
            Step::RollOut => self.roll_out(now),
            Step::Restart(at) => {
                self.tasks[at as usize].is_down = false;
                self.due.push((now + 2 * self.plan.delay, Step::Connect(at)));
            }
        }
    }

    /// A stream without an answer is over after the lease, and the task finds the owner again. Until then all messages
    /// of that stream have arrived.
    fn reconnect(&mut self, now: Timestamp, at: u32) {
        let task = &mut self.tasks[at as usize];
        let (Some(owner), Some(id)) = (&mut self.owner, task.id) else { return };
        if !task.holder.is_connected() {
            owner.leave(id);
            task.reports.clear();
            task.assignments.clear();
            (task.id, task.former) = (None, Some(id));
            self.due.push((now + 2 * self.plan.delay + self.plan.reconnect, Step::Connect(at)));
        }
    }

    fn connect(&mut self, now: Timestamp, at: u32) {
        let (Some(owner), task) = (&mut self.owner, &mut self.tasks[at as usize]) else { return };
        if task.id.is_some() {
            // It found this owner on its way to the one before.
            return;
        }
        if task.is_down {
            return;
        }
        let hello = task.holder.connect(now, CPUS);
        let id = owner.join(now, &hello, task.former.take()).expect("customers are known, each once");
        if self.by_id.len() <= id.0 as usize {
            self.by_id.resize(id.0 as usize + 1, at);
        }
        self.by_id[id.0 as usize] = at;
        task.id = Some(id);
        if let Some(number) = self.changes.in_force() {
            self.due.push((now + self.plan.delay, Step::Limits(at, number as u32)));
        }
        self.wake(now, at as usize);
        self.wake_owner(now);
        self.roll_out(now);
    }

    /// A task ends with all that it knows.
    pub(super) fn crash(&mut self, now: Timestamp, at: u32) {
        let task = &mut self.tasks[at as usize];
        if let (Some(owner), Some(id)) = (&mut self.owner, task.id.take()) {
            owner.leave(id);
            self.changes.on_leave(id);
        }
        task.holder = holder(now, &self.limits, &self.soft);
        task.reports.clear();
        task.assignments.clear();
        (task.former, task.is_down) = (None, true);
        self.due.push((now + self.plan.restart, Step::Restart(at)));
    }

    fn on_report(&mut self, now: Timestamp, at: usize) {
        let task = &mut self.tasks[at];
        let (Some(owner), Some(id), Some(report)) = (&mut self.owner, task.id, task.reports.pop_front()) else {
            return;
        };
        let answer = owner.report(now, id, &report).expect("reports are in order");
        self.sent.answered(&answer);
        self.tasks[at].assignments.push_back(answer);
        self.due.push((now + self.plan.delay, Step::ToTask(at as u32)));
        self.wake_owner(now);
        self.changes.on_report(now, id);
        self.roll_out(now);
    }

    fn send(&mut self, now: Timestamp) {
        let Some(owner) = &mut self.owner else { return };
        while let Some((id, assignment)) = owner.poll_assignment() {
            let at = self.by_id[id.0 as usize];
            self.sent.answered(&assignment);
            self.tasks[at as usize].assignments.push_back(assignment);
            self.due.push((now + self.plan.delay, Step::ToTask(at)));
        }
    }

    fn wake(&mut self, now: Timestamp, at: usize) {
        let task = &mut self.tasks[at];
        let Some(due) = task.holder.poll_timeout(now) else { return };
        let due = due.max(now);
        if task.wake <= now || due < task.wake {
            task.wake = due;
            self.due.push((due, Step::Task(at as u32)));
        }
    }

    pub(super) fn wake_owner(&mut self, now: Timestamp) {
        let Some(owner) = &self.owner else { return };
        let due = owner.poll_timeout().max(now);
        if self.owner_wake <= now || due < self.owner_wake {
            self.owner_wake = due;
            self.due.push((due, Step::Owner));
        }
    }
}

/// A task with the accounts of all customers.
fn holder(now: Timestamp, limits: &[f64], soft: &[Option<f64>]) -> Holder {
    let mut holder = Holder::new(now);
    for (limit, soft) in limits.iter().zip(soft) {
        let customer = holder.add(now);
        if let Some(soft) = soft {
            let micro = |cpus: f64| (cpus * 1e6) as u64;
            holder.set_limit(now, customer, Limit { soft: Some(micro(*soft)), ..Limit::new(micro(*limit)) });
        }
    }
    holder
}

/// The mean cost of a customer's requests, in CPU-microseconds: services know it from earlier days.
fn mean_cost(plan: &Plan, customer: &str) -> f64 {
    let of = plan.sources.iter().filter(|source| source.customer == customer);
    let (rate, cpu) = of.fold((0.0, 0.0), |(rate, cpu), source| {
        (rate + source.rate, cpu + source.rate * source.cost.as_secs_f64() * 1e6)
    });
    if rate > 0.0 { cpu / rate } else { 0.0 }
}

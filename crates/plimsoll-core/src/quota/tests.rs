//! Owner and tasks together, with messages that are lost, late and repeated.

extern crate std;

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::outlook::Outlook;
use crate::{Criticality, Timestamp};

mod criticality;
mod newcomer;
mod tenure;

/// A message under way, on the stream of its task with this generation.
#[derive(Clone, Debug)]
enum Message {
    Report(u32, Report),
    Assignment(u32, Assignment),
}

/// A fleet of tasks with one customer, its owner, and the messages between them.
#[derive(Clone)]
struct Fleet {
    now: Timestamp,
    owner: Owner,
    customer: CustomerId,
    tasks: Vec<Task>,
}

#[derive(Clone)]
struct Task {
    holder: Holder,
    id: Option<TaskId>,
    /// Counts its streams.
    generation: u32,
    messages: Vec<Message>,
    /// It joined again: for the first time, and the last time since it acknowledged all of a stream.
    rejoined: Option<(Timestamp, Timestamp)>,
}

impl Fleet {
    fn new(tasks: usize, limit: u64) -> Self {
        let now = Timestamp::ZERO;
        let mut owner = Owner::new(now, OwnerConfig::default());
        let customer = owner.add_customer(now, limit);
        let task = |_| {
            let mut holder = Holder::new(now);
            holder.add(now);
            Task { holder, id: None, generation: 0, messages: Vec::new(), rejoined: None }
        };
        Self { now, owner, customer, tasks: (0..tasks).map(task).collect() }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.owner.handle_timeout(self.now);
        while let Some((id, assignment)) = self.owner.poll_assignment() {
            if let Some(task) = self.tasks.iter_mut().find(|task| task.id == Some(id)) {
                task.messages.push(Message::Assignment(task.generation, assignment));
            }
        }
        for task in &mut self.tasks {
            if let Some(report) = task.holder.poll(self.now) {
                task.messages.push(Message::Report(task.generation, report));
            }
        }
    }

    fn connect(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        task.generation += 1;
        if task.id.is_some() {
            task.rejoined = Some((task.rejoined.map_or(self.now, |(first, _)| first), self.now));
        }
        let hello = task.holder.connect(self.now, 1_000.0);
        task.id = Some(self.owner.join(self.now, &hello, task.id).expect("known customers"));
    }

    fn disconnect(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        task.holder.disconnect();
        if let Some(id) = task.id {
            self.owner.leave(id);
        }
    }

    fn offer(&mut self, at: usize, cost: f64) {
        let account = self.tasks[at].holder.account(CustomerId(0));
        if account.ask(self.now, Criticality::Critical, cost, 0.0).is_ok() {
            account.take(cost);
        }
    }

    /// Delivers the message at this place. A message of a former stream has no receiver, and one that
    /// is refused ends the stream.
    fn deliver(&mut self, at: usize, place: usize, is_repeated: bool) {
        let task = &mut self.tasks[at];
        if task.messages.is_empty() {
            return;
        }
        let place = place % task.messages.len();
        let message = if is_repeated { task.messages[place].clone() } else { task.messages.remove(place) };
        let is_refused = match message {
            Message::Report(generation, report) if generation == task.generation => {
                let id = task.id.expect("it joined");
                match self.owner.report(self.now, id, &report) {
                    Ok(answer) => {
                        let has_all = report.acknowledged > 0 && report.acknowledged + 1 == answer.number;
                        task.rejoined.take_if(|(_, last)| has_all && self.now > *last + Duration::from_secs(1));
                        task.messages.push(Message::Assignment(generation, answer));
                        false
                    }
                    Err(_) => true,
                }
            }
            Message::Assignment(generation, assignment) if generation == task.generation => {
                task.holder.assign(self.now, &assignment).is_err()
            }
            _ => false,
        };
        if is_refused {
            self.disconnect(at);
        }
    }

    /// The rates in use.
    fn used(&mut self) -> u64 {
        let rate = |task: &mut Task| {
            let account = task.holder.account(CustomerId(0));
            account.hold(CustomerId(0)).map_or(0, |hold| u64::from(hold.rate))
        };
        self.tasks.iter_mut().map(rate).sum()
    }

    /// Delivers everything in order for some time.
    fn settle(&mut self, ms: u64, mut offer: impl FnMut(&mut Self)) {
        for _ in 0..ms / 10 {
            self.pass(10);
            offer(self);
            for at in 0..self.tasks.len() {
                while !self.tasks[at].messages.is_empty() {
                    self.deliver(at, 0, false);
                }
            }
        }
    }
}

#[test]
fn rates_follow_the_demand_and_use_the_limit() {
    let mut fleet = Fleet::new(4, 1_000_000);
    (0..4).for_each(|at| fleet.connect(at));
    // 600, 1,200, 100 and 100 ms of work each second.
    fleet.settle(20_000, |fleet| {
        for (at, cost) in [6_000.0, 12_000.0, 1_000.0, 1_000.0].into_iter().enumerate() {
            fleet.offer(at, cost);
        }
    });
    let rates: Vec<f64> = (0..4).map(|at| fleet.tasks[at].holder.account(CustomerId(0)).rate()).collect();
    for (rate, expected) in rates.iter().zip([300_000.0, 600_000.0, 50_000.0, 50_000.0]) {
        assert!((rate - expected).abs() < expected * 0.06 + 5_000.0, "{rates:?}");
    }
    let total: f64 = rates.iter().sum();
    assert!(total <= 1_000_000.0 && total > 950_000.0, "{rates:?}");
}

#[test]
fn lost_task_gives_its_rate_back_after_its_lease() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    let both = |fleet: &mut Fleet| (0..2).for_each(|at| fleet.offer(at, 8_000.0));
    fleet.settle(20_000, both);
    let held = |fleet: &Fleet| fleet.owner.customer(fleet.customer).held;
    assert!(held(&fleet) > 950_000);
    fleet.disconnect(1);
    fleet.settle(30_000, |fleet| fleet.offer(0, 8_000.0));
    let of_first = |fleet: &mut Fleet| fleet.tasks[0].holder.account(CustomerId(0)).rate();
    assert!(of_first(&mut fleet) < 600_000.0);
    fleet.settle(40_000, |fleet| fleet.offer(0, 8_000.0));
    assert!(of_first(&mut fleet) > 750_000.0, "{}", of_first(&mut fleet));
}

#[test]
fn new_owner_distributes_what_tasks_hold_until_a_lease_has_passed() {
    let mut fleet = Fleet::new(3, 900_000);
    (0..3).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| (0..3).for_each(|at| fleet.offer(at, 9_000.0)));
    // Two of three tasks find the new owner.
    fleet.owner = Owner::new(fleet.now, OwnerConfig::default());
    fleet.customer = fleet.owner.add_customer(fleet.now, 900_000);
    for at in 0..3 {
        fleet.tasks[at].holder.disconnect();
        fleet.tasks[at].id = None;
        fleet.tasks[at].messages.clear();
    }
    let used = fleet.used();
    fleet.connect(0);
    fleet.connect(1);
    fleet.settle(30_000, |fleet| fleet.offer(0, 9_000.0));
    assert!(fleet.owner.is_unsure() && fleet.used() <= used, "{} of {used}", fleet.used());
    let rate = fleet.tasks[0].holder.account(CustomerId(0)).rate();
    assert!(rate > 550_000.0, "the first has the part of the second: {rate}");
    fleet.settle(31_000, |fleet| fleet.offer(0, 9_000.0));
    assert!(!fleet.owner.is_unsure());
}

#[test]
fn task_whose_owner_is_lost_before_it_answers_waits_for_the_leases_of_others() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| {
        fleet.offer(0, 20_000.0);
        fleet.offer(1, 1.0);
    });
    (0..2).for_each(|at| fleet.disconnect(at));
    let mut rate = |ms, is_connected| {
        fleet.pass(ms);
        let holder = &mut fleet.tasks[1].holder;
        if is_connected {
            holder.connect(fleet.now, 1.0);
            holder.disconnect();
        }
        (holder.fallback(), holder.account(CustomerId(0)).rate() > 400_000.0)
    };
    assert_eq!(rate(50_000, true), (Fallback::None, false), "another owner is there, and is lost");
    assert_eq!(rate(11_000, false), (Fallback::Cautious, false));
    assert_eq!(rate(49_000, false), (Fallback::Cautious, false), "the other task may have a lease of it");
    assert_eq!(rate(3_000, false), (Fallback::Even, true));
}

#[test]
fn first_start_is_over_after_five_seconds() {
    let mut fleet = Fleet::new(1, 1_000_000);
    fleet.connect(0);
    fleet.settle(4_900, |fleet| fleet.offer(0, 20_000.0));
    assert_eq!((fleet.owner.is_unsure(), fleet.used()), (true, 0));
    fleet.settle(2_000, |fleet| fleet.offer(0, 20_000.0));
    assert!(!fleet.owner.is_unsure() && fleet.used() > 900_000, "{}", fleet.used());
}

/// A step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Offer(usize, u32),
    Deliver(usize, usize),
    Repeat(usize, usize),
    Lose(usize, usize),
    Disconnect(usize),
    Connect(usize),
    Crash(usize),
    Limit(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let task = 0_usize..4;
    prop_oneof![
        3 => (1_u64..2_000).prop_map(Step::Pass),
        4 => (task.clone(), 0_u32..400_000).prop_map(|(at, cost)| Step::Offer(at, cost)),
        8 => (task.clone(), Just(0)).prop_map(|(at, place)| Step::Deliver(at, place)),
        1 => (task.clone(), 0_usize..4).prop_map(|(at, place)| Step::Deliver(at, place)),
        1 => (task.clone(), 0_usize..4).prop_map(|(at, place)| Step::Repeat(at, place)),
        1 => (task.clone(), 0_usize..4).prop_map(|(at, place)| Step::Lose(at, place)),
        1 => task.clone().prop_map(Step::Disconnect),
        2 => task.clone().prop_map(Step::Connect),
        1 => task.prop_map(Step::Crash),
        1 => (1_u32..2_000_000).prop_map(Step::Limit),
    ]
}

impl Fleet {
    fn act(&mut self, step: Step) {
        match step {
            Step::Pass(ms) => self.pass(ms),
            Step::Offer(at, cost) => self.offer(at, f64::from(cost)),
            Step::Deliver(at, place) => self.deliver(at, place, false),
            Step::Repeat(at, place) => self.deliver(at, place, true),
            Step::Lose(at, place) => {
                let messages = &mut self.tasks[at].messages;
                if !messages.is_empty() {
                    let place = place % messages.len();
                    messages.remove(place);
                }
            }
            Step::Disconnect(at) => self.disconnect(at),
            Step::Connect(at) => self.connect(at),
            // It joins by another name.
            Step::Crash(at) => {
                self.disconnect(at);
                let mut holder = Holder::new(self.now);
                holder.add(self.now);
                self.tasks[at] = Task { holder, id: None, generation: 0, messages: Vec::new(), rejoined: None };
            }
            Step::Limit(limit) => self.owner.set_limit(self.customer, u64::from(limit)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The rates in use are within those that the owner counts, and these within the limit, as long as no
    /// task falls back to its even part, or loses its streams for 10 s without an acknowledgement.
    #[test]
    fn rates_in_use_are_within_the_limit_whatever_happens_to_messages(steps in prop::collection::vec(step(), 1..120)) {
        let mut fleet = Fleet::new(4, 1_000_000);
        (0..4).for_each(|at| fleet.connect(at));
        fleet.settle(6_000, |_| ());
        // Rates above a lower limit are given back one after the other.
        let mut highest = 1_000_000;
        for step in steps {
            if let Step::Limit(limit) = step {
                highest = highest.max(u64::from(limit));
            }
            fleet.act(step);
            let state = fleet.owner.customer(fleet.customer);
            prop_assert!(state.held <= granted(highest), "{} of {highest}", state.held);
            let is_fallback = fleet.tasks.iter().any(|task| task.holder.fallback() != Fallback::None);
            let is_late = |task: &Task| task.rejoined.is_some_and(|(first, last)| last > first + Duration::from_secs(10));
            if !is_fallback && !fleet.tasks.iter().any(is_late) {
                let used = fleet.used();
                prop_assert!(used <= state.held, "{used} used, {} held", state.held);
            }
        }
    }
}

/// All histories of two tasks up to a length: each step is one of a few that matter.
#[test]
fn rates_in_use_are_within_the_limit_in_every_short_history() {
    const LENGTH: u32 = 6;
    let steps = [
        Step::Offer(0, 500_000),
        Step::Offer(1, 500_000),
        Step::Pass(120),
        Step::Deliver(0, 0),
        Step::Deliver(1, 0),
        Step::Deliver(0, 1),
        Step::Lose(0, 0),
        Step::Disconnect(0),
        Step::Connect(0),
    ];
    let mut begin = Fleet::new(2, 100_000);
    (0..2).for_each(|at| begin.connect(at));
    begin.settle(5_100, |_| ());
    begin.offer(0, 500_000.0);
    begin.settle(1_200, |_| ());
    let mut greatest = 0;
    for history in 0..steps.len().pow(LENGTH) {
        let mut fleet = begin.clone();
        let mut code = history;
        for _ in 0..LENGTH {
            fleet.act(steps[code % steps.len()]);
            code /= steps.len();
            let held = fleet.owner.customer(fleet.customer).held;
            let used = fleet.used();
            assert!(used <= held && held <= granted(100_000), "history {history}: {used} used, {held} held");
            greatest = greatest.max(held);
        }
    }
    assert!(greatest > 90_000, "{greatest}: nothing was granted");
}

#[test]
fn new_owner_is_sure_when_all_tasks_are_back() {
    let mut fleet = Fleet::new(20, 1_000_000);
    (0..20).for_each(|at| fleet.connect(at));
    let some = |fleet: &mut Fleet| (0..2).for_each(|at| fleet.offer(at, 10_000.0));
    fleet.settle(10_000, |fleet| (0..20).for_each(|at| fleet.offer(at, 10_000.0)));
    (0..20).for_each(|at| fleet.disconnect(at));
    fleet.settle(70_000, some);
    assert!(fleet.tasks.iter().all(|task| task.holder.fallback() == Fallback::Even));
    fleet.owner = Owner::new(fleet.now, OwnerConfig::default());
    fleet.customer = fleet.owner.add_customer(fleet.now, 1_000_000);
    for task in &mut fleet.tasks {
        task.id = None;
        task.messages.clear();
    }
    assert!(fleet.used() > 970_000, "{}", fleet.used());
    (0..19).for_each(|at| fleet.connect(at));
    fleet.settle(5_000, some);
    assert!(fleet.owner.is_unsure());
    fleet.connect(19);
    fleet.settle(1_000, some);
    assert!(!fleet.owner.is_unsure(), "all tasks of before are back");
    let rates: Vec<f64> = (0..20).map(|at| fleet.tasks[at].holder.account(CustomerId(0)).rate()).collect();
    assert!(rates[..2].iter().sum::<f64>() > 900_000.0, "{rates:?} {:?}", fleet.owner.customer(fleet.customer));
}

#[test]
fn task_that_joins_a_new_owner_again_brings_nothing_more() {
    let mut fleet = Fleet::new(4, 1_000_000);
    (0..4).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| (0..4).for_each(|at| fleet.offer(at, 9_000.0)));
    fleet.owner = Owner::new(fleet.now, OwnerConfig::default());
    fleet.customer = fleet.owner.add_customer(fleet.now, 1_000_000);
    for task in &mut fleet.tasks {
        task.holder.disconnect();
        task.id = None;
        task.messages.clear();
    }
    for _ in 0..5 {
        fleet.connect(0);
        fleet.settle(1_000, |fleet| fleet.offer(0, 9_000.0));
        fleet.disconnect(0);
    }
    assert!(fleet.owner.is_unsure() && fleet.used() <= 980_000, "{}", fleet.used());
}

#[test]
fn attempts_to_join_do_not_put_the_even_part_off() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| fleet.offer(0, 20_000.0));
    fleet.disconnect(1);
    for _ in 0..20 {
        fleet.pass(5_000);
        fleet.tasks[1].holder.connect(fleet.now, 1.0);
        fleet.tasks[1].holder.disconnect();
    }
    fleet.pass(5_000);
    assert_eq!(fleet.tasks[1].holder.fallback(), Fallback::Even);
}

#[test]
fn floors_of_returning_tasks_are_within_the_limit() {
    let mut fleet = Fleet::new(50, 1_000_000);
    (0..50).for_each(|at| fleet.connect(at));
    fleet.settle(6_000, |fleet| (0..50).for_each(|at| fleet.offer(at, 100.0)));
    fleet.owner = Owner::new(fleet.now, OwnerConfig::default());
    fleet.customer = fleet.owner.add_customer(fleet.now, 1_000_000);
    for at in 0..50 {
        fleet.tasks[at].holder.disconnect();
        fleet.tasks[at].id = None;
        fleet.tasks[at].messages.clear();
    }
    for at in 0..49 {
        fleet.connect(at);
        fleet.settle(1_200, |_| ());
        let floor = |task: &mut Task| {
            let account = task.holder.account(CustomerId(0));
            account.rate() - account.hold(CustomerId(0)).map_or(0.0, |hold| f64::from(hold.rate))
        };
        let floors: f64 = fleet.tasks.iter_mut().map(floor).sum();
        assert!((19_000.0..=20_000.0).contains(&floors), "2% of the limit are floors, and with {at} tasks {floors}");
    }
}

#[test]
fn stream_without_answers_ends_before_the_even_part_is_used() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    // The first has a tenth of the demand, and so of the limit.
    let uneven =
        |fleet: &mut Fleet| [(0, 2_000.0), (1, 18_000.0)].iter().for_each(|(at, cost)| fleet.offer(*at, *cost));
    fleet.settle(20_000, uneven);
    // Its reports arrive, and no answer comes back for longer than a lease.
    let mut late = Vec::new();
    for _ in 0..6_500 {
        fleet.pass(10);
        uneven(&mut fleet);
        while !fleet.tasks[1].messages.is_empty() {
            fleet.deliver(1, 0, false);
        }
        late.extend(fleet.tasks[0].messages.extract_if(.., |message| matches!(message, Message::Assignment(..))));
        while !fleet.tasks[0].messages.is_empty() {
            fleet.deliver(0, 0, false);
            late.extend(fleet.tasks[0].messages.extract_if(.., |message| matches!(message, Message::Assignment(..))));
        }
    }
    let task = &mut fleet.tasks[0];
    assert!(task.holder.fallback() == Fallback::Even && !task.holder.is_connected() && late.len() > 50);
    task.messages = late;
    fleet.deliver(0, 0, false);
    assert_eq!(fleet.tasks[0].holder.fallback(), Fallback::Even, "the owner does not know the even part yet");
    fleet.tasks[0].messages.clear();
    fleet.connect(0);
    let held = fleet.owner.customer(fleet.customer).held;
    assert!(fleet.used() > held && held <= granted(1_000_000), "the owner did not grant the even part: {held}");
    fleet.settle(10, |_| ());
    let held = fleet.owner.customer(fleet.customer).held;
    assert!(fleet.used() <= held && held <= granted(1_000_000), "{} of {held}", fleet.used());
}

#[test]
fn task_that_asks_gets_a_credit_once() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(10_000, |fleet| fleet.offer(0, 4_000.0));
    // A burst at the other task, which has no rate.
    let report = |number, acknowledged| Report {
        number,
        acknowledged,
        dropped: Vec::new(),
        overloaded: None,
        entries: [ReportEntry {
            customer: CustomerId(0),
            demand: [0; 4],
            cost: 1_000,
            lacking: 60_000,
            unused: 0,
            used: 0,
        }]
        .into(),
    };
    let hello = Hello { cpus: 1.0, tasks: None, holds: Vec::new() };
    let late = fleet.owner.join(fleet.now, &hello, None).expect("nothing is held");
    let first = fleet.owner.report(fleet.now, late, &report(1, 0)).expect("a good report");
    let second = fleet.owner.report(fleet.now, late, &report(2, 1)).expect("a good report");
    let credits = [first, second].map(|answer| answer.entries[0].credit);
    assert_eq!(credits, [60_000, 40_000], "0.1 s of the limit is lent");
}

#[test]
fn mean_cost_is_of_requests_and_not_of_reports() {
    let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let mut owner = Owner::new(ms(0), OwnerConfig::default());
    let customer = owner.add_customer(ms(0), 1_000_000);
    let hello = |holds| Hello { cpus: 8.0, tasks: None, holds };
    let [cheap, dear] = [(); 2].map(|()| owner.join(ms(0), &hello(Vec::new()), None).expect("nothing is held"));
    // Not known: its rate counts for no cost.
    let held = Hold { customer, rate: 900_000 };
    owner.join(ms(0), &hello([held].into()), None).expect("a known customer");
    let mut numbers = [0; 2];
    let mut report = |owner: &mut Owner, at: usize, requests: u64| {
        let cost = [1_000, 3_000][at];
        numbers[at] += 1;
        let demand = [requests * u64::from(cost), 0, 0, 0];
        let entry = ReportEntry { customer, demand, cost, lacking: 0, unused: 0, used: 0 };
        let (acknowledged, dropped) = (0, Vec::new());
        let entries = [entry].into();
        let report = Report { number: numbers[at], acknowledged, entries, dropped, overloaded: None };
        owner.report(ms(6_000), [cheap, dear][at], &report).expect("a good report");
        owner.mean_cost(customer)
    };
    let near = |cost: f64, expected: f64| (cost - expected).abs() < 0.003 * expected;
    assert!(near(report(&mut owner, 0, 100), 1_000.0));
    // The dear one reports four times as often, with as many requests each second.
    for _ in 0..100 {
        for _ in 0..4 {
            report(&mut owner, 1, 100);
        }
        report(&mut owner, 0, 100);
    }
    let cost = report(&mut owner, 1, 100);
    assert!(near(cost, 2_000.0), "{cost}");
    // Without requests the last one stays.
    report(&mut owner, 0, 0);
    owner.leave(dear);
    owner.handle_timeout(ms(600_000));
    let last = owner.mean_cost(customer);
    assert!(near(last, 3_000.0), "{last}");
}

/// The credit of a task that asks for 0.5 s of a limit of one CPU, after another one gave this much back.
fn credit_after(outlook: Outlook, unused: u32, requests: u32) -> u32 {
    let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let mut owner = Owner::new(ms(0), OwnerConfig { outlook, ..OwnerConfig::default() });
    let customer = owner.add_customer(ms(0), 1_000_000);
    let hello = Hello { cpus: 8.0, tasks: None, holds: Vec::new() };
    let [giver, asker] = [(); 2].map(|()| owner.join(ms(0), &hello, None).expect("nothing is held"));
    owner.handle_timeout(ms(6_000));
    let report = |number, cpu: u64, lacking, unused| Report {
        number,
        acknowledged: number - 1,
        dropped: Vec::new(),
        overloaded: None,
        entries: [ReportEntry {
            customer,
            demand: [cpu, 0, 0, 0],
            cost: 1_000_000 / requests,
            lacking,
            unused,
            used: cpu,
        }]
        .into(),
    };
    // It has all of the limit, and takes what is left of the credits.
    let rate = owner.report(ms(6_000), giver, &report(1, 2_000_000, 1_000_000, 0)).expect("a good report").entries[0];
    assert!(rate.rate > 950_000, "{rate:?}");
    owner.report(ms(7_000), giver, &report(2, 2_000_000, 0, unused)).expect("a good report");
    let answer = owner.report(ms(7_000), asker, &report(1, 0, 500_000, 0)).expect("a good report");
    answer.entries[0].credit
}

#[test]
fn what_a_task_gives_back_is_lent_to_others() {
    // At most 0.1 s of the limit, or 16 requests, or 0.5 s of the limit.
    for (outlook, unused, requests, credit) in [
        (Outlook::Optimistic, 0, 1_000, 0_u32),
        (Outlook::Optimistic, 40_000, 1_000, 40_000),
        (Outlook::Optimistic, 900_000, 1_000, 100_000),
        (Outlook::Optimistic, 900_000, 50, 320_000),
        (Outlook::Optimistic, 900_000, 10, 500_000),
        (Outlook::Pessimistic, 900_000, 1_000, 0),
    ] {
        let got = credit_after(outlook, unused, requests);
        assert!(got.abs_diff(credit) < 3, "{got} of {unused} where {credit} is due");
    }
}

#[test]
fn task_gives_back_no_more_than_its_rate() {
    let mut fleet = Fleet::new(2, 1_000_000);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| (0..2).for_each(|at| fleet.offer(at, 20_000.0)));
    let rate = fleet.tasks[0].holder.account(CustomerId(0)).rate();
    assert!((rate - 500_000.0).abs() < 30_000.0, "{rate}");
    // It lies with each report, and its credits are the sum of what it got.
    let mut credits = 0;
    for _ in 0..500 {
        fleet.pass(10);
        let account = fleet.tasks[0].holder.account(CustomerId(0));
        let level = account.level(fleet.now).0;
        account.take(level.max(0.0));
        for message in &mut fleet.tasks[0].messages {
            if let Message::Report(_, report) = message {
                let entry = |unused| ReportEntry {
                    customer: CustomerId(0),
                    demand: [0, 2_000_000, 0, 0],
                    cost: 20_000,
                    lacking: 500_000,
                    unused,
                    used: 0,
                };
                report.entries = [entry(u32::MAX)].into();
            }
        }
        while !fleet.tasks[0].messages.is_empty() {
            if let Message::Assignment(_, assignment) = &fleet.tasks[0].messages[0] {
                credits += assignment.entries.iter().map(|entry| entry.credit).sum::<u32>();
            }
            fleet.deliver(0, 0, false);
        }
    }
    // In 5 s, and what credits may hold at first.
    assert!(credits > 500_000 && f64::from(credits) < 6.0 * rate, "{credits} in 5 s at a rate of {rate}");
}

#[test]
fn small_account_gives_back_once_what_it_could_not_use() {
    let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let mut holder = Holder::new(ms(0));
    let customer = holder.add(ms(0));
    holder.connect(ms(0), 1.0);
    let entry = |rate| AssignmentEntry {
        customer,
        limit: 100_000,
        rate,
        credit: 0,
        cut: Cut::NONE,
        fleet: Some(FleetUse::default()),
    };
    let assignment = Assignment {
        number: 1,
        answers: 0,
        lease: OwnerConfig::DEFAULT_LEASE,
        tasks: 8,
        overloaded: None,
        is_overdue: false,
        entries: [entry(3_000)].into(),
    };
    holder.assign(ms(0), &assignment).expect("the first one");
    let account = holder.account(customer);
    account.ask(ms(0), Criticality::Critical, 2_000.0, 0.0).expect("it is full");
    account.take(2_000.0);
    let given = |holder: &mut Holder, at| {
        let report = holder.poll(ms(at)).expect("a report is due");
        report.entries.iter().map(|entry| entry.unused).sum::<u32>()
    };
    // 3.25 ms a second, of which the request took 2 ms. The demand is known after the first report.
    assert_eq!([1_000, 2_000].map(|at| given(&mut holder, at)), [0, 4_500]);
    // With all of the padding above the demand, there is enough for all.
    let assignment = Assignment { number: 2, entries: [entry(10_000)].into(), ..assignment };
    holder.assign(ms(2_000), &assignment).expect("the second one");
    assert_eq!(given(&mut holder, 3_000), 0);
}

#[test]
fn even_part_is_for_the_most_critical_requests_of_the_task() {
    let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let mut holder = Holder::new(ms(0));
    let customer = holder.add(ms(0));
    holder.connect(ms(0), 1.0);
    let entry = AssignmentEntry {
        customer,
        limit: 1_000_000,
        rate: 500_000,
        credit: 0,
        cut: Cut::NONE,
        fleet: Some(FleetUse::default()),
    };
    let lease = Duration::from_secs(5);
    let assignment = Assignment {
        number: 1,
        answers: 0,
        lease,
        tasks: 2,
        overloaded: None,
        is_overdue: false,
        entries: [entry].into(),
    };
    holder.poll(ms(1_000)).expect("a report is due");
    holder.assign(ms(1_000), &Assignment { answers: 1, ..assignment }).expect("the first one");
    holder.disconnect();
    // Each second 0.3 s of critical requests and 1.2 s of others, for a rate of 0.5.
    let mut admitted = [0, 0];
    for at in (0..30_000).step_by(10) {
        let now = ms(1_000 + at);
        holder.end_lease(now);
        let levels = [(0, Criticality::Critical, 3_000.0), (1, Criticality::Sheddable, 12_000.0)];
        for (place, criticality, cost) in levels {
            let account = holder.account(customer);
            let draw = (at % 970) as f64 / 970.0;
            if account.ask(now, criticality, cost, draw).is_ok() {
                account.take(cost);
                admitted[place] += u32::from(at >= 10_000);
            }
        }
    }
    assert_eq!(holder.fallback(), Fallback::Even);
    assert!(admitted[0] > 1_990, "{admitted:?} of 2,000 each");
    assert!((250..450).contains(&admitted[1]), "{admitted:?} of 2,000 each, where 333 fit");
}

#[test]
fn customer_without_a_hard_limit_holds_nothing_after_the_lease() {
    let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let mut holder = Holder::new(ms(0));
    let customer = holder.add(ms(0));
    holder.set_limit(ms(0), customer, Limit { soft: Some(1_000_000), ..Limit::new(UNLIMITED) });
    holder.connect(ms(0), 1.0);
    let report = holder.poll(ms(1_000)).expect("the regular report");
    let fleet = FleetUse { demand: [0, 4_000_000, 0, 0], used: 1 };
    let entry = AssignmentEntry { customer, limit: UNLIMITED, rate: 0, credit: 0, cut: Cut::NONE, fleet: Some(fleet) };
    let lease = OwnerConfig::DEFAULT_LEASE;
    let entries = [entry].into();
    let assignment = Assignment {
        number: 1,
        answers: report.number,
        lease,
        tasks: 2,
        overloaded: Some(Criticality::Sheddable),
        is_overdue: false,
        entries,
    };
    holder.assign(ms(1_000), &assignment).expect("the first one");
    assert!(holder.account(customer).ask(ms(1_000), Criticality::Critical, 1_000.0, 0.5).is_ok());
    assert_eq!(
        (holder.account(customer).fleet(), holder.fleet_overload()),
        (Some(fleet), Some(Criticality::Sheddable))
    );
    let of = |holder: &mut Holder| holder.fair_share(ms(1_000), customer, Criticality::Critical);
    assert_eq!(of(&mut holder), Some(FairShare { share: 1.0, demand: Some(2.0) }));
    let silent = holder.fair_share(ms(6_000), customer, Criticality::Critical);
    assert_eq!(silent, Some(FairShare { share: 1.0, demand: None }), "it knows nothing new for 5 s");
    holder.end_lease(ms(61_000));
    holder.end_lease(ms(63_000));
    assert_eq!((holder.fallback(), holder.account(customer).fleet()), (Fallback::Even, None));
    assert!(holder.fleet_overload().is_none() && holder.connect(ms(70_000), 1.0).holds.is_empty());
    assert_eq!(of(&mut holder), Some(FairShare { share: 1.0, demand: None }), "the demand of the fleet is unknown");
}

#[test]
fn account_refuses_by_criticality_when_the_fleet_does() {
    let mut holder = Holder::new(Timestamp::ZERO);
    let customer = holder.add(Timestamp::ZERO);
    holder.connect(Timestamp::ZERO, 1.0);
    let cut = Cut { rank: Criticality::SheddablePlus.rank(), part: 0.5 };
    let entry =
        AssignmentEntry { customer, limit: 1_000_000, rate: 100_000, credit: 0, cut, fleet: Some(FleetUse::default()) };
    let assignment = Assignment {
        number: 1,
        answers: 0,
        lease: OwnerConfig::DEFAULT_LEASE,
        tasks: 2,
        overloaded: None,
        is_overdue: false,
        entries: [entry].into(),
    };
    holder.assign(Timestamp::ZERO, &assignment).expect("the first one");
    let account = holder.account(customer);
    let mut ask =
        |criticality, draw| account.ask(Timestamp::ZERO, criticality, 1_000.0, draw).map(|()| account.take(1_000.0));
    assert_eq!(ask(Criticality::Sheddable, 0.0), Err(Refusal::Cut), "below the cut");
    // The level is full at first, and then only the part passes.
    assert_eq!(ask(Criticality::SheddablePlus, 0.9), Ok(()));
    for _ in 0..5 {
        assert_eq!(ask(Criticality::CriticalPlus, 0.9), Ok(()));
    }
    assert_eq!(ask(Criticality::SheddablePlus, 0.9), Err(Refusal::Cut));
    assert_eq!(ask(Criticality::SheddablePlus, 0.1), Ok(()));
    // The level is empty: above the cut there is debt, at the cut none.
    for _ in 0..6 {
        assert_eq!(ask(Criticality::CriticalPlus, 0.9), Ok(()));
    }
    assert_eq!(ask(Criticality::SheddablePlus, 0.1), Err(Refusal::Spent));
}

#[test]
fn cut_ends_at_a_task_whose_demand_is_below_the_floor() {
    // The floor of each of two tasks is 10 ms of CPU a second, and both ask for more than the limit of one CPU.
    let mut fleet = Fleet::new(2, 1_000_000);
    fleet.connect(0);
    fleet.connect(1);
    fleet.settle(10_000, |fleet| (0..2).for_each(|at| fleet.offer(at, 15_000.0)));
    assert_ne!(fleet.tasks[1].holder.account(CustomerId(0)).cut(), Cut::NONE);
    // One of them asks for a request of 1 ms each 200 ms, and the other one soon for nothing.
    let mut ms = 0;
    let mut few = |fleet: &mut Fleet, is_busy: bool| {
        if is_busy {
            fleet.offer(0, 15_000.0);
        }
        ms += 10;
        if ms % 200 == 0 {
            fleet.offer(1, 1_000.0);
        }
    };
    fleet.settle(15_000, |fleet| few(fleet, true));
    fleet.settle(15_000, |fleet| few(fleet, false));
    let account = fleet.tasks[1].holder.account(CustomerId(0));
    assert_eq!((account.cut(), account.fleet()), (Cut::NONE, None), "the owner does not know of its demand");
}

#[test]
fn fleet_lacks_cpu_for_what_more_than_half_of_the_tasks_lack_it_for() {
    use Criticality::{Critical, Sheddable, SheddablePlus};
    let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
    let join = |owner: &mut Owner| owner.join(Timestamp::ZERO, &Hello::default(), None).expect("it holds nothing");
    let tasks: Vec<TaskId> = (0..4).map(|_| join(&mut owner)).collect();
    for (number, (lacking, expected, count)) in (1..).zip([
        ([Some(Critical), Some(Critical), None, None], None, 2),
        ([Some(Critical), Some(SheddablePlus), Some(Sheddable), None], Some(Sheddable), 3),
        ([Some(Critical), Some(SheddablePlus), Some(SheddablePlus), Some(Sheddable)], Some(SheddablePlus), 4),
        ([Some(Critical), Some(Critical), Some(Critical), None], Some(Critical), 3),
        ([None, None, None, None], None, 0),
    ]) {
        let mut last = None;
        for (task, overloaded) in tasks.iter().zip(lacking) {
            let report = Report { number, overloaded, ..Report::default() };
            last = owner.report(Timestamp::ZERO, *task, &report).expect("in order").overloaded;
            assert_eq!(owner.overload(*task), overloaded);
        }
        assert_eq!((last, owner.overloaded()), (expected, count), "{lacking:?}");
    }
}

/// A fleet of three tasks, of which the first two have the customer with a soft limit.
fn soft() -> Fleet {
    let mut fleet = Fleet::new(3, UNLIMITED);
    fleet.owner.set_soft_limit(fleet.customer, true);
    let limit = Limit { soft: Some(1_000_000), ..Limit::new(UNLIMITED) };
    fleet.tasks.iter_mut().for_each(|task| task.holder.set_limit(Timestamp::ZERO, CustomerId(0), limit));
    (0..3).for_each(|at| fleet.connect(at));
    fleet.settle(10_000, |fleet| (0..2).for_each(|at| fleet.offer(at, 1_000.0)));
    fleet
}

fn known(fleet: &mut Fleet, at: usize) -> Option<u64> {
    fleet.tasks[at].holder.account(CustomerId(0)).fleet().map(|fleet| fleet.total())
}

#[test]
fn answers_to_reports_tell_the_demand_of_all_tasks() {
    let mut fleet = soft();
    let close = |known: Option<u64>, to: f64| known.is_some_and(|known| (known as f64 / to - 1.0).abs() < 0.15);
    assert!(close(known(&mut fleet, 0), 200_000.0), "{:?}", known(&mut fleet, 0));
    // The second task has much more. The first one has the same, and reports nothing of it.
    fleet.settle(5_000, |fleet| {
        fleet.offer(0, 1_000.0);
        fleet.offer(1, 9_000.0);
    });
    assert!(close(known(&mut fleet, 0), 1_000_000.0), "{:?}", known(&mut fleet, 0));
    assert!(close(known(&mut fleet, 1), 1_000_000.0), "{:?}", known(&mut fleet, 1));
    assert_eq!(known(&mut fleet, 2), None, "it does not serve the customer");
    // No message comes beside the reports and their answers.
    for ms in 0..3_000 {
        fleet.now = fleet.now + Duration::from_millis(1);
        fleet.owner.handle_timeout(fleet.now);
        assert!(fleet.owner.poll_assignment().is_none(), "{ms} ms");
    }
}

#[test]
fn task_without_requests_of_a_customer_forgets_its_demand_at_others() {
    let mut fleet = soft();
    fleet.settle(40_000, |fleet| fleet.offer(1, 1_000.0));
    assert_eq!(known(&mut fleet, 0), None);
    assert!(known(&mut fleet, 1).is_some());
}

#[test]
fn word_of_a_cut_does_not_delay_what_a_lower_rate_frees() {
    let now = Timestamp::ZERO;
    let mut owner = Owner::new(now, OwnerConfig { lease: Duration::from_secs(600), ..OwnerConfig::default() });
    let customer = owner.add_customer(now, 1_000_000);
    let report = |demand, number, acknowledged| {
        // So cheap that rates are hardly above the demand.
        let entry = ReportEntry { customer, demand, cost: 1, lacking: 0, unused: 0, used: 0 };
        Report { number, acknowledged, entries: [entry].into(), ..Report::default() }
    };
    let hello = Hello { cpus: 100.0, ..Hello::default() };
    let [one, other] = [0, 1].map(|_| owner.join(now, &hello, None).expect("it holds nothing"));
    // Neither held anything before: all of the limit is there.
    let now = now + Duration::from_secs(6);
    owner.handle_timeout(now);
    while owner.poll_assignment().is_some() {}
    let held = |owner: &Owner| owner.holders(customer).find(|(task, ..)| *task == one).map(|(.., held)| held);
    owner.report(now, one, &report([0, 800_000, 0, 0], 1, 0)).expect("in order");
    owner.report(now, one, &report([0, 100_000, 0, 0], 2, 1)).expect("in order");
    assert!(held(&owner) > Some(800_000));
    // The other one asks for more than the limit in sheddable requests, so that both are told of a cut.
    owner.report(now, other, &report([0, 100_000, 900_000, 900_000], 1, 0)).expect("in order");
    let now = now + Duration::from_millis(200);
    owner.handle_timeout(now);
    let told: Vec<_> = core::iter::from_fn(|| owner.poll_assignment()).filter(|(task, _)| *task == one).collect();
    assert!(told.len() == 1 && told[0].1.entries[0].cut != Cut::NONE, "{told:?}");
    // The lower rate is in force, and the word of the cut under way.
    owner.report(now, one, &Report { number: 3, acknowledged: 2, ..Report::default() }).expect("in order");
    assert!(held(&owner) < Some(110_000), "{:?}", held(&owner));
}

#[test]
fn demand_of_the_fleet_that_the_owner_does_not_state_is_not_zero() {
    let mut fleet = Fleet::new(1, 1_000_000);
    let limit = Limit { soft: Some(500_000), ..Limit::new(1_000_000) };
    fleet.tasks[0].holder.set_limit(fleet.now, CustomerId(0), limit);
    fleet.connect(0);
    fleet.settle(8_000, |fleet| fleet.offer(0, 2_000.0));
    assert!(fleet.tasks[0].holder.account(CustomerId(0)).fleet().is_some_and(|fleet| fleet.total() > 100_000));
    // Another server does not state it.
    for _ in 0..200 {
        fleet.pass(10);
        fleet.offer(0, 8_000.0);
        while let Some(message) = fleet.tasks[0].messages.first_mut() {
            if let Message::Assignment(_, assignment) = message {
                assignment.entries.iter_mut().for_each(|entry| entry.fleet = None);
            }
            fleet.deliver(0, 0, false);
        }
    }
    let (now, holder) = (fleet.now, &mut fleet.tasks[0].holder);
    assert_eq!(holder.account(CustomerId(0)).fleet(), None);
    let share = holder.fair_share(now, CustomerId(0), Criticality::Critical);
    assert_eq!(share, Some(FairShare { share: 0.5, demand: None }));
}

#[test]
fn chance_in_the_demand_of_few_requests_is_not_told() {
    let (now, cost) = (Timestamp::ZERO, 35_000);
    let mut owner = Owner::new(now, OwnerConfig::default());
    let customer = owner.add_customer(now, UNLIMITED);
    owner.set_soft_limit(customer, true);
    let hello = Hello { cpus: 1.0, ..Hello::default() };
    let [one, other] = [0, 1].map(|_| owner.join(now, &hello, None).expect("it holds nothing"));
    // The demand that the other task is told after one task reports this many requests a second.
    let mut told = |number, requests: u64| {
        let entry = |demand| ReportEntry { customer, demand, cost, lacking: 0, unused: 0, used: 0 };
        let demand = [0, requests * u64::from(cost), 0, 0];
        let report = Report { number, entries: [entry(demand)].into(), ..Report::default() };
        owner.report(now, one, &report).expect("in order");
        // The other one has the customer, too, and reports it once.
        let entries = if number == 1 { [entry([0, u64::from(cost), 0, 0])].into() } else { Vec::new() };
        let answer = owner.report(now, other, &Report { number, entries, ..Report::default() }).expect("in order");
        answer.entries.first().and_then(|entry| entry.fleet).map(|fleet| fleet.total() / u64::from(cost))
    };
    // Two requests beside eight are less than their standard deviation in a second, and more than a tenth.
    assert_eq!([8, 9, 5, 9, 5, 8].into_iter().zip(1..).filter_map(|(requests, at)| told(at, requests)).count(), 1);
    assert!(told(7, 16).is_some_and(|told| (16..=17).contains(&told)), "twice as many");
}

#[test]
fn task_that_never_acknowledges_a_lower_rate_loses_its_stream() {
    let at = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
    let mut owner = Owner::new(at(0), OwnerConfig::default());
    let customers = [0, 1].map(|_| owner.add_customer(at(0), 1_000_000));
    let task = owner.join(at(0), &Hello { cpus: 1.0, ..Hello::default() }, None).expect("it holds nothing");
    owner.handle_timeout(at(6));
    let entry = |of: usize, demand| {
        let customer = customers[of];
        ReportEntry { customer, demand: [0, demand, 0, 0], cost: 1_000, lacking: 0, unused: 0, used: 0 }
    };
    let mut report = |number, acknowledged| {
        // All of one limit, and then of the other.
        let of = usize::from(number % 2 == 0);
        let entries = [entry(of, 900_000), entry(1 - of, 0)].into();
        owner.report(at(6 + u64::from(number)), task, &Report { number, acknowledged, entries, ..Report::default() })
    };
    // An honest one is a report behind.
    let last = (1..=30).map(|number| report(number, number - 1).expect("in order").number).last();
    let refused = (31..=60).find_map(|number| report(number, 29).err().map(|error| (number, error)));
    assert_eq!((last, refused), (Some(30), Some((42, ReportError::Unacknowledged(30)))));
}

#[test]
fn task_looks_for_another_owner_after_three_reports_without_an_answer() {
    let mut fleet = Fleet::new(1, 1_000_000);
    fleet.connect(0);
    fleet.settle(10_000, |fleet| fleet.offer(0, 4_000.0));
    assert!(!fleet.tasks[0].holder.is_doubtful());
    let silent = |fleet: &mut Fleet, ms| {
        for _ in 0..ms / 10 {
            fleet.pass(10);
            fleet.tasks[0].messages.clear();
        }
        fleet.tasks[0].holder.is_doubtful()
    };
    assert_eq!([silent(&mut fleet, 1_900), silent(&mut fleet, 1_100)], [false, true], "two to three seconds");
    // A task that was paused sends one report, and hears the answers that wait before it sends two more.
    let mut fleet = Fleet::new(1, 1_000_000);
    fleet.connect(0);
    fleet.settle(10_000, |fleet| fleet.offer(0, 4_000.0));
    fleet.pass(20_000);
    assert!(!fleet.tasks[0].holder.is_doubtful());
}

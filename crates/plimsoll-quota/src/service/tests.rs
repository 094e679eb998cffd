//! A service and its tasks without sockets.

use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::message::{Assignment, AssignmentEntry, Cut, Hold, Limits, ReportEntry};

mod groups;

const EPOCH: u64 = 7;
const FILE: &str =
    "[services.shop.customers.acme]\nhard_limit = 1\n[services.shop.other_customers]\nhard_limit = 0.5\n";

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn config(text: &str) -> ServiceConfig {
    Config::parse("quota.toml", text).unwrap().services()["shop"].clone()
}

/// The service after its first five seconds, in which it does not know whether tasks hold rates.
fn service() -> Service {
    let mut service = Service::new(at(0), EPOCH, config(FILE), Callers::Tasks);
    let (queue, _kept) = mpsc::channel(MAX_QUEUE);
    let first = service.join(at(0), &hello("first"), queue).unwrap();
    service.handle_timeout(at(6_000));
    service.leave(first);
    assert!(!service.is_unsure());
    service
}

fn hello(instance: &str) -> Hello {
    Hello {
        service: "shop".to_owned(),
        instance: instance.to_owned(),
        cpus: 1.0,
        speed: 1.0,
        tasks: None,
        epoch: 0,
        holds: Vec::new(),
        groups: Vec::new(),
    }
}

/// A task at a service, by its queue.
struct Task {
    id: StreamId,
    queue: mpsc::Receiver<ToTask>,
    number: u32,
    acknowledged: u32,
}

impl Task {
    fn join(service: &mut Service, now: Timestamp, hello: &Hello) -> Self {
        let (queue, messages) = mpsc::channel(MAX_QUEUE);
        let id = service.join(now, hello, queue).unwrap();
        let mut task = Self { id, queue: messages, number: 0, acknowledged: 0 };
        assert_eq!(task.limits().epoch, EPOCH);
        task
    }

    /// The same, with this limit of acme.
    fn join_with(service: &mut Service, now: Timestamp, hello: &Hello, limit: u64) -> Self {
        let (queue, messages) = mpsc::channel(MAX_QUEUE);
        let id = service.join(now, hello, queue).unwrap();
        let mut task = Self { id, queue: messages, number: 0, acknowledged: 0 };
        assert_eq!(acme(&task.limits()), limit);
        task
    }

    fn next(&mut self) -> Option<FromOwner> {
        self.queue.try_recv().ok()?.message
    }

    fn limits(&mut self) -> Limits {
        match self.next() {
            Some(FromOwner::Limits(limits)) => limits,
            other => panic!("{other:?} in place of limits"),
        }
    }

    fn assignment(&mut self) -> Assignment {
        match self.next() {
            Some(FromOwner::Assignment(assignment)) => assignment,
            other => panic!("{other:?} in place of an assignment"),
        }
    }

    /// Reports in the trial of limits that began at this time, up to its end.
    fn try_limits(&mut self, service: &mut Service, began: u64) {
        self.report(service, at(began + 1_500), Vec::new()).unwrap();
        service.handle_timeout(at(began + 2_900));
        assert_eq!(self.next(), None);
        service.handle_timeout(at(began + 3_000));
    }

    fn report(
        &mut self,
        service: &mut Service,
        now: Timestamp,
        entries: Vec<ReportEntry>,
    ) -> Result<Assignment, StreamError> {
        self.report_groups(service, now, entries, Vec::new())
    }

    fn report_groups(
        &mut self,
        service: &mut Service,
        now: Timestamp,
        entries: Vec<ReportEntry>,
        groups: Vec<ReportEntry>,
    ) -> Result<Assignment, StreamError> {
        self.number += 1;
        let report = Report {
            epoch: EPOCH,
            number: self.number,
            acknowledged: self.acknowledged,
            entries,
            groups,
            dropped: Vec::new(),
            overloaded: None,
        };
        service.report(now, self.id, &report)?;
        Ok(self.assignment())
    }
}

fn entry(id: u32, name: Option<&str>, demand: u64) -> ReportEntry {
    let name = name.map(|name| name.as_bytes().to_vec());
    ReportEntry { id, name, demand: vec![0, demand, 0, 0], cost: 1_000, used: demand, ..ReportEntry::default() }
}

fn limit(name: &[u8], limit: u64) -> crate::message::Limit {
    let soft = (limit < 1 << 50).then_some(limit);
    crate::message::Limit { name: name.into(), limit, soft, ..Default::default() }
}

fn rates(assignment: &Assignment) -> Vec<(u32, u32)> {
    assignment.entries.iter().map(|&AssignmentEntry { id, rate, .. }| (id, rate)).collect()
}

fn customer(name: &str) -> Name {
    Name::customer(name.as_bytes())
}

fn names(service: &Service) -> Vec<String> {
    let mut names: Vec<_> = service.customers(Kind::Customer).map(|of| of.name.shown()).collect();
    names.sort();
    names
}

#[test]
fn task_gets_the_limits_first_and_its_rates_by_its_own_numbers() {
    let mut service = service();
    let (queue, mut messages) = mpsc::channel(MAX_QUEUE);
    service.join(at(6_000), &hello("a"), queue).unwrap();
    let Some(FromOwner::Limits(limits)) = messages.try_recv().unwrap().message else { panic!("limits come first") };
    assert_eq!((limits.epoch, limits.tasks, limits.others.map(|of| of.limit)), (EPOCH, 2, Some(500_000)));
    assert_eq!(limits.named, [limit(b"acme", 1_000_000)]);

    let mut task = Task::join(&mut service, at(6_000), &hello("b"));
    let entries = vec![entry(70, Some("someone"), 100_000), entry(9, Some("acme"), 200_000)];
    let assignment = task.report(&mut service, at(6_000), entries).unwrap();
    let [(70, others), (9, acme)] = rates(&assignment)[..] else { panic!("{assignment:?}") };
    assert!(others >= 100_000 && acme >= 200_000, "{assignment:?}");
    let acme = service.named(&customer("acme")).unwrap();
    // Uses are rounded down, by less than a thousandth.
    assert_eq!((acme.state.limit, acme.state.used, acme.state.tasks), (1_000_000, 199_936, 1));
    assert_eq!(service.holders(&customer("acme")).len(), 1);
}

#[test]
fn bad_report_ends_with_an_error_that_names_the_field_and_changes_nothing() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    task.report(&mut service, at(6_000), vec![entry(1, Some("acme"), 200_000)]).unwrap();
    let before = format!("{:?}", service.named(&customer("acme")).unwrap().state);
    let good = || Report {
        epoch: EPOCH,
        number: 2,
        acknowledged: 0,
        entries: Vec::new(),
        groups: Vec::new(),
        dropped: Vec::new(),
        overloaded: None,
    };
    let long = "x".repeat(257);
    for (report, error) in [
        (Report { epoch: 6, ..good() }, "epoch: 6 is not that of this owner, 7"),
        (Report { number: 1, ..good() }, "report: report 1 where 2 is due"),
        (Report { number: 9, ..good() }, "report: report 9 where 2 is due"),
        (Report { acknowledged: 5, ..good() }, "report: assignment 5 is acknowledged, and those from 0 to 1 were sent"),
        (Report { entries: vec![entry(2, None, 1)], ..good() }, "report.entries.id: 2 was never named on this stream"),
        (
            Report { entries: vec![entry(1, Some("bmce"), 1)], ..good() },
            "report.entries.id: 1 and its customer are there already",
        ),
        (
            Report { entries: vec![entry(3, Some("acme"), 1)], ..good() },
            "report.entries.id: 3 and its customer are there already",
        ),
        (
            Report { entries: vec![entry(2, Some(&long), 1)], ..good() },
            "report.entries.name: has 257 bytes, and 256 are the most",
        ),
        (Report { groups: vec![entry(2, Some(""), 1)], ..good() }, "report.groups.name: is empty"),
        (
            Report { entries: vec![entry(1, None, 1)], groups: vec![entry(1, None, 1)], ..good() },
            "report.entries.id: 1 and its customer are there already",
        ),
        (
            Report { entries: vec![ReportEntry { demand: vec![1], ..entry(1, None, 1) }], ..good() },
            "report.entries.demand: 1 numbers where one for each of 4 criticalities is due",
        ),
        (
            Report { entries: vec![entry(1, None, u64::MAX)], ..good() },
            "report.entries.demand: 18446744073709551615 µCPU is more than 1099511627776",
        ),
        (
            Report { entries: vec![entry(1, None, 1), entry(1, None, 1)], ..good() },
            "report.entries.id: 1 and its customer are there already",
        ),
    ] {
        let answer = service.report(at(6_100), task.id, &report);
        assert_eq!(answer.unwrap_err().to_string(), error);
        assert_eq!(format!("{:?}", service.named(&customer("acme")).unwrap().state), before, "{error}");
    }
    assert_eq!(service.counts().invalid, 13);
    task.number = 1;
    task.report(&mut service, at(6_200), Vec::new()).expect("the stream goes on");
}

#[test]
fn hello_without_sense_joins_nothing() {
    let mut service = service();
    let hold = |id, name: &str| Hold { id, name: name.as_bytes().to_vec(), rate: 1 };
    for (hello, error) in [
        (hello(""), "hello.instance: is empty"),
        (Hello { cpus: f64::NAN, ..hello("a") }, "hello.cpus: NaN is not a number of CPUs"),
        (Hello { cpus: -1.0, ..hello("a") }, "hello.cpus: -1 is not a number of CPUs"),
        (
            Hello { holds: vec![hold(1, "acme"), hold(2, "acme")], ..hello("a") },
            "report.entries.id: 2 and its customer are there already",
        ),
    ] {
        let (queue, _messages) = mpsc::channel(MAX_QUEUE);
        assert_eq!(service.join(at(6_000), &hello, queue).unwrap_err().to_string(), error);
    }
    assert_eq!((service.tasks(), service.counts().invalid), (1, 4));
}

#[test]
fn task_of_the_same_name_replaces_the_former_and_frees_its_rates() {
    let mut service = service();
    let mut former = Task::join(&mut service, at(6_000), &hello("a"));
    former.report(&mut service, at(6_000), vec![entry(1, Some("acme"), 900_000)]).unwrap();
    let mut next = Task::join(&mut service, at(6_100), &hello("a"));
    let state = service.named(&customer("acme")).unwrap();
    assert_eq!((state.state.held, state.state.used, service.tasks()), (0, 0, 2));
    assert_eq!(former.report(&mut service, at(6_200), Vec::new()).unwrap_err(), StreamError::Replaced);
    assert_eq!(former.queue.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    next.report(&mut service, at(6_200), vec![entry(1, Some("acme"), 900_000)]).expect("the name is its own");
}

#[test]
fn task_that_does_not_read_loses_its_stream_and_others_do_not() {
    let mut service = service();
    let mut other = Task::join(&mut service, at(6_000), &hello("other"));
    let mut slow = Task::join(&mut service, at(6_000), &hello("slow"));
    let error = (0..=MAX_QUEUE as u32).find_map(|number| {
        let entries = vec![entry(1, (number == 0).then_some("acme"), 100_000)];
        let number = number + 1;
        let report = Report { epoch: EPOCH, number, entries, ..Report::default() };
        service.report(at(6_000), slow.id, &report).err()
    });
    assert_eq!(error, Some(StreamError::Slow));
    service.leave(slow.id);
    assert_eq!(service.counts().slow, 1);
    while slow.next().is_some() {}
    other.report(&mut service, at(6_100), vec![entry(1, Some("acme"), 100_000)]).expect("it reads");
}

#[test]
fn stranger_is_forgotten_when_no_task_knows_it_and_named_customers_stay() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    task.report(&mut service, at(6_000), vec![entry(1, Some("stranger"), 100_000)]).unwrap();
    assert_eq!(names(&service), ["acme", "stranger"]);
    service.leave(task.id);
    service.handle_timeout(at(7_000));
    assert_eq!(names(&service), ["acme", "stranger"], "the task may be using its rate");
    service.handle_timeout(at(67_100));
    assert_eq!((names(&service), service.tasks()), (vec!["acme".to_owned()], 0));
    // The number is used again.
    let mut task = Task::join(&mut service, at(68_000), &hello("b"));
    task.report(&mut service, at(68_000), vec![entry(1, Some("next"), 100_000)]).unwrap();
    assert_eq!(service.customers.len(), 2);
}

#[test]
fn dropped_customer_may_be_named_again_by_another_number() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    task.report(&mut service, at(6_000), vec![entry(1, Some("stranger"), 0)]).unwrap();
    let drop = Report {
        epoch: EPOCH,
        number: 2,
        acknowledged: 1,
        entries: Vec::new(),
        groups: Vec::new(),
        dropped: vec![1, 55],
        overloaded: None,
    };
    service.report(at(6_100), task.id, &drop).unwrap();
    service.handle_timeout(at(6_200));
    assert_eq!(names(&service), ["acme"]);
    task.assignment();
    (task.number, task.acknowledged) = (2, 1);
    task.report(&mut service, at(6_300), vec![entry(8_193, Some("stranger"), 100_000)]).expect("it is a new name");
}

#[test]
fn dropped_customer_frees_its_rate_and_returns_in_the_same_report() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    let entries = vec![entry(1, Some("stranger"), 100_000), entry(2, Some("acme"), 100_000)];
    task.report(&mut service, at(6_000), entries).unwrap();
    let entries = vec![entry(8_193, Some("stranger"), 0)];
    let drop = Report { epoch: EPOCH, number: 2, acknowledged: 1, entries, dropped: vec![1, 2], ..Report::default() };
    service.report(at(6_100), task.id, &drop).unwrap();
    assert_eq!(rates(&task.assignment()), [(8_193, 0)]);
    let held = ["stranger", "acme"].map(|name| service.named(&customer(name)).unwrap().state.held);
    assert_eq!((held, service.counts().invalid), ([0, 0], 0));
}

/// A service without a place for another stranger, and a task that has the last one.
fn full_service() -> (Service, Task) {
    let mut service = service();
    service.max_customers = 3;
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    let entries = vec![entry(1, Some("acme"), 200_000), entry(2, Some("one"), 100_000), entry(3, Some("two"), 100_000)];
    task.report(&mut service, at(6_000), entries).unwrap();
    (service, task)
}

#[test]
fn customers_beyond_the_bound_get_no_rate_and_others_keep_theirs() {
    let (mut service, mut task) = full_service();
    let state = |service: &Service| {
        ["acme", "one", "two"].map(|name| {
            let state = service.named(&customer(name)).unwrap().state;
            (state.demand, state.held, state.tasks)
        })
    };
    let before = state(&service);
    let beyond = vec![entry(4, Some("three"), 300_000), entry(5, Some("four"), 300_000), entry(1, None, 200_000)];
    let assignment = task.report(&mut service, at(6_100), beyond).unwrap();
    assert_eq!(rates(&assignment)[assignment.entries.len() - 2..], [(4, 0), (5, 0)]);
    assert!(assignment.entries.iter().all(|of| of.credit == 0 && (of.id < 4 || of.limit == 500_000)), "{assignment:?}");
    let again = task.report(&mut service, at(6_200), vec![entry(5, None, 300_000)]).unwrap();
    assert_eq!((rates(&again), state(&service)), (vec![(5, 0)], before));
    assert_eq!(names(&service), ["acme", "one", "two"]);
    for (entries, error) in [
        (vec![entry(4, None, 1), entry(4, None, 1)], StreamError::Twice(4)),
        (vec![entry(4, Some("five"), 1)], StreamError::Twice(4)),
        (vec![entry(6, None, 1)], StreamError::Unnamed(6)),
    ] {
        assert_eq!(task.report(&mut service, at(6_300), entries).unwrap_err(), error);
        task.number -= 1;
    }
    // Customers with a limit of their own and requests without a customer always have a place.
    set(&mut service, 6_300, "vip", Some(Override { limit: 500_000, until: at(60_000) }));
    task.limits();
    task.try_limits(&mut service, 6_300);
    task.limits();
    let entries = vec![entry(7, Some("vip"), 100_000), entry(8, Some(""), 100_000)];
    let assignment = task.report(&mut service, at(9_400), entries).unwrap();
    assert!(rates(&assignment).iter().filter(|(id, rate)| *id > 6 && *rate >= 100_000).count() == 2, "{assignment:?}");
    // And one that was beyond the bound has, as soon as it gets a limit.
    set(&mut service, 9_500, "four", Some(Override { limit: 700_000, until: at(60_000) }));
    task.limits();
    task.try_limits(&mut service, 9_500);
    task.limits();
    let assignment = task.report(&mut service, at(12_600), vec![entry(5, None, 100_000)]).unwrap();
    let of = assignment.entries.into_iter().find(|of| of.id == 5).expect("it is answered");
    assert!(of.limit == 700_000 && of.rate >= 100_000, "{of:?}");
    assert_eq!(service.named(&customer("four")).unwrap().state.tasks, 1);
}

#[test]
fn task_joins_with_customers_beyond_the_bound_and_gives_their_rates_up() {
    let (mut service, _task) = full_service();
    let hold = |id, name: &str| Hold { id, name: name.as_bytes().to_vec(), rate: 50_000 };
    let holds = vec![hold(1, "three"), hold(2, "acme"), hold(3, "four")];
    let mut late = Task::join(&mut service, at(6_100), &Hello { holds, ..hello("b") });
    assert_eq!(service.named(&customer("acme")).unwrap().state.tasks, 2);
    let entries = vec![entry(1, None, 50_000), entry(2, None, 50_000), entry(3, None, 50_000)];
    let assignment = late.report(&mut service, at(6_100), entries).unwrap();
    let [(2, acme), (1, 0), (3, 0)] = rates(&assignment)[..] else { panic!("{assignment:?}") };
    assert!(acme >= 50_000, "{assignment:?}");
    // A name that is dropped may have a place the next time.
    service.max_customers = 4;
    (late.number, late.acknowledged) = (2, 1);
    let drop = Report { epoch: EPOCH, number: 2, acknowledged: 1, dropped: vec![3], ..Report::default() };
    service.report(at(6_200), late.id, &drop).unwrap();
    late.assignment();
    let assignment = late.report(&mut service, at(6_300), vec![entry(9, Some("four"), 50_000)]).unwrap();
    assert!(rates(&assignment).iter().any(|(id, rate)| *id == 9 && *rate >= 50_000), "{assignment:?}");
}

#[test]
fn limit_by_an_operator_reaches_tasks_and_ends_by_itself() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    task.report(&mut service, at(6_000), vec![entry(1, Some("acme"), 900_000)]).unwrap();
    let to = Override { limit: 200_000, until: at(19_000) };
    set(&mut service, 6_100, "acme", Some(to));
    assert_eq!(task.limits().named[0].limit, 200_000);
    task.try_limits(&mut service, 6_100);
    assert_eq!(task.limits().named[0].limit, 200_000);
    service.handle_timeout(at(9_300));
    let assignment = task.assignment();
    assert!(assignment.entries[0].rate <= 200_000 && assignment.entries[0].limit == 200_000, "{assignment:?}");
    assert_eq!(service.named(&customer("acme")).unwrap().by_operator, Some(to));
    // The limit after it is tried too.
    service.handle_timeout(at(19_000));
    assert_eq!(task.limits().named[0].limit, 1_000_000);
    assert!(service.poll_timeout() > at(19_000));
    task.try_limits(&mut service, 19_000);
    assert_eq!(service.named(&customer("acme")).unwrap().by_operator, None);
}

#[test]
fn other_settings_reach_tasks_and_a_customer_without_a_table_has_the_limit_of_others() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    task.report(&mut service, at(6_000), vec![entry(1, Some("acme"), 900_000)]).unwrap();
    let other = config("[services.shop]\ndry_run = true\n[services.shop.other_customers]\nhard_limit = 0.25\n");
    service.change(at(6_100), Change::Config(Box::new(other)));
    let limits = task.limits();
    let others = limits.others.unwrap();
    assert_eq!((limits.named.len(), others.limit, others.dry_run), (0, 250_000, true));
    task.try_limits(&mut service, 6_100);
    task.limits();
    service.handle_timeout(at(9_300));
    let assignment = task.assignment();
    assert_eq!(assignment.entries[0].limit, 250_000);
    assert!(service.named(&customer("acme")).unwrap().is_dry_run);
}

#[test]
fn stream_ends_with_the_lease_of_its_task() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    service.handle_timeout(at(6_000) + Duration::from_secs(61));
    assert_eq!(task.queue.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    assert_eq!(task.report(&mut service, at(70_000), Vec::new()).unwrap_err(), StreamError::Lease);
}

/// Changes the limit of acme. Returns the number of the change.
fn change(service: &mut Service, now: u64, limit: u64) -> u64 {
    set(service, now, "acme", Some(Override { limit, until: at(1_000_000) }))
}

fn set(service: &mut Service, now: u64, name: &str, to: Option<Override>) -> u64 {
    service.change(at(now), Change::Override(customer(name), to))
}

fn acme(limits: &Limits) -> u64 {
    limits.named.iter().find(|of| of.name == b"acme").unwrap().limit
}

#[test]
fn one_task_tries_new_limits_before_all_get_them() {
    let mut service = service();
    let mut tasks = ["a", "b", "c"].map(|name| Task::join(&mut service, at(6_000), &hello(name)));
    let number = change(&mut service, 6_100, 2_000_000);
    let [first, others @ ..] = &mut tasks;
    assert_eq!(acme(&first.limits()), 2_000_000);
    assert_eq!(others.each_mut().map(Task::next), [None, None]);
    assert_eq!(service.changes().tried, [Arc::from("a")]);
    let mut late = Task::join_with(&mut service, at(6_200), &hello("late"), 1_000_000);
    assert_eq!(service.named(&customer("acme")).unwrap().state.limit, 1_000_000, "the last good one is in force");
    first.try_limits(&mut service, 6_100);
    for task in others.iter_mut().chain([first, &mut late]) {
        assert_eq!(acme(&task.limits()), 2_000_000);
    }
    assert_eq!((service.changes().is_idle(), service.changes().outcome(number)), (true, Some(&Outcome::Applied)));
    assert_eq!(service.named(&customer("acme")).unwrap().state.limit, 2_000_000);
}

#[test]
fn limits_that_break_two_tasks_reach_no_other() {
    let mut service = service();
    let mut tasks = ["a", "b", "c"].map(|name| Task::join(&mut service, at(6_000), &hello(name)));
    let number = change(&mut service, 6_100, 2_000_000);
    // A good change and a reload come during the trial, and carry nothing of it on.
    let good = set(&mut service, 6_120, "web", Some(Override { limit: 5, until: at(1_000_000) }));
    service.change(at(6_130), Change::Config(Box::new(config(FILE))));
    for (at_, now) in [(0, 6_150), (1, 6_200)] {
        assert_eq!(acme(&tasks[at_].limits()), 2_000_000);
        service.leave(tasks[at_].id);
        assert!(service.poll_timeout() <= at(now));
        service.handle_timeout(at(now));
        // It crashed, and returns.
        tasks[at_] = Task::join_with(&mut service, at(now), &hello(["a", "b"][at_]), 1_000_000);
    }
    let refused = Outcome::Refused(vec![Arc::from("a"), Arc::from("b")]);
    assert_eq!((service.changes().outcome(number), service.changes().outcome(good)), (Some(&refused), None));
    assert_eq!((service.counts().applied, service.counts().refused), (0, 1));
    assert_eq!(service.named(&customer("acme")).unwrap().by_operator, None);
    let messages = tasks.iter_mut().flat_map(|task| std::iter::from_fn(|| task.next()));
    let limits = messages.filter_map(|message| match message {
        FromOwner::Limits(limits) => Some((acme(&limits), limits.named.len())),
        FromOwner::Assignment(_) => None,
    });
    // All have the former limits again, and one tries the good change.
    let mut limits: Vec<_> = limits.collect();
    limits.sort_unstable();
    assert_eq!(limits, [(1_000_000, 1), (1_000_000, 1), (1_000_000, 2)]);
}

#[test]
fn limits_that_break_tasks_when_a_change_ends_put_its_end_off() {
    let mut service = service();
    let nothing = Override { limit: 0, until: at(30_000) };
    assert_eq!(set(&mut service, 6_000, "acme", Some(nothing)), 1);
    assert_eq!(service.named(&customer("acme")).unwrap().state.limit, 0, "there is no task");
    let mut tasks = ["a", "b"].map(|name| Task::join_with(&mut service, at(6_000), &hello(name), 0));
    let end = set(&mut service, 6_100, "acme", None);
    for (now, task) in [6_200, 6_300].into_iter().zip(&mut tasks) {
        assert_eq!(acme(&task.limits()), 1_000_000);
        service.leave(task.id);
        service.handle_timeout(at(now));
    }
    assert!(matches!(service.changes().outcome(end), Some(Outcome::Refused(_))));
    assert_eq!(service.named(&customer("acme")).unwrap().state.limit, 0);

    let mut tasks = ["a", "b"].map(|name| Task::join_with(&mut service, at(7_000), &hello(name), 0));
    service.handle_timeout(at(30_000));
    for task in &mut tasks {
        assert_eq!(acme(&task.limits()), 1_000_000);
        service.leave(task.id);
        service.handle_timeout(at(30_100));
    }
    assert_eq!(service.named(&customer("acme")).unwrap().by_operator.unwrap().until, at(90_100));
}

#[test]
fn envoys_have_limits_at_once() {
    let mut service = Service::new(at(0), EPOCH, config(FILE), Callers::Envoys);
    let mut task = Task::join(&mut service, at(0), &hello("a"));
    change(&mut service, 100, 5);
    assert_eq!((acme(&task.limits()), service.named(&customer("acme")).unwrap().state.limit), (5, 5));
}

#[test]
fn settings_that_are_the_same_for_tasks_need_no_trial() {
    let mut service = service();
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    let number = service.change(at(6_100), Change::Config(Box::new(config(FILE))));
    assert_eq!((service.changes().outcome(number), acme(&task.limits())), (Some(&Outcome::Applied), 1_000_000));
}

#[test]
fn limits_and_assignments_without_sense_are_refused_by_tasks() {
    let grouped = |name, group: &[u8]| crate::message::Limit { group: Some(group.into()), ..limit(name, 5) };
    let good = || Limits {
        epoch: 1,
        tasks: 3,
        others: Some(limit(b"", 5)),
        named: vec![limit(b"acme", 1 << 50)],
        groups: vec![limit(b"free", 7)],
    };
    let read =
        |limits: &Limits| convert::to_limits(limits, |name| name.len() as u64).map_err(|error| error.to_string());
    assert_eq!(read(&good()).unwrap().named.len(), 1);
    for (bad, field) in [
        (Limits { tasks: 0, ..good() }, "limits.tasks"),
        (Limits { others: Some(limit(b"", u64::MAX)), ..good() }, "limits.limit"),
        (Limits { named: vec![limit(b"acme", (1 << 50) + 1)], ..good() }, "limits.limit"),
        (Limits { named: vec![limit(&[b'x'; 300], 1)], ..good() }, "limits.named.name"),
        (Limits { named: vec![limit(b"acme", 1); 4_097], ..good() }, "limits.named"),
        (Limits { groups: vec![limit(b"free", 1); 4_096], ..good() }, "limits.named"),
        (Limits { groups: vec![limit(b"free", 1); 2], ..good() }, "limits.groups.name"),
        (Limits { groups: vec![limit(b"", 1)], ..good() }, "limits.groups.name"),
        (Limits { groups: vec![limit(b"free", (1 << 50) + 1)], ..good() }, "limits.limit"),
        (Limits { groups: vec![grouped(b"free", b"all")], ..good() }, "limits.groups.group"),
        (Limits { others: Some(grouped(b"", b"all")), ..good() }, "limits.group"),
        (Limits { named: vec![grouped(b"acme", b"missing")], ..good() }, "limits.group"),
    ] {
        assert!(read(&bad).unwrap_err().starts_with(&format!("{field}:")), "{:?}", read(&bad));
    }
    let entry = || AssignmentEntry { id: 1, limit: 1_000, rate: 1_000, credit: 500, ..AssignmentEntry::default() };
    let good = || Assignment {
        epoch: 1,
        number: 1,
        lease_ms: 60_000,
        tasks: 3,
        entries: vec![entry()],
        ..Assignment::default()
    };
    let read = |assignment: &Assignment| convert::to_assignment(assignment).map_err(|error| error.to_string());
    assert!(read(&good()).is_ok());
    let with = |entry| Assignment { entries: vec![entry], ..good() };
    for (bad, field) in [
        (Assignment { lease_ms: 0, ..good() }, "assignment.lease_ms"),
        (Assignment { lease_ms: u32::MAX, ..good() }, "assignment.lease_ms"),
        (Assignment { tasks: 0, ..good() }, "assignment.tasks"),
        (with(AssignmentEntry { limit: u64::MAX, ..entry() }), "assignment.entries.limit"),
        (with(AssignmentEntry { rate: u32::MAX, ..entry() }), "assignment.entries.rate"),
        (with(AssignmentEntry { credit: u32::MAX, ..entry() }), "assignment.entries.credit"),
        (with(AssignmentEntry { cut: Some(Cut { rank: 4, part: 0.5 }), ..entry() }), "assignment.entries.cut.rank"),
        (
            with(AssignmentEntry { cut: Some(Cut { rank: 1, part: f32::NAN }), ..entry() }),
            "assignment.entries.cut.part",
        ),
    ] {
        assert!(read(&bad).unwrap_err().starts_with(&format!("{field}:")), "{:?}", read(&bad));
    }
}

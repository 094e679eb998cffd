//! Groups of customers at a service.

use plimsoll_core::Criticality;

use super::*;
use crate::message::Limit;

const GROUPED: &str = "[services.shop.groups.acme]\nhard_limit = 2\n[services.shop.customers.acme]\nhard_limit = 1\n\
                       group = \"acme\"\n[services.shop.other_customers]\ngroup = \"acme\"\n";

fn grouped(text: &str) -> Service {
    let mut service = Service::new(at(0), EPOCH, config(text), Callers::Tasks);
    let (queue, _kept) = mpsc::channel(MAX_QUEUE);
    let first = service.join(at(0), &hello("first"), queue).unwrap();
    service.handle_timeout(at(6_000));
    service.leave(first);
    service
}

fn group(name: &str) -> Name {
    Name::new(Kind::Group, name.as_bytes())
}

/// The name, the limit, and the group.
type Shown<'a> = (&'a [u8], u64, Option<&'a [u8]>);

fn limits_of(limits: &[Limit]) -> Vec<Shown<'_>> {
    limits.iter().map(|of| (&*of.name, of.limit, of.group.as_deref())).collect()
}

#[test]
fn customer_and_group_of_one_name_have_a_limit_each() {
    let mut service = grouped(GROUPED);
    let (queue, mut messages) = mpsc::channel(MAX_QUEUE);
    service.join(at(6_000), &hello("a"), queue).unwrap();
    let Some(FromOwner::Limits(limits)) = messages.try_recv().unwrap().message else { panic!("limits come first") };
    assert_eq!(limits_of(&limits.named), [(&b"acme"[..], 1_000_000, Some(&b"acme"[..]))]);
    assert_eq!(limits_of(&limits.groups), [(&b"acme"[..], 2_000_000, None)]);
    assert_eq!(limits_of(limits.others.as_slice()), [(&b""[..], UNLIMITED, Some(&b"acme"[..]))]);

    let mut task = Task::join(&mut service, at(6_000), &hello("b"));
    let (entries, groups) = (vec![entry(3, Some("acme"), 900_000)], vec![entry(4, Some("acme"), 1_500_000)]);
    let assignment = task.report_groups(&mut service, at(6_000), entries, groups).unwrap();
    let [(3, own), (4, all)] = rates(&assignment)[..] else { panic!("{assignment:?}") };
    assert!((900_000..=980_000).contains(&own) && all >= 1_500_000, "{assignment:?}");
    let [own, all] = [customer("acme"), group("acme")].map(|name| service.named(&name).unwrap());
    // Uses are rounded down, by less than a thousandth.
    assert_eq!((own.state.used, own.group.as_deref(), own.state.limit), (899_584, Some("acme"), 1_000_000));
    assert_eq!((all.state.used, all.group.as_deref(), all.state.limit), (1_499_136, None, 2_000_000));
    let heaviest = |kind| service.heaviest(kind, 9).into_iter().map(|of| of.name).collect::<Vec<_>>();
    assert_eq!((heaviest(Kind::Customer), heaviest(Kind::Group)), ([own.name].into(), [all.name].into()));
    assert_eq!(service.holders(&group("acme")).len(), 1);
}

#[test]
fn rate_of_a_group_is_held_by_a_task_that_joins_a_new_server() {
    let mut service = Service::new(at(0), EPOCH, config(GROUPED), Callers::Tasks);
    let hold = |id| Hold { id, name: b"acme".to_vec(), rate: 1_000 };
    let hello = Hello { holds: vec![hold(1)], groups: vec![hold(2)], ..hello("a") };
    Task::join(&mut service, at(6_000), &hello);
    let held = [customer("acme"), group("acme")].map(|name| service.named(&name).unwrap().state.held);
    assert_eq!(held, [1_000, 1_000]);
    let (queue, _kept) = mpsc::channel(MAX_QUEUE);
    let nameless = Hello { groups: vec![Hold { name: Vec::new(), ..hold(1) }], ..hello };
    let error = service.join(at(6_000), &nameless, queue).unwrap_err().to_string();
    assert!(error.starts_with("hello.groups.name: is empty"), "{error}");
}

#[test]
fn owner_without_groups_gets_no_entry_of_a_group_among_those_of_customers() {
    let limits = grouped(GROUPED).limits.message(EPOCH, 1);
    let mut limiter = quota::Limiter::new(at(0));
    limiter.set_limits(at(0), 1, convert::to_limits(&limits, |name| name.len() as u64).unwrap());
    let ids = |of: &[ReportEntry]| of.iter().map(|of| (of.id, of.name.is_some())).collect::<Vec<_>>();
    let mut reported = |now: u64, is_new| {
        let request = quota::LimitedRequest {
            customer: 4,
            name: b"acme",
            criticality: Criticality::Critical,
            cost: now as f64 * 1_000.0,
            draw: 0.5,
        };
        if is_new {
            let hello = limiter.connect(at(now), 1.0);
            assert!(hello.groups.is_empty() && hello.message.holds.is_empty());
        }
        let (accounts, _) = limiter.ask(at(now), &request);
        limiter.take(accounts, request.cost);
        let report = convert::report(EPOCH, limiter.poll(at(now)).unwrap());
        (ids(&report.entries), ids(&report.groups))
    };
    assert_eq!(reported(6_000, true), (vec![(0, true)], vec![(1, true)]));
    assert_eq!(reported(12_000, false), (vec![(0, false)], vec![(1, false)]));
    let entry = |id, rate| AssignmentEntry { id, limit: 1_000_000, rate, ..AssignmentEntry::default() };
    let assignment = Assignment {
        epoch: EPOCH,
        number: 1,
        answers: 2,
        lease_ms: 60_000,
        tasks: 1,
        entries: vec![entry(0, 7), entry(1, 9)],
        ..Assignment::default()
    };
    limiter.assign(at(12_000), &convert::to_assignment(&assignment).unwrap()).unwrap();
    let hello = convert::hello("shop", "a", 1.0, 0, limiter.connect(at(13_000), 1.0));
    let rates = |of: &[Hold]| of.iter().map(|of| (of.id, of.name.clone(), of.rate)).collect::<Vec<_>>();
    assert_eq!(rates(&hello.holds), [(0, b"acme".to_vec(), 7)]);
    assert_eq!(rates(&hello.groups), [(1, b"acme".to_vec(), 9)]);
}

#[test]
fn limit_of_a_group_by_an_operator_is_tried_and_ends() {
    let mut service = grouped(GROUPED);
    let mut task = Task::join(&mut service, at(6_000), &hello("a"));
    let to = Some(Override { limit: 5, until: at(90_000) });
    let number = service.change(at(6_100), Change::Override(group("acme"), to));
    assert_eq!(limits_of(&task.limits().groups), [(&b"acme"[..], 5, None)]);
    assert_eq!(service.changes().outcome(number), None, "one task tries it");
    task.try_limits(&mut service, 6_100);
    assert_eq!(service.changes().outcome(number), Some(&Outcome::Applied));
    assert_eq!(limits_of(&task.limits().groups), [(&b"acme"[..], 5, None)]);
    let limits =
        |service: &Service| [group("acme"), customer("acme")].map(|of| service.named(&of).unwrap().state.limit);
    assert_eq!(limits(&service), [5, 1_000_000], "the customer of the same name keeps its own");
    assert!(service.is_overridden(&group("acme")) && !service.is_overridden(&customer("acme")));
    service.change(at(50_000), Change::Override(group("acme"), None));
    task.limits();
    task.try_limits(&mut service, 50_000);
    assert_eq!(limits(&service), [2_000_000, 1_000_000]);
}

#[test]
fn group_without_a_table_any_more_is_forgotten() {
    let mut service = grouped(GROUPED);
    service.change(at(6_100), Change::Config(Box::new(config(FILE))));
    assert!(service.named(&group("acme")).is_some_and(|of| !of.has_limit()));
    service.handle_timeout(at(7_000));
    assert!(service.named(&group("acme")).is_none());
}

#[test]
fn dry_run_of_a_group_is_its_own() {
    let text = GROUPED.replace("hard_limit = 2\n", "hard_limit = 2\ndry_run = true\n");
    let service = grouped(&text);
    let is_dry_run = [group("acme"), customer("acme")].map(|name| service.named(&name).unwrap().is_dry_run);
    assert_eq!(is_dry_run, [true, false]);
}

#[test]
fn owner_of_envoys_has_no_groups() {
    let followed = grouped(GROUPED);
    let front = Service::new(at(0), EPOCH, config(GROUPED).front(), Callers::Envoys);
    let mut follower = Service::new(at(0), EPOCH, config(FILE).front(), Callers::Envoys);
    let mut limits = ServiceLimits::new(followed.config().clone());
    limits.change(Change::Override(group("acme"), Some(Override { limit: 5, until: at(90_000) })));
    follower.follow(at(0), &limits);
    for service in [front, follower] {
        let message = service.limits.message(EPOCH, 1);
        assert_eq!(limits_of(&message.named), [(&b"acme"[..], 1_000_000, None)]);
        assert_eq!((message.groups.len(), message.others), (0, None));
    }
}

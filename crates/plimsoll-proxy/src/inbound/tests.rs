//! A gate before a process that is made up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Request};
use plimsoll::system::ProcessSample;
use plimsoll_core::admit::{self, ProcessCounters, Quota};
use plimsoll_core::meter::Kind;
use plimsoll_core::shedding::Cause;
use plimsoll_core::shedding::Verdict;
use plimsoll_core::signal::{Memory, Readings, Signal};

use super::*;
use crate::classify::quotas::Quotas;
use crate::classify::{Claims, Rules};
use crate::config::Config;

/// A cluster whose process nobody looks at but the test.
fn inbound(dry_run: bool) -> Inbound {
    let config = config::Inbound { dry_run, ..config::Inbound::default() };
    Inbound::before(Arc::new(Gate::new(&config)), &config, RandomState::new())
}

fn sample(cpu: f64, is_first: bool) -> ProcessSample {
    ProcessSample {
        outside: ProcessCounters { cpu, waited: 0.0 },
        is_first,
        cpus: is_first.then_some(1.0),
        readings: None,
    }
}

fn arrival(criticality: Criticality) -> Arrival {
    let kind = Kind { route: 1, customer: 1 };
    Arrival { criticality, kind, quota: Quota::UNLIMITED, timeout: None, cohort: None, is_retry: false }
}

fn ask(inbound: &Inbound, criticality: Criticality) -> Result<Box<Passage>, ShedAnswer> {
    let names = Names { customer: &"ann", route: &"GET /" };
    inbound.ask(&arrival(criticality), names).0
}

fn count(inbound: &Inbound, decision: &str) -> u64 {
    inbound.view().decisions.iter().filter(|(_, name, _)| *name == decision).map(|(_, _, count)| count).sum()
}

#[tokio::test]
async fn all_are_let_in_until_the_process_is_seen_and_the_least_important_are_not_afterwards() {
    tokio::time::pause();
    let inbound = inbound(false);
    let flood = |criticality| {
        let passages: Vec<_> = (0..1_000).map(|_| ask(&inbound, criticality)).collect();
        passages.iter().filter(|passage| passage.is_ok()).count()
    };
    assert_eq!((flood(Criticality::Sheddable), inbound.view().cpus), (1_000, None));
    inbound.gate.see(Some(sample(7.0, true)));
    let sheddable = flood(Criticality::Sheddable);
    assert!((1..200).contains(&sheddable), "{sheddable}");
    assert!(ask(&inbound, Criticality::CriticalPlus).is_ok());
    assert_eq!(count(&inbound, "overloaded"), 1_000 - sheddable as u64);
    assert_eq!(count(&inbound, ADMITTED), 1_001 + sheddable as u64);
    assert_eq!(inbound.view().cpus, Some(0.0));
    inbound.gate.see(None);
    assert_eq!(inbound.view().cpus, None);
}

#[tokio::test]
async fn a_dry_run_counts_whom_it_would_turn_away_and_lets_all_in() {
    let inbound = inbound(true);
    inbound.gate.see(Some(sample(0.0, true)));
    let passages: Vec<_> = (0..1_000).map(|_| ask(&inbound, Criticality::Sheddable)).collect();
    assert!(passages.iter().all(Result::is_ok));
    assert!(count(&inbound, "overloaded") > 500);
    assert_eq!(count(&inbound, ADMITTED), 1_000);
}

#[tokio::test]
async fn a_request_is_in_flight_from_when_it_is_sent_until_its_answer_begins() {
    let inbound = inbound(false);
    inbound.gate.see(Some(sample(0.0, true)));
    let in_flight = || inbound.gate.in_flight.load(Ordering::Relaxed);
    let mut passages = [inbound.let_in(), ask(&inbound, Criticality::Critical).ok().unwrap()];
    assert_eq!(in_flight(), 0, "the client may take long over its body");
    passages.iter_mut().for_each(|passage| passage.sent());
    assert_eq!(in_flight(), 2);
    let [answered, given_up] = &mut passages;
    answered.hear(&HeaderMap::new());
    assert_eq!(in_flight(), 1, "an answer may be events for hours");
    answered.hear(&HeaderMap::new());
    assert_eq!(in_flight(), 1, "trailers end nothing anew");
    given_up.nothing_sent();
    drop(passages);
    assert_eq!(in_flight(), 0);
}

#[tokio::test]
async fn who_leaves_makes_no_room_for_another_while_the_process_is_busy() {
    tokio::time::pause();
    let inbound = inbound(false);
    inbound.gate.see(Some(sample(0.0, true)));
    let mut cpu = 0.0;
    let mut after = async |used: f64| {
        tokio::time::advance(Duration::from_millis(20)).await;
        cpu += used;
        inbound.gate.see(Some(sample(cpu, false)));
        let passages: Vec<_> = (0..200).map(|_| ask(&inbound, Criticality::Sheddable)).collect();
        passages.into_iter().filter(Result::is_ok).count()
    };
    for _ in 0..100 {
        if let Ok(mut passage) = ask(&inbound, Criticality::Critical) {
            passage.sent();
        }
    }
    let busy = after(0.02).await;
    let idle = after(0.001).await;
    assert!(busy <= 4, "{busy}: it may work on what nobody wants any more");
    assert!(idle >= 8, "{idle}: it has nothing to do");
}

#[tokio::test]
async fn costs_are_learned_from_what_the_process_uses() {
    tokio::time::pause();
    let inbound = inbound(false);
    inbound.gate.see(Some(sample(0.0, true)));
    // Ten requests at once are expected to cost a millisecond each, of which a CPU has room for some more; once each is known to
    // cost 100 ms, it has not.
    let at_once = |count: u32| (0..count).map(|_| ask(&inbound, Criticality::Critical).ok()).collect::<Vec<_>>();
    assert!(at_once(10).iter().all(Option::is_some));
    let expected = |inbound: &Inbound| {
        let entry = inbound.gate.ask(&arrival(Criticality::CriticalPlus)).entry;
        let expected = entry.as_ref().expect("there is room").expected();
        inbound.gate.ended(entry, Use::None);
        expected
    };
    let mut cpu = 0.0;
    for _ in 0..100 {
        at_once(2).into_iter().flatten().for_each(|mut passage| passage.sent());
        tokio::time::advance(Duration::from_millis(250)).await;
        cpu += 0.2;
        inbound.gate.see(Some(sample(cpu, false)));
    }
    let cost = expected(&inbound);
    assert!((0.05..0.2).contains(&cost), "{cost}");
    // What is let in and never sent says nothing, whatever the process does of its own meanwhile.
    for n in 0..100 {
        drop(at_once(2));
        at_once(1).into_iter().flatten().for_each(|mut passage| {
            passage.sent();
            passage.nothing_sent();
        });
        tokio::time::advance(Duration::from_millis(250)).await;
        inbound.gate.see(Some(sample(cpu + f64::from(n) * 0.001, false)));
    }
    assert_eq!(expected(&inbound), cost);
}

/// Memory that fills by 8% a second, of which nothing is left soon.
#[tokio::test]
async fn memory_that_runs_out_leaves_room_for_fewer_and_is_named() {
    tokio::time::pause();
    let inbound = inbound(false);
    let memory = |used| Readings { memory: Some(Memory { used, limit: 1_000 }), ..Readings::default() };
    let seen = |n: u64, used| ProcessSample { readings: Some(memory(used)), ..sample(n as f64 * 0.01, n == 0) };
    let at_once = || (0..20).map(|_| ask(&inbound, Criticality::Critical).ok()).collect::<Vec<_>>();
    inbound.gate.see(Some(seen(0, 700)));
    assert!(at_once().iter().all(Option::is_some), "all that a CPU has room for");
    for n in 1..=14 {
        tokio::time::advance(Duration::from_millis(250)).await;
        inbound.gate.see(Some(seen(n, 700 + 20 * n)));
    }
    let let_in = at_once().iter().flatten().count();
    assert!((1..15).contains(&let_in), "{let_in} of twenty");
    let loads = inbound.view().loads;
    assert_eq!(loads.binding, Some(Signal::Memory));
    assert!(loads.known().any(|(signal, load)| signal == Signal::Memory && load > 1.0), "{loads:?}");
    // It fills no more.
    for n in 15..=200 {
        tokio::time::advance(Duration::from_millis(250)).await;
        inbound.gate.see(Some(seen(n, 980)));
    }
    assert!(at_once().iter().all(Option::is_some), "there is room again");
    assert_eq!(inbound.view().loads.binding, None);
    inbound.gate.see(None);
    assert_eq!(inbound.view().loads, Loads::default(), "of what is not seen nothing is known");
}

#[tokio::test]
async fn clusters_of_one_process_share_a_gate_and_count_for_themselves() {
    let config = |pid| config::Inbound { pid: std::num::NonZeroU32::new(pid), ..config::Inbound::default() };
    let one = Inbound::new(&config(1), std::iter::empty());
    let other = Inbound::new(&config(1), [&one].into_iter());
    let third = Inbound::new(&config(2), [&one, &other].into_iter());
    assert!(Arc::ptr_eq(&one.gate, &other.gate) && !Arc::ptr_eq(&one.gate, &third.gate));
    assert_eq!(one.number_of("ann"), other.number_of("ann"), "a customer has one limit, by whichever cluster it comes");
    drop(ask(&one, Criticality::Critical));
    assert_eq!((count(&one, ADMITTED), count(&other, ADMITTED)), (1, 0));
}

#[tokio::test]
async fn what_is_turned_away_is_judged_by_customer_and_cause() {
    tokio::time::pause();
    let inbound = inbound(false);
    inbound.gate.see(Some(sample(0.0, true)));
    let summary = || inbound.view().shedding;
    assert_eq!(summary().verdict, Verdict::Fine);
    let passages: Vec<_> = (0..1_000).map(|_| ask(&inbound, Criticality::Sheddable)).collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(summary().verdict, Verdict::AsIntended);
    let [minute, ..] = summary().windows;
    let class = minute.classes[Criticality::Sheddable.rank()];
    let shed = passages.iter().filter(|passage| passage.is_err()).count() as u64;
    assert_eq!((class.offered.requests, class.shed[Cause::Overloaded as usize].requests), (1_000, shed));
    assert_eq!(summary().customers[0].name.as_str(), "ann");

    let said = inbound.ask(&arrival(Criticality::CriticalPlus), Names { customer: &"ann", route: &"GET /" }).1;
    inbound.lost(Criticality::CriticalPlus, said, ShedReason::NoBackend);
    assert_eq!(summary().verdict, Verdict::UsersAffected);
}

/// The rules of a listener with these settings, whose customers may use a fifth of a CPU.
fn rules(settings: &str) -> Rules {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:1\"\ncustomer_header = \"x-customer\"\n{settings}\n[[routes]]\ncluster = \
         \"a\"\n[clusters.a]\nbackends = [\"127.0.0.1:80\"]\n[clusters.a.inbound]\npid = 1\n[other_customers]\nhard_limit = 0.2\n"
    );
    let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
    Rules::new(
        &Claims::new(&config.listeners()[0], config.listeners(), &Arc::new(Quotas::from(&config))),
        &config.routes()[0],
    )
}

/// What a gate is told of a request with these values of `x-session`.
fn of_session(rules: &Rules, inbound: &Inbound, sessions: &[&str]) -> Arrival {
    let mut request = Request::get("/").body(()).unwrap();
    for session in sessions {
        request.headers_mut().append("x-session", HeaderValue::from_str(session).unwrap());
    }
    let class = rules.classify(rules.read(request.headers()));
    let asked = rules.asked(&request, false);
    rules.arrival(class, &asked, rules.customer(request.headers()), request.headers(), inbound)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[test]
fn a_request_is_of_the_cohort_that_its_listener_has_it_named_by() {
    let (inbound, sessions) = (inbound(false), rules("cohort_header = \"x-session\""));
    let one_of = |begun: Duration, key: &[u8]| [begun, since_epoch()].map(|at| admit::cohort(key, at));
    for (values, key) in [(&["s1"][..], "s1"), (&["s2", "s1"], "s2"), (&["a b=c"], "a b=c")] {
        let begun = since_epoch();
        let cohort = of_session(&sessions, &inbound, values).cohort;
        assert!(cohort.is_some() && one_of(begun, key.as_bytes()).contains(&cohort), "{values:?}");
    }
    for (rules, values) in [(&sessions, &[][..]), (&sessions, &[""]), (&rules(""), &["s1"])] {
        assert_eq!(of_session(rules, &inbound, values).cohort, None, "{values:?}");
    }
}

#[tokio::test]
async fn gates_of_different_proxies_turn_the_same_sessions_away() {
    tokio::time::pause();
    let rules = rules("cohort_header = \"x-session\"");
    // Of each of a hundred sessions, how many of twenty requests are let in, after ten that do not count. They ask for five times the limit.
    let let_in = async |age: Duration, since_epoch: Duration| {
        let inbound = inbound(false);
        inbound.gate.see(Some(sample(0.0, true)));
        tokio::time::advance(age).await;
        let mut taken = [0; 100];
        for n in 0..3_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            let session = format!("session-{}", n % 100);
            // By the clock of the wall each hour would be another experiment, and how many are in luck is chance.
            let cohort = admit::cohort(session.as_bytes(), since_epoch);
            let arrival = Arrival { cohort, ..of_session(&rules, &inbound, &[&session]) };
            let (passage, _) = inbound.ask(&arrival, Names { customer: &"ann", route: &"GET /" });
            taken[n % 100] += usize::from(n >= 1_000 && passage.is_ok());
        }
        taken
    };
    for hour in 0..3 {
        let since_epoch = Duration::from_secs(3_600 * hour);
        let (one, other) =
            (let_in(Duration::ZERO, since_epoch).await, let_in(Duration::from_secs(20_000), since_epoch).await);
        let both =
            |is: fn(usize) -> bool| one.iter().zip(&other).filter(|(one, other)| is(**one) && is(**other)).count();
        let (taken, turned_away) = (both(|n| n >= 18), both(|n| n <= 2));
        assert!(taken >= 5 && turned_away >= 60, "hour {hour}: {taken} {turned_away}: {one:?} {other:?}");
        let apart: usize = one.iter().zip(&other).map(|(one, other)| one.abs_diff(*other)).sum();
        assert!(apart <= 20, "hour {hour}: {apart} requests of 2,000 fared otherwise: {one:?} {other:?}");
    }
}

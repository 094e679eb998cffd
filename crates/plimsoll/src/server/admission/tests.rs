//! The gate of a process that only the test samples.

use std::time::Duration;

use http::HeaderMap;
use plimsoll_core::admit::{Outlook, ProcessCounters, Quota, Shed};
use plimsoll_core::meter::Kind;
use plimsoll_core::shedding::Verdict;
use plimsoll_core::signal::{Memory, Readings, ResourceConfig, Signal};
use plimsoll_system::ProcessSample;

use super::foreign::Usage;
use super::*;

fn admission(is_dry_run: bool) -> Admission<ForeignProcess> {
    let mode = if is_dry_run { Mode::DryRun } else { Mode::Protect };
    Admission::new(Gate::of_process(mode, Outlook::default(), Speed::REFERENCE, None, ResourceConfig::default()), mode)
}

fn sample(cpu: f64, is_first: bool) -> ProcessSample {
    ProcessSample {
        outside: ProcessCounters { cpu, waited: 0.0 },
        is_first,
        cpus: is_first.then_some(1.0),
        readings: None,
    }
}

fn facts(criticality: Criticality) -> Facts<'static> {
    let kind = Kind { route: 1, customer: 1 };
    let arrival = Arrival { criticality, kind, quota: Quota::UNLIMITED, timeout: None, cohort: None, is_retry: false };
    Facts { arrival, is_expired: false, name: b"ann", customer: &"ann", route: &"GET /" }
}

fn ask(admission: &Admission<ForeignProcess>, criticality: Criticality) -> Result<Permit, Shed> {
    admission.ask(&facts(criticality)).0.map(|entry| admission.gate().permit(entry))
}

/// The counts of all criticalities together.
fn count(admission: &Admission<ForeignProcess>) -> DecisionCounts {
    admission.counts().into_iter().fold(DecisionCounts::default(), |mut sum, of| {
        sum.admitted += of.admitted;
        sum.shed.iter_mut().zip(of.shed).for_each(|(sum, of)| *sum += of);
        sum
    })
}

#[tokio::test]
async fn gate_admits_everything_until_its_process_is_found() {
    tokio::time::pause();
    let admission = admission(false);
    let flood = |criticality| {
        let permits: Vec<_> = (0..1_000).map(|_| ask(&admission, criticality)).collect();
        permits.iter().filter(|permit| permit.is_ok()).count()
    };
    assert_eq!((flood(Criticality::Sheddable), admission.gate().cpus()), (1_000, None));
    admission.gate().observe(Some(sample(7.0, true)));
    let sheddable = flood(Criticality::Sheddable);
    assert!((1..200).contains(&sheddable), "{sheddable}");
    assert!(ask(&admission, Criticality::CriticalPlus).is_ok());
    assert_eq!(count(&admission).shed_for(Rejection::Overloaded), 1_000 - sheddable as u64);
    assert_eq!(count(&admission).admitted, 1_001 + sheddable as u64);
    assert_eq!(admission.gate().cpus(), Some(0.0));
    admission.gate().observe(None);
    assert_eq!(admission.gate().cpus(), None);
}

#[tokio::test]
async fn dry_run_counts_requests_it_would_shed_and_admits_all() {
    let admission = admission(true);
    admission.gate().observe(Some(sample(0.0, true)));
    let permits: Vec<_> = (0..1_000).map(|_| ask(&admission, Criticality::Sheddable)).collect();
    assert!(permits.iter().all(Result::is_ok));
    assert!(count(&admission).shed_for(Rejection::Overloaded) > 500);
    assert_eq!(count(&admission).admitted, 1_000);
}

#[tokio::test]
async fn request_is_in_flight_from_sending_until_its_response_begins() {
    let admission = admission(false);
    admission.gate().observe(Some(sample(0.0, true)));
    let in_flight = || admission.gate().signals.in_flight();
    let mut permits = [admission.gate().permit(None), ask(&admission, Criticality::Critical).ok().unwrap()];
    assert_eq!(in_flight(), 0, "the client may take long over its body");
    permits.iter_mut().for_each(|permit| permit.sent());
    assert_eq!(in_flight(), 2);
    let [answered, abandoned] = &mut permits;
    answered.hear(&HeaderMap::new());
    assert_eq!(in_flight(), 1, "a response may be events for hours");
    answered.hear(&HeaderMap::new());
    assert_eq!(in_flight(), 1, "trailers end nothing again");
    abandoned.nothing_sent();
    drop(permits);
    assert_eq!(in_flight(), 0);
}

#[tokio::test]
async fn abandoned_request_frees_nothing_while_the_process_is_busy() {
    tokio::time::pause();
    let admission = admission(false);
    admission.gate().observe(Some(sample(0.0, true)));
    let mut cpu = 0.0;
    let mut after = async |used: f64| {
        tokio::time::advance(Duration::from_millis(20)).await;
        cpu += used;
        admission.gate().observe(Some(sample(cpu, false)));
        let permits: Vec<_> = (0..200).map(|_| ask(&admission, Criticality::Sheddable)).collect();
        permits.into_iter().filter(Result::is_ok).count()
    };
    for _ in 0..100 {
        if let Ok(mut permit) = ask(&admission, Criticality::Critical) {
            permit.sent();
        }
    }
    let busy = after(0.02).await;
    let idle = after(0.001).await;
    assert!(busy <= 4, "{busy}: it may work on abandoned requests");
    assert!(idle >= 8, "{idle}: it has nothing to do");
}

#[tokio::test]
async fn costs_are_learned_from_the_cpu_of_the_process() {
    tokio::time::pause();
    let admission = admission(false);
    admission.gate().observe(Some(sample(0.0, true)));
    // Ten requests at once are expected to cost a millisecond each, and more would fit on a CPU. At
    // 100 ms each they do not.
    let at_once = |count: u32| (0..count).map(|_| ask(&admission, Criticality::Critical).ok()).collect::<Vec<_>>();
    assert!(at_once(10).iter().all(Option::is_some));
    let expected = |admission: &Admission<ForeignProcess>| {
        let entry = admission.ask(&facts(Criticality::CriticalPlus)).0.ok().flatten();
        let expected = entry.as_ref().expect("there is headroom").expected();
        admission.gate().ended(entry, Usage::None);
        expected
    };
    let mut cpu = 0.0;
    for _ in 0..100 {
        at_once(2).into_iter().flatten().for_each(|mut permit| permit.sent());
        tokio::time::advance(Duration::from_millis(250)).await;
        cpu += 0.2;
        admission.gate().observe(Some(sample(cpu, false)));
    }
    let cost = expected(&admission);
    assert!((0.05..0.2).contains(&cost), "{cost}");
    // Requests that are never sent teach nothing, whatever the process does meanwhile.
    for n in 0..100 {
        drop(at_once(2));
        at_once(1).into_iter().flatten().for_each(|mut permit| {
            permit.sent();
            permit.nothing_sent();
        });
        tokio::time::advance(Duration::from_millis(250)).await;
        admission.gate().observe(Some(sample(cpu + f64::from(n) * 0.001, false)));
    }
    assert_eq!(expected(&admission), cost);
}

#[tokio::test]
async fn gate_of_a_fast_machine_shows_reference_cpus() {
    tokio::time::pause();
    let speed = Speed::new(2.5).unwrap();
    let gate = Gate::of_process(Mode::Protect, Outlook::default(), speed, Some(2.0), ResourceConfig::default());
    gate.observe(Some(ProcessSample { cpus: Some(2.0), ..sample(0.0, true) }));
    assert_eq!((gate.speed(), gate.capacity()), (speed, 5.0));
    for n in 1..=200 {
        tokio::time::advance(Duration::from_millis(20)).await;
        gate.observe(Some(sample(f64::from(n) * 0.01, false)));
    }
    let cpus = gate.cpus().unwrap();
    assert!((cpus - 1.25).abs() < 0.01, "half a CPU of the machine, {cpus} of the reference");
}

/// Memory that fills by 8% a second, and is full soon.
#[tokio::test]
async fn memory_that_runs_out_admits_fewer_and_is_the_binding_signal() {
    tokio::time::pause();
    let admission = admission(false);
    let memory = |used| Readings { memory: Some(Memory { used, limit: 1_000 }), ..Readings::default() };
    let seen = |n: u64, used| ProcessSample { readings: Some(memory(used)), ..sample(n as f64 * 0.01, n == 0) };
    let at_once = || (0..20).map(|_| ask(&admission, Criticality::Critical).ok()).collect::<Vec<_>>();
    admission.gate().observe(Some(seen(0, 700)));
    assert!(at_once().iter().all(Option::is_some), "all that fits on a CPU");
    for n in 1..=14 {
        tokio::time::advance(Duration::from_millis(250)).await;
        admission.gate().observe(Some(seen(n, 700 + 20 * n)));
    }
    let admitted = at_once().iter().flatten().count();
    assert!((1..15).contains(&admitted), "{admitted} of twenty");
    let loads = admission.gate().loads();
    assert_eq!(loads.binding, Some(Signal::Memory));
    assert!(loads.known().any(|(signal, load)| signal == Signal::Memory && load > 1.0), "{loads:?}");
    // It no longer fills.
    for n in 15..=200 {
        tokio::time::advance(Duration::from_millis(250)).await;
        admission.gate().observe(Some(seen(n, 980)));
    }
    assert!(at_once().iter().all(Option::is_some), "there is headroom again");
    assert_eq!(admission.gate().loads().binding, None);
    admission.gate().observe(None);
    assert_eq!(admission.gate().loads(), Loads::default(), "an unseen process has no loads");
}

#[tokio::test]
async fn shed_requests_are_judged_by_customer_and_cause() {
    tokio::time::pause();
    let admission = admission(false);
    admission.gate().observe(Some(sample(0.0, true)));
    let summary = || admission.shedding_report();
    assert_eq!(summary().verdict, Verdict::Fine);
    let permits: Vec<_> = (0..1_000).map(|_| ask(&admission, Criticality::Sheddable)).collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(summary().verdict, Verdict::AsIntended);
    let [minute, ..] = summary().windows;
    let class = minute.classes[Criticality::Sheddable.rank()];
    let shed = permits.iter().filter(|permit| permit.is_err()).count() as u64;
    assert_eq!((class.offered.requests, class.shed_for(Rejection::Overloaded).requests), (1_000, shed));
    assert_eq!(summary().customers[0].name.as_str(), "ann");

    let assessment = admission.ask(&facts(Criticality::CriticalPlus)).1;
    admission.lost(Criticality::CriticalPlus, assessment, Rejection::NoBackend);
    assert_eq!(summary().verdict, Verdict::UsersAffected);
}

#[tokio::test(start_paused = true)]
async fn cpu_time_of_a_process_goes_on_after_its_restart() {
    let gate =
        Gate::of_process(Mode::Protect, Outlook::default(), Speed::REFERENCE, Some(2.0), ResourceConfig::default());
    let sample = |cpu, is_first| ProcessSample {
        outside: ProcessCounters { cpu, waited: 0.0 },
        is_first,
        cpus: None,
        readings: None,
    };
    assert_eq!(gate.cpu_time(), None);
    for (cpu, is_first, used) in [(7.0, true, 0), (8.0, false, 1), (0.5, true, 1), (2.5, false, 3), (2.0, false, 3)] {
        tokio::time::advance(Duration::from_millis(20)).await;
        gate.observe(Some(sample(cpu, is_first)));
        assert_eq!(gate.cpu_time(), Some(Duration::from_secs(used)), "{cpu}");
    }
    gate.observe(None);
    assert_eq!(gate.cpu_time(), None);
}

#[tokio::test(start_paused = true)]
async fn latency_is_that_of_successes_by_the_number_that_they_found() {
    let admission = admission(false);
    let gate = admission.gate();
    let answer = |permit: &mut Permit, status: u16| {
        permit.answered(&http::Response::builder().status(status).body(()).unwrap());
    };
    // Kept as f32.
    let latency_ms = || gate.in_flight().1.map(|latency| (latency.as_secs_f64() * 1e3).round());
    let (mut one, mut other, mut failed) = (gate.permit(None), gate.permit(None), gate.permit(None));
    one.sent();
    assert_eq!((gate.in_flight().0, latency_ms()), (1, None));
    tokio::time::advance(Duration::from_millis(10)).await;
    answer(&mut one, 200);
    assert_eq!((gate.in_flight().0, latency_ms()), (0, Some(10.0)));
    failed.sent();
    other.sent();
    tokio::time::advance(Duration::from_millis(30)).await;
    answer(&mut other, 200);
    assert_eq!((gate.in_flight().0, latency_ms()), (1, Some(30.0)));
    answer(&mut failed, 503);
    answer(&mut one, 200);
    assert_eq!((gate.in_flight().0, latency_ms()), (0, Some(10.0)), "neither a failure nor a second head counts");
}

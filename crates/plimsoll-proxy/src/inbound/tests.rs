//! The gate of a process that only the test samples.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Request};
use plimsoll_core::admit::{self, Arrival, ProcessCounters, Quota};
use plimsoll_core::meter::Kind;
use plimsoll_system::ProcessSample;

use super::*;
use crate::classify::quotas::Quotas;
use crate::classify::{Claims, Rules};
use crate::config::Config;

/// A cluster whose process is sampled by the test alone.
fn inbound() -> Inbound {
    Inbound::unwatched(&config::Inbound::default())
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

fn facts(arrival: Arrival) -> Facts<'static> {
    Facts { arrival, is_expired: false, name: b"ann", customer: &"ann", route: &"GET /" }
}

fn ask(inbound: &Inbound, criticality: Criticality) -> Result<Box<Permit>, Shed> {
    inbound.ask(&facts(arrival(criticality))).0
}

fn count(inbound: &Inbound, decision: &str) -> u64 {
    inbound.view().decisions.iter().filter(|(_, name, _)| *name == decision).map(|(_, _, count)| count).sum()
}

#[tokio::test]
async fn clusters_of_one_process_share_a_gate_and_count_for_themselves() {
    let config = |pid| config::Inbound { pid: std::num::NonZeroU32::new(pid), ..config::Inbound::default() };
    let one = Inbound::new(&config(1), std::iter::empty());
    let other = Inbound::new(&config(1), [&one].into_iter());
    let third = Inbound::new(&config(2), [&one, &other].into_iter());
    assert!(Arc::ptr_eq(one.gate(), other.gate()) && !Arc::ptr_eq(one.gate(), third.gate()));
    assert_eq!(one.number_of("ann"), other.number_of("ann"), "a customer has one limit, by whichever cluster it comes");
    drop(ask(&one, Criticality::Critical));
    assert_eq!((count(&one, "admitted"), count(&other, "admitted")), (1, 0));
}

#[tokio::test]
async fn speed_is_configured_or_measured_and_scales_the_capacity() {
    let view =
        |speed| Inbound::unwatched(&config::Inbound { cpus: Some(2.0), speed, ..config::Inbound::default() }).view();
    let default = view(None);
    assert_eq!((default.speed, default.capacity), (None, 2.0));
    let fast = Speed::new(1.5).unwrap();
    let configured = view(Some(config::SpeedSetting::Known(fast)));
    assert_eq!((configured.speed, configured.capacity), (Some(MachineSpeed::Configured(fast)), 3.0));
    let measured = view(Some(config::SpeedSetting::Calibrate));
    let Some(MachineSpeed::Calibrated(calibration)) = measured.speed else { panic!("{measured:?}") };
    assert_eq!(measured.capacity, calibration.speed.reference(2.0));
}

/// The rules of a listener with these settings, whose customers may use a fifth of a CPU.
fn rules(settings: &str) -> Rules {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:1\"\ncustomer_header = \"x-customer\"\n{settings}\n[[routes]]\ncluster = \
         \"a\"\n[clusters.a]\nbackends = [\"127.0.0.1:80\"]\n[clusters.a.inbound]\npid = 1\n[other_customers]\nhard_limit = 0.2\n"
    );
    let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
    Rules::new(
        &Claims::new(&config.listeners()[0], config.listeners(), &Arc::new(Quotas::new(&config, &Arc::default()))),
        config.named_routes().next().unwrap(),
    )
}

/// The facts about a request with these values of `x-session`.
fn of_session(rules: &Rules, inbound: &Inbound, sessions: &[&str]) -> Arrival {
    let mut request = Request::get("/").body(()).unwrap();
    for session in sessions {
        request.headers_mut().append("x-session", HeaderValue::from_str(session).unwrap());
    }
    let class = rules.classify(rules.read(request.headers()));
    let asked = rules.asked(&request, false);
    let customer = request.headers().get("x-customer").map(HeaderValue::as_bytes);
    rules.arrival(class, &asked, customer, request.headers(), inbound)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[test]
fn request_has_the_cohort_that_its_listener_names() {
    let (inbound, sessions) = (inbound(), rules("cohort_header = \"x-session\""));
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
async fn gates_of_different_proxies_shed_the_same_sessions() {
    tokio::time::pause();
    let rules = rules("cohort_header = \"x-session\"");
    // Admitted requests of twenty for each of a hundred sessions, after ten that do not count.
    // Their load is five times the limit.
    let admitted = async |age: Duration, since_epoch: Duration| {
        let inbound = inbound();
        inbound.gate().observe(Some(sample(0.0, true)));
        tokio::time::advance(age).await;
        let mut taken = [0; 100];
        for n in 0..3_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            let session = format!("session-{}", n % 100);
            // The wall clock would make each hour another experiment with another draw.
            let cohort = admit::cohort(session.as_bytes(), since_epoch);
            let arrival = Arrival { cohort, ..of_session(&rules, &inbound, &[&session]) };
            let (permit, _) = inbound.ask(&facts(arrival));
            taken[n % 100] += usize::from(n >= 1_000 && permit.is_ok());
        }
        taken
    };
    for hour in 0..3 {
        let since_epoch = Duration::from_secs(3_600 * hour);
        let (one, other) =
            (admitted(Duration::ZERO, since_epoch).await, admitted(Duration::from_secs(20_000), since_epoch).await);
        let both =
            |is: fn(usize) -> bool| one.iter().zip(&other).filter(|(one, other)| is(**one) && is(**other)).count();
        let (taken, turned_away) = (both(|n| n >= 18), both(|n| n <= 2));
        assert!(taken >= 5 && turned_away >= 60, "hour {hour}: {taken} {turned_away}: {one:?} {other:?}");
        let apart: usize = one.iter().zip(&other).map(|(one, other)| one.abs_diff(*other)).sum();
        assert!(apart <= 20, "hour {hour}: {apart} requests of 2,000 fared otherwise: {one:?} {other:?}");
    }
}

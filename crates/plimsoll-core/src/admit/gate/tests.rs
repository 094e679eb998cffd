extern crate std;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::Rejection;
use crate::quota::{self, Refusal};

const MS: u64 = 1_000_000;
const ARRIVAL: Arrival = Arrival {
    criticality: Criticality::Critical,
    kind: Kind { route: 1, customer: 1 },
    quota: Quota::UNLIMITED,
    timeout: None,
    cohort: None,
    is_retry: false,
};

/// The source of a request's CPU use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    Itself,
    Nobody,
}

/// Runs one core for ten seconds with 2,000 requests a second. Each uses 1 ms in its own code
/// and 0.25 ms of overhead, which shed requests use, too. Returns the requests admitted and
/// shed in the last second.
fn overload(mode: Mode, measured: Measured) -> (u64, u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut gate = Gate::new(Timestamp::ZERO, AdmissionConfig::new(1.0).expect("a core"), mode, Observation::default());
    let mut seen = Observation::default();
    let mut running = std::collections::VecDeque::new();
    // CPU-seconds of work that the core still has to do.
    let mut work: f64 = 0.0;
    let (mut taken, mut shed) = (0, 0);
    for n in 0..20_000_u64 {
        let now = Timestamp::from_nanos(n * MS / 2);
        let step = work.min(0.0005);
        work -= step;
        seen.cpu += step;
        while running.front().is_some_and(|(done, _)| *done <= seen.cpu) {
            let (_, entry) = running.pop_front().expect("just seen");
            match measured {
                Measured::Itself => {
                    seen.charged += 0.001;
                    gate.end(now, entry, 0.001);
                }
                Measured::Nobody => gate.end_unmeasured(now, entry),
            }
        }
        if n % 20 == 0 {
            if measured == Measured::Nobody {
                seen.charged = seen.cpu;
            }
            gate.observe(now, seen, &Gauges::default());
        }
        let (entry, refusal) = gate.ask(now, &ARRIVAL, &mut rng).into_parts();
        work += 0.00025 + if entry.is_some() { 0.001 } else { 0.0 };
        if n >= 18_000 {
            taken += u64::from(entry.is_some());
            shed += u64::from(refusal.is_some());
        }
        running.extend(entry.map(|entry| (seen.cpu + work, entry)));
    }
    (taken, shed)
}

#[test]
fn overhead_leaves_less_capacity_for_requests() {
    // 2,000 times 0.25 ms are half of the core.
    let (taken, shed) = overload(Mode::Protect, Measured::Itself);
    assert!((450..=510).contains(&taken), "{taken}");
    assert_eq!(taken + shed, 2_000);
}

#[test]
fn unmeasured_cpu_is_charged_to_admitted_requests() {
    // Shed requests use the same half of the core, and all of it is taken for the cost of the
    // others.
    let (taken, shed) = overload(Mode::Protect, Measured::Nobody);
    assert!((400..=510).contains(&taken), "{taken}");
    assert_eq!(taken + shed, 2_000);
}

#[test]
fn dry_run_sheds_no_request_for_its_own_queue() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    for (mode, is_shed) in [(Mode::Protect, true), (Mode::DryRun, false)] {
        let mut gate =
            Gate::new(Timestamp::ZERO, AdmissionConfig::new(1.0).expect("a core"), mode, Observation::default());
        let _in_progress = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng);
        let now = Timestamp::from_nanos(20 * MS);
        let seen = Observation { cpu: 0.02, charged: 0.02, runnable: 1_000.0, queued: 1_000.0 };
        gate.observe(now, seen, &Gauges::default());
        assert_eq!(gate.ask(now, &ARRIVAL, &mut rng).shed().is_some(), is_shed, "{mode:?}");
    }
}

/// Sends a request of 10 ms every 50 ms to one core, with a limit of half of it for the
/// customer. The process reports `said(n)`. Returns the requests shed in the last tenth of the
/// run.
fn of_a_limited_customer(said: impl Fn(u64) -> f64) -> usize {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut gate = one_core();
    let arrival = Arrival { quota: Quota { most: Some(0.5), ..Quota::UNLIMITED }, ..ARRIVAL };
    let (mut seen, mut shed) = (Observation::default(), 0);
    for n in 0..200_u64 {
        let now = Timestamp::from_nanos(n * 50 * MS);
        gate.observe(now, seen, &Gauges::default());
        let (entry, refusal) = gate.ask(now, &arrival, &mut rng).into_parts();
        if let Some(entry) = entry {
            seen.cpu += 0.01;
            seen.charged += 0.01;
            gate.end_reported(Timestamp::from_nanos((n * 50 + 12) * MS), entry, said(n));
        }
        shed += usize::from(n >= 180 && refusal.is_some());
    }
    shed
}

#[test]
fn wrong_report_of_one_request_does_not_shut_its_customer_out() {
    assert_eq!(of_a_limited_customer(|_| 0.01), 0);
    assert_eq!(of_a_limited_customer(|n| if n == 100 { 1e6 } else { 0.01 }), 0, "one");
    assert_eq!(of_a_limited_customer(|n| if n >= 100 { 10.0 } else { 0.01 }), 0, "milliseconds from here on");
}

#[test]
fn dry_run_admits_all_and_reports_requests_to_shed() {
    let (taken, shed) = overload(Mode::DryRun, Measured::Itself);
    assert_eq!(taken, 2_000);
    assert!(shed > 1_000, "{shed}");
}

/// Sends two requests each 10 ms to one core, a thousand in all, with this timeout. Each uses
/// 20 µs as soon as it is admitted. Returns the requests admitted in the first half, and in the
/// second.
fn in_time(gate: &mut Gate, from: Timestamp, timeout: Duration) -> [usize; 2] {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let arrival = Arrival { timeout: Some(timeout), ..ARRIVAL };
    let mut admitted = [0; 2];
    for n in 0..500_u32 {
        let now = from + n * Duration::from_millis(10);
        let both = [(); 2].map(|()| gate.ask(now, &arrival, &mut rng).entry());
        for entry in both.into_iter().flatten() {
            admitted[n as usize / 250] += 1;
            gate.end(now + Duration::from_micros(20), entry, 20e-6);
        }
    }
    admitted
}

fn one_core() -> Gate {
    let config = AdmissionConfig::new(1.0).expect("a core");
    Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default())
}

#[test]
fn short_deadline_is_admitted_when_costs_are_unknown() {
    let [first, second] = in_time(&mut one_core(), Timestamp::ZERO, Duration::from_micros(900));
    assert!(first >= 498 && second == 500, "{first} {second}");
}

#[test]
fn short_deadline_is_admitted_again_after_a_slow_start() {
    let mut gate = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let entry = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng).entry().expect("there is headroom");
    let now = Timestamp::from_nanos(800 * MS);
    gate.end(now, entry, 0.8);
    let [first, second] = in_time(&mut gate, now, Duration::from_millis(500));
    assert!(first >= 495 && second == 500, "{first} {second}");
}

#[test]
fn unsent_request_uses_nothing_and_teaches_nothing() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let config = AdmissionConfig::new(1.0).expect("a core");
    let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
    let cost = gate.expected(ARRIVAL.kind);
    // Four times the capacity of the core in these ten seconds. The core uses a fiftieth of the
    // time for work of its own.
    for n in 0..40_000_u64 {
        let now = Timestamp::from_nanos(n * MS / 4);
        let (entry, shed) = gate.ask(now, &ARRIVAL, &mut rng).into_parts();
        gate.end_unsent(now, entry.unwrap_or_else(|| panic!("{n}: {shed:?}")));
        if n % 80 == 0 {
            let cpu = n as f64 * 0.00025 * 0.02;
            gate.observe(now, Observation { cpu, charged: cpu, runnable: 0.0, queued: 0.0 }, &Gauges::default());
        }
    }
    assert_eq!(gate.expected(ARRIVAL.kind), cost);
}

#[test]
fn impossible_reports_are_ignored() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let config = AdmissionConfig::new(1.0).expect("a core");
    let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
    let mut cpu = 0.0;
    // 200 requests a second use 2 ms each and report it, except for a few.
    for n in 0..4_000_u64 {
        let now = Timestamp::from_nanos(n * 5 * MS);
        let (entry, shed) = gate.ask(now, &ARRIVAL, &mut rng).into_parts();
        let entry = entry.unwrap_or_else(|| panic!("{n}: {shed:?}"));
        let said = match n {
            1_000 | 1_001 => 1e308,
            1_500 => f64::INFINITY,
            1_501 => f64::NAN,
            1_502 => -1e308,
            _ => 0.002,
        };
        gate.end_reported(now, entry, said);
        cpu += 0.002;
        if n % 4 == 0 {
            gate.observe(now, Observation { cpu, charged: cpu, runnable: 0.0, queued: 0.0 }, &Gauges::default());
        }
        let expected = gate.expected(ARRIVAL.kind);
        assert!(n < 900 || (expected - 0.002).abs() < 0.0001, "{n}: {expected}");
    }
}

/// Sends a request of 1 ms every 0.5 ms for two seconds to a server of eight cores, with a
/// limit of a tenth of a core. Returns the requests admitted, and the requests found above the
/// limit.
fn limited(mode: Mode) -> (u64, u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut gate = Gate::new(Timestamp::ZERO, AdmissionConfig::new(8.0).expect("cores"), mode, Observation::default());
    let arrival = Arrival { quota: Quota::hard(0.1).expect("a limit"), ..ARRIVAL };
    let (mut taken, mut over) = (0, 0);
    for n in 0..4_000_u64 {
        let now = Timestamp::from_nanos(n * MS / 2);
        let (entry, shed) = gate.ask(now, &arrival, &mut rng).into_parts();
        over += u64::from(shed.is_some_and(|shed| shed.reason == Rejection::Quota));
        if let Some(mut entry) = entry {
            taken += 1;
            if entry.progress_due() < 0.0009 {
                gate.progress(now, &mut entry, 0.0005);
            }
            gate.end(now, entry, 0.001);
        }
    }
    (taken, over)
}

#[test]
fn customer_stays_within_its_hard_limit_on_an_idle_server() {
    let (taken, over) = limited(Mode::Protect);
    assert!((185..=202).contains(&taken), "{taken}");
    assert_eq!(taken + over, 4_000);
}

#[test]
fn quota_refusal_has_the_limit_and_the_use() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let config = AdmissionConfig::new(8.0).expect("cores");
    let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
    let quota = Quota::hard(0.1).expect("a limit");
    let arrival = Arrival { quota, ..ARRIVAL };
    let now = |n| Timestamp::from_nanos(n * MS / 2);
    let (mut used, mut refusals) = (0.0, 0);
    for n in 0..4_000 {
        let (entry, shed) = gate.ask(now(n), &arrival, &mut rng).into_parts();
        if let Some(entry) = entry {
            gate.end(now(n), entry, 0.001);
        }
        let standing = gate.standing(now(n), ARRIVAL.kind.customer, quota).expect("it has a limit");
        assert!(standing.limit == 0.1 && (0.0..0.1001).contains(&standing.used), "{n}: {standing:?}");
        if n >= 2_000 && shed.is_some() {
            (used, refusals) = (used + standing.used, refusals + 1);
        }
    }
    // Refusals are spread over each second, so the use at one of them may be below the limit.
    let mean = used / f64::from(refusals);
    assert!(refusals > 1_800 && (0.07..=0.1).contains(&mean), "{refusals} refusals at {mean} CPUs");
    assert_eq!(gate.standing(now(4_000), ARRIVAL.kind.customer, Quota::UNLIMITED), None);
    let stranger = gate.standing(now(4_000), 7, quota).expect("it has a limit");
    assert_eq!((stranger.used, stranger.debt), (0.0, 0.0));
    let nothing = Quota::hard(0.0).expect("a limit");
    assert_eq!(gate.standing(now(4_000), 7, nothing).map(|standing| standing.limit), Some(0.0));
}

#[test]
fn dry_run_admits_and_reports_a_customer_above_its_limit() {
    let (taken, over) = limited(Mode::DryRun);
    assert!(taken == 4_000 && (3_798..=3_815).contains(&over), "{taken} {over}");
}

/// The binding signals of one core after two seconds with two requests of 1 ms each
/// millisecond, and two seconds later.
fn binding(runnable: f64, gauges: Gauges) -> [Option<Signal>; 2] {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let config = AdmissionConfig::new(1.0).expect("a core");
    let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
    let mut running = std::collections::VecDeque::new();
    let at = |ms: u64| Timestamp::from_nanos(ms * MS);
    for ms in 0..2_000 {
        if let Some(entry) = running.pop_front() {
            gate.end(at(ms), entry, 0.001);
        }
        if ms % 10 == 0 {
            let cpu = ms as f64 * 0.97e-3;
            gate.observe(at(ms), Observation { cpu, charged: cpu, runnable, queued: 0.0 }, &gauges);
        }
        for _ in 0..2 {
            running.extend(gate.ask(at(ms), &ARRIVAL, &mut rng).entry());
        }
    }
    let loads = gate.loads(at(2_000));
    assert!(loads.known().all(|(signal, load)| load > 0.0 || signal == Signal::Cpu), "{loads:?}");
    [loads.binding, gate.loads(at(4_000)).binding]
}

#[test]
fn binding_signal_is_the_cause_of_shedding() {
    let memory = Gauges { memory: Some(2.0), ..Gauges::default() };
    let both = Gauges { own: Some(3.0), ..memory };
    let calm = Gauges { memory: Some(0.9), memory_pressure: Some(0.1), ..Gauges::default() };
    for (runnable, gauges, signal) in [
        (4.0, calm, Signal::Cpu),
        (200.0, calm, Signal::LoadAverage),
        (4.0, memory, Signal::Memory),
        (4.0, both, Signal::Gauge),
        (200.0, memory, Signal::Memory),
    ] {
        assert_eq!(binding(runnable, gauges), [Some(signal), None], "{runnable} {gauges:?}");
    }
    let config = AdmissionConfig::new(1.0).expect("a core");
    let idle = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
    assert_eq!(idle.loads(Timestamp::ZERO).binding, None);
}

#[test]
fn pessimistic_outlook_counts_the_likely_highest_cost() {
    let counted = |outlook| {
        let mut config = AdmissionConfig::new(8.0).expect("cores");
        config.outlook = outlook;
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        for n in 0..1_000 {
            let (entry, _) = gate.ask(Timestamp::from_nanos(n * MS), &ARRIVAL, &mut rng).into_parts();
            let entry = entry.expect("there is headroom");
            gate.end(Timestamp::from_nanos(n * MS), entry, if n % 2 == 0 { 0.001 } else { 0.003 });
        }
        let (entry, _) = gate.ask(Timestamp::from_nanos(1_000 * MS), &ARRIVAL, &mut rng).into_parts();
        entry.expect("there is headroom").progress_due()
    };
    // A mean of 2 ms, and a mean deviation of 1 ms.
    assert!((counted(Outlook::Optimistic) - 0.002).abs() < 0.0002, "{}", counted(Outlook::Optimistic));
    assert!((counted(Outlook::Pessimistic) - 0.004).abs() < 0.0004, "{}", counted(Outlook::Pessimistic));
}

/// A gate after a hundred requests of 3 ms in a second, with an overhead of 2 ms each.
fn known() -> (Gate, Timestamp) {
    let mut gate = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    for n in 0..100 {
        let now = Timestamp::from_nanos(n * 10 * MS);
        let entry = gate.ask(now, &ARRIVAL, &mut rng).entry().expect("there is headroom");
        gate.end(now, entry, 0.003);
    }
    let now = Timestamp::from_nanos(1_000 * MS);
    gate.observe(now, Observation { cpu: 0.5, charged: 0.3, ..Observation::default() }, &Gauges::default());
    (gate, now)
}

fn assert_close(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 0.01, "{got}, not {expected}");
}

#[test]
fn expected_cost_includes_overhead_but_not_in_an_entry() {
    let (mut gate, now) = known();
    assert_close(gate.expected(ARRIVAL.kind), 0.005);
    let mut entry = gate.ask(now, &ARRIVAL, &mut Pcg64Mcg::seed_from_u64(3)).entry().expect("there is headroom");
    assert_close(entry.expected(), 0.003);
    assert_close(entry.progress_due(), 0.005);
    gate.progress(now, &mut entry, 0.005);
    assert_close(entry.expected(), 0.01);
    assert_close(entry.progress_due(), 0.01);
}

/// A gate with many cores of this speed.
fn on(speed: Speed) -> Gate {
    let mut config = AdmissionConfig::new(8.0).expect("cores");
    config.speed = speed;
    Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default())
}

fn speed(speed: f64) -> Speed {
    Speed::new(speed).expect("within the range")
}

#[test]
fn quota_admits_the_same_requests_on_fast_and_slow_machines() {
    let quota = Quota::hard(0.1).expect("a limit");
    let arrival = Arrival { quota, ..ARRIVAL };
    // Requests of 1 ms on the reference core, two a millisecond, for two seconds.
    let admitted = |speed: Speed| {
        let (mut gate, mut rng) = (on(speed), Pcg64Mcg::seed_from_u64(3));
        let (mut admitted, mut most) = (0, 0.0_f64);
        for n in 0..4_000 {
            let now = Timestamp::from_nanos(n * MS / 2);
            if let Some(entry) = gate.ask(now, &arrival, &mut rng).entry() {
                admitted += 1;
                gate.end(now, entry, speed.local(0.001));
            }
            let standing = gate.standing(now, ARRIVAL.kind.customer, quota).expect("it has a limit");
            assert!((standing.limit - 0.1).abs() < 1e-12, "{standing:?}");
            most = most.max(standing.used);
        }
        assert!((0.09..=0.1001).contains(&most), "{most} reference CPUs at speed {speed}");
        admitted
    };
    for speed in [0.25, 1.0, 4.0].map(speed) {
        let admitted = admitted(speed);
        assert!((185..=202).contains(&admitted), "{admitted} at speed {speed}");
    }
}

#[test]
fn expected_cost_goes_out_in_reference_seconds() {
    let (mut gate, mut rng) = (on(speed(4.0)), Pcg64Mcg::seed_from_u64(3));
    for n in 0..100 {
        let now = Timestamp::from_nanos(n * 10 * MS);
        let entry = gate.ask(now, &ARRIVAL, &mut rng).entry().expect("there is headroom");
        gate.end(now, entry, 0.003);
    }
    let entry = gate.ask(Timestamp::from_nanos(1_000 * MS), &ARRIVAL, &mut rng).entry().expect("there is headroom");
    assert_close(entry.expected(), 0.003);
    assert_close(gate.expected(ARRIVAL.kind), 0.012);
}

#[test]
fn reported_costs_come_in_as_reference_seconds() {
    let slow = speed(0.25);
    let (mut gate, mut rng) = (on(slow), Pcg64Mcg::seed_from_u64(3));
    let kinds = [(Kind { route: 1, customer: 1 }, 0.04), (Kind { route: 2, customer: 1 }, 0.002)];
    let mut cpu = 0.0;
    for n in 0..1_000 {
        let now = Timestamp::from_nanos(n * 10 * MS);
        let (kind, local) = kinds[n as usize % 2];
        let seen = Observation { cpu, charged: cpu, ..Observation::default() };
        gate.observe(now, seen, &Gauges::default());
        let entry = gate.ask(now, &Arrival { kind, ..ARRIVAL }, &mut rng).entry().expect("there is headroom");
        gate.end_reported(now, entry, slow.reference(local));
        cpu += local;
    }
    // Taken for local seconds, most of the use would look like work in no report, and the kinds
    // alike.
    for (kind, local) in kinds {
        let expected = gate.expected(kind);
        assert!((expected / slow.reference(local) - 1.0).abs() < 0.1, "{expected} for {kind:?}");
    }
}

#[test]
fn abandoned_request_is_charged_its_expected_cost() {
    let (mut gate, now) = known();
    let quota = Quota::hard(0.5).expect("a limit");
    let arrival = Arrival { quota, ..ARRIVAL };
    let mut entry = gate.ask(now, &arrival, &mut Pcg64Mcg::seed_from_u64(3)).entry().expect("there is headroom");
    gate.progress(now, &mut entry, 0.02);
    let used = |gate: &mut Gate| gate.standing(now, ARRIVAL.kind.customer, quota).expect("it has a limit").used;
    // The window is 0.7% longer than a second.
    assert_close(used(&mut gate), 0.04);
    gate.end_abandoned(now, entry);
    assert_close(used(&mut gate), 0.005);
}

#[test]
fn cpu_used_after_the_end_of_a_request_delays_the_others() {
    let (mut gate, now) = (one_core(), Timestamp::from_nanos(1_000 * MS));
    assert_eq!(gate.pressure(Criticality::Critical), Pressure::None);
    gate.add_late_use(now, 0.05);
    assert_eq!(gate.pressure(Criticality::Critical), Pressure::Severe);
}

#[test]
fn resized_server_is_loaded_by_its_new_cpus() {
    let (mut gate, now) = (one_core(), Timestamp::from_nanos(1_000 * MS));
    gate.resize(Timestamp::ZERO, AdmissionConfig::new(2.5).expect("cores"));
    assert_eq!(gate.capacity(), 2.5);
    gate.observe(now, Observation { cpu: 1.0, charged: 1.0, ..Observation::default() }, &Gauges::default());
    assert_close(gate.signals().cpus, 1.0);
    assert_close(gate.loads(now).by_signal[0].expect("known"), 1.0 / (2.5 * 0.98));
}

#[test]
fn unobserved_requests_say_nothing_of_costs() {
    let mut gate = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    for _ in 0..10 {
        let entry = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng).entry().expect("there is headroom");
        gate.end_unmeasured(Timestamp::ZERO, entry);
    }
    let before = gate.expected(ARRIVAL.kind);
    let seen = Observation { cpu: 5.0, charged: 5.0, ..Observation::default() };
    gate.resume(Timestamp::from_nanos(100 * MS), seen);
    gate.observe(Timestamp::from_nanos(200 * MS), seen, &Gauges::default());
    assert_eq!(gate.expected(ARRIVAL.kind), before);
}

#[test]
fn gauge_at_1_takes_no_headroom_and_does_not_bind() {
    let mut gate = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let now = Timestamp::from_nanos(251 * MS);
    let memory = |memory| Gauges { memory: Some(memory), ..Gauges::default() };
    gate.observe(Timestamp::from_nanos(250 * MS), Observation::default(), &memory(2.0));
    gate.observe(now, Observation::default(), &Gauges { own: Some(1.0), ..memory(0.5) });
    assert!((0..1_000).any(|_| gate.ask(now, &ARRIVAL, &mut rng).shed().is_some()), "too many at once");
    assert_eq!(gate.loads(now).binding, Some(Signal::Memory));
}

/// A gate of one idle core with a limit of 0.5 CPUs over a fleet of one task, of which it holds the floor.
fn fleet_gate(mode: Mode, speed: Speed) -> Gate {
    let mut config = AdmissionConfig::new(1.0).expect("CPUs");
    config.speed = speed;
    let mut gate = Gate::new(Timestamp::ZERO, config, mode, Observation::default());
    let mut limiter = Limiter::new(Timestamp::ZERO);
    let limits = quota::Limits { others: Some(quota::Limit::new(500_000)), ..quota::Limits::default() };
    limiter.set_limits(Timestamp::ZERO, 1, limits);
    gate.set_fleet_limits(limiter);
    gate
}

/// CPU-seconds of this machine that a customer uses in 20 s, of which it asks for all.
fn used_by_fleet_limit(gate: &mut Gate) -> f64 {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut used = 0.0;
    for ms in 0..20_000 {
        let now = Timestamp::from_nanos(ms * MS);
        if let Some(entry) = gate.ask_for(now, b"ann", &ARRIVAL, &mut rng).entry() {
            gate.end(now, entry, 0.001);
            used += 0.001;
        }
    }
    used
}

#[test]
fn customer_of_a_fleet_uses_the_rate_of_this_task() {
    // The floor is 2% of the limit: 10 ms a second of the reference core.
    for (speed, expected) in [(1.0, 0.2), (2.0, 0.1)] {
        let mut gate = fleet_gate(Mode::Protect, Speed::new(speed).expect("a speed"));
        let used = used_by_fleet_limit(&mut gate);
        assert!((used / expected - 1.0).abs() < 0.1, "speed {speed}: {used} instead of {expected}");
        let refused = gate.refused_by_fleet().expect("the last request was refused");
        assert_eq!((refused.refusal, refused.standing.limit), (Refusal::Spent, 500_000));
    }
}

#[test]
fn fleet_limit_refuses_nothing_in_a_dry_run_of_the_gate() {
    let mut gate = fleet_gate(Mode::DryRun, Speed::REFERENCE);
    let used = used_by_fleet_limit(&mut gate);
    assert!(used > 19.9 && gate.refused_by_fleet().is_some(), "{used}");
}

#[test]
fn request_that_never_ran_gives_its_fleet_charge_back() {
    let mut gate = fleet_gate(Mode::Protect, Speed::REFERENCE);
    let mut rng = Pcg64Mcg::seed_from_u64(6);
    for _ in 0..1_000 {
        let (entry, _) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng).into_parts();
        gate.end_unsent(Timestamp::ZERO, entry.expect("nothing was used"));
    }
}

#[test]
fn long_request_is_charged_to_the_fleet_limit_while_it_runs() {
    let mut gate = fleet_gate(Mode::Protect, Speed::REFERENCE);
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let (entry, _) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng).into_parts();
    let mut entry = entry.expect("nothing was used");
    let due = entry.progress_due();
    gate.progress(Timestamp::ZERO, &mut entry, due.max(0.5));
    let (next, shed) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng).into_parts();
    assert_eq!((next, shed.map(|shed| shed.reason)), (None, Some(Rejection::Quota)));
}

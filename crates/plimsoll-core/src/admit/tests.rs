extern crate std;

use core::time::Duration;
use std::collections::VecDeque;
use std::vec::Vec;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::cohort::draw;
use super::*;
use crate::signal::Signals;

const MS: u64 = 1_000_000;

fn ask() -> Ask {
    Ask {
        criticality: Criticality::Critical,
        customer: 1,
        share: 1.0,
        demand: None,
        cost: 0.001,
        overhead: 0.0,
        deadline: None,
        cohort: None,
        is_retry: false,
    }
}

/// Runs one core for eight seconds with a request of 1 ms each 0.1 ms: ten times its capacity. Each
/// request ends when the core has done it. Returns the decisions of the last second.
fn overload(ranked: &mut RankedAdmission, of: impl Fn(u64) -> Ask) -> Vec<(Ask, bool)> {
    overload_from(0, 7, ranked, of)
}

/// The same, from `start` nanoseconds after the origin on.
fn overload_from(start: u64, seed: u64, ranked: &mut RankedAdmission, of: impl Fn(u64) -> Ask) -> Vec<(Ask, bool)> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut running = VecDeque::new();
    let mut free_at = 0;
    let mut decided = Vec::new();
    for n in 0..80_000 {
        let now = start + n * MS / 10;
        while running.front().is_some_and(|(end, _)| *end <= now) {
            let (end, admission) = running.pop_front().expect("just seen");
            ranked.finish(Timestamp::from_nanos(end), admission, 0.001);
        }
        let ask = of(n);
        let admitted = match ranked.admit(Timestamp::from_nanos(now), &ask, &mut rng) {
            Verdict::Admit(admission) => {
                free_at = now.max(free_at) + MS;
                running.push_back((free_at, admission));
                true
            }
            Verdict::Shed(_) => false,
        };
        decided.push((ask, admitted));
    }
    decided.split_off(70_000)
}

fn one_core() -> RankedAdmission {
    RankedAdmission::new(Timestamp::ZERO, AdmissionConfig::new(1.0).expect("above zero"))
}

fn admitted(decided: &[(Ask, bool)]) -> usize {
    decided.iter().filter(|(_, admitted)| *admitted).count()
}

#[test]
fn admitted_work_matches_the_capacity() {
    let decided = overload(&mut one_core(), |_| ask());
    let per_second = admitted(&decided);
    assert!((940..=1_000).contains(&per_second), "{per_second} of 1,000 a second");
}

/// Sends the same signals for five seconds, while requests are shed all the time.
fn tell(ranked: &mut RankedAdmission, from: u64, cpus: f64, load_average: f64, gauge: f64) {
    for at in (from..from + 5_000).step_by(20) {
        ranked.is_limiting = true;
        ranked.on_signals(Timestamp::from_nanos(at * MS), Signals { cpus, load_average }, gauge);
    }
}

#[test]
fn capacity_estimate_falls_while_queues_exceed_their_limit() {
    let mut ranked = one_core();
    overload(&mut ranked, |_| ask());
    // The offered load is low by now, so that the limit is 48 requests.
    tell(&mut ranked, 20_000, 0.98, 60.5, 0.0);
    assert!(ranked.correction > 0.98, "all of it is used: {}", ranked.correction);
    tell(&mut ranked, 30_000, 0.49, 75.0, 0.0);
    assert!((ranked.correction - 0.4).abs() < 0.01, "a neighbour has half: {}", ranked.correction);
    tell(&mut ranked, 40_000, 0.49, 10.0, 0.0);
    assert!(ranked.correction > 0.99, "not any more: {}", ranked.correction);
}

#[test]
fn little_work_says_nothing_of_capacity() {
    let mut ranked = one_core();
    overload(&mut ranked, |_| ask());
    tell(&mut ranked, 10_000, 0.49, 200.0, 0.0);
    let less = ranked.correction;
    ranked.is_limiting = false;
    ranked.on_signals(Timestamp::from_nanos(16_000 * MS), Signals { cpus: 0.01, load_average: 0.1 }, 0.0);
    assert_eq!(ranked.correction, less);
}

#[test]
fn early_ends_admit_no_more_above_the_load_line() {
    let mut ranked = RankedAdmission::new(Timestamp::ZERO, AdmissionConfig::new(0.5).expect("above zero"));
    // The core is twice as fast as its limit.
    assert!(admitted(&overload(&mut ranked, |_| ask())) > 900, "no signal says so");
    let mut ranked = RankedAdmission::new(Timestamp::ZERO, AdmissionConfig::new(0.5).expect("above zero"));
    tell(&mut ranked, 0, 0.9, 1.0, 0.0);
    let per_second = admitted(&overload(&mut ranked, |_| ask()));
    assert!((450..=500).contains(&per_second), "{per_second} of 500 a second");
}

#[test]
fn scarce_gauge_reduces_headroom() {
    let mut ranked = one_core();
    overload(&mut ranked, |_| ask());
    tell(&mut ranked, 10_000, 0.98, 1.0, 3.0);
    assert_eq!(ranked.headroom, 0.02);
    tell(&mut ranked, 20_000, 0.98, 1.0, f64::NAN);
    assert_eq!(ranked.headroom, 0.02, "a broken gauge says nothing");
    tell(&mut ranked, 30_000, 0.98, 1.0, 0.5);
    assert_eq!(ranked.headroom, 1.0);
}

/// The share of admitted requests of each of 101 cohorts that send in turn.
fn shares_of_cohorts(start: u64, seed: u64, of: impl Fn(u64) -> u64) -> Vec<f64> {
    let mut ranked = RankedAdmission::new(Timestamp::from_nanos(start), AdmissionConfig::new(1.0).expect("above zero"));
    let in_turn = |n| Ask { cohort: Some(of(n * 7 % 101)), ..ask() };
    let decided = overload_from(start, seed, &mut ranked, in_turn);
    let share = |cohort| {
        let of = decided.iter().filter(|(ask, _)| ask.cohort == Some(cohort));
        of.clone().filter(|(_, admitted)| *admitted).count() as f64 / of.count() as f64
    };
    (0..101).map(|n| share(of(n))).collect()
}

/// The cohort of the `n`-th session in this hour.
fn session(n: u64, hour: u64) -> u64 {
    cohort(std::format!("session-{n}").as_bytes(), Duration::from_secs(hour * 3_600)).expect("not empty")
}

#[test]
fn cohort_is_admitted_or_shed_together() {
    let shares = shares_of_cohorts(0, 7, |n| n);
    let (all, none) = (shares.iter().filter(|s| **s > 0.8).count(), shares.iter().filter(|s| **s < 0.2).count());
    assert!(all >= 3 && none >= 80, "{shares:.2?}");
}

#[test]
fn processes_shed_the_same_cohorts_whatever_their_start() {
    const HOUR: u64 = 3_600_000 * MS;
    let one = shares_of_cohorts(0, 7, |n| session(n, 494_000));
    // Whatever the monotonic clock says: after days, and at the end of an hour.
    for start in [HOUR - 4_000 * MS, 3 * HOUR, 77 * HOUR + 11 * MS] {
        let other = shares_of_cohorts(start, 8, |n| session(n, 494_000));
        let both = || one.iter().zip(&other);
        let taken_by_both = both().filter(|(one, other)| **one > 0.8 && **other > 0.8).count();
        let is_contrary = |(one, other): (&f64, &f64)| (one - other).abs() > 0.7;
        assert!(taken_by_both >= 3 && !both().any(is_contrary), "{start}: {one:.2?} {other:.2?}");
    }
}

#[test]
fn cohort_is_the_same_everywhere_and_in_all_versions() {
    // XXH64 by its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), with the hour as
    // its seed.
    assert_eq!(cohort(b"a", Duration::from_secs(3_599)), Some(0xd24e_c4f1_a98c_6e5b));
    assert_eq!(cohort(b"a", Duration::from_secs(3_600)), Some(0xdec2_bc81_c3cd_46c6));
    assert_eq!(cohort(b"", Duration::from_secs(3_600)), None, "no cohort of all that name none");
    let ask = Ask { cohort: cohort(b"a", Duration::ZERO), ..ask() };
    assert_eq!(draw(&ask, &mut Pcg64Mcg::seed_from_u64(1)), 2_479_650_790.0 / 4_294_967_296.0);
}

#[test]
fn draw_is_fair_and_lasts_for_an_hour() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut is_lucky = |n, hour, share| draw(&Ask { cohort: Some(session(n, hour)), ..ask() }, &mut rng) < share;
    // Of 10,000 cohorts: the standard deviation is half a per cent at most. The keys are fixed, so
    // no run differs from another.
    for share in [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98] {
        let taken = (0..10_000).filter(|n| is_lucky(*n, 494_000, share)).count() as f64 / 1e4;
        assert!((taken - share).abs() < 0.02, "{taken} of {share}");
    }
    // Half of the cohorts that are shed in one hour are admitted in the next, as of all cohorts.
    let unlucky: Vec<u64> = (0..10_000).filter(|n| !is_lucky(*n, 494_000, 0.5)).collect();
    let then = unlucky.iter().filter(|n| is_lucky(**n, 494_001, 0.5)).count() as f64 / unlucky.len() as f64;
    assert!((then - 0.5).abs() < 0.03, "{then}");
    let second = |at| cohort(b"ann", Duration::from_secs(at));
    assert_eq!(second(7_200), second(10_799));
    assert_ne!(second(10_799), second(10_800));
}

/// Counts the admitted ones of 1,600 requests like this one, with `left` microseconds to the
/// deadline. Each is the only one to ask a core with `before_it` milliseconds of work. The others
/// must not be retried.
fn begun(like: Ask, before_it: u64, left: u64) -> usize {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let now = Timestamp::from_nanos(MS);
    let mut ranked = one_core();
    for _ in 0..before_it {
        assert!(matches!(ranked.admit(now, &ask(), &mut rng), Verdict::Admit(_)), "there is headroom");
    }
    let asks = Ask { deadline: Some(now + Duration::from_micros(left)), ..like };
    let verdicts = (0..1_600).map(|_| ranked.clone().admit(now, &asks, &mut rng));
    verdicts
        .filter(|verdict| {
            let is_hopeless = *verdict == Verdict::Shed(Shed::DEADLINE);
            assert!(is_hopeless || matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
            !is_hopeless
        })
        .count()
}

#[test]
fn hopeless_request_is_not_begun_and_not_retried() {
    assert_eq!(begun(ask(), 0, 0), 0, "its time is up");
    // Ten milliseconds of work are done after 10.2 ms.
    assert_eq!(begun(ask(), 10, 10_000), 0, "its deadline passes before its turn");
    assert_eq!(begun(ask(), 10, 11_300), 1_600, "it is done in time");
    let half = Ask { overhead: 0.000_5, ..ask() };
    assert_eq!(begun(half, 10, 10_900), 1_600, "half of it is not its own");
}

#[test]
fn request_late_by_its_expected_cost_is_begun_now_and_then() {
    assert_eq!(begun(ask(), 0, 900), 1_600, "it may cost less, and there is nothing else to do");
    // 100 of 1,600 in the mean, and a standard deviation of 9.7: one generator in 10,000 is beyond
    // four of them.
    let now_and_then = begun(ask(), 10, 11_000);
    assert!((62..=138).contains(&now_and_then), "{now_and_then}");
}

#[test]
fn pressure_rises_with_the_queue_of_its_criticality() {
    let mut ranked = one_core();
    assert_eq!(ranked.pressure(Criticality::Sheddable), Pressure::None);
    overload(&mut ranked, |_| ask());
    let of = |criticality| ranked.pressure(criticality);
    assert_ne!(of(Criticality::Critical), Pressure::None);
    assert_eq!(of(Criticality::CriticalPlus), Pressure::None, "no request of it arrived");
    assert!(of(Criticality::Sheddable) >= of(Criticality::Critical));
}

#[test]
fn flood_of_shed_requests_does_not_block_the_others() {
    let mut ranked = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut taken = 0;
    // Shedding uses twice the capacity.
    for n in 0..1_000_u64 {
        let now = Timestamp::from_nanos(n * MS);
        ranked.overhead(now, 0.002);
        ranked.on_signals(now, Signals { cpus: 1.0, load_average: 1.0 }, 0.0);
        if let Verdict::Admit(admission) = ranked.admit(now, &ask(), &mut rng) {
            ranked.finish(now, admission, 0.001);
            taken += 1;
        }
    }
    assert!((50..=150).contains(&taken), "{taken}");
}

#[test]
fn backlog_of_a_flood_is_forgotten_after_it() {
    let mut ranked = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for n in 0..4_000_u64 {
        let now = Timestamp::from_nanos(n * MS);
        ranked.overhead(now, 0.001);
        ranked.on_signals(now, Signals { cpus: 1.0, load_average: 1.0 }, 0.0);
        let _ = ranked.admit(now, &ask(), &mut rng);
    }
    let criticality = Criticality::Sheddable;
    let after = ranked.admit(Timestamp::from_nanos(5_000 * MS), &Ask { criticality, ..ask() }, &mut rng);
    assert!(matches!(after, Verdict::Admit(_)), "nothing is in progress: {after:?}");
}

#[test]
fn level_without_requests_does_not_block_those_below() {
    let mut ranked = one_core();
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut taken = 0;
    // Shedding uses nine tenths of the capacity. The rest is for any request, and no more critical
    // one comes.
    for n in 0..4_000_u64 {
        let now = Timestamp::from_nanos(n * MS);
        ranked.overhead(now, 0.000_9);
        ranked.on_signals(now, Signals { cpus: 1.0, load_average: 1.0 }, 0.0);
        let verdict = ranked.admit(now, &Ask { criticality: Criticality::Sheddable, ..ask() }, &mut rng);
        if let Verdict::Admit(admission) = verdict {
            ranked.finish(now, admission, 0.001);
            taken += u32::from(n >= 2_000);
        }
    }
    assert!((100..=300).contains(&taken), "{taken} of the 200 that fit");
}

#[test]
fn lower_level_gets_nothing_while_the_one_above_it_is_shed() {
    use Criticality::{Sheddable, SheddablePlus};
    let in_turn = |n| Ask { criticality: if n % 2 == 0 { Sheddable } else { SheddablePlus }, ..ask() };
    let decided = overload(&mut one_core(), in_turn);
    let of = |criticality| decided.iter().filter(|(ask, is_in)| *is_in && ask.criticality == criticality).count();
    // Each level alone asks for five times the capacity.
    assert!(of(SheddablePlus) > 900, "{}", of(SheddablePlus));
    assert!(of(Sheddable) < 20, "{}", of(Sheddable));
}

#[test]
fn customers_get_cpu_in_proportion_to_their_shares() {
    // Customer 1 has three shares of four, and sends three requests of four.
    let share = |customer| if customer == 1 { 3.0 } else { 1.0 };
    let customer = |n| u64::from(n % 4 != 0);
    let decided = overload(&mut one_core(), |n| Ask { customer: customer(n), share: share(customer(n)), ..ask() });
    let of = |customer| decided.iter().filter(|(ask, is_in)| *is_in && ask.customer == customer).count() as f64;
    // About 970 are admitted, 730 and 240: a standard deviation of 0.2 in the ratio, and five of
    // them either way.
    let ratio = of(1) / of(0);
    assert!((2.0..4.0).contains(&ratio), "{ratio}");
}

#[test]
fn pessimistic_outlook_admits_eight_mean_requests_at_once() {
    let at_once = |outlook| {
        let mut config = AdmissionConfig::new(1.0).expect("above zero");
        config.outlook = outlook;
        let mut ranked = RankedAdmission::new(Timestamp::ZERO, config);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let now = Timestamp::from_nanos(MS);
        (0..1_000).filter(|_| matches!(ranked.admit(now, &ask(), &mut rng), Verdict::Admit(_))).count()
    };
    // 5 ms of delay would be five requests of 1 ms; at least eight are admitted, and optimistically
    // 16 to 48.
    assert_eq!(at_once(Outlook::Pessimistic), 8);
    assert!(at_once(Outlook::Optimistic) >= 16);
}

#[test]
fn pessimistic_outlook_sheds_a_request_that_does_not_fit_the_queue() {
    let admits_large = |outlook| {
        let mut config = AdmissionConfig::new(1.0).expect("above zero");
        config.outlook = outlook;
        let mut ranked = RankedAdmission::new(Timestamp::ZERO, config);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let mut admit = |ms: u64, cost| {
            let now = Timestamp::from_nanos(ms * MS);
            match ranked.admit(now, &Ask { cost, ..ask() }, &mut rng) {
                Verdict::Admit(admission) if ms < 1_000 => ranked.finish(now, admission, cost),
                Verdict::Admit(_) => {}
                Verdict::Shed(_) => return false,
            }
            true
        };
        assert!((0..1_000).all(|ms| admit(ms, 0.001)), "one at a time");
        assert!((0..4).all(|_| admit(1_000, 0.001)), "half of the queue");
        admit(1_000, 0.006)
    };
    // A queue of eight mean requests has headroom for four more.
    assert!(!admits_large(Outlook::Pessimistic));
    assert!(admits_large(Outlook::Optimistic));
}

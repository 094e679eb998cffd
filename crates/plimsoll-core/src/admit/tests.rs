extern crate std;

use core::time::Duration;
use std::collections::VecDeque;
use std::vec::Vec;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;

const MS: u64 = 1_000_000;

fn ask() -> Ask {
    Ask {
        criticality: Criticality::Critical,
        customer: 1,
        share: Weight::ONE,
        cost: 0.001,
        deadline: None,
        cohort: None,
        is_retry: false,
    }
}

/// One request each 0.1 ms for eight seconds, each of a millisecond, on one core: ten times what can be done. Each ends when the core
/// has come to it. Returns who was taken on in the last second.
fn overload(ranked: &mut Ranked, of: impl Fn(u64) -> Ask) -> Vec<(Ask, bool)> {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut running = VecDeque::new();
    let mut free_at = 0;
    let mut decided = Vec::new();
    for n in 0..80_000 {
        let now = n * MS / 10;
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

fn one_core() -> Ranked {
    Ranked::new(Timestamp::ZERO, RankedConfig::new(1.0).expect("above zero"))
}

fn admitted(decided: &[(Ask, bool)]) -> usize {
    decided.iter().filter(|(_, admitted)| *admitted).count()
}

#[test]
fn as_much_is_taken_on_as_can_be_done() {
    let decided = overload(&mut one_core(), |_| ask());
    let per_second = admitted(&decided);
    assert!((940..=1_000).contains(&per_second), "{per_second} of 1,000 a second");
}

#[test]
fn capacity_is_believed_to_be_less_when_the_signals_say_so_and_more_only_while_it_binds() {
    let mut ranked = one_core();
    let tell = |ranked: &mut Ranked, from: u64, utilization| {
        for at in (from..from + 5_000).step_by(20) {
            ranked.on_utilization(Timestamp::from_nanos(at * MS), utilization);
        }
        ranked.correction
    };
    assert_eq!(tell(&mut ranked, 0, 0.3), 1.0, "little was asked for");
    let less = tell(&mut ranked, 5_000, 1.2);
    assert!(less < 0.2, "{less}");
    assert!(tell(&mut ranked, 10_000, f64::NAN) == less, "a broken signal says nothing");
    ranked.is_limiting = true;
    ranked.on_utilization(Timestamp::from_nanos(15_000 * MS), 0.5);
    assert!(ranked.correction > less);
}

#[test]
fn a_cohort_is_taken_on_or_turned_away_together() {
    let decided = overload(&mut one_core(), |n| Ask { cohort: Some(n * 7 % 101), ..ask() });
    let share = |cohort| {
        let of = decided.iter().filter(|(ask, _)| ask.cohort == Some(cohort));
        of.clone().filter(|(_, admitted)| *admitted).count() as f64 / of.count() as f64
    };
    let shares: Vec<f64> = (0..101).map(share).collect();
    let (all, none) = (shares.iter().filter(|s| **s > 0.8).count(), shares.iter().filter(|s| **s < 0.2).count());
    assert!(all >= 3 && none >= 80, "{shares:.2?}");
}

#[test]
fn what_has_no_hope_is_not_begun_and_not_to_be_tried_again() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let now = Timestamp::from_nanos(MS);
    let hopeless = Ask { deadline: Some(now + Duration::from_micros(900)), ..ask() };
    let verdict = one_core().admit(now, &hopeless, &mut rng);
    assert_eq!(verdict, Verdict::Shed(Shed { reason: Reason::Deadline, retry: Retry::Never }));
    let in_time = Ask { deadline: Some(now + Duration::from_micros(1_100)), ..ask() };
    assert!(matches!(one_core().admit(now, &in_time, &mut rng), Verdict::Admit(_)));
}

#[test]
fn pressure_is_there_before_anything_is_shed_and_whole_when_all_is() {
    let mut ranked = one_core();
    assert_eq!(ranked.pressure(Criticality::Sheddable), 0.0);
    overload(&mut ranked, |_| ask());
    let of = |criticality| ranked.pressure(criticality);
    assert!(of(Criticality::Critical) > 0.1, "{}", of(Criticality::Critical));
    assert_eq!(of(Criticality::CriticalPlus), 0.0, "nobody asked for it");
    assert!(of(Criticality::Sheddable) >= of(Criticality::Critical));
}

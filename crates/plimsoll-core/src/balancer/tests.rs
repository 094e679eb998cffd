//! Consistency of the balancer's tables, which callers cannot see.

use core::num::NonZeroU32;
use core::time::Duration;

use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::health::Census;
use crate::pick::PolicyKind;
use crate::pick::rate_limits::LimitedShares;
use crate::spill::SpillConfig;

/// Compares every table of `balancer` with the data that it is computed from.
fn check_tables(balancer: &Balancer) {
    let members = &balancer.members;
    let mut census = Census::default();
    let mut usable = 0;
    for (id, member) in members.iter() {
        *census.count_of(member.health.state(), member.health.unreachable()) += 1;
        let slot = id.slot() as u32;
        let wanted = members.is_in_scope(slot) && member.active < balancer.config.max_active_requests.get();
        for (locality, list) in members.usable.iter().enumerate() {
            assert_eq!(
                list.contains(&slot),
                wanted && locality == members.locality(slot),
                "{id}: usable in {locality}"
            );
        }
        assert_eq!(members.is_usable(slot), wanted, "{id}: its index in the table");
        usable += usize::from(wanted);
        let penalised = balancer.penalised.iter().filter(|penalised| **penalised == slot).count();
        assert_eq!(penalised, usize::from(!member.is_clean()), "{id}: on the list of penalised backends");
        if let Some(at) = member.health.wake_at() {
            assert!(balancer.timers.next().is_some_and(|next| next <= at), "{id}: no wake-up is scheduled");
        }
    }
    let limited = members.iter().fold(LimitedShares::default(), |all, (_, member)| all.with(&member.limited));
    assert!(members.limited.is_near(&limited), "{:?}, not {limited:?}", members.limited);
    assert_eq!(members.census, census);
    let are_drained = !members.is_empty() && members.iter().all(|(_, member)| member.health.is_drained());
    assert_eq!(balancer.is_drained(), are_drained);
    assert_eq!(members.usable.iter().map(Vec::len).sum::<usize>(), usable, "each once, and no removed one");
    assert_eq!(members.scope, census.scope(balancer.config.panic_threshold));
    let lightest =
        members.iter().map(|(id, _)| members.candidates[id.slot()].inverse_weight).fold(f32::INFINITY, f32::min);
    assert_eq!(members.view(Timestamp::ZERO, 0, None).least_inverse_weight, lightest);
}

proptest! {
    #[test]
    fn tables_stay_in_step(
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        steps in prop::collection::vec((0..17_u8, 0..64_usize), 1..300),
    ) {
        let max_active_requests = NonZeroU32::new(2).expect("not zero");
        let mut config = BalancerConfig { policy, max_active_requests, ..BalancerConfig::default() };
        let mut balancer = Balancer::new(config);
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let mut now = Timestamp::ZERO;
        let mut ids: Vec<BackendId> =
            (1..5).map(|i| balancer.add(now, Weight::new(f64::from(i)).expect("in range"), &mut ())).collect();
        let mut outstanding = Vec::new();
        for (step, number) in steps {
            let id = ids[number % ids.len()];
            let completion = |outcome| Completion { outcome, latency: Some(Duration::from_millis(3)) };
            match step {
                0 => ids.push(balancer.add(now, Weight::ONE, &mut ())),
                1 if number < 8 => balancer.remove(now, id, &mut ()),
                2 => balancer.on_check(now, id, CheckOutcome::Failed, &mut rng, &mut ()),
                3 => balancer.on_connect_failed(now, id, &mut rng, &mut ()),
                4 => balancer.on_report(now, id, &LoadReport { lame_duck: number < 16, ..LoadReport::default() }, &mut ()),
                5 => balancer.on_process_ended(now, id, &mut ()),
                6 if number < 16 => balancer.drain(now, id, &mut ()),
                6 => balancer.undrain(now, id, &mut ()),
                7 => {
                    config.policy = PolicyKind::ALL[number % PolicyKind::ALL.len()];
                    config.checks.active = number % 2 == 0;
                    balancer.set_config(now, config);
                }
                8 => {
                    now = now + Duration::from_millis(1 << (number % 16));
                    balancer.handle_timeout(now, &mut ());
                    while let Some(id) = balancer.poll_check() {
                        balancer.on_check(now, id, CheckOutcome::Passed, &mut rng, &mut ());
                    }
                }
                9 | 10 | 12 if !outstanding.is_empty() => {
                    let id = outstanding.swap_remove(number % outstanding.len());
                    let outcome = match step {
                        9 => Outcome::Success,
                        10 => Outcome::Failure,
                        _ => Outcome::RateLimited,
                    };
                    balancer.finish(now, id, completion(outcome), &mut ());
                }
                11 => balancer.on_connected(now, id, &mut ()),
                14 => balancer.set_locality(now, id, number % 4),
                15 => {
                    // None, some in another order, or new ones.
                    let arranged = [&[][..], &[Some(1), None, Some(0)], &[Some(0), Some(2)], &[None; 3]][number % 4];
                    balancer.set_localities(now, arranged, SpillConfig::default());
                }
                16 => balancer.set_weight(now, id, Weight::new([0.5, 1.0, 4.0][number % 3]).expect("in range")),
                _ => {
                    if let Pick::Backend(id) = balancer.pick(now, &mut rng) {
                        outstanding.push(id);
                    }
                }
            }
            check_tables(&balancer);
        }
    }
}

/// One endpoint fails at all backends, at ten times the load of another endpoint that succeeds. A
/// backend that fails both is detected all the same. Of the 1,819 requests to the good endpoint, 30
/// a second at each backend, it gets only a few.
#[test]
fn operation_that_fails_everywhere_ejects_no_backend() {
    for is_backend_bad in [false, true] {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut balancer = Balancer::new(BalancerConfig::default());
        let ids: Vec<_> = (0..3).map(|_| balancer.add(Timestamp::ZERO, Weight::ONE, &mut ())).collect();
        for id in &ids {
            balancer.on_connected(Timestamp::ZERO, *id, &mut ());
        }
        let mut failed = 0;
        for request in 0..20_000_u64 {
            let now = Timestamp::from_nanos(request * 1_000_000);
            let Pick::Backend(id) = balancer.pick(now, &mut rng) else { panic!("no backend is saturated") };
            let is_faulty = request % 11 != 0;
            let operation = Operation::new(u64::from(is_faulty), u64::from(is_faulty));
            let fails = is_faulty || is_backend_bad && id == ids[0];
            failed += u32::from(fails && !is_faulty);
            let outcome = if fails { Outcome::Failure } else { Outcome::Success };
            let completion = Completion { outcome, latency: Some(Duration::from_millis(1)) };
            balancer.finish_for(now, id, operation, completion, &mut ());
        }
        let states: Vec<_> = balancer.snapshot(Timestamp::ZERO).iter().map(|backend| backend.state).collect();
        assert!(is_backend_bad || states.iter().all(|state| *state == State::Healthy), "{states:?}");
        assert_eq!(is_backend_bad, (1..20).contains(&failed), "{failed}");
    }
}

#[test]
fn reused_slot_gets_another_generation() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    let first = balancer.add(Timestamp::ZERO, Weight::ONE, &mut ());
    balancer.remove(Timestamp::ZERO, first, &mut ());
    let second = balancer.add(Timestamp::ZERO, Weight::ONE, &mut ());
    assert_eq!(first.slot(), second.slot());
    assert_ne!(first, second);
    assert!(!balancer.contains(first) && balancer.contains(second));
}

#[test]
fn faded_failure_is_listed_once_for_forgiveness() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let id = balancer.add(Timestamp::ZERO, Weight::ONE, &mut ());
    balancer.on_connected(Timestamp::ZERO, id, &mut ());
    (0..3).for_each(|_| assert_eq!(balancer.pick(Timestamp::ZERO, &mut rng), Pick::Backend(id)));
    // The second request takes an hour without any other.
    for (secs, outcome) in [(0, Outcome::Failure), (3600, Outcome::Success), (3600, Outcome::Failure)] {
        let now = Timestamp::from_origin(Duration::from_secs(secs));
        balancer.finish(now, id, Completion { outcome, latency: None }, &mut ());
        check_tables(&balancer);
    }
}

fn secs(secs: f64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs_f64(secs))
}

fn is_in_slow_start(balancer: &Balancer, now: Timestamp, id: BackendId) -> bool {
    let member = balancer.members.get(id).expect("a member");
    member.warming.share(now, &balancer.config.slow_start) < 1.0
}

#[test]
fn cluster_is_drained_when_an_operator_drained_each_backend() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    assert!(!balancer.is_drained(), "no backend is an outage");
    let ids = [(); 3].map(|()| balancer.add(secs(0.0), Weight::ONE, &mut ()));
    balancer.on_report(secs(1.0), ids[0], &LoadReport { lame_duck: true, ..LoadReport::default() }, &mut ());
    ids[1..].iter().for_each(|id| balancer.drain(secs(1.0), *id, &mut ()));
    assert!(!balancer.is_drained(), "a lame duck ends by itself");
    balancer.drain(secs(2.0), ids[0], &mut ());
    assert!(balancer.is_drained() && !balancer.can_serve());
    balancer.undrain(secs(3.0), ids[2], &mut ());
    assert!(!balancer.is_drained());
}

#[test]
fn founding_backends_alone_skip_slow_start() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let ids: Vec<_> = (0..4).map(|_| balancer.add(secs(0.0), Weight::ONE, &mut ())).collect();
    balancer.on_connected(secs(5.0), ids[0], &mut ());
    balancer.on_connected(secs(5.9), ids[1], &mut ());
    assert!(!ids[..2].iter().any(|id| is_in_slow_start(&balancer, secs(5.9), *id)));
    // A backend that was unreachable may be another process, and so may one after a drain.
    balancer.on_connect_failed(secs(5.1), ids[2], &mut rng, &mut ());
    balancer.on_connected(secs(5.2), ids[2], &mut ());
    assert!(is_in_slow_start(&balancer, secs(5.2), ids[2]));
    let served = loop {
        let Pick::Backend(id) = balancer.pick(secs(5.3), &mut rng) else { panic!("some are healthy") };
        if id != ids[2] {
            break id;
        }
    };
    balancer.drain(secs(5.4), served, &mut ());
    balancer.undrain(secs(5.5), served, &mut ());
    balancer.on_connected(secs(5.6), served, &mut ());
    assert!(is_in_slow_start(&balancer, secs(5.6), served));
    // A second after the first one.
    balancer.on_connected(secs(6.0), ids[3], &mut ());
    assert!(is_in_slow_start(&balancer, secs(6.0), ids[3]));
}

#[test]
fn usable_lists_reserve_all_backends_in_each_locality() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    balancer.set_localities(secs(0.0), &[None, None], SpillConfig::default());
    for added in 1..20 {
        balancer.add(secs(0.0), Weight::ONE, &mut ());
        assert!(balancer.members.usable.iter().all(|list| list.capacity() >= added), "{added} backends");
    }
}

#[test]
fn penalties_are_forgiven_by_picks_once_they_have_faded() {
    let mut balancer = Balancer::new(BalancerConfig::default());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let ids = [0, 1].map(|_| balancer.add(secs(0.0), Weight::ONE, &mut ()));
    ids.iter().for_each(|id| balancer.on_connected(secs(0.0), *id, &mut ()));
    for (id, outcome) in ids.into_iter().zip([Outcome::Failure, Outcome::RateLimited]) {
        balancer.finish(secs(0.0), id, Completion { outcome, latency: None }, &mut ());
    }
    (0..2).for_each(|_| assert!(matches!(balancer.pick(secs(1.0), &mut rng), Pick::Backend(_))));
    assert_eq!(balancer.penalised.len(), 2, "not yet");
    // One backend per pick.
    for left in [1, 0] {
        balancer.pick(secs(60.0), &mut rng);
        assert_eq!(balancer.penalised.len(), left);
        check_tables(&balancer);
    }
}

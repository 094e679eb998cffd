//! A balancer with backends in localities: the routes of requests, and the state that stays.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::health::State;
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::spill::{Route, SpillConfig};
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, Criticality, LoadReport, Outcome, Pick, Timestamp, WaitReason,
    Weight,
};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// Localities with the given numbers of healthy backends, nearest first.
struct Sites {
    balancer: Balancer,
    rng: Pcg64Mcg,
    ids: Vec<Vec<BackendId>>,
    now: Timestamp,
}

fn completion(outcome: Outcome) -> Completion {
    Completion { outcome, latency: Some(Duration::from_millis(1)) }
}

impl Sites {
    fn new(policy: PolicyKind, max_active: u32, backends: &[usize]) -> Self {
        let max_active_requests = NonZeroU32::new(max_active).unwrap();
        let mut config = BalancerConfig::new(policy);
        config.max_active_requests = max_active_requests;
        config.slow_start.window = Duration::ZERO;
        let mut balancer = Balancer::new(config);
        let now = Timestamp::ZERO;
        balancer.set_localities(now, &vec![None; backends.len()], SpillConfig::default());
        let mut ids = Vec::new();
        for (locality, count) in backends.iter().enumerate() {
            let add = |_| {
                let id = balancer.add(now, Weight::ONE, &mut ());
                balancer.set_locality(now, id, locality);
                balancer.on_connected(now, id, &mut ());
                id
            };
            ids.push((0..*count).map(add).collect());
        }
        balancer.handle_timeout(now, &mut ());
        Self { balancer, rng: Pcg64Mcg::seed_from_u64(1), ids, now }
    }

    fn route(&mut self, criticality: Criticality) -> Route {
        self.balancer.route(self.now, criticality, &mut self.rng)
    }

    fn pick(&mut self, at: usize, tried: &[BackendId]) -> Pick {
        self.balancer.pick_at(self.now, &mut self.rng, at, tried)
    }

    /// The locality of the backend picked for a request to the nearest.
    fn picked(&mut self, tried: &[BackendId]) -> usize {
        let Pick::Backend(id) = self.pick(0, tried) else { panic!("there are places") };
        self.ids.iter().position(|ids| ids.contains(&id)).unwrap()
    }

    fn finish(&mut self, id: BackendId) {
        self.balancer.finish(self.now, id, completion(Outcome::Success), &mut ());
    }

    /// Runs requests of each criticality at these rates for some seconds. Each backend serves a
    /// hundred a second and reports its utilization. Returns the requests of each locality and the
    /// shed ones of each criticality, in the last second.
    fn run(&mut self, seconds: u32, rates: [u32; 4]) -> (Vec<u32>, [u32; 4]) {
        let all: u32 = rates.iter().sum();
        let mut shed = [0; 4];
        let mut got = vec![0; self.ids.len()];
        for _ in 0..seconds {
            (shed, got) = ([0; 4], vec![0; self.ids.len()]);
            for n in 0..all {
                self.now = self.now + Duration::from_secs(1) / all;
                let place = (n * 7919) % all;
                let rank = (0..4).find(|rank| place < rates[..=*rank].iter().sum()).unwrap();
                let Route::To(at) = self.route(Criticality::ALL[rank]) else {
                    shed[rank] += 1;
                    continue;
                };
                let Pick::Backend(id) = self.pick(at, &[]) else { panic!("nobody is at its limit") };
                let locality = self.ids.iter().position(|ids| ids.contains(&id)).unwrap();
                assert_eq!(locality, at, "a locality with room has places");
                got[locality] += 1;
                self.finish(id);
            }
            let snapshots = self.balancer.snapshot(self.now);
            for (ids, got) in self.ids.iter().zip(&got) {
                let healthy: Vec<_> =
                    snapshots.iter().filter(|it| ids.contains(&it.id) && it.state == State::Healthy).collect();
                let application_utilization = f64::from(*got) / 100.0 / healthy.len() as f64;
                let report = LoadReport { application_utilization, ..LoadReport::default() };
                for snapshot in healthy {
                    self.balancer.on_report(self.now, snapshot.id, &report, &mut ());
                }
            }
            self.balancer.handle_timeout(self.now, &mut ());
        }
        (got, shed)
    }
}

#[test]
fn policy_picks_within_the_locality() {
    for policy in PolicyKind::ALL {
        let mut sites = Sites::new(policy, 100, &[3, 3]);
        for _ in 0..60 {
            assert_eq!(sites.route(Criticality::Critical), Route::To(0));
            assert_eq!(sites.picked(&[]), 0, "{policy}");
        }
        let far = sites.ids[1].clone();
        for _ in 0..60 {
            assert!(matches!(sites.pick(1, &[]), Pick::Backend(id) if far.contains(&id)), "{policy}");
        }
        let active = sites.balancer.snapshot(sites.now).iter().map(|it| it.active).max();
        assert!(active < Some(60), "{policy}: all that are there are chosen");
    }
}

/// 160 a second are 80% of two backends. One second has a standard deviation of √(250 · 0.64 ·
/// 0.36) = 8; five of these.
#[test]
fn nearest_locality_is_filled_to_the_target_before_the_next() {
    for policy in PolicyKind::ALL {
        let mut sites = Sites::new(policy, 100, &[2, 2]);
        sites.run(30, [0, 250, 0, 0]);
        for _ in 0..20 {
            let (got, shed) = sites.run(1, [0, 250, 0, 0]);
            assert!((120..=200).contains(&got[0]), "{policy}: {got:?}");
            assert_eq!((got[0] + got[1], shed), (250, [0; 4]), "{policy}");
        }
        let localities = sites.balancer.localities(sites.now);
        assert_eq!((localities[0].locality.healthy, localities[0].locality.backends), (2, 2));
        assert!(localities[0].requests > localities[1].requests, "{localities:?}");
    }
}

#[test]
fn unhealthy_locality_is_drained_into_the_headroom_of_others() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 100, &[5, 5]);
    let rates = [100, 250, 150, 0];
    assert_eq!(sites.run(30, rates).1, [0; 4]);
    for id in sites.ids[0][1..].iter().copied() {
        sites.balancer.on_connect_failed(sites.now, id, &mut sites.rng, &mut ());
    }
    sites.balancer.handle_timeout(sites.now, &mut ());
    let (got, shed) = sites.run(20, rates);
    assert_eq!(got[0], 0, "it is drained");
    assert!((350..=450).contains(&got[1]), "{got:?}");
    // A point lies within the offered requests of its level, so the last requests that fit are of
    // the level below.
    assert!(shed[0] == 0 && shed[1] <= 12 && shed[2] >= 50, "{shed:?}");
    assert!(sites.balancer.localities(sites.now)[0].standing.is_drained);
}

#[test]
fn request_without_a_slot_goes_to_a_locality_with_headroom() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 2, &[1, 1]);
    let places: Vec<_> = (0..4).map(|_| sites.picked(&[])).collect();
    assert_eq!(places, [0, 0, 1, 1]);
    assert_eq!(sites.pick(0, &[]), Pick::Wait(WaitReason::Saturated));
    let near = sites.ids[0][0];
    sites.finish(near);
    assert_eq!(sites.pick(1, &[]), Pick::Backend(near), "nor does it wait for the far one");
}

#[test]
fn full_locality_is_not_a_fallback() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 1, &[1, 1]);
    let far = sites.ids[1][0];
    // Other clients fill the far one.
    for _ in 0..30 {
        let Pick::Backend(id) = sites.pick(0, &[]) else { panic!("it is free") };
        sites.finish(id);
        sites.now = sites.now + Duration::from_millis(100);
        for (id, application_utilization) in [(id, 0.5), (far, 2.0)] {
            sites.balancer.on_report(
                sites.now,
                id,
                &LoadReport { application_utilization, ..LoadReport::default() },
                &mut (),
            );
        }
        sites.balancer.handle_timeout(sites.now, &mut ());
    }
    assert_eq!(sites.picked(&[]), 0);
    assert_eq!(sites.pick(0, &[]), Pick::Wait(WaitReason::Saturated));
}

#[test]
fn further_attempt_prefers_another_backend_nearby() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 100, &[2, 1]);
    let [near, far] = [0, 1].map(|at| sites.ids[at].clone());
    assert_eq!(sites.pick(0, &near[..1]), Pick::Backend(near[1]));
    assert_eq!(sites.pick(0, &near), Pick::Backend(far[0]));
    let all = [&near[..], &far].concat();
    assert!(matches!(sites.pick(0, &all), Pick::Backend(id) if near.contains(&id)), "one again rather than none");
}

#[test]
fn backends_keep_their_state_when_localities_change() {
    let mut sites = Sites::new(PolicyKind::LeastLoaded, 100, &[2, 2]);
    for _ in 0..6 {
        sites.picked(&[]);
    }
    let known = |sites: &Sites| {
        let all = sites.balancer.snapshot(sites.now);
        all.iter().map(|it| (it.id, it.state, it.active, it.requests)).collect::<Vec<_>>()
    };
    let before = known(&sites);
    let now = sites.now;
    sites.balancer.set_localities(now, &[], SpillConfig::default());
    assert_eq!((known(&sites), sites.balancer.localities(now)), (before.clone(), vec![]));
    // All four are one again: the two without requests come first.
    for _ in 0..6 {
        sites.picked(&[]);
    }
    assert!(sites.balancer.snapshot(now).iter().all(|it| it.active == 3));
    sites.balancer.set_localities(now, &[None, None, None], SpillConfig::default());
    for (locality, ids) in [(2, sites.ids[0].clone()), (7, sites.ids[1].clone())] {
        ids.iter().for_each(|id| sites.balancer.set_locality(now, *id, locality));
    }
    assert!(sites.balancer.snapshot(now).iter().all(|it| it.locality == 2 && it.active == 3));
    sites.balancer.handle_timeout(now, &mut ());
    assert_eq!(sites.route(Criticality::Critical), Route::To(2), "nobody is nearer");
}

#[test]
fn localities_keep_their_state_when_reordered() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 100, &[2, 2]);
    sites.run(30, [0, 250, 0, 0]);
    let before = sites.balancer.localities(sites.now);
    sites.balancer.set_localities(sites.now, &[Some(1), Some(0)], SpillConfig::default());
    let after = sites.balancer.localities(sites.now);
    assert_eq!((&after[0], &after[1]), (&before[1], &before[0]));
    sites.ids.swap(0, 1);
    let (got, shed) = sites.run(1, [0, 250, 0, 0]);
    assert!(shed == [0; 4] && got[0] > 60, "the far one is near now, and its room is known: {got:?}");
}

#[test]
fn panic_threshold_decides_when_no_backend_is_healthy() {
    let mut sites = Sites::new(PolicyKind::RoundRobin, 100, &[1, 1]);
    for ids in sites.ids.clone() {
        sites.balancer.on_connect_failed(sites.now, ids[0], &mut sites.rng, &mut ());
    }
    sites.balancer.handle_timeout(sites.now, &mut ());
    let Route::To(at) = sites.route(Criticality::Sheddable) else { panic!("it is no lack of room") };
    assert!(matches!(sites.pick(at, &[]), Pick::Backend(_)));
}

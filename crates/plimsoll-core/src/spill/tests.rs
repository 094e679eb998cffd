//! Localities with utilization in proportion to their requests, a second later.

extern crate std;

use std::vec::Vec;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;

/// A locality whose backends serve a hundred requests a second each.
struct Site {
    healthy: u32,
    backends: u32,
    /// Requests a second from other clients.
    others: f64,
    /// Requests in the present second.
    got: [u32; Criticality::ALL.len()],
    utilization: Option<f64>,
}

impl Site {
    fn new(backends: u32) -> Self {
        Self { healthy: backends, backends, others: 0.0, got: [0; 4], utilization: None }
    }

    fn locality(&self) -> Locality {
        Locality { healthy: self.healthy, backends: self.backends, utilization: self.utilization }
    }
}

struct World {
    spill: Spill,
    sites: Vec<Site>,
    rng: Pcg64Mcg,
    second: u64,
    shed: [u32; Criticality::ALL.len()],
}

impl World {
    fn new(sites: Vec<Site>) -> Self {
        let spill = Spill::new(Timestamp::ZERO, SpillConfig::default(), sites.len());
        Self { spill, sites, rng: Pcg64Mcg::seed_from_u64(1), second: 0, shed: [0; 4] }
    }

    /// Sends requests of each criticality at these rates for some seconds. Counts are those of the
    /// last second.
    fn run(&mut self, seconds: u64, rates: [u32; Criticality::ALL.len()]) {
        let all: u32 = rates.iter().sum();
        for _ in 0..seconds {
            self.shed = [0; 4];
            self.sites.iter_mut().for_each(|site| site.got = [0; 4]);
            for n in 0..all {
                // Levels are mixed evenly.
                let place = (n * 7919) % all;
                let rank = (0..4).find(|rank| place < rates[..=*rank].iter().sum()).expect("below the sum of all");
                let now = Timestamp::from_nanos(
                    (self.second * u64::from(all) + u64::from(n)) * 1_000_000_000 / u64::from(all),
                );
                match self.spill.route(now, Criticality::ALL[rank], &mut self.rng) {
                    Route::To(site) => {
                        self.spill.sent(now, site);
                        self.sites[site].got[rank] += 1;
                    }
                    Route::Shed => self.shed[rank] += 1,
                }
            }
            self.second += 1;
            for site in &mut self.sites {
                let load = f64::from(site.got.iter().sum::<u32>()) + site.others;
                site.utilization = (load > 0.0 && site.healthy > 0).then(|| load / 100.0 / f64::from(site.healthy));
            }
            let localities: Vec<Locality> = self.sites.iter().map(Site::locality).collect();
            self.spill.update(Timestamp::from_nanos(self.second * 1_000_000_000), &localities);
        }
    }

    fn standings(&self) -> Vec<Standing> {
        self.spill.standings(Timestamp::from_nanos(self.second * 1_000_000_000)).collect()
    }

    fn got(&self, site: usize) -> u32 {
        self.sites[site].got.iter().sum()
    }
}

/// Rates of `critical` requests only.
const fn critical(rate: u32) -> [u32; 4] {
    [0, rate, 0, 0]
}

#[test]
fn nearest_locality_gets_all_requests_while_it_has_headroom() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(30, critical(700));
    assert_eq!((world.got(0), world.got(1), world.shed), (700, 0, [0; 4]));
}

/// 800 a second are 80%. One second has a standard deviation of √(1100 · 0.73 · 0.27) = 15; five of
/// these, false alarm 6e-7 each.
#[test]
fn excess_spills_steadily_to_the_next_locality() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(30, critical(1_100));
    for _ in 0..60 {
        world.run(1, critical(1_100));
        assert!((725..=875).contains(&world.got(0)), "{}", world.got(0));
        assert_eq!(world.got(0) + world.got(1), 1_100, "nothing is shed");
    }
}

#[test]
fn load_of_other_clients_reduces_the_headroom() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.sites[1].others = 600.0;
    world.run(60, critical(1_200));
    assert!((720..=880).contains(&world.got(0)), "{}", world.got(0));
    // 200 a second fit there; the other 200 are shed.
    assert!((140..=270).contains(&world.got(1)), "{}", world.got(1));
}

#[test]
fn least_critical_requests_are_shed_first_without_headroom() {
    let mut world = World::new(Vec::from([Site::new(5), Site::new(5)]));
    world.run(60, [200, 400, 300, 300]);
    // 800 fit: all of the first two levels, 200 of the third, none of the fourth.
    assert_eq!((world.shed[0], world.shed[3]), (0, 300), "{:?}", world.shed);
    assert!(world.shed[1] <= 8 && (30..=200).contains(&world.shed[2]), "{:?}", world.shed);
    // The most critical stay near: 400 fit there.
    assert!(world.sites[0].got[0] >= 195, "{:?}", world.sites[0].got);
}

#[test]
fn unhealthy_locality_is_drained_and_returns_later() {
    let mut world = World::new(Vec::from([Site::new(20), Site::new(20)]));
    world.run(30, critical(1_000));
    for (healthy, is_drained) in [(5, false), (4, true), (6, true), (7, false), (5, false), (0, true)] {
        world.sites[0].healthy = healthy;
        world.run(2, critical(1_000));
        let standing: Vec<Standing> = world.standings();
        assert_eq!(standing[0].is_drained, is_drained, "{healthy} healthy");
        if is_drained {
            assert_eq!(world.got(0), 0, "{healthy} healthy");
        }
    }
}

#[test]
fn lost_locality_spills_only_into_the_headroom_of_the_other() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    let levels = [200, 500, 300, 0];
    world.run(30, levels);
    assert_eq!(world.shed, [0; 4]);
    world.sites[0].healthy = 2;
    world.run(20, levels);
    assert_eq!(world.got(0), 0);
    assert!((730..=870).contains(&world.got(1)), "{}", world.got(1));
    assert!(world.shed[0] == 0 && world.shed[1] <= 10 && world.shed[2] >= 100, "{:?}", world.shed);
}

#[test]
fn no_locality_is_drained_when_all_would_be() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(10, critical(300));
    world.sites.iter_mut().for_each(|site| site.healthy = 2);
    world.run(10, critical(300));
    assert!(world.got(0) > 100 && world.got(1) > 100, "{} {}", world.got(0), world.got(1));
    world.sites.iter_mut().for_each(|site| site.healthy = 0);
    world.run(1, critical(300));
    // The balancer's panic threshold picks among them.
    world.run(1, critical(300));
    assert_eq!(world.got(0), 300);
}

#[test]
fn nearest_locality_gets_all_requests_without_reports() {
    let mut spill = Spill::new(Timestamp::ZERO, SpillConfig::default(), 2);
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let silent = Locality { healthy: 1, backends: 1, utilization: None };
    for ms in 0..10_000 {
        let now = Timestamp::from_nanos(ms * 1_000_000);
        assert_eq!(spill.route(now, Criticality::Critical, &mut rng), Route::To(0));
        spill.sent(now, 0);
        spill.update(now, &[silent; 2]);
    }
}

#[test]
fn full_locality_has_no_headroom() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    assert!(world.spill.has_headroom(0), "nothing is known");
    world.run(30, critical(1_100));
    let standings = world.standings();
    assert!(!world.spill.has_headroom(0) || standings[0].room > Some(standings[0].sent), "{standings:?}");
    assert!(world.spill.has_headroom(1), "{standings:?}");
    world.sites[0].healthy = 1;
    world.run(1, critical(1_100));
    assert!(!world.spill.has_headroom(0), "it is drained");
}

#[test]
fn arrange_keeps_former_state_and_starts_new_localities_empty() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(30, critical(1_100));
    let before = world.standings();
    world.spill.arrange(&[Some(1), None, Some(0)]);
    let after = world.standings();
    assert_eq!((after[0], after[2]), (before[1], before[0]));
    assert_eq!((after[1].sent, after[1].room), (0.0, None));
}

#[test]
fn changed_target_holds_from_the_next_update() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(30, critical(1_100));
    world.spill.set_config(SpillConfig { target: Ratio::from_percent(50), ..SpillConfig::default() });
    world.run(30, critical(1_100));
    assert!((440..=560).contains(&world.got(0)), "{}", world.got(0));
}

#[test]
fn shut_out_client_returns_when_the_load_of_others_ends() {
    let mut world = World::new(Vec::from([Site::new(10), Site::new(10)]));
    world.run(30, critical(700));
    world.sites.iter_mut().for_each(|site| site.others = 3_000.0);
    world.run(60, critical(700));
    assert!(world.shed[1] > 690, "{:?}", world.shed);
    world.sites.iter_mut().for_each(|site| site.others = 0.0);
    world.run(15, critical(700));
    assert_eq!((world.shed, world.got(0)), ([0; 4], 700));
}

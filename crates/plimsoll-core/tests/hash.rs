//! The policy `hash` against a plain reference: the distances to all points of all backends, and the
//! bound as a fraction.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::health::CheckOutcome;
use plimsoll_core::pick::{HashKey, HashPicks, LoadBound, PolicyKind};
use plimsoll_core::spill::SpillConfig;
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, Criticality, Outcome, Pick, Ratio, Timestamp, Weight,
};
use plimsoll_testkit::seeded;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use twox_hash::XxHash64;

/// Points of a backend, and the precision of positions: as in the policy.
const POINTS: u32 = 128;
const PRECISION: u64 = !((1 << 24) - 1);

fn config(bound: Option<f64>, limit: u32) -> BalancerConfig {
    let bound = bound.map(|bound| LoadBound::new(bound).expect("in range"));
    let mut config = BalancerConfig::new(PolicyKind::Hash);
    config.hash.bound = bound;
    config.max_active_requests = NonZeroU32::new(limit).expect("not zero");
    config.slow_start.window = Duration::ZERO;
    config.outlier.consecutive_failures = None;
    config.outlier.success_rate_stdev = None;
    config
}

/// Backends by their identity.
struct Cluster {
    balancer: Balancer,
    ids: BTreeMap<u64, BackendId>,
    rng: Pcg64Mcg,
    now: Timestamp,
}

impl Cluster {
    fn new(config: BalancerConfig, identities: impl IntoIterator<Item = u64>) -> Self {
        let (balancer, now) = (Balancer::new(config), Timestamp::ZERO + Duration::from_secs(1));
        let mut cluster = Self { balancer, ids: BTreeMap::new(), rng: seeded(1), now };
        identities.into_iter().for_each(|identity| cluster.add(identity, 1.0));
        cluster
    }

    fn add(&mut self, identity: u64, weight: f64) {
        let weight = Weight::new(weight).expect("in range");
        let id = self.balancer.add_as(self.now, identity, weight, &mut ());
        self.balancer.on_connected(self.now, id, &mut ());
        self.ids.insert(identity, id);
    }

    fn remove(&mut self, identity: u64) {
        let id = self.ids.remove(&identity).expect("a member");
        self.balancer.remove(self.now, id, &mut ());
    }

    fn identity(&self, id: BackendId) -> u64 {
        *self.ids.iter().find(|(_, known)| **known == id).expect("a member").0
    }

    fn pick(&mut self, key: HashKey, tried: &[u64]) -> Option<u64> {
        let tried: Vec<BackendId> = tried.iter().map(|identity| self.ids[identity]).collect();
        match self.balancer.pick_for(self.now, &mut self.rng, 0, &tried, Some(key)) {
            Pick::Backend(id) => Some(self.identity(id)),
            Pick::Wait(_) | Pick::NoBackend => None,
        }
    }

    fn finish(&mut self, identity: u64, outcome: Outcome) {
        let completion = Completion { outcome, latency: Some(Duration::from_millis(1)) };
        self.balancer.finish(self.now, self.ids[&identity], completion, &mut ());
    }

    /// The backend of each key while nothing else is active.
    fn homes(&mut self, keys: &[HashKey]) -> Vec<u64> {
        let home = |key: &HashKey| {
            let home = self.pick(*key, &[]).expect("all are healthy");
            self.finish(home, Outcome::Success);
            home
        };
        keys.iter().map(home).collect()
    }

    fn active(&self) -> BTreeMap<u64, u32> {
        self.balancer.snapshot(self.now).iter().map(|it| (self.identity(it.id), it.active)).collect()
    }
}

fn keys(n: u64) -> Vec<HashKey> {
    (0..n).map(|i| HashKey::of(&i.to_le_bytes())).collect()
}

/// The weight in the precision of the policy.
fn exact(weight: f64) -> u64 {
    let inverse = weight.recip() as f32;
    (f64::from(inverse).recip() * f64::from(1 << 20)).round() as u64
}

/// The weighted distance from a key to a backend.
fn score(key: HashKey, identity: u64, weight: f64) -> f64 {
    let positions = (0..POINTS).map(|index| XxHash64::oneshot(identity, &index.to_le_bytes()));
    let distance = positions.map(|position| (position & PRECISION).wrapping_sub(key.as_u64() & PRECISION));
    distance.min().expect("it has points") as f64 * (exact(weight) as f64).recip()
}

/// A backend of the reference.
#[derive(Clone, Copy, Debug)]
struct Backend {
    weight: f64,
    is_drained: bool,
    active: u32,
}

/// The rule, as a definition.
#[derive(Debug, Default)]
struct Reference {
    backends: BTreeMap<u64, Backend>,
    bound_percent: Option<u64>,
    limit: u32,
}

impl Reference {
    fn is_usable(&self, backend: &Backend) -> bool {
        !backend.is_drained && backend.active < self.limit
    }

    /// The most active requests that this usable backend may have after one more request.
    fn most(&self, backend: &Backend) -> u64 {
        let Some(percent) = self.bound_percent else { return u64::MAX };
        let usable = || self.backends.values().filter(|backend| self.is_usable(backend));
        let requests = usable().map(|backend| u64::from(backend.active)).sum::<u64>() + 1;
        let all = usable().map(|backend| u128::from(exact(backend.weight))).sum::<u128>();
        let wanted = u128::from(percent * requests) * u128::from(exact(backend.weight));
        wanted.div_ceil(100 * all) as u64
    }

    fn may_take(&self, backend: &Backend) -> bool {
        self.is_usable(backend) && u64::from(backend.active) < self.most(backend)
    }

    /// The backend of a key; `None` if no backend is usable and untried.
    fn pick(&self, key: HashKey, tried: &[u64]) -> Option<u64> {
        let untried = self.backends.iter().filter(|(identity, _)| !tried.contains(identity));
        let mut order: Vec<(f64, u64)> =
            untried.map(|(identity, backend)| (score(key, *identity, backend.weight), *identity)).collect();
        order.sort_by(|a, b| a.partial_cmp(b).expect("finite"));
        let mut fitting = order.iter().filter(|(_, identity)| self.may_take(&self.backends[identity]));
        let mut usable = order.iter().filter(|(_, identity)| self.is_usable(&self.backends[identity]));
        let found = fitting.next().or_else(|| usable.next().filter(|_| !tried.is_empty()));
        found.map(|(_, identity)| *identity)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pick { key: u64, is_retry: bool },
    Finish(usize),
    Add { identity: u64, weight: f64 },
    Remove(usize),
    Weigh(usize, f64),
    Drain(usize),
    Undrain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let weight = prop_oneof![Just(1.0), Just(1.0), Just(2.0), 0.5_f64..4.0, 0.01_f64..1000.0];
    let which = any::<prop::sample::Index>().prop_map(|index| index.index(64));
    prop_oneof![
        // Few keys, so that some are hot.
        10 => (0_u64..12, prop::bool::weighted(0.1)).prop_map(|(key, is_retry)| Step::Pick { key, is_retry }),
        6 => which.clone().prop_map(Step::Finish),
        1 => (0_u64..1_000, weight.clone()).prop_map(|(identity, weight)| Step::Add { identity, weight }),
        1 => which.clone().prop_map(Step::Remove),
        1 => (which.clone(), weight).prop_map(|(which, weight)| Step::Weigh(which, weight)),
        1 => which.clone().prop_map(Step::Drain),
        1 => which.prop_map(Step::Undrain),
    ]
}

/// The member with this number, counted round and round.
fn nth(backends: &BTreeMap<u64, Backend>, number: usize) -> Option<u64> {
    backends.keys().nth(number % backends.len().max(1)).copied()
}

proptest! {
    /// Every pick is the one of the reference: bound, order, weights, drains, flow control, retries.
    #[test]
    fn picks_agree_with_the_reference(
        first in prop::collection::btree_set(1_000_u64..2_000, 1..7),
        bound_percent in prop_oneof![Just(None), Just(Some(125)), (105_u64..400).prop_map(Some)],
        limit in prop_oneof![Just(3_u32), Just(1_000)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let config = config(bound_percent.map(|percent| percent as f64 / 100.0), limit);
        let mut cluster = Cluster::new(config, first.iter().copied());
        let backend = |weight| Backend { weight, is_drained: false, active: 0 };
        let mut reference =
            Reference { backends: first.iter().map(|it| (*it, backend(1.0))).collect(), bound_percent, limit };
        for step in steps {
            let known = reference.backends.clone();
            match step {
                Step::Pick { key, is_retry } => {
                    let key = HashKey::of(&key.to_le_bytes());
                    let tried = Vec::from_iter(reference.pick(key, &[]).filter(|_| is_retry));
                    let picked = cluster.pick(key, &tried);
                    let expected = reference.pick(key, &tried);
                    match picked {
                        None => prop_assert!(!known.values().any(|backend| reference.is_usable(backend))),
                        Some(picked) => {
                            if expected.is_some() || tried.is_empty() {
                                prop_assert_eq!(Some(picked), expected, "{:?} of {:?}", key, reference);
                            }
                            reference.backends.get_mut(&picked).expect("a member").active += 1;
                        }
                    }
                }
                Step::Finish(number) => {
                    let busy = reference.backends.iter_mut().filter(|(_, backend)| backend.active > 0);
                    let busy = Vec::from_iter(busy);
                    let count = busy.len();
                    if let Some((identity, backend)) = busy.into_iter().nth(number % count.max(1)) {
                        backend.active -= 1;
                        cluster.finish(*identity, Outcome::Success);
                    }
                }
                Step::Add { identity, weight } => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) = reference.backends.entry(identity) {
                        vacant.insert(backend(weight));
                        cluster.add(identity, weight);
                    }
                }
                Step::Remove(number) => {
                    if let Some(identity) = nth(&known, number) {
                        reference.backends.remove(&identity);
                        cluster.remove(identity);
                    }
                }
                Step::Weigh(number, weight) => {
                    if let Some(identity) = nth(&known, number) {
                        reference.backends.get_mut(&identity).expect("a member").weight = weight;
                        let weight = Weight::new(weight).expect("in range");
                        cluster.balancer.set_weight(cluster.now, cluster.ids[&identity], weight);
                    }
                }
                Step::Drain(number) => {
                    if let Some(identity) = nth(&known, number) {
                        reference.backends.get_mut(&identity).expect("a member").is_drained = true;
                        cluster.balancer.drain(cluster.now, cluster.ids[&identity], &mut ());
                    }
                }
                Step::Undrain(number) => {
                    if let Some(identity) = nth(&known, number).filter(|identity| known[identity].is_drained) {
                        reference.backends.get_mut(&identity).expect("a member").is_drained = false;
                        let (now, id) = (cluster.now, cluster.ids[&identity]);
                        cluster.balancer.undrain(now, id, &mut ());
                        cluster.balancer.on_check(now, id, CheckOutcome::Passed, &mut cluster.rng, &mut ());
                    }
                }
            }
        }
    }

    #[test]
    fn homes_are_the_same_in_any_order_of_arrival(
        identities in prop::collection::btree_set(any::<u64>(), 2..12).prop_map(Vec::from_iter).prop_shuffle(),
        passing in 0_u64..1_000,
    ) {
        let mut sorted = identities.clone();
        sorted.sort_unstable();
        let with_weights = |identities: &[u64]| {
            let mut cluster = Cluster::new(config(None, 1_000), []);
            identities.iter().for_each(|identity| cluster.add(*identity, weight_of(*identity)));
            cluster
        };
        let mut other = with_weights(&identities);
        if !identities.contains(&passing) {
            other.add(passing, 1000.0);
            other.remove(passing);
        }
        let keys = keys(100);
        prop_assert_eq!(with_weights(&sorted).homes(&keys), other.homes(&keys));
    }

    #[test]
    fn only_keys_of_the_leaver_move_and_they_return_with_it(n in 2_u64..40, leaver in any::<prop::sample::Index>()) {
        let leaver = leaver.index(n as usize) as u64;
        let (mut cluster, keys) = (Cluster::new(config(None, 1_000), []), keys(500));
        (0..n).for_each(|identity| cluster.add(identity, weight_of(identity)));
        let before = cluster.homes(&keys);
        cluster.remove(leaver);
        let without = cluster.homes(&keys);
        for (before, after) in before.iter().zip(&without) {
            let is_right = if *before == leaver { *after != leaver } else { after == before };
            prop_assert!(is_right, "from {before} to {after}, without {leaver}");
        }
        cluster.add(leaver, weight_of(leaver));
        prop_assert_eq!(cluster.homes(&keys), before, "they return");
        cluster.balancer.drain(cluster.now, cluster.ids[&leaver], &mut ());
        prop_assert_eq!(cluster.homes(&keys), without, "an unusable backend is as one that left");
    }

    #[test]
    fn change_of_weight_moves_keys_to_one_backend_alone(n in 2_u64..20, factor in 1.1_f64..800.0) {
        let (mut cluster, keys) = (Cluster::new(config(None, 1_000), []), keys(300));
        (0..n).for_each(|identity| cluster.add(identity, weight_of(identity)));
        cluster.balancer.set_weight(cluster.now, cluster.ids[&0], Weight::ONE);
        let before = cluster.homes(&keys);
        cluster.balancer.set_weight(cluster.now, cluster.ids[&0], Weight::new(factor).expect("in range"));
        for (before, after) in before.iter().zip(cluster.homes(&keys)) {
            prop_assert!(after == *before || after == 0);
        }
    }
}

/// A weight for each identity, in several classes.
fn weight_of(identity: u64) -> f64 {
    [1.0, 2.5, 0.1, 40.0, 700.0][(identity % 5) as usize]
}

#[test]
fn homes_depend_on_the_proportions_of_weights_alone() {
    let keys = keys(500);
    let homes = |factor: f64| {
        let mut cluster = Cluster::new(config(None, 1_000), []);
        (0..30).for_each(|identity| cluster.add(identity, factor * f64::from(1 << (identity % 3))));
        cluster.homes(&keys)
    };
    assert_eq!(homes(1.0), homes(128.0));
    assert_eq!(homes(1.0), homes(1.0 / 64.0));
}

/// 600 backends with two usable ones: a walk from a key to one of them takes 300 steps on average.
/// With 20 usable ones walks are long, and yet shorter than a search of all points of those.
#[test]
fn keys_have_one_backend_each_when_nearly_all_are_unusable() {
    for usable in [2, 20] {
        let (mut cluster, keys) = (Cluster::new(BalancerConfig::default(), []), keys(300));
        let mut settings = config(None, 1_000);
        settings.panic_threshold = Ratio::ZERO;
        cluster.balancer.set_config(cluster.now, settings);
        (0..600).for_each(|identity| cluster.add(identity, weight_of(identity)));
        (usable..600).for_each(|identity| cluster.balancer.drain(cluster.now, cluster.ids[&identity], &mut ()));
        let nearest = |key: &HashKey| {
            let score = |identity: &u64| score(*key, *identity, weight_of(*identity));
            (0..usable).min_by(|a, b| score(a).total_cmp(&score(b))).expect("some are usable")
        };
        let expected: Vec<u64> = keys.iter().map(nearest).collect();
        assert_eq!(cluster.homes(&keys), expected, "{usable} usable");
        // The same with requests in flight, which decide for the least loaded.
        assert!((0..50).all(|i| cluster.pick(keys[i], &[]).is_some()));
        assert_eq!(cluster.homes(&keys), expected, "{usable} usable");
        let HashPicks { first, moved, overflow: 0, unkeyed: 0 } = cluster.balancer.hash_picks() else {
            panic!("{:?}", cluster.balancer.hash_picks())
        };
        assert!(moved > 10 * first, "{moved} moved, {first} first");
        // A retry goes to the next usable one of the order.
        let retried = cluster.pick(keys[0], &[expected[0]]).expect("another is usable");
        assert!(retried != expected[0] && retried < usable);
    }
}

/// The popularity of key `i` is in proportion to 1/(i + 1).
fn zipf(rng: &mut Pcg64Mcg, count: u64) -> HashKey {
    let total: f64 = (1..=count).map(|i| 1.0 / i as f64).sum();
    let mut at = rng.next_u64() as f64 / u64::MAX as f64 * total;
    let found = (1..=count).find(|i| {
        at -= 1.0 / *i as f64;
        at <= 0.0
    });
    HashKey::of(&found.unwrap_or(count).to_le_bytes())
}

/// 20 backends, 400 requests at a time, 1,000 keys by Zipf: the first key has 13% of the requests,
/// 2.7 times the share of a backend. Seed 5, 20,000 picks; the assertions hold for any seed.
#[test]
fn no_backend_takes_more_than_its_bound_of_zipf_keys() {
    let run = |bound: Option<f64>| {
        let mut cluster = Cluster::new(config(bound, 100_000), 0..20);
        let (mut rng, mut held, mut worst) = (seeded(5), Vec::new(), 0.0_f64);
        for _ in 0..20_000 {
            let picked = cluster.pick(zipf(&mut rng, 1_000), &[]).expect("all are healthy");
            held.push(picked);
            if held.len() == 400 {
                let mean = 400.0 / 20.0;
                worst = worst.max(f64::from(cluster.active()[&picked]) / mean);
                let at = (rng.next_u64() % held.len() as u64) as usize;
                cluster.finish(held.swap_remove(at), Outcome::Success);
            }
        }
        (worst, cluster.balancer.hash_picks())
    };
    let (worst, picks) = run(Some(1.25));
    assert!(worst <= 1.25, "{worst} times the mean");
    let HashPicks { first, overflow, unkeyed: 0, moved: 0 } = picks else { panic!("{picks:?}") };
    assert!(first + overflow == 20_000 && overflow > 1_000, "{picks:?}");
    let (worst, picks) = run(None);
    assert!(worst > 2.0, "without the bound the hot key's backend has {worst} times the mean");
    assert_eq!(picks, HashPicks { first: 20_000, ..HashPicks::default() });
}

/// The same load on 20 backends and on 19 of them. A key that moved had its backend at the leaver,
/// or was overflow on one of both sides.
#[test]
fn only_the_leavers_keys_and_the_overflow_move_under_load() {
    let mut rng = seeded(6);
    let requests: Vec<HashKey> = (0..2_000).map(|_| zipf(&mut rng, 10_000)).collect();
    let place = |members: std::ops::Range<u64>| {
        let mut cluster = Cluster::new(config(Some(1.25), 100_000), members);
        let place = |key: &HashKey| {
            let before = cluster.balancer.hash_picks().overflow;
            let backend = cluster.pick(*key, &[]).expect("all are healthy");
            (backend, cluster.balancer.hash_picks().overflow > before)
        };
        requests.iter().map(place).collect::<Vec<_>>()
    };
    let (before, after) = (place(0..20), place(1..20));
    let (mut moved, mut leavers) = (0, 0);
    for ((before, was_overflow), (after, is_overflow)) in before.iter().zip(&after) {
        leavers += u32::from(*before == 0);
        moved += u32::from(before != after);
        assert!(before == after || *before == 0 || *was_overflow || *is_overflow, "{before} → {after}");
    }
    assert!(leavers > 0 && moved >= leavers);
}

/// Mean share over 200 clusters with weights 1, 2 and 4, of 300 keys each. The share of a backend has
/// a relative deviation of at most 1/√128, so the mean of 200 has 1/√(200·128) = 0.6% for the
/// lightest, and sampling adds √(6/60000) = 1%. The tolerance of 6% is five deviations: a chance
/// of 6e-7.
#[test]
fn shares_are_in_proportion_to_weights() {
    let mut counts = [0_u32; 3];
    for round in 0..200_u64 {
        let mut cluster = Cluster::new(config(None, 1_000), []);
        (0..3).for_each(|i| cluster.add(1_000 * round + i, f64::from(1 << i)));
        let keys: Vec<HashKey> = (0..300).map(|i| HashKey::of(&(round * 300 + i).to_le_bytes())).collect();
        cluster.homes(&keys).iter().for_each(|home| counts[(home % 1_000) as usize] += 1);
    }
    for (count, weight) in counts.iter().zip([1.0, 2.0, 4.0]) {
        let relative = f64::from(*count) / (60_000.0 * weight / 7.0);
        assert!((0.94..1.06).contains(&relative), "{counts:?}");
    }
}

#[test]
fn request_without_a_key_goes_to_the_least_loaded() {
    let mut hash = Cluster::new(config(Some(1.25), 1_000), 0..7);
    let mut settings = config(None, 1_000);
    settings.policy = PolicyKind::LeastLoaded;
    let mut least = Cluster::new(settings, 0..7);
    for round in 0..200_u64 {
        let pick = |cluster: &mut Cluster| cluster.balancer.pick(cluster.now, &mut cluster.rng);
        assert_eq!(pick(&mut hash), pick(&mut least));
        if round % 3 == 0 {
            hash.finish(round % 7, Outcome::Success);
            least.finish(round % 7, Outcome::Success);
        }
    }
    assert_eq!(hash.balancer.hash_picks(), HashPicks { unkeyed: 200, ..HashPicks::default() });
}

#[test]
fn home_of_a_key_is_its_first_backend_and_stays_so_when_unusable() {
    let (mut cluster, keys) = (Cluster::new(config(Some(1.25), 1_000), 0..5), keys(100));
    let homes = cluster.homes(&keys);
    let home =
        |cluster: &Cluster, key| cluster.balancer.hash_home(key).map(|(id, usable)| (cluster.identity(id), usable));
    assert!(keys.iter().zip(&homes).all(|(key, expected)| home(&cluster, *key) == Some((*expected, true))));
    cluster.balancer.drain(cluster.now, cluster.ids[&3], &mut ());
    for (key, expected) in keys.iter().zip(&homes) {
        assert_eq!(home(&cluster, *key), Some((*expected, *expected != 3)));
    }
    let mut settings = config(None, 1_000);
    settings.policy = PolicyKind::LeastLoaded;
    let other = Cluster::new(settings, 0..5);
    assert_eq!((home(&other, keys[0]), home(&Cluster::new(config(None, 1), []), keys[0])), (None, None));
}

/// A backend that fails at once gets little, and its keys keep a backend of their own. Seed 1,
/// 20,000 requests, one at a time; its even share would be 2,000.
#[test]
fn failing_backend_passes_its_keys_to_the_next_of_their_order() {
    for bound in [None, Some(1.25)] {
        let (mut cluster, keys) = (Cluster::new(config(bound, 1_000), 0..10), keys(1_000));
        let homes = cluster.homes(&keys);
        cluster.balancer.drain(cluster.now, cluster.ids[&3], &mut ());
        let next = cluster.homes(&keys);
        cluster.balancer.undrain(cluster.now, cluster.ids[&3], &mut ());
        cluster.balancer.on_check(cluster.now, cluster.ids[&3], CheckOutcome::Passed, &mut cluster.rng, &mut ());
        let (mut failed, mut strays) = (0, 0);
        for i in 0..20_000 {
            cluster.now = cluster.now + Duration::from_millis(1);
            let picked = cluster.pick(keys[i % 1_000], &[]).expect("all are healthy");
            strays += u32::from(picked != homes[i % 1_000] && picked != next[i % 1_000]);
            failed += u32::from(picked == 3);
            cluster.finish(picked, if picked == 3 { Outcome::Failure } else { Outcome::Success });
        }
        assert!(failed < 300, "{failed} requests with bound {bound:?}");
        assert_eq!(strays, 0, "with bound {bound:?}");
    }
}

#[test]
fn backend_in_slow_start_shares_its_keys_with_their_former_backends() {
    let mut settings = config(None, 1_000);
    settings.slow_start.window = Duration::from_secs(30);
    let (mut cluster, keys) = (Cluster::new(settings, 0..10), keys(1_000));
    let former = cluster.homes(&keys);
    cluster.now = cluster.now + Duration::from_secs(60);
    cluster.add(10, 1.0);
    let during = cluster.homes(&keys);
    assert!(during.iter().zip(&former).all(|(during, former)| *during == 10 || during == former));
    let in_slow_start = during.iter().filter(|home| **home == 10).count();
    cluster.now = cluster.now + Duration::from_secs(60);
    let afterwards = cluster.homes(&keys).iter().filter(|home| **home == 10).count();
    assert!(0 < in_slow_start && 2 * in_slow_start < afterwards, "{in_slow_start} of {afterwards}");
}

#[test]
fn policy_that_comes_later_knows_all_backends() {
    let keys = keys(300);
    let homes = Cluster::new(config(None, 1_000), 0..9).homes(&keys);
    let mut settings = config(None, 1_000);
    settings.policy = PolicyKind::Random;
    let mut later = Cluster::new(settings, 0..9);
    later.balancer.set_config(later.now, config(None, 1_000));
    assert_eq!(later.homes(&keys), homes);
    // Its requests in flight count from the start.
    let mut settings = config(None, 1_000);
    settings.policy = PolicyKind::Random;
    let mut busy = Cluster::new(settings, 0..9);
    let home = homes[0];
    while busy.active()[&home] == 0 {
        busy.pick(keys[0], &[]);
    }
    busy.balancer.set_config(busy.now, config(Some(1.05), 1_000));
    let active = busy.active();
    let mean = (active.values().sum::<u32>() + 1) as f64 / 9.0;
    let is_full = f64::from(active[&home]) >= 1.05 * mean;
    assert_eq!(busy.pick(keys[0], &[]) != Some(home), is_full, "{active:?}");
}

#[test]
fn each_locality_has_a_ring_of_its_own() {
    let keys = keys(300);
    let mut cluster = Cluster::new(config(None, 1_000), 0..8);
    cluster.balancer.set_localities(cluster.now, &[Some(0), None], SpillConfig::default());
    for identity in 4..8 {
        cluster.balancer.set_locality(cluster.now, cluster.ids[&identity], 1);
    }
    cluster.balancer.handle_timeout(cluster.now, &mut ());
    let _ = cluster.balancer.route(cluster.now, Criticality::default(), &mut cluster.rng);
    assert_eq!(cluster.homes(&keys), Cluster::new(config(None, 1_000), 0..4).homes(&keys));
    let mut far = |key: &HashKey| match cluster.balancer.pick_for(cluster.now, &mut cluster.rng, 1, &[], Some(*key)) {
        Pick::Backend(id) => *cluster.ids.iter().find(|(_, known)| **known == id).expect("a member").0,
        other => panic!("{other:?}"),
    };
    let far: Vec<u64> = keys.iter().map(&mut far).collect();
    assert_eq!(far, Cluster::new(config(None, 1_000), 4..8).homes(&keys));
    cluster.balancer.set_localities(cluster.now, &[], SpillConfig::default());
    let expected = Cluster::new(config(None, 1_000), 0..8).homes(&keys);
    assert_eq!(cluster.homes(&keys), expected, "all are equally near again");
}

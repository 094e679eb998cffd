//! Hard limits: a customer stays within its CPU limit at any load, also on an idle server.
//!
//! Each customer with a hard limit has an [`Account`] of its usage in the last second. A request is
//! admitted while its expected cost fits the account. The real cost is corrected while the request
//! runs and when it ends. So the limit is kept within 2% over any second, if requests are small
//! beside it. An expensive request is admitted as if it were small, and paid off before the next
//! one.
//!
//! # The choice of requests
//!
//! Within a customer, the least critical requests are shed first. The account alone is first come,
//! first served. So each criticality has a share in front of it, from the load that the customer
//! offers. The limit L, less the load of the higher criticalities, is shared among the requests of
//! this one. Nothing is left for those below.
//!
//! ```text
//! P_r = clamp((BRISK · L − MARGIN · Σ offered above r) ÷ offered_r, 0, 1)
//! headroom_r = capacity · (1 − (RESERVE + 1 − age) · min(1, Σ offered above r ÷ L)),   age ≤ 1 s
//! ```
//!
//! P spreads a customer's requests over time. The account alone would let a customer use a second's
//! worth at once and then make it wait for the rest of the second. BRISK is a little above 1, so
//! that the account binds and not the estimate of the load. The less critical requests leave a part
//! of the account free, for chance in the load of the others. In the first second of a customer
//! they also leave the part that the others will need until its end, since nothing leaves the
//! account before.
//!
//! # Failure modes
//!
//! Memory is bounded, as for [`Usage`](super::usage). Customers without a limit take none of it.
//! When there are more customers with a limit than accounts, the customer furthest from its limit
//! is forgotten, and starts with an empty account. The use of a request before it is known to be
//! expensive is in no account yet. So a burst of such requests exceeds the limit while it lasts,
//! and is paid off afterwards. If one request is a large part of a limit, customers with a lower
//! mean load may still reach it by chance.

use alloc::boxed::Box;
use core::time::Duration;

use super::account::Account;
use super::cohort::draw;
use super::{Ask, Quota, Shed};
use crate::rng::{self, spread};
use crate::{Criticality, Random, Rejection, Timestamp, decay};

/// Half-life of the offered load: a mean over about a second and a half, somewhat longer than the
/// account looks back.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// The part of the limit that shares are cut to. The offered load is known to some per cent only,
/// and a customer that asks for exactly its limit should not lose by that.
const BRISK: f64 = 1.1;
/// The shortest time that a load estimate covers. Less says too little.
const YOUNG: Duration = Duration::from_millis(100);
/// The part of the limit that less critical requests leave to others that ask for all of it: four
/// standard deviations of a thousand requests a second.
const RESERVE: f64 = 0.15;
/// The factor on the load of higher criticalities, so that together with the lower ones it is no
/// more than the limit. An excess would leave some slots of the account empty, and at the end of an
/// empty slot the account has no headroom a second later.
const MARGIN: f64 = 1.1;
/// The part of a second's limit that an expensive request needs free. More, and the most expensive
/// ones would never be admitted.
const SMALL: f64 = 0.02;
/// The largest charge ahead of use for a request in progress, in seconds of the limit.
const AHEAD: f64 = 0.05;
/// The longest wait that is advised, in seconds, before its random factor: limits change.
const MAX_WAIT: f64 = 60.0;
const WAYS: usize = 8;
const LEVELS: usize = Criticality::ALL.len();

/// The load that a customer offers.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// CPU-seconds by criticality, decayed.
    levels: [f64; LEVELS],
    /// The times of the first and the last request.
    since: Timestamp,
    at: Timestamp,
}

/// The offered load that a request meets, in CPU-seconds a second.
struct PriorDemand {
    above: f64,
    /// Load of the same criticality before this request. One expensive request alone is no load.
    own: f64,
    /// The part of a second for which the customer has been sending: 1 is all of it.
    age: f64,
}

impl Demand {
    fn new(now: Timestamp) -> Self {
        Self { levels: [0.0; LEVELS], since: now, at: now }
    }

    fn on_request(&mut self, now: Timestamp, rank: usize, cost: f64) -> PriorDemand {
        if now.since(self.at) > Duration::from_secs(1) {
            *self = Self::new(now);
        }
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.levels.iter_mut().for_each(|level| *level *= left);
        self.at = self.at.max(now);
        let above: f64 = self.levels[..rank].iter().sum();
        let own = self.levels[rank];
        self.levels[rank] += cost;
        // The mean covers only the time since the first request, and not the full half-life.
        let known = 1.0 - decay::remaining(now.max(self.since + YOUNG), self.since, HALF_LIFE);
        let age = now.since(self.since).as_secs_f64().min(1.0);
        PriorDemand { above: decay::rate(above, HALF_LIFE) / known, own: decay::rate(own, HALF_LIFE), age }
    }
}

/// Customers with the same hash. Their numbers are searched before the accounts, which lie
/// elsewhere in memory.
#[derive(Clone, Debug, Default)]
struct Set {
    customers: [u64; WAYS],
    accounts: [(Account, Demand); WAYS],
}

impl Set {
    fn find(&self, customer: u64) -> Option<usize> {
        (0..WAYS).find(|way| self.customers[*way] == customer && self.accounts[*way].0.is_taken())
    }

    /// The account of the customer; a new one replaces the account with the least fill.
    fn entry(&mut self, now: Timestamp, customer: u64, limit: f64) -> &mut (Account, Demand) {
        let way = self.find(customer).unwrap_or_else(|| {
            let fill = self.accounts.each_ref().map(|(account, _)| account.fill(now));
            let least = (1..WAYS).fold(0, |least, way| if fill[way] < fill[least] { way } else { least });
            self.customers[least] = customer;
            self.accounts[least] = (Account::new(now, limit), Demand::new(now));
            least
        });
        let entry = &mut self.accounts[way];
        entry.0.set_limit(limit);
        entry.0.advance(now);
        entry
    }
}

/// Keeps customers within their hard limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// All sets, allocated when the first customer with a limit arrives.
    sets: Box<[Set]>,
    customers: usize,
}

/// The hard limit of a customer, and its use: both sides of a refusal for quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The hard limit, in CPU-seconds a second: of the reference core where [`Gate`](super::Gate)
    /// answers, and so are the others.
    pub limit: f64,
    /// CPU-seconds used in the last second: measured, or expected of requests in progress.
    pub used: f64,
    /// CPU-seconds of earlier requests above the limit; they are paid off before the next request.
    pub debt: f64,
}

/// The charge of a request in progress to its customer's limit.
#[derive(Debug, PartialEq)]
#[must_use]
pub struct Charge {
    customer: u64,
    limit: f64,
    slot: u64,
    /// CPU-seconds.
    taken: f64,
}

impl Charge {
    /// CPU-seconds of use at which [`Limits::progress`] is due, if the request goes on.
    pub(super) fn taken(&self) -> f64 {
        self.taken
    }
}

impl Limits {
    /// Default number of customers with a hard limit that are remembered. Each takes 220 bytes from
    /// the first such customer on.
    pub const DEFAULT_CUSTOMERS: usize = 4_096;

    /// Remembers about this many customers with a hard limit.
    #[must_use]
    pub fn new(customers: usize) -> Self {
        Self { sets: Box::default(), customers }
    }

    /// Decides whether the request's customer is over its limit. Returns the retry advice if so. If
    /// not, and the request is admitted, call [`Limits::take`].
    pub fn ask(&mut self, now: Timestamp, ask: &Ask, quota: Quota, rng: &mut impl Random) -> Option<Shed> {
        let limit = quota.limit()?;
        if limit <= 0.0 {
            return Some(refusal(MAX_WAIT, rng));
        }
        let (account, offered) = self.set(ask.customer).entry(now, ask.customer, limit);
        let PriorDemand { above, own, age } = offered.on_request(now, ask.criticality.rank(), ask.cost);
        let share = (BRISK * limit - MARGIN * above) / own.max(f64::MIN_POSITIVE);
        let is_cut = share < 1.0 && draw(ask, rng) >= share;
        let above_of_limit = (above / limit).min(1.0);
        let part = 1.0 - (RESERVE + 1.0 - age) * above_of_limit;
        if !is_cut && account.fits(ask.cost.min(SMALL * limit), part) {
            return None;
        }
        // The time to do one second's demand, so that retries do not return all at once.
        let wait = account.debt() / limit + ((above + own) / limit).max(1.0);
        Some(refusal(wait, rng))
    }

    /// Charges a request that was just asked about and is admitted; `None` if its customer has no
    /// limit.
    pub fn take(&mut self, now: Timestamp, ask: &Ask, quota: Quota) -> Option<Charge> {
        let limit = quota.limit().filter(|limit| *limit > 0.0)?;
        let (account, _) = self.set(ask.customer).entry(now, ask.customer, limit);
        let slot = account.take(ask.cost);
        Some(Charge { customer: ask.customer, limit, slot, taken: ask.cost })
    }

    /// A running request has used this many CPU-seconds so far. Once it has used its charge, as
    /// much again is expected.
    pub fn progress(&mut self, now: Timestamp, charge: &mut Charge, used: f64) {
        if used < charge.taken {
            return;
        }
        let taken = used + used.min(AHEAD * charge.limit);
        if let Some(account) = self.known(now, charge) {
            account.take(taken - charge.taken);
        }
        charge.taken = taken;
    }

    /// A request has ended, with its use in CPU-seconds.
    pub fn finish(&mut self, now: Timestamp, charge: Charge, used: f64) {
        let Charge { slot, taken, .. } = charge;
        let more = used - taken;
        if let Some(account) = self.known(now, &charge) {
            if more > 0.0 {
                account.take(more);
            } else {
                account.give_back(slot, -more);
            }
        }
    }

    /// The customer's limit and its use of it; `None` without a hard limit.
    #[must_use]
    pub fn standing(&mut self, now: Timestamp, customer: u64, quota: Quota) -> Option<Standing> {
        let limit = quota.limit()?;
        if limit <= 0.0 {
            return Some(Standing { limit, used: 0.0, debt: 0.0 });
        }
        let set = self.set(customer);
        let account = set.find(customer).map(|way| &mut set.accounts[way].0);
        let Some(account) = account else { return Some(Standing { limit, used: 0.0, debt: 0.0 }) };
        account.advance(now);
        Some(Standing { limit, used: account.used(), debt: account.debt() })
    }

    /// The account that a request is charged to, if it is still remembered.
    fn known(&mut self, now: Timestamp, charge: &Charge) -> Option<&mut Account> {
        let set = self.set(charge.customer);
        let way = set.find(charge.customer)?;
        let (account, _) = &mut set.accounts[way];
        account.advance(now);
        Some(account)
    }

    fn set(&mut self, customer: u64) -> &mut Set {
        if self.sets.is_empty() {
            let sets = self.customers.div_ceil(WAYS).next_power_of_two();
            self.sets = (0..sets).map(|_| Set::default()).collect();
        }
        let set = spread(customer) as usize & (self.sets.len() - 1);
        &mut self.sets[set]
    }
}

/// A refusal for quota, with advice to return after about `wait` seconds: half to one and a half of
/// it.
pub(super) fn refusal(wait: f64, rng: &mut impl Random) -> Shed {
    let after = Duration::from_secs_f64(wait.min(MAX_WAIT) * (0.5 + rng::unit(rng)));
    Shed { reason: Rejection::Quota, after: Some(after) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeMap;
    use std::vec::Vec;

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const LIMIT: f64 = 0.5;
    /// CPU-seconds of a request, in the mean: a thousand a second are the limit.
    const MEAN: f64 = 0.0005;
    const SECONDS: u64 = 30;
    const SEED: u64 = 5;

    fn quota(most: f64) -> Quota {
        Quota { most: Some(most), ..Quota::UNLIMITED }
    }

    fn ask(customer: u64, criticality: Criticality) -> Ask {
        Ask {
            criticality,
            customer,
            share: 1.0,
            demand: None,
            cost: MEAN,
            overhead: 0.0,
            deadline: None,
            cohort: None,
            is_retry: false,
        }
    }

    /// The outcome of one customer's requests.
    #[derive(Default)]
    struct Outcome {
        /// By criticality.
        asked: [u64; LEVELS],
        taken: [u64; LEVELS],
        /// CPU-seconds that requests used, by the millisecond of their end.
        used: BTreeMap<u64, f64>,
    }

    impl Outcome {
        fn shed(&self, rank: usize) -> f64 {
            1.0 - self.taken[rank] as f64 / self.asked[rank] as f64
        }

        /// The largest use in any second, from the beginning.
        fn most(&self) -> f64 {
            let mut window = 0.0;
            let mut most = 0.0_f64;
            for at in 0..SECONDS * 1_000 {
                window += self.used.get(&at).copied().unwrap_or(0.0);
                window -= at.checked_sub(1_000).and_then(|left| self.used.get(&left)).copied().unwrap_or(0.0);
                most = most.max(window);
            }
            most
        }

        fn mean(&self) -> f64 {
            self.used.values().sum::<f64>() / SECONDS as f64
        }
    }

    /// Runs an otherwise idle server. `load` is the demand of each criticality, in limits. Requests
    /// arrive at random times and run at once, with exponential costs.
    fn run(load: [f64; LEVELS]) -> Outcome {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let mut limits = Limits::new(64);
        let mut found = Outcome::default();
        let mut running = BTreeMap::new();
        let all: f64 = load.iter().sum();
        let mut now = 0.0;
        loop {
            now += exponential(&mut rng) * MEAN / (LIMIT * all);
            let at = (now * 1e9) as u64;
            while let Some(first) = running.first_entry().filter(|first| *first.key() <= at) {
                let (end, (charge, cost)) = first.remove_entry();
                limits.finish(Timestamp::from_nanos(end), charge, cost);
                *found.used.entry(end / 1_000_000).or_default() += cost;
            }
            if now >= SECONDS as f64 {
                return found;
            }
            let mut point = rng::unit(&mut rng) * all;
            let rank = load.iter().position(|part| {
                point -= part;
                point < 0.0
            });
            let rank = rank.unwrap_or(LEVELS - 1);
            let at = Timestamp::from_nanos(at);
            let ask = ask(7, Criticality::ALL[rank]);
            found.asked[rank] += 1;
            if limits.ask(at, &ask, quota(LIMIT), &mut rng).is_none() {
                found.taken[rank] += 1;
                let charge = limits.take(at, &ask, quota(LIMIT)).expect("it has a limit");
                let cost = exponential(&mut rng) * MEAN;
                running.insert((at + Duration::from_secs_f64(cost)).as_nanos(), (charge, cost));
            }
        }
    }

    fn exponential(rng: &mut Pcg64Mcg) -> f64 {
        -std::primitive::f64::ln(1.0 - rng::unit(rng))
    }

    #[test]
    fn limit_is_kept_over_any_second_without_loss_below_it() {
        for (load, least, most_shed) in [(0.5, 0.48, 0.0), (1.0, 0.94, 0.06), (10.0, 0.95, 1.0)] {
            let found = run([0.0, load, 0.0, 0.0]);
            let (most, mean) = (found.most() / LIMIT, found.mean() / LIMIT);
            assert!(most <= 1.02 && mean >= least, "at {load}: at most {most}, {mean} in the mean");
            assert!(found.shed(1) <= most_shed, "at {load}: {}", found.shed(1));
        }
    }

    #[test]
    fn criticality_is_cut_only_when_all_lower_ones_are_shed() {
        let found = run([0.3, 0.3, 3.0, 3.0]);
        let shed: [f64; LEVELS] = core::array::from_fn(|rank| found.shed(rank));
        assert!(shed[0] < 0.001 && shed[1] < 0.01 && shed[3] > 0.99, "{shed:?}");
        // 0.4 of 3 are left, less the reserve.
        assert!((shed[2] - 0.89).abs() < 0.02, "{shed:?}");
        assert!(found.most() <= 1.02 * LIMIT, "{}", found.most());
        assert!(found.mean() >= 0.87 * LIMIT, "{}", found.mean());
    }

    #[test]
    fn load_above_the_limit_is_spread_over_the_second() {
        let found = run([0.0, 10.0, 0.0, 0.0]);
        // The first second's worth is used at once. After that no tenth of a second is empty for
        // long.
        let tenth = |n: u64| found.used.range(n * 100..(n + 1) * 100).map(|(_, used)| used).sum::<f64>() / LIMIT;
        let tenths: Vec<f64> = (30..SECONDS * 10).map(tenth).collect();
        let most = tenths.iter().copied().fold(0.0, f64::max);
        assert!(most < 0.25, "{most} of a second's worth in a tenth");
    }

    #[test]
    fn expensive_request_is_admitted_and_paid_off_before_the_next() {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let mut limits = Limits::new(64);
        let ms = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let ask = ask(7, Criticality::Critical);
        assert_eq!(limits.ask(ms(0), &ask, quota(LIMIT), &mut rng), None);
        let mut charge = limits.take(ms(0), &ask, quota(LIMIT)).expect("it has a limit");
        // It uses two CPU-seconds in the end: four seconds of the limit.
        for used in 1..20 {
            limits.progress(ms(used * 10), &mut charge, used as f64 * 0.1);
            let shed = limits.ask(ms(used * 10), &ask, quota(LIMIT), &mut rng);
            assert!(used < 5 || shed.is_some(), "after {used} tenths");
        }
        limits.finish(ms(200), charge, 2.0);
        let told = limits.ask(ms(200), &ask, quota(LIMIT), &mut rng);
        let Some(Shed { reason: Rejection::Quota, after: Some(wait) }) = told else { panic!("{told:?}") };
        assert!((2.0..6.5).contains(&wait.as_secs_f64()), "{wait:?}");
        let free = (200..20_000).find(|at| limits.ask(ms(*at), &ask, quota(LIMIT), &mut rng).is_none());
        // The last of the four seconds fits the window.
        assert!((3_000..3_500).contains(&free.expect("some time")), "{free:?}");
    }

    #[test]
    fn customer_above_its_limit_is_remembered_among_a_million_others() {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let mut limits = Limits::new(1_024);
        let mut taken = 0.0;
        for n in 0..1_000_000_u64 {
            let now = Timestamp::from_nanos(n * 10_000);
            for customer in [1_000 + n, n % 20] {
                let ask = ask(customer, Criticality::Critical);
                if limits.ask(now, &ask, quota(0.1), &mut rng).is_none() {
                    assert!(limits.take(now, &ask, quota(0.1)).is_some());
                    taken += if customer < 20 { ask.cost } else { 0.0 };
                }
            }
        }
        // Twenty customers ask for 2.5 CPUs each, for ten seconds.
        assert!((18.0..=22.0).contains(&taken), "{taken} of 20");
        assert_eq!(limits.sets.len(), 128);
    }

    #[test]
    fn customers_without_a_limit_take_no_memory() {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let mut limits = Limits::new(1_024);
        let ask = ask(1, Criticality::Critical);
        assert_eq!(limits.ask(Timestamp::ZERO, &ask, Quota::UNLIMITED, &mut rng), None);
        assert_eq!(limits.take(Timestamp::ZERO, &ask, Quota::UNLIMITED), None);
        let Some(Shed { after: Some(wait), .. }) = limits.ask(Timestamp::ZERO, &ask, quota(0.0), &mut rng) else {
            panic!("nothing at all is allowed")
        };
        assert!((30..=90).contains(&wait.as_secs()), "{wait:?}");
        assert!(limits.sets.is_empty());
    }

    #[test]
    fn cohort_is_within_the_limit_or_beyond_it_as_a_whole() {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let mut limits = Limits::new(64);
        let mut taken = [0_u32; 100];
        // Five times the limit, for ten seconds; the last eight count.
        for n in 0..50_000_u64 {
            let now = Timestamp::from_nanos(n * 200_000);
            let ask = Ask { cohort: Some(n % 100), ..ask(7, Criticality::Critical) };
            if limits.ask(now, &ask, quota(LIMIT), &mut rng).is_none() {
                assert!(limits.take(now, &ask, quota(LIMIT)).is_some());
                taken[(n % 100) as usize] += u32::from(n >= 10_000);
            }
        }
        let (most, none) = (taken.iter().filter(|n| **n > 300).count(), taken.iter().filter(|n| **n == 0).count());
        assert!(most >= 12 && none >= 70, "{taken:?}");
    }

    /// A request of one cohort: no random number decides on it.
    fn certain(cost: f64) -> Ask {
        Ask { cost, cohort: Some(1), ..ask(7, Criticality::Critical) }
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// CPU-seconds taken from the limit of customer 7.
    fn taken(limits: &mut Limits) -> f64 {
        let used = limits.standing(ms(0), 7, quota(LIMIT)).expect("it has a limit").used;
        // The window is a little longer than a second.
        used * 30.0 * (1 << 25) as f64 * 1e-9
    }

    #[test]
    fn load_is_remembered_for_a_second_without_a_request() {
        let mut offered = Demand::new(ms(0));
        let _ = offered.on_request(ms(0), 1, 0.1);
        let after = |at| {
            let PriorDemand { own, age, .. } = offered.clone().on_request(ms(at), 1, 0.1);
            (own > 0.0, age)
        };
        assert_eq!([1_000, 1_001, 9_000].map(after), [(true, 1.0), (false, 0.0), (false, 0.0)]);
    }

    #[test]
    fn full_set_forgets_the_customer_furthest_from_its_limit() {
        let mut limits = Limits::new(WAYS);
        let costs = [0.05, 0.04, 0.03, 0.01, 0.02, 0.06, 0.07, 0.08];
        let mut take = |customer, cost| limits.take(ms(0), &Ask { customer, ..certain(cost) }, quota(LIMIT));
        (1..).zip(costs).for_each(|(customer, cost)| assert!(take(customer, cost).is_some()));
        assert!(take(9, 0.1).is_some());
        let mut used = |customer| limits.standing(ms(0), customer, quota(LIMIT)).expect("it has a limit").used > 0.0;
        let forgotten: Vec<u64> = (1..=9).filter(|customer| !used(*customer)).collect();
        assert_eq!(forgotten, [4]);
    }

    #[test]
    fn expensive_request_needs_headroom_for_two_percent_of_a_second() {
        for (room, is_admitted) in [(0.02, true), (0.011, true), (0.009, false)] {
            let mut limits = Limits::new(64);
            let window = LIMIT * 30.0 * (1 << 25) as f64 * 1e-9;
            assert!(limits.take(ms(0), &certain(window - room), quota(LIMIT)).is_some());
            let mut rng = Pcg64Mcg::seed_from_u64(SEED);
            let shed = limits.ask(ms(0), &certain(1.0), quota(LIMIT), &mut rng);
            assert_eq!(shed.is_none(), is_admitted, "{room}");
        }
    }

    #[test]
    fn customer_is_told_to_wait_for_its_debt_and_its_load() {
        let mut limits = Limits::new(64);
        let (account, offered) = limits.set(7).entry(ms(1_000), 7, LIMIT);
        account.take(2.0);
        let debt = account.debt();
        // For a second, the customer has asked for one CPU at the higher criticality, and for half
        // of one at its own.
        let second = 0.5 / core::f64::consts::LN_2;
        *offered = Demand { levels: [second, second, 0.0, 0.0], since: ms(0), at: ms(1_000) };
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let told = limits.ask(ms(1_000), &certain(0.001), quota(LIMIT), &mut rng);
        let Some(Shed { after: Some(wait), .. }) = told else { panic!("{told:?}") };
        let chance = 0.5 + rng::unit(&mut Pcg64Mcg::seed_from_u64(SEED));
        let expected = debt / LIMIT + 1.5 / LIMIT;
        assert!((wait.as_secs_f64() / chance / expected - 1.0).abs() < 1e-3, "{wait:?}");
    }

    #[test]
    fn wait_is_half_as_long_to_half_as_long_again() {
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        let wait = |shed: Shed| shed.after.expect("a time").as_secs_f64();
        let waits: Vec<f64> = (0..2_000).map(|_| wait(refusal(10.0, &mut rng))).collect();
        let (least, most) = (waits.iter().copied().fold(f64::MAX, f64::min), waits.iter().copied().fold(0.0, f64::max));
        // With 2,000 draws, none is within a hundredth of one end with a chance of 0.99^2000, or
        // 2e-9.
        assert!((5.0..5.1).contains(&least) && (14.9..15.0).contains(&most), "{least} {most}");
    }

    #[test]
    fn running_request_is_charged_ahead_once_it_has_used_its_charge() {
        let mut limits = Limits::new(64);
        let mut charge = limits.take(ms(0), &certain(0.01), quota(LIMIT)).expect("it has a limit");
        assert_eq!(charge.taken(), 0.01);
        // As much again, and no more than 0.05 seconds of the limit.
        for (used, charged) in [(0.009, 0.01), (0.01, 0.02), (0.015, 0.02), (0.2, 0.225)] {
            limits.progress(ms(0), &mut charge, used);
            assert!((charge.taken() - charged).abs() < 1e-9, "{used}: {charge:?}");
            assert!((taken(&mut limits) - charged).abs() < 1e-6, "{used}: {}", taken(&mut limits));
        }
        limits.finish(ms(0), charge, 0.21);
        assert!((taken(&mut limits) - 0.21).abs() < 1e-6);
    }

    #[test]
    fn customer_with_a_limit_of_0_is_never_charged() {
        let mut limits = Limits::new(64);
        assert_eq!(limits.take(ms(0), &certain(0.01), quota(0.0)), None);
    }
}

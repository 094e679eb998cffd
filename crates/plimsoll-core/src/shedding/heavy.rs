//! The heaviest of many customers or routes, in bounded memory.
//!
//! The Space-Saving rule (Metwally, Agrawal, El Abbadi, 2005) in sets of eight, with counts that
//! decay. A newcomer replaces the lightest entry of its set. It inherits that entry's *rank* and
//! adds its own cost to it:
//!
//! ```text
//! rank += cost                    of a known entry
//! rank  = rank of lightest + cost  of a newcomer
//! ```
//!
//! Reason for inheriting the rank, which [`Usage`](crate::admit) does not do: without it, each
//! light request could evict a heavy newcomer again while heavier entries hold the rest of the set.
//! With the rank of all previous holders the newcomer stays, once its cost exceeds the cost of the
//! light requests between two of its own. Reported counts include only its own requests since it
//! entered, so that no customer is accused of others' cost. They are a lower bound.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Display;
use core::time::Duration;

use super::{Label, REASONS};
use crate::admit::Quota;
use crate::quota::FleetStanding;
use crate::rng::spread;
use crate::{Rejection, Timestamp, decay};

/// Gives means over about three minutes: the customers that are heavy now, without the noise of a
/// few seconds.
const HALF_LIFE: Duration = Duration::from_secs(120);
const WAYS: usize = 8;
/// 256 entries of about 190 bytes each: enough to find the heaviest ten among a hundred times as
/// many that are equally heavy.
const SETS: usize = 32;

/// Identity of a customer or route.
#[derive(Clone, Copy)]
pub struct KeyedName<'a> {
    /// The same for equal names and seldom for different ones, such as a hash of the name.
    pub key: u64,
    /// Formatted only when the name enters the table.
    pub name: &'a dyn Display,
}

/// Demand of one customer or route, and the part of it that was shed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Name of the customer or route.
    pub name: Label,
    /// Offered requests a second.
    pub offered: f64,
    /// Expected cost of the offered requests, in CPU-seconds a second.
    pub offered_cost: f64,
    /// Shed requests a second, in the order of [`Rejection::REPORTED`].
    pub shed_by: [f64; REASONS],
    /// Shed requests a second.
    pub shed: f64,
    /// Expected cost of the shed requests, in CPU-seconds a second.
    pub shed_cost: f64,
    /// Limits of the customer at its last request; unlimited for a route.
    pub quota: Quota,
    /// Its number at the gate.
    pub key: u64,
    /// Its limit over a fleet and the part of this task: the gate adds it.
    pub fleet: Option<FleetStanding>,
    /// The same of its group, and the group's name.
    pub fleet_group: Option<(Label, FleetStanding)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    name: Label,
    at: Timestamp,
    /// Zero in an empty entry.
    rank: f64,
    /// Offered requests, their cost, the cost of the shed ones; decayed like the rank.
    counts: [f64; 3],
    /// Shed requests, decayed.
    shed: [f64; REASONS],
    quota: Quota,
}

impl Entry {
    /// An entry without a customer or route.
    fn empty() -> Self {
        Self {
            key: 0,
            name: Label::default(),
            at: Timestamp::default(),
            rank: 0.0,
            counts: [0.0; 3],
            shed: [0.0; REASONS],
            quota: Quota::UNLIMITED,
        }
    }

    fn rank(&self, now: Timestamp) -> f64 {
        if self.rank == 0.0 { 0.0 } else { self.rank * decay::remaining(now, self.at, HALF_LIFE) }
    }

    fn fade(&mut self, now: Timestamp) {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.rank *= left;
        self.counts = self.counts.map(|count| count * left);
        self.shed = self.shed.map(|count| count * left);
        self.at = self.at.max(now);
    }
}

/// Table of the heaviest customers or routes.
#[derive(Clone, Debug)]
pub(super) struct HeavyHitters {
    sets: Box<[[Entry; WAYS]]>,
    begun: Timestamp,
}

impl HeavyHitters {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { sets: alloc::vec![[Entry::empty(); WAYS]; SETS].into(), begun: now }
    }

    /// Counts a request of this expected cost that was admitted, or shed for this reason.
    pub(super) fn on_request(
        &mut self,
        now: Timestamp,
        party: KeyedName<'_>,
        quota: Quota,
        cost: f64,
        shed: Option<Rejection>,
    ) {
        let set = &mut self.sets[spread(party.key) as usize % SETS];
        let known = set.iter().position(|entry| entry.key == party.key && entry.rank > 0.0);
        let place = known.unwrap_or_else(|| lightest(set, now));
        let entry = &mut set[place];
        entry.fade(now);
        if known.is_none() {
            *entry =
                Entry { key: party.key, name: Label::of(party.name), rank: entry.rank, at: entry.at, ..Entry::empty() };
        }
        // A request without cost has an entry all the same.
        entry.rank += cost.max(f64::MIN_POSITIVE);
        entry.quota = quota;
        let shed_cost = if shed.is_some() { cost } else { 0.0 };
        entry.counts.iter_mut().zip([1.0, cost, shed_cost]).for_each(|(count, more)| *count += more);
        if let Some(place) = shed.and_then(Rejection::report_place) {
            entry.shed[place] += 1.0;
        }
    }

    /// The `count` heaviest entries, the heaviest first.
    pub(super) fn top(&self, now: Timestamp, count: usize) -> Vec<Share> {
        // Counts that began lately are below their steady value.
        let grown = 1.0 - decay::remaining(now, self.begun, HALF_LIFE);
        let per_second = if grown > 0.0 { decay::rate(1.0, HALF_LIFE) / grown } else { 0.0 };
        let mut entries: Vec<Entry> = self.sets.iter().flatten().filter(|entry| entry.rank > 0.0).copied().collect();
        entries.iter_mut().for_each(|entry| entry.fade(now));
        entries.sort_by(|one, other| other.counts[1].total_cmp(&one.counts[1]).then(one.key.cmp(&other.key)));
        // After an hour of silence nothing is left that is worth reporting.
        let reported = entries.into_iter().filter(|entry| entry.counts[0] > 1e-6).take(count);
        reported
            .map(|Entry { key, name, counts, shed, quota, .. }| {
                let [offered, offered_cost, shed_cost] = counts.map(|count| count * per_second);
                let shed_by = shed.map(|count| count * per_second);
                let shed = shed_by.iter().sum();
                Share {
                    name,
                    offered,
                    offered_cost,
                    shed_by,
                    shed,
                    shed_cost,
                    quota,
                    key,
                    fleet: None,
                    fleet_group: None,
                }
            })
            .collect()
    }
}

fn lightest(set: &[Entry; WAYS], now: Timestamp) -> usize {
    let rank = set.each_ref().map(|entry| entry.rank(now));
    (1..WAYS).fold(0, |least, at| if rank[at] < rank[least] { at } else { least })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn heavy_customers_are_reported_among_a_million_light_ones() {
        let mut heavy = HeavyHitters::new(ms(0));
        for n in 0..1_000_000_u64 {
            let now = ms(n / 4);
            // 4,000 requests a second from as many strangers. Ten customers send another 1,000, the
            // first of them half.
            heavy.on_request(now, KeyedName { key: 1_000 + n, name: &"stranger" }, Quota::UNLIMITED, 0.001, None);
            if n % 4 == 0 {
                let key = if n % 8 == 0 { 0 } else { 1 + n / 8 % 9 };
                let shed = (key == 0).then_some(Rejection::Overloaded);
                heavy.on_request(now, KeyedName { key, name: &key }, Quota::UNLIMITED, 0.001, shed);
            }
        }
        let top = heavy.top(ms(250_000), 10);
        let names: Vec<_> = top.iter().map(|share| share.name.as_str()).collect();
        assert_eq!(names[0], "0");
        assert!((1..10).all(|key: u32| names.contains(&std::format!("{key}").as_str())), "{names:?}");
        assert!((top[0].offered - 500.0).abs() < 25.0 && (top[0].offered_cost - 0.5).abs() < 0.025, "{:?}", top[0]);
        assert!((top[0].shed / top[0].offered - 1.0).abs() < 1e-9 && top[1].shed == 0.0);
        assert!(top[1].offered > 40.0, "{:?}", top[1]);
    }

    #[test]
    fn heavy_newcomer_is_not_evicted_by_light_ones() {
        let mut heavy = HeavyHitters::new(ms(0));
        let set_of = |key: u64| spread(key) as usize % SETS;
        let mut same_set = (0..).filter(|key| set_of(*key) == 0);
        let old: Vec<u64> = same_set.by_ref().take(WAYS - 1).collect();
        let newcomer = same_set.next().expect("there is no end");
        for n in 0..2_000 {
            old.iter().for_each(|key| {
                heavy.on_request(ms(n), KeyedName { key: *key, name: key }, Quota::UNLIMITED, 0.001, None)
            });
        }
        for n in 2_000..6_000 {
            old.iter().for_each(|key| {
                heavy.on_request(ms(n), KeyedName { key: *key, name: key }, Quota::UNLIMITED, 0.001, None)
            });
            heavy.on_request(ms(n), KeyedName { key: newcomer, name: &"newcomer" }, Quota::UNLIMITED, 0.005, None);
            heavy.on_request(
                ms(n),
                KeyedName { key: same_set.next().expect("there is no end"), name: &"light" },
                Quota::UNLIMITED,
                0.000_01,
                None,
            );
        }
        assert!(heavy.top(ms(6_000), WAYS).iter().any(|share| share.name.as_str() == "newcomer"));
    }

    #[test]
    fn silent_customer_is_forgotten() {
        let mut heavy = HeavyHitters::new(ms(0));
        (0..1_000)
            .for_each(|n| heavy.on_request(ms(n), KeyedName { key: 1, name: &"gone" }, Quota::UNLIMITED, 1.0, None));
        assert_eq!(heavy.top(ms(1_000), 5).len(), 1);
        assert!(heavy.top(ms(7_200_000), 5).is_empty());
    }

    /// The set is full. The first entry was heavy 20 minutes (ten half-lives) ago and light since.
    #[test]
    fn newcomer_replaces_the_entry_with_the_lightest_recent_rank() {
        let now = ms(20 * 60_000);
        for asks_again in [false, true] {
            let mut heavy = HeavyHitters::new(ms(0));
            let mut keys = (0_u64..).filter(|key| (spread(*key) as usize).is_multiple_of(SETS));
            let mut ask =
                |at, key, cost| heavy.on_request(at, KeyedName { key, name: &key }, Quota::UNLIMITED, cost, None);
            let old: Vec<u64> = keys.by_ref().take(WAYS).collect();
            ask(ms(0), old[0], 1.0);
            if asks_again {
                ask(now, old[0], 0.01);
            }
            old[1..].iter().for_each(|key| ask(now, *key, 0.1));
            let newcomer = keys.next().expect("there is no end");
            ask(now, newcomer, 0.001);
            let set = heavy.sets[0].map(|entry| entry.key);
            assert!(set.contains(&newcomer) && !set.contains(&old[0]), "{set:?}, {asks_again}");
            assert!(old[1..].iter().all(|key| set.contains(key)), "{set:?}, {asks_again}");
        }
    }

    #[test]
    fn rates_are_zero_at_the_first_request() {
        let mut heavy = HeavyHitters::new(ms(0));
        heavy.on_request(ms(0), KeyedName { key: 1, name: &"ann" }, Quota::UNLIMITED, 0.1, Some(Rejection::Overloaded));
        let first = heavy.top(ms(0), 5)[0];
        assert_eq!((first.offered, first.offered_cost, first.shed, first.shed_cost), (0.0, 0.0, 0.0, 0.0));
    }
}

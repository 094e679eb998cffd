//! Request limits: the requests per second of each customer, by token buckets.
//!
//! A gate ([`admit`](crate::admit)) limits the CPU of a customer, which is the scarce resource. A
//! request limit counts requests of any cost, and needs neither a gate nor a measurement. It
//! is the rate limit of other proxies.
//!
//! ```text
//! interval = 1 s / rate        depth = burst · interval
//! due' = max(due, now) + interval        admitted if due' ≤ now + depth, else retry after due' − now − depth
//! ```
//!
//! So a bucket that was full admits `burst` requests at once, and `rate` a second from then on. Over
//! any time *t* at most `burst + rate · t` requests pass. A rejected request takes no token. The
//! usual way, a count in each second of the clock, admits twice the rate around its end.
//!
//! # Memory
//!
//! Customers of the configuration have a bucket each. All others share a table of fixed size, in
//! sets of eight by a hash of the customer: a map would grow with the addresses of an attacker. A
//! full bucket needs no memory. When a set has no place left, it forgets its least used bucket, so that
//! customer gets a few requests more. It never gets fewer, so nobody notices a table that strangers
//! fill. A customer at its limit has the most used bucket, and is forgotten last.
//!
//! # Changed limits
//!
//! A bucket keeps its fill when its limit changes: an empty one stays empty, a full one full. So a
//! change gives nobody a burst, and applies at once.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use crate::admit::{Mode, Shed};
use crate::gcra::Due;
use crate::rng::spread;
use crate::{Rejection, Timestamp};

/// Buckets in a set of the table: two cache lines.
const WAYS: usize = 8;

/// A limit on the requests per second of one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimit {
    /// Nanoseconds that earn one request.
    interval: NonZeroU64,
    /// Requests that a full bucket holds.
    burst: NonZeroU32,
    /// Whether requests over the limit are rejected.
    mode: Mode,
}

impl RequestLimit {
    /// Four requests an hour.
    pub const MIN_RATE: f64 = 0.001;
    /// More requests than one process forwards.
    pub const MAX_RATE: f64 = 1_000_000.0;
    /// A second at the highest rate.
    pub const MAX_BURST: u32 = 1_000_000;

    /// `rate` requests per second, and up to `burst` at once; `None` if they are out of range.
    #[must_use]
    pub fn new(rate: f64, burst: NonZeroU32) -> Option<Self> {
        if !(Self::MIN_RATE..=Self::MAX_RATE).contains(&rate) || burst.get() > Self::MAX_BURST {
            return None;
        }
        // At least a microsecond.
        let interval = NonZeroU64::new((1e9 / rate) as u64)?;
        Some(Self { interval, burst, mode: Mode::Protect })
    }

    /// The same, in this mode.
    #[must_use]
    pub fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Requests per second.
    #[must_use]
    pub fn rate(self) -> f64 {
        1e9 / self.interval.get() as f64
    }

    /// Requests at once.
    #[must_use]
    pub fn burst(self) -> u32 {
        self.burst.get()
    }

    /// The burst where none is set: the requests of one second, at least one.
    #[must_use]
    pub fn default_burst(rate: f64) -> NonZeroU32 {
        // The number was a float between 0 and the largest rate; the cast rounds down.
        let whole = rate.clamp(0.0, Self::MAX_RATE) as u32;
        let burst = whole + u32::from(f64::from(whole) < rate);
        NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN)
    }

    fn depth(self) -> u64 {
        self.interval.get() * u64::from(self.burst.get())
    }

    fn take(self, now: Timestamp, due: Due) -> Result<Due, Over> {
        due.take(now, self.interval.get(), self.depth()).map_err(|after| Over { after, limit: self })
    }

    /// A bucket of this limit, as full under another one.
    fn rescaled(self, now: Timestamp, due: Due, to: Self) -> Due {
        due.scaled(now, self.depth(), to.depth())
    }
}

/// A request over its customer's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Time until the next request of the customer.
    pub after: Duration,
    /// The limit.
    pub limit: RequestLimit,
}

impl Over {
    /// The rejection; `None` in a dry run.
    #[must_use]
    pub fn shed(self) -> Option<Shed> {
        (self.limit.mode == Mode::Protect).then_some(Shed { reason: Rejection::RateLimit, after: Some(self.after) })
    }
}

/// Decisions on the requests of some customers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted: within the limit, or over it in a dry run.
    pub admitted: u64,
    /// Over the limit.
    pub over: u64,
}

/// The bucket of a customer of the configuration; without a limit, nothing is counted.
#[derive(Clone, Copy, Debug)]
struct Named {
    customer: u64,
    limit: Option<RequestLimit>,
    due: Due,
    counts: Counts,
}

/// Customers with the same hash. The bucket of a free place is full.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    customers: [u64; WAYS],
    due: [Due; WAYS],
}

impl Set {
    /// The place of the customer: its own, else that of the least used bucket.
    fn place(&self, customer: u64) -> (usize, Due) {
        match self.customers.iter().position(|known| *known == customer) {
            Some(way) => (way, self.due[way]),
            None => {
                let least_used =
                    (1..WAYS).fold(0, |least, way| if self.due[way] < self.due[least] { way } else { least });
                (least_used, Due::default())
            }
        }
    }

    fn put(&mut self, way: usize, customer: u64, due: Due) {
        (self.customers[way], self.due[way]) = (customer, due);
    }
}

/// Token buckets of customers. A customer is a keyed hash of its name, so that nobody can choose to
/// share the bucket of another.
///
/// ```
/// use core::num::NonZeroU32;
/// use plimsoll_core::pick::HashKey;
/// use plimsoll_core::request_limit::{RequestLimit, RequestLimits};
/// use plimsoll_core::Timestamp;
///
/// let (now, burst) = (Timestamp::ZERO, NonZeroU32::new(5).expect("not zero"));
/// let mut limits = RequestLimits::new(10_000); // customers remembered
/// limits.set(now, [], RequestLimit::new(100.0, burst));
/// let alice = HashKey::of(b"alice").as_u64();
/// let admitted = (0..20).filter(|_| limits.take(now, alice).is_ok()).count();
/// assert_eq!(admitted, 5);
/// let over = limits.take(now, alice).expect_err("at its limit");
/// assert_eq!(over.after.as_millis(), 10);
/// ```
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// Customers of the configuration, sorted.
    named: Vec<Named>,
    /// The limit of each other customer.
    limit: Option<RequestLimit>,
    /// Allocated with the first request of another customer.
    sets: Box<[Set]>,
    places: usize,
    /// Decisions on all other customers.
    others: Counts,
}

impl RequestLimits {
    /// No limits. Remembers about this many customers besides those of the configuration, in 16 bytes
    /// each.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self { named: Vec::new(), limit: None, sets: Box::default(), places, others: Counts::default() }
    }

    /// Takes one request of `customer` from its bucket.
    ///
    /// # Errors
    /// If the customer is at its limit.
    pub fn take(&mut self, now: Timestamp, customer: u64) -> Result<(), Over> {
        let (taken, counts) = if let Ok(place) = self.find(customer) {
            let named = &mut self.named[place];
            let Some(limit) = named.limit else { return Ok(()) };
            (limit.take(now, named.due).map(|due| named.due = due), &mut named.counts)
        } else {
            let Some(limit) = self.limit else { return Ok(()) };
            let set = self.set_of(customer);
            let (way, due) = set.place(customer);
            (limit.take(now, due).map(|due| set.put(way, customer, due)), &mut self.others)
        };
        counts.over += u64::from(taken.is_err());
        counts.admitted += u64::from(taken.err().is_none_or(|over| over.shed().is_none()));
        taken
    }

    /// Sets the limits of these customers, and of each other one. `None` is no limit. Buckets keep
    /// their fill, and customers that stay keep their counts.
    pub fn set(
        &mut self,
        now: Timestamp,
        named: impl IntoIterator<Item = (u64, Option<RequestLimit>)>,
        others: Option<RequestLimit>,
    ) {
        let mut known = core::mem::take(&mut self.named);
        for (customer, limit) in named {
            let former = self.former(&mut known, customer);
            let due = match (former.limit, limit) {
                (Some(from), Some(to)) => from.rescaled(now, former.due, to),
                _ => Due::default(),
            };
            self.named.push(Named { customer, limit, due, counts: former.counts });
        }
        self.named.sort_by_key(|named| named.customer);
        self.named.dedup_by_key(|named| named.customer);
        match (self.limit, others) {
            (Some(from), Some(to)) if from != to => {
                let all = self.sets.iter_mut().flat_map(|set| &mut set.due);
                all.for_each(|due| *due = from.rescaled(now, *due, to));
            }
            (Some(_), Some(_)) => {}
            (None, _) | (_, None) => self.sets = Box::default(),
        }
        self.limit = others;
        // Those that lose their own bucket.
        for Named { customer, limit, due, .. } in known {
            if let (Some(from), Some(to)) = (limit, others) {
                let set = self.set_of(customer);
                let (way, _) = set.place(customer);
                set.put(way, customer, from.rescaled(now, due, to));
            }
        }
    }

    /// The bucket of a customer until now, which is removed from `known`.
    fn former(&self, known: &mut Vec<Named>, customer: u64) -> Named {
        if let Some(place) = known.iter().position(|named| named.customer == customer) {
            return known.swap_remove(place);
        }
        let is_known = !self.sets.is_empty();
        let due = if is_known { self.sets[self.place_of(customer)].place(customer).1 } else { Due::default() };
        Named { customer, limit: self.limit, due, counts: Counts::default() }
    }

    /// Decisions on each customer of the configuration with a limit.
    pub fn named(&self) -> impl Iterator<Item = (u64, Counts)> {
        self.named.iter().filter(|named| named.limit.is_some()).map(|named| (named.customer, named.counts))
    }

    /// Decisions on all other customers together.
    #[must_use]
    pub fn others(&self) -> Counts {
        self.others
    }

    fn find(&self, customer: u64) -> Result<usize, usize> {
        self.named.binary_search_by_key(&customer, |named| named.customer)
    }

    fn place_of(&self, customer: u64) -> usize {
        spread(customer) as usize & (self.sets.len() - 1)
    }

    fn set_of(&mut self, customer: u64) -> &mut Set {
        if self.sets.is_empty() {
            let sets = self.places.div_ceil(WAYS).next_power_of_two();
            self.sets = alloc::vec![Set::default(); sets].into();
        }
        let place = self.place_of(customer);
        &mut self.sets[place]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    extern crate std;

    fn limit(rate: f64, burst: u32) -> RequestLimit {
        RequestLimit::new(rate, NonZeroU32::new(burst).unwrap()).unwrap()
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn of_others(limit: RequestLimit) -> RequestLimits {
        let mut limits = RequestLimits::new(64);
        limits.set(ms(0), [], Some(limit));
        limits
    }

    /// Requests of `customer` that pass, of one each millisecond in these milliseconds.
    fn passed(limits: &mut RequestLimits, customer: u64, times: core::ops::Range<u64>) -> usize {
        times.filter(|at| limits.take(ms(*at), customer).is_ok()).count()
    }

    #[test]
    fn customer_gets_its_burst_at_once_and_its_rate_from_then_on() {
        let mut limits = of_others(limit(10.0, 20));
        // The burst, and a token each 100 ms: at 100, 200, ..., 9,900 ms.
        assert_eq!(passed(&mut limits, 1, 0..10_000), 20 + 99);
        assert_eq!((0..50).filter(|_| limits.take(ms(60_000), 1).is_ok()).count(), 20);
        assert_eq!(limits.others(), Counts { admitted: 139, over: 10_000 - 119 + 30 });
    }

    #[test]
    fn rejected_customer_is_told_the_time_of_its_next_request() {
        let slow = limit(0.5, 1);
        let mut limits = of_others(slow);
        let after = |ms| Err(Over { after: Duration::from_millis(ms), limit: slow });
        assert_eq!(limits.take(ms(0), 1), Ok(()));
        assert_eq!(limits.take(ms(500), 1), after(1_500));
        assert_eq!(limits.take(ms(1_999), 1), after(1));
        assert_eq!(limits.take(ms(2_000), 1), Ok(()));
    }

    #[test]
    fn request_over_the_limit_is_rejected_but_in_a_dry_run() {
        let over = |limit| Over { after: Duration::from_secs(1), limit };
        let shed = Shed { reason: Rejection::RateLimit, after: Some(Duration::from_secs(1)) };
        assert_eq!(over(limit(1.0, 1)).shed(), Some(shed));
        assert_eq!(over(limit(1.0, 1).in_mode(Mode::DryRun)).shed(), None);
    }

    #[test]
    fn rates_and_bursts_out_of_range_are_no_limit() {
        let of = |rate, burst| RequestLimit::new(rate, NonZeroU32::new(burst).unwrap());
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1_000_001.0, 0.000_9] {
            assert_eq!(of(rate, 1), None, "{rate}");
        }
        assert_eq!(of(1.0, 1_000_001), None);
        assert!(of(0.001, 1_000_000).is_some() && of(1_000_000.0, 1).is_some());
        let bursts = [0.001, 1.0, 1.5, 10.0, 1e6].map(|rate| RequestLimit::default_burst(rate).get());
        assert_eq!(bursts, [1, 1, 2, 10, 1_000_000]);
    }

    #[test]
    fn changed_limit_applies_at_once_and_gives_no_burst() {
        for is_named in [false, true] {
            let set = |limits: &mut RequestLimits, at, limit| match is_named {
                true => limits.set(ms(at), [(1, Some(limit))], None),
                false => limits.set(ms(at), [], Some(limit)),
            };
            let mut limits = RequestLimits::new(64);
            set(&mut limits, 0, limit(10.0, 10));
            assert_eq!(passed(&mut limits, 1, 0..10), 10);
            // It was empty, and stays so.
            for (at, changed) in [(10, limit(5.0, 5)), (20, limit(0.1, 10))] {
                set(&mut limits, at, changed);
                assert_eq!(passed(&mut limits, 1, at..at + 10), 0, "{changed:?}");
            }
            // A hundred seconds until the bucket is full become a tenth of a second.
            set(&mut limits, 40, limit(100.0, 10));
            assert_eq!(passed(&mut limits, 1, 40..1_040), 100);
        }
    }

    #[test]
    fn customer_keeps_its_bucket_when_it_gets_or_loses_a_table() {
        let tight = Some(limit(1.0, 5));
        let mut limits = of_others(limit(1.0, 5));
        assert_eq!(passed(&mut limits, 7, 0..10), 5);
        limits.set(ms(10), [9, 7, 8].map(|customer| (customer, tight)), tight);
        assert_eq!((passed(&mut limits, 7, 10..20), passed(&mut limits, 8, 10..20)), (0, 5));
        limits.set(ms(20), [(8, tight)], tight);
        assert_eq!((passed(&mut limits, 7, 20..30), passed(&mut limits, 9, 20..30)), (0, 5));
        assert_eq!(limits.named().collect::<Vec<_>>(), [(8, Counts { admitted: 5, over: 5 })]);
        assert_eq!(limits.others(), Counts { admitted: 10, over: 20 });
    }

    #[test]
    fn customer_without_a_limit_takes_what_it_likes() {
        let mut limits = RequestLimits::new(64);
        limits.set(ms(0), [(1, None), (2, Some(limit(1.0, 1)))], None);
        assert_eq!([1, 2, 3].map(|customer| passed(&mut limits, customer, 0..10)), [10, 1, 10]);
        assert_eq!((limits.others(), limits.sets.len()), (Counts::default(), 0));
        assert_eq!(limits.named().collect::<Vec<_>>(), [(2, Counts { admitted: 1, over: 9 })]);
        // And gives up its memory with its limit.
        limits.set(ms(10), [], Some(limit(1.0, 1)));
        assert_eq!((passed(&mut limits, 3, 10..20), limits.sets.len()), (1, 8));
        limits.set(ms(20), [], None);
        assert_eq!((passed(&mut limits, 3, 20..30), limits.sets.len()), (10, 0));
    }

    /// A full table helps strangers, and harms nobody: each honest customer passes, and one that is
    /// over its limit stays so.
    #[test]
    fn greedy_customer_stays_limited_among_a_million_strangers() {
        let mut limits = RequestLimits::new(1_024);
        limits.set(ms(0), [], Some(limit(10.0, 10)));
        let (mut greedy, mut honest) = (0, 0);
        for n in 0..1_000_000_u64 {
            // Ten seconds: 100,000 strangers a second, each with one request.
            let now = Timestamp::from_nanos(n * 10_000);
            assert_eq!(limits.take(now, 1_000 + n), Ok(()), "a stranger with one request");
            greedy += usize::from(limits.take(now, 1).is_ok());
            if n % 20_000 == 0 {
                assert_eq!(limits.take(now, 2), Ok(()), "five requests a second");
                honest += 1;
            }
        }
        assert_eq!((greedy, honest), (10 + 99, 50));
        assert_eq!(limits.sets.len(), 128);
    }

    proptest! {
        /// Against a bucket of tokens, counted in whole numbers: millionths of a token, and
        /// microseconds.
        #[test]
        fn bucket_agrees_with_a_count_of_tokens(
            rate in 1_u64..1_000,
            burst in 1_u32..50,
            gaps in prop::collection::vec(0_u64..200_000, 1..200),
        ) {
            // A rate with a whole number of microseconds between requests.
            let interval = 1_000_000 / rate;
            let mut limits = of_others(limit(1e6 / interval as f64, burst));
            let full = u64::from(burst) * interval;
            let (mut now, mut tokens) = (0, full);
            for gap in gaps {
                now += gap;
                tokens = (tokens + gap).min(full);
                let expected = tokens >= interval;
                if expected {
                    tokens -= interval;
                }
                let taken = limits.take(Timestamp::from_nanos(now * 1_000), 1);
                // A quotient that is rounded down is short of a nanosecond at most, for each token.
                let is_close = tokens.abs_diff(interval) <= 1;
                prop_assert!(taken.is_ok() == expected || is_close, "{taken:?} at {now} with {tokens} of {interval}");
                if taken.is_ok() != expected {
                    break;
                }
            }
        }
    }
}

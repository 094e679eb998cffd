//! Offered, admitted and shed requests of the last minute, hour and day, in rings of buckets.
//!
//! Each request is counted in one bucket, the present ten seconds. A bucket whose time is over is
//! added to the coarser rings. So the cost of a request does not depend on the length of the
//! history, and memory is fixed: about 180 KiB.
//!
//! | ring | bucket | reach |
//! |---|---|---|
//! | fine | 10 s | 10 min |
//! | minutes | 1 min | 1 h |
//! | coarse | 10 min | 24 h |
//!
//! A query for a period returns the bucket in which the period begins and all later ones, with
//! their total length. So rates are right, and the length exceeds the period by one bucket at most.

use alloc::boxed::Box;
use core::time::Duration;

use super::{CLASSES, Class};
use crate::{Criticality, Timestamp};

/// Interval between updates of the verdict: a change shows within it.
pub(super) const STEP: Duration = Duration::from_secs(10);
const FINE: usize = 61;
const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 61;
const COARSE: Duration = Duration::from_secs(600);
const COARSES: usize = 145;
/// Buckets in a minute, over which bursts of user-visible requests are averaged. Queues and the
/// load line are for shorter bursts, not more machines.
const PEAK_STEPS: u64 = 6;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Number of the bucket, counted from the origin of time.
    number: u64,
    classes: [Class; CLASSES],
    /// Largest mean over a minute that ended in this bucket, of user-visible first attempts, in
    /// CPU-seconds a second.
    peak: f64,
}

impl Bucket {
    fn add(&mut self, other: &Self) {
        self.classes.iter_mut().zip(&other.classes).for_each(|(class, other)| class.add(other));
        self.peak = self.peak.max(other.peak);
    }
}

/// Buckets of one width. A bucket of an earlier round counts as empty.
#[derive(Clone, Debug)]
struct Ring {
    width: Duration,
    buckets: Box<[Bucket]>,
}

impl Ring {
    fn new(width: Duration, count: usize) -> Self {
        Self { width, buckets: alloc::vec![Bucket::default(); count].into() }
    }

    fn number(&self, at: Timestamp) -> u64 {
        at.as_nanos() / self.width.as_nanos() as u64
    }

    fn begin(&self, number: u64) -> Timestamp {
        Timestamp::from_nanos(number * self.width.as_nanos() as u64)
    }

    fn reach(&self) -> Duration {
        self.width * (self.buckets.len() as u32 - 1)
    }

    /// The bucket of this number, for adding to it.
    fn bucket(&mut self, number: u64) -> &mut Bucket {
        let place = number as usize % self.buckets.len();
        let bucket = &mut self.buckets[place];
        if bucket.number != number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        bucket
    }

    fn sum(&self, from: u64, to: u64) -> Bucket {
        let mut sum = Bucket::default();
        let within = self.buckets.iter().filter(|bucket| (from..=to).contains(&bucket.number));
        within.for_each(|bucket| sum.add(bucket));
        sum
    }
}

/// Counts over one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Length of the period.
    pub span: Duration,
    /// Counts by criticality, in the order of [`Criticality::ALL`].
    pub classes: [Class; CLASSES],
    /// Largest mean over a minute of user-visible first attempts, in CPU-seconds a second.
    pub(super) peak: f64,
}

/// Counts of one day.
#[derive(Clone, Debug)]
pub(super) struct History {
    begun: Timestamp,
    fine: Ring,
    minutes: Ring,
    coarse: Ring,
    /// Number of the fine bucket that is being filled.
    present: u64,
    /// Counts before the present bucket.
    total: [Class; CLASSES],
}

impl History {
    pub(super) fn new(now: Timestamp) -> Self {
        let fine = Ring::new(STEP, FINE);
        let present = fine.number(now);
        let mut history = Self {
            begun: now,
            fine,
            minutes: Ring::new(MINUTE, MINUTES),
            coarse: Ring::new(COARSE, COARSES),
            present,
            total: [Class::default(); CLASSES],
        };
        history.fine.bucket(present);
        history
    }

    /// The counts for requests of this criticality now.
    pub(super) fn class(&mut self, now: Timestamp, criticality: Criticality) -> &mut Class {
        self.advance(now);
        &mut self.fine.bucket(self.present).classes[criticality.rank()]
    }

    /// Counts since the start.
    pub(super) fn total(&self) -> [Class; CLASSES] {
        let mut total = self.total;
        total
            .iter_mut()
            .zip(&self.fine.sum(self.present, self.present).classes)
            .for_each(|(class, last)| class.add(last));
        total
    }

    /// Counts from this time on.
    pub(super) fn since(&mut self, now: Timestamp, from: Timestamp) -> Window {
        self.advance(now);
        let age = now.since(from);
        let rings = [&self.fine, &self.minutes, &self.coarse];
        let ring = rings.into_iter().find(|ring| age <= ring.reach()).unwrap_or(&self.coarse);
        let reach = ring.number(now).saturating_sub(ring.buckets.len() as u64 - 1);
        let first = ring.number(from).max(reach);
        let mut sum = ring.sum(first, ring.number(now));
        if ring.width > STEP {
            sum.add(&self.fine.sum(self.present, self.present));
        }
        let span = now.since(ring.begin(first).max(self.begun));
        Window { span, classes: sum.classes, peak: sum.peak.max(self.minute_mean()) }
    }

    fn advance(&mut self, now: Timestamp) {
        let number = self.fine.number(now);
        // Two threads may report in either order.
        if number <= self.present {
            return;
        }
        let peak = self.minute_mean();
        let full = self.fine.bucket(self.present);
        full.peak = peak;
        let full = *full;
        let begin = self.fine.begin(self.present);
        for ring in [&mut self.minutes, &mut self.coarse] {
            let number = ring.number(begin);
            ring.bucket(number).add(&full);
        }
        self.total.iter_mut().zip(&full.classes).for_each(|(class, last)| class.add(last));
        self.present = number;
        self.fine.bucket(number);
    }

    /// Cost of user-visible first attempts in the minute that ends with the present bucket, in
    /// CPU-seconds a second.
    fn minute_mean(&self) -> f64 {
        let minute = self.fine.sum((self.present + 1).saturating_sub(PEAK_STEPS), self.present);
        let cost: f64 = user_visible(&minute.classes).map(Class::first_cost).sum();
        cost / (STEP.as_secs_f64() * PEAK_STEPS as f64)
    }
}

/// Classes of the criticalities that a user waits for.
pub(super) fn user_visible(classes: &[Class; CLASSES]) -> impl Iterator<Item = &Class> {
    let of = Criticality::ALL.into_iter().zip(classes);
    of.filter(|(criticality, _)| *criticality >= Criticality::Critical).map(|(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    /// One request of ten milliseconds each second.
    fn steady(seconds: core::ops::Range<u64>) -> History {
        let mut history = History::new(s(seconds.start));
        for at in seconds {
            history.class(s(at), Criticality::Critical).offered.count(0.01);
        }
        history
    }

    fn offered(window: &Window) -> u64 {
        window.classes.iter().map(|class| class.offered.requests).sum()
    }

    #[test]
    fn window_has_the_rates_of_its_time_and_nothing_older() {
        let mut history = steady(1_003..101_000);
        for (back, most_more) in [(60, 10), (600, 10), (3_600, 60), (86_400, 600)] {
            let window = history.since(s(101_000), s(101_000 - back));
            let span = window.span.as_secs();
            assert!((back..=back + most_more).contains(&span), "{back}: {span}");
            assert!(offered(&window).abs_diff(span) <= 1, "{back}: {} in {span} s", offered(&window));
        }
        assert_eq!(offered(&history.since(s(500_000), s(410_000))), 0);
        let total: u64 = history.total().iter().map(|class| class.offered.requests).sum();
        assert_eq!(total, 101_000 - 1_003);
    }

    #[test]
    fn window_is_as_short_as_a_young_history() {
        let window = steady(7..27).since(s(27), s(0));
        assert_eq!((window.span, offered(&window)), (Duration::from_secs(20), 20));
    }

    #[test]
    fn peak_is_the_mean_of_a_minute_and_kept_for_a_day() {
        let mut history = steady(0..40_000);
        for _ in 0..600 {
            history.class(s(40_000), Criticality::CriticalPlus).offered.count(0.1);
        }
        for at in 40_001..100_000 {
            history.class(s(at), Criticality::Sheddable).offered.count(5.0);
        }
        // 60 CPU-seconds at once are one a second over their minute, added to the steady 0.01.
        for from in [39_000, 20_000] {
            let peak = history.since(s(100_000), s(from)).peak;
            assert!((peak - 1.01).abs() < 0.02, "{peak}");
        }
        assert!(history.since(s(100_000), s(60_000)).peak < 0.02, "batch is no peak of what users wait for");
    }

    #[test]
    fn memory_is_within_the_documented_size() {
        let bytes = (FINE + MINUTES + COARSES) * size_of::<Bucket>();
        assert!(bytes <= 180 * 1024, "{bytes}");
    }

    /// Ten seconds beyond a ring's reach are in the next ring.
    #[test]
    fn window_is_never_shorter_than_requested() {
        let mut history = steady(1_003..101_400);
        for back in [600, 601, 610, 3_600, 3_601, 3_660] {
            let window = history.since(s(101_400), s(101_400 - back));
            let span = window.span.as_secs();
            assert!(span >= back && offered(&window).abs_diff(span) <= 1, "{back}: {} in {span} s", offered(&window));
        }
    }

    #[test]
    fn window_is_one_day_when_more_is_requested() {
        let mut history = steady(0..101_405);
        let window = history.since(s(101_405), s(0));
        let span = window.span.as_secs();
        assert!((86_400..87_000).contains(&span), "{span}");
        assert!(offered(&window).abs_diff(span) <= 1, "{} in {span} s", offered(&window));
    }

    #[test]
    fn window_includes_the_present_requests() {
        let mut history = steady(0..86_405);
        for _ in 0..1_000 {
            history.class(s(86_405), Criticality::Sheddable).offered.count(1.0);
        }
        for back in [60, 600, 3_600, 86_400] {
            let sheddable = history.since(s(86_405), s(86_405 - back)).classes[Criticality::Sheddable.rank()];
            assert_eq!(sheddable.offered.requests, 1_000, "{back}");
        }
    }
}

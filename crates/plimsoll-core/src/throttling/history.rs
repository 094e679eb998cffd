//! What was offered, admitted and shed, over the last minute, hour and day: rings of buckets.
//!
//! A request is counted in one bucket, that of the present ten seconds; a bucket that is full of its time is added to the coarser
//! rings. So a request costs the same however far back is remembered, and memory is fixed: about 180 KiB.
//!
//! | ring | bucket | reaches back |
//! |---|---|---|
//! | fine | 10 s | 10 min |
//! | minutes | 1 min | 1 h |
//! | coarse | 10 min | 24 h |
//!
//! What is asked for a time gets the buckets that this time begins in and all after it, and is told how long they are, so that rates
//! are right and the time is one bucket longer at most.

use alloc::boxed::Box;
use core::time::Duration;

use super::{CLASSES, Class};
use crate::{Criticality, Timestamp};

/// A change is seen within it.
pub(super) const STEP: Duration = Duration::from_secs(10);
const FINE: usize = 61;
const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 61;
const COARSE: Duration = Duration::from_secs(600);
const COARSES: usize = 145;
/// Over this a burst of what users wait for is smoothed: shorter ones are for queues and the load line, not for more machines.
const PEAK_STEPS: u64 = 6;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Which one, counted from the origin.
    number: u64,
    classes: [Class; CLASSES],
    /// The largest mean over a minute that ended in it: CPU-seconds a second of first attempts that users wait for.
    peak: f64,
}

impl Bucket {
    fn add(&mut self, other: &Self) {
        self.classes.iter_mut().zip(&other.classes).for_each(|(class, other)| class.add(other));
        self.peak = self.peak.max(other.peak);
    }
}

/// Buckets of one width; those of an earlier round are as good as empty.
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

    /// The bucket of this number, to be added to.
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

/// What happened in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// How long the time is that it was counted in.
    pub span: Duration,
    /// By criticality, in the order of [`Criticality::ALL`].
    pub classes: [Class; CLASSES],
    /// CPU-seconds a second of first attempts that users wait for, in the minute in which these were most.
    pub(super) peak: f64,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) struct History {
    begun: Timestamp,
    fine: Ring,
    minutes: Ring,
    coarse: Ring,
    /// The bucket that is being filled, in the fine ring.
    present: u64,
    /// All that went before it.
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

    /// Where requests of this criticality are counted now.
    pub(super) fn class(&mut self, now: Timestamp, criticality: Criticality) -> &mut Class {
        self.advance(now);
        &mut self.fine.bucket(self.present).classes[criticality.rank()]
    }

    /// All that was counted since the beginning.
    pub(super) fn total(&self) -> [Class; CLASSES] {
        let mut total = self.total;
        total
            .iter_mut()
            .zip(&self.fine.sum(self.present, self.present).classes)
            .for_each(|(class, last)| class.add(last));
        total
    }

    /// What happened from then on.
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
        // Two threads may hand their readings over in either order.
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

    /// Of first attempts that users wait for, over the minute that ends with the present bucket.
    fn minute_mean(&self) -> f64 {
        let minute = self.fine.sum((self.present + 1).saturating_sub(PEAK_STEPS), self.present);
        let cost: f64 = user_visible(&minute.classes).map(Class::first_cost).sum();
        cost / (STEP.as_secs_f64() * PEAK_STEPS as f64)
    }
}

/// The classes of requests that a user waits for.
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

    /// A request of ten milliseconds each second.
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
    fn rates_are_right_over_each_time_and_what_is_older_is_gone() {
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
    fn a_history_that_is_young_says_how_young() {
        let window = steady(7..27).since(s(27), s(0));
        assert_eq!((window.span, offered(&window)), (Duration::from_secs(20), 20));
    }

    #[test]
    fn the_peak_is_that_of_a_whole_minute_and_is_remembered_for_a_day() {
        let mut history = steady(0..40_000);
        for _ in 0..600 {
            history.class(s(40_000), Criticality::CriticalPlus).offered.count(0.1);
        }
        for at in 40_001..100_000 {
            history.class(s(at), Criticality::Sheddable).offered.count(5.0);
        }
        // 60 CPU-seconds at once are one a second over their minute, beside what was steady.
        for from in [39_000, 20_000] {
            let peak = history.since(s(100_000), s(from)).peak;
            assert!((peak - 1.01).abs() < 0.02, "{peak}");
        }
        assert!(history.since(s(100_000), s(60_000)).peak < 0.02, "batch is no peak of what users wait for");
    }

    #[test]
    fn memory_is_what_is_written_at_the_top() {
        let bytes = (FINE + MINUTES + COARSES) * size_of::<Bucket>();
        assert!(bytes <= 180 * 1024, "{bytes}");
    }

    /// Ten seconds more than a ring reaches back are in the next one.
    #[test]
    fn window_is_never_shorter_than_was_asked_for() {
        let mut history = steady(1_003..101_400);
        for back in [600, 601, 610, 3_600, 3_601, 3_660] {
            let window = history.since(s(101_400), s(101_400 - back));
            let span = window.span.as_secs();
            assert!(span >= back && offered(&window).abs_diff(span) <= 1, "{back}: {} in {span} s", offered(&window));
        }
    }

    #[test]
    fn window_of_more_than_a_day_is_one_of_a_day() {
        let mut history = steady(0..101_405);
        let window = history.since(s(101_405), s(0));
        let span = window.span.as_secs();
        assert!((86_400..87_000).contains(&span), "{span}");
        assert!(offered(&window).abs_diff(span) <= 1, "{} in {span} s", offered(&window));
    }

    #[test]
    fn each_window_has_the_requests_of_the_present_moment() {
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

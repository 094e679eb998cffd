//! How long a thread that turns requests away sleeps before it looks for the next.
//!
//! On a core that has more to do than it can, each request that comes by itself wakes the thread that is to turn it away, from the
//! midst of somebody's work: two switches of context, caches that are cold, a look at the sockets, all of which cost more than
//! the answer does. Network cards have the same trouble with packets, and interrupt coalescing as the remedy: what comes within
//! a short time is taken in together. Whoever waits for such a thread waits as much longer, in a server that is overloaded anyway.

use core::time::Duration;

use super::{Reason, Shed};
use crate::Timestamp;

/// The longest pause: little beside what a request waits on a server that is overloaded, and little to those who are turned away.
const LONGEST: Duration = Duration::from_millis(2);

/// As many requests as are to be taken in together. More would gain little more, and come as a burst.
const TOGETHER: f64 = 16.0;

/// Fewer within the longest pause, and it would cost as much as it spares.
const LEAST_TOGETHER: f64 = 1.0;

/// Over how long requests that are turned away are counted.
const WINDOW: Duration = Duration::from_millis(20);

/// Longer between two windows, and the rate of the one says nothing of the other.
const STALE: Duration = Duration::from_millis(100);

/// When a thread of an overloaded server pauses. Each thread has one.
#[derive(Clone, Debug, Default)]
pub struct Coalescing {
    /// When the window began, and what was turned away in it.
    begun: Timestamp,
    counted: u32,
    /// Of the window before, a second.
    rate: f64,
    /// When the first was turned away since a pause was last asked for.
    first: Option<Timestamp>,
}

impl Coalescing {
    /// The thread has turned a request away.
    pub fn turned_away(&mut self, now: Timestamp, shed: &Shed) {
        // Limits of customers and deadlines are kept on idle servers, too.
        if shed.reason == Reason::Overloaded {
            self.counted = self.counted.saturating_add(1);
            self.first.get_or_insert(now);
        }
    }

    /// Whether anything was turned away since [`pause`](Self::pause) was last asked; if not, there is none now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.first.is_some()
    }

    /// The thread has nothing to do: how long it is to sleep before it waits for something to do.
    pub fn pause(&mut self, now: Timestamp) -> Duration {
        let window = now.since(self.begun);
        if window >= WINDOW {
            self.rate = if window < STALE { f64::from(self.counted) / window.as_secs_f64() } else { 0.0 };
            self.begun = now;
            self.counted = 0;
        }
        let Some(first) = self.first.take() else { return Duration::ZERO };
        if self.rate * LONGEST.as_secs_f64() < LEAST_TOGETHER {
            return Duration::ZERO;
        }
        // While it was at work, others have come already.
        LONGEST.min(Duration::from_secs_f64(TOGETHER / self.rate)).saturating_sub(now.since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retry;
    use super::*;

    const OVERLOADED: Shed = Shed { reason: Reason::Overloaded, retry: Retry::Elsewhere };

    /// A thread that turns `rate` requests a second away for the same reason, and sleeps as it is told; from `start` for 200 ms.
    /// The last pause, and the greatest number that came together.
    fn last_pause(coalescing: &mut Coalescing, start: u64, rate: u64, shed: &Shed) -> (Duration, u64) {
        let (mut pause, mut most) = (Duration::ZERO, 0);
        let mut now = Timestamp::from_nanos(start);
        let mut arrived = 0;
        while now.as_nanos() < start + 200_000_000 {
            let due = (now.as_nanos() - start) * rate / 1_000_000_000;
            most = if now.as_nanos() > start + 150_000_000 { most.max(due - arrived) } else { 0 };
            for _ in arrived..due {
                coalescing.turned_away(now, shed);
            }
            arrived = due;
            pause = coalescing.pause(now);
            // Awake for so long with what came together.
            now = now + pause.max(Duration::from_nanos(1_000_000_000 / rate)) + Duration::from_micros(1);
        }
        (pause, most)
    }

    #[test]
    fn what_comes_within_a_pause_is_turned_away_together() {
        let at = |rate| last_pause(&mut Coalescing::default(), 0, rate, &OVERLOADED);
        let (pause, most) = at(4_000);
        assert_eq!((pause, most), (LONGEST, 8));
        let (pause, most) = at(40_000);
        assert!(pause.as_micros().abs_diff(400) < 20 && (15..=18).contains(&most), "{pause:?} {most}");
    }

    #[test]
    fn a_thread_that_turns_few_away_does_not_pause() {
        assert_eq!(last_pause(&mut Coalescing::default(), 0, 450, &OVERLOADED).0, Duration::ZERO);
    }

    #[test]
    fn limits_of_customers_and_deadlines_are_no_sign_of_too_little_cpu() {
        for reason in [Reason::Quota, Reason::Deadline] {
            let shed = Shed { reason, retry: Retry::Never };
            assert_eq!(last_pause(&mut Coalescing::default(), 0, 40_000, &shed).0, Duration::ZERO, "{reason:?}");
        }
    }

    #[test]
    fn the_time_for_which_a_thread_was_at_work_is_not_slept_again() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 4_000, &OVERLOADED);
        let mut pause_after = |work: u64| {
            let at = 202_000_000;
            coalescing.turned_away(Timestamp::from_nanos(at), &OVERLOADED);
            coalescing.turned_away(Timestamp::from_nanos(at + work), &OVERLOADED);
            coalescing.pause(Timestamp::from_nanos(at + work))
        };
        assert_eq!(pause_after(300_000), Duration::from_micros(1_700));
        assert_eq!(pause_after(5_000_000), Duration::ZERO);
    }

    #[test]
    fn there_is_no_pause_after_a_turn_in_which_all_were_taken_on() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 40_000, &OVERLOADED);
        assert!(!coalescing.is_due());
        assert_eq!(coalescing.pause(Timestamp::from_nanos(200_100_000)), Duration::ZERO);
        coalescing.turned_away(Timestamp::from_nanos(200_200_000), &OVERLOADED);
        assert!(coalescing.is_due() && coalescing.pause(Timestamp::from_nanos(200_200_000)) > Duration::ZERO);
    }

    #[test]
    fn a_flood_of_long_ago_is_forgotten() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 40_000, &OVERLOADED);
        coalescing.turned_away(Timestamp::from_nanos(10_000_000_000), &OVERLOADED);
        assert_eq!(coalescing.pause(Timestamp::from_nanos(10_000_000_000)), Duration::ZERO);
    }

    #[test]
    fn pause_needs_one_request_in_two_milliseconds() {
        let pause = |requests, window| {
            let mut coalescing = Coalescing::default();
            let now = Timestamp::ZERO + window;
            (0..requests).for_each(|_| coalescing.turned_away(now, &OVERLOADED));
            coalescing.pause(now)
        };
        assert_eq!(pause(10, WINDOW), LONGEST);
        assert_eq!(pause(9, WINDOW), Duration::ZERO);
        assert_eq!(pause(99, STALE - Duration::from_micros(1)), LONGEST);
        assert_eq!(pause(99, STALE), Duration::ZERO, "the window is too old");
    }
}

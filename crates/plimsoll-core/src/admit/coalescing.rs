//! Pauses of a thread that sheds requests, so that it sheds several at a time.
//!
//! On an overloaded core, each arriving request wakes the thread that sheds it, in the middle of
//! other work. Two context switches, cold caches and a poll of the sockets cost more than the
//! response. Network cards have the same problem with packets, and solve it by interrupt
//! coalescing: packets that arrive within a short time are handled together. The price is latency.
//! Every request that waits for such a thread waits that much longer, on a server that is
//! overloaded anyway.

use core::time::Duration;

use super::Shed;
use crate::Timestamp;

/// The longest pause: short beside the wait of a request on an overloaded server, and short for the
/// callers of shed requests.
const MAX_PAUSE: Duration = Duration::from_millis(2);

/// Requests to handle together. More would gain little, and arrive as a burst.
const TOGETHER: f64 = 16.0;

/// With fewer requests in the longest pause, a pause costs as much as it saves.
const MIN_TOGETHER: f64 = 1.0;

/// The time over which shed requests are counted.
const WINDOW: Duration = Duration::from_millis(20);

/// A window that is longer than this says nothing of the present rate.
const STALE: Duration = Duration::from_millis(100);

/// Decides when a thread of an overloaded server pauses. Each thread has its own.
#[derive(Clone, Debug, Default)]
pub struct Coalescing {
    /// The beginning of the window, and the requests shed in it.
    begun: Timestamp,
    counted: u32,
    /// Requests shed per second in the last complete window.
    rate: f64,
    /// The time of the first shed request since the last pause.
    first: Option<Timestamp>,
}

impl Coalescing {
    /// Counts a request that the thread has shed.
    pub fn on_shed(&mut self, now: Timestamp, shed: &Shed) {
        // Quotas and deadlines shed requests on idle servers, too.
        if shed.reason.is_shortage() {
            self.counted = self.counted.saturating_add(1);
            self.first.get_or_insert(now);
        }
    }

    /// Whether a request was shed since the last [`pause`](Self::pause). Without one there is no
    /// pause.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.first.is_some()
    }

    /// The pause of a thread that has nothing to do, before it waits for events.
    pub fn pause(&mut self, now: Timestamp) -> Duration {
        let window = now.since(self.begun);
        if window >= WINDOW {
            self.rate = if window < STALE { f64::from(self.counted) / window.as_secs_f64() } else { 0.0 };
            self.begun = now;
            self.counted = 0;
        }
        let Some(first) = self.first.take() else { return Duration::ZERO };
        if self.rate * MAX_PAUSE.as_secs_f64() < MIN_TOGETHER {
            return Duration::ZERO;
        }
        // Others have already arrived while the thread worked.
        MAX_PAUSE.min(Duration::from_secs_f64(TOGETHER / self.rate)).saturating_sub(now.since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rejection;

    const OVERLOADED: Shed = Shed::OVERLOADED;

    /// Runs a thread that sheds `rate` requests a second and sleeps as told, from `start` for 200
    /// ms. Returns the last pause, and the largest number of requests that arrived together.
    fn last_pause(coalescing: &mut Coalescing, start: u64, rate: u64, shed: &Shed) -> (Duration, u64) {
        let (mut pause, mut most) = (Duration::ZERO, 0);
        let mut now = Timestamp::from_nanos(start);
        let mut arrived = 0;
        while now.as_nanos() < start + 200_000_000 {
            let due = (now.as_nanos() - start) * rate / 1_000_000_000;
            most = if now.as_nanos() > start + 150_000_000 { most.max(due - arrived) } else { 0 };
            for _ in arrived..due {
                coalescing.on_shed(now, shed);
            }
            arrived = due;
            pause = coalescing.pause(now);
            // The thread is awake for one gap between requests, to handle the arrived ones.
            now = now + pause.max(Duration::from_nanos(1_000_000_000 / rate)) + Duration::from_micros(1);
        }
        (pause, most)
    }

    #[test]
    fn requests_that_arrive_in_a_pause_are_shed_together() {
        let at = |rate| last_pause(&mut Coalescing::default(), 0, rate, &OVERLOADED);
        let (pause, most) = at(4_000);
        assert_eq!((pause, most), (MAX_PAUSE, 8));
        let (pause, most) = at(40_000);
        assert!(pause.as_micros().abs_diff(400) < 20 && (15..=18).contains(&most), "{pause:?} {most}");
    }

    #[test]
    fn thread_does_not_pause_when_it_sheds_few_requests() {
        assert_eq!(last_pause(&mut Coalescing::default(), 0, 450, &OVERLOADED).0, Duration::ZERO);
    }

    #[test]
    fn quota_and_deadline_sheds_cause_no_pause() {
        for reason in [Rejection::Quota, Rejection::Deadline] {
            let shed = Shed { reason, after: None };
            assert_eq!(last_pause(&mut Coalescing::default(), 0, 40_000, &shed).0, Duration::ZERO, "{reason:?}");
        }
    }

    #[test]
    fn pause_is_shortened_by_the_time_at_work() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 4_000, &OVERLOADED);
        let mut pause_after = |work: u64| {
            let at = 202_000_000;
            coalescing.on_shed(Timestamp::from_nanos(at), &OVERLOADED);
            coalescing.on_shed(Timestamp::from_nanos(at + work), &OVERLOADED);
            coalescing.pause(Timestamp::from_nanos(at + work))
        };
        assert_eq!(pause_after(300_000), Duration::from_micros(1_700));
        assert_eq!(pause_after(5_000_000), Duration::ZERO);
    }

    #[test]
    fn thread_does_not_pause_when_all_requests_are_admitted() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 40_000, &OVERLOADED);
        assert!(!coalescing.is_due());
        assert_eq!(coalescing.pause(Timestamp::from_nanos(200_100_000)), Duration::ZERO);
        coalescing.on_shed(Timestamp::from_nanos(200_200_000), &OVERLOADED);
        assert!(coalescing.is_due() && coalescing.pause(Timestamp::from_nanos(200_200_000)) > Duration::ZERO);
    }

    #[test]
    fn old_flood_is_forgotten() {
        let mut coalescing = Coalescing::default();
        last_pause(&mut coalescing, 0, 40_000, &OVERLOADED);
        coalescing.on_shed(Timestamp::from_nanos(10_000_000_000), &OVERLOADED);
        assert_eq!(coalescing.pause(Timestamp::from_nanos(10_000_000_000)), Duration::ZERO);
    }

    #[test]
    fn pause_needs_one_request_in_two_milliseconds() {
        let pause = |requests, window| {
            let mut coalescing = Coalescing::default();
            let now = Timestamp::ZERO + window;
            (0..requests).for_each(|_| coalescing.on_shed(now, &OVERLOADED));
            coalescing.pause(now)
        };
        assert_eq!(pause(10, WINDOW), MAX_PAUSE);
        assert_eq!(pause(9, WINDOW), Duration::ZERO);
        assert_eq!(pause(99, STALE - Duration::from_micros(1)), MAX_PAUSE);
        assert_eq!(pause(99, STALE), Duration::ZERO, "the window is too old");
    }
}

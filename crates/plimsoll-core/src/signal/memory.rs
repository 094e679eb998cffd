//! The load of memory: whether it will be exhausted before fewer requests can help.
//!
//! ```text
//! s    = used ÷ limit,   then = s + AHEAD · ds/dt
//! load = then               if s > line and then > 1
//!        min(s, line)       else
//! ```
//!
//! with ds/dt smoothed over a second or two. Above 1 the load is too high: memory is nearly full,
//! and at the present rate it is exhausted within AHEAD. The aim is that the process is not killed,
//! and the means is to have fewer requests in progress. That helps if requests are the cause, and
//! then memory grows.
//!
//! Why not the share alone, with a line that it must not cross: a cache, or a heap made as large as
//! the limit allows, is always at 95%. A server that shed requests for that would do so for ever,
//! and gain nothing. Why not the rate alone: a server that has just started rightly fills its
//! memory as fast as it can.
//!
//! # Failure modes
//!
//! A burst that takes the last tenth within a sample or two is seen too late. A leak looks like
//! requests shortly before its end.

use core::time::Duration;

use crate::{Ratio, Timestamp, decay};

/// In seconds. It is longer than nearly all requests, so that fewer are left by then. A leak over
/// hours is not caused by requests.
const AHEAD: f64 = 10.0;
/// Half-life of the growth: some samples, so that one large allocation is not taken for a trend.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Memory in use and its limit, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory in use that would not be given back on demand.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

impl Memory {
    /// The used part; more than 1 if a limit was lowered below the use.
    #[must_use]
    pub fn share(self) -> f64 {
        self.used as f64 / self.limit.max(1) as f64
    }
}

/// The load of memory, from its growth.
#[derive(Clone, Debug)]
pub(super) struct MemoryLoad {
    line: Ratio,
    /// The time and the used part at the last sample; `None` before the first.
    last: Option<(Timestamp, f64)>,
    /// Growth of the used part, per second.
    growth: f64,
}

impl MemoryLoad {
    /// Starts with a line: growth counts above this used part.
    pub(super) const fn new(line: Ratio) -> Self {
        Self { line, last: None, growth: 0.0 }
    }

    /// The load after a sample: 1 is the most that the server can bear.
    pub(super) fn sample(&mut self, now: Timestamp, memory: Memory) -> f64 {
        let share = memory.share();
        if let Some((at, before)) = self.last {
            let gone = now.nanos_since(at) as f64 * 1e-9;
            if gone > 0.0 {
                let left = decay::remaining(now, at, HALF_LIFE);
                self.growth = self.growth * left + (share - before) / gone * (1.0 - left);
                self.last = Some((now, share));
            }
        } else {
            self.last = Some((now, share));
        }
        let (line, then) = (self.line.as_f64(), share + AHEAD * self.growth);
        if share > line && then > 1.0 { then } else { share.min(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000_000;

    /// The loads of a process with these used parts of memory, sampled every quarter of a second.
    fn loads(shares: impl IntoIterator<Item = f64>) -> alloc::vec::Vec<f64> {
        let mut load = MemoryLoad::new(Ratio::from_percent(90));
        let at = |look: usize| Timestamp::from_nanos(look as u64 * 250_000_000);
        let memory = |share: f64| Memory { used: (share * LIMIT as f64) as u64, limit: LIMIT };
        shares.into_iter().enumerate().map(|(look, share)| load.sample(at(look), memory(share))).collect()
    }

    #[test]
    fn heap_that_is_always_nearly_full_is_no_load() {
        for share in [0.5, 0.91, 0.97, 1.0] {
            let found = loads([share; 100]);
            assert!(found.iter().all(|load| (load - share.min(0.9)).abs() < 1e-6), "{share}: {found:?}");
        }
    }

    #[test]
    fn growing_memory_is_overload_only_when_little_is_left() {
        // From none to all of it in 25 s.
        let found = loads((0..=100).map(|look| f64::from(look) / 100.0));
        assert!(found[..90].iter().all(|load| *load <= 0.9), "{found:?}");
        assert!(found[91..].iter().all(|load| *load > 1.2), "{found:?}");
    }

    #[test]
    fn leak_over_hours_is_no_load() {
        let found = loads((0..1_000).map(|look| 0.95 + f64::from(look) * 1e-5));
        assert!(found.iter().all(|load| *load < 1.0), "{found:?}");
    }

    #[test]
    fn load_falls_when_memory_stops_growing() {
        let grows = (0..20).map(|look| 0.8 + f64::from(look) * 0.01);
        let found = loads(grows.chain([0.99; 40]));
        assert!(found[19] > 1.2, "{found:?}");
        let again = found[19..].iter().position(|load| *load < 1.0).expect("some time");
        assert!((4..40).contains(&again), "after {again} looks");
    }

    #[test]
    fn limit_of_0_is_full() {
        assert!(Memory { used: 1, limit: 0 }.share() >= 1.0);
        assert_eq!(loads([0.2]), [0.2], "one look says nothing of a growth");
    }

    #[test]
    fn load_is_the_share_expected_ten_seconds_ahead() {
        let mut load = MemoryLoad::new(Ratio::from_percent(90));
        let memory = |used| Memory { used, limit: LIMIT };
        let second = Timestamp::from_nanos(1_000_000_000);
        assert_eq!(load.sample(Timestamp::ZERO, memory(920_000)), 0.9);
        // It grows by 4% in a second; after a half-life of one second, half of that counts.
        for _ in 0..2 {
            let found = load.sample(second, memory(960_000));
            assert!((found - 1.16).abs() < 1e-3, "{found}, also when sampled twice at one time");
        }
    }
}

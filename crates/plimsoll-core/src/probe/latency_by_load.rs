//! A backend's answer to a probe: the expected latency of one more request.
//!
//! Recent latency depends on the load at the time: a median over everything would call a backend
//! slow that has just become empty. So each latency is noted with the number of requests that were
//! in flight when its request arrived. The answer is the median of the recent ones that found as
//! many as are in flight now, or the nearest known number (NSDI 2024, Prequal). It is the median,
//! because one request of a heavy tail says nothing of the next.
//!
//! Levels are exact up to 32 in flight and eight to each doubling above, since one more matters
//! less among more.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::Timestamp;

/// Latencies kept for a level: a median of sixteen is within a quarter of the true one nine times
/// in ten.
const SAMPLES: usize = 16;
/// Age from which a latency is no longer recent.
const RECENT: Duration = Duration::from_secs(5);
/// Number in flight up to which each number has its own level.
const EXACT: u32 = 32;
/// Levels to each doubling above.
const PER_DOUBLING: u32 = 8;
/// Doublings above: everything beyond 32 · 2^8 in flight counts as that.
const DOUBLINGS: u32 = 8;
const LEVELS: usize = (EXACT + PER_DOUBLING * DOUBLINGS) as usize;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    seconds: f32,
}

#[derive(Clone, Debug, Default)]
struct Level {
    samples: Vec<Sample>,
    next: usize,
}

/// Recent latencies of one backend, by the requests in flight at arrival.
#[derive(Clone, Debug)]
pub struct LatencyByLoad {
    levels: Vec<Level>,
}

impl Default for LatencyByLoad {
    fn default() -> Self {
        Self { levels: vec![Level::default(); LEVELS] }
    }
}

impl LatencyByLoad {
    /// A request was answered `latency` after it arrived; `found` others were in flight then.
    pub fn on_answer(&mut self, now: Timestamp, found: u32, latency: Duration) {
        let level = &mut self.levels[level(found)];
        let sample = Sample { at: now, seconds: latency.as_secs_f32() };
        if level.samples.len() < SAMPLES {
            level.samples.push(sample);
        } else {
            level.samples[level.next] = sample;
            level.next = (level.next + 1) % SAMPLES;
        }
    }

    /// The latency to expect for a request that finds `in_flight` others; `None` without recent
    /// latencies.
    #[must_use]
    pub fn estimate(&self, now: Timestamp, in_flight: u32) -> Option<Duration> {
        let wanted = level(in_flight);
        (0..LEVELS).find_map(|distance| {
            let fewer = wanted.checked_sub(distance).and_then(|at| self.levels[at].median(now));
            // Of two equally near levels, the more loaded one: a promise too low is the safer
            // error.
            self.levels.get(wanted + distance).and_then(|level| level.median(now)).or(fewer)
        })
    }
}

impl Level {
    fn median(&self, now: Timestamp) -> Option<Duration> {
        let mut recent = [0.0_f32; SAMPLES];
        let mut len = 0;
        for sample in self.samples.iter().filter(|sample| now.since(sample.at) < RECENT) {
            recent[len] = sample.seconds;
            len += 1;
        }
        let recent = &mut recent[..len];
        recent.sort_unstable_by(f32::total_cmp);
        recent.get(len / 2).map(|seconds| Duration::from_secs_f32(*seconds))
    }
}

fn level(in_flight: u32) -> usize {
    if in_flight < EXACT {
        return in_flight as usize;
    }
    let doubling = in_flight.ilog2() - EXACT.ilog2();
    let within = (in_flight >> (doubling + EXACT.ilog2() - PER_DOUBLING.ilog2())) - PER_DOUBLING;
    ((EXACT + doubling * PER_DOUBLING + within) as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn near(got: Option<Duration>, want_ms: f64) {
        let got = got.expect("known").as_secs_f64() * 1e3;
        assert!((got - want_ms).abs() < 0.01, "{got} ms for {want_ms} ms");
    }

    #[test]
    fn levels_rise_by_ones_then_by_eighths() {
        let mut last = 0;
        for in_flight in 1..20_000 {
            let next = level(in_flight);
            assert!(next == last || next == last + 1, "{in_flight}: {next} after {last}");
            last = next;
        }
        assert_eq!((level(31), level(32), level(36), level(64)), (31, 32, 33, 40));
        assert_eq!(level(u32::MAX), LEVELS - 1);
    }

    #[test]
    fn estimate_uses_the_nearest_known_level() {
        let mut latency = LatencyByLoad::default();
        assert_eq!(latency.estimate(ms(0), 0), None);
        for (found, each) in [(0, 10), (5, 50), (9, 90)] {
            for jitter in [0, 1, 1000] {
                latency.on_answer(ms(0), found, Duration::from_millis(each + jitter));
            }
        }
        near(latency.estimate(ms(1), 0), 11.0);
        near(latency.estimate(ms(1), 5), 51.0);
        near(latency.estimate(ms(1), 6), 51.0);
        near(latency.estimate(ms(1), 7), 91.0);
        near(latency.estimate(ms(1), 4_000_000), 91.0);
    }

    #[test]
    fn only_the_last_ones_within_five_seconds_count() {
        let mut latency = LatencyByLoad::default();
        for i in 0..100 {
            latency.on_answer(ms(i), 3, Duration::from_millis(if i < 84 { 500 } else { 20 }));
        }
        near(latency.estimate(ms(100), 3), 20.0);
        assert!(latency.estimate(ms(5_098), 3).is_some());
        assert_eq!(latency.estimate(ms(5_099), 3), None);
    }
}

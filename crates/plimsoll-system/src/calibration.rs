//! Measures the speed of this machine: a fixed amount of work, by the CPU time that it takes.
//!
//! The work is integer arithmetic and memory, as in a server that parses and looks up: a chain of
//! steps, each a xorshift, a read and a write at a random place of a table, and a multiplication.
//! Each step needs the result of the one before, so no compiler can vectorize or skip them.
//!
//! ```text
//! speed = reference time ÷ shortest time of a run,   a run = 260,000 steps
//! ```
//!
//! The clock is that of the thread's CPU, so time in which others run does not count. The shortest of
//! [`RUNS`] runs counts: interruptions, a cold cache and a clock that is still slow only ever add
//! time. Why not one long run: every interruption of it would count. Why not a standard benchmark:
//! the good ones take minutes, and a start must not.
//!
//! Why a table of 4 KiB: it stays in the first-level cache. Beside three processes that copy memory,
//! a table of 256 KiB made the median result 23% too slow, and one of 4 KiB 0.3%, with runs of 1 ms.
//!
//! # Where it is weak
//!
//! - One kernel is one mix of work, and it never waits for memory behind the first-level cache. A
//!   service that does, or that computes with vectors, gains otherwise from a fast core. Measure its cost per request on both types, and configure the ratio.
//! - It is the speed of one core with the load at the start. A core that shares its units with a
//!   busy sibling (SMT) is slower, and one that turns slower later is not measured again.
//! - A debug build has a reference time of its own, since its code is slower. It is rough.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_core::Speed;
use rustix::time::{ClockId, clock_gettime};

/// Entries of the table, of four bytes each.
const TABLE: usize = 1 << 10;
/// Steps of a run.
const STEPS: u32 = 260_000;
/// Runs: about 50 ms on the reference core.
const RUNS: usize = 50;
/// Runs that are made on any machine, and the CPU time after which no other begins: a machine with a
/// tenth of the speed starts no later than 0.2 s.
const MIN_RUNS: usize = 3;
const MAX_TIME: Duration = Duration::from_millis(100);

/// The time of a run on the reference core: one virtual CPU of an AMD EPYC of the fourth generation
/// (family 25, model 17, 2.6 GHz nominal), release build.
const REFERENCE: Duration = Duration::from_nanos(if cfg!(debug_assertions) { 2_900_000 } else { 985_000 });

/// A measurement of the speed of this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The result.
    pub speed: Speed,
    /// Number of runs.
    pub runs: usize,
    /// CPU time of the fastest run. The speed is by this one.
    pub fastest: Duration,
    /// CPU time of the median run. Far above the fastest, the machine was disturbed.
    pub median: Duration,
}

impl Calibration {
    /// The measurement of this process: made by the first call, which takes some 50 ms of CPU time,
    /// and kept.
    #[must_use]
    pub fn of_this_process() -> Self {
        static KEPT: OnceLock<Calibration> = OnceLock::new();
        *KEPT.get_or_init(Self::measure)
    }

    /// A new measurement, of some 50 ms of CPU time.
    #[must_use]
    pub fn measure() -> Self {
        let mut table = vec![0_u32; TABLE];
        let mut times = Vec::with_capacity(RUNS);
        let mut total = Duration::ZERO;
        while times.len() < RUNS && (times.len() < MIN_RUNS || total < MAX_TIME) {
            let time = run(&mut table);
            total += time;
            times.push(time);
        }
        Self::of(&mut times)
    }

    /// The result of runs that took these times; at least one.
    fn of(times: &mut [Duration]) -> Self {
        times.sort_unstable();
        let (fastest, median) = (times[0], times[times.len() / 2]);
        // A clock that did not advance would make the machine infinitely fast.
        let ratio = REFERENCE.as_secs_f64() / fastest.as_secs_f64().max(1e-9);
        let (least, most) = (*Speed::RANGE.start(), *Speed::RANGE.end());
        let speed = Speed::new(ratio.clamp(least, most)).expect("clamped to the range of speeds");
        Self { speed, runs: times.len(), fastest, median }
    }
}

/// The CPU time of one run.
fn run(table: &mut [u32]) -> Duration {
    for (entry, number) in table.iter_mut().zip(0..) {
        *entry = number;
    }
    let begun = thread_cpu();
    black_box(work(black_box(table)));
    thread_cpu().saturating_sub(begun)
}

/// The work. Its result depends on every step.
fn work(table: &mut [u32]) -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..STEPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let entry = &mut table[(x >> 40) as usize % TABLE];
        let read = u64::from(*entry);
        *entry = (x >> 16) as u32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(read);
    }
    x
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn work_is_the_same_in_every_build_and_on_every_machine() {
        let mut table: Vec<u32> = (0..).take(TABLE).collect();
        assert_eq!(work(&mut table), 5_732_416_603_890_152_420);
    }

    #[test]
    fn fastest_run_decides_on_the_speed() {
        let half = 2 * REFERENCE;
        let calibration = Calibration::of(&mut [half + ms(9), half, half + ms(5)]);
        let expected = Calibration { speed: Speed::new(0.5).unwrap(), runs: 3, fastest: half, median: half + ms(5) };
        assert_eq!(calibration, expected);
    }

    #[test]
    fn impossible_times_have_a_speed_within_the_range() {
        for (time, speed) in [(Duration::ZERO, 100.0), (Duration::from_secs(3_600), 0.01)] {
            assert_eq!(Calibration::of(&mut [time]).speed.as_f64(), speed);
        }
    }

    #[test]
    fn this_machine_has_a_plausible_speed_that_is_measured_once() {
        let calibration = Calibration::of_this_process();
        assert!((0.02..=20.0).contains(&calibration.speed.as_f64()), "{calibration:?}");
        assert!((MIN_RUNS..=RUNS).contains(&calibration.runs) && calibration.fastest <= calibration.median);
        assert_eq!(Calibration::of_this_process(), calibration);
    }
}

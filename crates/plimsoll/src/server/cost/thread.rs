//! How much CPU a section of code used, for little more than two looks at a clock that is cheap.
//!
//! The CPU clock of a thread is exact and costs a system call, some 400 ns; the counter of a core's cycles costs 10 ns, and counts the time as well
//! during which the thread was not running. So sections are timed by the cheap clock, and as they are mostly far shorter than what a
//! kernel takes a thread off its CPU for, that is what they used. Whatever a thread was off its CPU for shows in the next look at
//! the exact clock:
//!
//! - A section that ends [`EXACT_EVERY`] or more after the last look is charged with what the exact clock says has been used since,
//!   less what was charged since, if that is less than its wall time.
//! - Interruptions that are over before the next look are charged, and taken off what is charged next.
//! - One that begins so long after the last look begins with one. So the time before a section, idle or not, is at most that long,
//!   and the error is at most what the thread used between sections in that time, in the few sections that were interrupted.

use quanta::Clock;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds. Two looks in this time are less than a fifth of a per cent of it.
const EXACT_EVERY: u64 = 500_000;

/// The clocks of one thread. Sections are given by ticks of the cheap one ([`ThreadClock::ticks`]), all else is nanoseconds.
#[derive(Debug)]
pub(super) struct ThreadClock {
    cheap: Clock,
    /// The last look at the exact clock: when it was, in ticks, and what it said.
    looked: u64,
    cpu: u64,
    /// Charged since.
    charged: u64,
    /// Charged too much before, because interruptions were too short to be seen: the next sections are charged less.
    owed: u64,
}

impl ThreadClock {
    pub(super) fn new() -> Self {
        let cheap = Clock::new();
        Self { looked: cheap.raw(), cheap, cpu: thread_cpu(), charged: 0, owed: 0 }
    }

    /// The cheap clock. Only nanoseconds between two readings mean something ([`ThreadClock::since`]).
    pub(super) fn ticks(&self) -> u64 {
        self.cheap.raw()
    }

    /// A section begins.
    pub(super) fn begin(&mut self, now: u64) {
        if self.since(self.looked, now) >= EXACT_EVERY {
            let used = self.look(now);
            self.owed += self.charged.saturating_sub(used);
            self.charged = 0;
        }
    }

    /// A section that began at `begun` ends. Returns what it used.
    pub(super) fn end(&mut self, begun: u64, now: u64) -> u64 {
        let wall = self.since(begun, now);
        if self.since(self.looked, now) < EXACT_EVERY {
            let paid = self.owed.min(wall);
            self.owed -= paid;
            self.charged += wall - paid;
            return wall - paid;
        }
        let used = self.look(now);
        let charged = std::mem::take(&mut self.charged);
        self.owed += charged.saturating_sub(used);
        let section = used.saturating_sub(charged).min(wall);
        let paid = self.owed.min(section);
        self.owed -= paid;
        section - paid
    }

    fn since(&self, begun: u64, now: u64) -> u64 {
        self.cheap.delta_as_nanos(begun, now)
    }

    /// Looks at the exact clock. Returns what was used since the last look.
    fn look(&mut self, now: u64) -> u64 {
        let cpu = thread_cpu();
        self.looked = now;
        cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu))
    }
}

/// CPU time that the calling thread has used since its start.
fn thread_cpu() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn burn(micros: u64) {
        let end = thread_cpu() + 1_000 * micros;
        while thread_cpu() < end {}
    }

    #[test]
    fn a_section_that_waits_is_charged_with_what_it_used() {
        let mut clock = ThreadClock::new();
        let cpu = thread_cpu();
        let mut charged = 0;
        for _ in 0..20 {
            let begun = clock.ticks();
            clock.begin(begun);
            burn(1_000);
            // Off the CPU for a while, as if something else had it.
            std::thread::park_timeout(Duration::from_millis(2));
            charged += clock.end(begun, clock.ticks());
        }
        let used = thread_cpu() - cpu;
        let share = charged as f64 / used as f64;
        assert!((0.97..=1.001).contains(&share), "{charged} of {used} ns");
    }

    #[test]
    fn many_short_sections_add_up() {
        let mut clock = ThreadClock::new();
        let (cpu, begun) = (thread_cpu(), Instant::now());
        let mut charged = 0;
        while begun.elapsed() < Duration::from_millis(50) {
            let begun = clock.ticks();
            clock.begin(begun);
            burn(20);
            charged += clock.end(begun, clock.ticks());
        }
        let used = thread_cpu() - cpu;
        // Whoever shares the core may have had it since the last look.
        let (least, most) = (used / 10 * 9, used + EXACT_EVERY);
        assert!((least..=most).contains(&(charged - clock.owed)), "{charged} less {} of {used} ns", clock.owed);
    }
}

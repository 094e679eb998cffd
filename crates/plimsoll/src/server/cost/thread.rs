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

use std::time::Duration;

use quanta::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Two looks in this time are less than a fifth of a per cent of it.
const EXACT_EVERY: Duration = Duration::from_micros(500);

/// The clocks of one thread.
#[derive(Debug)]
pub(super) struct ThreadClock {
    /// The last look at the exact clock: when it was, and what it said.
    looked: Instant,
    cpu: Duration,
    /// Charged since.
    charged: Duration,
    /// Charged too much before, because interruptions were too short to be seen: the next sections are charged less.
    owed: Duration,
}

impl ThreadClock {
    pub(super) fn new() -> Self {
        Self { looked: Instant::now(), cpu: thread_cpu(), charged: Duration::ZERO, owed: Duration::ZERO }
    }

    /// A section begins.
    pub(super) fn begin(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked) >= EXACT_EVERY {
            let used = self.look(now);
            self.owed += self.charged.saturating_sub(used);
            self.charged = Duration::ZERO;
        }
    }

    /// A section that began at `begun` ends. Returns what it used.
    pub(super) fn end(&mut self, begun: Instant, now: Instant) -> Duration {
        let wall = now.saturating_duration_since(begun);
        if now.saturating_duration_since(self.looked) < EXACT_EVERY {
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

    /// Looks at the exact clock. Returns what was used since the last look.
    fn look(&mut self, now: Instant) -> Duration {
        let cpu = thread_cpu();
        self.looked = now;
        cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu))
    }
}

/// CPU time that the calling thread has used since its start.
fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(cost: Duration) {
        let end = thread_cpu() + cost;
        while thread_cpu() < end {}
    }

    #[test]
    fn a_section_that_waits_is_charged_with_what_it_used() {
        let mut clock = ThreadClock::new();
        let cpu = thread_cpu();
        let mut charged = Duration::ZERO;
        for _ in 0..20 {
            let begun = Instant::now();
            clock.begin(begun);
            burn(Duration::from_millis(1));
            // Off the CPU for a while, as if something else had it.
            std::thread::park_timeout(Duration::from_millis(2));
            charged += clock.end(begun, Instant::now());
        }
        let used = thread_cpu() - cpu;
        let share = charged.as_secs_f64() / used.as_secs_f64();
        assert!((0.97..=1.001).contains(&share), "{charged:?} of {used:?}");
    }

    #[test]
    fn many_short_sections_add_up() {
        let mut clock = ThreadClock::new();
        let (cpu, begun) = (thread_cpu(), Instant::now());
        let mut charged = Duration::ZERO;
        while begun.elapsed() < Duration::from_millis(50) {
            let begun = Instant::now();
            clock.begin(begun);
            burn(Duration::from_micros(20));
            charged += clock.end(begun, Instant::now());
        }
        let used = thread_cpu() - cpu;
        let share = (charged - clock.owed).as_secs_f64() / used.as_secs_f64();
        assert!((0.9..=1.01).contains(&share), "{charged:?} of {used:?}");
    }
}

//! Measures the CPU that a section of code used, for little more than two reads of a cheap clock.
//!
//! The CPU clock of a thread is exact, but costs a system call of some 400 ns. The cycle counter of
//! a core costs 10 ns, but also counts the time in which the thread was not running. So sections
//! are timed by the cheap clock. Most sections are far shorter than the kernel's interruptions are
//! apart, so their wall time is their CPU time. Any time that a thread was off its CPU shows at the
//! next read of the exact clock:
//!
//! - A section that ends [`EXACT_EVERY`] or more after the last exact read is charged with the
//!   exact use since that read, less the charges since, if that is less than its wall time.
//! - Interruptions that are over before the next exact read are charged, and deducted from the next
//!   charges.
//! - A section that begins [`EXACT_EVERY`] or more after the last exact read begins with one. So
//!   the time before a section, idle or not, is at most that long. The error is at most the
//!   thread's use between sections in that time, in the few sections that were interrupted.

use quanta::Clock;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds. Two looks in this time are less than a fifth of a per cent of it.
const EXACT_EVERY: u64 = 500_000;

/// Calibrates the cheap clock, once in a process: it takes up to 200 ms of CPU, in which no request should wait
/// and with which none should be charged.
pub(in crate::server) fn calibrate() {
    let _ = Clock::new();
}

/// The clocks of one thread. Sections are given by ticks of the cheap one ([`ThreadClock::ticks`]),
/// all else is nanoseconds.
#[derive(Debug)]
pub(super) struct ThreadClock {
    cheap: Clock,
    /// When the exact clock was last read, in ticks.
    looked: u64,
    account: Account,
}

impl ThreadClock {
    pub(super) fn new() -> Self {
        let cheap = Clock::new();
        Self { looked: cheap.raw(), cheap, account: Account::new(thread_cpu()) }
    }

    /// The cheap clock. Only nanoseconds between two readings mean something
    /// ([`ThreadClock::since`]).
    pub(super) fn ticks(&self) -> u64 {
        self.cheap.raw()
    }

    /// A section begins.
    pub(super) fn begin(&mut self, now: u64) {
        if self.since(self.looked, now) >= EXACT_EVERY {
            self.looked = now;
            self.account.settle(thread_cpu());
        }
    }

    /// A section that began at `begun` ends. Returns the CPU time charged to it.
    pub(super) fn end(&mut self, begun: u64, now: u64) -> u64 {
        let wall = self.since(begun, now);
        if self.since(self.looked, now) < EXACT_EVERY {
            return self.account.charge(wall);
        }
        self.looked = now;
        self.account.charge_exactly(wall, thread_cpu())
    }

    fn since(&self, begun: u64, now: u64) -> u64 {
        self.cheap.delta_as_nanos(begun, now)
    }
}

/// The account of one thread: the CPU time that it used and the part charged to sections.
/// Nanoseconds.
///
/// Whenever the exact clock is read, all charges less [`Account::owed`] are at most the CPU time
/// used.
#[derive(Debug)]
struct Account {
    /// The last reading of the exact clock.
    cpu: u64,
    /// Time of sections since that reading, the part that repaid a debt included.
    counted: u64,
    /// Overcharged before, because interruptions were too short to be seen. Later sections repay
    /// it.
    owed: u64,
}

impl Account {
    fn new(cpu: u64) -> Self {
        Self { cpu, counted: 0, owed: 0 }
    }

    /// A section of this length ended. Returns its charge.
    fn charge(&mut self, wall: u64) -> u64 {
        self.counted += wall;
        self.repay(wall)
    }

    /// Compares the time counted with the exact clock's reading. Returns the CPU time used beyond
    /// it.
    fn settle(&mut self, cpu: u64) -> u64 {
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let counted = std::mem::take(&mut self.counted);
        self.owed += counted.saturating_sub(used);
        used.saturating_sub(counted)
    }

    /// A section of this length ended with a reading of the exact clock. Returns its charge.
    fn charge_exactly(&mut self, wall: u64, cpu: u64) -> u64 {
        let section = self.settle(cpu).min(wall);
        self.repay(section)
    }

    fn repay(&mut self, section: u64) -> u64 {
        let paid = self.owed.min(section);
        self.owed -= paid;
        section - paid
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
    use crate::server::{Lifecycle, ServerLayer};

    fn burn(micros: u64) {
        let end = thread_cpu() + 1_000 * micros;
        while thread_cpu() < end {}
    }

    /// A calibration takes at least 500 µs. Each test runs in a process of its own.
    #[test]
    fn layer_calibrates_the_clock_before_the_first_request() {
        let _layer = ServerLayer::new(Lifecycle::new());
        let before = thread_cpu();
        let _ = Clock::new();
        let used = thread_cpu() - before;
        assert!(used < 200_000, "{used} ns");
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
        let (cpu, begun) = (clock.account.cpu, Instant::now());
        let mut charged = 0;
        while begun.elapsed() < Duration::from_millis(50) {
            let begun = clock.ticks();
            clock.begin(begun);
            burn(20);
            charged += clock.end(begun, clock.ticks());
        }
        let used = thread_cpu() - cpu;
        let owed = clock.account.owed;
        // Interruptions since the last reading of the exact clock are still charged.
        let bounds = used / 10 * 9..=used + EXACT_EVERY;
        assert!(bounds.contains(&(charged - owed)), "{charged} less {owed} of {used} ns");
    }

    #[test]
    fn repaid_debt_is_not_charged_again() {
        let mut account = Account::new(0);
        // Of 400 us, another thread had the core for all but 100.
        assert_eq!(account.charge(400), 400);
        account.settle(100);
        assert_eq!(account.owed, 300);
        // The next section repays the debt with the CPU time that it used.
        assert_eq!(account.charge(300), 0);
        // A section that used 50 and was interrupted for long.
        assert_eq!(account.charge_exactly(5_000, 450), 50);
        assert_eq!(account.owed, 0, "charged 450 of the 450 used");
    }

    #[test]
    fn charges_less_debts_never_exceed_the_time_used() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for _ in 0..2_000 {
            let (mut account, mut cpu, mut charged) = (Account::new(0), 0, 0);
            for _ in 0..50 {
                let used = draw(100);
                let interrupted = if draw(3) == 0 { draw(1_000) } else { 0 };
                let wall = used + interrupted;
                cpu += used;
                if draw(4) > 0 {
                    charged += account.charge(wall);
                    continue;
                }
                charged += account.charge_exactly(wall, cpu);
                assert!(charged - account.owed <= cpu, "{charged} less {} of {cpu}", account.owed);
                // Sections are all that ran: nothing is lost either.
                assert_eq!(charged - account.owed, cpu);
            }
        }
    }
}

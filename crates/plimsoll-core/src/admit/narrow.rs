//! Whether a process is full though its CPUs are not, because it works on fewer threads than it has CPUs.
//!
//! A gate that takes such a process for as large as its CPUs lets in more than can be done: of two CPUs twice as much for a server with one
//! thread. The process is never seen to use all that it has, so nothing corrects the gate, and answers come when nobody waits for them any
//! more. What it can do cannot be known beforehand, for one with many threads that has little to do looks the same. It shows when all of
//! this is so in a window:
//!
//! ```text
//! given up  ≥ sent ÷ 10, and 20 at least
//! full      = threads that ran or waited for a CPU for 9/10 of the time   ≥ 1
//! asked for = (Δcpu + Δwaited) ÷ Δt                                       < 3/4 · CPUs, and ≤ 3/2 · full
//! ```
//!
//! Why threads and not CPU: a process that waits for a database may use any number of CPUs, a whole one as well, while its requests are
//! given up. But none of its threads runs all the time. The last bound leaves out who has one thread that is always busy beside many that do
//! the work.

use core::time::Duration;

use super::outside::CALM;
use super::{Flow, Outside};
use crate::Timestamp;

/// Of requests sent, what is given up where most answers come too late, and not where a client leaves now and then.
const TOO_MANY: f64 = 0.1;
/// Requests given up by which that is known.
const LEAST: u64 = 20;
/// What threads ask for in all, for each that is full.
const BESIDE: f64 = 1.5;
/// Between two warnings: as long as it takes to do something about it.
const AGAIN: Duration = Duration::from_secs(600);

/// Looks at a process by windows.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// When the window began, and what had been until then.
    since: Timestamp,
    outside: Outside,
    flow: Flow,
    said: Option<Timestamp>,
}

impl Narrow {
    /// Long enough that a burst is over, and that a thread that is busy all the time has more to do than it can.
    pub const WINDOW: Duration = Duration::from_secs(10);
    /// A thread that ran or waited for a CPU for this part of a window is full: collecting garbage or reading a file takes no more.
    pub const FULL: f64 = 0.9;

    /// Of a process that nobody has seen yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, outside: Outside::default(), flow: Flow::default(), said: None }
    }

    /// The process is seen for the first time, or again; it may be another one, that counts anew.
    pub fn begin(&mut self, now: Timestamp, outside: Outside, flow: Flow) {
        (self.since, self.outside, self.flow) = (now, outside, flow);
    }

    /// A window is over, in which so many threads were [`FULL`](Self::FULL) of a process that may use so many `cpus`. Returns how many it seems to be able
    /// to use, if those are fewer and requests suffer by it; each ten minutes at most.
    pub fn look(&mut self, now: Timestamp, cpus: f64, outside: Outside, flow: Flow, full: u32) -> Option<u32> {
        let before = self.clone();
        self.begin(now, outside, flow);
        let seconds = now.since(before.since).as_secs_f64();
        let sent = flow.sent.saturating_sub(before.flow.sent);
        let given_up = flow.given_up.saturating_sub(before.flow.given_up);
        let suffers = given_up >= LEAST && given_up as f64 >= TOO_MANY * sent as f64;
        let asked_for = (outside.cpu - before.outside.cpu + outside.waited - before.outside.waited) / seconds;
        let is_narrow = asked_for < CALM * cpus && asked_for <= BESIDE * f64::from(full);
        let may_say = before.said.is_none_or(|said| now.since(said) >= AGAIN);
        (seconds > 0.0 && suffers && full > 0 && is_narrow && may_say).then(|| {
            self.said = Some(now);
            full
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said after a window of a process with so many CPUs, in which its threads ran and waited for so many seconds, of 1,000
    /// requests so many were given up, and so many threads were full.
    fn look(cpus: f64, (cpu, waited): (f64, f64), given_up: u64, full: u32) -> Option<u32> {
        World::new().look(cpus, (cpu, waited), (1_000, given_up), full)
    }

    struct World {
        now: Timestamp,
        outside: Outside,
        flow: Flow,
        narrow: Narrow,
    }

    impl World {
        fn new() -> Self {
            let mut narrow = Narrow::new(Timestamp::ZERO);
            // The proxy is older than what it sees.
            let (outside, flow) =
                (Outside { cpu: 70.0, waited: 3.0 }, Flow { sent: 90_000, given_up: 900, in_flight: 0 });
            narrow.begin(Timestamp::ZERO, outside, flow);
            Self { now: Timestamp::ZERO, outside, flow, narrow }
        }

        fn look(
            &mut self,
            cpus: f64,
            (cpu, waited): (f64, f64),
            (sent, given_up): (u64, u64),
            full: u32,
        ) -> Option<u32> {
            self.now = self.now + Narrow::WINDOW;
            self.outside.cpu += cpu;
            self.outside.waited += waited;
            self.flow.sent += sent;
            self.flow.given_up += given_up;
            self.narrow.look(self.now, cpus, self.outside, self.flow, full)
        }
    }

    #[test]
    fn a_process_that_is_full_on_fewer_threads_than_cpus_is_told_by_its_threads() {
        for (what, cpus, used, given_up, full, is) in [
            ("one thread of two CPUs", 2.0, (9.8, 0.1), 500, 1, Some(1)),
            ("one thread, and helpers", 8.0, (12.0, 1.0), 500, 1, Some(1)),
            ("one thread that a neighbour slows down", 2.0, (6.0, 3.9), 500, 1, Some(1)),
            ("three processes of eight CPUs", 8.0, (29.0, 0.5), 500, 3, Some(3)),
            ("waits for a database", 2.0, (3.0, 0.1), 500, 0, None),
            ("waits for a database with a whole CPU in use", 2.0, (10.0, 0.0), 500, 0, None),
            ("polls on one thread and works on others", 8.0, (25.0, 0.0), 500, 1, None),
            ("has what it can use", 1.0, (10.0, 0.2), 500, 1, None),
            ("is full on all, which the gate sees", 2.0, (19.5, 3.0), 500, 2, None),
            ("is busy, and answers in time", 2.0, (9.8, 0.1), 99, 1, None),
        ] {
            assert_eq!(look(cpus, used, given_up, full), is, "{what}");
        }
    }

    #[test]
    fn a_few_requests_that_are_given_up_say_nothing() {
        let mut world = World::new();
        assert_eq!(world.look(2.0, (9.8, 0.0), (30, 19), 1), None);
        assert_eq!(world.look(2.0, (9.8, 0.0), (30, 20), 1), Some(1));
    }

    #[test]
    fn it_is_said_again_after_ten_minutes_if_it_is_still_so() {
        let mut world = World::new();
        let said = (0..122).filter(|_| world.look(2.0, (9.8, 0.1), (1_000, 500), 1).is_some()).count();
        assert_eq!(said, 3);
    }

    #[test]
    fn another_process_counts_anew() {
        let mut world = World::new();
        world.outside = Outside { cpu: 500.0, waited: 0.0 };
        world.narrow.begin(world.now, world.outside, world.flow);
        assert_eq!(world.look(2.0, (9.8, 0.1), (1_000, 500), 1), Some(1));
        assert_eq!(world.narrow.look(world.now, 2.0, world.outside, world.flow, 1), None, "no time has gone by");
    }

    #[test]
    fn three_quarters_of_the_cpus_are_not_narrow() {
        assert_eq!(look(4.0, (30.0, 0.0), 500, 2), None);
        assert_eq!(look(4.0, (29.9, 0.0), 500, 2), Some(2));
    }

    #[test]
    fn process_that_uses_nothing_is_not_narrow() {
        assert_eq!(look(2.0, (0.0, 0.0), 500, 0), None);
    }
}

//! Turns on a thread: work that carries bodies leaves half of the thread to requests that begin
//! and end.
//!
//! A *step* is one run of a connection's task, from a wake to the next wait. A usual request takes
//! two or three steps: its head comes in, its answer comes and leaves. A long body takes hundreds,
//! and a client that sends or reads in tiny pieces makes one of each piece. In order of arrival, a
//! thousand such connections have a thousand steps between two steps of a usual request.
//!
//! So a connection's steps are *bulk* once they have moved some bytes and no request began or ended
//! ([`Streak`]). Bulk steps may take half of the time that passes:
//!
//! ```text
//! credit = min(BURST, credit + elapsed / 2) − length of each bulk step
//! ```
//!
//! With credit, and nobody in line, a bulk step is done at once. Without, the connection waits in
//! line ([`Line`]), first come, first served. One connection of the line is called in each pass of
//! the thread over all its work, credit or not. On an idle thread the passes are short, so the line
//! moves as fast as the thread can. On a busy one a usual request waits for one bulk step, not for
//! all.
//!
//! Half is the largest share that keeps usual requests within twice their time. A smaller one would
//! let cheap requests starve large answers.
//!
//! Where it is weak: the shell has to keep to the allowance of a step. A client that asks for
//! something small between two pieces is no bulk; bounds on its requests apply to it.

use alloc::collections::VecDeque;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::Timestamp;

/// Time of bulk steps in one go, in nanoseconds, and the longest debt. As long as a pass over some
/// ten requests. A step that a hypervisor paused weighs no more.
const BURST: i64 = 250_000;

/// Steps that move bytes before a connection counts as bulk: head and body of a message often come
/// in two pieces.
const FREE_STEPS: u8 = 3;

/// Bytes before a connection counts as bulk: more than most answers have. Most slow readers ask for
/// more, and they too may come in crowds.
const FREE_BYTES: u32 = 64 * 1024;

/// Bytes that a bulk step may move. Two copies of them take some 0.1 ms, a hundred times as long as
/// a turn.
const BULK_BYTES: u32 = 128 * 1024;

/// A connection's steps since a request last began or ended on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streak {
    events: u32,
    bytes: u32,
    steps: u8,
}

impl Streak {
    /// Whether the next step is bulk.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        self.steps > FREE_STEPS || self.bytes >= FREE_BYTES
    }

    /// Bytes that the next step may move. Its last read or write may move more.
    #[must_use]
    pub fn allowance(&self) -> u32 {
        if self.is_bulk() { BULK_BYTES } else { FREE_BYTES - self.bytes }
    }

    /// Counts a step. `events` is the number of requests that have begun and ended so far,
    /// wrapping. A step that moved nothing, as one by a timer, says nothing.
    pub fn on_step(&mut self, events: u32, moved: u32) {
        if events != self.events {
            *self = Self { events, bytes: 0, steps: 0 };
        } else if moved > 0 {
            self.bytes = self.bytes.saturating_add(moved);
            self.steps = self.steps.saturating_add(1);
        }
    }
}

/// A place in a [`Line`]. Each idle connection has memory for one, so that `None` takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(NonZeroU64);

/// Waiters, first come, first served. Holds no memory while it is empty.
#[derive(Clone, Debug)]
pub struct Line<W> {
    /// Tickets that were called; those after it are in `waiting`, in their order.
    called: u64,
    waiting: VecDeque<W>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self { called: 0, waiting: VecDeque::new() }
    }
}

impl<W: Clone> Line<W> {
    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the last place.
    pub fn enter(&mut self, waiter: &W) -> Ticket {
        let ahead = self.called + self.waiting.len() as u64;
        self.waiting.push_back(waiter.clone());
        Ticket(NonZeroU64::MIN.saturating_add(ahead))
    }

    /// Whether the ticket was called. If not, `waiter` will be the one to call.
    pub fn is_called(&mut self, ticket: Ticket, waiter: &W) -> bool {
        let Some(place) = ticket.0.get().checked_sub(self.called + 1) else { return true };
        let waiting = usize::try_from(place).ok().and_then(|at| self.waiting.get_mut(at));
        if let Some(waiting) = waiting {
            waiting.clone_from(waiter);
        }
        false
    }

    /// Calls the first. A waiter that left is called as the others, and its turn passes by unused.
    pub fn call(&mut self) -> Option<W> {
        let first = self.waiting.pop_front();
        match first {
            Some(_) => self.called += 1,
            None => self.waiting = VecDeque::new(),
        }
        first
    }
}

/// Answer to a connection with a bulk step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// The step may be done; [`Turns::end`] follows.
    Now,
    /// The connection waits to be called.
    Later {
        /// Its place.
        ticket: Ticket,
        /// Passes begin: the shell calls [`Turns::pass`] once in each pass until it returns `None`.
        begins_passes: bool,
    },
}

/// The bulk steps of one thread. `W` wakes a waiting connection.
#[derive(Clone, Debug)]
pub struct Turns<W> {
    /// In nanoseconds.
    credit: i64,
    credit_at: Timestamp,
    line: Line<W>,
    has_passes: bool,
}

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Self { credit: BURST, credit_at: Timestamp::ZERO, line: Line::default(), has_passes: false }
    }
}

impl<W: Clone> Turns<W> {
    /// Whether nobody waits, and no pass is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.has_passes
    }

    /// Asks for a bulk step, with the ticket of an earlier answer if there was one.
    pub fn take(&mut self, now: Timestamp, ticket: Option<Ticket>, waiter: &W) -> Turn {
        let ticket = match ticket {
            Some(ticket) if self.line.is_called(ticket, waiter) => return Turn::Now,
            Some(ticket) => ticket,
            None if self.line.is_empty() && self.has_credit(now) => return Turn::Now,
            None => self.line.enter(waiter),
        };
        Turn::Later { ticket, begins_passes: !core::mem::replace(&mut self.has_passes, true) }
    }

    /// Accounts for a bulk step that ends now. Returns the next connection to wake: while there is
    /// credit, the line need not wait for the next pass.
    #[must_use]
    pub fn end(&mut self, now: Timestamp, took: Duration) -> Option<W> {
        let has_credit = self.has_credit(now);
        let took = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_sub(took).max(-BURST);
        if has_credit && self.credit > 0 { self.line.call() } else { None }
    }

    /// Calls one connection for this pass of the thread; `None`, and the end of the passes, if
    /// nobody waits.
    #[must_use]
    pub fn pass(&mut self) -> Option<W> {
        let next = self.line.call();
        self.has_passes = next.is_some();
        next
    }

    fn has_credit(&mut self, now: Timestamp) -> bool {
        let gained = i64::try_from(now.nanos_since(self.credit_at) / 2).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(gained).min(BURST);
        self.credit_at = now;
        self.credit > 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MICROSECOND: u64 = 1_000;

    /// A thread with bulk connections, as a runtime runs it: it looks at all sockets, and then does
    /// the work that is ready in order of arrival.
    struct Thread {
        turns: Turns<usize>,
        now: u64,
        tickets: Vec<Option<Ticket>>,
        ready: VecDeque<usize>,
        has_passes: bool,
        /// The connections in the order of their steps.
        steps: Vec<usize>,
    }

    impl Thread {
        fn new(connections: usize) -> Self {
            Self {
                turns: Turns::default(),
                now: 0,
                tickets: vec![None; connections],
                ready: VecDeque::new(),
                has_passes: false,
                steps: Vec::new(),
            }
        }

        /// One pass, with all sockets of bulk connections ready. Returns the time of its bulk
        /// steps.
        fn pass(&mut self, usual: u64, mut length: impl FnMut() -> u64) -> u64 {
            self.now += usual;
            self.ready.extend((0..self.tickets.len()).filter(|at| self.tickets[*at].is_none()));
            if self.has_passes {
                let called = self.turns.pass();
                self.has_passes = called.is_some();
                self.ready.extend(called);
            }
            let begun = self.now;
            while let Some(at) = self.ready.pop_front() {
                match self.turns.take(Timestamp::from_nanos(self.now), self.tickets[at], &at) {
                    Turn::Now => {
                        self.tickets[at] = None;
                        let took = length();
                        self.now += took;
                        self.steps.push(at);
                        let next = self.turns.end(Timestamp::from_nanos(self.now), Duration::from_nanos(took));
                        self.ready.extend(next);
                    }
                    Turn::Later { ticket, begins_passes } => {
                        self.tickets[at] = Some(ticket);
                        self.has_passes |= begins_passes;
                    }
                }
            }
            self.now - begun
        }
    }

    #[test]
    fn usual_request_is_never_bulk() {
        let (mut streak, mut events) = (Streak::default(), 0_u32.wrapping_sub(6));
        for _ in 0..10 {
            // Its head, a wait for the backend, and its answer.
            for (event, moved) in [(1, 200), (0, 0), (0, 300), (0, 20_000), (1, 30_000)] {
                events = events.wrapping_add(event);
                streak.on_step(events, moved);
                assert!(!streak.is_bulk());
            }
        }
    }

    #[test]
    fn long_body_and_tiny_pieces_are_bulk_until_a_request_ends() {
        for (moved, free) in [(1, 4), (20_000, 4), (40_000, 2), (u32::MAX, 1)] {
            let mut streak = Streak::default();
            streak.on_step(1, 200);
            for step in 0..300 {
                assert_eq!(streak.is_bulk(), step >= free, "step {step} of {moved} bytes");
                streak.on_step(1, moved);
            }
            streak.on_step(1, 0);
            assert!(streak.is_bulk(), "a timer changes nothing");
            streak.on_step(2, moved);
            assert!(!streak.is_bulk());
        }
    }

    #[test]
    fn first_steps_may_move_as_much_as_is_free_together() {
        let mut streak = Streak::default();
        assert_eq!(streak.allowance(), FREE_BYTES);
        streak.on_step(0, 1_000);
        assert_eq!(streak.allowance(), FREE_BYTES - 1_000);
        streak.on_step(0, FREE_BYTES);
        assert_eq!(streak.allowance(), BULK_BYTES);
    }

    #[test]
    fn bulk_steps_take_half_of_a_busy_thread() {
        let mut thread = Thread::new(500);
        let bulk: u64 = (0..2_000).map(|_| thread.pass(400 * MICROSECOND, || 100 * MICROSECOND)).sum();
        let share = bulk as f64 / thread.now as f64;
        assert!((0.45..=0.51).contains(&share), "{share}");
    }

    #[test]
    fn bulk_steps_take_all_of_an_idle_thread() {
        let mut thread = Thread::new(500);
        let bulk: u64 = (0..2_000).map(|_| thread.pass(MICROSECOND, || 100 * MICROSECOND)).sum();
        assert!(bulk as f64 / thread.now as f64 > 0.98);
    }

    #[test]
    fn few_bulk_steps_never_wait() {
        let mut thread = Thread::new(3);
        for _ in 0..1_000 {
            thread.pass(400 * MICROSECOND, || 100 * MICROSECOND);
            assert!(thread.tickets.iter().all(Option::is_none));
        }
    }

    #[test]
    fn pause_of_the_machine_is_not_made_up_for() {
        for (later, steps) in [(2 * BURST as u64, 1), (2 * BURST as u64 + 2, 2)] {
            let mut thread = Thread::new(1);
            thread.pass(0, || 1_000_000_000);
            thread.pass(later, || MICROSECOND);
            assert_eq!(thread.steps.len(), steps);
        }
    }

    #[test]
    fn waiter_that_left_passes_its_turn_by() {
        let mut line = Line::default();
        let tickets = [1, 2, 3].map(|waiter| line.enter(&waiter));
        assert_eq!(line.call(), Some(1));
        assert!(line.is_called(tickets[0], &1) && !line.is_called(tickets[2], &30));
        // The second has left, and nobody asks for it.
        assert_eq!([line.call(), line.call(), line.call()], [Some(2), Some(30), None]);
        assert!(line.is_called(tickets[2], &3) && line.is_empty());
    }

    proptest! {
        #[test]
        fn turns_are_fair_for_any_steps(
            connections in 1_usize..60,
            passes in prop::collection::vec((0_u64..1_000, prop::collection::vec(1_u64..300, 1..8)), 1..200),
        ) {
            let mut thread = Thread::new(connections);
            for (usual, lengths) in passes {
                let (before, waiting) = (thread.steps.len(), thread.tickets.iter().any(Option::is_some));
                let mut lengths = lengths.iter().cycle();
                let bulk = thread.pass(usual * MICROSECOND, || lengths.next().unwrap() * MICROSECOND);
                // What was saved and what a pass gains, one step called, and one that goes beyond.
                prop_assert!(bulk <= 2 * (BURST as u64 + 2 * 300 * MICROSECOND), "{bulk} ns in a pass");
                prop_assert!(!waiting || thread.steps.len() > before, "a pass without a step, and somebody waits");
            }
            // The sockets are ready in one order, so the first connection may take a step by credit
            // for each one that another waits for.
            let mut counts = vec![0_usize; connections];
            for at in &thread.steps {
                counts[*at] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(*most <= 2 * least + 2, "{counts:?}");
        }
    }
}

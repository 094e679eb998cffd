//! The requests that wait for credit: a bounded queue, the most critical first, and first come, first served among equals.
//!
//! Why neither of the other two queues: the one for places at backends ([`crate::queue`]) knows no criticality, as who waits there waits for
//! milliseconds; and that for servers ([`crate::admit::Queue`]) gives the newest the next place when it is never empty, as
//! older callers are gone by then. Batch work waits for minutes, its callers stay, and each is to be served in the end.
//!
//! - When it is full, the newest of the least critical goes: those before it have waited longer. A newcomer that is no more critical
//!   than any other is that one itself.
//! - Whoever was at a backend and comes back takes a place by its age, in front of who came later. It is let in even if the
//!   queue is full, since it had been let in before: so the queue may be longer than its bound by what may be at backends.
//!
//! Every step takes constant time, but for one that comes back, which passes those that came back before it; and a seat is allocated only where
//! the queue is longer than it ever was.

use alloc::vec::Vec;

use crate::Criticality;

/// In place of a seat's number: there is none.
const NONE: u32 = u32::MAX;
const RANKS: usize = Criticality::ALL.len();

/// What a waiter has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// Nothing yet.
    Empty,
    /// A place at backends: its end must be told.
    Place,
    /// Nothing: it had to go for a more critical one.
    TurnedAway,
}

/// A waiter's claim to its seat, until [`Queue::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u32);

/// When a request came, among all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(u64);

/// Requests that wait; `C` is how each is called when something has come of it.
#[derive(Debug)]
pub struct Queue<C> {
    seats: Vec<Seat<C>>,
    /// The first of the seats that nobody has; they are linked by `next`.
    vacant: u32,
    lines: [Line; RANKS],
    next_age: u64,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    len: usize,
}

#[derive(Debug)]
struct Seat<C> {
    hand: Hand,
    call: Option<C>,
    rank: usize,
    age: Age,
    previous: u32,
    next: u32,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        let line = Line { first: NONE, last: NONE, len: 0 };
        Self { seats: Vec::new(), vacant: NONE, lines: [line; RANKS], next_age: 0 }
    }
}

impl<C> Queue<C> {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.iter().map(|line| line.len).sum()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.len == 0)
    }

    /// How many of this criticality wait.
    #[must_use]
    pub fn len_of(&self, criticality: Criticality) -> usize {
        self.lines[criticality.rank()].len
    }

    /// The age of a request that comes now.
    pub fn come(&mut self) -> Age {
        self.next_age += 1;
        Age(self.next_age)
    }

    /// Whether a newcomer of this criticality gets in with at most `most` waiting; then [`Queue::make_room`] is to be called before it
    /// joins.
    #[must_use]
    pub fn admits(&self, criticality: Criticality, most: usize) -> bool {
        self.len() < most || self.least_critical().is_some_and(|rank| rank > criticality.rank()) && most > 0
    }

    /// Turns the newest of the least critical away if `most` or more wait. Returns how it is called.
    pub fn make_room(&mut self, most: usize) -> Option<C> {
        if self.len() < most {
            return None;
        }
        let number = self.lines[self.least_critical()?].last;
        self.unlink(number);
        let seat = &mut self.seats[number as usize];
        seat.hand = Hand::TurnedAway;
        seat.call.take()
    }

    /// Takes a seat: at the end for a newcomer, by its age for one that comes back.
    pub fn join(&mut self, criticality: Criticality, age: Age, call: C) -> Ticket {
        let rank = criticality.rank();
        let seat = Seat { hand: Hand::Empty, call: Some(call), rank, age, previous: NONE, next: NONE };
        let number = self.vacant;
        let number = match self.seats.get_mut(number as usize) {
            Some(free) => {
                self.vacant = free.next;
                *free = seat;
                number
            }
            None => {
                self.seats.push(seat);
                self.seats.len() as u32 - 1
            }
        };
        let line = self.lines[rank];
        let is_youngest = line.last == NONE || self.seats[line.last as usize].age < age;
        let mut behind = if is_youngest { line.last } else { NONE };
        if !is_youngest {
            let mut ahead = line.first;
            while self.seats[ahead as usize].age < age {
                (behind, ahead) = (ahead, self.seats[ahead as usize].next);
            }
        }
        self.link(behind, number);
        Ticket(number)
    }

    /// Gives a place to who is first. Returns how it is called; `None` if nobody waits.
    pub fn serve(&mut self) -> Option<C> {
        let number = self.next()?;
        self.unlink(number);
        let seat = &mut self.seats[number as usize];
        seat.hand = Hand::Place;
        seat.call.take()
    }

    /// How to call who is first.
    #[must_use]
    pub fn first(&self) -> Option<&C> {
        self.seats[self.next()? as usize].call.as_ref()
    }

    /// Whether the holder of `ticket` is first.
    #[must_use]
    pub fn is_first(&self, ticket: &Ticket) -> bool {
        self.next() == Some(ticket.0)
    }

    /// What the holder of `ticket` has got, and how it is called if that is nothing yet.
    pub fn look(&mut self, ticket: &Ticket) -> (Hand, Option<&mut C>) {
        let seat = &mut self.seats[ticket.0 as usize];
        (seat.hand, seat.call.as_mut())
    }

    /// Gives the seat of `ticket` back, with what was in the hands of who had it.
    pub fn leave(&mut self, ticket: Ticket) -> (Hand, Option<C>) {
        let number = ticket.0;
        if self.seats[number as usize].hand == Hand::Empty {
            self.unlink(number);
        }
        let seat = &mut self.seats[number as usize];
        seat.next = self.vacant;
        self.vacant = number;
        (seat.hand, seat.call.take())
    }

    fn next(&self) -> Option<u32> {
        self.lines.iter().find(|line| line.len > 0).map(|line| line.first)
    }

    /// The rank of the least critical that wait; greater is less critical.
    fn least_critical(&self) -> Option<usize> {
        self.lines.iter().rposition(|line| line.len > 0)
    }

    /// Puts `number` into its line behind `previous`, which is [`NONE`] for the front.
    fn link(&mut self, previous: u32, number: u32) {
        let rank = self.seats[number as usize].rank;
        let next = if previous == NONE { self.lines[rank].first } else { self.seats[previous as usize].next };
        let seat = &mut self.seats[number as usize];
        (seat.previous, seat.next) = (previous, next);
        match self.seats.get_mut(previous as usize) {
            Some(before) => before.next = number,
            None => self.lines[rank].first = number,
        }
        match self.seats.get_mut(next as usize) {
            Some(after) => after.previous = number,
            None => self.lines[rank].last = number,
        }
        self.lines[rank].len += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Seat { rank, previous, next, .. } = self.seats[number as usize];
        match self.seats.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.lines[rank].first = next,
        }
        match self.seats.get_mut(next as usize) {
            Some(after) => after.previous = previous,
            None => self.lines[rank].last = previous,
        }
        self.lines[rank].len -= 1;
    }
}

//! The queue of requests that wait for credit: bounded, ordered by criticality and then by arrival.
//!
//! Why neither of the other two queues. The one for slots at backends ([`crate::queue`]) knows no
//! criticality, since its waits take milliseconds. The one for servers ([`crate::admit::Queue`])
//! serves the newest first when it is never empty, because older callers have left by then. Batch
//! work waits for minutes, its callers stay, and each is to be served in the end.
//!
//! - A full queue drops the newest of its least critical requests: the others have waited longer. A
//!   newcomer that is no more critical than any other is shed itself.
//! - A requeued request waits by its age, in front of younger ones. It is admitted even if the
//!   queue is full, since it had been admitted before. So the queue may exceed its bound by the
//!   number of requests that may be at backends.
//!
//! Every step takes constant time, except that a requeued request passes those that were requeued
//! before it. An entry is allocated only if the queue is longer than ever before.

use alloc::vec::Vec;

use crate::Criticality;

/// The number of no entry.
const NONE: u32 = u32::MAX;
const RANKS: usize = Criticality::ALL.len();

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// None yet.
    Pending,
    /// A slot at a backend: its end must be reported.
    Slot,
    /// The request was dropped for a more critical one.
    Shed,
}

/// The claim of a waiter to its entry, until [`Queue::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u32);

/// The order of arrival among all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(u64);

/// Requests that wait; `C` is the handle that wakes a waiter.
#[derive(Debug)]
pub struct Queue<C> {
    seats: Vec<QueueEntry<C>>,
    /// The first free entry; free ones are linked by `next`.
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
struct QueueEntry<C> {
    hand: WaitResult,
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
    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.iter().map(|line| line.len).sum()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.len == 0)
    }

    /// Requests of this criticality that wait.
    #[must_use]
    pub fn len_of(&self, criticality: Criticality) -> usize {
        self.lines[criticality.rank()].len
    }

    /// The age of a request that arrives now.
    pub fn come(&mut self) -> Age {
        self.next_age += 1;
        Age(self.next_age)
    }

    /// Whether a newcomer of this criticality is admitted with at most `most` waiting. If so, call
    /// [`Queue::make_room`] before it joins.
    #[must_use]
    pub fn admits(&self, criticality: Criticality, most: usize) -> bool {
        self.len() < most || self.least_critical().is_some_and(|rank| rank > criticality.rank()) && most > 0
    }

    /// Drops the newest of the least critical requests if `most` or more wait. Returns its wake-up
    /// handle.
    pub fn make_room(&mut self, most: usize) -> Option<C> {
        if self.len() < most {
            return None;
        }
        let number = self.lines[self.least_critical()?].last;
        self.unlink(number);
        let seat = &mut self.seats[number as usize];
        seat.hand = WaitResult::Shed;
        seat.call.take()
    }

    /// Adds a request: a newcomer at the end, a requeued one by its age.
    pub fn join(&mut self, criticality: Criticality, age: Age, call: C) -> Ticket {
        let rank = criticality.rank();
        let seat = QueueEntry { hand: WaitResult::Pending, call: Some(call), rank, age, previous: NONE, next: NONE };
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

    /// Gives a slot to the first request. Returns its wake-up handle; `None` if none waits.
    pub fn serve(&mut self) -> Option<C> {
        let number = self.next()?;
        self.unlink(number);
        let seat = &mut self.seats[number as usize];
        seat.hand = WaitResult::Slot;
        seat.call.take()
    }

    /// The wake-up handle of the first request.
    #[must_use]
    pub fn first(&self) -> Option<&C> {
        self.seats[self.next()? as usize].call.as_ref()
    }

    /// Whether the holder of `ticket` is first.
    #[must_use]
    pub fn is_first(&self, ticket: &Ticket) -> bool {
        self.next() == Some(ticket.0)
    }

    /// The result for the holder of `ticket`, and its wake-up handle while there is none.
    pub fn look(&mut self, ticket: &Ticket) -> (WaitResult, Option<&mut C>) {
        let seat = &mut self.seats[ticket.0 as usize];
        (seat.hand, seat.call.as_mut())
    }

    /// Frees the entry of `ticket`, and returns its result.
    pub fn leave(&mut self, ticket: Ticket) -> (WaitResult, Option<C>) {
        let number = ticket.0;
        if self.seats[number as usize].hand == WaitResult::Pending {
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

    /// The rank of the least critical requests that wait; a greater rank is less critical.
    fn least_critical(&self) -> Option<usize> {
        self.lines.iter().rposition(|line| line.len > 0)
    }

    /// Links `number` behind `previous` in the queue of its rank; [`NONE`] is the front.
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
        let QueueEntry { rank, previous, next, .. } = self.seats[number as usize];
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

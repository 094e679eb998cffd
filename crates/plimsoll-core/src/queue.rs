//! The requests that wait for a place at a backend, and who of them gets the next one.
//!
//! First come, first served; a request that arrives while others wait goes to the end, because otherwise those who wait
//! could starve. A place that comes free is handed at that moment to who waits longest. It is not left free for the
//! waiter to fetch: the task behind a waiter runs when its thread gets to it, which on a busy machine is late, and until
//! then the place would stand empty and the waiter hold up all behind it. A late task holds up nobody but itself like this.
//!
//! Whoever has tried some backends already gets one of them again rather than none, as a further attempt does that need
//! not wait ([`Balancer::pick_except`](crate::Balancer::pick_except)): so any place is good for who is first, and nobody is passed over or
//! in the way. Where this is not so, each locality has a queue of its own.
//!
//! Call [`Queue::serve`] until it returns `None` after all that may free a place: a request finished, a backend was added
//! or changed state, the configuration changed. Then nobody waits while there is a place. Each step takes constant time,
//! and the only memory is one seat for each request that waits or was served and has not looked yet.

use alloc::vec::Vec;

use crate::{BackendId, Pick};

/// In place of a seat's number: there is none.
const NONE: u32 = u32::MAX;

/// What a waiter has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// Nothing yet.
    Empty,
    /// A place at this backend, where it counts as active: [`Balancer::finish`](crate::Balancer::finish) must follow.
    Backend(BackendId),
    /// Nothing, for no backend is usable any more.
    NoBackend,
}

/// A waiter's claim to its seat, until [`Queue::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u32);

/// Requests that wait, in order; `C` is how each is called when its turn has come.
#[derive(Debug)]
pub struct Queue<C> {
    seats: Vec<Seat<C>>,
    /// The first of the seats that nobody has; they are linked by `next`.
    vacant: u32,
    first: u32,
    last: u32,
    waiting: usize,
}

#[derive(Debug)]
struct Seat<C> {
    hand: Hand,
    call: Option<C>,
    tried: Vec<BackendId>,
    previous: u32,
    next: u32,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self { seats: Vec::new(), vacant: NONE, first: NONE, last: NONE, waiting: 0 }
    }
}

impl<C> Queue<C> {
    /// How many wait. Those that have something in their hands do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes a seat at the end for a request that found no place, preferably for none of `tried`.
    pub fn join(&mut self, tried: Vec<BackendId>, call: C) -> Ticket {
        let seat = Seat { hand: Hand::Empty, call: Some(call), tried, previous: NONE, next: NONE };
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
        self.insert(self.last, number);
        Ticket(number)
    }

    /// Hands a place to who is first, and returns how to call it. `None`: nobody waits, or there is no place. `pick` chooses one,
    /// preferably none of those that are tried; it is not asked where nobody waits.
    ///
    /// When no backend is usable any more there is nothing to wait for, and all are told, one with each call.
    pub fn serve(&mut self, pick: impl FnOnce(&[BackendId]) -> Pick) -> Option<(C, Hand)> {
        let number = self.first;
        let seat = self.seats.get_mut(number as usize)?;
        seat.hand = match pick(&seat.tried) {
            Pick::Backend(id) => Hand::Backend(id),
            Pick::NoBackend => Hand::NoBackend,
            Pick::Wait(_) => return None,
        };
        let served = seat.call.take().map(|call| (call, seat.hand));
        self.unlink(number);
        served
    }

    /// What the holder of `ticket` has got, and how it is called if that is nothing yet.
    pub fn look(&mut self, ticket: &Ticket) -> (Hand, Option<&mut C>) {
        let seat = &mut self.seats[ticket.0 as usize];
        (seat.hand, seat.call.as_mut())
    }

    /// Gives the seat of `ticket` back. What was in the hands of who had it is the caller's to use or to finish.
    pub fn leave(&mut self, ticket: Ticket) -> (Hand, Option<C>) {
        let number = ticket.0;
        if self.seats[number as usize].hand == Hand::Empty {
            self.unlink(number);
        }
        let seat = &mut self.seats[number as usize];
        (seat.next, seat.tried) = (self.vacant, Vec::new());
        self.vacant = number;
        (seat.hand, seat.call.take())
    }

    /// Puts the holder of `ticket` back in front of all others: what it got is of no use, since that backend was removed
    /// before it looked.
    pub fn rejoin(&mut self, ticket: &Ticket, call: C) {
        let seat = &mut self.seats[ticket.0 as usize];
        if seat.hand == Hand::Empty {
            return;
        }
        (seat.hand, seat.call) = (Hand::Empty, Some(call));
        self.insert(NONE, ticket.0);
    }

    /// Links the seat `number` in behind `previous`, or in front of all.
    fn insert(&mut self, previous: u32, number: u32) {
        let next = match self.seats.get_mut(previous as usize) {
            Some(seat) => core::mem::replace(&mut seat.next, number),
            None => core::mem::replace(&mut self.first, number),
        };
        match self.seats.get_mut(next as usize) {
            Some(seat) => seat.previous = number,
            None => self.last = number,
        }
        let seat = &mut self.seats[number as usize];
        (seat.previous, seat.next) = (previous, next);
        self.waiting += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Seat { previous, next, .. } = self.seats[number as usize];
        match self.seats.get_mut(previous as usize) {
            Some(seat) => seat.next = next,
            None => self.first = next,
        }
        match self.seats.get_mut(next as usize) {
            Some(seat) => seat.previous = previous,
            None => self.last = previous,
        }
        self.waiting -= 1;
    }
}

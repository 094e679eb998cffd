//! Queue of requests that wait for a slot at a backend, and the choice of the next one.
//!
//! Requests of one holder are served first come, first served; the lines of different holders take
//! turns. With a single line, a client that sends ten thousand requests would make everybody else
//! wait behind them. A request that arrives while others of its line wait goes to the end. A free
//! slot is handed over at once, and not left for the waiter to fetch. The task behind a waiter runs
//! when its thread gets to it, which is late on a busy machine. Until then the slot would stay
//! empty, and the waiter would delay all behind it.
//!
//! Lines are chosen by the hash of the client (`LINES` of them: *stochastic fairness queueing*,
//! McKenney, INFOCOM 1990), so memory does not grow with the number of clients. When the queue is
//! full, a newcomer displaces the last request of the longest line, if that is longer than its own
//! would be (as in FQ-CoDel, RFC 8290, 4.1.3).
//!
//! A request whose holder has its share of slots ([`Shares`](crate::slots::Shares)) is passed over,
//! and others behind it are considered, up to `MAX_LOOK` in a line.
//!
//! A request that has tried some backends already gets one of them again rather than none. So does
//! a further attempt that need not wait ([`Balancer::pick_except`](crate::Balancer::pick_except)).
//! So any slot suits the first in line. For the exception, each locality has a queue of its own.
//!
//! Call [`Queue::serve`] until it returns `None` after each event that may free a slot: a request
//! finished, a backend was added or changed state, the configuration changed. Then no request waits
//! that could have a slot. Each step takes time in proportion to the lines that have waiters, at
//! most `LINES`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pick::HashKey;
use crate::slots::Holders;
use crate::{BackendId, Pick};

/// Lines of a queue. Two of 16 busy clients share one with a probability of 38%; then they wait
/// together.
const LINES: usize = 256;

/// Requests of one line that are considered for a slot.
const MAX_LOOK: usize = 64;

/// Marks the absence of a seat's number.
const NONE: u32 = u32::MAX;

/// State of a waiter's seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatState {
    /// Still waiting.
    Empty,
    /// A slot at this backend, where it counts as active:
    /// [`Balancer::finish`](crate::Balancer::finish) must follow.
    Backend(BackendId),
    /// No slot: no backend is usable any more.
    NoBackend,
    /// No slot: a request of a shorter line displaced this one.
    Displaced,
}

/// A waiter's claim to its seat, until [`Queue::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u32);

/// The terms of a waiter's pick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Backends to avoid.
    pub tried: Vec<BackendId>,
    /// The key of the request.
    pub key: Option<HashKey>,
}

/// A waiter that has been served.
#[derive(Debug)]
pub struct Served<C> {
    /// The waiter's callback.
    pub call: C,
    /// Its slot, or the reason for none.
    pub hand: SeatState,
    /// The holders of the slot.
    pub holders: Holders,
}

/// Waiting requests, in lines; `C` is the callback of each for its turn.
#[derive(Debug)]
pub struct Queue<C> {
    seats: Vec<Seat<C>>,
    /// First of the vacant seats, which are linked by `next`.
    vacant: u32,
    /// Empty until the first wait.
    lines: Vec<Line>,
    /// Lines with waiters, the next one first.
    turns: VecDeque<u16>,
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    len: u32,
}

#[derive(Debug)]
struct Seat<C> {
    hand: SeatState,
    call: Option<C>,
    wanted: Wanted,
    holders: Holders,
    previous: u32,
    next: u32,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self { seats: Vec::new(), vacant: NONE, lines: Vec::new(), turns: VecDeque::new(), waiting: 0 }
    }
}

/// The line of these holders: by client alone, since a client can request any number of endpoints.
fn line_of(holders: Holders) -> usize {
    (holders.client.hash() >> 24) as usize % LINES
}

impl<C> Queue<C> {
    /// Number of waiting requests, without those that were served.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The holders of the first request in the line of these holders; `None` if the line is empty.
    #[must_use]
    pub fn first_before(&self, holders: Holders) -> Option<Holders> {
        let line = self.lines.get(line_of(holders)).filter(|line| line.len > 0)?;
        Some(self.seats[line.first as usize].holders)
    }

    /// The holders of the first request of each line, in order of service, with the length of the
    /// line.
    pub fn heads(&self) -> impl Iterator<Item = (Holders, u32)> {
        self.turns.iter().map(|line| {
            let line = self.lines[usize::from(*line)];
            (self.seats[line.first as usize].holders, line.len)
        })
    }

    /// Takes a seat at the end of its line, for a request that found no slot. Its slot is picked
    /// by `wanted`.
    pub fn join(&mut self, holders: Holders, wanted: Wanted, call: C) -> Ticket {
        if self.lines.is_empty() {
            self.lines = alloc::vec![Line { first: NONE, last: NONE, len: 0 }; LINES];
        }
        let seat = Seat { hand: SeatState::Empty, call: Some(call), wanted, holders, previous: NONE, next: NONE };
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
        self.insert_last(number);
        Ticket(number)
    }

    /// Displaces the last request of the longest line from a full queue, for a request of these
    /// holders. Returns the callback of the displaced one; `None` if no line is longer than the
    /// newcomer's would be.
    pub fn displace(&mut self, holders: Holders) -> Option<C> {
        let own = self.lines.get(line_of(holders)).map_or(0, |line| line.len);
        let longest = self.turns.iter().map(|line| self.lines[usize::from(*line)]).max_by_key(|line| line.len)?;
        if longest.len <= own + 1 {
            return None;
        }
        let number = longest.last;
        self.unlink(number);
        let seat = &mut self.seats[number as usize];
        seat.hand = SeatState::Displaced;
        seat.call.take()
    }

    /// Hands a slot to the first request of the next line that may have one, and returns its
    /// callback.
    ///
    /// `None`: no waiter may have one, or there is no slot. `may_take` tells whether holders may
    /// have one; requests of others are passed over. `pick` chooses a slot on the waiter's terms. It
    /// is not called if no request waits.
    ///
    /// When no backend is usable any more, no wait makes sense. Each call then returns one of the
    /// waiters, with [`SeatState::NoBackend`].
    pub fn serve(
        &mut self,
        mut may_take: impl FnMut(Holders) -> bool,
        pick: impl FnOnce(&Wanted) -> Pick,
    ) -> Option<Served<C>> {
        let (turn, number) = self.turns.iter().enumerate().find_map(|(turn, line)| {
            let first = self.lines[usize::from(*line)].first;
            let next = |number: &u32| Some(self.seats[*number as usize].next).filter(|next| *next != NONE);
            let mut seats = core::iter::successors(Some(first), next).take(MAX_LOOK);
            // Those of a line are mostly of one client, with one answer for all.
            let mut denied = None;
            let number = seats.find(|number| {
                let holders = self.seats[*number as usize].holders;
                let is_denied = denied == Some(holders) || !may_take(holders);
                denied = denied.filter(|_| !is_denied).or(is_denied.then_some(holders));
                !is_denied
            })?;
            Some((turn, number))
        })?;
        let line = self.turns[turn];
        let seat = &mut self.seats[number as usize];
        seat.hand = match pick(&seat.wanted) {
            Pick::Backend(id) => SeatState::Backend(id),
            Pick::NoBackend => SeatState::NoBackend,
            Pick::Wait(_) => return None,
        };
        let served = seat.call.take().map(|call| Served { call, hand: seat.hand, holders: seat.holders });
        self.unlink(number);
        if self.lines[usize::from(line)].len > 0 {
            self.turns.remove(turn);
            self.turns.push_back(line);
        }
        served
    }

    /// State of the seat of `ticket`, and its callback while it waits.
    pub fn look(&mut self, ticket: &Ticket) -> (SeatState, Option<&mut C>) {
        let seat = &mut self.seats[ticket.0 as usize];
        (seat.hand, seat.call.as_mut())
    }

    /// Gives the seat of `ticket` back. The caller uses or finishes the returned hand.
    pub fn leave(&mut self, ticket: Ticket) -> (SeatState, Option<C>) {
        let number = ticket.0;
        if self.seats[number as usize].hand == SeatState::Empty {
            self.unlink(number);
        }
        let seat = &mut self.seats[number as usize];
        (seat.next, seat.wanted) = (self.vacant, Wanted::default());
        self.vacant = number;
        (seat.hand, seat.call.take())
    }

    /// Returns the holder of `ticket` to the front of its line, and that line to the front of the
    /// turns. Its slot is of no use: the backend was removed before the waiter used it.
    pub fn rejoin(&mut self, ticket: &Ticket, call: C) {
        let number = ticket.0;
        let seat = &mut self.seats[number as usize];
        if seat.hand == SeatState::Empty {
            return;
        }
        (seat.hand, seat.call) = (SeatState::Empty, Some(call));
        let at = line_of(seat.holders);
        let line = &mut self.lines[at];
        (seat.previous, seat.next) = (NONE, line.first);
        match line.first {
            NONE => line.last = number,
            first => self.seats[first as usize].previous = number,
        }
        line.first = number;
        line.len += 1;
        self.waiting += 1;
        self.turns.retain(|turn| usize::from(*turn) != at);
        self.turns.push_front(at as u16);
    }

    fn insert_last(&mut self, number: u32) {
        let at = line_of(self.seats[number as usize].holders);
        let line = &mut self.lines[at];
        let last = core::mem::replace(&mut line.last, number);
        line.len += 1;
        match last {
            NONE => {
                line.first = number;
                self.turns.push_back(at as u16);
            }
            last => self.seats[last as usize].next = number,
        }
        let seat = &mut self.seats[number as usize];
        (seat.previous, seat.next) = (last, NONE);
        self.waiting += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Seat { previous, next, holders, .. } = self.seats[number as usize];
        let at = line_of(holders);
        match self.seats.get_mut(previous as usize) {
            Some(seat) => seat.next = next,
            None => self.lines[at].first = next,
        }
        match self.seats.get_mut(next as usize) {
            Some(seat) => seat.previous = previous,
            None => self.lines[at].last = previous,
        }
        self.lines[at].len -= 1;
        self.waiting -= 1;
        if self.lines[at].len == 0 {
            self.turns.retain(|turn| usize::from(*turn) != at);
        }
    }
}

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
//! A line has a list of its own for each client, so clients that share a line take turns in it. A
//! client with its share of slots ([`Shares`](crate::slots::Shares)), or at its limit
//! ([`ClientLimit`](crate::slots::ClientLimit)), hides no other: its requests are passed over, at any
//! number. The first `MAX_LOOK` of a client are considered, since its share may be that of one kind
//! of work. One call ends with the line that brings it to `MAX_LOOKS` requests, and the next one begins
//! behind it.
//!
//! A request that has tried some backends already gets one of them again rather than none. So does
//! a further attempt that need not wait ([`Balancer::pick_except`](crate::Balancer::pick_except)).
//! So any slot suits the first in line. For the exception, each locality has a queue of its own.
//!
//! Call [`Queue::serve`] until it returns `None` after each event that may free a slot: a request
//! finished, a backend was added or changed state, the configuration changed. Then no request waits
//! that could have a slot, but for one behind `MAX_LOOKS` others. Each step takes time in proportion
//! to the requests that it considers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pick::HashKey;
use crate::slots::{Holder, Holders};
use crate::{BackendId, Pick};

/// Lines of a queue. Two of 16 busy clients share one with a probability of 38%; then they wait
/// together.
const LINES: usize = 256;

/// Requests of one client that are considered for a slot.
const MAX_LOOK: usize = 64;

/// Requests after which a call ends: twice as many as wait at most by default.
const MAX_LOOKS: usize = 2048;

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

/// The waiters of the clients with equal bits of their hashes.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Clients with waiters, the next one first.
    clients: VecDeque<Client>,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    holder: Holder,
    first: u32,
    last: u32,
    len: u32,
}

impl Line {
    fn position(&self, client: Holder) -> Option<usize> {
        self.clients.iter().position(|other| other.holder == client)
    }
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

    /// The holders of the first request of the same client; `None` if it has none here.
    #[must_use]
    pub fn first_before(&self, holders: Holders) -> Option<Holders> {
        let line = self.lines.get(line_of(holders))?;
        let client = &line.clients[line.position(holders.client)?];
        Some(self.seats[client.first as usize].holders)
    }

    /// The holders of the first request of each client, with the number of its requests: line by
    /// line, in order of service.
    pub fn heads(&self) -> impl Iterator<Item = (Holders, u32)> {
        let clients = self.turns.iter().flat_map(|line| &self.lines[usize::from(*line)].clients);
        clients.map(|client| (self.seats[client.first as usize].holders, client.len))
    }

    /// Takes a seat at the end of its line, for a request that found no slot. Its slot is picked
    /// by `wanted`.
    pub fn join(&mut self, holders: Holders, wanted: Wanted, call: C) -> Ticket {
        if self.lines.is_empty() {
            self.lines = alloc::vec![Line::default(); LINES];
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

    /// Displaces a request of the longest line from a full queue, for a request of these holders: the
    /// last one of the client with most requests there. Returns the callback of the displaced one;
    /// `None` if no line is longer than the newcomer's would be.
    pub fn displace(&mut self, holders: Holders) -> Option<C> {
        let own = self.lines.get(line_of(holders)).map_or(0, |line| line.len);
        let longest = self.turns.iter().map(|line| &self.lines[usize::from(*line)]).max_by_key(|line| line.len)?;
        if longest.len <= own + 1 {
            return None;
        }
        let number = longest.clients.iter().max_by_key(|client| client.len)?.last;
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
        let (mut looks, mut found, mut last) = (0, None, 0);
        for (turn, line) in self.turns.iter().enumerate() {
            let mut clients = self.lines[usize::from(*line)].clients.iter();
            found = clients.find_map(|client| self.first_fitting(client.first, &mut looks, &mut may_take));
            last = turn;
            if found.is_some() || looks >= MAX_LOOKS {
                break;
            }
        }
        let Some(number) = found else {
            if looks >= MAX_LOOKS {
                self.turns.rotate_left(last + 1);
            }
            return None;
        };
        let line = self.turns[last];
        let seat = &mut self.seats[number as usize];
        seat.hand = match pick(&seat.wanted) {
            Pick::Backend(id) => SeatState::Backend(id),
            Pick::NoBackend => SeatState::NoBackend,
            Pick::Wait(_) => return None,
        };
        let holders = seat.holders;
        let served = seat.call.take().map(|call| Served { call, hand: seat.hand, holders });
        self.unlink(number);
        let Line { clients, len } = &mut self.lines[usize::from(line)];
        if *len > 0 {
            self.turns.remove(last);
            self.turns.push_back(line);
        }
        if let Some(at) = clients.iter().position(|client| client.holder == holders.client) {
            let client = clients.remove(at);
            clients.extend(client);
        }
        served
    }

    /// The first request of a client that may have a slot, from its seat `first` on.
    fn first_fitting(&self, first: u32, looks: &mut usize, may_take: &mut impl FnMut(Holders) -> bool) -> Option<u32> {
        let next = |number: &u32| Some(self.seats[*number as usize].next).filter(|next| *next != NONE);
        let mut denied = None;
        core::iter::successors(Some(first), next).take(MAX_LOOK).find(|number| {
            *looks += 1;
            let holders = self.seats[*number as usize].holders;
            // Those of a client are mostly of one kind, with one answer for all.
            if denied == Some(holders) {
                return false;
            }
            let fits = may_take(holders);
            denied = (!fits).then_some(holders).or(denied);
            fits
        })
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
        let holder = seat.holders.client;
        let at = line_of(seat.holders);
        let Line { clients, len } = &mut self.lines[at];
        let known = clients.iter().position(|client| client.holder == holder).and_then(|at| clients.remove(at));
        let mut client = known.unwrap_or(Client { holder, first: NONE, last: number, len: 0 });
        (seat.previous, seat.next) = (NONE, client.first);
        if let Some(second) = self.seats.get_mut(client.first as usize) {
            second.previous = number;
        }
        client.first = number;
        client.len += 1;
        clients.push_front(client);
        *len += 1;
        self.waiting += 1;
        self.turns.retain(|turn| usize::from(*turn) != at);
        self.turns.push_front(at as u16);
    }

    fn insert_last(&mut self, number: u32) {
        let holders = self.seats[number as usize].holders;
        let at = line_of(holders);
        let line = &mut self.lines[at];
        if line.len == 0 {
            self.turns.push_back(at as u16);
        }
        line.len += 1;
        let holder = holders.client;
        let last = match line.position(holder) {
            None => {
                line.clients.push_back(Client { holder, first: number, last: number, len: 1 });
                NONE
            }
            Some(at) => {
                let client = &mut line.clients[at];
                client.len += 1;
                core::mem::replace(&mut client.last, number)
            }
        };
        if let Some(last) = self.seats.get_mut(last as usize) {
            last.next = number;
        }
        let seat = &mut self.seats[number as usize];
        (seat.previous, seat.next) = (last, NONE);
        self.waiting += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Seat { previous, next, holders, .. } = self.seats[number as usize];
        let at = line_of(holders);
        let line = &mut self.lines[at];
        let Some(position) = line.position(holders.client) else { return };
        let client = &mut line.clients[position];
        match self.seats.get_mut(previous as usize) {
            Some(seat) => seat.next = next,
            None => client.first = next,
        }
        match self.seats.get_mut(next as usize) {
            Some(seat) => seat.previous = previous,
            None => client.last = previous,
        }
        client.len -= 1;
        if client.len == 0 {
            line.clients.remove(position);
        }
        line.len -= 1;
        self.waiting -= 1;
        if line.len == 0 {
            self.turns.retain(|turn| usize::from(*turn) != at);
        }
    }
}

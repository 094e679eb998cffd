//! The open streams of an HTTP/2 connection, and which of them stand still because the client gives
//! no window.
//!
//! A client that opens streams and never lets their responses flow holds a backend's answer, its
//! connection and buffers with each, at no cost to itself. Whether a server *wants* to send cannot
//! be seen from outside; but it sends until a window is used up to the last byte, so a response
//! that was begun and whose window, or the connection's, is zero, is one that the client holds up.
//! That takes both directions' frames and one small entry per open stream. To ask the bodies
//! instead would miss all whose last bytes have been handed over and lie, untaken, in the
//! protocol's buffers.
//!
//! A client that opens a window by a byte now and then holds them as well. So bytes count for the
//! time that they take at the minimum rate, and no more; as on HTTP/1 (`plimsoll_core::debt`). A
//! stream with a window of its own that waits for the connection's looks like one with little to
//! send. It needs to move only a byte, if the connection as a whole moves enough.
//!
//! Windows are counted as RFC 9113, 6.9 has it: `initial + Σ updates − Σ data`, and a change of
//! `initial` moves all.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;

use plimsoll_core::debt::Debt;

/// A window until settings or updates change it (RFC 9113, 6.9.2), in bytes.
const INITIAL_WINDOW: i64 = 65_535;
/// Streams that may stand still while others of the connection flow. A program may forget to read a
/// few responses, and ending its connection would cost all others; more than a few are held on
/// purpose. Eight hold at most the send buffers of eight streams.
const FORGOTTEN_STREAMS: usize = 8;
/// A capacity that is not kept once all streams have ended: most connections never have as many at
/// once.
const SPARE_ENTRIES: usize = 8;

/// A stream that is open.
#[derive(Clone, Debug)]
struct Open {
    id: u32,
    /// Bytes sent since the last look.
    sent: u32,
    since: Timestamp,
    /// When the client had sent all of the request.
    requested: Option<Timestamp>,
    /// Bytes that the client lets us send.
    window: i64,
    /// The head of the response went out.
    is_answered: bool,
    /// Seen without window at the last look, too.
    held: Option<Held>,
}

/// How a stream is held.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Behind with anything at all.
    silent: Debt,
    /// Behind the least rate.
    slow: Debt,
}

/// All streams that are open, in the order of their opening, which is that of their numbers. Those
/// that end are mostly near the front.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    open: VecDeque<Open>,
    most: usize,
    highest: u32,
    initial_window: i64,
    connection_window: i64,
    /// Bytes sent on all streams since the last look, and when that was.
    sent: u64,
    looked: Timestamp,
}

impl Streams {
    /// None yet; no more than `most` are kept in mind.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: VecDeque::new(),
            most,
            highest: 0,
            initial_window: INITIAL_WINDOW,
            connection_window: INITIAL_WINDOW,
            sent: 0,
            looked: Timestamp::ZERO,
        }
    }

    /// Whether all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The highest number that the client used so far.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Headers came on the stream `id`; says whether they open it. With `is_end` they are all of
    /// the request.
    pub(crate) fn on_headers(&mut self, now: Timestamp, id: u32, is_end: bool) -> bool {
        // Clients open odd numbers; anything else is an error that the protocol's implementation
        // ends.
        if id <= self.highest || id.is_multiple_of(2) {
            return false;
        }
        self.highest = id;
        if self.open.len() < self.most {
            let (window, requested) = (self.initial_window, is_end.then_some(now));
            self.open.push_back(Open { id, sent: 0, since: now, requested, window, is_answered: false, held: None });
        }
        true
    }

    /// The last bytes of a request came.
    pub(crate) fn on_request_end(&mut self, now: Timestamp, id: u32) {
        if let Some(position) = self.position(id) {
            self.open[position].requested.get_or_insert(now);
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |open| open.id).ok()
    }

    /// Time that a stream has been open without the begin of a response; `None` for any other.
    pub(crate) fn unanswered_for(&self, now: Timestamp, id: u32) -> Option<Duration> {
        let open = &self.open[self.position(id)?];
        (!open.is_answered).then(|| now.since(open.since))
    }

    /// Whether part of a request is still to come, and its response has not begun.
    pub(crate) fn awaits_body(&self, id: u32) -> bool {
        self.position(id).is_some_and(|position| {
            let open = &self.open[position];
            !open.is_answered && open.requested.is_none()
        })
    }

    /// The stream is no more, as far as sending goes.
    pub(crate) fn on_end(&mut self, id: u32) {
        if let Some(position) = self.position(id) {
            self.open.remove(position);
            if self.open.is_empty() && self.open.capacity() > SPARE_ENTRIES {
                self.open = VecDeque::new();
            }
        }
    }

    /// The client's setting for the windows of all its streams.
    pub(crate) fn on_initial_window(&mut self, window: u32) {
        let change = i64::from(window) - self.initial_window;
        self.initial_window += change;
        self.open.iter_mut().for_each(|open| open.window += change);
    }

    /// The client lets `increment` more bytes come, on a stream or (0) the connection.
    pub(crate) fn on_window_update(&mut self, id: u32, increment: u32) {
        if id == 0 {
            self.connection_window += i64::from(increment);
        } else if let Some(position) = self.position(id) {
            self.open[position].window += i64::from(increment);
        }
    }

    /// The head of a response was sent, or trailers. For the first head of a stream: the time since
    /// all of the request had come, which is zero if part of it is still to come.
    pub(crate) fn on_answer(&mut self, now: Timestamp, id: u32) -> Option<Duration> {
        let position = self.position(id)?;
        let open = &mut self.open[position];
        let is_first = !std::mem::replace(&mut open.is_answered, true);
        is_first.then(|| open.requested.map_or(Duration::ZERO, |requested| now.since(requested)))
    }

    /// So many bytes of a response were sent.
    pub(crate) fn on_data(&mut self, id: u32, length: u32) {
        self.connection_window -= i64::from(length);
        self.sent += u64::from(length);
        if let Some(position) = self.position(id) {
            let open = &mut self.open[position];
            open.window -= i64::from(length);
            open.sent = open.sent.saturating_add(length);
        }
    }

    /// Finds the streams that the client holds up. It has to read `min_rate` bytes a second of
    /// them, or any bytes if that is zero. Says whether it has held too many, or all that are open,
    /// for `patience`.
    pub(crate) fn are_held(&mut self, now: Timestamp, patience: Duration, min_rate: u64) -> bool {
        let connection_is_held = self.connection_window <= 0;
        let elapsed = now.since(std::mem::replace(&mut self.looked, now));
        let sent_in_all = std::mem::take(&mut self.sent);
        let mut count = 0;
        for open in &mut self.open {
            let sent = std::mem::take(&mut open.sent);
            if !open.is_answered || !connection_is_held && open.window > 0 {
                open.held = None;
                continue;
            }
            let counted = if open.window > 0 { sent_in_all } else { u64::from(sent) };
            // It is waited for from the first look on that finds it held.
            let waited = if open.held.is_some() { elapsed } else { Duration::ZERO };
            let held = open.held.get_or_insert_default();
            held.silent.add(waited, u64::from(sent), 0);
            held.slow.add(waited, counted, min_rate);
            count += usize::from(held.silent.exceeds(patience) || held.slow.exceeds(patience));
        }
        count > FORGOTTEN_STREAMS || count > 0 && count == self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    /// Bytes a second.
    const RATE: u64 = 100;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    /// Streams 1, 3, 5 and so on, each answered and without window.
    fn held(count: u32) -> Streams {
        let mut streams = Streams::new(100);
        streams.on_initial_window(0);
        for id in (0..count).map(|i| 2 * i + 1) {
            assert!(streams.on_headers(at(0), id, true));
            streams.on_answer(at(0), id);
        }
        streams
    }

    #[test]
    fn streams_without_window_for_too_long_are_held() {
        let mut streams = held(2);
        assert!(!streams.are_held(at(0), PATIENCE, RATE));
        assert!(!streams.are_held(at(9), PATIENCE, RATE));
        assert!(streams.are_held(at(10), PATIENCE, RATE));
    }

    /// The second at which `streams` are found to be held, with a look in each, when the client
    /// reads `bytes` on stream 1 every `every` seconds.
    fn held_at(streams: &mut Streams, bytes: u32, every: u64, rate: u64) -> Option<u64> {
        (0..200).find(|second| {
            if second % every == every - 1 {
                streams.on_window_update(1, bytes);
                streams.on_data(1, bytes);
            }
            streams.are_held(at(*second), PATIENCE, rate)
        })
    }

    #[test]
    fn bytes_read_count_for_their_time_at_the_minimum_rate() {
        for (bytes, every, ends) in
            [(0, 1, Some(10)), (1, 9, Some(11)), (50, 1, Some(20)), (100, 1, None), (100, 9, Some(11)), (900, 9, None)]
        {
            assert_eq!(held_at(&mut held(1), bytes, every, RATE), ends, "{bytes} every {every} s");
        }
    }

    #[test]
    fn any_byte_suffices_when_no_rate_is_asked_for() {
        for (bytes, ends) in [(0, Some(10)), (1, None)] {
            assert_eq!(held_at(&mut held(1), bytes, 9, 0), ends, "{bytes}");
        }
    }

    #[test]
    fn a_stream_with_little_to_say_is_not_held_while_the_connection_takes_enough() {
        for (bulk, ends) in [(50_000, false), (50, true)] {
            let mut streams = Streams::new(100);
            streams.on_initial_window(1_000_000_000);
            for id in [1, 3] {
                streams.on_headers(at(0), id, true);
                streams.on_answer(at(0), id);
            }
            streams.on_data(3, 65_535);
            let ended = (0..100).any(|second| {
                streams.on_window_update(0, bulk + 1);
                streams.on_data(1, 1);
                streams.on_data(3, bulk);
                streams.are_held(at(second), PATIENCE, RATE)
            });
            assert_eq!(ended, ends, "{bulk}");
        }
    }

    #[test]
    fn a_backend_that_is_silent_is_not_held_against_the_client() {
        let mut streams = Streams::new(100);
        streams.on_headers(at(0), 1, true);
        streams.on_initial_window(0);
        // Not answered yet.
        assert!(!streams.are_held(at(0), PATIENCE, RATE) && !streams.are_held(at(100), PATIENCE, RATE));
        // Answered, with a window that is not used up.
        streams.on_answer(at(0), 1);
        streams.on_window_update(1, 5);
        streams.on_data(1, 4);
        assert!(!streams.are_held(at(200), PATIENCE, RATE) && !streams.are_held(at(300), PATIENCE, RATE));
    }

    #[test]
    fn a_few_forgotten_streams_do_not_cost_the_others() {
        for (forgotten, ends) in [(8, false), (9, true)] {
            let mut streams = held(forgotten);
            streams.on_headers(at(0), 1001, true);
            streams.on_answer(at(0), 1001);
            streams.on_window_update(1001, 100);
            assert!(!streams.are_held(at(0), PATIENCE, RATE));
            assert_eq!(streams.are_held(at(10), PATIENCE, RATE), ends, "{forgotten}");
        }
    }

    #[test]
    fn the_window_of_the_connection_holds_all() {
        let mut streams = Streams::new(100);
        streams.on_initial_window(1_000_000);
        for id in [1, 3] {
            streams.on_headers(at(0), id, true);
            streams.on_answer(at(0), id);
        }
        streams.on_data(1, 65_535);
        assert!(!streams.are_held(at(0), PATIENCE, RATE));
        assert!(streams.are_held(at(10), PATIENCE, RATE));
        streams.on_window_update(0, 1);
        assert!(!streams.are_held(at(20), PATIENCE, RATE));
    }

    #[test]
    fn ended_streams_are_forgotten_and_reopened_ones_are_none() {
        let mut streams = held(3);
        for id in [3, 1, 5, 5, 7] {
            streams.on_end(id);
        }
        assert!(
            streams.open.is_empty()
                && !streams.on_headers(at(0), 5, true)
                && !streams.on_headers(at(0), 6, true)
                && streams.on_headers(at(0), 9, true)
        );
        assert_eq!(streams.highest(), 9);
    }
}

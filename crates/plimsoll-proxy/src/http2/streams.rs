//! The open streams of an HTTP/2 connection, and which of them stand still because the client gives no window.
//!
//! A client that opens streams and never lets their responses flow holds a backend's answer, its connection and
//! buffers with each, at no cost to itself. Whether a server *wants* to send cannot be seen from outside; but it sends until a
//! window is used up to the last byte, so a response that was begun and whose window, or the connection's, is zero, is
//! one that the client holds up. That takes both directions' frames and one small entry per open stream. To ask the
//! bodies instead would miss all whose last bytes have been handed over and lie, untaken, in the protocol's buffers.
//!
//! Windows are counted as RFC 9113, 6.9 has it: `initial + Σ updates − Σ data`, and a change of `initial` moves all.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;

/// What a window is until settings or updates say otherwise (RFC 9113, 6.9.2), in bytes.
const INITIAL_WINDOW: i64 = 65_535;
/// Streams that may stand still while others of the connection flow. A program may forget to read a few of its answers,
/// and ending its connection would cost all others; more than a few are held on purpose. What eight can hold is the
/// send buffers of eight streams.
const FORGOTTEN_STREAMS: usize = 8;
/// A capacity that is not kept once all streams have ended: most connections never have as many at once.
const SPARE_ENTRIES: usize = 8;

/// A stream that is open.
#[derive(Clone, Debug)]
struct Open {
    id: u32,
    since: Timestamp,
    /// Bytes that the client lets us send.
    window: i64,
    /// The head of the response went out.
    is_answered: bool,
    /// First seen without window, with no byte sent since.
    held_since: Option<Timestamp>,
}

/// All streams that are open, in the order of their opening, which is that of their numbers. Those that end are mostly
/// near the front.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    open: VecDeque<Open>,
    most: usize,
    highest: u32,
    initial_window: i64,
    connection_window: i64,
}

impl Streams {
    /// None yet; no more than `most` are kept in mind.
    pub(super) fn new(most: usize) -> Self {
        Self {
            open: VecDeque::new(),
            most,
            highest: 0,
            initial_window: INITIAL_WINDOW,
            connection_window: INITIAL_WINDOW,
        }
    }

    /// Whether all have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The highest number that the client used so far.
    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    /// Headers came on the stream `id`; says whether they open it.
    pub(super) fn on_headers(&mut self, now: Timestamp, id: u32) -> bool {
        // Clients open odd numbers; anything else is an error that the protocol's implementation ends.
        if id <= self.highest || id.is_multiple_of(2) {
            return false;
        }
        self.highest = id;
        if self.open.len() < self.most {
            let window = self.initial_window;
            self.open.push_back(Open { id, since: now, window, is_answered: false, held_since: None });
        }
        true
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |open| open.id).ok()
    }

    /// For how long a stream is open that was not answered yet; `None` for any other.
    pub(super) fn unanswered_for(&self, now: Timestamp, id: u32) -> Option<Duration> {
        let open = &self.open[self.position(id)?];
        (!open.is_answered).then(|| now.since(open.since))
    }

    /// The stream is no more, as far as sending goes.
    pub(super) fn on_end(&mut self, id: u32) {
        if let Some(position) = self.position(id) {
            self.open.remove(position);
            if self.open.is_empty() && self.open.capacity() > SPARE_ENTRIES {
                self.open = VecDeque::new();
            }
        }
    }

    /// The client's setting for the windows of all its streams.
    pub(super) fn on_initial_window(&mut self, window: u32) {
        let change = i64::from(window) - self.initial_window;
        self.initial_window += change;
        self.open.iter_mut().for_each(|open| open.window += change);
    }

    /// The client lets `increment` more bytes come, on a stream or (0) the connection.
    pub(super) fn on_window_update(&mut self, id: u32, increment: u32) {
        if id == 0 {
            self.connection_window += i64::from(increment);
        } else if let Some(position) = self.position(id) {
            self.open[position].window += i64::from(increment);
        }
    }

    /// The head of a response was sent, or trailers; says whether it is the first of its stream.
    pub(super) fn on_answer(&mut self, id: u32) -> bool {
        let position = self.position(id);
        position.is_some_and(|position| !std::mem::replace(&mut self.open[position].is_answered, true))
    }

    /// So many bytes of a response were sent.
    pub(super) fn on_data(&mut self, id: u32, length: u32) {
        self.connection_window -= i64::from(length);
        if let Some(position) = self.position(id) {
            let open = &mut self.open[position];
            open.window -= i64::from(length);
            open.held_since = None;
        }
    }

    /// Looks which streams the client holds up; says whether it has held too many, or all that are open, for `patience`.
    pub(super) fn are_held(&mut self, now: Timestamp, patience: Duration) -> bool {
        let connection_is_held = self.connection_window <= 0;
        let mut held = 0;
        for open in &mut self.open {
            if open.is_answered && (connection_is_held || open.window <= 0) {
                let since = *open.held_since.get_or_insert(now);
                held += usize::from(now.since(since) >= patience);
            } else {
                open.held_since = None;
            }
        }
        held > FORGOTTEN_STREAMS || held > 0 && held == self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    /// Streams 1, 3, 5 and so on, each answered and without window.
    fn held(count: u32) -> Streams {
        let mut streams = Streams::new(100);
        streams.on_initial_window(0);
        for id in (0..count).map(|i| 2 * i + 1) {
            assert!(streams.on_headers(at(0), id));
            streams.on_answer(id);
        }
        streams
    }

    #[test]
    fn streams_without_window_for_too_long_are_held() {
        let mut streams = held(2);
        assert!(!streams.are_held(at(0), PATIENCE));
        assert!(!streams.are_held(at(9), PATIENCE));
        assert!(streams.are_held(at(10), PATIENCE));
    }

    #[test]
    fn a_byte_that_is_taken_begins_the_time_anew() {
        let mut streams = held(1);
        assert!(!streams.are_held(at(0), PATIENCE));
        streams.on_window_update(1, 1);
        streams.on_data(1, 1);
        assert!(!streams.are_held(at(10), PATIENCE));
        assert!(streams.are_held(at(20), PATIENCE));
    }

    #[test]
    fn a_backend_that_is_silent_is_not_held_against_the_client() {
        let mut streams = Streams::new(100);
        streams.on_headers(at(0), 1);
        streams.on_initial_window(0);
        // Not answered yet.
        assert!(!streams.are_held(at(0), PATIENCE) && !streams.are_held(at(100), PATIENCE));
        // Answered, with a window that is not used up.
        streams.on_answer(1);
        streams.on_window_update(1, 5);
        streams.on_data(1, 4);
        assert!(!streams.are_held(at(200), PATIENCE) && !streams.are_held(at(300), PATIENCE));
    }

    #[test]
    fn a_few_forgotten_streams_do_not_cost_the_others() {
        for (forgotten, ends) in [(8, false), (9, true)] {
            let mut streams = held(forgotten);
            streams.on_headers(at(0), 1001);
            streams.on_answer(1001);
            streams.on_window_update(1001, 100);
            assert!(!streams.are_held(at(0), PATIENCE));
            assert_eq!(streams.are_held(at(10), PATIENCE), ends, "{forgotten}");
        }
    }

    #[test]
    fn the_window_of_the_connection_holds_all() {
        let mut streams = Streams::new(100);
        streams.on_initial_window(1_000_000);
        for id in [1, 3] {
            streams.on_headers(at(0), id);
            streams.on_answer(id);
        }
        streams.on_data(1, 65_535);
        assert!(!streams.are_held(at(0), PATIENCE));
        assert!(streams.are_held(at(10), PATIENCE));
        streams.on_window_update(0, 1);
        assert!(!streams.are_held(at(20), PATIENCE));
    }

    #[test]
    fn ended_streams_are_forgotten_and_reopened_ones_are_none() {
        let mut streams = held(3);
        for id in [3, 1, 5, 5, 7] {
            streams.on_end(id);
        }
        assert!(
            streams.open.is_empty()
                && !streams.on_headers(at(0), 5)
                && !streams.on_headers(at(0), 6)
                && streams.on_headers(at(0), 9)
        );
        assert_eq!(streams.highest(), 9);
    }
}

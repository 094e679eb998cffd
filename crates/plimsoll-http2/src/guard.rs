//! When an HTTP/2 client abuses its connection, so that the connection must end.
//!
//! HTTP/2 lets a client cause work with a few bytes: open a request and reset it, request
//! acknowledgements, send frames without meaning. Each is lawful, and each has been a flood
//! (CVE-2023-44487 rapid reset, CVE-2025-8671 "MadeYouReset", CVE-2019-9511 to 9518). The
//! difference is the amount, relative to the client's useful requests. So two budgets ([`Budget`]),
//! in tokens:
//!
//! ```text
//! resets    gains  max_resets_per_second + min(t / 10 ms, 1) per backend response  holds 2 · max_streams, or a second's
//!           pays   1 per RST_STREAM of the client for a request without response, or of ours for an error of the client
//!                  2 if hasty: there is no response yet, and the request is no older than 10 ms
//!                  ¼ if patient: there is no response yet, and the request is at least a second old
//! control   gains  max_control_frames_per_second + 2 per request + 4 per DATA frame sent       holds 10 seconds'
//!           pays   1 per frame that is neither a request nor data; PING 2, SETTINGS 4
//! ```
//!
//! An RST_STREAM behind the head of a response is a control frame: the client waited for its
//! backend, and gained nothing over one that reads to the end. Go's client sends one for each body
//! that its caller closes early.
//!
//! `t` is the time from the last byte of a request to the head of its response. The proxy's own
//! responses earn nothing: a client gets those for nothing, and could buy a reset of an expensive
//! request with each. Nor do requests. A response that a backend gives in 0.3 ms, such as a 404,
//! earns 0.03 resets.
//!
//! An attacker is therefore ended after 129 requests if it resets each at once, and after 256 if it
//! waits longer. After that it has `max_resets_per_second`, or four times as many if it leaves each
//! request open for a second, which occupies its streams as plain requests would. A flood of PING
//! ends after 500 frames, of SETTINGS after 250, of anything else after 1,000.
//!
//! Honest clients are not ended. A gateway that serves its users through one connection may abandon
//! half of all its requests, however many, at backends that take 10 ms. Requests abandoned at their
//! deadline are patient. A client that acknowledges each DATA frame with two window updates and a
//! PING, as some gRPC clients do to measure the path, pays 4 and has earned 4.
//!
//! Others: nghttp2 (Node, Apache) allows 33 resets a second and 1,000 at once. Envoy ends a
//! connection of more than 500 streams once half of them were reset within a second. nginx ends one
//! after 1,000 requests (`keepalive_requests`). It also ends one if a client opens more than twice
//! `http2_max_concurrent_streams` in one turn of its event loop. HAProxy counts an abandoned stream
//! against the limit of concurrent ones until its end.
//!
//! On a connection that has paid for a few resets recently ([`Guard::is_wary`]), the bytes behind a
//! request are read before the request begins. If they reset it, it has cost neither a choice of
//! backend nor a message to one.
//!
//! Breaches of the protocol are left to h2, except for those that it misses: a client that does not
//! begin with SETTINGS (RFC 9113, 3.4), one that sends PUSH_PROMISE with a malformed block (8.4),
//! and the findings of [`HeaderBlocks`].
//!
//! Not here, as h2 has it already: CONTINUATION frames in a row (h2 takes those that
//! `max_header_list_size` needs and a quarter more, but at least 5), size of a header block,
//! updates of zero, settings acknowledged unasked, more streams than allowed, requests reset before
//! they were accepted (`max_pending_accept_reset_streams`). h2 has a total for resets by errors
//! (1,024 in the life of a connection, which bounds their memory); here they have a rate.
//!
//! When streams stand still for want of window is in `streams`.

use std::io::IoSlice;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Timestamp;

use crate::budget::Budget;
use crate::frames::{Field, Head, Kind, Piece, Walker};
use crate::header_blocks::{Flip, HeaderBlocks, Malformed};
use crate::interim::continue_frame;
use crate::streams::Streams;

/// A backend response earns a whole reset if it took this long: a client that hedges each request
/// resets one of two. Envoy draws the line there, too.
const EARNING_TIME: Duration = Duration::from_millis(10);
/// All streams at once, twice: a browser that leaves a page, and the next one.
const RESET_BURST_PER_STREAM: u32 = 2;
/// A person or a program that gives up waits for longer than this; a slow network delays both
/// frames.
const HASTY_AGE: Duration = Duration::from_millis(10);
const HASTY_RESET_COST: f64 = 2.0;
/// A request this old was abandoned at a deadline. Envoy's
/// `premature_reset_min_stream_lifetime_seconds`. Such resets are rare by themselves: at most
/// `max_streams` a second.
const PATIENT_AGE: Duration = Duration::from_secs(1);
const PATIENT_RESET_COST: f64 = 0.25;
/// Resets paid for and not regained that make a connection wary.
const WARY_RESETS: f64 = 8.0;
/// Frames that come with a request: PRIORITY or PRIORITY_UPDATE, trailers, an unknown frame
/// (GREASE).
const CONTROL_PER_REQUEST: f64 = 2.0;
/// An eager client's frames for each DATA frame: two window updates and a PING that measures the
/// path.
const CONTROL_PER_DATA: f64 = 4.0;
/// A DATA frame earns from this length on, that of an empty gRPC message, in bytes. A client could
/// live on shorter ones, which it causes itself by windows of one byte.
const MIN_EARNING_DATA: u32 = 5;
/// How many seconds' worth of control frames may come at once: those of a connection that begins,
/// or wakes up.
const CONTROL_BURST_SECONDS: u32 = 10;
/// A PING has to be answered.
const PING_COST: f64 = 2.0;
/// SETTINGS have to be answered, and may touch each stream.
const SETTINGS_COST: f64 = 4.0;
/// From this length on a CONTINUATION frame costs nothing but its bytes, which h2 limits.
const MIN_FREE_CONTINUATION: u32 = 1024;
/// Idle timeouts without window after which a stream ends its connection. One is too early: the
/// stream itself is ended then, where that is still possible, and others go on.
const STALL_TIMEOUTS: u32 = 2;
/// The setting for the table of a client's decoder, and its initial value (RFC 9113, 6.5.2).
const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_TABLE_SIZE: u32 = 4096;
/// The setting for a stream's window (RFC 9113, 6.5.2).
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
/// Codes of RST_STREAM with which the proxy answers an error of the client (RFC 9113, 7):
/// PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR. Others report on the
/// backend.
const CODES_OF_CLIENT_ERRORS: [u32; 4] = [1, 3, 5, 6];
/// The code that refuses streams beyond the limit.
const REFUSED_STREAM: u32 = 7;
/// The codes that end a connection (RFC 9113, 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

/// How much a client may do on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Streams at once.
    pub max_streams: NonZeroU32,
    /// Requests taken back, beyond half of all.
    pub max_resets_per_second: NonZeroU32,
    /// Frames that are neither requests nor data, beyond those that requests and responses earn.
    pub max_control_frames_per_second: NonZeroU32,
}

/// The deed that a client did too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// It took requests back, or made us do so.
    Resets,
    /// It sent frames that ask for nothing.
    ControlFrames,
    /// It let responses stand still.
    Stall,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The client does too much.
    Abuse(Abuse),
    /// Of the protocol, where h2 does not see it.
    Protocol,
}

/// The part of the read bytes that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Length of the usable start. Give the rest to the guard again, after acting on this part.
    pub length: usize,
    /// They end with the head of a request that has the field `expect`, on this stream.
    pub expects: Option<u32>,
}

/// Looks at the bytes of one HTTP/2 client connection, as they are without TLS.
#[derive(Clone, Debug)]
pub struct Guard {
    read: Walker,
    reading: Frame,
    header_blocks: HeaderBlocks,
    written: Walker,
    writing: Frame,
    resets: Budget,
    /// The resets that unwritten backend responses may still earn.
    unearned: f64,
    control: Budget,
    streams: Streams,
    /// A block of headers has begun to come and is not complete.
    headers_since: Option<Timestamp>,
    /// When the last bytes came.
    as_of: Timestamp,
    has_settings: bool,
    has_greeted: bool,
    /// The client was sent the error for which the connection ends.
    has_ended: bool,
    /// A header block was begun and is not written to its end.
    is_writing_block: bool,
    /// The client's decoder has a smaller table than to begin with.
    has_small_table: bool,
    verdict: Option<Breach>,
}

/// The frame that a direction is at.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    head: Option<Head>,
    field: Field,
    is_field_read: bool,
}

impl Frame {
    fn begin(head: Head) -> Self {
        Self { head: Some(head), ..Self::default() }
    }

    /// The number of `N` bytes that the payload begins with, once.
    fn first<const N: usize>(&mut self, mut payload: &[u8]) -> Option<[u8; N]> {
        if self.is_field_read {
            return None;
        }
        let field = self.field.take(&mut payload);
        self.is_field_read = field.is_some();
        field
    }
}

impl Guard {
    /// For a connection that is to begin with the client's preface.
    #[must_use]
    pub fn new(now: Timestamp, allowance: Allowance) -> Self {
        let Allowance { max_streams, max_resets_per_second, max_control_frames_per_second } = allowance;
        let reset_burst = max_streams.get().saturating_mul(RESET_BURST_PER_STREAM).max(max_resets_per_second.get());
        let control_burst = max_control_frames_per_second.get().saturating_mul(CONTROL_BURST_SECONDS);
        Self {
            read: Walker::of_client(),
            reading: Frame::default(),
            header_blocks: HeaderBlocks::new(),
            written: Walker::of_server(),
            writing: Frame::default(),
            resets: Budget::new(now, max_resets_per_second.get(), reset_burst),
            unearned: 0.0,
            control: Budget::new(now, max_control_frames_per_second.get(), control_burst),
            // Twice as many: a stream is refused only after it was opened.
            streams: Streams::new(max_streams.get() as usize * 2),
            headers_since: None,
            as_of: now,
            has_settings: false,
            has_greeted: false,
            has_ended: false,
            is_writing_block: false,
            has_small_table: false,
            verdict: None,
        }
    }

    /// Call it with all bytes that were read, in their order, before they are used. It changes
    /// bytes that would make a request look like another one, so that h2 refuses it. It stops
    /// behind a head with `expect`, and for good at a breach.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub fn on_read(&mut self, now: Timestamp, bytes: &mut [u8]) -> Result<Passed, Breach> {
        self.verdict.map_or(Ok(()), Err)?;
        self.as_of = now;
        self.header_blocks.on_read();
        let mut flips = Vec::new();
        // Taken out, so that the rest of the guard can hear the findings of the walk.
        let mut walker = std::mem::replace(&mut self.read, Walker::of_server());
        let mut walk = walker.walk(bytes);
        let mut expects = None;
        for piece in walk.by_ref() {
            match piece {
                Piece::Head { head, flags_at } => self.on_head(head, flags_at),
                Piece::Payload { bytes, at } => self.on_payload(bytes, at, &mut flips),
                Piece::End => expects = self.on_end(),
            }
            if expects.is_some() || self.verdict.is_some() {
                break;
            }
        }
        let left = walk.left();
        self.read = walker;
        flips.into_iter().for_each(|flip: Flip| bytes[flip.at] ^= flip.bits);
        self.verdict.map_or(Ok(Passed { length: bytes.len() - left, expects }), Err)
    }

    fn on_head(&mut self, head: Head, flags_at: Option<usize>) {
        self.reading = Frame::begin(head);
        if !self.has_settings {
            self.has_settings = true;
            if head.kind != Kind::Settings || head.is_ack() {
                self.break_protocol();
            }
        }
        match head.kind {
            Kind::Headers => {
                self.headers_since.get_or_insert(self.as_of);
                let is_request = self.streams.on_headers(self.as_of, head.stream, head.is_end_of_stream());
                self.header_blocks.on_headers(head, flags_at, !is_request);
                if is_request {
                    self.control.earn(CONTROL_PER_REQUEST);
                } else {
                    self.pay_control(1.0);
                }
            }
            Kind::Reset => {
                if self.streams.unanswered_for(self.as_of, head.stream).is_some() {
                    self.pay_reset(head.stream);
                } else {
                    self.pay_control(1.0);
                }
                self.streams.on_end(head.stream);
            }
            Kind::Data if head.is_end_of_stream() => self.streams.on_request_end(self.as_of, head.stream),
            Kind::Data if head.length == 0 => self.pay_control(1.0),
            Kind::Data => {}
            Kind::Continuation => {
                self.header_blocks.on_continuation(head);
                if head.length < MIN_FREE_CONTINUATION {
                    self.pay_control(1.0);
                }
            }
            Kind::Ping if !head.is_ack() => self.pay_control(PING_COST),
            Kind::Settings if !head.is_ack() => self.pay_control(SETTINGS_COST),
            Kind::PushPromise => self.break_protocol(),
            Kind::Ping | Kind::Settings | Kind::Priority | Kind::GoAway | Kind::WindowUpdate | Kind::Unknown => {
                self.pay_control(1.0)
            }
        }
    }

    fn on_payload(&mut self, mut payload: &[u8], at: usize, flips: &mut Vec<Flip>) {
        let Some(head) = self.reading.head else { return };
        match head.kind {
            Kind::Headers | Kind::Continuation if self.verdict.is_none() => {
                let read = self.header_blocks.on_payload(payload, at, flips);
                self.judge(read);
            }
            Kind::WindowUpdate => {
                if let Some(increment) = self.reading.first(payload) {
                    self.streams.on_window_update(head.stream, u32::from_be_bytes(increment) & 0x7fff_ffff);
                }
            }
            Kind::Data if head.is_padded() => {
                // Nothing but padding is as empty as nothing at all.
                if let Some([padding]) = self.reading.first(payload)
                    && head.length == 1 + u32::from(padding)
                    && !head.is_end_of_stream()
                {
                    self.pay_control(1.0);
                }
            }
            Kind::Settings => {
                while let Some([i0, i1, v0, v1, v2, v3]) = self.reading.field.take(&mut payload) {
                    let value = u32::from_be_bytes([v0, v1, v2, v3]);
                    match u16::from_be_bytes([i0, i1]) {
                        SETTINGS_HEADER_TABLE_SIZE => self.has_small_table |= value < INITIAL_TABLE_SIZE,
                        SETTINGS_INITIAL_WINDOW_SIZE => self.streams.on_initial_window(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// A frame ends. Returns the stream of the request head that it completes, if that has
    /// `expect`.
    fn on_end(&mut self) -> Option<u32> {
        let head = self.reading.head.take().filter(|head| head.is_of_headers())?;
        let is_end = head.is_end_of_headers();
        if is_end {
            self.headers_since = None;
        }
        self.judge(self.header_blocks.on_end(is_end));
        (is_end && self.header_blocks.expects()).then_some(head.stream)
    }

    fn judge(&mut self, read: Result<(), Malformed>) {
        if read.is_err() {
            self.break_protocol();
        }
    }

    fn break_protocol(&mut self) {
        self.verdict.get_or_insert(Breach::Protocol);
    }

    fn pay_control(&mut self, cost: f64) {
        if !self.control.spend(self.as_of, cost) {
            self.verdict.get_or_insert(Breach::Abuse(Abuse::ControlFrames));
        }
    }

    fn pay_reset(&mut self, stream: u32) {
        let cost = match self.streams.unanswered_for(self.as_of, stream) {
            Some(age) if age <= HASTY_AGE => HASTY_RESET_COST,
            Some(age) if age >= PATIENT_AGE => PATIENT_RESET_COST,
            _ => 1.0,
        };
        self.pay_for_resets(cost);
    }

    fn pay_for_resets(&mut self, cost: f64) {
        if !self.resets.spend(self.as_of, cost) {
            self.verdict.get_or_insert(Breach::Abuse(Abuse::Resets));
        }
    }

    /// To be called for each response of a backend, before its head is written.
    pub fn on_backend_response(&mut self) {
        self.unearned = (self.unearned + 1.0).min(self.resets.burst());
    }

    /// To be called with all bytes that were written, in their order.
    pub fn on_written(&mut self, now: Timestamp, bytes: &[u8]) {
        self.has_greeted |= !bytes.is_empty();
        let mut walker = std::mem::replace(&mut self.written, Walker::of_server());
        for piece in walker.walk(bytes) {
            match piece {
                Piece::Head { head, .. } => self.on_written_head(now, head),
                Piece::Payload { bytes, .. } => self.on_written_payload(bytes),
                Piece::End => {}
            }
        }
        self.written = walker;
    }

    /// The same for a write from several buffers; the first `written` bytes went out.
    pub fn on_written_vectored(&mut self, now: Timestamp, slices: &[IoSlice<'_>], mut written: usize) {
        for slice in slices {
            let part = &slice[..written.min(slice.len())];
            self.on_written(now, part);
            written -= part.len();
        }
    }

    fn on_written_head(&mut self, now: Timestamp, head: Head) {
        self.writing = Frame::begin(head);
        if head.is_of_headers() {
            self.is_writing_block = !head.is_end_of_headers();
        }
        match head.kind {
            Kind::Headers => {
                if let Some(took) = self.streams.on_answer(now, head.stream) {
                    self.earn_resets(took);
                }
            }
            Kind::Data => {
                self.streams.on_data(head.stream, head.length);
                if head.length >= MIN_EARNING_DATA {
                    self.control.earn(CONTROL_PER_DATA);
                }
            }
            // A reset ends its stream once it is known why.
            _ => {}
        }
        if head.is_end_of_stream() {
            self.streams.on_end(head.stream);
        }
    }

    /// A response was given `took` after its request. Only the number of a backend's responses is
    /// known. So a slow response of the proxy's own may earn in the place of a backend's; all
    /// together earn no more.
    fn earn_resets(&mut self, took: Duration) {
        let earned = took.div_duration_f64(EARNING_TIME).min(1.0).min(self.unearned);
        self.unearned -= earned;
        self.resets.earn(earned);
    }

    fn on_written_payload(&mut self, payload: &[u8]) {
        if self.writing.head.is_some_and(|head| head.kind == Kind::GoAway)
            && let Some([_, _, _, _, code @ ..]) = self.writing.first::<8>(payload)
        {
            self.has_ended |= u32::from_be_bytes(code) != NO_ERROR;
        }
        if let Some(head) = self.writing.head.filter(|head| head.kind == Kind::Reset)
            && let Some(code) = self.writing.first(payload)
        {
            let code = u32::from_be_bytes(code);
            // Before it knows how many streams are allowed, a client may open more; that is no
            // haste.
            if code == REFUSED_STREAM {
                self.pay_for_resets(1.0);
            } else if CODES_OF_CLIENT_ERRORS.contains(&code) {
                self.pay_reset(head.stream);
            }
            self.streams.on_end(head.stream);
        }
    }

    /// The frames that tell the clients of `streams` to send their bodies, of those that still
    /// wait. To be called only when all that is to be written before has been.
    #[must_use]
    pub fn continues(&self, streams: &[u32]) -> Vec<u8> {
        if self.has_small_table || self.is_writing_block || !self.written.is_between_frames() {
            return Vec::new();
        }
        streams
            .iter()
            .filter(|stream| self.streams.awaits_body(**stream))
            .flat_map(|stream| continue_frame(*stream))
            .collect()
    }

    /// Whether requests have been reset recently, so that the next one may be, too.
    #[must_use]
    pub fn is_wary(&self) -> bool {
        self.resets.missing(self.as_of) >= WARY_RESETS
    }

    /// Whether h2 sent the client the error for which the connection ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether there are streams that have not ended.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Since when a block of headers is coming that is not complete. None of the connection's other
    /// streams gets on meanwhile.
    #[must_use]
    pub fn headers_since(&self) -> Option<Timestamp> {
        self.headers_since
    }

    /// To be called a few times per `idle_timeout`, with the listener's, and the bytes a second
    /// that are to be taken of an answer; zero for any.
    ///
    /// # Errors
    /// That the client held up too many streams, or all that are open, for twice as long.
    pub fn look(&mut self, now: Timestamp, idle_timeout: Duration, min_rate: u64) -> Result<(), Breach> {
        if self.streams.are_held(now, idle_timeout * STALL_TIMEOUTS, min_rate) {
            self.verdict.get_or_insert(Breach::Abuse(Abuse::Stall));
        }
        self.verdict.map_or(Ok(()), Err)
    }

    /// The frame (GOAWAY) that gives the client the reason for its connection's end. `None` while
    /// another frame is half written, or before the first one, because it would not be read as a
    /// frame.
    #[must_use]
    pub fn farewell(&self) -> Option<[u8; 17]> {
        if !self.has_greeted || !self.written.is_between_frames() {
            return None;
        }
        let mut frame = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        frame[9..13].copy_from_slice(&self.streams.highest().to_be_bytes());
        let code = if self.verdict == Some(Breach::Protocol) { PROTOCOL_ERROR } else { ENHANCE_YOUR_CALM };
        frame[13..].copy_from_slice(&code.to_be_bytes());
        Some(frame)
    }
}

#[cfg(test)]
mod tests;

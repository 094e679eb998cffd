//! Attackers are ended within a stated number of frames, honest clients never.

use proptest::prelude::*;

use super::*;
use crate::frames::tests::{PREFACE, frame};

const ALLOWANCE: Allowance = Allowance {
    max_streams: NonZeroU32::new(128).unwrap(),
    max_resets_per_second: NonZeroU32::new(20).unwrap(),
    max_control_frames_per_second: NonZeroU32::new(100).unwrap(),
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;

/// Fields, as HPACK has them: `:method: GET`, `:path: /`.
const BLOCK: &[u8] = &[0x82, 0x84];
/// `accept-encoding: gzip, deflate`.
const TRAILERS: &[u8] = &[0x90];

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// A connection in virtual time.
struct Client {
    guard: Guard,
    nanos: u64,
    next_stream: u32,
    verdict: Result<(), Breach>,
}

/// Reads all of `bytes`, also behind heads with `expect`.
fn read(guard: &mut Guard, now: Timestamp, mut bytes: &mut [u8]) -> Result<(), Breach> {
    while !bytes.is_empty() {
        let passed = guard.on_read(now, bytes)?;
        bytes = &mut bytes[passed.length..];
    }
    Ok(())
}

impl Client {
    fn new() -> Self {
        let mut client =
            Self { guard: Guard::new(Timestamp::ZERO, ALLOWANCE), nanos: 0, next_stream: 1, verdict: Ok(()) };
        client.send(PREFACE);
        client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0xff, 0xff, 0xff]));
        client.take(&frame(SETTINGS, 0, 0, &[]));
        client.send(&frame(SETTINGS, ACK, 0, &[]));
        client
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos)
    }

    fn wait(&mut self, time: Duration) {
        self.nanos += u64::try_from(time.as_nanos()).unwrap();
    }

    fn send(&mut self, bytes: &[u8]) {
        let now = self.now();
        let verdict = read(&mut self.guard, now, &mut bytes.to_vec());
        self.verdict = self.verdict.and(verdict);
    }

    /// The server writes.
    fn take(&mut self, bytes: &[u8]) {
        self.guard.on_written(self.now(), bytes);
    }

    fn request(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, BLOCK));
        stream
    }

    /// A backend answers with `length` bytes, in DATA frames of 16 KiB.
    fn answer(&mut self, stream: u32, length: usize) {
        self.guard.on_backend_response();
        self.answer_by_proxy(stream, length);
    }

    /// The proxy answers by itself.
    fn answer_by_proxy(&mut self, stream: u32, mut length: usize) {
        self.take(&frame(HEADERS, END_HEADERS, stream, BLOCK));
        while length > 0 {
            let part = length.min(16_384);
            length -= part;
            self.take(&frame(DATA, 0, stream, &vec![0; part]));
        }
        self.take(&frame(DATA, END_STREAM, stream, &[]));
    }

    fn reset(&mut self, stream: u32) {
        self.send(&frame(RESET, 0, stream, &[0, 0, 0, 8]));
    }
}

/// How often `attack` can be done, as fast as can be, before the connection ends.
fn rounds_until(abuse: Abuse, mut attack: impl FnMut(&mut Client)) -> u32 {
    let mut client = Client::new();
    for round in 1..20_000 {
        attack(&mut client);
        if let Err(found) = client.verdict {
            assert_eq!(found, Breach::Abuse(abuse));
            return round;
        }
    }
    panic!("never ended");
}

#[test]
fn resets_end_the_connection_within_a_known_number() {
    let rapid_reset = |client: &mut Client| {
        let stream = client.request();
        client.reset(stream);
    };
    assert_eq!(rounds_until(Abuse::Resets, rapid_reset), 129);
    let late_reset = |client: &mut Client| {
        let streams: Vec<u32> = (0..128).map(|_| client.request()).collect();
        client.wait(HASTY_AGE + Duration::from_millis(1));
        streams.into_iter().for_each(|stream| client.reset(stream));
    };
    assert_eq!(rounds_until(Abuse::Resets, late_reset), 3);
    // The server is made to reset by an error of the client's.
    let made_to_reset = |client: &mut Client| {
        let stream = client.request();
        client.take(&frame(RESET, 0, stream, &[0, 0, 0, 1]));
    };
    assert_eq!(rounds_until(Abuse::Resets, made_to_reset), 130);
}

/// The number of late resets that a client gets through in a minute, and the seconds until it was
/// ended. It resets at `per_second` at most, and fetches ten `cheap` responses between two resets.
fn late_resets_in_a_minute(per_second: u32, cheap: impl Fn(&mut Client)) -> (u32, f64) {
    let mut client = Client::new();
    let mut resets = 0;
    while client.verdict.is_ok() && client.nanos < 60_000_000_000 {
        let stream = client.request();
        (0..10).for_each(|_| cheap(&mut client));
        client.wait(Duration::from_secs(1) / per_second);
        client.reset(stream);
        resets += 1;
    }
    (resets, client.nanos as f64 / 1e9)
}

#[test]
fn responses_that_cost_nothing_earn_no_resets() {
    // Beyond the burst and the resets earned by time; one ends the connection.
    let earned = |(resets, seconds): (u32, f64)| f64::from(resets) - 1.0 - 256.0 - 20.0 * seconds;
    let nothing = late_resets_in_a_minute(90, |_| ());
    assert!(earned(nothing) < 1.0, "{nothing:?}");
    let by_proxy = late_resets_in_a_minute(90, |client| {
        let stream = client.request();
        client.answer_by_proxy(stream, 10);
    });
    assert_eq!(by_proxy, nothing);
    // A backend's 404, which takes 50 µs.
    let by_backend = late_resets_in_a_minute(90, |client| {
        let stream = client.request();
        client.wait(Duration::from_micros(50));
        client.answer(stream, 10);
    });
    assert!(earned(by_backend) < 0.06 * f64::from(by_backend.0), "{by_backend:?}");
    // A response to a request that the client completes late costs the backend as little.
    let slow_upload = late_resets_in_a_minute(90, |client| {
        let stream = client.next_stream;
        client.next_stream += 2;
        client.send(&frame(HEADERS, END_HEADERS, stream, BLOCK));
        client.wait(Duration::from_millis(1));
        client.send(&frame(DATA, END_STREAM, stream, &[0]));
        client.answer(stream, 10);
    });
    assert!(earned(slow_upload) < 1.0, "{slow_upload:?}");
}

#[test]
fn sustained_resets_are_bounded_by_the_rate() {
    let forever = |per_second| late_resets_in_a_minute(per_second, |_| ()).0 == 60 * per_second;
    assert!(forever(20) && !forever(25));
}

#[test]
fn proxy_responses_earn_no_more_than_backends_gave() {
    let mut client = Client::new();
    let slow_by_proxy = |client: &mut Client| {
        let stream = client.request();
        client.wait(EARNING_TIME);
        client.answer_by_proxy(stream, 0);
    };
    let streams: Vec<u32> = (0..100).map(|_| client.request()).collect();
    client.guard.resets = Budget::new(client.now(), 0, 256);
    client.wait(HASTY_AGE * 2);
    streams.iter().for_each(|stream| client.reset(*stream));
    (0..100).for_each(|_| slow_by_proxy(&mut client));
    assert_eq!(client.guard.resets.missing(client.now()), 100.0);
    (0..10).for_each(|_| client.guard.on_backend_response());
    (0..100).for_each(|_| slow_by_proxy(&mut client));
    assert_eq!(client.guard.resets.missing(client.now()), 90.0);
}

/// Like Go's client with a caller that closes each body early.
#[test]
fn resets_behind_a_response_are_honest() {
    let mut client = Client::new();
    for _ in 0..50_000 {
        let stream = client.request();
        client.take(&frame(HEADERS, END_HEADERS, stream, BLOCK));
        client.reset(stream);
    }
    assert_eq!(client.verdict, Ok(()));
}

/// A gateway with 80 calls a second that all expire after a second.
#[test]
fn calls_abandoned_at_their_deadline_are_honest() {
    let mut client = Client::new();
    let mut open = std::collections::VecDeque::new();
    for _ in 0..80 * 60 {
        open.push_back(client.request());
        client.wait(Duration::from_secs(1) / 80);
        if open.len() > 80 {
            let expired = open.pop_front().unwrap();
            client.reset(expired);
        }
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn streams_beyond_those_allowed_are_not_held_against_a_client_that_did_not_know() {
    let mut client = Client::new();
    let streams: Vec<u32> = (0..250).map(|_| client.request()).collect();
    streams.iter().skip(128).for_each(|stream| client.take(&frame(RESET, 0, *stream, &[0, 0, 0, 7])));
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn a_connection_is_wary_after_a_few_resets_and_for_a_while() {
    let mut client = Client::new();
    let streams = [(); 8].map(|()| client.request());
    client.wait(Duration::from_millis(500));
    streams[..7].iter().for_each(|stream| client.reset(*stream));
    assert!(!client.guard.is_wary());
    client.reset(streams[7]);
    assert!(client.guard.is_wary());
    client.wait(Duration::from_millis(60));
    client.request();
    assert!(!client.guard.is_wary());
}

#[test]
fn a_backend_that_fails_is_not_held_against_the_client() {
    let mut client = Client::new();
    for _ in 0..100_000 {
        let stream = client.request();
        client.take(&frame(RESET, 0, stream, &[0, 0, 0, 2]));
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn floods_of_frames_that_ask_for_nothing_end_the_connection() {
    let floods: [(&str, Vec<u8>, u32); 12] = [
        ("ping", frame(PING, 0, 0, &[0; 8]), 500),
        ("answers to pings that nobody sent", frame(PING, ACK, 0, &[0; 8]), 1000),
        ("settings", frame(SETTINGS, 0, 0, &[]), 250),
        ("priority", frame(PRIORITY, 0, 1, &[0; 5]), 1000),
        ("priority updates", frame(PRIORITY_UPDATE, 0, 0, &[0; 5]), 1000),
        ("window updates", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), 1000),
        ("window updates of closed streams", frame(WINDOW_UPDATE, 0, 99, &[0, 0, 0, 0]), 1000),
        ("empty data", frame(DATA, 0, 1, &[]), 1000),
        ("data that is padding", frame(DATA, PADDED, 1, &[3, 0, 0, 0]), 1000),
        ("continuations of nothing", frame(CONTINUATION, 0, 1, &[]), 1000),
        ("headers of one stream again and again", frame(HEADERS, 0, 0, &[]), 1000),
        ("frames unknown", frame(0xee, 0xff, 7, &[1, 2, 3]), 1000),
    ];
    for (name, flood, most) in floods {
        let rounds = rounds_until(Abuse::ControlFrames, |client| client.send(&flood));
        assert!((most - 5..=most + 1).contains(&rounds), "{name}: {rounds}");
    }
}

#[test]
fn a_response_drawn_byte_by_byte_ends_the_connection() {
    let dribble = |client: &mut Client| {
        client.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
        client.take(&frame(DATA, 0, 1, &[0]));
    };
    assert!(rounds_until(Abuse::ControlFrames, dribble) <= 1001);
}

#[test]
fn connection_ends_when_frames_exceed_the_rate_for_long() {
    let mut client = Client::new();
    let mut seconds = 0;
    while client.verdict.is_ok() && seconds < 60 {
        // Three tenths above the rate, PING counting twice.
        for _ in 0..65 {
            client.send(&frame(PING, 0, 0, &[0; 8]));
        }
        client.wait(Duration::from_secs(1));
        seconds += 1;
    }
    assert!((30..=40).contains(&seconds), "{seconds}");
}

#[test]
fn responses_that_may_not_flow_end_the_connection() {
    let mut client = Client::new();
    client.send(&frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]));
    let stream = client.request();
    client.take(&frame(HEADERS, END_HEADERS, stream, BLOCK));
    let idle_timeout = Duration::from_secs(75);
    for (seconds, expected) in [(0, Ok(())), (149, Ok(())), (1, Err(Breach::Abuse(Abuse::Stall)))] {
        client.wait(Duration::from_secs(seconds));
        assert_eq!(client.guard.look(Timestamp::from_nanos(client.nanos), idle_timeout, 240), expected);
    }
}

#[test]
fn a_head_that_does_not_come_to_its_end_is_seen() {
    let mut client = Client::new();
    client.wait(Duration::from_secs(1));
    let begun = client.now();
    let whole = [frame(HEADERS, END_STREAM, 1, &BLOCK[..1]), frame(CONTINUATION, END_HEADERS, 1, &BLOCK[1..])].concat();
    for byte in &whole[..whole.len() - 1] {
        client.send(&[*byte]);
        client.wait(Duration::from_millis(100));
    }
    // Since the ninth byte, which completes the head.
    assert_eq!(client.guard.headers_since(), Some(begun + Duration::from_millis(800)));
    client.send(&whole[whole.len() - 1..]);
    assert_eq!(client.guard.headers_since(), None);
}

#[test]
fn client_breaks_the_protocol_when_it_does_not_begin_with_settings() {
    let firsts = [
        (frame(SETTINGS, 0, 0, &[]), Ok(())),
        (frame(SETTINGS, ACK, 0, &[]), Err(Breach::Protocol)),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK), Err(Breach::Protocol)),
        (frame(PING, 0, 0, &[0; 8]), Err(Breach::Protocol)),
    ];
    for (first, verdict) in firsts {
        let mut guard = Guard::new(Timestamp::ZERO, ALLOWANCE);
        assert_eq!(read(&mut guard, Timestamp::ZERO, &mut [PREFACE, &first].concat()), verdict, "{first:?}");
    }
}

#[test]
fn a_path_with_a_fragment_is_made_one_that_is_refused() {
    let mut client = Client::new();
    let sent = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x04\x04/a#b");
    let mut passed = sent.clone();
    assert_eq!(client.guard.on_read(client.now(), &mut passed), Ok(Passed { length: sent.len(), expects: None }));
    assert_eq!(passed, frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x04\x04/a>b"));
}

#[test]
fn only_trailers_may_not_have_pseudo_fields() {
    let mut client = Client::new();
    client.send(&frame(HEADERS, END_HEADERS, 1, BLOCK));
    assert_eq!(client.verdict, Ok(()));
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK));
    assert_eq!(client.verdict, Err(Breach::Protocol));
    assert_eq!(client.guard.farewell().map(|farewell| farewell[16]), Some(1));
}

#[test]
fn the_farewell_is_a_frame_of_its_own() {
    let mut guard = Guard::new(Timestamp::ZERO, ALLOWANCE);
    assert_eq!(guard.farewell(), None);
    guard.on_read(Timestamp::ZERO, &mut PREFACE.to_vec()).unwrap();
    guard.on_read(Timestamp::ZERO, &mut frame(SETTINGS, 0, 0, &[])).unwrap();
    guard.on_read(Timestamp::ZERO, &mut frame(HEADERS, 5, 0x0102_0305, BLOCK)).unwrap();
    let settings = frame(SETTINGS, 0, 0, &[0; 6]);
    guard.on_written_vectored(Timestamp::ZERO, &[IoSlice::new(&settings[..5]), IoSlice::new(&settings[5..])], 12);
    assert_eq!(guard.farewell(), None);
    guard.on_written(Timestamp::ZERO, &settings[12..]);
    let farewell = guard.farewell().unwrap();
    assert_eq!(&farewell[..], frame(7, 0, 0, &[1, 2, 3, 5, 0, 0, 0, 11]));
}

#[test]
fn client_gets_100_only_between_blocks_and_before_its_response() {
    let mut client = Client::new();
    for (stream, end) in [(1, 0), (3, END_STREAM), (5, 0), (7, 0)] {
        client.send(&frame(HEADERS, END_HEADERS | end, stream, BLOCK));
    }
    client.take(&frame(HEADERS, END_HEADERS, 5, BLOCK));
    client.reset(7);
    // One has sent all, one has its response, one is gone, and one never was.
    assert_eq!(client.guard.continues(&[1, 3, 5, 7, 9]), continue_frame(1));
    client.take(&frame(HEADERS, 0, 3, BLOCK));
    assert_eq!(client.guard.continues(&[1]), Vec::<u8>::new());
    client.take(&frame(CONTINUATION, END_HEADERS, 3, BLOCK));
    client.take(&frame(DATA, 0, 3, b"whole")[..10]);
    assert_eq!(client.guard.continues(&[1]), Vec::<u8>::new());
    client.take(b"hole");
    assert_eq!(client.guard.continues(&[1]), continue_frame(1));
    client.send(&frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0x0f, 0xff]));
    assert_eq!(client.guard.continues(&[1]), Vec::<u8>::new());
}

#[test]
fn bytes_behind_a_head_with_expect_are_read_later() {
    let mut client = Client::new();
    let first = frame(HEADERS, END_HEADERS, 1, b"\x83\x84\x63\x0c100-continue");
    let mut both = [&first[..], &frame(HEADERS, END_HEADERS | END_STREAM, 3, BLOCK)].concat();
    let passed = client.guard.on_read(client.now(), &mut both);
    assert_eq!(passed, Ok(Passed { length: first.len(), expects: Some(1) }));
    let passed = client.guard.on_read(client.now(), &mut both[first.len()..]);
    assert_eq!(passed, Ok(Passed { length: both.len() - first.len(), expects: None }));
}

#[test]
fn connection_has_ended_when_its_client_was_sent_an_error() {
    for (code, has_ended) in [(0, false), (1, true)] {
        let mut client = Client::new();
        client.take(&frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, code]));
        assert_eq!(client.guard.has_ended(), has_ended);
    }
}

/// As `h2load -c1 -m100`, at a million requests per second.
#[test]
fn many_small_requests_at_once_are_honest() {
    let mut client = Client::new();
    client.send(&frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0]));
    for _ in 0..2_000 {
        let streams: Vec<u32> = (0..100).map(|_| client.request()).collect();
        for stream in streams {
            client.answer(stream, 100);
        }
        client.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0x27, 0x10]));
        client.wait(Duration::from_micros(100));
    }
    assert_eq!(client.verdict, Ok(()));
}

/// As gRPC for Go, which sends a window update and a PING to data that come, and a client that
/// acknowledges each frame on its stream besides: 100,000 messages of ten bytes a second.
#[test]
fn a_stream_of_tiny_messages_is_honest() {
    let mut client = Client::new();
    let stream = client.request();
    client.take(&frame(HEADERS, END_HEADERS, stream, BLOCK));
    for _ in 0..200_000 {
        client.take(&frame(DATA, 0, stream, &[0; 15]));
        for updated in [0, stream] {
            client.send(&frame(WINDOW_UPDATE, 0, updated, &[0, 0, 0, 15]));
        }
        client.send(&frame(PING, 0, 0, &[0; 8]));
        client.take(&frame(PING, ACK, 0, &[0; 8]));
        client.send(&frame(DATA, 0, stream, &[0; 7]));
        client.wait(Duration::from_micros(10));
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn a_client_that_hedges_each_request_is_honest() {
    let mut client = Client::new();
    for _ in 0..50_000 {
        let (lost, won) = (client.request(), client.request());
        client.wait(EARNING_TIME + Duration::from_micros(1));
        client.answer(won, 50);
        client.reset(lost);
    }
    assert_eq!(client.verdict, Ok(()));
}

/// Frames of priority at the start, one more with each request, an unknown frame besides. Half of
/// the requests are abandoned when the page is left, and another page is opened at once.
#[test]
fn a_browser_that_leaves_pages_is_honest() {
    let mut client = Client::new();
    for stream in [3, 5, 7, 9, 11] {
        client.send(&frame(PRIORITY, 0, stream, &[0; 5]));
    }
    client.next_stream = 13;
    for _ in 0..50 {
        for _ in 0..2 {
            let streams: Vec<u32> = (0..128)
                .map(|_| {
                    let stream = client.request();
                    client.send(&frame(PRIORITY_UPDATE, 0, 0, &[0; 8]));
                    client.send(&frame(0x0b, 0, stream, b"grease"));
                    stream
                })
                .collect();
            // Nobody sees that it is the wrong page sooner.
            client.wait(Duration::from_millis(100));
            for (i, stream) in streams.into_iter().enumerate() {
                if i % 2 == 0 {
                    client.answer(stream, 1000);
                } else {
                    client.reset(stream);
                }
            }
        }
        client.wait(Duration::from_secs(2));
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn a_connection_that_is_only_kept_alive_is_honest_for_days() {
    let mut client = Client::new();
    for _ in 0..3 * 24 * 3600 {
        client.send(&frame(PING, 0, 0, &[0; 8]));
        client.wait(Duration::from_secs(1));
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn large_bodies_and_large_heads_are_honest() {
    let mut client = Client::new();
    for _ in 0..2_000 {
        let stream = client.request();
        for _ in 0..100 {
            client.send(&frame(DATA, 0, stream, &[0; 16_384]));
        }
        client.send(&frame(DATA, END_STREAM, stream, &[]));
        client.answer(stream, 100_000);
        client.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0x27, 0x10]));
        let stream = client.next_stream;
        client.next_stream += 2;
        client.send(&frame(HEADERS, END_STREAM, stream, &[0x90; 16_384]));
        for end in [0, 0, END_HEADERS] {
            client.send(&frame(CONTINUATION, end, stream, &[0x90; 16_384]));
        }
        client.answer(stream, 10);
    }
    assert_eq!(client.verdict, Ok(()));
}

#[test]
fn bytes_behind_a_breach_change_nothing_in_any_pieces() {
    // `expect: 100-continue` beside a field that has no name.
    let broken = frame(HEADERS, END_HEADERS, 1, b"\x82\x84\x0f\x14\x0c100-continue\x00\x00\x00");
    let unfinished = frame(HEADERS, 0, 3, BLOCK);
    for cut in [1, 7, broken.len(), broken.len() + unfinished.len()] {
        let mut client = Client::new();
        [&broken[..], &unfinished].concat().chunks(cut).for_each(|part| client.send(part));
        assert_eq!(client.verdict, Err(Breach::Protocol));
        assert_eq!(client.guard.headers_since(), Some(Timestamp::ZERO), "{cut}");
    }
}

proptest! {
    #[test]
    fn verdict_is_the_same_in_any_pieces(
        frames in prop::collection::vec((0_u8..12, any::<u8>(), 0_u32..6, prop::collection::vec(any::<u8>(), 0..20)), 0..1500),
        cut in 1_usize..60,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        let (mut whole, mut cut_up) = (Client::new(), Client::new());
        whole.send(&bytes);
        bytes.chunks(cut).for_each(|part| cut_up.send(part));
        prop_assert_eq!(whole.verdict, cut_up.verdict);
        prop_assert_eq!(whole.guard.headers_since(), cut_up.guard.headers_since());
    }

    /// A client stays, in any order of its actions: with at most two control frames per request,
    /// four per data frame, and half of its requests abandoned.
    #[test]
    fn a_client_within_its_means_stays(deeds in prop::collection::vec(0_u8..4, 1..2000)) {
        let mut client = Client::new();
        for deed in deeds {
            match deed {
                0 => {
                    let (back, stays) = (client.request(), client.request());
                    client.wait(EARNING_TIME + Duration::from_micros(1));
                    client.reset(back);
                    client.answer(stays, 0);
                }
                1 => {
                    let stream = client.request();
                    client.send(&frame(PRIORITY, 0, stream, &[0; 5]));
                    client.send(&frame(HEADERS, END_HEADERS, stream, TRAILERS));
                    client.answer(stream, 10);
                }
                2 => {
                    let stream = client.request();
                    client.take(&frame(DATA, 0, stream, &[0; 5]));
                    (0..2).for_each(|_| client.send(&frame(PING, 0, 0, &[0; 8])));
                }
                _ => client.wait(Duration::from_micros(1)),
            }
        }
        prop_assert_eq!(client.verdict, Ok(()));
    }
}

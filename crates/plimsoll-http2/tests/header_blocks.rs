//! The guard reads header blocks beside h2, and must never be out of step with it: whatever frames a client sends, no request
//! whose `:path` was sent with a fragment comes out of h2 when the guard has let the bytes pass.
//!
//! Each fragment stands behind a path of its own, so that a request that got through is known by what is left of its path. That
//! the tables are in step shows by names that are indexes: if h2 takes for `:path` what is another name for the guard, the
//! guard leaves its fragment alone.

#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::num::NonZeroU32;

use futures_util::FutureExt;
use plimsoll_core::Timestamp;
use plimsoll_http2::{Allowance, Guard};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0x20;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

const BAD: &str = "/bad";
const MANY: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// A literal field whose name is an index, kept or not.
fn named(index: u8, is_kept: bool, value: &[u8]) -> Vec<u8> {
    let (first, most) = if is_kept { (0x40, 0x3f) } else { (0, 0x0f) };
    let index = if index < most { vec![first | index] } else { vec![first | most, index - most] };
    [&index[..], value].concat()
}

fn text(of: &[u8]) -> Vec<u8> {
    [&[u8::try_from(of.len()).unwrap()][..], of].concat()
}

/// `/bad#x` and `/x` by Huffman code.
const CODED_BAD: &[u8] = &[0x86, 0x62, 0x31, 0xc9, 0xff, 0x5e, 0x7f];
const CODED_GOOD: &[u8] = &[0x82, 0x63, 0xcf];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => Just(text(b"/bad#x")),
        4 => Just(CODED_BAD.to_vec()),
        4 => Just(text(b"/x")),
        2 => Just(CODED_GOOD.to_vec()),
        1 => Just(text(b"")),
        // So that the table overflows.
        2 => (60_usize..127).prop_map(|length| text(&vec![b'v'; length])),
        // "0", many times, by Huffman code.
        2 => (5_u8..100).prop_map(|fives| [&[0x80 | fives][..], &vec![0; usize::from(fives)]].concat()),
    ]
}

/// The newest few of the dynamic table, and the path of the static one.
fn index() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(4_u8), 4 => 62_u8..68]
}

fn literal() -> impl Strategy<Value = Vec<u8>> {
    (index(), any::<bool>(), value()).prop_map(|(index, is_kept, value)| named(index, is_kept, &value))
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let spelled = |name: BoxedStrategy<&'static str>| {
        (name, any::<bool>(), value()).prop_map(|(name, is_kept, value)| {
            [&[if is_kept { 0x40 } else { 0 }][..], &text(name.as_bytes()), &value].concat()
        })
    };
    let usual = prop::sample::select(vec![":path", "x", "y-z", "color"]).boxed();
    let odd = prop::sample::select(vec!["", "", "", "upgrade", ":odd", "X"]).boxed();
    prop_oneof![
        20 => literal(),
        20 => spelled(usual),
        6 => spelled(odd),
        6 => index().prop_map(|index| vec![0x80 | index]),
        2 => (1_u8..62).prop_map(|index| vec![0x80 | index]),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ]
}

/// One block, and how it comes.
#[derive(Clone, Debug)]
struct Block {
    kind: u8,
    flags: u8,
    depends_on_itself: bool,
    /// Of the stream before.
    is_of_trailers: bool,
    /// To begin with, sizes of the table; for a request what it needs but for the path, and that or something else.
    fields: Vec<Vec<u8>>,
    /// Where it goes on in another frame: between two fields, or anywhere.
    cuts: Vec<(prop::sample::Index, bool)>,
    /// A frame in front.
    before: Vec<u8>,
}

fn block() -> impl Strategy<Value = Block> {
    let kind = prop_oneof![15 => Just(HEADERS), 1 => Just(PUSH_PROMISE)];
    let flags = prop_oneof![
        10 => Just(END_STREAM),
        3 => Just(0),
        1 => Just(END_STREAM | PADDED),
        2 => Just(END_STREAM | PRIORITIZED)
    ];
    let sizes = prop_oneof![
        20 => Just(Vec::new()),
        1 => Just(b"\x20\x3f\xe1\x1f".to_vec()),
        1 => Just(b"\x3f\xc0\x01".to_vec()),
        1 => Just(b"\x3f\xe1\x1f".to_vec()),
    ];
    let before = prop_oneof![
        20 => Just(Vec::new()),
        1 => Just(frame(PRIORITY, 0, 1, &[0; 5])),
        1 => Just(frame(UNKNOWN, 0xff, 1, b"\x82\x44\x06/bad#x")),
    ];
    let cut = any::<(prop::sample::Index, bool)>();
    let cuts = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(cut, 1..3)];
    let is = |share| prop::bool::weighted(share);
    let fields = (sizes, is(0.9), prop_oneof![3 => literal(), 1 => field()], prop::collection::vec(field(), 0..3));
    (kind, flags, is(0.3), is(0.1), fields, cuts, before).prop_map(
        |(kind, flags, depends_on_itself, is_of_trailers, (sizes, is_request, path, others), cuts, before)| {
            let request = if is_request { b"\x82\x86\x01\x01a".to_vec() } else { Vec::new() };
            let fields = [sizes, request, path].into_iter().chain(others).collect();
            Block { kind, flags, depends_on_itself, is_of_trailers, fields, cuts, before }
        },
    )
}

impl Block {
    fn frames(&self, next_stream: &mut u32) -> Vec<u8> {
        let stream = if self.is_of_trailers { next_stream.saturating_sub(2).max(1) } else { *next_stream };
        *next_stream = (*next_stream).max(stream + 2);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for field in &self.fields {
            bytes.extend(field);
            ends.push(bytes.len());
        }
        let at = |(cut, is_between): &(prop::sample::Index, bool)| {
            if *is_between { *cut.get(&ends) } else { cut.index(bytes.len() + 1) }
        };
        let mut cuts: Vec<usize> = self.cuts.iter().map(at).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let last = cuts.len() - 2;
        let mut frames = self.before.clone();
        for (i, cut) in cuts.windows(2).enumerate() {
            let part = &bytes[cut[0]..cut[1]];
            let ends = if i == last { END_HEADERS } else { 0 };
            frames.extend(match (i, self.kind) {
                (0, PUSH_PROMISE) => frame(PUSH_PROMISE, ends, stream, &[&[0, 0, 0, 2], part].concat()),
                (0, _) => {
                    let mut payload = if self.flags & PADDED != 0 { vec![3] } else { Vec::new() };
                    if self.flags & PRIORITIZED != 0 {
                        payload.extend(if self.depends_on_itself { stream } else { 0 }.to_be_bytes());
                        payload.push(9);
                    }
                    payload.extend(part);
                    payload.extend(if self.flags & PADDED != 0 { &b"\x04\x01#"[..] } else { b"" });
                    frame(HEADERS, self.flags | ends, stream, &payload)
                }
                _ => frame(CONTINUATION, ends, stream, part),
            });
        }
        if self.flags & END_STREAM == 0 {
            frames.extend(frame(DATA, 0, stream, b"body"));
        }
        frames
    }
}

/// The paths of the requests that h2 makes of these bytes.
async fn paths(bytes: Vec<u8>) -> Vec<String> {
    // Large enough for all that is sent, either way: nothing has to be waited for. It stays open, or h2 would have no requests.
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(&bytes).await.unwrap();
    let mut found = Vec::new();
    let Ok(mut connection) = h2::server::handshake(server).await else { return found };
    tokio::task::unconstrained(async {
        while let Some(Some(Ok((request, _answer)))) = connection.accept().now_or_never() {
            found.push(request.uri().to_string());
        }
    })
    .await;
    found
}

/// What the guard makes of it, as far as it lets it pass.
fn passed(frames: &[Vec<u8>]) -> Vec<u8> {
    let allowance = Allowance { max_streams: MANY, max_resets_per_second: MANY, max_control_frames_per_second: MANY };
    let mut guard = Guard::new(Timestamp::ZERO, allowance);
    let mut passed = Vec::new();
    for frame in frames {
        let mut frame = frame.clone();
        let mut length = 0;
        while length < frame.len() {
            match guard.on_read(Timestamp::ZERO, &mut frame[length..]) {
                Ok(read) => length += read.length,
                Err(_) => return passed,
            }
        }
        passed.extend(frame);
    }
    passed
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A connection with a few names in its table.
fn sent(blocks: &[Block]) -> Vec<Vec<u8>> {
    let kept: &[&[u8]] = &[
        b"\x82\x86\x01\x01a\x44\x01/",
        b"\x40\x01a\x011",
        b"\x40\x05:path\x01/",
        b"\x40\x01b\x011",
        b"\x40\x01c\x011",
    ];
    let first = frame(HEADERS, END_HEADERS | END_STREAM, 1, &kept.concat());
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &first].concat();
    let mut next_stream = 3;
    std::iter::once(begin).chain(blocks.iter().map(|block| block.frames(&mut next_stream))).collect()
}

fn are_bad(paths: &[String]) -> bool {
    paths.iter().any(|path| path.contains(BAD))
}

#[test]
fn without_the_guard_a_fragment_is_cut_off() {
    let request = |path: &[u8]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &[b"\x82\x86\x01\x01a\x04", path].concat());
    for path in [text(b"/bad#x"), CODED_BAD.to_vec()] {
        let frames = [[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat(), request(&path)];
        assert!(are_bad(&runtime().block_on(paths(frames.concat()))), "then this test shows nothing");
        assert_eq!(runtime().block_on(paths(passed(&frames))), [""; 0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_fragment_gets_past_both(blocks in prop::collection::vec(block(), 1..12)) {
        let found = runtime().block_on(paths(passed(&sent(&blocks))));
        prop_assert!(!are_bad(&found), "{found:?}");
    }
}

/// What h2 skips and goes on behind, so that its table is another one than its client's.
#[test]
fn guard_passes_nothing_that_h2_skips() {
    let kept = |fields: &[u8]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &[b"\x82\x86\x01\x01a", fields].concat());
    let bad = |index: u8| {
        frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            5,
            &[b"\x82\x86\x01\x01a", &named(index, false, &text(b"/bad#x"))[..]].concat(),
        )
    };
    let attacks = [
        // A field without a name, behind which the frame ends.
        vec![
            kept(b"\x44\x02/x"),
            frame(HEADERS, END_STREAM, 3, b"\x82\x86\x01\x01a\x40\x00\x00"),
            frame(CONTINUATION, END_HEADERS, 3, &named(62, false, &text(b"/bad#x"))),
        ],
        // A block that depends on itself.
        vec![
            kept(b"\x44\x02/x"),
            frame(
                HEADERS,
                END_HEADERS | END_STREAM | PRIORITIZED,
                3,
                b"\x00\x00\x00\x03\x09\x82\x86\x01\x01a\x04\x02/x\x40\x01y\x011",
            ),
            bad(62),
        ],
        // A promise that is malformed, so that only its stream ends.
        vec![
            kept(b"\x04\x02/x\x40\x01z\x011"),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x82\x86\x01\x01a\x44\x02/y"),
            frame(PUSH_PROMISE, END_HEADERS, 3, b"\x00\x00\x00\x02\x40\x01x\x011\x82"),
            bad(63),
        ],
    ];
    for attack in attacks {
        let frames = [vec![[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()], attack].concat();
        assert!(are_bad(&runtime().block_on(paths(frames.concat()))), "h2 does so no more: {frames:x?}");
        assert!(!are_bad(&runtime().block_on(paths(passed(&frames)))), "{frames:x?}");
    }
}

//! However a block is written and cut, the same is found in it, and nothing else of it is changed.

use proptest::prelude::*;

use super::*;
use crate::frames::tests::frame;
use crate::frames::{Kind, Piece, Walker};

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

/// The result of frames that come in pieces of `size` bytes; the stream's number selects trailers.
fn passed(sent: &[u8], size: usize) -> Result<Vec<u8>, Malformed> {
    let (mut walker, mut blocks) = (Walker::of_server(), HeaderBlocks::new());
    let mut passed = sent.to_vec();
    let mut ends = false;
    for piece in passed.chunks_mut(size) {
        let mut flips = Vec::new();
        blocks.on_read();
        for step in walker.walk(piece) {
            match step {
                Piece::Head { head, flags_at } => {
                    ends = head.is_end_of_headers();
                    match head.kind {
                        Kind::Headers => blocks.on_headers(head, flags_at, head.stream == TRAILERS),
                        _ => blocks.on_continuation(head),
                    }
                }
                Piece::Payload { bytes, at } => blocks.on_payload(bytes, at, &mut flips)?,
                Piece::End => blocks.on_end(ends)?,
            }
        }
        flips.into_iter().for_each(|flip| piece[flip.at] ^= flip.bits);
    }
    Ok(passed)
}

const TRAILERS: u32 = 99;

fn block(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, block)
}

/// The same, in any pieces; `expected` where something changes.
#[track_caller]
fn becomes(sent: &[u8], expected: Result<&[u8], Malformed>) {
    for size in [1, 2, 3, 7, sent.len()] {
        assert_eq!(passed(sent, size), expected.map(<[u8]>::to_vec), "in pieces of {size}");
    }
}

#[track_caller]
fn is_left_alone(sent: &[u8]) {
    becomes(sent, Ok(sent));
}

#[test]
fn a_fragment_in_a_path_is_found_however_it_is_written() {
    // The name by index, with or without being kept, never to be kept, and in letters.
    for name in [&b"\x44"[..], b"\x45", b"\x04", b"\x05", b"\x14", b"\x15", b"\x40\x05:path", b"\x00\x05:path"] {
        let sent = block(1, &[name, b"\x06/a#b#c"].concat());
        let expected = block(1, &[name, b"\x06/a>b#c"].concat());
        becomes(&sent, Ok(&expected));
    }
    // ":path" in Huffman code: 1011100 101011 00011 01001 100111, and three ones.
    let name = b"\x40\x84\xb9\x58\xd3\x3f";
    becomes(&block(1, &[&name[..], b"\x02/#"].concat()), Ok(&block(1, &[&name[..], b"\x02/>"].concat())));
}

/// CONNECT and lengths, in forms that name and value may have: letters, Huffman code, and an index
/// of a field that is kept.
const CONNECTS: [&[u8]; 3] = [b"\x42\x07CONNECT", b"\x02\x07CONNECT", b"\x00\x07:method\x07CONNECT"];
const LENGTHS: [&[u8]; 4] = [b"\x5c\x015", b"\x0f\x0d\x0210", b"\x00\x0econtent-length\x0205", b"\x5c\x82\x08\x3f"];

#[test]
fn connect_with_a_length_is_given_an_end_of_stream() {
    for (connect, length) in CONNECTS.into_iter().flat_map(|connect| LENGTHS.map(|length| (connect, length))) {
        let fields = [connect, b"\x01\x01a", length].concat();
        let sent = block(1, &fields);
        assert_eq!(passed(&sent, sent.len()), Ok(frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields)));
        // The flags are with h2 before the fields have come.
        assert_eq!(passed(&sent, 5), Err(Malformed));
        becomes(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields), Ok(&frame(HEADERS, 5, 1, &fields)));
    }
}

#[test]
fn connect_with_a_length_is_found_when_both_are_indices() {
    let first = block(1, b"\x42\x07CONNECT\x01\x01a");
    let second = block(3, b"\x83\x84\x01\x01a\x5c\x015");
    let third = |flags| frame(HEADERS, flags, 5, b"\xbf\x01\x01a\xbe");
    let sent = [&first[..], &second, &third(END_HEADERS)].concat();
    let expected = [&first[..], &second, &third(END_HEADERS | END_STREAM)].concat();
    assert_eq!(passed(&sent, sent.len()), Ok(expected));
}

#[test]
fn connect_without_a_length_and_others_with_one_are_left_alone() {
    for fields in [
        // A length of nothing, other methods, and look-alikes of CONNECT.
        &b"\x42\x07CONNECT\x01\x01a\x5c\x010"[..],
        b"\x42\x07CONNECT\x01\x01a\x5c\x00",
        b"\x83\x5c\x015",
        b"\x42\x08CONNECTX\x5c\x015",
        b"\x42\x08XCONNECT\x5c\x015",
        b"\x42\x06CONNEC\x5c\x015",
        b"\x42\x07connect\x5c\x015",
        b"\x42\x03PUT\x00\x0fcontent-lengthy\x015",
        b"\x42\x07CONNECT\x00\x06length\x015",
    ] {
        is_left_alone(&block(1, fields));
    }
}

#[test]
fn list_of_addresses_is_made_one_that_http_takes() {
    let takes = |authority: &[u8]| http::uri::Authority::try_from(authority).is_ok();
    for (sent, expected) in [
        (&b"10.0.0.1:80,10.0.0.2:81"[..], &b"10.0.0.1:80,10.0.0.2;81"[..]),
        (b"[::1]:80,[::2]:81,[::3]", b"[::1]:80,Z;;2~;81,Z;;3~"),
        (b"a:1,b:2,c", b"a:1,b;2,c"),
    ] {
        assert!(!takes(sent) && takes(expected));
        for name in [&b"\x41"[..], b"\x01", b"\x40\x0a:authority"] {
            let field = |value: &[u8]| block(1, &[b"\x82", name, &[value.len() as u8], value].concat());
            becomes(&field(sent), Ok(&field(expected)));
        }
    }
    is_left_alone(&block(1, b"\x82\x41\x0c[::1]:80,a,b"));
    is_left_alone(&block(1, b"\x82\x40\x01a\x07a:1,b:2"));
    // "a,b:" in Huffman code: 00011 11111010 100011 1011100, and ones; the colon becomes a B by its
    // last bit.
    becomes(&block(1, b"\x41\x84\x1f\xd4\x77\x3f"), Ok(&block(1, b"\x41\x84\x1f\xd4\x77\x7f")));
}

#[test]
fn request_with_expect_is_noted_however_it_is_written() {
    let expects = |fields: &[u8], is_of_trailers| {
        let mut blocks = HeaderBlocks::new();
        blocks.on_headers(Head::of(HEADERS, END_HEADERS, 1, fields.len()), None, is_of_trailers);
        blocks.on_payload(fields, 0, &mut Vec::new()).unwrap();
        blocks.expects()
    };
    for fields in [&b"\x82\x63\x0c100-continue"[..], b"\x82\x0f\x14\x01x", b"\x82\x00\x06expect\x01x", b"\x82\xa3"] {
        assert!(expects(fields, false), "{fields:?}");
    }
    assert!(!expects(b"\x82\x00\x07expects\x01x", false) && !expects(b"\x63\x01x", true));
}

#[test]
fn a_fragment_in_huffman_code_is_found_and_changed_by_its_last_bit() {
    // "/a#b" and "/a>b": 011000 00011 1111_1111_1010 (or 1011) 100011, and three ones.
    let sent = 0b0110_0000_0111_1111_1111_0101_0001_1111_u32;
    let expected = 0b0110_0000_0111_1111_1111_0111_0001_1111_u32;
    let with = |value: u32| block(1, &[&[0x44, 0x84][..], &value.to_be_bytes()].concat());
    becomes(&with(sent), Ok(&with(expected)));
}

#[test]
fn a_name_that_the_client_refers_to_is_known() {
    // Kept, the newest first: "x", ":path", "y".
    let kept = block(1, b"\x40\x01y\x011\x40\x05:path\x02/a\x40\x01x\x011");
    let later = |index: u8, value: &[u8]| block(3, &[&[0x0f, index - 15, 2][..], value].concat());
    becomes(&[&kept[..], &later(63, b"/#")].concat(), Ok(&[&kept[..], &later(63, b"/>")].concat()));
    is_left_alone(&[&kept[..], &later(62, b"/#")].concat());
    is_left_alone(&[&kept[..], &later(64, b"/#")].concat());
    becomes(&[&kept[..], &later(65, b"/#")].concat(), Err(Malformed));
    // Nothing is known any more once the table was empty.
    becomes(&[&kept[..], &block(3, b"\x20\x3f\xe1\x1f"), &later(63, b"/#")].concat(), Err(Malformed));
}

/// A Huffman-coded entry takes the space of its decoded text.
#[test]
fn room_in_the_table_is_that_of_the_decoded_text() {
    // A table of 80 bytes: ":path: /" takes 38. "y: 0000000000" takes 43 beside it, though coded in
    // 7 bytes.
    let beginning = b"\x3f\x31\x44\x01/";
    let coded = |zeros: u8, bytes: &[u8]| [&[0x40, 1, b'y', 0x80 | zeros][..], bytes].concat();
    let refers = block(3, b"\x0f\x30\x02/#");
    let nine = coded(6, &[0, 0, 0, 0, 0, 0b0000_0111]);
    let sent = [&block(1, &[&beginning[..], &nine].concat())[..], &refers].concat();
    let changed = block(3, b"\x0f\x30\x02/>");
    becomes(&sent, Ok(&[&block(1, &[&beginning[..], &nine].concat())[..], &changed].concat()));
    let ten = coded(7, &[0, 0, 0, 0, 0, 0, 0b0011_1111]);
    becomes(&[&block(1, &[&beginning[..], &ten].concat())[..], &refers].concat(), Err(Malformed));
}

#[test]
fn elsewhere_a_number_sign_is_one() {
    is_left_alone(&block(1, b"\x82\x84\x41\x03a#b\x73\x02#b\x40\x05color\x04#fff\x00\x06:paths\x01#"));
}

#[test]
fn padding_and_priority_are_not_of_the_block() {
    let padded =
        frame(HEADERS, END_HEADERS | PADDED | PRIORITIZED, 1, b"\x03\x00\x00\x00\x05\x10\x82\x04\x02/#\x04\x02#");
    let mut expected = padded.clone();
    expected[9 + 6 + 4] = b'>';
    becomes(&padded, Ok(&expected));
    becomes(&frame(HEADERS, END_HEADERS | PADDED, 1, b"\x03\x82\x84"), Err(Malformed));
    // It depends on itself, so that h2 does not read it.
    becomes(&frame(HEADERS, END_HEADERS | PRIORITIZED, 5, b"\x80\x00\x00\x05\x10\x82\x84"), Err(Malformed));
}

#[test]
fn pseudo_fields_are_not_of_trailers() {
    let kept = block(1, b"\x40\x01x\x011\x40\x05:path\x01/");
    for field in [&b"\x84"[..], b"\x81", b"\x8e", b"\xbe", b"\x04\x01/", b"\x40\x05:path\x01/", b"\x00\x02:x\x00"] {
        becomes(&[&kept[..], &block(TRAILERS, &[b"\xbf", field].concat())].concat(), Err(Malformed));
    }
    is_left_alone(&[&kept[..], &block(TRAILERS, b"\xbf\xbf")].concat());
    is_left_alone(&block(TRAILERS, b"\x90\x40\x03x:y\x011\x0f\x10\x02#1"));
}

/// h2 forgets it when the frame ends within a field.
#[test]
fn malformed_block_does_not_go_on_in_another_frame() {
    let faults = [&b"\x82\x84\x85"[..], b"\x82\x90\x84", b"\x82\x40\x07upgrade\x01x", b"\x82\x44\x01/\xbe"];
    for bad in faults {
        let first = frame(HEADERS, 0, 1, &[bad, b"\x00"].concat());
        becomes(&[first, frame(CONTINUATION, END_HEADERS, 1, b"\x01x\x01y")].concat(), Err(Malformed));
        is_left_alone(&block(1, bad));
    }
    let good = frame(HEADERS, 0, 1, b"\x82\x84\x00");
    is_left_alone(&[good, frame(CONTINUATION, END_HEADERS, 1, b"\x01x\x01y")].concat());
}

#[test]
fn unreadable_block_is_malformed() {
    let bad = [
        ("no index", &b"\x80"[..]),
        ("index of nothing", b"\xbe"),
        ("a name by the index of nothing", b"\x7e\x01a"),
        ("a number without end", b"\xff\x80\x80\x80\x80\x00"),
        ("a table larger than allowed", b"\x3f\xe2\x1f"),
        ("no value", b"\x44"),
        ("half a value", b"\x44\x05/a"),
        ("a field without a name", b"\x00\x00\x011"),
    ];
    for (what, bytes) in bad {
        assert_eq!(passed(&block(1, bytes), 1), Err(Malformed), "{what}");
    }
}

proptest! {
    #[test]
    fn block_gives_one_result_in_any_pieces(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x44), Just(b'#'), Just(0xff), 0_u8..8], 0..200),
        cuts in prop::collection::vec(0_usize..200, 0..4),
        size in 1_usize..40,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let last = cuts.len() - 2;
        let frames: Vec<Vec<u8>> = cuts.windows(2).enumerate().map(|(i, cut)| {
            let kind = if i == 0 { HEADERS } else { CONTINUATION };
            frame(kind, if i == last { END_HEADERS } else { 0 }, 1, &bytes[cut[0]..cut[1]])
        }).collect();
        let sent = frames.concat();
        let whole = passed(&sent, sent.len());
        prop_assert_eq!(passed(&sent, size), whole.clone());
        // Cut into frames it is the same block, but a malformed one must not go on in another.
        let in_one = passed(&block(1, &bytes), bytes.len() + 9);
        prop_assert!(in_one.is_ok() || whole.is_err());
        if let (Ok(whole), Ok(in_one)) = (whole, in_one) {
            let mut at = 0;
            let mut payloads: Vec<u8> = Vec::new();
            for frame in &frames {
                payloads.extend(&whole[at + 9..at + frame.len()]);
                at += frame.len();
            }
            prop_assert_eq!(&payloads, &in_one[9..]);
        }
    }
}

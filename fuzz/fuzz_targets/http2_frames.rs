//! The frames of an HTTP/2 connection: whatever comes, in whatever pieces, the same frames and the same verdict are found.
#![no_main]

use std::num::NonZeroU32;

use libfuzzer_sys::fuzz_target;
use plimsoll_core::Timestamp;
use plimsoll_http2::frames::{Head, Piece, Walker};
use plimsoll_http2::{Allowance, Breach, Guard};

const FEW: NonZeroU32 = NonZeroU32::new(3).expect("not zero");
const ALLOWANCE: Allowance =
    Allowance { max_streams: FEW, max_resets_per_second: FEW, max_control_frames_per_second: FEW };

/// Heads and lengths of payloads as far as they came.
fn frames<'b>(mut walker: Walker, pieces: impl Iterator<Item = &'b [u8]>) -> Vec<(Head, usize)> {
    let mut found: Vec<(Head, usize)> = Vec::new();
    let mut is_open = false;
    for piece in pieces {
        for step in walker.walk(piece) {
            match step {
                Piece::Head { head, .. } => {
                    assert!(!std::mem::replace(&mut is_open, true));
                    found.push((head, 0));
                }
                Piece::Payload { bytes, at } => {
                    let (head, length) = found.last_mut().expect("a payload follows a head");
                    *length += bytes.len();
                    assert!(!bytes.is_empty() && *length <= head.length as usize);
                    assert_eq!(bytes, &piece[at..at + bytes.len()]);
                }
                Piece::End => {
                    assert!(std::mem::replace(&mut is_open, false));
                    assert!(found.last().is_some_and(|(head, length)| *length == head.length as usize));
                }
            }
        }
    }
    found
}

/// Reads all, also behind heads with `expect`.
fn read_all(guard: &mut Guard, mut bytes: &mut [u8]) -> Result<(), Breach> {
    while !bytes.is_empty() {
        let passed = guard.on_read(Timestamp::ZERO, bytes)?;
        assert!(passed.length > 0 && (passed.length == bytes.len() || passed.expects.is_some()));
        bytes = &mut bytes[passed.length..];
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    let (read, written) = data.split_at(data.len() / 2);
    let size = usize::from(cut).max(1);
    for walker in [Walker::of_client(), Walker::of_server()] {
        let whole = frames(walker.clone(), [read].into_iter());
        assert_eq!(frames(walker, read.chunks(size)), whole);
    }
    let (mut guard, mut other) = (Guard::new(Timestamp::ZERO, ALLOWANCE), Guard::new(Timestamp::ZERO, ALLOWANCE));
    let (mut passed, mut passed_in_pieces) = (read.to_vec(), read.to_vec());
    let verdict = read_all(&mut guard, &mut passed);
    let mut other_verdict = Ok(());
    passed_in_pieces.chunks_mut(size).for_each(|piece| other_verdict = read_all(&mut other, piece));
    if verdict.is_ok() && other_verdict == Err(Breach::Protocol) {
        // CONNECT with a length and flags that came in an earlier piece.
        return;
    }
    assert_eq!((verdict, passed), (other_verdict, passed_in_pieces));
    guard.on_written(Timestamp::ZERO, written);
    written.chunks(size).for_each(|piece| other.on_written(Timestamp::ZERO, piece));
    assert_eq!(guard.farewell(), other.farewell());
    assert_eq!(guard.headers_since(), other.headers_since());
});

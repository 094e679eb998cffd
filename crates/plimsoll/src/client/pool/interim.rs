//! A bound on the interim responses (1xx) to one request over HTTP/2.
//!
//! h2 passes over interim responses without a word, and hyper does not count them. A backend that
//! sends them without end keeps its request waiting, and the thread that reads them busy. Over
//! HTTP/1 the exchange counts them; here the frames are counted as they are read. No header block
//! is decoded for that. A HEADERS frame without END_STREAM is an interim head or the final one,
//! since trailers end their stream. So more of them on one stream than interim responses are
//! allowed, and one, are too many.

use std::collections::HashMap;
use std::io;

use super::windows;
use crate::client::http1::MAX_INTERIM;

const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;

/// Heads without end that each stream of a connection has had.
#[derive(Default)]
pub(super) struct Interim {
    /// The head of a frame, as far as it was read.
    head: [u8; FRAME_HEAD],
    read: usize,
    /// Bytes of its payload that are still to come.
    payload: usize,
    heads: HashMap<u32, u8>,
}

impl Interim {
    /// Takes in the bytes read next; an error if a stream has too many heads.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let passed = self.payload.min(bytes.len());
                self.payload -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let taken = (FRAME_HEAD - self.read).min(bytes.len());
            self.head[self.read..self.read + taken].copy_from_slice(&bytes[..taken]);
            (self.read, bytes) = (self.read + taken, &bytes[taken..]);
            if self.read == FRAME_HEAD {
                self.read = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    fn frame(&mut self) -> io::Result<()> {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream);
        let is_end = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if is_end || kind == RST_STREAM {
            self.heads.remove(&stream);
        } else if kind == HEADERS {
            if self.heads.len() >= windows::MAX_STREAMS as usize {
                // Streams that this side reset stay in it.
                self.heads.clear();
            }
            let heads = self.heads.entry(stream).or_default();
            *heads += 1;
            if *heads > MAX_INTERIM + 1 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many interim responses"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        frame.extend(payload);
        frame
    }

    /// The bytes in pieces of each size: whether all of them pass.
    fn passes(bytes: &[u8]) -> bool {
        let passes_in = |size| {
            let mut interim = Interim::default();
            bytes.chunks(size).all(|piece| interim.read(piece).is_ok())
        };
        let passes = passes_in(bytes.len());
        assert!((1..20).all(|size| passes_in(size) == passes), "it depends on the pieces");
        passes
    }

    #[test]
    fn as_many_interim_responses_pass_as_over_http1() {
        let head = |stream| frame(HEADERS, 4, stream, &[1, 2, 3]);
        let most = usize::from(MAX_INTERIM) + 1;
        assert!(passes(&head(1).repeat(most)));
        assert!(!passes(&head(1).repeat(most + 1)));
        // Each on a stream of its own, or after one of the same number has ended.
        assert!(passes(&[head(1), head(3)].concat().repeat(most)));
        for end in [frame(DATA, END_STREAM, 1, &[9; 30]), frame(HEADERS, 5, 1, &[]), frame(RST_STREAM, 0, 1, &[0; 4])] {
            assert!(passes(&[head(1), end].concat().repeat(3 * most)));
        }
        // Bytes in a payload that look like frames are none.
        assert!(passes(&frame(DATA, 0, 1, &head(1).repeat(10)).repeat(9)));
    }

    #[test]
    fn streams_that_never_end_take_bounded_memory() {
        let mut interim = Interim::default();
        for stream in (1..200_001_u32).step_by(2) {
            let [a, b, c, d] = stream.to_be_bytes();
            interim.read(&[0, 0, 0, HEADERS, 4, a, b, c, d]).expect("one each");
        }
        assert!(interim.heads.len() <= windows::MAX_STREAMS as usize);
    }
}

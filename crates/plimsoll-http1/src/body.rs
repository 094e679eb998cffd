//! The body of a message, out of the bytes that follow its head.
//!
//! Data comes out in the pieces in which it went in, without being copied; chunk framing and trailers are read here. What
//! is not data is bounded: a client may send a gigabyte, but not a gigabyte of chunk extensions or trailers, which
//! cost a receiver more than they cost the sender.

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;

use crate::scan::{Limits, Scan};
use crate::{Fault, Framing, Origin, fields};

/// The longest line with the size of a chunk. Extensions are hardly used; the longest known are signatures of some 100
/// bytes.
const MAX_CHUNK_LINE: usize = 1024;

/// By how many bytes the chunk extensions of a body may outweigh its data, as Go allows: who sends one byte and a long
/// extension with each chunk makes work and nothing else, but a signature with each large chunk is fine.
const MAX_EXTENSIONS: u64 = 16 * 1024;

/// The section with the trailers, which nobody asks to set: gRPC's status and message are among the longest there are.
const TRAILER_LIMITS: Limits = Limits { max_size: 16 * 1024, max_fields: 100, max_target: 0 };

/// A piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Some of its data, never empty.
    Data(Bytes),
    /// What stands after its data. The last piece.
    Trailers(HeaderMap),
}

/// Takes the body of one message out of the bytes of its connection.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    origin: Origin,
    /// Bytes of extensions that no data made up for.
    extensions: u64,
}

#[derive(Clone, Debug)]
enum State {
    Length(u64),
    /// The line with a chunk's size is next.
    Size,
    Chunk(u64),
    /// The line end after a chunk's data is next.
    ChunkEnd,
    Trailers(Scan),
    UntilClose,
    Done,
    /// Where the body goes on, or ends, is not known any more.
    Broken(Fault),
}

impl Decoder {
    /// For a body that `origin` sends and that is delimited by `framing`.
    #[must_use]
    pub fn new(framing: Framing, origin: Origin) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, origin, extensions: 0 }
    }

    /// Whether the body is whole: what comes on the connection now is no part of it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Bytes that are still to come, as far as that is known.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Takes the next piece off the front of `buf`. `None`: the body is done, or more bytes are needed.
    ///
    /// # Errors
    /// What is wrong with its framing; from then on always, whatever comes. The connection is of no more use then.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Piece>, Fault> {
        self.advance(buf).inspect_err(|fault| self.state = State::Broken(*fault))
    }

    fn advance(&mut self, buf: &mut BytesMut) -> Result<Option<Piece>, Fault> {
        loop {
            match &mut self.state {
                State::Done => return Ok(None),
                State::Broken(fault) => return Err(*fault),
                State::UntilClose => return Ok(take(buf, u64::MAX).map(Piece::Data)),
                State::Length(left) => {
                    let Some(data) = take(buf, *left) else { return Ok(None) };
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    return Ok(Some(Piece::Data(data)));
                }
                State::Chunk(left) => {
                    let Some(data) = take(buf, *left) else { return Ok(None) };
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                    return Ok(Some(Piece::Data(data)));
                }
                State::ChunkEnd => match &buf[..] {
                    [b'\r', b'\n', ..] => {
                        buf.advance(2);
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(Fault::Chunk),
                },
                State::Size => match self.size(buf)? {
                    None => return Ok(None),
                    Some(0) => self.state = State::Trailers(Scan::default()),
                    Some(size) => self.state = State::Chunk(size),
                },
                State::Trailers(scan) => {
                    // The scan takes a head, which has a line before its fields: here there is none.
                    let trailers = trailers(buf, scan, self.origin)?;
                    if trailers.is_some() {
                        self.state = State::Done;
                    }
                    return Ok(trailers.filter(|trailers| !trailers.is_empty()).map(Piece::Trailers));
                }
            }
        }
    }

    /// The connection has ended, and so has the body.
    ///
    /// # Errors
    /// When it was not whole.
    pub fn end_of_input(&mut self) -> Result<(), Fault> {
        match self.state {
            State::Done | State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Broken(fault) => Err(fault),
            _ => Err(Fault::CutOff),
        }
    }

    /// The size of the next chunk, off the front of `buf` with its line.
    fn size(&mut self, buf: &mut BytesMut) -> Result<Option<u64>, Fault> {
        let window = &buf[..buf.len().min(MAX_CHUNK_LINE)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            // The shortest line that is wrong is told apart from the longest that is not whole.
            let digits = window.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let is_size = digits > 0 && window.get(digits).is_none_or(|byte| b";\r \t".contains(byte));
            let may_go_on = window.is_empty() || is_size && digits <= 16;
            return if may_go_on && buf.len() < MAX_CHUNK_LINE { Ok(None) } else { Err(Fault::Chunk) };
        };
        let line = window[..end].strip_suffix(b"\r").ok_or(Fault::Chunk)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, rest) = line.split_at(digits);
        let rest_is_good = match self.origin {
            Origin::Client => rest.is_empty() || rest.trim_ascii_start().first() == Some(&b';'),
            // Some servers fill the size up to a fixed width.
            Origin::Backend => rest.trim_ascii().first().is_none_or(|byte| *byte == b';'),
        };
        let has_control = rest.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
        if !(1..=16).contains(&digits) || !rest_is_good || has_control || !quotes_close(rest) {
            return Err(Fault::Chunk);
        }
        let size = size.iter().fold(0_u64, |sum, digit| sum << 4 | u64::from(hex(*digit)));
        self.extensions += rest.trim_ascii().len() as u64;
        if self.extensions > MAX_EXTENSIONS {
            return Err(Fault::Chunk);
        }
        self.extensions = self.extensions.saturating_sub(size);
        buf.advance(end + 1);
        Ok(Some(size))
    }
}

/// Whether the quoted strings of an extension end in its line: one that does not would go on after the line's end to those
/// who look for its quote first.
fn quotes_close(extension: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for byte in extension {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    !is_quoted
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn take(buf: &mut BytesMut, most: u64) -> Option<Bytes> {
    if buf.is_empty() {
        return None;
    }
    let len = usize::try_from(most).map_or(buf.len(), |most| most.min(buf.len()));
    Some(if len == buf.len() { std::mem::take(buf).freeze() } else { buf.split_to(len).freeze() })
}

fn trailers(buf: &mut BytesMut, scan: &mut Scan, origin: Origin) -> Result<Option<HeaderMap>, Fault> {
    let Some(len) = scan.trailers_len(buf, &TRAILER_LIMITS, origin).map_err(|_| Fault::Trailers)? else {
        return Ok(None);
    };
    let section = buf.split_to(len).freeze();
    let (mut map, _) = fields::read(&section, 0, TRAILER_LIMITS.max_fields).map_err(|_| Fault::Trailers)?;
    fields::strip_forbidden_trailers(&mut map);
    Ok(Some(map))
}

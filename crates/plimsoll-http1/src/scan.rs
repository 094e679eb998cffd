//! Finds where a head ends, over as many reads as it takes, looking at each byte once.
//!
//! The empty line is all that is looked for, and on the way that lines end as they must: so a head with bare line feeds is
//! refused as soon as one is seen, and not after a wait for an end that would be read in two ways.

use bytes::{Buf as _, BytesMut};
use memchr::{memchr, memchr_iter};

use crate::method::MAX_METHOD;
use crate::{Fault, Origin};

/// How large a head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The whole head, in bytes.
    pub max_size: usize,
    /// Fields in it.
    pub max_fields: usize,
    /// The target of a request, in bytes.
    pub max_target: usize,
}

/// Empty lines that are passed over before a request: RFC 9112 (2.2) asks for one at least, for the sake of clients that
/// end a body with one line end too many.
const MAX_EMPTY_LINES: u8 = 2;

/// The longest method, version and line end with their spaces, beside the target.
const REST_OF_LINE: usize = MAX_METHOD + "  HTTP/1.1\r\n".len();

/// How far the search for the end of a head has come.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Bytes that were looked at.
    seen: usize,
    /// Whole lines among them.
    lines: usize,
    /// Where the last of them ended.
    line_start: usize,
    empty_lines: u8,
}

impl Scan {
    /// Length of the head at the front of `buf`, its empty line included; `None` when more bytes are needed.
    pub(crate) fn head_len(
        &mut self,
        buf: &mut BytesMut,
        limits: &Limits,
        origin: Origin,
    ) -> Result<Option<usize>, Fault> {
        if self.seen == 0 && origin == Origin::Client && !self.skip_empty_lines(buf)? {
            return Ok(None);
        }
        self.section_len(buf, limits, origin)
    }

    /// Length of the trailers at the front of `buf`, their empty line included; `None` when more bytes are needed.
    pub(crate) fn trailers_len(
        &mut self,
        buf: &BytesMut,
        limits: &Limits,
        origin: Origin,
    ) -> Result<Option<usize>, Fault> {
        // The line before the fields has been: it was that of the last chunk.
        self.lines = self.lines.max(1);
        self.section_len(buf, limits, origin)
    }

    fn section_len(&mut self, buf: &BytesMut, limits: &Limits, origin: Origin) -> Result<Option<usize>, Fault> {
        if self.lines == 0 && origin == Origin::Client && !self.pass_request_line(buf, limits)? {
            return Ok(None);
        }
        // What lies beyond is not looked at: the first fault is the one that is told, however the bytes came.
        let end = buf.len().min(limits.max_size);
        let begin = self.seen.min(end);
        for at in memchr_iter(b'\n', &buf[begin..end]).map(|at| begin + at) {
            if self.pass_line(buf, at, origin)? {
                let len = self.seen;
                *self = Self::default();
                return Ok(Some(len));
            }
        }
        self.seen = self.seen.max(end);
        if buf.len() < limits.max_size { Ok(None) } else { Err(Fault::HeadTooLarge) }
    }

    /// Passes the first line of a request, which has a limit of its own; says whether it is whole.
    fn pass_request_line(&mut self, buf: &BytesMut, limits: &Limits) -> Result<bool, Fault> {
        let max_line = limits.max_target.saturating_add(REST_OF_LINE);
        let bound = limits.max_size.min(max_line);
        let end = buf.len().min(bound);
        let begin = self.seen.min(end);
        match memchr(b'\n', &buf[begin..end]) {
            Some(at) => self.pass_line(buf, begin + at, Origin::Client).map(|_| true),
            None if buf.len() < bound => {
                self.seen = end;
                Ok(false)
            }
            None if buf[..end].get(..=MAX_METHOD).is_some_and(|start| !start.contains(&b' ')) => {
                Err(Fault::MethodTooLong)
            }
            None => Err(if max_line < limits.max_size { Fault::TargetTooLong } else { Fault::HeadTooLarge }),
        }
    }

    /// Passes the line that ends with the line feed at `at`; says whether it is empty.
    fn pass_line(&mut self, buf: &[u8], at: usize, origin: Origin) -> Result<bool, Fault> {
        let has_return = at > self.line_start && buf[at - 1] == b'\r';
        if !has_return && origin == Origin::Client {
            return Err(Fault::BareLineFeed);
        }
        let is_empty = at == self.line_start + usize::from(has_return);
        self.seen = at + 1;
        self.line_start = self.seen;
        self.lines += 1;
        Ok(is_empty)
    }

    /// Whether what a request begins with is there, now at the front of `buf`.
    fn skip_empty_lines(&mut self, buf: &mut BytesMut) -> Result<bool, Fault> {
        while buf.starts_with(b"\r\n") {
            self.empty_lines += 1;
            if self.empty_lines > MAX_EMPTY_LINES {
                return Err(Fault::StartLine);
            }
            buf.advance(2);
        }
        // What is no HTTP at all (a TLS hello, noise) is known by its first byte, and not waited for.
        match buf.first() {
            None => Ok(false),
            Some(b'\r') if buf.len() == 1 => Ok(false),
            Some(b'\n') => Err(Fault::BareLineFeed),
            Some(byte) if crate::fields::is_token_byte(*byte) => Ok(true),
            Some(_) => Err(Fault::StartLine),
        }
    }
}

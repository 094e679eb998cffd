//! Fields of a head: from bytes into a map, and the lists that some of their values are.

use bytes::Bytes;
use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::{Fault, names};

/// Fields for which no memory has to be asked for; browsers send about 20.
const INLINE: usize = 32;

/// Fields that whoever passes a message on adds to it (where it came from, and by whom), for which the map need not grow.
const ROOM: usize = 4;

/// The bytes of a token (RFC 9110, 5.6.2).
static TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = may_be_in_token(byte as u8);
        byte += 1;
    }
    table
};

/// Whether a byte may stand in a token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

const fn may_be_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// Which of the fields are there that decide about a message: most of them seldom are, and to look for each costs more than to
/// note what passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present {
    pub(crate) connection: bool,
    pub(crate) content_length: bool,
    /// More than once.
    pub(crate) content_lengths: bool,
    pub(crate) transfer_encoding: bool,
    pub(crate) expect: bool,
    pub(crate) upgrade: bool,
}

impl Present {
    fn note(&mut self, name: &HeaderName) {
        match name.as_str().len() {
            6 => self.expect |= *name == header::EXPECT,
            7 => self.upgrade |= *name == header::UPGRADE,
            10 => self.connection |= *name == header::CONNECTION,
            14 if *name == header::CONTENT_LENGTH => {
                self.content_lengths = self.content_length;
                self.content_length = true;
            }
            17 => self.transfer_encoding |= *name == header::TRANSFER_ENCODING,
            _ => {}
        }
    }
}

/// Reads the field lines that begin at `start` of `head` and go on to its end. Values share its memory.
pub(crate) fn read(head: &Bytes, start: usize, max_fields: usize) -> Result<(HeaderMap, Present), Fault> {
    let mut inline = [httparse::EMPTY_HEADER; INLINE];
    match lines(&head[start..], &mut inline[..INLINE.min(max_fields)]) {
        Err(Fault::TooManyFields) if max_fields > INLINE => {
            // The shortest field is a letter, a colon and a line end.
            let mut heap = vec![httparse::EMPTY_HEADER; max_fields.min(head.len() / 3)];
            into_map(head, lines(&head[start..], &mut heap)?)
        }
        lines => into_map(head, lines?),
    }
}

fn lines<'b: 'h, 'h>(
    bytes: &'b [u8],
    room: &'h mut [httparse::Header<'b>],
) -> Result<&'h [httparse::Header<'b>], Fault> {
    match httparse::parse_headers(bytes, room) {
        // What stands after an empty line is not this message's.
        Ok(httparse::Status::Complete((read, fields))) if read == bytes.len() => Ok(fields),
        Err(httparse::Error::TooManyHeaders) => Err(Fault::TooManyFields),
        Ok(_) | Err(_) => Err(Fault::Field),
    }
}

fn into_map(head: &Bytes, lines: &[httparse::Header<'_>]) -> Result<(HeaderMap, Present), Fault> {
    let mut present = Present::default();
    let mut map = HeaderMap::try_with_capacity(lines.len() + ROOM).map_err(|_| Fault::TooManyFields)?;
    names::with_known(|names| {
        for line in lines {
            let name = names.of(line.name.as_bytes()).ok_or(Fault::Field)?;
            present.note(&name);
            // An empty slice may point anywhere.
            let value = if line.value.is_empty() { Bytes::new() } else { head.slice_ref(line.value) };
            let value = HeaderValue::from_maybe_shared(value).map_err(|_| Fault::Field)?;
            map.try_append(name, value).map_err(|_| Fault::TooManyFields)?;
        }
        Ok((map, present))
    })
}

/// The members of a field that is a list of tokens, over all its lines, without blanks and without empty ones.
pub(crate) fn list<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// Whether a field means nothing, or mischief, where it comes too late to be acted on: framing, routing, conditions,
/// authentication, what the content is, how the response is to be handled (RFC 9110, 6.5.1). Some programs put trailers among
/// the other fields, so what a proxy says there about the client must not be said in a trailer by the client itself.
pub(crate) fn is_forbidden_trailer(name: &HeaderName) -> bool {
    let name = name.as_str();
    #[rustfmt::skip]
    let is_listed = matches!(
        name,
        "connection" | "content-length" | "host" | "keep-alive" | "proxy-connection" | "te" | "trailer"
            | "transfer-encoding" | "upgrade"
            | "cache-control" | "expect" | "if-match" | "if-modified-since" | "if-none-match" | "if-range"
            | "if-unmodified-since" | "max-forwards" | "pragma" | "range"
            | "authorization" | "cookie" | "proxy-authenticate" | "proxy-authorization" | "set-cookie" | "www-authenticate"
            | "content-encoding" | "content-range" | "content-type"
            | "age" | "date" | "expires" | "location" | "retry-after" | "vary" | "warning"
            | "forwarded" | "via" | "x-real-ip"
    );
    is_listed || is_claim(name)
}

/// Whether a field says who a client is, to some reader: those that hand fields on as variables take underscores for dashes.
fn is_claim(name: &str) -> bool {
    let is_same = |byte: u8, wanted: u8| byte == wanted || byte == b'_' && wanted == b'-';
    let begins_as = |prefix: &str| {
        name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(|(byte, wanted)| is_same(byte, wanted))
    };
    begins_as("x-forwarded") || begins_as("x-real-ip") || begins_as("forwarded")
}

/// Drops what may not be a trailer (RFC 9110, 6.5.1). Dropped and not refused, as a recipient may: nothing acts on it.
pub fn strip_forbidden_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<HeaderName> = trailers.keys().filter(|name| is_forbidden_trailer(name)).cloned().collect();
    for name in &forbidden {
        trailers.remove(name);
    }
}

/// Whether fields that came over HTTP/2 are valid: h2 accepts a quote in a name, and blanks around a value. HTTP/1 has no such fields,
/// and a strict peer takes a message with them for malformed (RFC 9113, 8.2.1).
#[must_use]
pub fn are_valid(fields: &HeaderMap) -> bool {
    let is_valid = |(name, value): (&HeaderName, &HeaderValue)| {
        !name.as_str().contains('"') && value.as_bytes().trim_ascii().len() == value.len()
    };
    fields.iter().all(is_valid)
}

/// Leaves one line of a field that says the same in all of them.
pub(crate) fn keep_first(headers: &mut HeaderMap, name: &HeaderName) {
    if let Some(first) = headers.get(name).cloned() {
        headers.insert(name, first);
    }
}

/// Whether the sender wants to go on with the connection (RFC 9112, 9.3).
pub(crate) fn keep_alive(headers: &HeaderMap, present: Present, version: Version) -> bool {
    if !present.connection {
        return version == Version::HTTP_11;
    }
    // Nearly every `Connection` says this and nothing else.
    if headers.get_all(header::CONNECTION).iter().all(|line| line.as_bytes().eq_ignore_ascii_case(b"keep-alive")) {
        return true;
    }
    let stays = version == Version::HTTP_11 || has_connection_option(headers, "keep-alive");
    stays && !has_connection_option(headers, "close")
}

/// Whether `Connection` lists `option`.
pub(crate) fn has_connection_option(headers: &HeaderMap, option: &str) -> bool {
    list(headers, &http::header::CONNECTION).any(|member| member.eq_ignore_ascii_case(option.as_bytes()))
}

//! The trace of a request: the fields `traceparent` and `tracestate`.
//!
//! The format is W3C Trace Context, level 1 and the random flag of level 2:
//!
//! ```text
//! traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//!              version   trace id (not zero)         span id (not 0)  flags: 1 sampled, 2 random
//! ```
//!
//! A malformed field counts as none, and so do two of them: which one a service behind would read is
//! anybody's guess. Without a trace `tracestate` has no meaning. A later version is read as far as
//! version 00 goes, and written as 00. `tracestate` belongs to the services before, and goes on
//! unread.

use std::fmt;

use http::{HeaderMap, HeaderValue};
use plimsoll_core::trace::{Flags, SpanId, TraceContext, TraceId};

use crate::headers::{TRACEPARENT, TRACESTATE};

/// Length of the field in version 00.
const LEN: usize = 55;
const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;
/// Bytes of `tracestate` that every service passes on (W3C, 3.3.1.5), and its members.
const MAX_STATE: usize = 512;
const MAX_MEMBERS: usize = 32;

/// A trace that cannot be read: a malformed field, or two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("traceparent is malformed or repeated")
    }
}

impl std::error::Error for Unreadable {}

/// The trace of a request with these headers; `None` if it has none.
///
/// # Errors
/// It has one that cannot be read, and counts as having none.
pub fn read(headers: &HeaderMap) -> Result<Option<TraceContext>, Unreadable> {
    let mut fields = headers.get_all(TRACEPARENT).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    match fields.next() {
        None => parse(field.as_bytes()).map(Some).ok_or(Unreadable),
        Some(_) => Err(Unreadable),
    }
}

/// Reads the value of `traceparent`.
#[must_use]
pub fn parse(field: &[u8]) -> Option<TraceContext> {
    let (head, rest) = field.split_at_checked(LEN)?;
    let dashes = [2, 35, 52].map(|at| head[at]);
    let version = hex(&head[..2])?;
    let is_whole = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.first().is_none_or(|next| *next == b'-'),
    };
    if dashes != [b'-'; 3] || !is_whole {
        return None;
    }
    let flags = hex(&head[53..])? as u8;
    Some(TraceContext {
        trace: TraceId::new(hex(&head[3..35])?)?,
        span: SpanId::new(hex(&head[36..52])? as u64)?,
        flags: Flags { is_sampled: flags & SAMPLED != 0, is_random: flags & RANDOM != 0 },
    })
}

/// A number in lower-case hexadecimal digits, at most 32.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// The value of `traceparent`.
#[must_use]
pub fn format(context: TraceContext) -> HeaderValue {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    let Flags { is_sampled, is_random } = context.flags;
    write_hex(&mut text[3..35], &context.trace.bits().to_be_bytes());
    write_hex(&mut text[36..52], &context.span.bits().to_be_bytes());
    text[54] = b'0' + u8::from(is_sampled) * SAMPLED + u8::from(is_random) * RANDOM;
    HeaderValue::from_bytes(&text).expect("digits and dashes are a value")
}

fn write_hex(into: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in into.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
}

/// Writes the trace of a request in place of the one that it came with.
pub fn write(headers: &mut HeaderMap, context: TraceContext) {
    headers.insert(TRACEPARENT, format(context));
}

/// Removes the trace of a request.
pub fn remove(headers: &mut HeaderMap) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
}

/// The value of `tracestate`, joined if it is spread over several fields. `None` without one, and if
/// it is longer than services must keep.
#[must_use]
pub fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut fields = headers.get_all(TRACESTATE).iter().filter(|field| !field.is_empty());
    let first = fields.next()?;
    let mut joined = match fields.next() {
        None => first.clone(),
        Some(second) => {
            let all: Vec<&[u8]> = [first, second].into_iter().chain(fields).map(HeaderValue::as_bytes).collect();
            HeaderValue::from_bytes(&all.join(&b","[..])).ok()?
        }
    };
    joined.set_sensitive(false);
    let members = joined.as_bytes().split(|byte| *byte == b',').count();
    (joined.len() <= MAX_STATE && members <= MAX_MEMBERS && joined.to_str().is_ok()).then_some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn with(field: &str) -> Option<TraceContext> {
        read(&headers(&[("traceparent", field)])).ok().flatten()
    }

    #[test]
    fn example_of_the_standard_is_read_and_written_again() {
        let context = with(FIELD).unwrap();
        assert_eq!(context.trace.bits(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span.bits(), 0x00f0_67aa_0ba9_02b7);
        assert_eq!(context.flags, Flags { is_sampled: true, is_random: false });
        assert_eq!(format(context), FIELD);
    }

    #[test]
    fn flags_that_are_known_are_read_and_others_go_no_further() {
        for (flags, sampled, random, written) in
            [("00", false, false, "00"), ("01", true, false, "01"), ("02", false, true, "02"), ("ff", true, true, "03")]
        {
            let context = with(&FIELD.replace("-01", &format!("-{flags}"))).unwrap();
            assert_eq!(context.flags, Flags { is_sampled: sampled, is_random: random });
            assert_eq!(format(context), FIELD.replace("-01", &format!("-{written}")).as_str());
        }
    }

    #[test]
    fn later_version_is_read_as_far_as_it_is_known() {
        for field in [
            FIELD.replacen("00-", "cc-", 1),
            FIELD.replacen("00-", "01-", 1) + "-what-is-to-come",
            FIELD.replacen("00-", "fe-", 1) + "-",
        ] {
            assert_eq!(with(&field), with(FIELD), "{field}");
        }
    }

    #[test]
    fn malformed_fields_are_none() {
        for field in [
            "",
            "00",
            &FIELD[..54],
            &format!("{FIELD}-"),
            &format!("{FIELD}0"),
            &FIELD.replacen("00-", "ff-", 1),
            &(FIELD.replacen("00-", "01-", 1) + "x"),
            &FIELD.replacen("00-", "0-", 1),
            &FIELD.replacen("00-", "0g-", 1),
            &FIELD.to_uppercase(),
            &FIELD.replace("-01", "-0x"),
            &FIELD.replace('-', "_"),
            &FIELD.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &FIELD.replace("00f067aa0ba902b7", "0000000000000000"),
            &FIELD.replace("00f067aa0ba902b7", "00f067aa0ba902b-"),
            &format!("{FIELD},{FIELD}"),
        ] {
            assert_eq!(with(field), None, "{field}");
        }
    }

    #[test]
    fn two_fields_are_none_even_if_they_are_equal() {
        assert_eq!(read(&headers(&[("traceparent", FIELD), ("traceparent", FIELD)])), Err(Unreadable));
        assert_eq!(read(&headers(&[("traceparent", "junk")])), Err(Unreadable));
        assert_eq!(read(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn state_over_several_fields_is_one_list() {
        let of = |fields: &[&str]| {
            state(&headers(&fields.iter().map(|value| ("tracestate", *value)).collect::<Vec<_>>()))
                .map(|state| state.to_str().unwrap().to_owned())
        };
        assert_eq!(of(&["a=1"]).as_deref(), Some("a=1"));
        assert_eq!(of(&["a=1,b=2", "", "c=3"]).as_deref(), Some("a=1,b=2,c=3"));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[""]), None);
        assert_eq!(of(&[&"a".repeat(MAX_STATE + 1)]), None);
        assert_eq!(of(&[&"a=1,".repeat(MAX_MEMBERS)]), None);
    }
}

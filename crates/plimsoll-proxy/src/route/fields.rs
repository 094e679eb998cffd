//! Conditions of routes on header fields, query parameters and cookies.
//!
//! A route asks for an exact value, for any value, or for no value. **One** line, parameter or
//! cookie of a name is enough to meet a condition, wherever it stands: servers take the first or
//! the last one, and a client must not avoid a route by sending another beside it.
//!
//! - *Header fields* are compared as sent, byte for byte. Fields that name the client
//!   (`X-Forwarded-Proto`) count as absent if the proxy does not believe their sender, since it
//!   removes them.
//! - *Parameters* are compared decoded, as forms are encoded: `%XX` and `+` (a blank). `;` separates
//!   nothing. An escape that is none stands for itself.
//! - *Cookies* are compared as sent, with quotes if they have some. A cookie may come in one field
//!   or in several, as HTTP/2 sends it.
//!
//! All conditions of a listener are numbered. One pass over the fields, the query and the cookies
//! finds the numbers that a request meets, and each route compares its own. So the cost is that of
//! reading the head once, for any number of routes; a pass for each route would let a client with a
//! query of 16 KiB occupy a thread. A request pays for the pass when a lookup comes to the first
//! route with a condition, and a table without any pays nothing.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue};
use plimsoll_wire::hop::Claim;

use crate::config::{Condition, MAX_TEXT, Route, Wanted};
use crate::forwarded::Marks;

/// The fields and the query of a request, by which its route may be chosen.
#[derive(Debug)]
pub struct RequestFields<'r> {
    headers: &'r HeaderMap,
    query: Option<&'r str>,
    /// By these the proxy believes fields that name the client; `None` for any.
    marks: Option<&'r Marks>,
    met: OnceCell<Met>,
}

impl<'r> RequestFields<'r> {
    /// Those of a request on a connection with these marks.
    pub(crate) fn new(headers: &'r HeaderMap, query: Option<&'r str>, marks: Option<&'r Marks>) -> Self {
        Self { headers, query, marks, met: OnceCell::new() }
    }

    fn believes(&self, name: &HeaderName) -> bool {
        self.marks.is_none_or(|marks| !marks.drops(name))
    }
}

/// The number of a condition.
type Number = u32;

/// The conditions that a request meets, by number.
#[derive(Debug)]
struct Met(Vec<u64>);

impl Met {
    fn insert(&mut self, number: Number) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }

    fn has(&self, number: Number) -> bool {
        self.0[number as usize / 64] & 1 << (number % 64) != 0
    }
}

/// The conditions of all routes of a listener.
#[derive(Debug, Default)]
struct Index {
    headers: HashMap<HeaderName, Values>,
    query: Names,
    cookies: Names,
    count: Number,
}

/// The conditions on parameters or cookies, by name.
#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<Box<[u8]>, Values>,
    /// A bit for each length of a name, the last one for all from 63 on. Most names of a request
    /// are none of these by their length.
    lengths: u64,
}

/// The conditions on one name.
#[derive(Debug)]
struct Values {
    /// On any value.
    present: Number,
    by_value: HashMap<Box<[u8]>, Number>,
}

impl Values {
    fn new(count: &mut Number) -> Self {
        Self { present: next(count), by_value: HashMap::new() }
    }

    /// The number of a condition, new or known.
    fn number(&mut self, wanted: &Wanted, count: &mut Number) -> Number {
        match wanted {
            Wanted::Value(value) => *self.by_value.entry(value.as_bytes().into()).or_insert_with(|| next(count)),
            Wanted::Present | Wanted::Absent => self.present,
        }
    }

    fn meet(&self, value: Option<&[u8]>, met: &mut Met) {
        met.insert(self.present);
        if let Some(number) = value.and_then(|value| self.by_value.get(value)) {
            met.insert(*number);
        }
    }
}

fn next(count: &mut Number) -> Number {
    *count += 1;
    *count - 1
}

impl Names {
    fn entry(&mut self, name: &str, count: &mut Number) -> &mut Values {
        self.lengths |= length_bit(name.len());
        self.by_name.entry(name.as_bytes().into()).or_insert_with(|| Values::new(count))
    }

    fn get(&self, name: &[u8]) -> Option<&Values> {
        if self.lengths & length_bit(name.len()) == 0 { None } else { self.by_name.get(name) }
    }
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

impl Index {
    fn number(&mut self, kind: &str, condition: &Condition) -> Number {
        let (name, count) = (&*condition.name, &mut self.count);
        let values = match kind {
            "headers" => {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("it was read as a name");
                self.headers.entry(name).or_insert_with(|| Values::new(count))
            }
            "query" => self.query.entry(name, count),
            _ => self.cookies.entry(name, count),
        };
        values.number(&condition.wanted, count)
    }

    /// The conditions that a request meets.
    fn met(&self, fields: &RequestFields<'_>) -> Met {
        let mut met = Met(vec![0; self.count as usize / 64 + 1]);
        for (name, values) in &self.headers {
            if Claim::of(name).is_some() && !fields.believes(name) {
                continue;
            }
            for line in fields.headers.get_all(name) {
                values.meet(Some(line.as_bytes()), &mut met);
            }
        }
        if let (Some(query), false) = (fields.query, self.query.by_name.is_empty()) {
            self.read_query(query.as_bytes(), &mut met);
        }
        if !self.cookies.by_name.is_empty() {
            for line in fields.headers.get_all(COOKIE) {
                self.read_cookies(line, &mut met);
            }
        }
        met
    }

    fn read_query(&self, query: &[u8], met: &mut Met) {
        let mut buffer = [0; MAX_TEXT];
        for parameter in query.split(|byte| *byte == b'&') {
            let (name, value) = split_at(parameter, b'=');
            let Some(values) = decode(name, &mut buffer).and_then(|name| self.query.get(name)) else { continue };
            values.meet(decode(value.unwrap_or_default(), &mut buffer), met);
        }
    }

    fn read_cookies(&self, line: &HeaderValue, met: &mut Met) {
        for cookie in line.as_bytes().split(|byte| *byte == b';') {
            if let (name, Some(value)) = split_at(cookie, b'=')
                && let Some(values) = self.cookies.get(name.trim_ascii())
            {
                values.meet(Some(value.trim_ascii()), met);
            }
        }
    }
}

/// The parts before and after the first `byte`.
fn split_at(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|other| *other == byte) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Decodes a name or a value of a query; `None` if it is longer than any of a condition.
fn decode<'b>(text: &'b [u8], buffer: &'b mut [u8; MAX_TEXT]) -> Option<&'b [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return (text.len() <= MAX_TEXT).then_some(text);
    }
    let (mut rest, mut length) = (text, 0);
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'+', tail) => (b' ', tail),
            (b'%', [high, low, tail @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, tail),
                _ => (b'%', &rest[1..]),
            },
            (byte, tail) => (*byte, tail),
        };
        *buffer.get_mut(length)? = byte;
        (rest, length) = (tail, length + 1);
    }
    Some(&buffer[..length])
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The conditions of one route; it has at least one.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    index: Arc<Index>,
    /// Those that a request must meet.
    met: Box<[Number]>,
    /// Those that it must not meet.
    unmet: Box<[Number]>,
}

impl Needs {
    /// The conditions of each of `routes`; `None` for a route without any.
    pub(super) fn of<'r>(routes: impl Iterator<Item = &'r Route>) -> Vec<Option<Box<Self>>> {
        let mut index = Index::default();
        let numbered: Vec<[Vec<Number>; 2]> = routes
            .map(|route| {
                let mut numbers = [Vec::new(), Vec::new()];
                for (kind, conditions) in route.conditions() {
                    for condition in conditions {
                        let is_absent = condition.wanted == Wanted::Absent;
                        numbers[usize::from(is_absent)].push(index.number(kind, condition));
                    }
                }
                numbers
            })
            .collect();
        let index = Arc::new(index);
        let needs = |[met, unmet]: [Vec<Number>; 2]| {
            let has_any = !met.is_empty() || !unmet.is_empty();
            has_any.then(|| Box::new(Self { index: Arc::clone(&index), met: met.into(), unmet: unmet.into() }))
        };
        numbered.into_iter().map(needs).collect()
    }

    /// Whether a request meets them all.
    pub(super) fn are_met(&self, fields: &RequestFields<'_>) -> bool {
        let met = fields.met.get_or_init(|| self.index.met(fields));
        self.met.iter().all(|number| met.has(*number)) && !self.unmet.iter().any(|number| met.has(*number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn condition(name: &str, value: &str) -> Condition {
        let wanted = match value {
            "+" => Wanted::Present,
            "-" => Wanted::Absent,
            value => Wanted::Value(value.to_owned()),
        };
        Condition { name: name.to_owned(), wanted }
    }

    /// Whether a request with these fields and this query meets the one condition of a route.
    fn meets(kind: &str, (name, value): (&str, &str), headers: &[(&'static str, &str)], query: &str) -> bool {
        let mut route = Route::default();
        let conditions = vec![condition(name, value)];
        match kind {
            "header" => route.headers = conditions,
            "query" => route.query = conditions,
            _ => route.cookies = conditions,
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let fields = RequestFields::new(&map, Some(query), None);
        Needs::of([&route].into_iter())[0].as_ref().unwrap().are_met(&fields)
    }

    #[test]
    fn field_meets_a_condition_when_one_of_its_lines_does() {
        let lines = [("x-a", "1"), ("x-a", "2"), ("x-b", "1, 2")];
        for (name, value, is_met) in [
            ("x-a", "1", true),
            ("x-a", "2", true),
            ("x-a", "3", false),
            ("x-a", "+", true),
            ("x-a", "-", false),
            ("x-b", "1", false),
            ("x-b", "1, 2", true),
            ("x-c", "+", false),
            ("x-c", "-", true),
        ] {
            assert_eq!(meets("header", (name, value), &lines, ""), is_met, "{name} {value}");
        }
    }

    #[test]
    fn parameter_is_compared_as_forms_encode_it() {
        for (query, name, value, is_met) in [
            ("v=2", "v", "2", true),
            ("a&v=2&b=", "v", "2", true),
            ("v=1&v=2", "v", "2", true),
            ("v=1&v=2", "v", "1", true),
            ("%76=%32", "v", "2", true),
            ("v=a+b", "v", "a b", true),
            ("v=a%20b", "v", "a b", true),
            ("v=a%2Bb", "v", "a+b", true),
            ("v=a+b", "v", "a+b", false),
            ("v=%", "v", "%", true),
            ("v=%zz%4", "v", "%zz%4", true),
            ("v=%e4", "v", "ä", false),
            ("v=%c3%a4", "v", "ä", true),
            ("v", "v", "", true),
            ("v=", "v", "", true),
            ("v==", "v", "=", true),
            ("v", "v", "+", true),
            ("w=v", "v", "+", false),
            ("w=1;v=2", "v", "2", false),
            ("V=2", "v", "2", false),
            ("", "v", "-", true),
            ("v=1", "v", "-", false),
        ] {
            assert_eq!(meets("query", (name, value), &[], query), is_met, "{query} {name} {value}");
        }
    }

    #[test]
    fn cookie_is_found_in_one_field_or_in_several() {
        for (lines, value, is_met) in [
            (&["c=yes"][..], "yes", true),
            (&["a=1; c=yes; b=2"], "yes", true),
            (&["a=1;c=yes"], "yes", true),
            (&["a=1", "c=yes"], "yes", true),
            (&["c=no; c=yes"], "yes", true),
            (&["c=\"yes\""], "yes", false),
            (&["c=\"yes\""], "\"yes\"", true),
            (&["c = yes "], "yes", true),
            (&["c=a=b"], "a=b", true),
            (&["C=yes"], "+", false),
            (&["c"], "+", false),
            (&["cc=yes; c1=c=yes"], "+", false),
            (&["a=1"], "-", true),
            (&["c="], "-", false),
        ] {
            let headers: Vec<(&'static str, &str)> = lines.iter().map(|line| ("cookie", *line)).collect();
            assert_eq!(meets("cookie", ("c", value), &headers, ""), is_met, "{lines:?} {value}");
        }
    }

    #[test]
    fn text_longer_than_any_condition_is_only_present() {
        let long = "x".repeat(MAX_TEXT + 1);
        let escaped = "%61".repeat(MAX_TEXT + 1);
        for value in [&long, &escaped] {
            assert!(meets("query", ("v", "+"), &[], &format!("v={value}")));
            assert!(!meets("query", ("v", "-"), &[], &format!("v={value}")));
            assert!(!meets("query", (value, "+"), &[], &format!("{value}=1")));
        }
        let longest = "x".repeat(MAX_TEXT);
        assert!(meets("query", ("v", &longest), &[], &format!("v={longest}")));
        assert!(meets("query", ("v", &"a".repeat(MAX_TEXT)), &[], &format!("v={}", "%61".repeat(MAX_TEXT))));
    }

    proptest! {
        #[test]
        fn decoding_undoes_the_encoding_of_forms(text in prop::collection::vec(any::<u8>(), 0..40), plain in any::<u64>()) {
            let encoded: Vec<u8> = text.iter().enumerate().flat_map(|(i, byte)| match byte {
                b' ' => b"+".to_vec(),
                byte if byte.is_ascii_alphanumeric() && plain >> (i % 64) & 1 == 1 => vec![*byte],
                byte => format!("%{byte:02x}").into_bytes(),
            }).collect();
            let mut buffer = [0; MAX_TEXT];
            prop_assert_eq!(decode(&encoded, &mut buffer), Some(&text[..]));
        }

        #[test]
        fn every_text_is_decoded(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut buffer = [0; MAX_TEXT];
            let decoded = decode(&text, &mut buffer);
            prop_assert!(decoded.is_some() || text.len() > MAX_TEXT);
        }
    }
}

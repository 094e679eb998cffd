//! The names behind the indexes of HPACK: of the dynamic table only the kind and size of each
//! entry.
//!
//! Source: RFC 7541, 2.3, 4 and appendix A.

use std::collections::VecDeque;

/// Bytes of entries that a client may store. HTTP/2 begins with it, and the proxy never offers
/// another (`Settings`).
pub(super) const MAX_SIZE: u32 = 4096;
/// The size of an entry beyond its name and value, in bytes.
const ENTRY_OVERHEAD: u32 = 32;
/// The static table, from index 1 on.
const STATIC: [Name; 61] = {
    let mut names = [Name::of(""); 61];
    let mut i = 0;
    while i < names.len() {
        names[i] = Name::of(STATIC_NAMES[i]);
        i += 1;
    }
    names
};
#[rustfmt::skip]
const STATIC_NAMES: [&str; 61] = [
    ":authority", ":method", ":method", ":path", ":path", ":scheme", ":scheme", ":status", ":status", ":status", ":status",
    ":status", ":status", ":status", "accept-charset", "accept-encoding", "accept-language", "accept-ranges", "accept",
    "access-control-allow-origin", "age", "allow", "authorization", "cache-control", "content-disposition",
    "content-encoding", "content-language", "content-length", "content-location", "content-range", "content-type", "cookie",
    "date", "etag", "expect", "expires", "from", "host", "if-match", "if-modified-since", "if-none-match", "if-range",
    "if-unmodified-since", "last-modified", "link", "location", "max-forwards", "proxy-authenticate",
    "proxy-authorization", "range", "referer", "refresh", "retry-after", "server", "set-cookie",
    "strict-transport-security", "transfer-encoding", "user-agent", "vary", "via", "www-authenticate",
];
/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Path,
    Method,
    Scheme,
    Authority,
    Protocol,
    /// A pseudo-field of no request.
    Other,
    /// Fields of a connection, which HTTP/2 does not have (RFC 9113, 8.2.2).
    Connection,
    ContentLength,
    Expect,
    Regular,
}

/// The relevant part of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    /// The method CONNECT.
    Connect,
    /// A length that is not zero.
    Length,
    #[default]
    Other,
}

impl Kind {
    const fn of(name: &[u8]) -> Self {
        match name {
            b":path" => Self::Path,
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":protocol" => Self::Protocol,
            [b':', ..] => Self::Other,
            b"content-length" => Self::ContentLength,
            b"expect" => Self::Expect,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => Self::Connection,
            _ => Self::Regular,
        }
    }

    pub(super) const fn is_pseudo(self) -> bool {
        !matches!(self, Self::Connection | Self::ContentLength | Self::Expect | Self::Regular)
    }
}

/// A field's name, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) length: u32,
    pub(super) kind: Kind,
}

impl Name {
    const fn of(text: &str) -> Self {
        Self { length: text.len() as u32, kind: Kind::of(text.as_bytes()) }
    }
}

/// A name that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spelling {
    /// As much of it as the longest one that matters has.
    text: [u8; 17],
    length: u32,
}

impl Spelling {
    /// Its next byte.
    pub(super) fn push(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.length as usize) {
            *place = byte;
        }
        self.length += 1;
    }

    /// All of it has come.
    pub(super) fn name(&self) -> Name {
        let length = self.length as usize;
        // One that is longer is none of those that matter, but it may be a pseudo-field.
        let kind = match self.text.get(..length) {
            Some(text) => Kind::of(text),
            None if self.text[0] == b':' => Kind::Other,
            None => Kind::Regular,
        };
        Name { length: self.length, kind }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Name,
    value: Value,
    size: u32,
}

/// The names that a client may refer to.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: u32,
    max_size: u32,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size: MAX_SIZE }
    }

    /// The name at `index`, if there is one.
    pub(super) fn name(&self, index: u32) -> Option<Name> {
        let place = (index as usize).checked_sub(1)?;
        match STATIC.get(place) {
            Some(name) => Some(*name),
            None => self.entries.get(place - STATIC.len()).map(|entry| entry.name),
        }
    }

    /// The relevant part of the value at `index`. Values in the static table have none.
    pub(super) fn value(&self, index: u32) -> Value {
        let place = (index as usize).checked_sub(STATIC.len() + 1);
        place.and_then(|place| self.entries.get(place)).map_or(Value::Other, |entry| entry.value)
    }

    /// A field is kept. One that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: Name, value: Value, value_length: u32) {
        let size = name.length.saturating_add(value_length).saturating_add(ENTRY_OVERHEAD);
        self.shrink_to(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.entries.push_front(Entry { name, value, size });
            self.size += size;
        }
    }

    /// The client wants it to be so large.
    pub(super) fn resize(&mut self, max_size: u32) {
        self.max_size = max_size;
        self.shrink_to(max_size);
    }

    fn shrink_to(&mut self, size: u32) {
        while self.size > size {
            self.size -= self.entries.pop_back().expect("the sum of no sizes is zero").size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_recognized_by_all_of_its_bytes() {
        let kind = |text: &str| {
            let mut spelling = Spelling::default();
            text.bytes().for_each(|byte| spelling.push(byte));
            assert_eq!(spelling.name().length as usize, text.len());
            spelling.name().kind
        };
        assert_eq!(
            (kind(":path"), kind(":status"), kind("transfer-encoding")),
            (Kind::Path, Kind::Other, Kind::Connection)
        );
        for other in ["", "path", "x:path", "transfer-encodings", "upgrad"] {
            assert_eq!(kind(other), Kind::Regular, "{other}");
        }
        for other in [":", ":pat", ":paths", ":Path", ":paht", ":a-name-that-is-too-long-to-be-kept"] {
            assert_eq!(kind(other), Kind::Other, "{other}");
        }
    }

    #[test]
    fn the_static_table_stands_where_it_has_to() {
        let table = Table::new();
        let is = |index| table.name(index).unwrap();
        assert!((1..=14).all(|index| is(index).kind.is_pseudo()) && (15..=61).all(|index| !is(index).kind.is_pseudo()));
        assert!((1..=61).all(|index| (is(index).kind == Kind::Path) == (index == 4 || index == 5)));
        assert_eq!((table.name(0), table.name(62)), (None, None));
    }

    #[test]
    fn oldest_entries_are_dropped_when_the_table_is_full() {
        let mut table = Table::new();
        table.resize(100);
        table.insert(Name::of(":path"), Value::Other, 13);
        table.insert(Name::of("x"), Value::Other, 17);
        assert_eq!((table.name(62), table.name(63)), (Some(Name::of("x")), Some(Name::of(":path"))));
        table.insert(Name::of("y"), Value::Other, 0);
        assert_eq!((table.name(62), table.name(63), table.name(64)), (Some(Name::of("y")), Some(Name::of("x")), None));
        table.insert(Name::of("z"), Value::Other, 68);
        assert_eq!(table.name(62), None);
        table.insert(Name::of("z"), Value::Other, 67);
        assert_eq!((table.name(62), table.size), (Some(Name::of("z")), 100));
        table.resize(99);
        assert_eq!((table.name(62), table.size), (None, 0));
    }
}

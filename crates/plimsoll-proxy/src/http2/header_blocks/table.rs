//! Which names stand behind the indexes of HPACK: of the dynamic table only what each entry is and how much room it takes.
//!
//! Source: RFC 7541, 2.3, 4 and appendix A.

use std::collections::VecDeque;

/// Bytes of entries that a client may have kept. What HTTP/2 begins with, and we never offer another (`Settings`).
pub(super) const MAX_SIZE: u32 = 4096;
/// What an entry counts beyond its name and value, in bytes.
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
const PATH: &[u8] = b":path";

/// A field's name, as far as it matters; also one of which a part has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) length: u32,
    is_pseudo: bool,
    /// How many bytes it has in common with [`PATH`] from the first on.
    like_path: u32,
}

impl Name {
    const fn of(text: &str) -> Self {
        let mut name = Self { length: 0, is_pseudo: false, like_path: 0 };
        while (name.length as usize) < text.len() {
            name.push(text.as_bytes()[name.length as usize]);
        }
        name
    }

    /// Its next byte.
    pub(super) const fn push(&mut self, byte: u8) {
        let at = self.length as usize;
        self.is_pseudo |= at == 0 && byte == b':';
        if self.like_path == self.length && at < PATH.len() && PATH[at] == byte {
            self.like_path += 1;
        }
        self.length += 1;
    }

    pub(super) fn is_pseudo(self) -> bool {
        self.is_pseudo
    }

    pub(super) fn is_path(self) -> bool {
        self.length == PATH.len() as u32 && self.like_path == self.length
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Name,
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

    /// A field is kept. One that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: Name, value_length: u32) {
        let size = name.length.saturating_add(value_length).saturating_add(ENTRY_OVERHEAD);
        self.shrink_to(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.entries.push_front(Entry { name, size });
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
    fn a_name_is_told_by_all_of_it() {
        assert!(Name::of(":path").is_path() && Name::of(":path").is_pseudo());
        for other in ["", ":", ":pat", ":paths", "path", "x:path", ":Path", ":paht"] {
            assert!(!Name::of(other).is_path(), "{other}");
        }
        assert!(Name::of(":status").is_pseudo() && !Name::of("a:b").is_pseudo());
    }

    #[test]
    fn the_static_table_stands_where_it_has_to() {
        let table = Table::new();
        let is = |index| table.name(index).unwrap();
        assert!((1..=14).all(|index| is(index).is_pseudo()) && (15..=61).all(|index| !is(index).is_pseudo()));
        assert!((1..=61).all(|index| is(index).is_path() == (index == 4 || index == 5)));
        assert_eq!((table.name(0), table.name(62)), (None, None));
    }

    #[test]
    fn what_finds_no_room_is_forgotten_oldest_first() {
        let mut table = Table::new();
        table.resize(100);
        table.insert(Name::of(":path"), 13);
        table.insert(Name::of("x"), 17);
        assert_eq!((table.name(62), table.name(63)), (Some(Name::of("x")), Some(Name::of(":path"))));
        table.insert(Name::of("y"), 0);
        assert_eq!((table.name(62), table.name(63), table.name(64)), (Some(Name::of("y")), Some(Name::of("x")), None));
        table.insert(Name::of("z"), 68);
        assert_eq!(table.name(62), None);
        table.insert(Name::of("z"), 67);
        assert_eq!((table.name(62), table.size), (Some(Name::of("z")), 100));
        table.resize(99);
        assert_eq!((table.name(62), table.size), (None, 0));
    }
}

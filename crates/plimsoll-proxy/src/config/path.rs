//! The normal form of a path, used to choose routes.
//!
//! Servers take `/admin`, `//admin`, `/./admin`, `/%61dmin` and `/admin;a` for one path, so a route
//! on `/admin` has to apply to all of them. The normal form is that of RFC 3986 (6.2.2), and two
//! habits of servers beyond it:
//!
//! - an escape of an unreserved character (`A–Z a–z 0–9 - . _ ~`) is decoded; other escapes are
//!   written with capitals;
//! - dot segments are removed, and empty segments are merged with the next;
//! - parameters of a segment (`;` and all that follows in it) are left out.
//!
//! Only the choice of a route uses it: backends get the path as it was sent. So the form alone is
//! not enough. It decides about a path that a backend may read in another way, in two cases:
//!
//! - The path is *ambiguous*: servers disagree on its segments. It has `%2F`, `%5C`, `\`, `%00`, an
//!   escape that is none, a dot segment with an escape or a parameter in it (`/%2e%2e/`, `/..;/`),
//!   or more `..` than segments before them.
//! - It has `..`, which some servers leave in place: `/admin/../x` is below `/admin` to them. That
//!   is harmless where both readings take the same route, so the second reading is given beside the
//!   normal form.
//!
//! [`Routes`](crate::listener::Routes) decides both cases. Rewriting the path for the backend, as
//! Envoy does, is the alternative. It breaks signatures over paths and servers with empty segments
//! in names (object stores).
//!
//! A path that is normal already costs one pass and no allocation.

use std::borrow::Cow;

/// A path, ready to be compared with the prefixes of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NormalPath<'p> {
    /// The normal form.
    pub(crate) text: Cow<'p, str>,
    /// The same with each `..` left in place; `None` if the path has none.
    pub(crate) unresolved: Option<String>,
    /// Servers disagree on its segments.
    pub(crate) is_ambiguous: bool,
}

/// Brings a path without its query into its normal form.
pub(crate) fn normalise(path: &str) -> NormalPath<'_> {
    if !path.starts_with('/') || is_normal(path.as_bytes()) {
        return NormalPath { text: Cow::Borrowed(path), unresolved: None, is_ambiguous: false };
    }
    let mut resolved = Segments::with_capacity(path.len());
    let mut unresolved = path.split('/').any(|segment| segment == "..").then(|| Segments::with_capacity(path.len()));
    let mut is_ambiguous = path.contains('\\');
    for segment in path[1..].split('/') {
        let (name, _) = segment.split_once(';').unwrap_or((segment, ""));
        let (name, is_name_clear) = decode(name);
        is_ambiguous |= !is_name_clear || !decode(segment).1;
        is_ambiguous |= matches!(&*name, "." | "..") && segment != name;
        match &*name {
            "" | "." => resolved.open(),
            ".." => is_ambiguous |= !resolved.pop(),
            _ => resolved.push(&name),
        }
        match (&mut unresolved, &*name) {
            (Some(unresolved), "" | ".") => unresolved.open(),
            (Some(unresolved), _) => unresolved.push(&name),
            (None, _) => {}
        }
    }
    NormalPath { text: Cow::Owned(resolved.into_text()), unresolved: unresolved.map(Segments::into_text), is_ambiguous }
}

/// A path that is built segment by segment.
struct Segments {
    /// Each segment with a slash before it.
    text: String,
    /// A slash ends it, should nothing follow.
    is_open: bool,
}

impl Segments {
    fn with_capacity(capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), is_open: true }
    }

    fn push(&mut self, segment: &str) {
        self.text.push('/');
        self.text.push_str(segment);
        self.is_open = false;
    }

    fn open(&mut self) {
        self.is_open = true;
    }

    /// Removes the last segment; whether there was one.
    fn pop(&mut self) -> bool {
        self.is_open = true;
        let last = self.text.rfind('/');
        self.text.truncate(last.unwrap_or(0));
        last.is_some()
    }

    fn into_text(mut self) -> String {
        if self.is_open {
            self.text.push('/');
        }
        self.text
    }
}

/// Whether the normal form of a path is the path, which is not ambiguous either.
fn is_normal(path: &[u8]) -> bool {
    path.iter().enumerate().all(|(at, byte)| match byte {
        b'\\' | b';' => false,
        b'%' => escaped(&path[at..]).is_some_and(|byte| {
            !is_unreserved(byte) && !is_separator(byte) && !path[at + 1..at + 3].iter().any(u8::is_ascii_lowercase)
        }),
        b'/' => {
            !matches!(path[at + 1..], [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..])
        }
        _ => true,
    })
}

/// Decodes the unreserved characters of a segment; whether servers agree on its other escapes.
fn decode(segment: &str) -> (Cow<'_, str>, bool) {
    let Some(first) = segment.find('%') else { return (Cow::Borrowed(segment), true) };
    let mut text = String::with_capacity(segment.len());
    text.push_str(&segment[..first]);
    let mut rest = &segment[first..];
    let mut is_clear = true;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        match escaped(&rest.as_bytes()[at..]) {
            Some(byte) if is_unreserved(byte) => {
                text.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            Some(byte) => {
                is_clear &= !is_separator(byte);
                text.push_str(&rest[at..at + 3].to_ascii_uppercase());
                rest = &rest[at + 3..];
            }
            None => {
                is_clear = false;
                // As an escape, so that it makes none with the next characters.
                text.push_str("%25");
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    (Cow::Owned(text), is_clear)
}

/// The byte of the escape at the front of `text`; `None` if that is none.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether some servers end a segment, or the whole path, at this byte once it is decoded.
fn is_separator(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\' | 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(path: &str) -> String {
        normalise(path).text.into_owned()
    }

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        for (path, normal) in [
            ("/admin", "/admin"),
            ("//admin", "/admin"),
            ("///admin//x", "/admin/x"),
            ("/./admin/.", "/admin/"),
            ("/%61dm%69n", "/admin"),
            ("/admin;a", "/admin"),
            ("/admin;a=b/x;c", "/admin/x"),
            ("/;a/admin", "/admin"),
            ("/x/../admin", "/admin"),
            ("/x/y/../../admin/..", "/"),
            ("/a/", "/a/"),
            ("/a//", "/a/"),
            ("/", "/"),
            ("//", "/"),
            ("/.", "/"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a%20b%3b", "/a%20b%3B"),
            ("/.well-known/x..y/...", "/.well-known/x..y/..."),
            ("*", "*"),
            ("", ""),
        ] {
            let found = normalise(path);
            assert_eq!((&*found.text, found.is_ambiguous), (normal, false), "{path}");
        }
    }

    #[test]
    fn path_is_ambiguous_when_servers_disagree_on_its_segments() {
        for path in [
            "/x%2fadmin",
            "/x%2Fadmin",
            "/x%5cadmin",
            "/x\\admin",
            "/admin%00.png",
            "/%2e%2e/admin",
            "/x/%2E./admin",
            "/x/.%2e",
            "/%2e/admin",
            "/x/..;/admin",
            "/x/.;a/admin",
            "/x/..;a=b",
            "/x;%2f../admin",
            "/../admin",
            "/x/../../admin",
            "/%",
            "/100%",
            "/%zz",
            "/%u0061dmin",
        ] {
            assert!(normalise(path).is_ambiguous, "{path}");
        }
    }

    #[test]
    fn dot_segments_are_given_unresolved_as_well() {
        for (path, unresolved) in [
            ("/admin/../x", Some("/admin/../x")),
            ("//admin/.././x;y/%7e", Some("/admin/../x/~")),
            ("/x/..", Some("/x/..")),
            ("/a/./b", None),
            ("/a..b", None),
        ] {
            assert_eq!(normalise(path).unresolved.as_deref(), unresolved, "{path}");
        }
    }

    #[test]
    fn normal_path_is_borrowed() {
        for path in ["/", "/a/b.c/", "/.well-known/a", "/a%20b/%C3%A9", "/a:b@c,d=e", "*"] {
            assert!(matches!(normalise(path).text, Cow::Borrowed(_)), "{path}");
        }
        for path in ["//", "/a%c3", "/a;b", "/a/..", "/%41"] {
            assert!(matches!(normalise(path).text, Cow::Owned(_)), "{path}");
        }
    }

    fn path() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("/"),
            Just("."),
            Just(".."),
            Just(";"),
            Just("%2e"),
            Just("%2F"),
            Just("%"),
            Just("%34"),
            Just("1"),
            Just("a"),
            Just("\\"),
            Just("%61"),
            Just("%c3"),
            Just("é"),
        ];
        prop::collection::vec(piece, 0..14).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #[test]
        fn normal_form_is_stable(path in path()) {
            let once = text(&path);
            prop_assert_eq!(&text(&once), &once);
            prop_assert!(once.starts_with('/') && !once.contains("//") && !once.contains(';'));
        }

        #[test]
        fn clear_path_has_no_dot_segment_in_its_normal_form(path in path()) {
            let found = normalise(&path);
            if !found.is_ambiguous {
                prop_assert!(found.text.split('/').all(|segment| segment != "." && segment != ".."), "{}", found.text);
                prop_assert!(is_normal(found.text.as_bytes()), "{}", found.text);
            }
        }

        #[test]
        fn every_text_has_a_normal_form(path in "\\PC{0,40}") {
            let _ = normalise(&path);
        }

        /// Spelling a letter as an escape, a slash twice, or with a dot between changes nothing.
        #[test]
        fn respelled_path_has_the_same_normal_form(
            segments in prop::collection::vec("[a-z0-9._~-]{1,4}", 1..5),
            spellings in prop::collection::vec(0_u8..5, 5),
        ) {
            prop_assume!(segments.iter().all(|segment| segment != "." && segment != ".."));
            let plain = format!("/{}", segments.join("/"));
            let respelled: String = segments.iter().zip(spellings).map(|(segment, spelling)| match spelling {
                0 => format!("/{segment}"),
                1 => format!("//{segment}"),
                2 => format!("/./{segment}"),
                3 => format!("/{segment};x=y"),
                _ => segment.bytes().fold("/".to_owned(), |text, byte| format!("{text}%{byte:02x}")),
            }).collect();
            let found = normalise(&respelled);
            prop_assert_eq!((&*found.text, found.is_ambiguous), (&*plain, false), "{}", respelled);
        }
    }
}

//! The characters of a client's text that may stand in a line for people.
//!
//! A control character may forge a line or control a terminal, and so may some beyond ASCII (U+009B
//! begins a sequence as ESC and `[` do). A character that turns the direction of text makes a line
//! read as another.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character shows as itself: no control character, no end of a line, no change of
/// direction. Those that are not are all in the plane where four digits are enough.
pub(crate) fn is_printable(c: char) -> bool {
    let turns_round = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}') && !turns_round
}

/// The text with all else escaped, as in the access log: `\u009b`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for c in text.chars() {
        if is_printable(c) {
            escaped.push(c);
        } else {
            write!(escaped, "\\u{:04x}", u32::from(c)).expect("writing to a string does not fail");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_forge_a_line_are_escaped_and_others_stay() {
        assert!(matches!(printable("/ä\\\" 日本"), Cow::Borrowed("/ä\\\" 日本")));
        assert_eq!(printable("/\u{9b}2J\u{202e}\n\u{2028}\u{1b}ä"), "/\\u009b2J\\u202e\\u000a\\u2028\\u001bä");
    }
}

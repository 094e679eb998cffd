//! Columns of text: each cell has the width of its column, whatever the width of its characters.

use ratatui::text::Span;

/// Columns that a text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in exactly `columns`, to the left; the end of one that is too long is replaced by `…`.
pub(super) fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text + &" ".repeat(missing)
}

/// The same to the right.
pub(super) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    " ".repeat(columns.saturating_sub(width(&text))) + &text
}

/// The text in at most `columns`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept) >= columns {
            kept.pop();
            break;
        }
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// Parts joined to lines of at most `columns`, never cut within a part that fits.
pub(super) fn flow(parts: &[String], columns: usize) -> Vec<String> {
    const BETWEEN: &str = " · ";
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + width(BETWEEN) + width(part) <= columns => {
                line.push_str(BETWEEN);
                line.push_str(part);
            }
            _ => lines.push(cut(part, columns)),
        }
    }
    lines
}

/// Words in lines of at most `columns`; the last of `most` lines is cut.
pub(super) fn wrap(text: &str, columns: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        let is_last = lines.len() == most;
        let fits = lines.last().is_some_and(|line| width(line) + 1 + width(word) <= columns);
        match lines.last_mut() {
            Some(line) if fits => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if is_last => {
                let rest: Vec<&str> = std::iter::once(word).chain(words).collect();
                *line = cut(&format!("{line} {}", rest.join(" ")), columns);
                break;
            }
            _ => lines.push(cut(word, columns)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_width_of_their_column() {
        for text in ["", "ab", "abcdefgh", "日本語の名前", "a\u{301}bcdefgh"] {
            assert_eq!((width(&left(text, 5)), width(&right(text, 5))), (5, 5), "{text}");
        }
        assert_eq!((left("ab", 4), right("ab", 4), cut("abcdef", 4)), ("ab  ".into(), "  ab".into(), "abc…".into()));
        assert_eq!(cut("ab", 0), "");
    }

    #[test]
    fn parts_flow_into_lines() {
        let parts = ["aaa", "bbb", "cccc"].map(str::to_owned);
        assert_eq!(flow(&parts, 9), ["aaa · bbb", "cccc"]);
        assert_eq!(flow(&parts, 3), ["aaa", "bbb", "cc…"]);
    }

    #[test]
    fn words_wrap_and_the_last_line_is_cut() {
        assert_eq!(wrap("one two three four", 9, 5), ["one two", "three", "four"]);
        assert_eq!(wrap("one two three four", 9, 2), ["one two", "three fo…"]);
        assert_eq!(wrap("one", 9, 2), ["one"]);
    }
}

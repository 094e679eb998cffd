//! Help for errors in the syntax of a TOML file, by the line that has the error.
//!
//! The parser names the grammar rule that a line breaks, not the habit that led to it. Most
//! mistakes are habits from other formats: a colon for `=`, a semicolon at the end, text without
//! quotes, `//` before a comment.

/// Help for a syntax error; `line` is the line it is in, `message` the parser's.
pub(crate) fn help(message: &str, line: &str) -> String {
    let line = line.trim();
    if message == "duplicate key" {
        return "remove one of the two".to_owned();
    }
    if ["//", "--", ";", "/*", "%"].iter().any(|mark| line.starts_with(mark)) {
        return "begin a comment with #".to_owned();
    }
    if line.matches('"').count() % 2 == 1 {
        return "close the quotes on the same line, with nothing but a comment after them".to_owned();
    }
    if line.contains(['“', '”', '‘', '’', '„']) {
        return "use straight quotes: \"".to_owned();
    }
    if line.starts_with('[') {
        return header(line);
    }
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.\"'".contains(c))).unwrap_or(line.len());
    let (key, rest) = line.split_at(name_end);
    let rest = rest.trim_start();
    if key.starts_with(|c: char| c.is_ascii_alphabetic() || "_\"'".contains(c)) {
        for mark in ["=>", ":=", ":", "=="] {
            if let Some(value) = rest.strip_prefix(mark) {
                return format!("write {key} = {}", in_quotes(value));
            }
        }
        if let Some(value) = rest.strip_prefix('=') {
            return setting(key, value);
        }
        if !rest.is_empty() && !rest.contains('=') {
            return format!("write {key} = {}", in_quotes(rest));
        }
    }
    if line.contains("://") || line.contains(|c: char| c.is_ascii_digit()) && line.contains([':', '.']) {
        return "put text in quotes, such as \"10.0.0.1:8080\"".to_owned();
    }
    "write key = value, with text in quotes, below a [table] header".to_owned()
}

fn header(line: &str) -> String {
    let brackets = line.chars().take_while(|c| *c == '[').count();
    let name = line.trim_matches(['[', ']', ' ', '{', ':']);
    let name = name.split('#').next().unwrap_or(name).trim_end_matches([']', ' ']);
    let name = name.split_whitespace().collect::<Vec<_>>().join(".");
    let (open, close) = if brackets > 1 { ("[[", "]]") } else { ("[", "]") };
    format!("write {open}{name}{close} on a line of its own")
}

/// The help for `value`, which stands after `key =`.
fn setting(key: &str, value: &str) -> String {
    let value = value.trim();
    let bare = value.trim_end_matches([';', ',']).trim_end();
    if bare != value && is_value(bare) {
        return format!("write {key} = {bare}, without \"{}\" at the end", &value[bare.len()..]);
    }
    match value.chars().next() {
        None => format!("write a value after {key} ="),
        Some('"' | '\'') => "close the quotes on the same line, with nothing but a comment after them".to_owned(),
        Some('[') => format!("write {key} = [...], with text in quotes and commas between the items"),
        Some('{') => format!("write {key} = {{ name = \"text\", ... }} on one line"),
        Some(_) => format!("write {key} = {}", in_quotes(value)),
    }
}

/// Whether it is complete as a value: in quotes or brackets, a number, true or false.
fn is_value(text: &str) -> bool {
    text.parse::<f64>().is_ok()
        || matches!(text, "true" | "false")
        || text.len() > 1
            && [('"', '"'), ('\'', '\''), ('[', ']'), ('{', '}')]
                .iter()
                .any(|(open, close)| text.starts_with(*open) && text.ends_with(*close))
}

/// The value as TOML: as it is if it is complete, else in quotes.
fn in_quotes(value: &str) -> String {
    let value = value.split(" #").next().unwrap_or(value).trim().trim_end_matches([';', ',']).trim_end();
    if value.is_empty() {
        return "...".to_owned();
    }
    if is_value(value) { value.to_owned() } else { format!("\"{}\"", value.trim_matches(['"', '\''])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_error_has_help_for_the_habit_behind_it() {
        for (line, expected) in [
            ("// the edge", "begin a comment with #"),
            ("address: \":8080\"", "write address = \":8080\""),
            ("address => \":8080\"", "write address = \":8080\""),
            ("address \":8080\"", "write address = \":8080\""),
            ("threads: 4", "write threads = 4"),
            ("address = \":8080\";", "write address = \":8080\", without \";\" at the end"),
            ("address = 127.0.0.1:8080", "write address = \"127.0.0.1:8080\""),
            ("timeout = 5s # long", "write timeout = \"5s\""),
            ("address = “:8080”", "use straight quotes: \""),
            ("backends = [\"10.0.0.1:80]", "close the quotes on the same line, with nothing but a comment after them"),
            ("address = \":8080", "close the quotes on the same line, with nothing but a comment after them"),
            ("backends = [10.0.0.1:80]", "write backends = [...], with text in quotes and commas between the items"),
            ("  10.0.0.1:80,", "put text in quotes, such as \"10.0.0.1:8080\""),
            ("[clusters web]", "write [clusters.web] on a line of its own"),
            ("[[listeners]", "write [[listeners]] on a line of its own"),
            ("address =", "write a value after address ="),
        ] {
            assert_eq!(help("a message", line), expected, "{line}");
        }
        assert_eq!(help("duplicate key", "a = 1"), "remove one of the two");
    }
}

//! Recognises a file that is written in the language of another program.
//!
//! A YAML file is an error on every line to a TOML parser, and none of these errors names the
//! mistake. So a text that is not TOML is classified once, line by line, before its syntax errors
//! are reported. The classification is a guess, and only the text of one message depends on it. A
//! file with one `[table]` header is TOML with a mistake in it: its errors are more precise.

use crate::problem::Position;

/// The language of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Yaml,
    Json,
    Haproxy,
    Nginx,
    Caddyfile,
    Xml,
}

/// Words that begin a section of an HAProxy file.
const HAPROXY_SECTIONS: [&str; 9] =
    ["global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "userlist", "cache"];

impl Foreign {
    /// The language of `text`, and its first line of that language; `None` if it may be TOML.
    pub(crate) fn of(text: &str) -> Option<(Self, Position)> {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| says_something(line)).collect();
        let first = |is_it: &dyn Fn(&str) -> bool| {
            let line = lines.iter().find(|(_, line)| is_it(line))?;
            Some(Position { line: line.0 + 1, column: line.1.chars().take_while(|c| c.is_whitespace()).count() + 1 })
        };
        let (_, opening) = lines.first()?;
        match opening.trim_start().chars().next() {
            Some('{') => return Some((Self::Json, first(&|_| true)?)),
            Some('<') => return Some((Self::Xml, first(&|_| true)?)),
            _ => {}
        }
        let count = |is_it: fn(&str) -> bool| lines.iter().filter(|(_, line)| is_it(line)).count();
        let settings = count(is_setting);
        if lines.iter().any(|(_, line)| is_header(line)) {
            return None;
        }
        let is_most = |found: usize| found > settings && found * 2 >= lines.len();
        if let Some(place) = first(&is_haproxy_section)
            && settings == 0
            && count(ends_statement) == 0
        {
            return Some((Self::Haproxy, place));
        }
        if is_most(count(|line| ends_statement(line) || is_brace(line))) {
            let language = if count(ends_statement) > 0 { Self::Nginx } else { Self::Caddyfile };
            return Some((language, first(&|line| ends_statement(line) || is_brace(line))?));
        }
        is_most(count(is_yaml)).then(|| first(&is_yaml)).flatten().map(|place| (Self::Yaml, place))
    }

    /// Its name, for a message.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Haproxy => "an HAProxy configuration",
            Self::Nginx => "an nginx configuration",
            Self::Caddyfile => "a Caddyfile",
            Self::Xml => "XML",
        }
    }
}

fn says_something(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#') && !line.starts_with("//")
}

/// `[table]`, or a line that may be meant as one.
fn is_header(line: &str) -> bool {
    let name = line.trim_start().trim_start_matches('[');
    line.trim_start().starts_with('[') && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// `key = value`.
fn is_setting(line: &str) -> bool {
    line.split_once('=').is_some_and(|(key, _)| is_key(key.trim()))
}

/// `key:` at the end or with a value after it, `- item`, and the marks around a document.
fn is_yaml(line: &str) -> bool {
    let line = line.trim();
    if matches!(line, "---" | "...") || line == "-" || line.starts_with("- ") {
        return true;
    }
    line.split_once(':').is_some_and(|(key, rest)| is_key(key) && (rest.is_empty() || rest.starts_with(' ')))
}

fn is_key(key: &str) -> bool {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-.\"'".contains(c);
    !key.is_empty() && key.chars().all(bare)
}

fn is_haproxy_section(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(|word| line.starts_with(word) && HAPROXY_SECTIONS.contains(&word))
        && !line.contains([':', '='])
        && !line.trim_end().ends_with('{')
}

fn ends_statement(line: &str) -> bool {
    line.split('#').next().unwrap_or(line).trim_end().ends_with(';')
}

fn is_brace(line: &str) -> bool {
    let line = line.trim();
    line.ends_with('{') || line == "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(Foreign, String)> {
        Foreign::of(text).map(|(language, place)| (language, place.to_string()))
    }

    #[test]
    fn language_of_another_program_is_recognised_with_its_first_line() {
        for (text, language, place) in [
            ("# a comment\nlisteners:\n  - address: \":8080\"\n", Foreign::Yaml, "2:1"),
            ("---\nclusters:\n  web:\n    backends: [10.0.0.1:80]\n", Foreign::Yaml, "1:1"),
            ("\n{\n  \"listeners\": []\n}\n", Foreign::Json, "2:1"),
            ("global\n    maxconn 10\n\nbackend web\n    server a 10.0.0.1:80\n", Foreign::Haproxy, "1:1"),
            ("upstream web {\n    server 10.0.0.1:80 weight=2;\n}\n", Foreign::Nginx, "1:1"),
            ("  worker_processes 4;\n", Foreign::Nginx, "1:3"),
            (":8080 {\n    reverse_proxy 10.0.0.1:80\n}\n", Foreign::Caddyfile, "1:1"),
            ("<config>\n</config>\n", Foreign::Xml, "1:1"),
        ] {
            assert_eq!(of(text), Some((language, place.to_owned())), "{text}");
        }
    }

    #[test]
    fn toml_with_a_mistake_is_not_foreign() {
        for text in [
            "",
            "[[listeners]]\naddress: \":8080\"\n",
            "[[listeners]\naddress = \":8080\"\n",
            "threads = 4;\nadmin = { listen = \"off\" }\n",
            "threads 4\n",
            "backends = [\n  10.0.0.1:80,\n  10.0.0.2:80,\n]\n",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}

//! One path: a match of a route, or the path that a route sends to backends or clients.

use std::fmt;

use plimsoll_config::{Flaw, quoted, text, values};

use super::path::normalise;
use super::route::{has_one_reading, is_path_text, is_regular_expression};

/// One path in normal form. A `/` at its end counts: `/api/` is another path than `/api`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExactPath(String);

impl ExactPath {
    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(path: &str) -> Result<Self, Flaw> {
        if is_path_text(path) {
            return Ok(Self(normalise(path).text.into_owned()));
        }
        let help = match path {
            _ if is_regular_expression(path) => {
                "write one path such as \"/api\": regular expressions are not known".to_owned()
            }
            _ if !path.starts_with('/') => format!("write \"/{path}\""),
            _ if path.contains(['?', '#']) => "remove the query: this is the path only".to_owned(),
            _ if path.contains('*') => "write path_prefix for all paths below one".to_owned(),
            _ if !has_one_reading(path) => {
                "write the path without dot segments, parameters (\";\") and encoded slashes".to_owned()
            }
            _ => "write a path such as \"/api\", other characters percent-encoded".to_owned(),
        };
        Err(Flaw::new(format!("\"{path}\" is not a path"), help))
    }
}

/// As it is written in the file.
impl fmt::Display for ExactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

values! {
    ExactPath: |v| ExactPath::parse(text(v, "a path", "a path in quotes, such as \"/api\"")?), |path| quoted(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_kept_in_normal_form_with_its_last_slash() {
        for (written, kept) in
            [("/", "/"), ("/api", "/api"), ("/api/", "/api/"), ("/%61pi/caf%c3%a9", "/api/caf%C3%A9")]
        {
            assert_eq!(ExactPath::parse(written).unwrap().as_str(), kept);
        }
        for (junk, help) in [
            ("", "write \"/\""),
            ("api", "write \"/api\""),
            ("= /api", "regular expressions are not known"),
            ("/a?b", "remove the query"),
            ("/a/*", "write path_prefix"),
            ("/a/../b", "without dot segments"),
            ("/a%2fb", "without dot segments"),
            ("//a", "percent-encoded"),
            ("/a b", "percent-encoded"),
        ] {
            let flaw = ExactPath::parse(junk).unwrap_err();
            assert!(flaw.help.contains(help), "{junk}: {}", flaw.help);
        }
    }
}

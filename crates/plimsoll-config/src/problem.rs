//! Problems of a configuration: the place, the reason, and the fix.
//!
//! With one problem a run, a file of ten mistakes takes ten runs. So a check never stops at the
//! first: it reports all problems at once, in the order of the file. Each problem names its place
//! twice: by path (`clusters.web.backends[2].address`), which survives reformatting, and by line and
//! column, to which an editor can jump.

use std::fmt;

/// A place in the text of a file, both parts counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character within the line.
    pub column: usize,
}

impl Position {
    /// The position of the byte at `offset` of `text`; the end of the text when it lies beyond.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The setting, as a path from the root of the file; empty for the file as a whole.
    pub path: String,
    /// Where that is in the text; `None` when the configuration does not come from a file.
    pub position: Option<Position>,
    /// The reason.
    pub reason: String,
    /// The fix.
    pub help: String,
}

/// `line:column: path: reason`, with the help on a second line, or on several.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}\n    help: {}", self.reason, self.help.replace('\n', "\n        "))
    }
}

/// The flaw of one value, at any place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The reason.
    pub reason: String,
    /// The fix.
    pub help: String,
}

impl Flaw {
    /// A flaw with its reason and its fix.
    pub fn new(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self { reason: reason.into(), help: help.into() }
    }
}

/// A configuration that cannot be used, with all its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source_name: String,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// Takes problems in any order; `source_name` is the file's name or `command line`.
    #[must_use]
    pub fn new(source_name: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.position);
        Self { source_name: source_name.to_owned(), problems }
    }

    /// All problems, in the order of the file; never empty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// One problem after the other, each headed `file:line:column:`, as compilers write them.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            let space = if problem.position.is_some() { "" } else { " " };
            write!(f, "{newline}{}:{space}{problem}", self.source_name)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A name in lower case and with one kind of separator.
pub(crate) fn normal(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// The name among `known` that `name` was most likely meant to be, if any is near enough.
///
/// Near is at most one edit in three characters (swaps count as one): `intervall` finds `interval`,
/// `foo` finds nothing.
#[must_use]
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = normal(name);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &normal(candidate));
    known
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().max(lower.chars().count()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The help for a name that is none of `known`: the likely one, and the whole list if it is short.
#[must_use]
pub fn help_for_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(meant) = did_you_mean(name, known.clone()) {
        return format!("did you mean \"{meant}\"?");
    }
    let mut names: Vec<&str> = known.into_iter().collect();
    names.sort_unstable();
    if names.is_empty() { "remove it".to_owned() } else { format!("use one of: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let text = "a = 1\nø = \"ü\"\n";
        assert_eq!(Position::of(text, 0), Position { line: 1, column: 1 });
        assert_eq!(Position::of(text, text.find('"').unwrap()), Position { line: 2, column: 5 });
        assert_eq!(Position::of(text, 9_999), Position { line: 3, column: 1 });
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = ["interval", "timeout", "path"];
        assert_eq!(did_you_mean("intervall", known), Some("interval"));
        assert_eq!(did_you_mean("tiemout", known), Some("timeout"));
        assert_eq!(did_you_mean("Path", known), Some("path"));
        assert_eq!(did_you_mean("zzz", known), None);
    }
}

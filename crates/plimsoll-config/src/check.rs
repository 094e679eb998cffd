//! Rules over several settings: names that must exist, times that must fit one another.
//!
//! The type or codec of a single value has its rules; a rule here is about two settings or more. It
//! is left out where one of its settings could not be read, so that no problem is a mere echo of
//! another.
//!
//! A default yields: a user with a short time-out need not lower the longer default of another one
//! that it bounds. Only settings of the file can contradict each other.

use std::time::Duration;

use crate::problem::Problem;
use crate::table::read::Places;

/// Collects the problems of settings together, after those of each setting.
#[derive(Debug)]
pub struct Checker<'p> {
    places: &'p Places,
    problems: Vec<Problem>,
}

impl<'p> Checker<'p> {
    /// A checker that begins with the `problems` of single values.
    #[must_use]
    pub fn new(places: &'p Places, problems: Vec<Problem>) -> Self {
        Self { places, problems }
    }

    /// All problems, those of single values included, in no order.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Whether the file has a setting at `path`.
    #[must_use]
    pub fn is_set(&self, path: &str) -> bool {
        self.places.holds(path)
    }

    /// Reports a problem of the setting at `path`, unless its value could not be read.
    pub fn report(&mut self, path: impl Into<String>, reason: impl Into<String>, help: impl Into<String>) {
        let path = path.into();
        let position = self.places.find(&path);
        if self.is_readable(&path) && !self.places.is_guess(position) {
            self.problems.push(Problem { path, position, reason: reason.into(), help: help.into() });
        }
    }

    /// Whether no problem is known of the setting at `path`, or within it.
    #[must_use]
    pub fn is_readable(&self, path: &str) -> bool {
        let touches = |problem: &Problem| {
            let rest = problem.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self.places.is_misnamed(path) && !self.problems.iter().any(touches)
    }

    /// Makes `short` at most as long as `long`, both in `table` and with their names there. It lowers
    /// a default, and reports a setting of the file.
    pub fn order(&mut self, table: &str, short: (&str, &mut Duration), long: (&str, Duration)) {
        let (short_name, short_span) = short;
        let (long_name, long_span) = long;
        let path = format!("{table}.{short_name}");
        if *short_span <= long_span || !self.is_readable(&format!("{table}.{long_name}")) {
            return;
        }
        if !self.places.holds(&path) {
            *short_span = long_span;
            return;
        }
        let [short_text, long_text] = [*short_span, long_span].map(humantime::format_duration);
        let reason = format!("{short_text} is longer than {long_name} ({long_text})");
        self.report(path, reason, format!("write at most \"{long_text}\", or raise {long_name}"));
    }
}

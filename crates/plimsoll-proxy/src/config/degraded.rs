//! A route's answers in place of an error; `crate::degrade` gives them.

use std::num::NonZeroUsize;
use std::time::Duration;

use http::HeaderName;
use plimsoll_config::{ByteSize, Checker, Format, List, choice, quoted, table};

use super::answer::Answer;
use super::criticality::FIELD_NAME;
use super::trouble::Trouble;

table! {
    /// A route's answers in place of an error.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Degraded {
        /// The errors that they replace.
        pub(crate) on: Vec<Trouble> = Trouble::WITHOUT_SERVICE.to_vec(), value_as(List(TROUBLE));
        /// The longest time since a backend gave an answer that is given again; `None`: none is.
        pub max_stale: Option<Duration> = None, optional;
        /// Fields of requests by which answers differ, beside those that the answers name.
        // A compressed response must not go to clients that cannot read it, and nginx does not
        // declare that by default.
        pub vary: Vec<HeaderName> = vec![http::header::ACCEPT_ENCODING], value_as(List(FIELD_NAME));
        /// The answer if there is no stored one.
        pub answer: Option<Answer> = None, optional_table;
    }
    NEEDS = "max_stale = \"10m\", or an answer";
}

const TROUBLE: Format<Trouble> = Format {
    read: |v| choice(v, "a kind of error", &Trouble::ALL.map(|trouble| (trouble.name(), trouble))),
    print: |trouble| quoted(trouble.name()),
};

impl Degraded {
    /// Reports contradictions among its settings, those at `path`.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        if self.max_stale.is_none() && self.answer.is_none() && checker.is_readable(path) {
            let help = "add max_stale = \"10m\", or answer = { body = \"...\" }";
            checker.report(path, "has no answer for an error", help);
        }
        if self.on.is_empty() {
            let help = "name at least one, such as \"overloaded\", or leave it out";
            checker.report(format!("{path}.on"), "is empty", help);
        }
        for (k, trouble) in self.on.iter().enumerate() {
            if self.on[..k].contains(trouble) {
                let reason = format!("\"{}\" is in the list twice", trouble.name());
                checker.report(format!("{path}.on[{k}]"), reason, "remove one of them");
            }
        }
        if let Some(answer) = &self.answer {
            answer.check(&format!("{path}.answer"), checker);
        }
    }
}

/// The largest size of all stored responses, for any number of routes.
const DEFAULT_MAX_SIZE: ByteSize = ByteSize::kib(64 * 1024);
/// At some 6 KiB each as much as [`DEFAULT_MAX_SIZE`].
const DEFAULT_MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Nearly all pages and answers of APIs; downloads had better fail.
const DEFAULT_MAX_ENTRY: ByteSize = ByteSize::kib(1024);

table! {
    /// The limits of stored responses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct StaleAnswers {
        /// All of them together.
        pub max_size: ByteSize = DEFAULT_MAX_SIZE, value;
        /// How many.
        pub max_entries: NonZeroUsize = DEFAULT_MAX_ENTRIES, value;
        /// A single one.
        pub max_entry: ByteSize = DEFAULT_MAX_ENTRY, value;
    }
}

impl StaleAnswers {
    /// Makes a single one no larger than all of them: by lowering it if it is a default, else by a
    /// report.
    pub(super) fn check(&mut self, checker: &mut Checker<'_>) {
        if self.max_entry <= self.max_size || !checker.is_readable("stale_answers.max_size") {
            return;
        }
        if checker.is_set("stale_answers.max_entry") {
            let help = "lower it, or raise max_size";
            checker.report("stale_answers.max_entry", "is more than max_size, so no answer could be kept", help);
        } else {
            self.max_entry = self.max_size;
        }
    }
}

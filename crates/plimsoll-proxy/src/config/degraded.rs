//! A route's answers in place of an error; `crate::degrade` gives them.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll_config::{ByteSize, Checker, Table, Visitor, choice, quoted, values};

use super::answer::Answer;
use super::criticality::FieldName;
use super::trouble::Trouble;

/// A route's answers in place of an error.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Degraded {
    /// The errors that they replace.
    pub on: Vec<TroubleName>,
    /// The longest time since a backend gave an answer that is given again; `None`: none is.
    pub max_stale: Option<Duration>,
    /// Fields of requests by which answers differ, beside those that the answers name.
    pub vary: Vec<FieldName>,
    /// The answer if there is no stored one.
    pub answer: Option<Answer>,
}

/// A kind of error, as the file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TroubleName(pub(crate) Trouble);

impl Default for Degraded {
    fn default() -> Self {
        Self {
            on: Trouble::WITHOUT_SERVICE.map(TroubleName).to_vec(),
            max_stale: None,
            // A compressed response must not go to clients that cannot read it, and nginx does not
            // declare that by default.
            vary: vec![FieldName(http::header::ACCEPT_ENCODING)],
            answer: None,
        }
    }
}

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
                let reason = format!("\"{}\" is in the list twice", trouble.0.name());
                checker.report(format!("{path}.on[{k}]"), reason, "remove one of them");
            }
        }
        if let Some(answer) = &self.answer {
            answer.check(&format!("{path}.answer"), checker);
        }
    }
}

impl Table for Degraded {
    const NEEDS: &'static str = "max_stale = \"10m\", or an answer";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("on", &mut self.on);
        visitor.optional("max_stale", &mut self.max_stale);
        visitor.value("vary", &mut self.vary);
        visitor.optional_table("answer", &mut self.answer);
    }
}

values! {
    TroubleName: |v| choice(v, "a kind of error", &Trouble::ALL.map(|trouble| (trouble.name(), trouble))).map(Self), |trouble| quoted(trouble.0.name());
}

/// The largest size of all stored responses, for any number of routes.
const DEFAULT_MAX_SIZE: ByteSize = ByteSize::kib(64 * 1024);
/// At some 6 KiB each as much as [`DEFAULT_MAX_SIZE`].
const DEFAULT_MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Nearly all pages and answers of APIs; downloads had better fail.
const DEFAULT_MAX_ENTRY: ByteSize = ByteSize::kib(1024);

/// The limits of stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleAnswers {
    /// All of them together.
    pub max_size: ByteSize,
    /// How many.
    pub max_entries: NonZeroUsize,
    /// A single one.
    pub max_entry: ByteSize,
}

impl Default for StaleAnswers {
    fn default() -> Self {
        Self { max_size: DEFAULT_MAX_SIZE, max_entries: DEFAULT_MAX_ENTRIES, max_entry: DEFAULT_MAX_ENTRY }
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

impl Table for StaleAnswers {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("max_size", &mut self.max_size);
        visitor.value("max_entries", &mut self.max_entries);
        visitor.value("max_entry", &mut self.max_entry);
    }
}

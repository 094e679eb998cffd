//! An answer that stands in the file, or in a file beside it; `crate::fixed` gives it.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use plimsoll_config::{ByteSize, Checker, Flaw, Table, Visitor, quoted, text, values, whole};

use super::tls::FilePath;

/// The longest body that is read from a file. It is held in memory for as long as the configuration
/// is in force.
pub(super) const MAX_BODY: ByteSize = ByteSize::kib(1024);

/// An answer that needs no backend.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// Its status, unless that goes without saying.
    pub status: Option<AnswerStatus>,
    /// Its body. Of this and `file` at most one is there.
    pub body: Option<String>,
    /// The file that its body stands in.
    pub file: Option<FilePath>,
    /// The type of the body.
    pub content_type: Option<ContentType>,
    /// When it is worth while to ask again.
    pub retry_after: Option<Duration>,
}

/// The status of an answer: a final one, which 1xx are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerStatus(pub StatusCode);

/// The type of a body, such as `text/html; charset=utf-8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType(pub HeaderValue);

impl Answer {
    /// Reports contradictions among its settings, those at `path`.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        if self.body.is_some() && self.file.is_some() {
            checker.report(format!("{path}.file"), "the answer has a body already", "remove one of them");
        }
        let has_none = |status: StatusCode| {
            [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
        };
        if let Some(AnswerStatus(status)) = self.status
            && has_none(status)
            && (self.body.is_some() || self.file.is_some())
        {
            let key = if self.body.is_some() { "body" } else { "file" };
            let reason = format!("an answer with status {} has no body", status.as_u16());
            checker.report(format!("{path}.{key}"), reason, "remove it, or write another status");
        }
    }
}

impl Table for Answer {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.optional("status", &mut self.status);
        visitor.optional("body", &mut self.body);
        visitor.optional("file", &mut self.file);
        visitor.optional("content_type", &mut self.content_type);
        visitor.optional("retry_after", &mut self.retry_after);
    }
}

fn status(number: u16) -> Result<AnswerStatus, Flaw> {
    let status = StatusCode::from_u16(number).ok().filter(|status| (200..600).contains(&status.as_u16()));
    status.map(AnswerStatus).ok_or_else(|| {
        Flaw::new(format!("{number} is not the status of an answer"), "write one from 200 to 599, such as 403")
    })
}

fn content_type(text: &str) -> Result<ContentType, Flaw> {
    let is_one = text.contains('/') && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let value = HeaderValue::from_str(text).ok().filter(|_| is_one);
    value.map(ContentType).ok_or_else(|| {
        Flaw::new(format!("\"{text}\" is not a content type"), "write one such as \"text/html; charset=utf-8\"")
    })
}

values! {
    AnswerStatus: |v| status(whole::<u16>(v, 0)?), |status| status.0.as_u16().to_string();
    ContentType: |v| content_type(text(v, "a content type", "text in quotes, such as \"text/html\"")?), |value| quoted(value.0.to_str().unwrap_or_default());
}

//! An answer that stands in the file, or in a file beside it; `crate::fixed` gives it.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use plimsoll_config::{ByteSize, Checker, Flaw, Format, quoted, table, text, whole};
use plimsoll_tls_config::FilePath;

/// The longest body that is read from a file. It is held in memory for as long as the configuration
/// is in force.
pub(super) const MAX_BODY: ByteSize = ByteSize::kib(1024);

table! {
    /// An answer that needs no backend.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Answer {
        /// Its status, unless that goes without saying.
        pub status: Option<StatusCode> = None, optional_as(STATUS);
        /// Its body. Of this and `file` at most one is there.
        pub body: Option<String> = None, optional;
        /// The file that its body stands in.
        pub file: Option<FilePath> = None, optional;
        /// The type of the body, such as `text/html; charset=utf-8`.
        pub content_type: Option<HeaderValue> = None, optional_as(CONTENT_TYPE);
        /// When it is worth while to ask again.
        pub retry_after: Option<Duration> = None, optional;
    }
}

impl Answer {
    /// Reports contradictions among its settings, those at `path`.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        if self.body.is_some() && self.file.is_some() {
            checker.report(format!("{path}.file"), "the answer has a body already", "remove one of them");
        }
        let has_none = |status: StatusCode| {
            [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
        };
        if let Some(status) = self.status
            && has_none(status)
            && (self.body.is_some() || self.file.is_some())
        {
            let key = if self.body.is_some() { "body" } else { "file" };
            let reason = format!("an answer with status {} has no body", status.as_u16());
            checker.report(format!("{path}.{key}"), reason, "remove it, or write another status");
        }
    }
}

/// A final status, which 1xx are not.
const STATUS: Format<StatusCode> = Format {
    read: |v| {
        let number = whole::<u16>(v, 0)?;
        let status = StatusCode::from_u16(number).ok().filter(|status| (200..600).contains(&status.as_u16()));
        status.ok_or_else(|| {
            Flaw::new(format!("{number} is not the status of an answer"), "write one from 200 to 599, such as 403")
        })
    },
    print: |status| status.as_u16().to_string(),
};

const CONTENT_TYPE: Format<HeaderValue> = Format {
    read: |v| {
        let text = text(v, "a content type", "text in quotes, such as \"text/html\"")?;
        let is_one = text.contains('/') && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        HeaderValue::from_str(text).ok().filter(|_| is_one).ok_or_else(|| {
            Flaw::new(format!("\"{text}\" is not a content type"), "write one such as \"text/html; charset=utf-8\"")
        })
    },
    print: |value| quoted(value.to_str().unwrap_or_default()),
};

//! An integer priority as a claim of criticality: its header, and the numbers of each level.

use http::HeaderName;
use http::header::CONTENT_LENGTH;
use plimsoll_config::{Checker, Flaw, Format, quoted, table, text};
use plimsoll_core::Criticality;
use plimsoll_core::classify::{Ambiguous, Priorities, PriorityRange};
use plimsoll_wire::metadata::PriorityHeader;

use super::criticality::FIELD_NAME;

table! {
    /// The field with an integer priority, and the level of each number. A number without a level
    /// claims nothing.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Priority {
        /// The name of the field.
        pub header: HeaderName = UNNAMED, required_as(FIELD_NAME);
        /// The numbers of the most critical requests.
        pub critical_plus: Option<PriorityRange> = None, optional_as(RANGE);
        /// Those of critical requests.
        pub critical: Option<PriorityRange> = None, optional_as(RANGE);
        /// Those of requests that may be lost now and then.
        pub sheddable_plus: Option<PriorityRange> = None, optional_as(RANGE);
        /// Those of requests that may be lost often.
        pub sheddable: Option<PriorityRange> = None, optional_as(RANGE);
    }
}

/// The place of the name, which is required in the file.
const UNNAMED: HeaderName = CONTENT_LENGTH;

/// Numbers from one to another, both included: `"0-7"`, or `"7"` for one alone.
const RANGE: Format<PriorityRange> = Format {
    read: |v| {
        const HELP: &str = "write the first and the last number, such as \"0-7\"";
        let range = text(v, "a range of priorities", "a range in quotes, such as \"0-7\"")?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(Flaw::new(format!("\"{range}\" is not a range of priorities"), HELP));
        };
        let help = || format!("write \"{last}-{first}\"");
        PriorityRange::new(first, last).ok_or_else(|| Flaw::new(format!("{first} is above {last}"), help()))
    },
    print: |range| match (range.first(), range.last()) {
        (first, last) if first == last => quoted(first),
        (first, last) => quoted(format_args!("{first}-{last}")),
    },
};

impl Priority {
    fn levels(&self) -> Result<Priorities, Ambiguous> {
        Priorities::new(|level| match level {
            Criticality::CriticalPlus => self.critical_plus,
            Criticality::Critical => self.critical,
            Criticality::SheddablePlus => self.sheddable_plus,
            Criticality::Sheddable => self.sheddable,
        })
    }

    /// As requests are read by it.
    pub(crate) fn header(&self) -> PriorityHeader {
        let levels = self.levels().expect("the ranges were checked with the file");
        PriorityHeader { name: self.header.clone(), levels }
    }

    /// Reports numbers with two levels, and a table without any. `path` is that of the table.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        match self.levels() {
            Err(Ambiguous(one, other)) => {
                let reason = format!("{one} and {other} have a number in common");
                checker.report(path, reason, "give each number to one level");
            }
            Ok(levels) if levels == Priorities::default() && checker.is_readable(path) => {
                checker.report(path, "no number has a level", "add critical_plus = \"0-7\" or another level");
            }
            Ok(_) => {}
        }
    }
}

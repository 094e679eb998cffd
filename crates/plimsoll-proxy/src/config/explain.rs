//! The record of requests for `plimsoll explain`.

use plimsoll_config::{Effect, Flaw, Format, number, table};
use plimsoll_core::Ratio;

/// Some tens of megabytes for each kind.
const MAX_ENTRIES: f64 = 100_000.0;
/// A megabyte or two when all are taken.
const DEFAULT_ENTRIES: usize = 1_000;
/// One in a hundred is enough to see what is usual, and costs the others nothing.
const DEFAULT_SAMPLE: Ratio = Ratio::from_percent(1);

table! {
    /// The record of requests that `plimsoll explain` searches.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Explain {
        /// Requests of each kind that are remembered, at least one; `None` for none.
        pub entries: Option<usize> = Some(DEFAULT_ENTRIES), switch_as(ENTRIES),
            Effect::Applied("the memory of past requests is cleared");
        /// Of the requests that were served at once, the share that is remembered.
        pub sample: Ratio = DEFAULT_SAMPLE, value, Effect::Applied("from the next request on");
    }
    OFF = "entries = \"off\"";
}

const ENTRIES: Format<usize> = Format {
    read: |v| {
        let help = "write a whole number from 1 to 100000, or \"off\"";
        let entries = number(v).filter(|entries| (1.0..=MAX_ENTRIES).contains(entries) && entries.fract() == 0.0);
        let flaw = || Flaw::new("is not a number of requests to remember", help);
        entries.map(|entries| entries as usize).ok_or_else(flaw)
    },
    print: usize::to_string,
};

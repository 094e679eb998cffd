//! The record of requests for `plimsoll explain`.

use plimsoll_config::{Flaw, Table, Visitor, number, values};
use plimsoll_core::Ratio;

/// The record of requests that `plimsoll explain` searches.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explain {
    /// Requests of each kind that are remembered; `None` for none.
    pub entries: Option<Entries>,
    /// Of the requests that were served at once, the share that is remembered.
    pub sample: Ratio,
}

impl Default for Explain {
    fn default() -> Self {
        // A megabyte or two when all are taken. One in a hundred is enough to see what is usual,
        // and costs the others nothing.
        Self { entries: Some(Entries(1_000)), sample: Ratio::from_percent(1) }
    }
}

impl Table for Explain {
    const OFF: &'static str = "entries = \"off\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.switch("entries", &mut self.entries);
        visitor.value("sample", &mut self.sample);
    }
}

/// A number of requests that are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries(usize);

impl Entries {
    /// Some tens of megabytes for each kind.
    const MOST: f64 = 100_000.0;

    /// The number; at least one.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }

    fn new(entries: f64) -> Option<Self> {
        ((1.0..=Self::MOST).contains(&entries) && entries.fract() == 0.0).then_some(Self(entries as usize))
    }
}

values! {
    Entries: |v| {
        let help = "write a whole number from 1 to 100000, or \"off\"";
        number(v).and_then(Self::new).ok_or_else(|| Flaw::new("is not a number of requests to remember", help))
    }, |entries| entries.0.to_string();
}

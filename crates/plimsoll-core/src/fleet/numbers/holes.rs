//! The unused numbers, and how long this process has observed each of them.
//!
//! A hole is a number without a record below others, or the record of a holder that is not live. It
//! is identified by number and revision: a number that was taken and left again is another hole.
//! While removals are not believed no hole ages, and all begin anew with the trust.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Expect, NumberRecord};
use crate::Timestamp;

/// An unused number.
pub(super) struct Hole<'a> {
    pub(super) number: u32,
    /// The record of its dead holder.
    dead: Option<&'a NumberRecord>,
}

impl Hole<'_> {
    /// The record as an operation expects it.
    pub(super) fn expect(&self) -> Expect {
        match self.dead {
            None => Expect::Absent,
            Some(record) => Expect::Dead { id: record.id.clone(), mod_revision: record.mod_revision },
        }
    }

    fn key(&self) -> (u32, u64) {
        (self.number, self.dead.map_or(0, |record| record.mod_revision))
    }
}

/// The holes of a view, ascending. Of numbers without a record, as many as there are records: that
/// is enough to bring all holders together, and a number of billions costs nothing.
pub(super) fn of<'a>(records: &'a BTreeMap<u32, NumberRecord>, is_live: impl Fn(&String) -> bool) -> Vec<Hole<'a>> {
    let mut holes = Vec::new();
    let mut next = 0;
    for (number, record) in records {
        let absent = (next..*number).take(records.len().saturating_sub(holes.len()));
        holes.extend(absent.map(|number| Hole { number, dead: None }));
        next = number.saturating_add(1);
        if !is_live(&record.id) {
            holes.push(Hole { number: *number, dead: Some(record) });
        }
    }
    holes
}

/// The time since when each hole is observed.
#[derive(Clone, Debug, Default)]
pub(super) struct HoleClock {
    since: BTreeMap<(u32, u64), Timestamp>,
}

impl HoleClock {
    /// A view has these holes.
    pub(super) fn observe(&mut self, now: Timestamp, believes_removals: bool, holes: &[Hole<'_>]) {
        let before = core::mem::take(&mut self.since);
        if believes_removals {
            let since = |hole: &Hole<'_>| (hole.key(), before.get(&hole.key()).copied().unwrap_or(now));
            self.since = holes.iter().map(since).collect();
        }
    }

    /// Whether a hole was observed for `timeout`.
    pub(super) fn is_due(&self, now: Timestamp, hole: &Hole<'_>, timeout: Duration) -> bool {
        self.since.get(&hole.key()).is_some_and(|since| now >= *since + timeout)
    }

    /// The next time at which a hole was observed for `timeout`.
    pub(super) fn next_due(&self, now: Timestamp, timeout: Duration) -> Option<Timestamp> {
        self.since.values().map(|since| *since + timeout).filter(|due| *due > now).min()
    }
}

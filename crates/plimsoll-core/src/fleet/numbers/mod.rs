//! The number of a client (its index), or the slot of a backend: small, unique, and its own again
//! after a restart.
//!
//! Index algorithms of subsets need clients numbered 0, 1, 2 … without gaps. The store has two keys
//! for each member:
//!
//! ```text
//! numbers/N  → id         without a lease: the memory
//! members/ID → instance   with the lease of the member: the sign of life
//! ```
//!
//! Two keys, because they answer different questions. With a leased `numbers/N` alone, an outage of
//! the store for one lease time would free all numbers at once, and the race that follows would
//! deal them out anew: nearly every connection of the fleet would move.
//!
//! ```text
//! an id with a record         has that number
//! an id without a record      claims the r-th free number, r = its rank among such live ids
//! free                        no record, or its holder dead for hole_timeout
//! Holes::Closed, highest live moves to the lowest hole that is hole_timeout old;
//!                             else deletes dead records above it of that age
//! Holes::Kept                 nobody moves, nothing is deleted
//! ```
//!
//! **The rank spreads newcomers.** If each claimed the lowest free number, of 1,000 that start at
//! once one would win each round. All see nearly the same view, so ranks differ and most claims
//! meet no rival. Random numbers were rejected: they leave gaps, and a third of the claims
//! collides.
//!
//! **A hole is observed for `hole_timeout`** by the process that wants to use it: from the moment
//! it saw the holder go, while it believed removals ([`Members`]). A restart within that time finds
//! its number. The clocks of processes are never compared.
//!
//! **Only the holder of the highest number moves**, so a departure moves at most one other client,
//! and no two want the same hole.
//!
//! An operation names its expectations. The caller makes a transaction that compares exactly these:
//! the modification revision of each number (0 for none), that the key of the dead holder is
//! absent, and that its own key has its own instance. So a late view costs a lost race and never
//! gives two live members one number.
//!
//! Two duties of the caller make this hold from the members' view as well. After it has registered
//! anew, it shows the machine only views that include the registration. And it relies on its number
//! only while its lease lives ([`HeldLease`](super::HeldLease)).
//!
//! Where it is weak:
//! - A member that is cut off from the store keeps its number in use (frozen), and after
//!   `hole_timeout` another gets it. Both send to the same subset until the first is back.
//! - The highest member may be alive and not act; nothing is compacted until it does.
//! - Arrivals during a move can cost a second move.
//! - A view of all records is walked at each decision: 10,000 members take about a millisecond, so
//!   views should be gathered for some 100 ms.
//! - Two processes with one id share one number. The caller must refuse the second.
//!
//! Source: etcd documentation, "Transaction" (comparisons of modification revisions; an absent key
//! has revision 0).

mod holes;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use self::holes::{Hole, HoleClock};
use super::members::{Members, Presence};
use crate::health::BackoffConfig;
use crate::{Random, Ratio, Timestamp};

/// Waits after lost races. A first loss is most often a view that was 50 ms late. Full jitter, so
/// that the losers of one race do not meet in the next.
const LOST_BACKOFF: BackoffConfig =
    BackoffConfig { initial: Duration::from_millis(100), max: Duration::from_secs(2), jitter: Ratio::ONE };
/// Longest wait for a view that shows an operation. A watch delivers in milliseconds; a resync of
/// the watch takes a second or two.
const VIEW_WAIT: Duration = Duration::from_secs(5);

/// The treatment of unused numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Filled from the top, for the numbers of clients.
    Closed,
    /// Left to newcomers, for the slots of backends: a backend that moved would move the
    /// connections of all its clients.
    Kept,
}

/// Settings of [`Numbers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumbersConfig {
    /// The treatment of unused numbers.
    pub holes: Holes,
    /// Time for which a number is reserved for the holder that left it.
    pub hole_timeout: Duration,
}

impl NumbersConfig {
    /// A restart, with the download of an image, takes less than a minute; a hole costs the
    /// balance of one client for as long.
    pub const DEFAULT_HOLE_TIMEOUT: Duration = Duration::from_secs(60);

    /// With the default timeout.
    #[must_use]
    pub const fn new(holes: Holes) -> Self {
        Self { holes, hole_timeout: Self::DEFAULT_HOLE_TIMEOUT }
    }
}

/// The record of a number in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRecord {
    /// The id of its holder.
    pub id: String,
    /// The store's revision of the last change.
    pub mod_revision: u64,
}

/// The expected record of the number that an operation takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is none.
    Absent,
    /// It is of a holder whose member key is absent.
    Dead {
        /// The holder.
        id: String,
        /// The revision of the record.
        mod_revision: u64,
    },
}

/// The caller's own record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRecord {
    /// The number.
    pub number: u32,
    /// The revision of the record.
    pub mod_revision: u64,
}

/// A transaction to try. Each also compares that the caller's own member key has its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberOperation {
    /// Write the own id to a number.
    Claim {
        /// The number.
        number: u32,
        /// Its record until now.
        expect: Expect,
    },
    /// Write the own id to a lower number, and delete the old record.
    Move {
        /// The old record.
        from: OwnRecord,
        /// The lower number.
        to: u32,
        /// Its record until now.
        expect: Expect,
    },
    /// Delete the record of a dead holder, if its member key is absent.
    Delete {
        /// The number.
        number: u32,
        /// The dead holder.
        id: String,
        /// The revision of the record.
        mod_revision: u64,
    },
    /// Delete a second record of the caller: the answer to an earlier claim was lost.
    Release(OwnRecord),
}

impl NumberOperation {
    /// The number whose record a view shows changed after the operation, and its revision before.
    fn mark(&self) -> Mark {
        let revision = |expect: &Expect| match expect {
            Expect::Absent => 0,
            Expect::Dead { mod_revision, .. } => *mod_revision,
        };
        let (number, revision) = match self {
            Self::Claim { number, expect } | Self::Move { to: number, expect, .. } => (*number, revision(expect)),
            Self::Delete { number, mod_revision, .. } | Self::Release(OwnRecord { number, mod_revision }) => {
                (*number, *mod_revision)
            }
        };
        Mark { number, revision }
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOutcome {
    /// The transaction was made.
    Won,
    /// A comparison failed.
    Lost,
    /// There was no answer. It may have been made, or may still be.
    Unknown,
}

/// The record of a number at one revision.
#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u32,
    revision: u64,
}

impl Mark {
    fn is_in(self, records: &BTreeMap<u32, NumberRecord>) -> bool {
        records.get(&self.number).map_or(0, |record| record.mod_revision) == self.revision
    }
}

/// The state of the last operation.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The next one may begin.
    Ready,
    /// The caller has not told its end.
    InFlight(Mark),
    /// Its end is known. The next begins after `from`, when a view shows a change of the record,
    /// and at `until` in any case.
    Ended { mark: Mark, from: Timestamp, until: Timestamp },
}

/// The number of one member. It decides on the next operation, from a view of the store.
#[derive(Clone, Debug)]
pub struct Numbers {
    config: NumbersConfig,
    id: String,
    clock: HoleClock,
    progress: Progress,
    losses: u32,
    timeout: Option<Timestamp>,
}

impl Numbers {
    /// For the member `id`, without a number yet.
    #[must_use]
    pub fn new(config: NumbersConfig, id: String) -> Self {
        Self { config, id, clock: HoleClock::default(), progress: Progress::Ready, losses: 0, timeout: None }
    }

    /// The own number by this view: the lowest with the own id.
    #[must_use]
    pub fn number(&self, records: &BTreeMap<u32, NumberRecord>) -> Option<u32> {
        records.iter().find(|(_, record)| record.id == self.id).map(|(number, _)| *number)
    }

    /// The next operation to try, by the latest view. The caller reports its end to
    /// [`on_outcome`](Self::on_outcome).
    ///
    /// To be called for each view, at [`poll_timeout`](Self::poll_timeout), and after the timeout
    /// of `members`.
    pub fn decide<V: PartialEq>(
        &mut self,
        now: Timestamp,
        records: &BTreeMap<u32, NumberRecord>,
        members: &Members<String, V>,
    ) -> Option<NumberOperation> {
        self.timeout = None;
        let holes = holes::of(records, |id| members.presence(id).is_some());
        self.clock.observe(now, members.believes_removals(now), &holes);
        self.advance(now, records);
        if !matches!(self.progress, Progress::Ready)
            || !members.is_in_contact(now)
            || members.presence(&self.id) != Some(Presence::Present)
        {
            return None;
        }
        let operation = self.next(now, records, members, &holes)?;
        self.progress = Progress::InFlight(operation.mark());
        Some(operation)
    }

    /// The caller has no view that [`decide`](Self::decide) may see: its own key is another's, or not in
    /// the view yet. Holes are observed anew from the next decision on.
    pub fn pause(&mut self, now: Timestamp) {
        self.timeout = None;
        self.clock.observe(now, false, &[]);
    }

    /// The operation in flight ended.
    pub fn on_outcome(&mut self, now: Timestamp, outcome: NumberOutcome, rng: &mut impl Random) {
        let Progress::InFlight(mark) = self.progress else { return };
        let from = match outcome {
            NumberOutcome::Won => {
                self.losses = 0;
                now
            }
            NumberOutcome::Unknown => now,
            NumberOutcome::Lost => {
                let delay = LOST_BACKOFF.delay(self.losses, rng);
                self.losses = self.losses.saturating_add(1);
                now + delay
            }
        };
        // A lost race need not show in the record: a holder may have come back to life.
        let until = if outcome == NumberOutcome::Lost { from } else { now + VIEW_WAIT };
        self.progress = Progress::Ended { mark, from, until };
        self.timeout = Some(until);
    }

    /// The time at which [`decide`](Self::decide) may have an operation for the same view.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.timeout
    }

    fn advance(&mut self, now: Timestamp, records: &BTreeMap<u32, NumberRecord>) {
        if let Progress::Ended { mark, from, until } = self.progress {
            if now >= from && (now >= until || !mark.is_in(records)) {
                self.progress = Progress::Ready;
            } else {
                self.timeout = Some(if now < from { from } else { until });
            }
        }
    }

    fn next<V: PartialEq>(
        &mut self,
        now: Timestamp,
        records: &BTreeMap<u32, NumberRecord>,
        members: &Members<String, V>,
        holes: &[Hole<'_>],
    ) -> Option<NumberOperation> {
        let own = |(number, record): (&u32, &NumberRecord)| {
            (record.id == self.id).then_some(OwnRecord { number: *number, mod_revision: record.mod_revision })
        };
        let own: Vec<OwnRecord> = records.iter().filter_map(own).collect();
        match own[..] {
            [] => self.claim(now, records, members, holes),
            [only] if self.config.holes == Holes::Closed => self.compact(now, only, records, members, holes),
            [_] => None,
            [.., surplus] => Some(NumberOperation::Release(surplus)),
        }
    }

    fn claim<V: PartialEq>(
        &self,
        now: Timestamp,
        records: &BTreeMap<u32, NumberRecord>,
        members: &Members<String, V>,
        holes: &[Hole<'_>],
    ) -> Option<NumberOperation> {
        let numbered: BTreeSet<&str> = records.values().map(|record| record.id.as_str()).collect();
        let before = members.iter().map(|(id, _)| id).take_while(|id| **id < self.id);
        let waits = |id: &&String| !numbered.contains(id.as_str()) && members.presence(id) == Some(Presence::Present);
        let rank = before.filter(waits).count();
        let due = |hole: &&Hole<'_>| self.clock.is_due(now, hole, self.config.hole_timeout);
        let free = |number: u32| match records.get(&number) {
            None => Some(Expect::Absent),
            Some(_) => {
                let at = holes.binary_search_by_key(&number, |hole| hole.number).ok()?;
                Some(&holes[at]).filter(due).map(Hole::expect)
            }
        };
        (0..=u32::MAX)
            .filter_map(|number| free(number).map(|expect| NumberOperation::Claim { number, expect }))
            .nth(rank)
    }

    fn compact<V: PartialEq>(
        &mut self,
        now: Timestamp,
        own: OwnRecord,
        records: &BTreeMap<u32, NumberRecord>,
        members: &Members<String, V>,
        holes: &[Hole<'_>],
    ) -> Option<NumberOperation> {
        let mut above = records.range(own.number..).skip(1);
        if above.any(|(_, record)| members.presence(&record.id).is_some()) {
            return None;
        }
        let due = |hole: &&Hole<'_>| self.clock.is_due(now, hole, self.config.hole_timeout);
        if let Some(hole) = holes.iter().filter(|hole| hole.number < own.number).find(due) {
            return Some(NumberOperation::Move { from: own, to: hole.number, expect: hole.expect() });
        }
        // From the top, so that no hole appears.
        let above = holes.iter().rev().filter(|hole| hole.number > own.number).filter(due);
        let mut deletions = above.filter_map(|hole| match hole.expect() {
            Expect::Dead { id, mod_revision } => {
                Some(NumberOperation::Delete { number: hole.number, id, mod_revision })
            }
            Expect::Absent => None,
        });
        let deletion = deletions.next();
        if deletion.is_none() {
            self.timeout = self.clock.next_due(now, self.config.hole_timeout);
        }
        deletion
    }
}

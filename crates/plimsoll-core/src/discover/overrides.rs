//! Changes of single backends by hand: an operator's word over that of the source.
//!
//! ```text
//! member  = (listed and not removed) or added
//! weight  = that of the override, else of the addition, else of the list
//! drained = drained by hand
//! ```
//!
//! `listed` are the members by [`Merge`](super::Merge), after its holds, so a hold never brings back a
//! backend that the operator removed. The layer is no part of `Merge` for a reason: a loss is judged
//! by the lists of the source alone, and the end of an override restores exactly the source's word.
//!
//! Each address has at most one override of each [`OverrideKind`], and an addition and a removal exclude each
//! other. Each has an end of its own, so a weight for an hour outlives a drain of ten minutes.
//!
//! | command | effect |
//! |---|---|
//! | [`Put`](OverrideCommand::Put) | a member with exactly these properties, whatever its source lists |
//! | [`Remove`](OverrideCommand::Remove) | no member, whatever its source lists; one that was only added is forgotten |
//! | [`Patch`](OverrideCommand::Patch) | another weight, or a drain, while the backend is a member |
//! | [`Revoke`](OverrideCommand::Revoke) | the source's word again |
//!
//! An override of an address that its source lists no more stays, and holds again when it is listed
//! again. Where that is weak: an address that is put stays a member although its source removed it,
//! and may belong to another service by then. A [`Patch`](OverrideCommand::Patch) has no such risk.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::{Timestamp, Weight};

/// Overrides of one cluster. An operator changes a few backends by hand; thousands are a faulty script,
/// which belongs into the source.
pub const MAX_OVERRIDES: usize = 1_000;

/// The kind of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OverrideKind {
    /// The backend is a member whatever its source lists.
    Added,
    /// The backend is no member whatever its source lists.
    Removed,
    /// It has another weight.
    Weight,
    /// It gets no new request, and stays a member.
    Drained,
}

impl OverrideKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Added, Self::Removed, Self::Weight, Self::Drained];

    /// Its name in messages and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Weight => "weight",
            Self::Drained => "drained",
        }
    }
}

/// A change of one backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverrideChange<P> {
    /// It is a member with these properties.
    Added(P),
    /// It is no member.
    Removed,
    /// It has this weight.
    Weight(Weight),
    /// It gets no new request.
    Drained,
}

impl<P> OverrideChange<P> {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> OverrideKind {
        match self {
            Self::Added(_) => OverrideKind::Added,
            Self::Removed => OverrideKind::Removed,
            Self::Weight(_) => OverrideKind::Weight,
            Self::Drained => OverrideKind::Drained,
        }
    }
}

/// A change that is in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Override<K, P> {
    /// The address of the backend.
    pub key: K,
    /// The change.
    pub change: OverrideChange<P>,
    /// Its end. `None`: when it is revoked.
    pub ends: Option<Timestamp>,
}

/// The word of an operator on one backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverrideCommand<P> {
    /// It is a member with these properties. Ends all other overrides of the address.
    Put(P),
    /// It is no member. An address that was only added is forgotten, with all of its overrides.
    Remove,
    /// Changes a part.
    Patch {
        /// Another weight; `Some(None)` ends that override.
        weight: Option<Option<Weight>>,
        /// Whether it is drained.
        is_drained: Option<bool>,
    },
    /// Ends all overrides of the address.
    Revoke,
}

/// The reason why a command has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideError {
    /// Neither the source nor an override knows the address.
    Unknown,
    /// The cluster has [`MAX_OVERRIDES`].
    TooMany,
}

/// A member of the cluster, with the overrides of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overridden<'a, K, L, P> {
    /// Its address.
    pub key: &'a K,
    /// Its properties by its source. `None`: its source does not list it.
    pub listed: Option<L>,
    /// Its properties by the operator.
    pub added: Option<&'a P>,
    /// Its weight by the operator.
    pub weight: Option<Weight>,
    /// Whether it is drained by hand.
    pub is_drained: bool,
}

/// An override's value, and its end.
#[derive(Clone, Copy, Debug)]
struct Timed<T> {
    value: T,
    ends: Option<Timestamp>,
}

/// The overrides of an address. `membership`: the properties, or `None` for a removal.
#[derive(Clone, Debug)]
struct Entry<P> {
    membership: Option<Timed<Option<P>>>,
    weight: Option<Timed<Weight>>,
    drain: Option<Timed<()>>,
}

impl<P> Default for Entry<P> {
    fn default() -> Self {
        Self { membership: None, weight: None, drain: None }
    }
}

/// The overrides of a cluster.
///
/// After each call, and at [`poll_timeout`](Self::poll_timeout), the members are those of
/// [`apply`](Self::apply).
#[derive(Clone, Debug)]
pub struct Overrides<K, P> {
    entries: BTreeMap<K, Entry<P>>,
    /// The number of overrides.
    len: usize,
    /// The first end.
    due: Option<Timestamp>,
}

impl<K, P> Default for Overrides<K, P> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), len: 0, due: None }
    }
}

impl<K: Ord + Clone, P: Clone> Overrides<K, P> {
    /// Obeys a command about `key`. `ends` is the end of the overrides that it sets. `is_listed`: the
    /// source lists the address, or it is not known yet whether it does.
    ///
    /// The same command twice is the same as once.
    ///
    /// # Errors
    /// Nothing changes if the address is unknown, or if there are too many overrides.
    pub fn obey(
        &mut self,
        key: &K,
        command: OverrideCommand<P>,
        ends: Option<Timestamp>,
        is_listed: bool,
    ) -> Result<(), OverrideError> {
        let known = self.entries.get(key);
        let is_put = matches!(command, OverrideCommand::Put(_));
        if !is_put && !is_listed && known.is_none() {
            return Err(OverrideError::Unknown);
        }
        let mut entry = known.cloned().unwrap_or_default();
        let former = entry.len();
        match command {
            OverrideCommand::Put(properties) => {
                entry = Entry { membership: Some(Timed { value: Some(properties), ends }), ..Entry::default() };
            }
            OverrideCommand::Remove if entry.is_added() && !is_listed => entry = Entry::default(),
            OverrideCommand::Remove => entry.membership = Some(Timed { value: None, ends }),
            OverrideCommand::Patch { weight, is_drained } => {
                if let Some(weight) = weight {
                    entry.weight = weight.map(|value| Timed { value, ends });
                }
                if let Some(is_drained) = is_drained {
                    entry.drain = is_drained.then_some(Timed { value: (), ends });
                }
            }
            OverrideCommand::Revoke => entry = Entry::default(),
        }
        let len = self.len - former + entry.len();
        if len > MAX_OVERRIDES {
            return Err(OverrideError::TooMany);
        }
        if entry.len() == 0 {
            self.entries.remove(key);
        } else {
            self.entries.insert(key.clone(), entry);
        }
        self.len = len;
        self.note_due();
        Ok(())
    }

    /// Puts saved overrides in force, in place of those of the same kind and address. Returns the number
    /// of those that are too many.
    pub fn restore(&mut self, saved: impl IntoIterator<Item = Override<K, P>>) -> usize {
        let mut left_out = 0;
        for Override { key, change, ends } in saved {
            if self.len >= MAX_OVERRIDES {
                left_out += 1;
                continue;
            }
            let entry = self.entries.entry(key).or_default();
            self.len -= entry.len();
            match change {
                OverrideChange::Added(properties) => entry.membership = Some(Timed { value: Some(properties), ends }),
                OverrideChange::Removed => entry.membership = Some(Timed { value: None, ends }),
                OverrideChange::Weight(value) => entry.weight = Some(Timed { value, ends }),
                OverrideChange::Drained => entry.drain = Some(Timed { value: (), ends }),
            }
            self.len += entry.len();
        }
        self.note_due();
        left_out
    }

    /// The time of the next [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.due
    }

    /// Ends the overrides whose time is over, and returns them.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Vec<Override<K, P>> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let is_over = |ends: Option<Timestamp>| ends.is_some_and(|ends| ends <= now);
        let ended: Vec<_> = self.iter().filter(|each| is_over(each.ends)).collect();
        self.len -= ended.len();
        self.entries.retain(|_, entry| {
            entry.membership.take_if(|timed| is_over(timed.ends));
            entry.weight.take_if(|timed| is_over(timed.ends));
            entry.drain.take_if(|timed| is_over(timed.ends));
            entry.len() > 0
        });
        self.note_due();
        ended
    }

    /// The members: those in `listed` that are not removed, in their order, then the added ones by
    /// address. An address that is listed twice is there twice.
    pub fn apply<'a, L>(&'a self, listed: impl IntoIterator<Item = (&'a K, L)>) -> Vec<Overridden<'a, K, L, P>> {
        let mut seen = BTreeSet::new();
        let mut members = Vec::new();
        for (key, properties) in listed {
            let entry = self.entries.get(key);
            if entry.is_some() {
                seen.insert(key);
            }
            members.extend(Entry::applied(entry, key, Some(properties)));
        }
        let only_added = self.entries.iter().filter(|(key, entry)| entry.is_added() && !seen.contains(key));
        members.extend(only_added.filter_map(|(key, entry)| Entry::applied(Some(entry), key, None)));
        members
    }

    /// All overrides, by address and kind.
    pub fn iter(&self) -> impl Iterator<Item = Override<K, P>> {
        self.entries.iter().flat_map(|(key, entry)| entry.overrides(key))
    }

    /// The overrides of an address.
    pub fn of(&self, key: &K) -> impl Iterator<Item = Override<K, P>> {
        self.entries.get_key_value(key).into_iter().flat_map(|(key, entry)| entry.overrides(key))
    }

    /// Whether the address is drained by hand.
    #[must_use]
    pub fn is_drained(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.drain.is_some())
    }

    /// The number of overrides.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn note_due(&mut self) {
        self.due = self.entries.values().flat_map(Entry::ends).min();
    }
}

impl<P> Entry<P> {
    fn len(&self) -> usize {
        [self.membership.is_some(), self.weight.is_some(), self.drain.is_some()].into_iter().filter(|is| *is).count()
    }

    fn is_added(&self) -> bool {
        self.membership.as_ref().is_some_and(|timed| timed.value.is_some())
    }

    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let membership = self.membership.as_ref().and_then(|timed| timed.ends);
        let weight = self.weight.and_then(|timed| timed.ends);
        let drain = self.drain.and_then(|timed| timed.ends);
        [membership, weight, drain].into_iter().flatten()
    }

    /// The member that the overrides make of a listed or unlisted address. `None`: it is removed.
    fn applied<'a, K, L>(entry: Option<&'a Self>, key: &'a K, listed: Option<L>) -> Option<Overridden<'a, K, L, P>> {
        let membership = entry.and_then(|entry| entry.membership.as_ref());
        if membership.is_some_and(|timed| timed.value.is_none()) {
            return None;
        }
        Some(Overridden {
            key,
            listed,
            added: membership.and_then(|timed| timed.value.as_ref()),
            weight: entry.and_then(|entry| entry.weight).map(|timed| timed.value),
            is_drained: entry.is_some_and(|entry| entry.drain.is_some()),
        })
    }
}

impl<P: Clone> Entry<P> {
    fn overrides<K: Clone>(&self, key: &K) -> impl Iterator<Item = Override<K, P>> + use<K, P> {
        let membership = self.membership.clone();
        let membership = membership
            .map(|Timed { value, ends }| (value.map_or(OverrideChange::Removed, OverrideChange::Added), ends));
        let weight = self.weight.map(|Timed { value, ends }| (OverrideChange::Weight(value), ends));
        let drain = self.drain.map(|Timed { ends, .. }| (OverrideChange::Drained, ends));
        let key = key.clone();
        [membership, weight, drain].into_iter().flatten().map(move |(change, ends)| Override {
            key: key.clone(),
            change,
            ends,
        })
    }
}

#[cfg(test)]
mod tests;

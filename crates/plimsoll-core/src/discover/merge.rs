//! Which backends are members of a cluster.
//!
//! ```text
//! list   known' = known + listed;  a backend is absent after `confirmations` lists without it
//! due    serving  = members that are not held
//!        sudden   = 2 · |listed and ready| < |serving|
//!        member'  = listed and ready
//!                 | member, and held until a time to come
//!                 | member, lost by a sudden loss, and not drained: held until now + hold
//! ```
//!
//! A loss is the *net* loss of backends. A service that is replaced by as many new backends (blue and
//! green) lost nothing, and half of its requests must not go to the old version for `hold`.
//!
//! Each decision is on all known backends. So the end of a hold also lets changes take effect that still
//! gather: earlier, and otherwise the same. Another list within the 200 ms is one more walk, at most once
//! for each hold.
//!
//! A backend that turned not ready counts as lost: a registry whose probes all fail at once reports
//! no backend ready.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::gather::Gather;
use crate::Timestamp;

/// With a saved list, how long a cluster without answer waits for its source. The saved list is
/// better than none, and the first answer corrects it.
const SAVED_WAIT: Duration = Duration::from_millis(500);
/// A source that did not answer in this time does not keep a process from serving other clusters.
const START_WAIT: Duration = Duration::from_secs(10);

/// An empty list of a source that knew backends before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// It is taken for a fault: the backends stay.
    #[default]
    Keep,
    /// It is believed, as a sudden loss of all.
    Obey,
}

/// Settings of [`Merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeConfig {
    /// How long missing backends stay after a sudden loss. Zero: they go at once.
    pub hold: Duration,
    /// The meaning of an empty list.
    pub on_empty: OnEmpty,
    /// Lists in a row that a backend must be missing from. Two for sources whose answers may be
    /// incomplete, such as DNS.
    pub confirmations: NonZeroU32,
}

impl MergeConfig {
    /// A registry that restarts, or a name server with half of its zone, is whole again within
    /// this time. Health checks find unreachable backends much earlier.
    pub const DEFAULT_HOLD: Duration = Duration::from_secs(30);
}

impl Default for MergeConfig {
    fn default() -> Self {
        Self { hold: Self::DEFAULT_HOLD, on_empty: OnEmpty::Keep, confirmations: NonZeroU32::MIN }
    }
}

/// The source's word on a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It may get requests.
    #[default]
    Ready,
    /// It may get none yet, or none at present.
    Starting,
    /// It finishes its requests and ends.
    Draining,
}

/// A backend in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<K, P> {
    /// Its identity: the address.
    pub key: K,
    /// Everything that may change in place, such as its weight.
    pub properties: P,
    /// Whether it may get requests.
    pub readiness: Readiness,
}

/// A member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<K, P> {
    /// Its identity: the address.
    pub key: K,
    /// Its latest properties.
    pub properties: P,
    /// Its source lists it no more as ready; it stays for a time, after a sudden loss.
    pub is_held: bool,
}

impl<K, P> Member<K, P> {
    /// A member that is listed.
    pub const fn new(key: K, properties: P) -> Self {
        Self { key, properties, is_held: false }
    }
}

/// The origin of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// There was no list yet.
    Waiting,
    /// They are a saved list: the source has not answered since the start.
    Stale,
    /// They are answers of the source.
    Fresh,
}

/// The known backends by state: those of the source and the fixed ones, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Members that are listed, or fixed.
    pub ready: usize,
    /// Missing members that stay for a time, after a sudden loss.
    pub held: usize,
    /// Listed as draining.
    pub draining: usize,
    /// Listed, and no members yet: stated as starting, or in a list that is not in force yet.
    pub starting: usize,
}

impl Census {
    /// All of them.
    #[must_use]
    pub fn known(&self) -> usize {
        self.ready + self.held + self.draining + self.starting
    }
}

/// A decision that an operator should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeEvent {
    /// The source fails; the members stay. Once until it answers.
    SourceFailed,
    /// The source answers again.
    SourceRecovered,
    /// The source lists no backend, and its backends stay. Once until it lists one.
    EmptyListIgnored {
        /// Backends that stay.
        backends: usize,
    },
    /// The source has not answered since the start: a saved list is in force.
    SavedListUsed {
        /// Backends of the list.
        backends: usize,
    },
    /// A sudden loss: the missing backends stay for a time.
    LossHeld {
        /// Backends that stay.
        missing: usize,
        /// Members before.
        of: usize,
    },
    /// The time of held backends is over: they are members no more.
    HoldExpired {
        /// Removed backends.
        backends: usize,
    },
}

/// Changes of the members since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Backends that became members.
    pub added: u64,
    /// Members with changed properties.
    pub changed: u64,
    /// Members that the source removed, or stated as not ready.
    pub removed: u64,
    /// Members that the source stated as draining.
    pub drained: u64,
    /// Members removed at the end of `hold`.
    pub expired: u64,
    /// Members held after a sudden loss.
    pub held: u64,
    /// Errors of the source.
    pub errors: u64,
    /// Empty lists that had no effect.
    pub empty: u64,
}

/// A backend of the source.
#[derive(Clone, Debug)]
struct Known<P> {
    /// Its place in the last list that had it.
    place: usize,
    properties: P,
    readiness: Readiness,
    /// Lists in a row without it.
    absences: u32,
    held_until: Option<Timestamp>,
    is_member: bool,
    /// Its properties changed since they last took effect.
    is_changed: bool,
}

/// The members of a cluster.
///
/// After each call of an `on_…` function, and at [`poll_timeout`](Self::poll_timeout), call
/// [`handle_timeout`](Self::handle_timeout).
#[derive(Clone, Debug)]
pub struct Merge<K, P> {
    config: MergeConfig,
    started: Timestamp,
    fixed: Vec<Member<K, P>>,
    fixed_keys: BTreeSet<K>,
    saved: Vec<Listed<K, P>>,
    known: BTreeMap<K, Known<P>>,
    /// The members by the source, also those that are fixed.
    listed: Vec<Member<K, P>>,
    /// All of them, each once.
    members: Vec<Member<K, P>>,
    gather: Gather,
    /// The end of the first hold.
    hold_due: Option<Timestamp>,
    freshness: Freshness,
    answered: Option<Timestamp>,
    /// Counts changes of the list to save.
    revision: u64,
    /// The present source listed backends that were believed.
    is_listed: bool,
    is_failing: bool,
    is_empty: bool,
    /// The wait for the first list is over.
    is_waited: bool,
    counts: MergeCounts,
}

impl<K: Ord + Clone, P: PartialEq + Clone> Merge<K, P> {
    /// For a source that was not asked yet.
    ///
    /// `saved` is the last list of an earlier process; it comes into force if the source fails, or does
    /// not answer for half a second.
    #[must_use]
    pub fn new(now: Timestamp, config: MergeConfig, saved: Vec<Listed<K, P>>) -> Self {
        Self {
            config,
            started: now,
            fixed: Vec::new(),
            fixed_keys: BTreeSet::new(),
            saved,
            known: BTreeMap::new(),
            listed: Vec::new(),
            members: Vec::new(),
            gather: Gather::default(),
            hold_due: None,
            freshness: Freshness::Waiting,
            answered: None,
            revision: 0,
            is_listed: false,
            is_failing: false,
            is_empty: false,
            is_waited: false,
            counts: MergeCounts::default(),
        }
    }

    /// Another source, or other settings: the known backends stay, with their holds, as if the new
    /// source had listed them. The fixed ones stay, too.
    pub fn renew(&mut self, now: Timestamp, config: MergeConfig) {
        self.config = config;
        self.started = now;
        (self.is_listed, self.is_failing, self.is_empty, self.is_waited) = (false, false, false, false);
    }

    /// Fixed backends are members whatever the source lists. These replace the ones before, at once. A
    /// backend that the source lists as well stays a member without them. Returns whether the
    /// [members](Self::members) changed.
    ///
    /// They may be the members of another decision: so two sources have one list, and neither removes a
    /// backend of the other.
    pub fn set_fixed(&mut self, mut fixed: Vec<Member<K, P>>) -> bool {
        self.fixed_keys.clear();
        fixed.retain(|member| self.fixed_keys.insert(member.key.clone()));
        self.fixed = fixed;
        self.take_members()
    }

    /// The source answered with this list. Of a key that is listed twice the first entry counts.
    pub fn on_list(&mut self, now: Timestamp, list: Vec<Listed<K, P>>, observe: &mut impl FnMut(MergeEvent)) {
        if core::mem::take(&mut self.is_failing) {
            observe(MergeEvent::SourceRecovered);
        }
        self.answered = Some(now);
        // The saved list is the one before, so that a first answer with no or few backends is judged
        // like any other.
        let saved = core::mem::take(&mut self.saved);
        if !saved.is_empty() {
            self.freshness = Freshness::Stale;
            self.record(saved);
            self.apply(now, observe);
            self.gather.hurry(now);
        }
        let members = self.known.values().filter(|known| known.is_member).count();
        if list.is_empty() && members > 0 && self.config.on_empty == OnEmpty::Keep {
            self.counts.empty += 1;
            if !core::mem::replace(&mut self.is_empty, true) {
                observe(MergeEvent::EmptyListIgnored { backends: members });
            }
            return;
        }
        self.is_empty = false;
        let is_first = core::mem::replace(&mut self.freshness, Freshness::Fresh) != Freshness::Fresh;
        let change = self.record(list);
        self.is_listed = true;
        if change.is_any {
            self.revision += 1;
            self.gather.on_change(now, change.is_urgent);
        }
        if is_first {
            self.gather.hurry(now);
        }
    }

    /// The source failed, or did not answer in time. That is no list: the members stay.
    pub fn on_error(&mut self, now: Timestamp, observe: &mut impl FnMut(MergeEvent)) {
        self.counts.errors += 1;
        if !core::mem::replace(&mut self.is_failing, true) {
            observe(MergeEvent::SourceFailed);
        }
        self.use_saved(now, observe);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout). `None`: after the next answer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let saved = (!self.saved.is_empty()).then(|| self.started + SAVED_WAIT);
        let ready = (!self.is_waited && self.freshness == Freshness::Waiting).then(|| self.started + START_WAIT);
        [self.gather.due(), self.hold_due, saved, ready].into_iter().flatten().min()
    }

    /// Lets due changes take effect. Returns whether the [members](Self::members) changed.
    pub fn handle_timeout(&mut self, now: Timestamp, observe: &mut impl FnMut(MergeEvent)) -> bool {
        self.is_waited |= now >= self.started + START_WAIT;
        if now >= self.started + SAVED_WAIT {
            self.use_saved(now, observe);
        }
        let is_expired = self.hold_due.is_some_and(|due| due <= now);
        if !self.gather.take(now) && !is_expired {
            return false;
        }
        self.gather = Gather::default();
        self.apply(now, observe);
        self.listed = self.current();
        self.take_members()
    }

    /// The members, each key once: fixed ones first, then those of the source in its order, then those
    /// that are missing in its latest list.
    #[must_use]
    pub fn members(&self) -> &[Member<K, P>] {
        &self.members
    }

    /// The backends to save for a later process: those of the source, without those that are absent.
    pub fn to_save(&self) -> impl Iterator<Item = Listed<K, P>> {
        let confirmations = self.config.confirmations.get();
        let listed = self.in_order().into_iter().filter(move |(_, known)| known.absences < confirmations);
        listed.map(|(key, known)| Listed {
            key: key.clone(),
            properties: known.properties.clone(),
            readiness: known.readiness,
        })
    }

    /// Grows with each change of the list to save. `None` until the source lists backends: they are those
    /// of a saved list, or of a former source.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        self.is_listed.then_some(self.revision)
    }

    /// The origin of the members.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }

    /// Whether there was a list, or the wait for the first one is over: after 10 s, or with the first
    /// error where fixed backends serve meanwhile.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> bool {
        let has_fixed = self.is_failing && !self.fixed.is_empty();
        self.freshness != Freshness::Waiting || has_fixed || now >= self.started + START_WAIT
    }

    /// The time of the source's last list.
    #[must_use]
    pub fn answered(&self) -> Option<Timestamp> {
        self.answered
    }

    /// Whether the source's last answer was an error.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// The known backends by state.
    #[must_use]
    pub fn census(&self) -> Census {
        let held = self.fixed.iter().filter(|member| member.is_held).count();
        let mut census = Census { ready: self.fixed.len() - held, held, ..Census::default() };
        for (_, known) in self.known.iter().filter(|(key, _)| !self.fixed_keys.contains(*key)) {
            let count = match known {
                Known { held_until: Some(_), .. } => &mut census.held,
                Known { is_member: true, .. } => &mut census.ready,
                Known { readiness: Readiness::Draining, .. } => &mut census.draining,
                _ => &mut census.starting,
            };
            *count += 1;
        }
        census
    }

    /// Whether the source lists this backend, in any state, or may do so: there was no list yet. Fixed and
    /// held backends count as listed.
    #[must_use]
    pub fn may_list(&self, key: &K) -> bool {
        self.freshness == Freshness::Waiting || self.fixed_keys.contains(key) || self.known.contains_key(key)
    }

    /// Changes since the start, by reason.
    #[must_use]
    pub fn counts(&self) -> MergeCounts {
        self.counts
    }

    fn use_saved(&mut self, now: Timestamp, observe: &mut impl FnMut(MergeEvent)) {
        let saved = core::mem::take(&mut self.saved);
        if saved.is_empty() {
            return;
        }
        self.freshness = Freshness::Stale;
        observe(MergeEvent::SavedListUsed { backends: saved.len() });
        self.record(saved);
        self.gather.hurry(now);
    }

    /// Takes the entries of a list over, without effect on the members.
    fn record(&mut self, list: Vec<Listed<K, P>>) -> Change {
        let mut change = Change::default();
        let confirmations = self.config.confirmations.get();
        for known in self.known.values_mut() {
            known.absences = known.absences.saturating_add(1);
        }
        for (place, Listed { key, properties, readiness }) in list.into_iter().enumerate() {
            let Some(known) = self.known.get_mut(&key) else {
                change.is_any = true;
                let is_member = false;
                let known =
                    Known { place, properties, readiness, absences: 0, held_until: None, is_member, is_changed: false };
                self.known.insert(key, known);
                continue;
            };
            if known.absences == 0 {
                // Listed twice.
                continue;
            }
            let is_draining = readiness == Readiness::Draining && known.readiness != readiness;
            let is_changed = known.properties != properties;
            change.is_urgent |= is_draining;
            change.is_any |= is_changed
                || known.readiness != readiness
                || known.place != place
                || known.absences > confirmations
                || known.held_until.is_some();
            if is_changed {
                (known.properties, known.is_changed) = (properties, true);
            }
            (known.place, known.readiness, known.absences) = (place, readiness, 0);
        }
        change.is_any |= self.known.values().any(|known| known.absences == confirmations);
        change
    }

    /// Decides on the members among the known backends.
    fn apply(&mut self, now: Timestamp, observe: &mut impl FnMut(MergeEvent)) {
        let MergeConfig { hold, confirmations, .. } = self.config;
        let is_listed = |known: &Known<P>| known.absences < confirmations.get();
        let ready = self.known.values().filter(|known| is_listed(known) && known.readiness == Readiness::Ready).count();
        let serving = self.known.values().filter(|known| known.is_member && known.held_until.is_none()).count();
        let is_sudden = 2 * ready < serving && !hold.is_zero();
        let (mut newly_held, mut expired) = (0, 0);
        let counts = &mut self.counts;
        self.hold_due = None;
        let hold_due = &mut self.hold_due;
        self.known.retain(|_, known| {
            let was_member = known.is_member;
            let held_until = known.held_until.take();
            let is_changed = core::mem::take(&mut known.is_changed);
            match (is_listed(known), known.readiness) {
                (true, Readiness::Ready) => {
                    known.is_member = true;
                    counts.added += u64::from(!was_member);
                    counts.changed += u64::from(was_member && is_changed);
                }
                (_, Readiness::Draining) => {
                    known.is_member = false;
                    counts.drained += u64::from(was_member);
                }
                _ if was_member => {
                    if held_until.is_none() && is_sudden {
                        newly_held += 1;
                    }
                    match held_until.or_else(|| is_sudden.then(|| now + hold)) {
                        Some(until) if until > now => {
                            known.held_until = Some(until);
                            *hold_due = Some(hold_due.map_or(until, |due| due.min(until)));
                        }
                        Some(_) => {
                            known.is_member = false;
                            expired += 1;
                        }
                        None => {
                            known.is_member = false;
                            counts.removed += 1;
                        }
                    }
                }
                _ => {}
            }
            known.is_member || is_listed(known)
        });
        counts.held += newly_held as u64;
        counts.expired += expired as u64;
        if newly_held > 0 {
            observe(MergeEvent::LossHeld { missing: newly_held, of: serving });
        }
        if expired > 0 {
            observe(MergeEvent::HoldExpired { backends: expired });
        }
    }

    /// Whether the members changed.
    fn take_members(&mut self) -> bool {
        let listed = self.listed.iter().filter(|member| !self.fixed_keys.contains(&member.key));
        let members: Vec<_> = self.fixed.iter().chain(listed).cloned().collect();
        let is_changed = members != self.members;
        self.members = members;
        is_changed
    }

    /// The members by the source.
    fn current(&self) -> Vec<Member<K, P>> {
        let members = self.in_order().into_iter().filter(|(_, known)| known.is_member);
        let member = |(key, known): (&K, &Known<P>)| Member {
            key: key.clone(),
            properties: known.properties.clone(),
            is_held: known.held_until.is_some(),
        };
        members.map(member).collect()
    }

    /// The known backends in the order of the source, those that are missing last.
    fn in_order(&self) -> Vec<(&K, &Known<P>)> {
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_by_key(|(_, known)| (known.absences > 0, known.place));
        known
    }
}

/// The difference between a list and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    is_any: bool,
    /// A backend drains now.
    is_urgent: bool,
}

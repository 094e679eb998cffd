//! The account of a cluster's source: its changes by reason, its last error, and its lines in the log.
//!
//! A change in force of any size is one line. A failing source is asked again for hours, so its
//! error is logged when it begins to fail, and again once a minute. The line of the recovery ends it.
//!
//! A source may also flap, between errors and lists or between empty and other lists. So there is a
//! [`LineLimit`] for outages, and one for empty lists. The next line has the number of those left out,
//! and an outage without a line has none about its recovery.
//!
//! Backends that came, left or changed are counted by the lists in force, not by the answers: a reload
//! that names the same backends by another source changes nothing.

use crate::address::Address;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{MergeCounts, MergeEvent};

use crate::discover::{Discover, Endpoint, LoggedError, SourceError};

/// Shortest time between two lines about one failure that lasts, and between lines in the long run.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Lines before they are limited: someone who corrects a file in a few attempts sees each error.
const MAX_BURST: u32 = 5;
/// Longest text of an error that is kept, in bytes: a source may quote its server.
const MAX_ERROR: usize = 1_000;

/// A source by its kind and its description.
#[derive(Clone, Debug)]
pub(super) struct SourceName {
    pub(super) kind: &'static str,
    pub(super) description: Arc<str>,
}

/// An error of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFailure {
    /// Its text.
    pub error: Arc<str>,
    /// Its time.
    pub at: Timestamp,
}

/// The account of the source that a cluster follows.
#[derive(Debug)]
pub(super) struct SourceAccount {
    pub(super) source: SourceName,
    /// Since the cluster began, over all of its sources.
    pub(super) counts: MergeCounts,
    /// The last error of this source.
    pub(super) last_error: Option<SourceFailure>,
    /// The counts of the decision that are in `counts`.
    counted: MergeCounts,
    held: usize,
    failures: LineLimit,
    /// The time of the last line about the present outage, or the last one.
    outage_logged: Option<Timestamp>,
    empty_lists: LineLimit,
}

/// A limit on lines of one kind: [`MAX_BURST`] at once, and one each [`REPEAT_INTERVAL`] in the long run.
#[derive(Clone, Copy, Debug, Default)]
struct LineLimit {
    /// The end of the intervals that are used. The burst is the intervals to come.
    used: Timestamp,
    /// Lines left out since the last one.
    unlogged: u64,
}

/// A line about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorLine {
    error: Arc<str>,
    /// The outage has had a line before.
    lasts: bool,
    /// Errors before it without a line.
    unlogged: u64,
}

/// The cause of a change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// An answer of the source, or the end of a wait.
    Source,
    /// Fixed backends of another configuration.
    Configuration,
    /// An answer about fixed backends, or the end of a wait for one.
    Fixed,
}

/// The reason why the members changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    List,
    SavedList,
    HoldExpired,
    Configuration,
    Static,
}

/// A change of the members by the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    reason: Reason,
    added: u64,
    changed: u64,
    removed: u64,
    drained: u64,
    expired: u64,
    held: u64,
    /// Held backends that are listed again.
    released: u64,
    /// Members by the source now.
    members: usize,
}

/// Everything to be logged about a step, once the locks are released.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) events: Vec<MergeEvent>,
    source: Option<SourceName>,
    error: Option<ErrorLine>,
    /// Empty lists before the present one without a line.
    empty_unlogged: u64,
    change: Option<Change>,
}

impl SourceName {
    pub(super) fn of(source: &impl Discover) -> Self {
        Self { kind: source.kind(), description: source.description().into() }
    }

    /// In one text, for the log.
    fn label(&self) -> String {
        format!("{} {}", self.kind, self.description).trim_end().to_owned()
    }
}

impl Default for SourceAccount {
    fn default() -> Self {
        Self {
            source: SourceName { kind: "static", description: "".into() },
            counts: MergeCounts::default(),
            last_error: None,
            counted: MergeCounts::default(),
            held: 0,
            failures: LineLimit::default(),
            outage_logged: None,
            empty_lists: LineLimit::default(),
        }
    }
}

impl SourceAccount {
    /// Another source; its decision has these counts already.
    pub(super) fn begin(&mut self, source: SourceName, counted: MergeCounts) {
        *self = Self { source, counts: self.counts, counted, held: self.held, ..Self::default() };
    }

    /// Takes the counts of a decision over, but for those that follow from the lists in force. Returns
    /// the difference.
    fn count(&mut self, now: MergeCounts) -> MergeCounts {
        let before = std::mem::replace(&mut self.counted, now);
        let counts = &mut self.counts;
        let add = |count: &mut u64, now: u64, before: u64| {
            let more = now.saturating_sub(before);
            *count += more;
            more
        };
        MergeCounts {
            drained: add(&mut counts.drained, now.drained, before.drained),
            expired: add(&mut counts.expired, now.expired, before.expired),
            held: add(&mut counts.held, now.held, before.held),
            errors: add(&mut counts.errors, now.errors, before.errors),
            empty: add(&mut counts.empty, now.empty, before.empty),
            ..MergeCounts::default()
        }
    }

    /// A step of the decision without effect on the members.
    pub(super) fn on_step(&mut self, counts: MergeCounts) {
        self.count(counts);
    }

    /// The source failed. The first error of an outage and one a minute are logged, as far as there may
    /// be a line.
    pub(super) fn on_error(&mut self, now: Timestamp, error: &SourceError, lines: &mut Lines) {
        let is_logged = error.is::<LoggedError>();
        let error = shortened(error.to_string());
        self.last_error = Some(SourceFailure { error: Arc::clone(&error), at: now });
        if lines.events.contains(&MergeEvent::SourceFailed) {
            self.outage_logged = None;
        }
        if is_logged {
            return;
        }
        if self.outage_logged.is_some_and(|logged| now.since(logged) < REPEAT_INTERVAL) {
            self.failures.unlogged += 1;
        } else if let Some(unlogged) = self.failures.take(now) {
            let lasts = self.outage_logged.replace(now).is_some();
            lines.error = Some(ErrorLine { error, lasts, unlogged });
        }
    }

    /// The members by the source change from `before` to `after`, `held` of them missing.
    pub(super) fn on_members(
        &mut self,
        before: &[Arc<Endpoint>],
        after: &[Arc<Endpoint>],
        (counts, held): (MergeCounts, usize),
        cause: Cause,
        lines: &mut Lines,
    ) {
        let MergeCounts { drained, expired, held: newly_held, .. } = self.count(counts);
        let held_before = std::mem::replace(&mut self.held, held) as u64;
        let (added, changed, left) = difference(before, after);
        let removed = left.saturating_sub(drained + expired);
        self.counts.added += added;
        self.counts.changed += changed;
        self.counts.removed += removed;
        let is_saved = lines.events.iter().any(|event| matches!(event, MergeEvent::SavedListUsed { .. }));
        let reason = match () {
            () if cause == Cause::Configuration => Reason::Configuration,
            () if cause == Cause::Fixed => Reason::Static,
            () if is_saved => Reason::SavedList,
            () if expired > 0 && added + changed + removed + drained + newly_held == 0 => Reason::HoldExpired,
            () => Reason::List,
        };
        let released = (held_before + newly_held).saturating_sub(expired + held as u64);
        if added + changed + removed + drained + expired + newly_held + released > 0 {
            let members = after.len();
            lines.change =
                Some(Change { reason, added, changed, removed, drained, expired, held: newly_held, released, members });
        }
    }

    /// The lines of a step, to be logged without a lock.
    pub(super) fn finish(&mut self, now: Timestamp, mut lines: Lines) -> Lines {
        lines.source = Some(self.source.clone());
        let mut empty_unlogged = 0;
        lines.events.retain(|event| match event {
            MergeEvent::SourceRecovered => self.outage_logged.is_some(),
            MergeEvent::EmptyListIgnored { .. } => {
                let unlogged = self.empty_lists.take(now);
                empty_unlogged = unlogged.unwrap_or(0);
                unlogged.is_some()
            }
            _ => true,
        });
        lines.empty_unlogged = empty_unlogged;
        lines
    }
}

impl LineLimit {
    /// Asks for a line. If there may be one, returns the number of those left out before it.
    fn take(&mut self, now: Timestamp) -> Option<u64> {
        let used = self.used.max(now);
        if used.since(now) > REPEAT_INTERVAL * (MAX_BURST - 1) {
            self.unlogged += 1;
            return None;
        }
        self.used = used + REPEAT_INTERVAL;
        Some(std::mem::take(&mut self.unlogged))
    }
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::SavedList => "saved-list",
            Self::HoldExpired => "hold-expired",
            Self::Configuration => "configuration",
            Self::Static => "static",
        }
    }
}

impl Lines {
    /// Logs them.
    pub(super) fn log(self, cluster: &str) {
        let source = &self.source.as_ref().map(SourceName::label).unwrap_or_default();
        match self.error {
            Some(ErrorLine { error, lasts: false, unlogged }) => {
                tracing::warn!(cluster, source, %error, unlogged, "discovery failed: the backends stay as they are");
            }
            Some(ErrorLine { error, lasts: true, unlogged }) => {
                tracing::warn!(cluster, source, %error, unlogged, "discovery still fails: the backends stay as they are");
            }
            None => {}
        }
        let unlogged = self.empty_unlogged;
        self.events.into_iter().for_each(|event| log_event(cluster, source, event, unlogged));
        if let Some(change) = self.change {
            let Change { reason, added, changed, removed, drained, expired, held, released, members } = change;
            let reason = reason.name();
            tracing::info!(
                cluster,
                source,
                reason,
                added,
                changed,
                removed,
                drained,
                expired,
                held,
                released,
                members,
                "backends changed"
            );
        }
    }
}

fn log_event(cluster: &str, source: &str, event: MergeEvent, unlogged: u64) {
    match event {
        // Its line has the error.
        MergeEvent::SourceFailed => {}
        MergeEvent::SourceRecovered => tracing::info!(cluster, source, "discovery works again"),
        MergeEvent::EmptyListIgnored { backends } => {
            let text = "discovery lists no backend: the backends stay as they are";
            tracing::warn!(cluster, source, backends, unlogged, "{text}");
        }
        MergeEvent::SavedListUsed { backends } => {
            tracing::warn!(cluster, source, backends, "discovery has not answered: the saved list is in force");
        }
        MergeEvent::LossHeld { missing, of } => tracing::warn!(
            cluster,
            source,
            missing,
            of,
            "discovery lost most backends: the missing ones stay for a time"
        ),
        MergeEvent::HoldExpired { backends } => tracing::warn!(
            cluster,
            source,
            backends,
            "missing backends removed: discovery did not list them again in time"
        ),
    }
}

/// Backends that came, changed and left. The lists have each address once.
///
/// Most changes are of few backends in a list of many: its equal beginning and end are skipped.
fn difference(before: &[Arc<Endpoint>], after: &[Arc<Endpoint>]) -> (u64, u64, u64) {
    let equal = before.iter().zip(after).take_while(|(before, after)| before == after).count();
    let (before, after) = (&before[equal..], &after[equal..]);
    let equal = before.iter().rev().zip(after.iter().rev()).take_while(|(before, after)| before == after).count();
    let (before, after) = (&before[..before.len() - equal], &after[..after.len() - equal]);
    let [before, after] = [before, after].map(by_address);
    let former = |endpoint: &Endpoint| before.get(&endpoint.address).copied();
    let added = after.values().filter(|endpoint| former(endpoint).is_none()).count();
    let changed = after.values().filter(|endpoint| former(endpoint).is_some_and(|former| former != **endpoint)).count();
    let left = before.len() + added - after.len();
    [added, changed, left].map(|count| count as u64).into()
}

fn by_address(list: &[Arc<Endpoint>]) -> HashMap<Address, &Endpoint> {
    list.iter().map(|endpoint| (endpoint.address, &**endpoint)).collect()
}

fn shortened(mut text: String) -> Arc<str> {
    if text.len() > MAX_ERROR {
        text.truncate(text.floor_char_boundary(MAX_ERROR));
        text.push_str("...");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Weight;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::new(([10, 0, 0, 1], port))
    }

    /// Whether the outage had a line before, and the number of errors left out.
    fn error_line(account: &mut SourceAccount, now: Timestamp, events: Vec<MergeEvent>) -> Option<(bool, u64)> {
        let mut lines = Lines { events, ..Lines::default() };
        account.on_error(now, &"refused".into(), &mut lines);
        lines.error.map(|line| (line.lasts, line.unlogged))
    }

    /// Whether this event has a line.
    fn event_line(account: &mut SourceAccount, now: Timestamp, event: MergeEvent) -> Option<u64> {
        let lines = account.finish(now, Lines { events: vec![event], ..Lines::default() });
        (lines.events == [event]).then_some(lines.empty_unlogged)
    }

    #[test]
    fn error_is_logged_at_first_and_again_once_a_minute() {
        let mut account = SourceAccount::default();
        assert_eq!(error_line(&mut account, at(100), vec![MergeEvent::SourceFailed]), Some((false, 0)));
        for second in (105..160).step_by(5) {
            assert_eq!(error_line(&mut account, at(second), vec![]), None);
        }
        assert_eq!(error_line(&mut account, at(160), vec![]), Some((true, 11)));
        assert_eq!(error_line(&mut account, at(165), vec![]), None);
        // It recovered in between: another failure.
        assert_eq!(error_line(&mut account, at(170), vec![MergeEvent::SourceFailed]), Some((false, 1)));
        assert_eq!(account.last_error, Some(SourceFailure { error: "refused".into(), at: at(170) }));
    }

    #[test]
    fn error_that_was_logged_has_no_line_and_no_recovery() {
        let mut account = SourceAccount::default();
        let mut lines = Lines { events: vec![MergeEvent::SourceFailed], ..Lines::default() };
        account.on_error(at(1), &LoggedError("the store is gone".into()).into(), &mut lines);
        assert_eq!(lines.error, None);
        assert_eq!(account.last_error, Some(SourceFailure { error: "the store is gone".into(), at: at(1) }));
        assert_eq!(event_line(&mut account, at(2), MergeEvent::SourceRecovered), None);
        assert_eq!(error_line(&mut account, at(3), vec![MergeEvent::SourceFailed]), Some((false, 0)));
    }

    #[test]
    fn source_that_flaps_has_five_lines_and_then_one_a_minute() {
        let mut account = SourceAccount::default();
        let (mut failed, mut recovered, mut counted, mut begin) = (0, 0, 0, 0);
        for second in (0..3_600).step_by(5) {
            if let Some((lasts, unlogged)) = error_line(&mut account, at(second), vec![MergeEvent::SourceFailed]) {
                assert!(!lasts);
                failed += 1;
                counted += 1 + unlogged;
                begin += u32::from(second < 25);
            }
            let works_again = event_line(&mut account, at(second + 1), MergeEvent::SourceRecovered);
            recovered += u32::from(works_again.is_some());
        }
        assert_eq!(begin, MAX_BURST, "one who corrects a file sees each error");
        assert!((60..=65).contains(&failed), "{failed}");
        assert_eq!(recovered, failed, "each line has one that ends it");
        assert!((708..=720).contains(&counted), "{counted} errors in lines of 720");
    }

    #[test]
    fn outage_without_a_line_has_one_as_soon_as_there_may_be() {
        let mut account = SourceAccount::default();
        for second in 0..5 {
            assert!(error_line(&mut account, at(second), vec![MergeEvent::SourceFailed]).is_some());
        }
        assert_eq!(error_line(&mut account, at(5), vec![MergeEvent::SourceFailed]), None);
        assert_eq!(error_line(&mut account, at(59), vec![]), None);
        assert_eq!(error_line(&mut account, at(60), vec![]), Some((false, 2)));
        assert_eq!(error_line(&mut account, at(119), vec![]), None);
        assert_eq!(error_line(&mut account, at(120), vec![]), Some((true, 1)));
    }

    #[test]
    fn empty_lists_have_five_lines_and_then_one_a_minute() {
        let mut account = SourceAccount::default();
        let empty = MergeEvent::EmptyListIgnored { backends: 3 };
        let lines: Vec<u64> =
            (0..600).step_by(5).filter_map(|second| event_line(&mut account, at(second), empty)).collect();
        assert!(
            (14..=15).contains(&lines.len()) && lines[..5] == [0; 5] && lines[6..].iter().all(|left| *left == 11),
            "{lines:?}"
        );
    }

    #[test]
    fn long_error_is_shortened_at_a_character() {
        let mut account = SourceAccount::default();
        account.on_error(at(1), &"ü".repeat(MAX_ERROR).into(), &mut Lines::default());
        let error = account.last_error.unwrap().error;
        assert!(error.len() <= MAX_ERROR + 3 && error.ends_with("ü..."), "{}", error.len());
    }

    #[test]
    fn change_is_counted_by_the_lists_in_force() {
        let mut account = SourceAccount::default();
        let before: Vec<Arc<Endpoint>> = (1..=4).map(endpoint).map(Arc::new).collect();
        let mut step = |before: &[Arc<Endpoint>], after: &[Arc<Endpoint>], counts, held| {
            let mut lines = Lines::default();
            account.on_members(before, after, (counts, held), Cause::Source, &mut lines);
            lines.change
        };
        let none = MergeCounts::default();
        assert_eq!(step(&[], &before, none, 0).unwrap().added, 4);
        assert_eq!(step(&before, &before, none, 0), None);
        // One drains, one is removed, one changes, one comes.
        let after = [endpoint(1), endpoint(2).weight(Weight::new(2.0).unwrap()), endpoint(5)].map(Arc::new);
        let drained = MergeCounts { drained: 1, ..none };
        let change = step(&before, &after, drained, 0).unwrap();
        assert_eq!((change.added, change.changed, change.removed, change.drained), (1, 1, 1, 1));
        // Two are held; then one is listed again, and the other one's time ends.
        let held = MergeCounts { held: 2, ..drained };
        let change = step(&after, &after, held, 2).unwrap();
        assert_eq!((change.held, change.removed, change.reason), (2, 0, Reason::List));
        let expired = MergeCounts { expired: 1, ..held };
        assert_eq!(step(&after, &after, held, 1).unwrap().released, 1);
        let change = step(&after, &after[..2], expired, 0).unwrap();
        assert_eq!((change.expired, change.removed, change.reason), (1, 0, Reason::HoldExpired));
        let counts = MergeCounts { added: 5, changed: 1, removed: 1, drained: 1, held: 2, expired: 1, ..none };
        assert_eq!(account.counts, counts);
    }

    /// Beside a count by address alone, over all pairs of lists of up to four of four backends.
    #[test]
    fn difference_is_that_of_a_count_by_address() {
        let heavy = |port| endpoint(port).weight(Weight::new(2.0).unwrap());
        let digits = |code: usize| (0..4).map(move |i| code / 3_usize.pow(i) % 3);
        let list = |code: usize, is_reversed: bool| {
            let of = |(port, digit): (u16, usize)| [None, Some(endpoint(port)), Some(heavy(port))][digit].clone();
            let mut list: Vec<Arc<Endpoint>> = (1..=4).zip(digits(code)).filter_map(of).map(Arc::new).collect();
            if is_reversed {
                list.reverse();
            }
            list
        };
        for (before, after, is_reversed) in
            (0..81).flat_map(|b| (0..81).flat_map(move |a| [(b, a, false), (b, a, true)]))
        {
            let pairs = || digits(before).zip(digits(after));
            let count = |is: fn(&(usize, usize)) -> bool| pairs().filter(is).count() as u64;
            let expected = (
                count(|(before, after)| *before == 0 && *after > 0),
                count(|(before, after)| *before > 0 && *after > 0 && before != after),
                count(|(before, after)| *before > 0 && *after == 0),
            );
            assert_eq!(difference(&list(before, false), &list(after, is_reversed)), expected, "{before} {after}");
        }
    }

    #[test]
    fn counts_go_on_with_another_source() {
        let mut account = SourceAccount::default();
        account.on_step(MergeCounts { errors: 3, empty: 1, ..MergeCounts::default() });
        let source = SourceName { kind: "file", description: "web.json".into() };
        account.begin(source, MergeCounts::default());
        account.on_step(MergeCounts { errors: 1, ..MergeCounts::default() });
        assert_eq!((account.counts.errors, account.counts.empty), (4, 1));
        assert_eq!(account.source.label(), "file web.json");
    }
}

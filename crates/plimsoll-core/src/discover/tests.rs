use alloc::vec::Vec;
use alloc::{format, vec};
use core::num::NonZeroU32;
use core::time::Duration;

use proptest::prelude::*;

use super::gather::{MAX, QUIET};
use super::merge::*;
use crate::Timestamp;

const HOLD: Duration = MergeConfig::DEFAULT_HOLD;
const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A merge in virtual time, woken whenever it asks.
struct Source {
    merge: Merge<u16, u32>,
    now: Timestamp,
    events: Vec<MergeEvent>,
}

fn ready(keys: impl IntoIterator<Item = u16>) -> Vec<Listed<u16, u32>> {
    keys.into_iter().map(|key| Listed { key, properties: 1, readiness: Readiness::Ready }).collect()
}

impl Source {
    fn new(config: MergeConfig) -> Self {
        Self::with(config, &[], vec![])
    }

    fn with(config: MergeConfig, fixed: &[u16], saved: Vec<Listed<u16, u32>>) -> Self {
        let now = Timestamp::from_origin(100 * SECOND);
        let mut merge = Merge::new(now, config, saved);
        merge.set_fixed(fixed.iter().map(|key| Member::new(*key, 1)).collect());
        Self { merge, now, events: vec![] }
    }

    fn started(keys: impl IntoIterator<Item = u16>) -> Self {
        let mut source = Self::new(MergeConfig::default());
        source.list(ready(keys));
        source
    }

    fn list(&mut self, list: Vec<Listed<u16, u32>>) {
        self.merge.on_list(self.now, list, &mut |event| self.events.push(event));
        self.handle();
    }

    fn error(&mut self) {
        self.merge.on_error(self.now, &mut |event| self.events.push(event));
        self.handle();
    }

    fn handle(&mut self) {
        let before = self.merge.members().to_vec();
        let is_changed = self.merge.handle_timeout(self.now, &mut |event| self.events.push(event));
        assert_eq!(is_changed, before != self.merge.members());
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.merge.poll_timeout().filter(|due| *due <= end) {
            assert!(due >= self.now, "due in the past");
            self.now = due;
            self.handle();
            assert!(self.merge.poll_timeout().is_none_or(|next| next > due), "due again at once");
        }
        self.now = end;
    }

    fn keys(&self) -> Vec<u16> {
        self.merge.members().iter().map(|member| member.key).collect()
    }

    fn held(&self) -> Vec<u16> {
        self.merge.members().iter().filter(|member| member.is_held).map(|member| member.key).collect()
    }
}

#[test]
fn first_list_takes_effect_at_once_and_later_ones_gather() {
    let mut source = Source::started([1, 2, 3]);
    assert_eq!((source.keys(), source.merge.freshness()), (vec![1, 2, 3], Freshness::Fresh));
    source.list(ready([1, 2, 3, 4]));
    source.pass(QUIET - MS);
    assert_eq!(source.keys(), [1, 2, 3]);
    source.pass(MS);
    assert_eq!(source.keys(), [1, 2, 3, 4]);
    assert_eq!(source.events, []);
}

#[test]
fn unchanged_list_has_no_effect_and_needs_no_wake_up() {
    let mut source = Source::started([1, 2, 3]);
    source.list(ready([1, 2, 3]));
    assert_eq!(source.merge.poll_timeout(), None);
    assert_eq!(source.merge.counts(), MergeCounts { added: 3, ..MergeCounts::default() });
}

#[test]
fn error_keeps_the_members_and_is_reported_once() {
    let mut source = Source::started([1, 2]);
    for _ in 0..100 {
        source.error();
        source.pass(60 * SECOND);
    }
    assert_eq!(source.keys(), [1, 2]);
    assert!(source.merge.is_failing());
    source.list(ready([1, 2]));
    assert_eq!(source.events, [MergeEvent::SourceFailed, MergeEvent::SourceRecovered]);
    assert_eq!(source.merge.counts().errors, 100);
}

#[test]
fn empty_list_keeps_the_members_and_is_reported_once() {
    let mut source = Source::started([1, 2]);
    source.list(vec![]);
    source.pass(100 * HOLD);
    source.list(vec![]);
    assert_eq!(source.keys(), [1, 2]);
    assert_eq!(source.events, [MergeEvent::EmptyListIgnored { backends: 2 }]);
    assert_eq!(source.merge.counts().empty, 2);
}

#[test]
fn obeyed_empty_list_removes_the_members_after_the_hold() {
    let mut source = Source::new(MergeConfig { on_empty: OnEmpty::Obey, ..MergeConfig::default() });
    source.list(ready([1, 2]));
    source.list(vec![]);
    source.pass(QUIET + HOLD - MS);
    assert_eq!((source.keys(), source.held()), (vec![1, 2], vec![1, 2]));
    source.pass(MS);
    assert_eq!(source.keys(), []);
    let [held, expired] = source.events[..] else { panic!("{:?}", source.events) };
    assert_eq!(held, MergeEvent::LossHeld { missing: 2, of: 2 });
    assert_eq!(expired, MergeEvent::HoldExpired { backends: 2 });
}

#[test]
fn loss_of_half_is_obeyed_and_of_more_is_held() {
    for (left, is_held) in [(6, false), (5, false), (4, true), (1, true)] {
        let mut source = Source::started(0..10);
        source.list(ready(0..left));
        source.pass(QUIET);
        assert_eq!(source.held().is_empty(), !is_held, "{left} left");
        assert_eq!(source.keys().len(), if is_held { 10 } else { usize::from(left) }, "{left} left");
        source.pass(HOLD);
        assert_eq!(source.keys(), Vec::from_iter(0..left));
    }
}

#[test]
fn held_backend_that_returns_stays_for_good() {
    let mut source = Source::started(0..10);
    source.list(ready(0..1));
    source.pass(HOLD / 2);
    source.list(ready(0..10));
    source.pass(10 * HOLD);
    assert_eq!((source.keys(), source.held()), (Vec::from_iter(0..10), vec![]));
    assert_eq!(source.merge.counts(), MergeCounts { added: 10, held: 9, ..MergeCounts::default() });
}

#[test]
fn hold_of_a_missing_backend_is_not_prolonged_by_later_lists() {
    let mut source = Source::started(0..10);
    source.list(ready(0..4));
    for _ in 0..29 {
        source.pass(SECOND);
        source.list(ready(0..4));
    }
    source.pass(SECOND + QUIET);
    assert_eq!(source.keys(), [0, 1, 2, 3]);
}

#[test]
fn draining_backends_leave_at_once_even_if_all_drain() {
    let mut source = Source::started(0..4);
    let draining = |key| Listed { key, properties: 1, readiness: Readiness::Draining };
    source.list((0..4).map(draining).collect());
    source.pass(QUIET);
    assert_eq!((source.keys(), source.merge.census().draining), (vec![], 4));
    source.list(ready([7]));
    source.pass(QUIET);
    assert_eq!((source.keys(), source.merge.census().draining), (vec![7], 0));
    assert_eq!(source.events, []);
}

#[test]
fn census_counts_each_known_backend_once() {
    let mut source = Source::with(MergeConfig::default(), &[0, 1], vec![]);
    let stated = |key, readiness| Listed { key, properties: 1, readiness };
    source.list(ready(1..=9));
    assert_eq!(source.merge.census(), Census { ready: 10, ..Census::default() });
    source.list(vec![stated(2, Readiness::Ready), stated(3, Readiness::Draining), stated(4, Readiness::Starting)]);
    source.pass(QUIET);
    // The source lacks 5 to 9, and 4 is ready no more.
    assert_eq!(source.merge.census(), Census { ready: 3, held: 6, draining: 1, starting: 0 });
    source.pass(HOLD);
    assert_eq!(source.merge.census(), Census { ready: 3, held: 0, draining: 1, starting: 1 });
    assert_eq!(source.merge.census().known(), 5);
}

#[test]
fn backend_that_drained_and_then_is_missing_is_not_held() {
    let mut source = Source::started(0..4);
    let mut list = ready(0..4);
    list[3].readiness = Readiness::Draining;
    source.list(list);
    source.list(ready([0]));
    source.pass(QUIET);
    assert_eq!((source.keys(), source.held()), (vec![0, 1, 2], vec![1, 2]));
}

#[test]
fn starting_backend_is_no_member_until_it_is_ready() {
    let mut source = Source::started(0..3);
    let mut list = ready(0..4);
    list[3].readiness = Readiness::Starting;
    source.list(list.clone());
    source.pass(SECOND);
    assert_eq!(source.keys(), [0, 1, 2]);
    list[3].readiness = Readiness::Ready;
    source.list(list.clone());
    source.pass(SECOND);
    assert_eq!(source.keys(), [0, 1, 2, 3]);
    // A registry whose probes all fail at once.
    list.iter_mut().for_each(|listed| listed.readiness = Readiness::Starting);
    source.list(list);
    source.pass(SECOND);
    assert_eq!(source.held(), [0, 1, 2, 3]);
    source.pass(HOLD);
    assert_eq!(source.keys(), []);
}

#[test]
fn end_of_a_hold_lets_gathered_changes_take_effect_too() {
    let mut source = Source::started(0..10);
    source.list(ready(0..2));
    source.pass(QUIET + HOLD - 100 * MS);
    // It would take effect 100 ms after the end of the hold.
    source.list(ready([0, 1, 50]));
    assert_eq!((source.keys().len(), source.held().len()), (10, 8));
    source.pass(100 * MS);
    assert_eq!((source.keys(), source.held()), (vec![0, 1, 50], vec![]));
    assert_eq!(source.merge.poll_timeout(), None, "nothing is left to do");
    assert_eq!(source.merge.counts(), MergeCounts { added: 11, held: 8, expired: 8, ..MergeCounts::default() });
}

#[test]
fn replaced_backends_leave_at_once_because_nothing_was_lost() {
    let mut source = Source::started(0..4);
    source.list(ready(10..14));
    source.pass(QUIET);
    assert_eq!(source.keys(), [10, 11, 12, 13]);
}

#[test]
fn properties_change_in_place() {
    let mut source = Source::started([1, 2]);
    let mut list = ready([1, 2]);
    list[0].properties = 9;
    source.list(list);
    source.pass(QUIET);
    assert_eq!(source.merge.members()[0], Member { key: 1, properties: 9, is_held: false });
    assert_eq!(source.merge.counts(), MergeCounts { added: 2, changed: 1, ..MergeCounts::default() });
}

#[test]
fn absence_counts_after_as_many_lists_as_the_source_needs() {
    let config = MergeConfig { confirmations: NonZeroU32::new(2).unwrap(), ..MergeConfig::default() };
    let mut source = Source::new(config);
    source.list(ready([1, 2, 3]));
    // A part of a long answer, then the whole of it.
    for list in [[1, 2].as_slice(), &[1, 2, 3], &[1, 2], &[2, 3], &[1, 2, 3]] {
        source.list(ready(list.iter().copied()));
        source.pass(SECOND);
        let mut keys = source.keys();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2, 3]);
    }
    source.list(ready([1, 2]));
    source.list(ready([1, 2]));
    source.pass(SECOND);
    assert_eq!(source.keys(), [1, 2]);
}

#[test]
fn saved_list_is_used_at_the_first_error_or_after_half_a_second() {
    for is_error in [true, false] {
        let mut source = Source::with(MergeConfig::default(), &[], ready([1, 2, 3]));
        assert_eq!((source.keys(), source.merge.is_ready(source.now)), (vec![], false));
        if is_error {
            source.error();
        } else {
            source.pass(500 * MS);
        }
        assert_eq!((source.keys(), source.merge.freshness()), (vec![1, 2, 3], Freshness::Stale));
        assert!(source.merge.is_ready(source.now));
        assert!(source.events.contains(&MergeEvent::SavedListUsed { backends: 3 }));
        // The first answer corrects it; what it lacks is a loss like any other.
        source.list(ready([1, 2, 4]));
        assert_eq!((source.keys(), source.merge.freshness()), (vec![1, 2, 4], Freshness::Fresh));
    }
}

#[test]
fn saved_list_has_no_effect_after_an_answer() {
    let mut source = Source::with(MergeConfig::default(), &[], ready([1, 2, 3]));
    source.list(ready([7, 8]));
    source.pass(60 * SECOND);
    source.error();
    assert_eq!(source.keys(), [7, 8]);
}

#[test]
fn first_answer_is_judged_against_the_saved_list() {
    let mut source = Source::with(MergeConfig::default(), &[], ready(0..10));
    source.list(vec![]);
    assert_eq!((source.keys().len(), source.merge.freshness()), (10, Freshness::Stale));
    source.list(ready([3]));
    assert_eq!((source.held().len(), source.merge.freshness()), (9, Freshness::Fresh));
}

#[test]
fn renewed_source_keeps_members_and_holds_through_errors_and_empty_lists() {
    let mut source = Source::started(0..10);
    source.list(ready(0..2));
    source.pass(SECOND);
    assert_eq!(source.held().len(), 8);
    source.merge.renew(source.now, MergeConfig::default());
    assert!(source.merge.set_fixed(vec![Member::new(50, 1)]));
    assert_eq!((source.keys()[0], source.keys().len(), source.held().len()), (50, 11, 8));
    source.error();
    source.list(vec![]);
    assert_eq!((source.keys().len(), source.held().len()), (11, 8));
    source.list(ready(0..3));
    source.pass(HOLD);
    assert_eq!(source.keys(), [50, 0, 1, 2]);
}

#[test]
fn fixed_backends_change_at_once_and_leave_those_of_the_source() {
    let mut source = Source::with(MergeConfig::default(), &[0, 1], vec![]);
    source.list(ready([1, 2]));
    source.list(ready([1, 2, 3]));
    let held = Member { is_held: true, ..Member::new(7, 9) };
    // The source lists 1 as well; 3 still gathers.
    assert!(source.merge.set_fixed(vec![held, Member::new(2, 9), Member::new(2, 5)]));
    assert_eq!((source.keys(), source.held()), (vec![7, 2, 1], vec![7]));
    assert_eq!(source.merge.members()[1].properties, 9, "those of the fixed backend count");
    assert_eq!(source.merge.census(), Census { ready: 2, held: 1, starting: 1, draining: 0 });
    assert!(!source.merge.set_fixed(vec![held, Member::new(2, 9)]), "the same once more");
    source.pass(QUIET);
    assert_eq!(source.keys(), [7, 2, 1, 3]);
    assert!(source.merge.set_fixed(vec![]));
    assert_eq!((source.keys(), source.merge.members()[1].properties), (vec![1, 2, 3], 1));
    assert_eq!(source.events, []);
}

#[test]
fn empty_list_after_all_drained_is_believed() {
    let mut source = Source::started([1]);
    source.list(vec![Listed { key: 1, properties: 1, readiness: Readiness::Draining }]);
    source.pass(SECOND);
    source.list(vec![]);
    source.pass(SECOND);
    assert_eq!((source.merge.census().draining, source.merge.counts().empty), (0, 0));
}

#[test]
fn cluster_without_any_list_is_ready_after_ten_seconds() {
    let mut source = Source::new(MergeConfig::default());
    source.error();
    source.pass(10 * SECOND - MS);
    assert!(!source.merge.is_ready(source.now));
    source.pass(MS);
    assert!(source.merge.is_ready(source.now));
    assert_eq!(source.merge.freshness(), Freshness::Waiting);
}

#[test]
fn cluster_with_fixed_backends_is_ready_at_the_first_error() {
    let mut source = Source::with(MergeConfig::default(), &[5], vec![]);
    assert!(!source.merge.is_ready(source.now));
    source.error();
    assert!(source.merge.is_ready(source.now));
}

#[test]
fn fixed_backends_are_members_whatever_the_source_says() {
    let mut source = Source::with(MergeConfig::default(), &[5, 1], vec![]);
    assert_eq!(source.keys(), [5, 1]);
    source.list(ready([9, 1]));
    assert_eq!(source.keys(), [5, 1, 9]);
    source.list(vec![Listed { key: 5, properties: 1, readiness: Readiness::Draining }]);
    source.pass(HOLD + SECOND);
    assert_eq!(source.keys(), [5, 1]);
}

#[test]
fn list_to_save_has_the_backends_of_the_source_that_are_not_missing() {
    let mut source = Source::with(MergeConfig::default(), &[50], vec![]);
    source.list(ready(0..10));
    source.list(ready([3, 2]));
    source.pass(SECOND);
    let saved: Vec<u16> = source.merge.to_save().map(|listed| listed.key).collect();
    assert_eq!((saved, source.keys().len()), (vec![3, 2], 11));
}

#[test]
fn revision_grows_with_the_list_of_the_present_source_only() {
    let saved = |source: &Source| source.merge.to_save().map(|listed| listed.key).collect::<Vec<_>>();
    let config = MergeConfig { confirmations: NonZeroU32::new(2).unwrap(), ..MergeConfig::default() };
    let mut source = Source::with(config, &[], ready([1, 2, 3]));
    source.error();
    source.list(vec![]);
    assert_eq!((source.merge.revision(), saved(&source)), (None, vec![1, 2, 3]));
    source.list(ready([1, 2, 3]));
    let first = source.merge.revision();
    assert!(first.is_some());
    // A part of a long answer is none of the list.
    for list in [vec![], ready([1, 2]), ready([1, 2, 3])] {
        source.list(list);
        assert_eq!((source.merge.revision(), saved(&source)), (first, vec![1, 2, 3]));
    }
    for _ in 0..2 {
        source.list(ready([2, 1]));
    }
    assert!(source.merge.revision() > first);
    assert_eq!(saved(&source), [2, 1]);
    source.merge.renew(source.now, config);
    source.error();
    assert_eq!(source.merge.revision(), None);
    source.list(ready([2, 1]));
    assert!(source.merge.revision() > first);
}

#[derive(Clone, Debug)]
enum Step {
    List(Vec<Listed<u16, u32>>),
    Error,
    Pass(Duration),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let readiness = prop_oneof![
        6 => Just(Readiness::Ready),
        1 => Just(Readiness::Starting),
        1 => Just(Readiness::Draining),
    ];
    let listed =
        (0..12_u16, 0..3_u32, readiness).prop_map(|(key, properties, readiness)| Listed { key, properties, readiness });
    let time = prop_oneof![0..300_u64, 0..3_000_u64, 0..40_000_u64];
    prop::collection::vec(
        prop_oneof![
            3 => prop::collection::vec(listed, 0..16).prop_map(Step::List),
            1 => Just(Step::Error),
            3 => time.prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        ],
        1..40,
    )
}

impl Source {
    fn step(&mut self, step: &Step) {
        match step {
            Step::List(list) => self.list(list.clone()),
            Step::Error => self.error(),
            Step::Pass(time) => self.pass(*time),
        }
    }
}

proptest! {
    /// With errors or without them: the same members at each time.
    #[test]
    fn errors_never_change_the_members(steps in steps()) {
        let (mut with, mut without) = (Source::new(MergeConfig::default()), Source::new(MergeConfig::default()));
        for step in &steps {
            with.step(step);
            if !matches!(step, Step::Error) {
                without.step(step);
            }
            prop_assert_eq!(with.merge.members(), without.merge.members());
        }
    }

    /// A backend that every list has as ready is a member from the first list on, and never held.
    #[test]
    fn backend_that_is_always_listed_stays(steps in steps(), confirmations in 1..3_u32) {
        let confirmations = NonZeroU32::new(confirmations).unwrap();
        let mut source = Source::new(MergeConfig { confirmations, ..MergeConfig::default() });
        source.list(ready([99]));
        for mut step in steps {
            if let Step::List(list) = &mut step {
                list.push(Listed { key: 99, properties: 7, readiness: Readiness::Ready });
            }
            source.step(&step);
            prop_assert!(source.merge.members().iter().any(|member| member.key == 99 && !member.is_held));
        }
    }

    /// A stated removal takes effect within 2 s, and after `hold` at most where more than half is lost.
    #[test]
    fn removed_backends_leave_in_time(steps in steps()) {
        let mut source = Source::new(MergeConfig::default());
        let mut unlisted_since: Vec<Option<Timestamp>> = vec![None; 12];
        let mut draining_since: Vec<Option<Timestamp>> = vec![None; 12];
        for step in &steps {
            if let Step::List(list) = step && !(list.is_empty() && unlisted_since.iter().any(Option::is_none)) {
                for key in 0..12_u16 {
                    let first = list.iter().find(|listed| listed.key == key);
                    let is_ready = first.is_some_and(|listed| listed.readiness == Readiness::Ready);
                    let is_draining = first.is_some_and(|listed| listed.readiness == Readiness::Draining);
                    let key = usize::from(key);
                    unlisted_since[key] = (!is_ready).then(|| unlisted_since[key].unwrap_or(source.now));
                    draining_since[key] = is_draining.then(|| draining_since[key].unwrap_or(source.now));
                }
            }
            source.step(step);
            for member in source.merge.members() {
                let key = usize::from(member.key);
                let since = |since: Option<Timestamp>| since.map_or(Duration::ZERO, |since| source.now.since(since));
                prop_assert!(since(draining_since[key]) <= QUIET, "{member:?} drains");
                let limit = if member.is_held { MAX + HOLD } else { MAX };
                prop_assert!(since(unlisted_since[key]) <= limit, "{member:?}");
            }
        }
    }

    /// Wake-ups beyond those that are asked for change nothing.
    #[test]
    fn additional_wake_ups_change_nothing(steps in steps()) {
        let (mut rare, mut often) = (Source::new(MergeConfig::default()), Source::new(MergeConfig::default()));
        for step in &steps {
            rare.step(step);
            match step {
                Step::Pass(time) => (0..7).for_each(|i| {
                    often.pass(*time * (i + 1) / 7 - *time * i / 7);
                    often.handle();
                }),
                other => often.step(other),
            }
            prop_assert_eq!(rare.merge.members(), often.merge.members());
        }
    }

    /// Two sources of one list: each has the members that it has alone. An address in both is one member,
    /// with the properties of the fixed one.
    #[test]
    fn neither_of_two_sources_changes_the_members_of_the_other(
        steps in prop::collection::vec((any::<bool>(), steps()), 1..4)
    ) {
        let [mut fixed, mut source, mut alone] = [(); 3].map(|()| Source::new(MergeConfig::default()));
        for (is_fixed, steps) in &steps {
            for step in steps {
                match (step, is_fixed) {
                    (Step::Pass(time), _) => [&mut fixed, &mut source, &mut alone].into_iter().for_each(|each| each.pass(*time)),
                    (step, true) => fixed.step(step),
                    (step, false) => [&mut source, &mut alone].into_iter().for_each(|each| each.step(step)),
                }
                let before = source.merge.members().to_vec();
                let is_changed = source.merge.set_fixed(fixed.merge.members().to_vec());
                prop_assert_eq!(is_changed, before != source.merge.members());
                let is_fixed = |member: &&Member<u16, u32>| fixed.keys().contains(&member.key);
                let others = alone.merge.members().iter().filter(|member| !is_fixed(member));
                let members: Vec<_> = fixed.merge.members().iter().chain(others).copied().collect();
                prop_assert_eq!(source.merge.members(), members);
                prop_assert_eq!(source.merge.poll_timeout(), alone.merge.poll_timeout());
            }
        }
    }

    #[test]
    fn no_backend_is_a_member_twice(steps in steps(), fixed in prop::collection::vec(0..6_u16, 0..5)) {
        let mut source = Source::with(MergeConfig::default(), &fixed, ready([3, 4]));
        for step in &steps {
            source.step(step);
            let mut keys = source.keys();
            let mut first = fixed.iter().enumerate().filter(|(i, key)| !fixed[..*i].contains(key)).map(|(_, key)| key);
            prop_assert!(keys.iter().zip(&mut first).all(|(key, fixed)| key == fixed) && first.next().is_none());
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), source.keys().len(), "{}", format!("{:?}", source.keys()));
        }
    }
}

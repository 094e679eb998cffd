use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::discover::{Listed, Merge, MergeConfig, Readiness};

type Layer = Overrides<u16, u32>;
/// Key, properties, weight by hand, drained by hand.
type Shown = (u16, u32, Option<Weight>, bool);

const SECOND: Duration = Duration::from_secs(1);

fn at(second: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(second))
}

fn weight(value: f64) -> Weight {
    Weight::new(value).unwrap()
}

fn shown(layer: &Layer, listed: &[(u16, u32)]) -> Vec<Shown> {
    let members = layer.apply(listed.iter().map(|(key, properties)| (key, properties)));
    let show = |each: Overridden<'_, u16, &u32, u32>| {
        let properties = each.added.or(each.listed).expect("a member is listed or added");
        (*each.key, *properties, each.weight, each.is_drained)
    };
    members.into_iter().map(show).collect()
}

fn plain(listed: &[(u16, u32)]) -> Vec<Shown> {
    listed.iter().map(|(key, properties)| (*key, *properties, None, false)).collect()
}

fn drain() -> OverrideCommand<u32> {
    OverrideCommand::Patch { weight: None, is_drained: Some(true) }
}

fn weigh(value: f64) -> OverrideCommand<u32> {
    OverrideCommand::Patch { weight: Some(Some(weight(value))), is_drained: None }
}

const LIST: [(u16, u32); 3] = [(3, 30), (1, 10), (2, 20)];

#[test]
fn put_changes_a_listed_backend_in_place_and_adds_others_last() {
    let mut layer = Layer::default();
    layer.obey(&1, OverrideCommand::Put(11), None, true).unwrap();
    layer.obey(&9, OverrideCommand::Put(90), None, false).unwrap();
    layer.obey(&8, OverrideCommand::Put(80), None, false).unwrap();
    assert_eq!(shown(&layer, &LIST), plain(&[(3, 30), (1, 11), (2, 20), (8, 80), (9, 90)]));
    assert_eq!(shown(&layer, &LIST[..1]), plain(&[(3, 30), (1, 11), (8, 80), (9, 90)]), "it stays when unlisted");
}

#[test]
fn put_ends_a_drain_a_weight_and_a_removal() {
    let mut layer = Layer::default();
    for command in [drain(), weigh(0.5), OverrideCommand::Remove, OverrideCommand::Put(11)] {
        layer.obey(&1, command, None, true).unwrap();
    }
    assert_eq!(shown(&layer, &LIST), plain(&[(3, 30), (1, 11), (2, 20)]));
    assert_eq!(layer.len(), 1);
}

#[test]
fn removed_backend_is_no_member_until_the_removal_is_revoked() {
    let mut layer = Layer::default();
    layer.obey(&1, OverrideCommand::Remove, None, true).unwrap();
    layer.obey(&1, OverrideCommand::Remove, None, true).unwrap();
    assert_eq!(shown(&layer, &LIST), plain(&[(3, 30), (2, 20)]));
    layer.obey(&1, OverrideCommand::Remove, None, false).unwrap();
    assert_eq!(shown(&layer, &LIST), plain(&[(3, 30), (2, 20)]), "unlisted for a time: the removal stays");
    layer.obey(&1, OverrideCommand::Revoke, None, true).unwrap();
    assert_eq!(shown(&layer, &LIST), plain(&LIST));
}

#[test]
fn removal_of_an_added_backend_forgets_it() {
    let mut layer = Layer::default();
    layer.obey(&9, OverrideCommand::Put(90), None, false).unwrap();
    layer.obey(&9, drain(), None, false).unwrap();
    layer.obey(&9, OverrideCommand::Remove, None, false).unwrap();
    assert!(layer.is_empty());
    assert_eq!(layer.obey(&9, OverrideCommand::Remove, None, false), Err(OverrideError::Unknown));
}

#[test]
fn removal_of_an_added_backend_that_is_listed_holds() {
    let mut layer = Layer::default();
    layer.obey(&1, OverrideCommand::Put(11), None, true).unwrap();
    layer.obey(&1, OverrideCommand::Remove, None, true).unwrap();
    assert_eq!(shown(&layer, &LIST), plain(&[(3, 30), (2, 20)]));
}

#[test]
fn patch_changes_one_part_and_each_part_has_its_own_end() {
    let mut layer = Layer::default();
    layer.obey(&1, weigh(0.5), Some(at(60)), true).unwrap();
    layer.obey(&1, drain(), Some(at(10)), true).unwrap();
    let with = |one: Shown| vec![(3, 30, None, false), one, (2, 20, None, false)];
    assert_eq!(shown(&layer, &LIST), with((1, 10, Some(weight(0.5)), true)));
    assert_eq!((layer.handle_timeout(at(9)), layer.poll_timeout()), (vec![], Some(at(10))));
    let ended = Override { key: 1, change: OverrideChange::Drained, ends: Some(at(10)) };
    assert_eq!((layer.handle_timeout(at(10)), layer.poll_timeout()), (vec![ended], Some(at(60))));
    assert_eq!(shown(&layer, &LIST), with((1, 10, Some(weight(0.5)), false)));
    layer.obey(&1, OverrideCommand::Patch { weight: Some(None), is_drained: None }, None, true).unwrap();
    assert_eq!((shown(&layer, &LIST), layer.poll_timeout()), (plain(&LIST), None));
}

#[test]
fn patch_is_no_membership() {
    let mut layer = Layer::default();
    layer.obey(&1, weigh(0.5), None, true).unwrap();
    assert_eq!(shown(&layer, &LIST[2..]), plain(&LIST[2..]));
}

#[test]
fn command_about_an_unknown_address_is_refused_unless_it_adds() {
    let mut layer = Layer::default();
    for command in [drain(), OverrideCommand::Remove, OverrideCommand::Revoke] {
        assert_eq!(layer.obey(&9, command, None, false), Err(OverrideError::Unknown));
        layer.obey(&8, command, None, true).unwrap();
    }
    assert!(layer.is_empty(), "the last command was to revoke");
}

#[test]
fn overrides_of_a_cluster_are_bounded() {
    let mut layer = Layer::default();
    for key in 0..MAX_OVERRIDES as u16 {
        layer.obey(&key, OverrideCommand::Put(1), None, false).unwrap();
    }
    assert_eq!(layer.obey(&5_000, OverrideCommand::Put(1), None, false), Err(OverrideError::TooMany));
    assert_eq!(layer.obey(&1, drain(), None, false), Err(OverrideError::TooMany));
    assert_eq!(shown(&layer, &[])[1], (1, 1, None, false), "a refused command changes nothing");
    layer.obey(&1, OverrideCommand::Put(2), None, false).unwrap();
    layer.obey(&0, OverrideCommand::Revoke, None, false).unwrap();
    layer.obey(&5_000, OverrideCommand::Put(1), None, false).unwrap();
    let many = (0..2_000).map(|key| Override { key, change: OverrideChange::Drained, ends: None });
    assert_eq!(Layer::default().restore(many), 1_000);
}

/// Both the hold and the source list it; the operator decides.
#[test]
fn hold_does_not_bring_a_removed_backend_back() {
    let ready = |keys: &[u16]| -> Vec<Listed<u16, u32>> {
        keys.iter().map(|key| Listed { key: *key, properties: 1, readiness: Readiness::Ready }).collect()
    };
    let mut merge = Merge::new(at(0), MergeConfig::default(), vec![]);
    let mut layer = Layer::default();
    merge.on_list(at(0), ready(&[1, 2, 3, 4]), &mut |_| ());
    merge.handle_timeout(at(0), &mut |_| ());
    layer.obey(&2, OverrideCommand::Remove, None, merge.may_list(&2)).unwrap();
    merge.on_list(at(1), ready(&[1]), &mut |_| ());
    merge.handle_timeout(at(2), &mut |_| ());
    let keys = |merge: &Merge<u16, u32>, layer: &Layer| -> Vec<u16> {
        let members = merge.members().iter().map(|member| (&member.key, &member.properties));
        layer.apply(members).iter().map(|each| *each.key).collect()
    };
    assert_eq!(merge.members().len(), 4, "three are held");
    assert_eq!(keys(&merge, &layer), [1, 3, 4]);
    assert!(merge.may_list(&2));
    merge.handle_timeout(at(40), &mut |_| ());
    assert_eq!(keys(&merge, &layer), [1]);
    assert!(!merge.may_list(&2));
}

/// A command, or time that passes.
#[derive(Clone, Debug)]
enum Step {
    Command { key: u16, command: OverrideCommand<u32>, lasts: Option<u64> },
    List(Vec<u16>),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = prop::option::of((1..9_u32).prop_map(|n| Weight::new(f64::from(n)).unwrap()));
    let command = prop_oneof![
        3 => (0..100_u32).prop_map(OverrideCommand::Put),
        2 => Just(OverrideCommand::Remove),
        3 => (prop::option::of(weight), any::<Option<bool>>())
            .prop_map(|(weight, is_drained)| OverrideCommand::Patch { weight, is_drained }),
        1 => Just(OverrideCommand::Revoke),
    ];
    let step = prop_oneof![
        6 => (0..8_u16, command, prop::option::of(1..30_u64))
            .prop_map(|(key, command, lasts)| Step::Command { key, command, lasts }),
        2 => prop::collection::btree_set(0..8_u16, 0..8).prop_map(|keys| Step::List(keys.into_iter().rev().collect())),
        3 => (0..20_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..40)
}

/// Properties, weight, and the end in seconds.
type Fact = (u32, Option<Weight>, Option<u64>);

/// The simplest form of the rules: a table of facts with ends, read at each time.
#[derive(Default)]
struct Model {
    facts: BTreeMap<(u16, OverrideKind), Fact>,
}

impl Model {
    fn has(&self, key: u16, kind: OverrideKind) -> bool {
        self.facts.contains_key(&(key, kind))
    }

    fn forget(&mut self, key: u16) {
        self.facts.retain(|(of, _), _| *of != key);
    }

    fn obey(&mut self, key: u16, command: OverrideCommand<u32>, ends: Option<u64>, is_listed: bool) -> bool {
        if !matches!(command, OverrideCommand::Put(_)) {
            let is_known = is_listed || OverrideKind::ALL.iter().any(|kind| self.has(key, *kind));
            if !is_known {
                return false;
            }
        }
        match command {
            OverrideCommand::Put(properties) => {
                self.forget(key);
                self.facts.insert((key, OverrideKind::Added), (properties, None, ends));
            }
            OverrideCommand::Remove if self.has(key, OverrideKind::Added) && !is_listed => self.forget(key),
            OverrideCommand::Remove => {
                self.facts.remove(&(key, OverrideKind::Added));
                self.facts.insert((key, OverrideKind::Removed), (0, None, ends));
            }
            OverrideCommand::Patch { weight, is_drained } => {
                match weight {
                    Some(Some(weight)) => drop(self.facts.insert((key, OverrideKind::Weight), (0, Some(weight), ends))),
                    Some(None) => drop(self.facts.remove(&(key, OverrideKind::Weight))),
                    None => {}
                }
                match is_drained {
                    Some(true) => drop(self.facts.insert((key, OverrideKind::Drained), (0, None, ends))),
                    Some(false) => drop(self.facts.remove(&(key, OverrideKind::Drained))),
                    None => {}
                }
            }
            OverrideCommand::Revoke => self.forget(key),
        }
        true
    }

    fn members(&self, listed: &[(u16, u32)]) -> Vec<Shown> {
        let added =
            (0..8).filter(|key| self.has(*key, OverrideKind::Added) && listed.iter().all(|(known, _)| known != key));
        let all = listed.iter().copied().chain(added.map(|key| (key, 0)));
        let member = |(key, properties)| {
            let properties = self.facts.get(&(key, OverrideKind::Added)).map_or(properties, |fact| fact.0);
            let weight = self.facts.get(&(key, OverrideKind::Weight)).and_then(|fact| fact.1);
            (key, properties, weight, self.has(key, OverrideKind::Drained))
        };
        all.filter(|(key, _)| !self.has(*key, OverrideKind::Removed)).map(member).collect()
    }
}

proptest! {
    #[test]
    fn members_are_those_of_the_simple_model(steps in steps()) {
        let (mut layer, mut model) = (Layer::default(), Model::default());
        let (mut now, mut listed) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Command { key, command, lasts } => {
                    let ends = lasts.map(|lasts| now + lasts);
                    let is_listed = listed.iter().any(|(known, _)| *known == key);
                    let obeyed = layer.obey(&key, command, ends.map(at), is_listed);
                    prop_assert_eq!(obeyed.is_ok(), model.obey(key, command, ends, is_listed));
                }
                Step::List(keys) => listed = keys.into_iter().map(|key| (key, 100 + u32::from(key))).collect(),
                Step::Pass(seconds) => {
                    now += seconds;
                    let before = layer.len();
                    let ended = layer.handle_timeout(at(now));
                    prop_assert_eq!(layer.len() + ended.len(), before);
                    model.facts.retain(|_, fact| fact.2.is_none_or(|ends| ends > now));
                }
            }
            prop_assert_eq!(shown(&layer, &listed), model.members(&listed));
            prop_assert_eq!(layer.len(), model.facts.len());
            prop_assert_eq!(layer.poll_timeout(), model.facts.values().filter_map(|fact| fact.2).min().map(at));
            let mut restored = Layer::default();
            prop_assert_eq!(restored.restore(layer.iter()), 0);
            prop_assert_eq!(shown(&restored, &listed), shown(&layer, &listed), "saved and restored");
        }
    }

    /// The order too: the backends in the middle of a list keep their places.
    #[test]
    fn other_addresses_are_as_without_overrides(steps in steps(), count in 0..20_u16) {
        let listed: Vec<(u16, u32)> = (0..count).map(|key| (key * 7 % 20, u32::from(key))).collect();
        let mut layer = Layer::default();
        prop_assert_eq!(shown(&layer, &listed), plain(&listed));
        let mut touched = Vec::new();
        for step in steps {
            if let Step::Command { key, command, .. } = step {
                touched.push(key);
                let _ = layer.obey(&key, command, None, true);
            }
        }
        let others = |members: Vec<Shown>| -> Vec<Shown> {
            members.into_iter().filter(|member| !touched.contains(&member.0)).collect()
        };
        prop_assert_eq!(others(shown(&layer, &listed)), others(plain(&listed)), "{}", format!("{touched:?}"));
    }

    #[test]
    fn end_of_all_overrides_restores_the_list(steps in steps()) {
        let mut layer = Layer::default();
        for step in steps {
            if let Step::Command { key, command, lasts } = step {
                let ends = at(lasts.unwrap_or(30));
                let _ = layer.obey(&key, command, Some(ends), true);
                let once = shown(&layer, &LIST);
                let _ = layer.obey(&key, command, Some(ends), true);
                prop_assert_eq!(shown(&layer, &LIST), once, "twice is as once");
            }
        }
        let mut wake_ups = 0;
        while let Some(due) = layer.poll_timeout() {
            prop_assert!(!layer.handle_timeout(due).is_empty());
            prop_assert!(layer.poll_timeout().is_none_or(|next| next >= due + SECOND));
            wake_ups += 1;
        }
        prop_assert!(wake_ups <= 30);
        prop_assert_eq!(shown(&layer, &LIST), plain(&LIST));
    }
}

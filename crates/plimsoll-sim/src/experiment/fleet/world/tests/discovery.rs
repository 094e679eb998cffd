//! Clients that learn of backends by a source.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{MergeConfig, OnEmpty};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::subset::{Algorithm, SubsetConfig};

use super::super::World;
use super::{count, first, happening, ms, policy, ran, secs, until};
use crate::experiment::fleet::plan::{Arm, BackendGroup, Change, Conduct, Discovery, Plan, SourceState};
use crate::model::arena;

/// Ten clients that ask every five seconds, and ten backends.
fn fleet(discovery: Discovery) -> Plan {
    let arm = Arm { discovery: Some(discovery), ..policy(PolicyKind::RoundRobin) };
    Plan { duration: secs(120), arms: vec![arm], ..Plan::default() }
}

fn obedient() -> Discovery {
    let merge = MergeConfig { hold: Duration::ZERO, on_empty: OnEmpty::Obey, ..MergeConfig::default() };
    Discovery { merge, ..Discovery::default() }
}

fn source(at: u64, state: SourceState) -> crate::experiment::fleet::plan::Happening {
    happening(secs(at), Change::Source { state, lasts: secs(20) })
}

/// Numbers of members, the fewest and the most of all clients.
fn members(world: &World<'_>) -> (usize, usize) {
    let numbers = || world.clients.iter().map(|client| client.members().len());
    (numbers().min().unwrap(), numbers().max().unwrap())
}

fn at(world: &mut World<'_>, time: Duration) -> (usize, usize) {
    arena::run_until(world, Timestamp::from_origin(time));
    members(world)
}

#[test]
fn clients_learn_of_backends_within_the_interval_each_at_its_own_time() {
    let mut plan = fleet(Discovery::default());
    let group = BackendGroup { name: "later".to_owned(), count: count(5), ..BackendGroup::default() };
    plan.timeline = vec![
        happening(secs(30), Change::AddBackends { group }),
        happening(secs(60), Change::RemoveBackends { backends: first(4) }),
    ];
    let mut world = until(&plan, 1, Duration::ZERO);
    assert_eq!(members(&world), (10, 10), "the first list is in force at once");
    // Ten clients ask at random times of five seconds: one in a thousand seeds has all of them in one half.
    assert_eq!(at(&mut world, ms(32_500)), (10, 15));
    // Changes gather for 200 ms.
    assert_eq!(at(&mut world, ms(35_201)), (15, 15));
    assert_eq!(at(&mut world, ms(62_500)), (11, 15));
    assert_eq!(at(&mut world, ms(65_201)), (11, 11));
}

#[test]
fn failing_source_takes_no_backend_by_the_rules_and_all_from_an_obedient_client() {
    let timeline = vec![source(20, SourceState::Error), source(45, SourceState::Empty), source(80, SourceState::Third)];
    let rules = Plan { timeline: timeline.clone(), ..fleet(Discovery::default()) };
    let mut world = until(&rules, 1, Duration::ZERO);
    for time in [39, 64, 99, 119] {
        assert_eq!(at(&mut world, secs(time)), (10, 10), "{time}");
    }
    let obedient = Plan { timeline, ..fleet(obedient()) };
    let mut world = until(&obedient, 1, Duration::ZERO);
    let found = [39, 64, 79, 99, 119].map(|time| at(&mut world, secs(time)));
    assert_eq!(found, [(10, 10), (0, 0), (10, 10), (3, 3), (10, 10)]);
}

#[test]
fn sudden_loss_is_believed_after_the_hold() {
    let merge = MergeConfig { hold: secs(10), ..MergeConfig::default() };
    let mut plan = fleet(Discovery { merge, ..Discovery::default() });
    plan.timeline = vec![source(20, SourceState::Third)];
    let mut world = until(&plan, 1, Duration::ZERO);
    assert_eq!(at(&mut world, secs(29)), (10, 10));
    assert_eq!(at(&mut world, secs(36)), (3, 3));
}

#[test]
fn requests_end_once_while_a_removed_backend_goes_down() {
    let mut plan = fleet(Discovery::default());
    plan.timeline = vec![
        happening(secs(40), Change::RemoveBackends { backends: first(4) }),
        happening(secs(40), Change::Conduct { backends: first(4), conduct: Conduct::Down }),
        source(50, SourceState::Third),
        happening(secs(60), Change::AddClients { count: count(3) }),
        happening(secs(70), Change::RemoveClients { count: count(2) }),
    ];
    let world = ran(&plan, 1);
    assert!(world.backends[..4].iter().all(|backend| backend.conduct == Conduct::Down), "removed ones end too");
    assert_eq!(world.followings.len(), 13);
}

#[test]
fn subset_is_chosen_among_known_backends() {
    let subset = SubsetConfig { algorithm: Algorithm::Rendezvous, size: count(3), seed: 0 };
    let mut plan = fleet(Discovery::default());
    plan.arms[0].subset = Some(subset);
    plan.timeline = vec![happening(secs(40), Change::RemoveBackends { backends: first(5) })];
    let mut world = until(&plan, 1, Duration::ZERO);
    // A backend may have a substitute until its first check passes.
    assert!(at(&mut world, secs(39)).0 >= 3);
    assert!(at(&mut world, secs(46)).0 >= 3);
    assert!(world.clients.iter().all(|client| client.members().iter().all(|backend| *backend >= 5)));
}

use alloc::string::ToString;
use alloc::vec;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::super::TrustConfig;
use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

/// A view that its members may change.
struct Scene {
    records: BTreeMap<u32, NumberRecord>,
    members: Members<String, ()>,
    now: u64,
}

impl Scene {
    /// Numbers with their holders, after a minute of contact. Those in `live` are live.
    fn new(records: &[(u32, &str)], live: &[&str]) -> Self {
        let record = |(number, id): &(u32, &str)| {
            (*number, NumberRecord { id: id.to_string(), mod_revision: 100 + u64::from(*number) })
        };
        let mut scene = Self {
            records: records.iter().map(record).collect(),
            members: Members::new(TrustConfig::default()),
            now: 0,
        };
        scene.members.set_list(at(0), live.iter().map(|id| (id.to_string(), ())));
        scene.wait(60);
        scene
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            self.members.on_contact(at(self.now));
            self.members.handle_timeout(at(self.now));
        }
    }

    fn decide(&self, machine: &mut Numbers) -> Option<NumberOperation> {
        machine.decide(at(self.now), &self.records, &self.members)
    }
}

fn machine(id: &str, holes: Holes) -> Numbers {
    Numbers::new(NumbersConfig::new(holes), id.to_string())
}

fn claim(number: u32) -> Option<NumberOperation> {
    Some(NumberOperation::Claim { number, expect: Expect::Absent })
}

#[test]
fn restarted_member_finds_its_number() {
    let scene = Scene::new(&[(0, "a"), (3, "b"), (5, "b")], &["a", "b"]);
    let mut restarted = machine("a", Holes::Kept);
    assert_eq!(restarted.number(&scene.records), Some(0));
    assert_eq!(scene.decide(&mut restarted), None);
    assert_eq!(machine("b", Holes::Kept).number(&scene.records), Some(3));
}

#[test]
fn second_record_of_a_member_is_released() {
    let scene = Scene::new(&[(0, "a"), (3, "b"), (5, "b")], &["a", "b"]);
    let surplus = OwnRecord { number: 5, mod_revision: 105 };
    assert_eq!(scene.decide(&mut machine("b", Holes::Kept)), Some(NumberOperation::Release(surplus)));
}

#[test]
fn newcomers_claim_free_numbers_by_rank() {
    let scene = Scene::new(&[(1, "z")], &["a", "b", "c", "z"]);
    for (id, number) in [("a", 0), ("b", 2), ("c", 3)] {
        assert_eq!(scene.decide(&mut machine(id, Holes::Closed)), claim(number), "{id}");
    }
}

#[test]
fn unregistered_member_claims_nothing() {
    let scene = Scene::new(&[], &["a"]);
    assert_eq!(scene.decide(&mut machine("b", Holes::Closed)), None);
}

#[test]
fn dead_number_is_free_after_a_minute_of_observation() {
    for holes in [Holes::Kept, Holes::Closed] {
        let mut scene = Scene::new(&[(0, "dead"), (1, "z")], &["a", "z"]);
        let mut newcomer = machine("a", holes);
        assert_eq!(scene.decide(&mut newcomer.clone()), claim(2));
        // The observation goes on while an operation is in flight.
        scene.decide(&mut newcomer);
        scene.wait(59);
        newcomer.on_outcome(at(scene.now - 50), NumberOutcome::Lost, &mut Pcg64Mcg::seed_from_u64(1));
        assert_eq!(scene.decide(&mut newcomer.clone()), claim(2));
        scene.wait(1);
        let expect = Expect::Dead { id: "dead".to_string(), mod_revision: 100 };
        assert_eq!(scene.decide(&mut newcomer), Some(NumberOperation::Claim { number: 0, expect }));
    }
}

#[test]
fn highest_member_moves_to_a_hole_that_is_a_minute_old() {
    let mut scene = Scene::new(&[(0, "a"), (1, "dead"), (3, "b"), (5, "c")], &["a", "b", "c"]);
    let (mut highest, mut other, mut slot) =
        (machine("c", Holes::Closed), machine("b", Holes::Closed), machine("c", Holes::Kept));
    assert_eq!(scene.decide(&mut highest), None);
    assert_eq!(highest.poll_timeout(), Some(at(120)));
    assert_eq!((scene.decide(&mut other), other.poll_timeout()), (None, None));
    scene.decide(&mut slot);
    scene.wait(60);
    let from = OwnRecord { number: 5, mod_revision: 105 };
    let expect = Expect::Dead { id: "dead".to_string(), mod_revision: 101 };
    assert_eq!(scene.decide(&mut highest), Some(NumberOperation::Move { from, to: 1, expect }));
    assert_eq!(scene.decide(&mut other), None);
    assert_eq!(scene.decide(&mut slot), None);
}

#[test]
fn hole_without_a_record_waits_as_long() {
    let mut scene = Scene::new(&[(0, "a"), (2, "b")], &["a", "b"]);
    let mut highest = machine("b", Holes::Closed);
    assert_eq!(scene.decide(&mut highest), None);
    scene.wait(60);
    let from = OwnRecord { number: 2, mod_revision: 102 };
    assert_eq!(scene.decide(&mut highest), Some(NumberOperation::Move { from, to: 1, expect: Expect::Absent }));
}

#[test]
fn dead_records_above_the_highest_are_deleted_from_the_top() {
    let mut scene = Scene::new(&[(0, "a"), (1, "d"), (4, "e")], &["a"]);
    let (mut highest, mut slot) = (machine("a", Holes::Closed), machine("a", Holes::Kept));
    assert_eq!(scene.decide(&mut highest), None);
    scene.decide(&mut slot);
    scene.wait(60);
    let operation = scene.decide(&mut highest);
    assert_eq!(operation, Some(NumberOperation::Delete { number: 4, id: "e".to_string(), mod_revision: 104 }));
    assert_eq!(scene.decide(&mut slot), None);
    highest.on_outcome(at(scene.now), NumberOutcome::Won, &mut Pcg64Mcg::seed_from_u64(1));
    assert_eq!(scene.decide(&mut highest), None, "the view does not show it yet");
    scene.records.remove(&4);
    assert!(matches!(scene.decide(&mut highest), Some(NumberOperation::Delete { number: 1, .. })));
}

#[test]
fn unconfirmed_holder_counts_as_live() {
    let mut scene = Scene::new(&[(0, "a"), (1, "b")], &["a", "b"]);
    let mut highest = machine("b", Holes::Closed);
    // An outage of 90 s ends all leases; only b is back.
    scene.now += 90;
    scene.members.set_list(at(scene.now), [("b".to_string(), ())]);
    assert_eq!((scene.decide(&mut highest), highest.poll_timeout()), (None, None));
    scene.wait(20);
    assert_eq!((scene.decide(&mut highest), highest.poll_timeout()), (None, Some(at(scene.now + 60))));
}

#[test]
fn hole_ages_anew_after_distrust() {
    let mut scene = Scene::new(&[(0, "dead"), (1, "b")], &["b"]);
    let mut highest = machine("b", Holes::Closed);
    scene.decide(&mut highest);
    scene.wait(50);
    scene.now += 9;
    scene.members.on_contact(at(scene.now));
    assert_eq!(scene.decide(&mut highest), None);
    scene.wait(20);
    assert_eq!(scene.decide(&mut highest), None);
    scene.wait(59);
    assert_eq!(scene.decide(&mut highest), None);
    scene.wait(1);
    assert!(scene.decide(&mut highest).is_some());
}

#[test]
fn nothing_is_tried_without_contact() {
    let mut scene = Scene::new(&[], &["a"]);
    scene.now += 6;
    assert_eq!(scene.decide(&mut machine("a", Holes::Closed)), None);
}

#[test]
fn one_operation_is_in_flight_at_a_time() {
    let scene = Scene::new(&[], &["a"]);
    let mut newcomer = machine("a", Holes::Closed);
    assert_eq!(scene.decide(&mut newcomer), claim(0));
    assert_eq!(scene.decide(&mut newcomer), None);
}

#[test]
fn loser_waits_longer_after_each_loss() {
    let scene = Scene::new(&[], &["a"]);
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut newcomer = machine("a", Holes::Closed);
    let mut longest = vec![];
    for losses in 0..7 {
        let mut waits = vec![];
        for _ in 0..200 {
            let mut loser = newcomer.clone();
            assert_eq!(scene.decide(&mut loser), claim(0));
            loser.on_outcome(at(scene.now), NumberOutcome::Lost, &mut rng);
            let until = loser.poll_timeout().expect("it waits");
            waits.push(until.since(at(scene.now)));
            let mut later = loser.clone();
            assert_eq!(later.decide(until, &scene.records, &scene.members), claim(0), "after {losses}");
        }
        longest.push(waits.iter().max().copied().expect("200").as_secs_f64());
        let bound = (0.2 * f64::from(1 << losses)).min(4.0);
        assert!(longest[losses] <= bound && longest[losses] > 0.9 * bound, "{longest:?}");
        scene.decide(&mut newcomer);
        newcomer.on_outcome(at(scene.now - 10), NumberOutcome::Lost, &mut rng);
    }
}

#[test]
fn unknown_end_is_awaited_in_the_view_for_some_seconds() {
    let mut scene = Scene::new(&[], &["a"]);
    let mut newcomer = machine("a", Holes::Closed);
    scene.decide(&mut newcomer);
    newcomer.on_outcome(at(scene.now), NumberOutcome::Unknown, &mut Pcg64Mcg::seed_from_u64(1));
    let mut other = newcomer.clone();
    scene.wait(4);
    assert_eq!(scene.decide(&mut newcomer), None);
    assert_eq!(newcomer.poll_timeout(), Some(at(scene.now + 1)));
    scene.wait(1);
    assert_eq!(scene.decide(&mut newcomer), claim(0));
    scene.records.insert(0, NumberRecord { id: "a".to_string(), mod_revision: 7 });
    assert_eq!(scene.decide(&mut other), None);
    assert_eq!(other.number(&scene.records), Some(0));
}

#[test]
fn number_in_the_billions_costs_nothing() {
    let mut scene = Scene::new(&[(u32::MAX, "a"), (u32::MAX - 1, "b")], &["a", "b"]);
    let mut highest = machine("a", Holes::Closed);
    scene.decide(&mut highest);
    scene.wait(60);
    assert!(matches!(scene.decide(&mut highest), Some(NumberOperation::Move { to: 0, .. })));
}

#[test]
fn paused_machine_has_no_timeout_and_observes_holes_anew() {
    let mut scene = Scene::new(&[(0, "gone"), (1, "a")], &["a"]);
    let mut own = machine("a", Holes::Closed);
    assert_eq!(scene.decide(&mut own), None, "the hole is new");
    assert!(own.poll_timeout().is_some());
    scene.wait(59);
    own.pause(at(scene.now));
    assert_eq!(own.poll_timeout(), None, "nothing to do before there is a view");
    scene.wait(2);
    assert_eq!(scene.decide(&mut own), None, "the hole was not observed meanwhile");
    scene.wait(61);
    assert!(scene.decide(&mut own).is_some());
}

use alloc::vec::Vec;

use Criticality::{Critical, Sheddable, SheddablePlus};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

fn rng() -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(1)
}

/// A gate with credit for one request, which is at a backend from the start.
fn busy(max_queue: usize) -> Gate<&'static str> {
    let mut gate = Gate::new(ms(0), BatchConfig { max_queue, ..BatchConfig::default() });
    assert_eq!(gate.enter(ms(0), &mut History::new(Sheddable), "first"), BatchVerdict::Begins);
    gate
}

/// The history of a request that has arrived and is at a backend.
fn known(gate: &mut Gate<&'static str>) -> History {
    let mut history = History::new(Sheddable);
    history.age = Some(gate.queue.come());
    history
}

fn at(at: u64) -> ActiveRequest {
    ActiveRequest { at: ms(at), is_suspect: false }
}

fn wait(gate: &mut Gate<&'static str>, criticality: Criticality, name: &'static str) -> (Ticket, Option<&'static str>) {
    let BatchVerdict::Waits(ticket, goes) = gate.enter(ms(1), &mut History::new(criticality), name) else {
        panic!("{name} does not wait")
    };
    (ticket, goes)
}

/// Ends the request at the backend again and again. Returns the requests that get the slot, in
/// order.
fn order(gate: &mut Gate<&'static str>) -> Vec<&'static str> {
    let mut served = Vec::new();
    loop {
        // Nothing is learned, so that credit stays at one.
        gate.end(ms(2), at(2), Fate::Unknown, &mut rng());
        match gate.serve(ms(2)) {
            Some(call) => served.push(call),
            None => return served,
        }
    }
}

#[test]
fn most_critical_request_is_next_and_the_oldest_among_equals() {
    let mut gate = busy(10);
    for (criticality, name) in
        [(Sheddable, "a"), (SheddablePlus, "b"), (Sheddable, "c"), (Critical, "d"), (SheddablePlus, "e")]
    {
        let _ticket = wait(&mut gate, criticality, name);
    }
    assert_eq!([Critical, SheddablePlus, Sheddable].map(|criticality| gate.queued(criticality)), [1, 2, 2]);
    assert_eq!(gate.serve(ms(2)), None, "there is credit for one");
    assert_eq!(order(&mut gate), ["d", "b", "e", "a", "c"]);
}

#[test]
fn full_queue_drops_the_newest_of_the_least_critical() {
    let mut gate = busy(3);
    let (old, _) = wait(&mut gate, Sheddable, "old");
    let (new, _) = wait(&mut gate, Sheddable, "new");
    let (_plus, goes) = wait(&mut gate, SheddablePlus, "plus");
    assert_eq!(goes, None);
    assert_eq!(gate.enter(ms(1), &mut History::new(Sheddable), "newest"), BatchVerdict::Shed);
    let (_critical, goes) = wait(&mut gate, Critical, "critical");
    assert_eq!(goes, Some("new"));
    assert_eq!(gate.look(&new), (WaitResult::Shed, None));
    assert_eq!(gate.look(&old), (WaitResult::Pending, Some(&mut "old")));
    assert_eq!(gate.leave(new), (WaitResult::Shed, None));
    assert_eq!(gate.counts().full, 2);
    assert_eq!(order(&mut gate), ["critical", "plus", "old"]);
    assert_eq!(gate.leave(old), (WaitResult::Slot, None));
}

#[test]
fn requeued_request_keeps_its_position_in_a_full_queue() {
    let mut gate = busy(3);
    let mut histories = [(); 2].map(|()| known(&mut gate));
    for name in ["c", "d", "e"] {
        let _ticket = wait(&mut gate, Sheddable, name);
    }
    for (history, name) in histories.iter_mut().zip(["a", "b"]).rev() {
        let _entered = gate.enter(ms(1), history, name);
    }
    assert_eq!((gate.queued(Sheddable), gate.counts().requeued), (5, 2));
    assert_eq!(order(&mut gate), ["a", "b", "c", "d", "e"]);
}

#[test]
fn requeued_request_waits_last_while_nothing_is_accepted() {
    let mut gate = busy(3);
    let mut history = known(&mut gate);
    let _ticket = wait(&mut gate, Sheddable, "b");
    gate.end(ms(1), at(0), Fate::Rejected, &mut rng());
    let _entered = gate.enter(ms(1), &mut history, "a");
    let until = gate.poll_timeout(ms(1)).expect("there is a rest");
    assert_eq!(gate.first(), Some(&"b"));
    assert_eq!(gate.serve(until), Some("b"));
    assert_eq!(gate.first(), Some(&"a"));
}

#[test]
fn rejection_of_a_suspect_does_not_count() {
    let mut gate = busy(3);
    gate.end(ms(1), ActiveRequest { at: ms(0), is_suspect: true }, Fate::Rejected, &mut rng());
    assert_eq!((gate.counts().rejected, gate.active(), gate.credit().rests_until(ms(1))), (0, 0, None));
}

#[test]
fn request_that_leaves_is_passed_over() {
    let mut gate = busy(3);
    let tickets = ["a", "b", "c"].map(|name| wait(&mut gate, Sheddable, name).0);
    let [_a, b, _c] = tickets;
    assert_eq!(gate.leave(b), (WaitResult::Pending, Some("b")));
    assert_eq!(order(&mut gate), ["a", "c"]);
}

#[test]
fn empty_queue_limit_sheds_a_request_without_a_slot() {
    let mut gate = busy(0);
    assert_eq!(gate.enter(ms(1), &mut History::new(Critical), "x"), BatchVerdict::Shed);
}

#[test]
fn waiting_request_is_served_when_the_rest_ends() {
    let mut gate = busy(10);
    let _a = wait(&mut gate, Sheddable, "a");
    assert_eq!(gate.poll_timeout(ms(1)), None, "it waits for the end of another request");
    gate.end(ms(1), at(0), Fate::Rejected, &mut rng());
    assert_eq!(gate.serve(ms(1)), None);
    let until = gate.poll_timeout(ms(1)).expect("there is a rest");
    assert_eq!(gate.serve(until), Some("a"));
    assert_eq!(gate.poll_timeout(until), None);
}

#[test]
fn shed_request_may_return_when_the_queue_has_emptied() {
    let mut gate = busy(100);
    assert!((60..=120).contains(&gate.retry_after(ms(0), &mut rng()).as_secs()) || gate.queue.is_empty());
    for _ in 0..50 {
        let _ticket = wait(&mut gate, Sheddable, "x");
    }
    assert!((60..=120).contains(&gate.retry_after(ms(1), &mut rng()).as_secs()), "nothing was accepted yet");
    for tick in 0..1_000 {
        gate.end(ms(tick * 100), at(tick * 100), Fate::Accepted, &mut rng());
    }
    // Ten a second are accepted, and fifty wait.
    let told = gate.retry_after(ms(100_000), &mut rng()).as_secs_f64();
    assert!((4.5..11.0).contains(&told), "{told}");
}

#[test]
fn first_ticket_is_that_of_the_most_critical_and_oldest() {
    let mut gate = busy(10);
    let tickets = [(Sheddable, "a"), (Critical, "b"), (Critical, "c")]
        .map(|(criticality, name)| wait(&mut gate, criticality, name).0);
    assert_eq!(tickets.each_ref().map(|ticket| gate.is_first(ticket)), [false, true, false]);
    let [a, b, c] = tickets;
    let _ = (gate.leave(b), gate.leave(c));
    assert!(gate.is_first(&a));
}

/// A request that waited before the queue was forbidden stays, and is not displaced.
#[test]
fn forbidden_queue_admits_no_more_critical_request_in_place_of_another() {
    let mut gate = busy(10);
    let (old, _) = wait(&mut gate, Sheddable, "old");
    gate.set(BatchConfig { max_queue: 0, ..*gate.config() });
    assert_eq!(gate.enter(ms(1), &mut History::new(Critical), "critical"), BatchVerdict::Shed);
    assert_eq!(gate.look(&old), (WaitResult::Pending, Some(&mut "old")));
}

#[test]
fn counts_include_each_sent_attempt_and_its_outcome() {
    let mut gate = busy(10);
    for (at, fate) in [(1, Fate::Accepted), (2, Fate::Unknown), (3, Fate::Rejected), (10_000, Fate::Rejected)] {
        gate.end(ms(at), self::at(at), fate, &mut rng());
        let _ticket = gate.enter(ms(at), &mut History::new(Sheddable), "next");
        let _next = gate.serve(ms(at + 5_000));
    }
    let counts = *gate.counts();
    assert_eq!((counts.sent, counts.accepted, counts.rejected), (5, 1, 2));
}

/// The pace of ten seconds ago counts half, so that the queue takes twice as long.
#[test]
fn shed_requests_wait_longer_when_the_pace_falls() {
    let mut gate = busy(100);
    for _ in 0..50 {
        let _ticket = wait(&mut gate, Sheddable, "x");
    }
    for tick in 0..1_000 {
        gate.end(ms(tick * 100), at(tick * 100), Fate::Accepted, &mut rng());
    }
    let [now, later] = [100_000, 110_000].map(|at| gate.retry_after(ms(at), &mut rng()).as_secs_f64());
    assert!((later / now - 2.0).abs() < 0.001, "{now} s, then {later} s");
}

/// Seed 1, n = 200: no draw is in the first tenth, or none in the last, with a chance of 1.4e-9.
#[test]
fn shed_requests_return_over_all_of_the_second_minute() {
    let mut gate = busy(100);
    let _ticket = wait(&mut gate, Sheddable, "x");
    let mut rng = rng();
    let told: Vec<f64> = (0..200).map(|_| gate.retry_after(ms(1), &mut rng).as_secs_f64()).collect();
    assert!(told.iter().all(|told| (60.0..120.0).contains(told)), "{told:?}");
    assert!(told.iter().any(|told| *told < 66.0) && told.iter().any(|told| *told > 114.0), "{told:?}");
}

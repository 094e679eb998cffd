//! Preemption: a request that only waits for its client ends early when another waits for a slot.
//!
//! A request that waits for its client (for more of its body, for the client to read the response,
//! for a message on an idle tunnel) keeps a backend from other work. While slots are free that
//! harms nobody. When a request waits for a slot, ending the other one is the cheapest help: its
//! backend loses no work. A time limit alone would not do. A limit that protects a slot wanted
//! within milliseconds is so short that it breaks honest slow clients on a quiet day.
//!
//! The delay of a client is its *debt* ([`ClientDebt`]): the time spent waiting for it, less the
//! time that its bytes are worth at [`RATE`]. A client that keeps up with that rate never has any.
//! One that sends a few bytes now and then, to look alive, gains as little as they are worth.
//!
//! A request may be ended for another if
//!
//! ```text
//! held(its client) > held(other client) + 1   and   debt ≥ GRACE     more than a fair share
//! held(its client) ≥ held(other client)       and   debt ≥ PATIENCE  as good as abandoned
//! ```
//!
//! so a client with many slots never ends the requests of one with few. The holder with the most
//! slots loses one first, and of its requests the one with the highest debt.

use core::time::Duration;

use crate::Timestamp;

/// Bytes a second that keep a client free of debt. A poor mobile connection has several times as
/// much.
pub const RATE: u64 = 8 * 1024;
/// The debt that ends a request of a client above its share: a round trip on a mobile network.
pub const GRACE: Duration = Duration::from_millis(100);
/// The debt that ends any other: a lost packet is sent again within it.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A client's debt with one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientDebt {
    debt: Duration,
    since: Option<Timestamp>,
}

impl ClientDebt {
    /// Starts a wait for the client. Without effect during a wait.
    pub fn begin_wait(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    /// Ends the wait for the client, or counts `bytes` that have passed.
    pub fn on_bytes(&mut self, now: Timestamp, bytes: u64) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| now.since(since));
        let debt = self.debt.saturating_add(waited);
        // Nearly all clients owe nothing, and cost no division.
        self.debt = if debt.is_zero() { debt } else { debt.saturating_sub(worth(bytes)) };
    }

    /// The debt now; `None` while the request does not wait for its client.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Option<Duration> {
        self.since.map(|since| self.debt.saturating_add(now.since(since)))
    }
}

/// The time that `bytes` take at [`RATE`].
fn worth(bytes: u64) -> Duration {
    const NANOS: u128 = 1_000_000_000;
    Duration::from_nanos_u128(u128::from(bytes) * NANOS / u128::from(RATE))
}

/// A request that may be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// The caller's key of the request.
    pub key: K,
    /// Slots of its client.
    pub held: u32,
    /// The debt of its client.
    pub debt: Duration,
}

/// The request to end for a waiting one whose client has `held` slots; `None` if there is none.
pub fn victim<K>(held: u32, candidates: impl IntoIterator<Item = Candidate<K>>) -> Option<Candidate<K>> {
    let may_end = |candidate: &Candidate<K>| {
        candidate.held > held.saturating_add(1) && candidate.debt >= GRACE
            || candidate.held >= held && candidate.debt >= PATIENCE
    };
    candidates.into_iter().filter(may_end).max_by_key(|candidate| (candidate.held, candidate.debt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn chosen(held: u32, candidates: &[(u32, u64)]) -> Option<usize> {
        let candidates = candidates.iter().enumerate().map(|(key, (held, millis))| Candidate {
            key,
            held: *held,
            debt: Duration::from_millis(*millis),
        });
        victim(held, candidates).map(|victim| victim.key)
    }

    #[test]
    fn victim_has_the_most_slots_and_then_the_highest_debt() {
        assert_eq!(chosen(0, &[(1, 9_000), (50, 200), (50, 300), (2, 9_000)]), Some(2));
        assert_eq!(chosen(0, &[(1, 2_000), (1, 3_000)]), Some(1));
    }

    #[test]
    fn client_with_few_slots_is_never_ended_for_one_with_many() {
        assert_eq!(chosen(10, &[(1, 60_000), (9, 60_000)]), None);
        assert_eq!(chosen(10, &[(10, 60_000)]), Some(0));
    }

    #[test]
    fn equal_clients_are_ended_only_after_patience_and_unequal_after_grace() {
        assert_eq!(chosen(0, &[(1, 999)]), None);
        assert_eq!(chosen(0, &[(1, 1_000)]), Some(0));
        assert_eq!(chosen(0, &[(2, 99)]), None);
        assert_eq!(chosen(0, &[(2, 100)]), Some(0));
    }

    #[test]
    fn debt_grows_while_waiting_and_shrinks_by_what_bytes_are_worth() {
        let mut debt = ClientDebt::default();
        assert_eq!(debt.at(at(0)), None);
        debt.begin_wait(at(0));
        debt.begin_wait(at(500));
        assert_eq!(debt.at(at(1_000)), Some(Duration::from_secs(1)));
        debt.on_bytes(at(1_000), RATE / 4);
        assert_eq!(debt.at(at(1_500)), None, "nobody waits for it");
        debt.begin_wait(at(2_000));
        assert_eq!(debt.at(at(2_000)), Some(Duration::from_millis(750)));
    }

    #[test]
    fn client_that_keeps_up_owes_nothing_and_one_that_dribbles_owes_nearly_all() {
        let owed_after_ten_seconds = |bytes_a_second: u64| {
            let mut debt = ClientDebt::default();
            for second in 0..10 {
                debt.begin_wait(at(1_000 * second));
                debt.on_bytes(at(1_000 * (second + 1)), bytes_a_second);
            }
            debt.begin_wait(at(10_000));
            debt.at(at(10_000)).unwrap()
        };
        assert_eq!(owed_after_ten_seconds(RATE), Duration::ZERO);
        assert_eq!(owed_after_ten_seconds(10 * RATE), Duration::ZERO);
        assert!(owed_after_ten_seconds(240) > Duration::from_secs(9));
    }
}

//! A round of notices: one change of state, sent to every lease until it is acknowledged.
//!
//! ```text
//! wait(n) = max(10 ms, 2 · round trip) · 2^(n − 1)    after the n-th notice; at most 8 are resent
//! ```
//!
//! First notices come before resends, at the pace of [`Pace::NOTICES`](super::super::Pace). A first
//! notice informs a client; a resend often repeats what is on its way. With resends first, clients
//! that left without a word would delay all others.
//!
//! Simulated for 10,000 clients and a round trip of 2 ms, until all know: see `lame-duck-notice` in
//! `docs/scenarios.md`.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::time::Duration;

use super::leases::MAX_LEASES;
use crate::Timestamp;

/// Notices after the first one. At 20% loss each way, all of them are lost once in two million.
pub(super) const MAX_RESENDS: u8 = 8;
/// Shortest wait for an acknowledgement.
const MIN_WAIT: Duration = Duration::from_millis(10);
/// Longest round trip that counts: it is the client's word.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(250);

/// The wait for an acknowledgement of the `sends`-th notice.
pub(super) fn wait(round_trip: Duration, sends: u8) -> Duration {
    MIN_WAIT.max(2 * round_trip.min(MAX_ROUND_TRIP)) * (1 << sends.saturating_sub(1).min(MAX_RESENDS))
}

/// The rows of a round that still get a notice.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Next row of the first pass.
    next: usize,
    /// End of the first pass. Later rows learned the state by their answer.
    end: usize,
    /// Resends: microseconds since the origin and the row, in one number each.
    resends: BinaryHeap<Reverse<u64>>,
}

const ROW_BITS: u32 = MAX_LEASES.trailing_zeros();

impl Round {
    pub(super) fn new(rows: usize) -> Self {
        Self { next: 0, end: rows, resends: BinaryHeap::new() }
    }

    /// Takes the next row that is due.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<usize> {
        if self.next < self.end {
            self.next += 1;
            return Some(self.next - 1);
        }
        let Reverse(first) = self.resends.peek()?;
        if first >> ROW_BITS > now.as_nanos() / 1_000 {
            return None;
        }
        self.resends.pop().map(|Reverse(entry)| entry as usize % MAX_LEASES)
    }

    pub(super) fn push(&mut self, at: Timestamp, row: usize) {
        let micros = at.as_nanos().div_ceil(1_000);
        self.resends.push(Reverse(micros << ROW_BITS | row as u64));
    }

    /// Rows left in the first pass.
    pub(super) fn left(&self) -> usize {
        self.end - self.next
    }

    /// The time of the next resend.
    pub(super) fn next_resend(&self) -> Option<Timestamp> {
        self.resends.peek().map(|Reverse(entry)| Timestamp::from_nanos((entry >> ROW_BITS) * 1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1_000)
    }

    #[test]
    fn waits_double_from_ten_milliseconds_or_two_round_trips() {
        let waits = |round_trip| [1, 2, 3, 8].map(|sends| wait(Duration::from_millis(round_trip), sends).as_millis());
        assert_eq!(waits(2), [10, 20, 40, 1_280]);
        assert_eq!(waits(30), [60, 120, 240, 7_680]);
        assert_eq!(waits(4_000_000), [500, 1_000, 2_000, 64_000]);
        let total: Duration = (1..=MAX_RESENDS).map(|sends| wait(Duration::ZERO, sends)).sum();
        assert_eq!(total, Duration::from_millis(2_550));
    }

    #[test]
    fn first_pass_comes_before_resends_and_resends_in_time() {
        let mut round = Round::new(2);
        round.push(us(7), MAX_LEASES - 1);
        round.push(us(5), 0);
        assert_eq!([round.pop(us(6)), round.pop(us(6)), round.pop(us(6))], [Some(0), Some(1), Some(0)]);
        assert_eq!((round.pop(us(6)), round.next_resend()), (None, Some(us(7))));
        assert_eq!((round.pop(us(7)), round.left()), (Some(MAX_LEASES - 1), 0));
    }
}

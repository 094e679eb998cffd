//! How many slots one holder may take, so that others always find some free.
//!
//! A fixed share for each holder wastes capacity while few are active; no bound at all lets the first
//! take everything. A *dynamic threshold* (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2),
//! 1998; made for the shared memory of switches) does neither. A holder may take one more slot while
//!
//! ```text
//! held < RESERVE · free          free = capacity − slots in use
//! ```
//!
//! One greedy holder stops at `RESERVE / (RESERVE + 1)` of the capacity, `n` of them at
//! `n · RESERVE / (n · RESERVE + 1)` together: the rest stays free for holders with few slots, who get
//! theirs without waiting. With a capacity of [`RESERVE`] slots or fewer nothing is kept free.
//!
//! Where only one holder was seen for [`MEMORY`] there is nobody to keep slots for, and it may take them all:
//! a service behind one load balancer loses nothing.
//!
//! Memory is constant. Holders are counted in two rows of counters by different bits of their hash, and the
//! lower of the two counts: an estimate that is never too low. It is too high only for a holder that shares
//! both counters with others, which nobody can bring about who does not know the key of the hash.

use alloc::boxed::Box;
use core::time::Duration;

use super::Holder;
use crate::Timestamp;

/// How many times the free slots one holder may hold. Eight keeps a ninth of the slots free from a single greedy
/// holder: 22 of the 200 of two backends with default limits.
pub const RESERVE: u32 = 8;

/// How long a second holder is remembered.
const MEMORY: Duration = Duration::from_secs(300);

/// Counters in a row. A holder shares both of its counters with a given other one once in four million cases.
const COLUMNS: usize = 2048;

/// Slots in use, by holder.
#[derive(Clone, Debug)]
pub struct Shares {
    rows: Box<[[u32; COLUMNS]; 2]>,
    in_use: u32,
    latest: Option<Holder>,
    shared_until: Timestamp,
}

impl Default for Shares {
    fn default() -> Self {
        Self { rows: Box::new([[0; COLUMNS]; 2]), in_use: 0, latest: None, shared_until: Timestamp::ZERO }
    }
}

/// The column of a holder in each row.
fn columns(holder: Holder) -> [usize; 2] {
    let hash = holder.hash();
    [hash as usize % COLUMNS, (hash >> 32) as usize % COLUMNS]
}

impl Shares {
    /// A request of `holder` has arrived. Call it for each, whether it then takes a slot or not.
    pub fn on_arrival(&mut self, now: Timestamp, holder: Holder) {
        if self.latest.replace(holder).is_some_and(|latest| latest != holder) {
            self.shared_until = now + MEMORY;
        }
    }

    /// Whether `holder` may take one more of `capacity` slots. Of no capacity anybody may: that is for the
    /// balancer to refuse.
    #[must_use]
    pub fn may_take(&self, now: Timestamp, holder: Holder, capacity: u32) -> bool {
        let free = capacity.saturating_sub(self.in_use);
        capacity == 0 || now >= self.shared_until || self.held(holder) < free.saturating_mul(RESERVE)
    }

    /// Slots that `holder` has, or a few more.
    #[must_use]
    pub fn held(&self, holder: Holder) -> u32 {
        let [first, second] = columns(holder);
        self.rows[0][first].min(self.rows[1][second])
    }

    /// `holder` has taken a slot. [`Shares::give_back`] must follow.
    pub fn take(&mut self, holder: Holder) {
        self.in_use += 1;
        for (row, column) in self.rows.iter_mut().zip(columns(holder)) {
            row[column] += 1;
        }
    }

    /// `holder` has given a slot back.
    pub fn give_back(&mut self, holder: Holder) {
        self.in_use = self.in_use.saturating_sub(1);
        for (row, column) in self.rows.iter_mut().zip(columns(holder)) {
            row[column] = row[column].saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn holder(number: u64) -> Holder {
        // An odd multiplier spreads small numbers over all bits.
        Holder::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// How many of `capacity` slots each of `count` greedy holders gets, taking turns.
    fn greedy(count: u64, capacity: u32) -> Vec<u32> {
        let (now, mut shares) = (Timestamp::ZERO, Shares::default());
        (0..=count).for_each(|number| shares.on_arrival(now, holder(number)));
        loop {
            let before = shares.in_use;
            for number in 0..count {
                if shares.may_take(now, holder(number), capacity) && shares.in_use < capacity {
                    shares.take(holder(number));
                }
            }
            if shares.in_use == before {
                return (0..count).map(|number| shares.held(holder(number))).collect();
            }
        }
    }

    #[test]
    fn greedy_holders_share_equally_and_leave_some_free() {
        for (count, capacity, each) in [(1, 200, 178), (2, 200, 94), (4, 200, 48), (1, 9, 8), (1, 4, 4)] {
            let held = greedy(count, capacity);
            assert!(held.iter().all(|held| (each..=each + 1).contains(held)), "{count} of {capacity}: {held:?}");
        }
    }

    #[test]
    fn newcomer_finds_a_slot_whatever_others_hold() {
        for count in 1..20 {
            let used: u32 = greedy(count, 400).iter().sum();
            assert!(used < 400, "{count}: {used}");
        }
    }

    #[test]
    fn single_holder_takes_every_slot_until_another_arrives() {
        let (mut now, mut shares) = (Timestamp::ZERO, Shares::default());
        shares.on_arrival(now, holder(1));
        for _ in 0..10 {
            assert!(shares.may_take(now, holder(1), 10));
            shares.take(holder(1));
        }
        shares.on_arrival(now, holder(2));
        assert!(!shares.may_take(now, holder(1), 10) && !shares.may_take(now, holder(2), 10));
        shares.give_back(holder(1));
        assert!(shares.may_take(now, holder(2), 10) && !shares.may_take(now, holder(1), 10));
        now = now + MEMORY;
        assert!(shares.may_take(now, holder(1), 10));
    }

    #[test]
    fn holder_counts_exactly_when_it_shares_one_counter_only() {
        let mut shares = Shares::default();
        let (mine, other) = (Holder::new(7), Holder::new(7 | 1 << 32));
        (0..5).for_each(|_| shares.take(other));
        shares.take(mine);
        assert_eq!((shares.held(mine), shares.held(other)), (1, 5));
        shares.give_back(mine);
        assert_eq!(shares.held(mine), 0);
    }
}

//! Limits the slots of one holder, so that others always find some free.
//!
//! A fixed share for each holder wastes capacity while few are active; no bound at all lets the
//! first take everything. A *dynamic threshold* (Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998; made for the shared memory of switches) does neither. A holder may take
//! one more slot while
//!
//! ```text
//! held < reserve · free          or held = 0
//! ```
//!
//! where *free* are the slots that a request could have now. Slots of backends that drain or are
//! unhealthy do not count. One greedy holder stops at `reserve / (reserve + 1)` of the slots, `n`
//! of them at `n · reserve / (n · reserve + 1)` together. The rest stays free for holders with few
//! slots, which get theirs without waiting. Of `reserve` slots or fewer nothing is kept free.
//!
//! If only one holder was seen for [`MEMORY`], no slots are kept for others, and it may take them
//! all. So a service behind one load balancer loses nothing.
//!
//! Memory is constant. Holders are counted in two rows of counters by different bits of their hash.
//! The estimate is the lower of the two, and never too low. It is too high only for a holder that
//! shares both counters with others. Nobody can bring that about without the key of the hash.

use alloc::boxed::Box;
use core::time::Duration;

use super::Holder;
use crate::Timestamp;

/// Time for which a second holder is remembered.
const MEMORY: Duration = Duration::from_secs(300);

/// Counters in a row. A holder shares both of its counters with a given other one once in four
/// million cases.
const COLUMNS: usize = 2048;

/// Slots in use, by holder.
#[derive(Clone, Debug)]
pub struct Shares {
    rows: Box<[[u32; COLUMNS]; 2]>,
    /// Multiple of the free slots that one holder may hold.
    reserve: u32,
    latest: Option<Holder>,
    shared_until: Timestamp,
}

/// The column of a holder in each row.
fn columns(holder: Holder) -> [usize; 2] {
    let hash = holder.hash();
    [hash as usize % COLUMNS, (hash >> 32) as usize % COLUMNS]
}

impl Shares {
    /// No slots in use. A holder may hold `reserve` times the free slots.
    #[must_use]
    pub fn new(reserve: u32) -> Self {
        Self { rows: Box::new([[0; COLUMNS]; 2]), reserve, latest: None, shared_until: Timestamp::ZERO }
    }

    /// Counts an arriving request of `holder`. Call it for each, whether it then takes a slot or
    /// not.
    pub fn on_arrival(&mut self, now: Timestamp, holder: Holder) {
        if self.latest.replace(holder).is_some_and(|latest| latest != holder) {
            self.shared_until = now + MEMORY;
        }
    }

    /// Whether `holder` may take one more slot when this many are free.
    #[must_use]
    pub fn may_take(&self, now: Timestamp, holder: Holder, free: u32) -> bool {
        let held = self.held(holder);
        held == 0 || held < free.saturating_mul(self.reserve) || now >= self.shared_until
    }

    /// Slots of `holder`, or a few more.
    #[must_use]
    pub fn held(&self, holder: Holder) -> u32 {
        let [first, second] = columns(holder);
        self.rows[0][first].min(self.rows[1][second])
    }

    /// Counts a slot taken by `holder`. [`Shares::give_back`] must follow.
    pub fn take(&mut self, holder: Holder) {
        for (row, column) in self.rows.iter_mut().zip(columns(holder)) {
            row[column] += 1;
        }
    }

    /// Counts a slot given back by `holder`.
    pub fn give_back(&mut self, holder: Holder) {
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

    const RESERVE: u32 = 8;

    /// Slots of each of `count` greedy holders of `capacity` slots, taking turns.
    fn greedy(count: u64, capacity: u32) -> Vec<u32> {
        let (now, mut shares, mut free) = (Timestamp::ZERO, Shares::new(RESERVE), capacity);
        (0..=count).for_each(|number| shares.on_arrival(now, holder(number)));
        loop {
            let before = free;
            for number in 0..count {
                if free > 0 && shares.may_take(now, holder(number), free) {
                    shares.take(holder(number));
                    free -= 1;
                }
            }
            if free == before {
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
        let (mut now, mut shares) = (Timestamp::ZERO, Shares::new(RESERVE));
        shares.on_arrival(now, holder(1));
        for free in (1..=10).rev() {
            assert!(shares.may_take(now, holder(1), free));
            shares.take(holder(1));
        }
        shares.on_arrival(now, holder(2));
        assert!(!shares.may_take(now, holder(1), 1));
        assert!(shares.may_take(now, holder(2), 1), "a holder of none is refused by no share");
        now = now + MEMORY;
        assert!(shares.may_take(now, holder(1), 1));
    }

    #[test]
    fn holder_counts_exactly_when_it_shares_one_counter_only() {
        let mut shares = Shares::new(RESERVE);
        let (mine, other) = (Holder::new(7), Holder::new(7 | 1 << 32));
        (0..5).for_each(|_| shares.take(other));
        shares.take(mine);
        assert_eq!((shares.held(mine), shares.held(other)), (1, 5));
        shares.give_back(mine);
        assert_eq!(shares.held(mine), 0);
    }

    #[test]
    fn holder_of_reserve_times_the_free_slots_takes_no_more() {
        let (now, mut shares) = (Timestamp::ZERO, Shares::new(RESERVE));
        (1..=2).for_each(|number| shares.on_arrival(now, holder(number)));
        (0..RESERVE).for_each(|_| shares.take(holder(1)));
        assert!(!shares.may_take(now, holder(1), 1));
        assert!(shares.may_take(now, holder(1), 2));
    }
}

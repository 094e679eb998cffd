//! The account of one customer: its CPU usage in the last second, and its debt.
//!
//! The second is a sliding window of thirty past slots of 34 ms and the present slot. A cost falls
//! into the present slot and leaves the window with it. So no second contains more than the window
//! holds.
//!
//! Why not a token bucket: to keep the limit within 2% over any second, its depth is 20 ms of the
//! limit. Customers far below their limit empty such a bucket by chance. A bucket deep enough for
//! chance lets twice the limit through in a second.
//!
//! A request may cost more than the window still holds. The excess is a *debt*. The debt takes the
//! headroom that leaving slots free, and nothing else fits until the debt is paid. It is bounded by
//! the payments of one minute ([`MAX_DEBT`]): a process can report wrong costs, by a factor of a
//! thousand when its unit changes, and no customer should be shut out for days by that. In return,
//! a customer with requests of more than a minute of its limit each exceeds that limit.
//!
//! ```text
//! sum = Σ slots ≤ capacity,   capacity = limit · 1.007 s,   debt ≤ 60 · capacity
//! ```

use crate::Timestamp;

/// Past slots in the window.
const PAST: usize = 30;
/// A slot is 2^25 ns, 34 ms.
const SLOT_BITS: u32 = 25;
/// The shortest length of the window, in seconds: at the beginning of a slot. At the end of a slot
/// the window is one slot longer.
const SECONDS: f64 = PAST as f64 * (1_u64 << SLOT_BITS) as f64 * 1e-9;

/// The largest debt, in windows.
const MAX_DEBT: f64 = 60.0;

/// CPU usage of one customer, in CPU-seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// The number of the present slot since the origin of time, and the cost taken in that slot.
    slot: u64,
    present: f64,
    /// Costs of past slots. The index is the number of the slot modulo their count.
    past: [f32; PAST],
    /// The cost taken in the window, over all slots.
    sum: f64,
    debt: f64,
    /// The capacity of the window; zero for a free account.
    capacity: f64,
}

/// The slot that contains a time.
fn slot(now: Timestamp) -> u64 {
    now.as_nanos() >> SLOT_BITS
}

impl Account {
    /// An empty account with a limit in CPU-seconds a second; above zero.
    pub(super) fn new(now: Timestamp, limit: f64) -> Self {
        Self { slot: slot(now), capacity: limit * SECONDS, ..Self::default() }
    }

    /// Changes the limit, in CPU-seconds a second; above zero.
    pub(super) fn set_limit(&mut self, limit: f64) {
        self.capacity = limit * SECONDS;
    }

    /// Moves the window to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let slot = slot(now);
        let gone = slot.saturating_sub(self.slot);
        if gone == 0 {
            return;
        }
        if gone > PAST as u64 {
            // Each unused window paid one window's worth of the debt. The last one is charged
            // below.
            let windows = gone / (PAST as u64 + 1) - 1;
            self.debt = (self.debt - windows as f64 * self.capacity).max(0.0);
            (self.past, self.present) = ([0.0; PAST], 0.0);
        } else {
            for number in self.slot..slot {
                self.past[place(number)] = core::mem::take(&mut self.present) as f32;
            }
        }
        self.slot = slot;
        // Summed anew, so that rounding errors do not accumulate.
        self.sum = self.past.iter().map(|taken| f64::from(*taken)).sum();
        let debt = core::mem::take(&mut self.debt);
        self.take(debt);
    }

    /// Takes a cost. Returns the slot that it is taken in.
    pub(super) fn take(&mut self, cost: f64) -> u64 {
        let fits = cost.min((self.capacity - self.sum).max(0.0));
        self.present += fits;
        self.sum += fits;
        self.debt = (self.debt + cost - fits).min(MAX_DEBT * self.capacity);
        self.slot
    }

    /// Returns a part of the cost that was taken in `slot`: it pays debt first. A slot that has
    /// left the window needs no correction.
    pub(super) fn give_back(&mut self, slot: u64, cost: f64) {
        let of_debt = cost.min(self.debt);
        self.debt -= of_debt;
        let cost = cost - of_debt;
        if slot >= self.slot {
            let back = cost.min(self.present);
            self.present -= back;
            self.sum -= back;
        } else if self.slot - slot <= PAST as u64 {
            let taken = &mut self.past[place(slot)];
            let back = cost.min(f64::from(*taken));
            *taken = (f64::from(*taken) - back) as f32;
            self.sum -= back;
        }
    }

    /// Whether `cost` fits into this part of the window, without any debt.
    pub(super) fn fits(&self, cost: f64, part: f64) -> bool {
        self.debt <= 0.0 && self.sum + cost <= self.capacity * part
    }

    /// The usage over the limit: 1 is at the limit, above 1 is in debt. Zero for a free account.
    /// Also zero for a customer without debt that has been silent for a window.
    pub(super) fn fill(&self, now: Timestamp) -> f64 {
        if self.capacity <= 0.0 {
            0.0
        } else if slot(now).saturating_sub(self.slot) > PAST as u64 {
            self.debt / self.capacity
        } else {
            (self.sum + self.debt) / self.capacity
        }
    }

    /// CPU-seconds a second used in the window.
    pub(super) fn used(&self) -> f64 {
        self.sum / SECONDS
    }

    /// CPU-seconds in excess of the window.
    pub(super) fn debt(&self) -> f64 {
        self.debt
    }

    /// Whether a customer owns the account.
    pub(super) fn is_taken(&self) -> bool {
        self.capacity > 0.0
    }
}

/// The index of a past slot.
fn place(slot: u64) -> usize {
    (slot % PAST as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// The account of a customer with two CPUs.
    fn account() -> Account {
        Account::new(ms(0), 2.0)
    }

    /// The time in seconds until a millisecond fits again.
    fn free_at(mut account: Account) -> f64 {
        let at = (0..20_000).find(|at| {
            account.advance(ms(*at));
            account.fits(0.001, 1.0)
        });
        at.expect("soon") as f64 * 1e-3
    }

    #[test]
    fn cost_leaves_the_window_after_one_second() {
        for begin in [0, 17, 30] {
            let mut account = account();
            account.advance(ms(begin));
            account.take(2.0 * SECONDS);
            let after = free_at(account) - begin as f64 * 1e-3;
            assert!((1.0..1.05).contains(&after), "{after}");
        }
    }

    #[test]
    fn debt_is_paid_at_the_rate_of_the_limit() {
        let mut long = account();
        long.take(10.0);
        let after = free_at(long);
        // Ten CPU-seconds are five seconds of the limit, and the last of them fits the window.
        assert!((4.0..4.3).contains(&after), "{after}");
        long.advance(ms(4_000));
        assert!(!long.fits(0.001, 1.0), "also without a call in between");
        long.advance(ms(6_300));
        assert!(long.fits(0.001, 1.0));
    }

    #[test]
    fn largest_debt_is_paid_in_a_minute() {
        let mut account = account();
        account.take(1e6);
        account.take(1e6);
        account.advance(ms(58_000));
        assert!(!account.fits(0.001, 1.0));
        account.advance(ms(66_000));
        assert!(account.fits(0.001, 1.0));
    }

    #[test]
    fn returned_cost_frees_headroom_in_its_slot() {
        let mut account = account();
        let slot = account.take(2.0);
        account.advance(ms(500));
        account.give_back(slot, 1.5);
        assert!(account.fits(1.5, 1.0) && !account.fits(1.52, 1.0));
        account.take(1.0);
        account.advance(ms(1_100));
        assert!(account.fits(1.0, 1.0) && !account.fits(1.02, 1.0), "the half has left, and no more");
        account.give_back(slot, 0.5);
        assert!(!account.fits(1.02, 1.0), "a slot that has left freed its headroom already");
    }

    #[test]
    fn fill_is_zero_after_an_unused_second() {
        let mut account = account();
        account.take(1.0);
        assert!(account.fill(ms(100)) > 0.4);
        assert_eq!(account.fill(ms(2_000)), 0.0);
        account.take(3.0);
        assert!(account.fill(ms(2_000)) > 0.9, "but for a debt");
    }

    /// The beginning of a slot.
    fn at(slot: u64) -> Timestamp {
        Timestamp::from_nanos(slot << SLOT_BITS)
    }

    const CAPACITY: f64 = 2.0 * SECONDS;

    fn assert_close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "{got}, not {expected}");
    }

    #[test]
    fn window_holds_thirty_past_slots() {
        let mut account = account();
        account.take(1.0);
        // Also without a call in between.
        assert_close(account.fill(at(30)), 1.0 / CAPACITY);
        assert_close(account.fill(at(31)), 0.0);
        account.advance(at(30));
        assert_close(account.used(), 1.0 / SECONDS);
        account.advance(at(31));
        assert_close(account.used(), 0.0);
    }

    #[test]
    fn debt_is_reduced_by_each_unused_window_but_the_last() {
        for (slots, debt) in [(1, 4.0), (60, 3.0), (61, 3.0), (62, 2.0), (93, 1.0), (500, 0.0)] {
            let mut account = account();
            account.take(5.0 * CAPACITY);
            assert_close(account.debt(), 4.0 * CAPACITY);
            account.advance(at(slots));
            assert_close(account.debt(), debt * CAPACITY);
        }
    }

    #[test]
    fn fill_counts_debt_also_when_the_window_is_over() {
        let mut account = account();
        account.take(CAPACITY + 1.0);
        assert_close(account.fill(at(0)), 1.0 + 1.0 / CAPACITY);
        assert_close(account.fill(at(31)), 1.0 / CAPACITY);
    }

    #[test]
    fn returned_cost_pays_debt_first_and_then_its_slot() {
        let mut account = account();
        let slot = account.take(CAPACITY + 1.0);
        account.give_back(slot, 0.75);
        assert_close(account.debt(), 0.25);
        assert_close(account.used(), 2.0);
        account.give_back(slot, 0.5);
        assert_close(account.debt(), 0.0);
        assert_close(account.used() * SECONDS, CAPACITY - 0.25);
    }

    #[test]
    fn cost_of_a_past_slot_is_returned_to_it() {
        let mut account = Account::new(at(1_000), 2.0);
        let slot = account.take(1.0);
        account.advance(at(1_001));
        account.give_back(slot, 0.25);
        assert_close(account.used(), 0.75 / SECONDS);
        account.advance(at(1_002));
        assert_close(account.used(), 0.75 / SECONDS);
    }

    #[test]
    fn changed_limit_holds_at_once() {
        let mut account = account();
        account.take(1.0);
        account.set_limit(0.5);
        assert!(!account.fits(0.001, 1.0));
        account.set_limit(4.0);
        assert!(account.fits(3.0, 1.0) && !account.fits(3.1, 1.0));
    }

    #[test]
    fn account_without_a_limit_is_free() {
        assert!(!Account::default().is_taken());
        assert!(account().is_taken());
        assert_eq!(Account::default().fill(at(0)), 0.0);
    }
}

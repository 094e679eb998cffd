//! What one customer has used in the last second, and has still to pay for.
//!
//! The second is a window that slides: thirty slots of 34 ms that are past, and the present one. What is taken falls into the present slot
//! and leaves the window with it, so that in any second no more is taken than the window holds. Why not a bucket that is filled as
//! time goes by: one that keeps the limit within 2% over any second is as deep as 20 ms of it, which customers far below their
//! limit empty by chance; one as deep as chance needs lets through twice the limit in a second.
//!
//! A request may turn out to be dearer than what the window holds. What is too much is a *debt*: it takes the place of what leaves
//! the window, and until it is gone nothing else does. A debt is no greater than what is paid in a minute ([`MOST_DEBT`]): what a process
//! says of its requests can be wrong, by a factor of a thousand when its unit changes, and nobody is to be shut out for days for it.
//! In return who has requests of more than a minute of its limit each gets beyond that limit.
//!
//! ```text
//! sum = Σ slots ≤ most,   most = limit · 1.007 s,   debt ≤ 60 · most
//! ```

use crate::Timestamp;

/// Slots that are past.
const PAST: usize = 30;
/// A slot is 2^25 ns.
const SLOT_BITS: u32 = 25;
/// How long the window is at least, in seconds: at the beginning of a slot. At its end it is by a slot longer.
const SECONDS: f64 = PAST as f64 * (1_u64 << SLOT_BITS) as f64 * 1e-9;

/// Windows in which the greatest debt is paid.
const MOST_DEBT: f64 = 60.0;

/// What one customer has used, in CPU-seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// The number of the present slot since the beginning of time, and what was taken in it.
    slot: u64,
    present: f64,
    /// Each in the place of its number modulo their count.
    past: [f32; PAST],
    /// What was taken in the window, all slots together.
    sum: f64,
    debt: f64,
    /// What the window holds; zero for an account that nobody has.
    most: f64,
}

/// The slot of a time.
fn slot(now: Timestamp) -> u64 {
    now.as_nanos() >> SLOT_BITS
}

impl Account {
    /// That of a customer of whom nothing is known, with a limit of so many CPU-seconds a second; above zero.
    pub(super) fn new(now: Timestamp, limit: f64) -> Self {
        Self { slot: slot(now), most: limit * SECONDS, ..Self::default() }
    }

    /// The customer may use so many CPU-seconds a second from now on; above zero.
    pub(super) fn set_limit(&mut self, limit: f64) {
        self.most = limit * SECONDS;
    }

    /// Time goes by.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let slot = slot(now);
        let gone = slot.saturating_sub(self.slot);
        if gone == 0 {
            return;
        }
        if gone > PAST as u64 {
            // In each window that went by unused as much of the debt was paid as it holds; in the last one it still is.
            let windows = gone / (PAST as u64 + 1) - 1;
            self.debt = (self.debt - windows as f64 * self.most).max(0.0);
            (self.past, self.present) = ([0.0; PAST], 0.0);
        } else {
            for number in self.slot..slot {
                self.past[place(number)] = core::mem::take(&mut self.present) as f32;
            }
        }
        self.slot = slot;
        // Added up anew, so that errors of rounding do not add up.
        self.sum = self.past.iter().map(|taken| f64::from(*taken)).sum();
        let debt = core::mem::take(&mut self.debt);
        self.take(debt);
    }

    /// So much is taken. Returns the slot that it is taken in.
    pub(super) fn take(&mut self, cost: f64) -> u64 {
        let fits = cost.min((self.most - self.sum).max(0.0));
        self.present += fits;
        self.sum += fits;
        self.debt = (self.debt + cost - fits).min(MOST_DEBT * self.most);
        self.slot
    }

    /// Of what was taken in this slot so much is given back. What has left the window has made room already.
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

    /// Whether so much more is within this part of what the window holds, and no debt is left.
    pub(super) fn has_room(&self, cost: f64, part: f64) -> bool {
        self.debt <= 0.0 && self.sum + cost <= self.most * part
    }

    /// How near its limit the customer is: 1 is there, more is in debt. Zero for an account that nobody has, or whose customer has not
    /// been seen for a window and owes nothing.
    pub(super) fn fill(&self, now: Timestamp) -> f64 {
        if self.most <= 0.0 {
            0.0
        } else if slot(now).saturating_sub(self.slot) > PAST as u64 {
            self.debt / self.most
        } else {
            (self.sum + self.debt) / self.most
        }
    }

    /// CPU-seconds a second that were used in the window.
    pub(super) fn used(&self) -> f64 {
        self.sum / SECONDS
    }

    /// CPU-seconds that are too much for the window.
    pub(super) fn debt(&self) -> f64 {
        self.debt
    }

    /// Whether somebody has it.
    pub(super) fn is_taken(&self) -> bool {
        self.most > 0.0
    }
}

/// Where a slot that is past stands.
fn place(slot: u64) -> usize {
    (slot % PAST as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// That of a customer with two CPUs.
    fn account() -> Account {
        Account::new(ms(0), 2.0)
    }

    /// When it has room for a millisecond again.
    fn free_at(mut account: Account) -> f64 {
        let at = (0..20_000).find(|at| {
            account.advance(ms(*at));
            account.has_room(0.001, 1.0)
        });
        at.expect("soon") as f64 * 1e-3
    }

    #[test]
    fn what_was_taken_leaves_after_a_second_and_no_earlier() {
        for begin in [0, 17, 30] {
            let mut account = account();
            account.advance(ms(begin));
            account.take(2.0 * SECONDS);
            let after = free_at(account) - begin as f64 * 1e-3;
            assert!((1.0..1.05).contains(&after), "{after}");
        }
    }

    #[test]
    fn a_debt_is_paid_at_the_rate_of_the_limit() {
        let mut long = account();
        long.take(10.0);
        let after = free_at(long);
        // Ten are as much as it may use in five seconds, of which the last is in the window.
        assert!((4.0..4.3).contains(&after), "{after}");
        long.advance(ms(4_000));
        assert!(!long.has_room(0.001, 1.0), "also when nobody looked meanwhile");
        long.advance(ms(6_300));
        assert!(long.has_room(0.001, 1.0));
    }

    #[test]
    fn the_greatest_debt_is_paid_in_a_minute() {
        let mut account = account();
        account.take(1e6);
        account.take(1e6);
        account.advance(ms(58_000));
        assert!(!account.has_room(0.001, 1.0));
        account.advance(ms(66_000));
        assert!(account.has_room(0.001, 1.0));
    }

    #[test]
    fn what_is_given_back_makes_room_where_it_was_taken() {
        let mut account = account();
        let slot = account.take(2.0);
        account.advance(ms(500));
        account.give_back(slot, 1.5);
        assert!(account.has_room(1.5, 1.0) && !account.has_room(1.52, 1.0));
        account.take(1.0);
        account.advance(ms(1_100));
        assert!(account.has_room(1.0, 1.0) && !account.has_room(1.02, 1.0), "the half has left, and no more");
        account.give_back(slot, 0.5);
        assert!(!account.has_room(1.02, 1.0), "what has left made room already");
    }

    #[test]
    fn who_has_used_nothing_for_a_second_is_nobody() {
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

    const MOST: f64 = 2.0 * SECONDS;

    fn assert_close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "{got}, not {expected}");
    }

    #[test]
    fn window_holds_thirty_past_slots() {
        let mut account = account();
        account.take(1.0);
        // Also while nobody looks.
        assert_close(account.fill(at(30)), 1.0 / MOST);
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
            account.take(5.0 * MOST);
            assert_close(account.debt(), 4.0 * MOST);
            account.advance(at(slots));
            assert_close(account.debt(), debt * MOST);
        }
    }

    #[test]
    fn fill_counts_debt_also_when_the_window_is_over() {
        let mut account = account();
        account.take(MOST + 1.0);
        assert_close(account.fill(at(0)), 1.0 + 1.0 / MOST);
        assert_close(account.fill(at(31)), 1.0 / MOST);
    }

    #[test]
    fn returned_cost_pays_debt_first_and_then_its_slot() {
        let mut account = account();
        let slot = account.take(MOST + 1.0);
        account.give_back(slot, 0.75);
        assert_close(account.debt(), 0.25);
        assert_close(account.used(), 2.0);
        account.give_back(slot, 0.5);
        assert_close(account.debt(), 0.0);
        assert_close(account.used() * SECONDS, MOST - 0.25);
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
        assert!(!account.has_room(0.001, 1.0));
        account.set_limit(4.0);
        assert!(account.has_room(3.0, 1.0) && !account.has_room(3.1, 1.0));
    }

    #[test]
    fn account_without_a_limit_is_nobodys() {
        assert!(!Account::default().is_taken());
        assert!(account().is_taken());
        assert_eq!(Account::default().fill(at(0)), 0.0);
    }
}

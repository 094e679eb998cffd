//! Doorman's `ProportionalShare`: the capacity that one of those that ask gets.
//!
//! ```text
//! free     = max(has − Σ leases of the others, 0)
//! capacity = min(wants, free)                         Σ wants < has
//!          | min(wants · has ÷ Σ wants, free)         otherwise
//! ```
//!
//! Where it is weak: a server that gets less than before has given more to others than it has, until
//! these ask again. Their parent knows nothing of it, and gives the difference to another server at once.

/// All numbers in µCPU.
pub(super) struct Share {
    /// The wish of the one that asks.
    pub(super) wants: f64,
    /// The wishes of all, its own included.
    pub(super) all_want: f64,
    /// The capacity to give.
    pub(super) has: f64,
    /// Leases of the others.
    pub(super) leased: f64,
}

impl Share {
    pub(super) fn capacity(&self) -> f64 {
        let free = (self.has - self.leased).max(0.0);
        let part = if self.all_want < self.has { 1.0 } else { self.has / self.all_want };
        let wanted = if self.wants > 0.0 { self.wants * part } else { 0.0 };
        wanted.min(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_the_wish_or_a_proportion_of_it_and_never_more_than_is_free() {
        for (wants, all_want, has, leased, expected) in [
            (30.0, 90.0, 100.0, 60.0, 30.0),
            (30.0, 90.0, 100.0, 80.0, 20.0),
            (30.0, 300.0, 100.0, 60.0, 10.0),
            (30.0, 300.0, 100.0, 95.0, 5.0),
            (30.0, 300.0, 100.0, 120.0, 0.0),
            (30.0, 30.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0, 0.0),
        ] {
            let share = Share { wants, all_want, has, leased };
            assert_eq!(share.capacity(), expected, "{wants} {all_want} {has} {leased}");
        }
    }
}

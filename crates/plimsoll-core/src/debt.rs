//! How far a client is behind the rate that is asked of it, in time.
//!
//! With each look the debt grows by the time `t` for which the client was waited for, and shrinks by the time that the bytes
//! `b` which came are worth at the least rate `r`:
//!
//! ```text
//! debt = max(0, debt + t − b / r)
//! ```
//!
//! Who never sends owes `t` after `t`; who sends at a part `p` of the rate owes `p` less, and is given up after `1 / (1 − p)` as
//! long. To remember only since when it is too slow, and to forget that once it was not, would let a burst of a few seconds'
//! worth buy all of the patience again. There is no credit: what came early says nothing of what will come, and a client that has
//! sent much and then falls silent is to be noticed as soon as any other. With `r = 0` any byte pays for all.

use core::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// What a client owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt(Duration);

impl Debt {
    /// Nothing is owed.
    pub const NONE: Self = Self(Duration::ZERO);

    /// It was waited for, for as long as `waited`, and so many bytes came, of which it owes `least_rate` a second.
    pub fn add(&mut self, waited: Duration, bytes: u64, least_rate: u64) {
        let debt = self.0.saturating_add(waited);
        // Who keeps up, as nearly all do, costs no division.
        self.0 = if debt.is_zero() { debt } else { debt.saturating_sub(worth(bytes, least_rate)) };
    }

    /// For how much longer it may send nothing.
    #[must_use]
    pub fn left_of(self, patience: Duration) -> Duration {
        patience.saturating_sub(self.0)
    }

    /// Whether it is too much.
    #[must_use]
    pub fn exceeds(self, patience: Duration) -> bool {
        self.0 >= patience
    }
}

/// The time that so many bytes take at the least rate.
fn worth(bytes: u64, least_rate: u64) -> Duration {
    if bytes == 0 {
        return Duration::ZERO;
    }
    let nanos = (u128::from(bytes) * NANOS).checked_div(u128::from(least_rate));
    nanos.map_or(Duration::MAX, Duration::from_nanos_u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(75);
    /// Bytes a second.
    const RATE: u64 = 240;

    /// The second at which it is too much, with a look every five, when so many bytes come every so many looks.
    fn over_at(bytes: u64, every: u64, rate: u64) -> Option<u64> {
        let mut debt = Debt::NONE;
        (1..=1_000).find_map(|look| {
            let bytes = if look % every == 0 { bytes } else { 0 };
            debt.add(Duration::from_secs(5), bytes, rate);
            debt.exceeds(PATIENCE).then_some(5 * look)
        })
    }

    #[test]
    fn a_burst_is_worth_its_bytes_and_no_more() {
        for (bytes, every, over) in [
            (0, 1, Some(75)),
            (1, 1, Some(80)),
            // One look's worth, once in as long as the patience or less.
            (1_200, 14, Some(80)),
            (1_200, 7, Some(85)),
            // Half of the rate.
            (600, 1, Some(150)),
            (1_200, 1, None),
            (16_800, 14, None),
        ] {
            assert_eq!(over_at(bytes, every, RATE), over, "{bytes} every {every} looks");
        }
    }

    #[test]
    fn much_at_once_is_no_credit() {
        let mut debt = Debt::NONE;
        debt.add(Duration::from_secs(5), u64::MAX, RATE);
        assert_eq!(debt.left_of(PATIENCE), PATIENCE);
        debt.add(PATIENCE, 0, RATE);
        assert!(debt.exceeds(PATIENCE) && debt.left_of(PATIENCE).is_zero());
    }

    #[test]
    fn any_byte_will_do_where_no_rate_is_asked_for() {
        assert_eq!(over_at(1, 14, 0), None);
        assert_eq!(over_at(0, 1, 0), Some(75));
    }
}

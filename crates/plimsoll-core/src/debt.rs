//! Debt of a client: its delay against a required rate, in time.
//!
//! At each update the debt grows by the time `t` spent waiting for the client. It shrinks by the
//! time that the received bytes `b` are worth at the minimum rate `r`:
//!
//! ```text
//! debt = max(0, debt + t − b / r)
//! ```
//!
//! A silent client owes `t` after `t`. A client that sends at a fraction `p` of the rate owes that
//! fraction less, so its patience lasts `1 / (1 − p)` times as long. The alternative is to remember
//! the time since which a client is too slow, and to forget it once the client is not. A burst
//! worth a few seconds would then renew all of the patience. There is no credit: early bytes say
//! nothing about later ones, and a client that falls silent after sending much must be noticed as
//! soon as any other. With `r = 0` any byte pays for all.

use core::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// A client's debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt(Duration);

impl Debt {
    /// No debt.
    pub const NONE: Self = Self(Duration::ZERO);

    /// Adds the time spent waiting, less the worth of the received bytes at `min_rate` bytes a
    /// second.
    pub fn add(&mut self, waited: Duration, bytes: u64, min_rate: u64) {
        let debt = self.0.saturating_add(waited);
        // Nearly all clients keep up, and cost no division.
        self.0 = if debt.is_zero() { debt } else { debt.saturating_sub(worth(bytes, min_rate)) };
    }

    /// Time for which the client may still be silent.
    #[must_use]
    pub fn left_of(self, patience: Duration) -> Duration {
        patience.saturating_sub(self.0)
    }

    /// Whether the debt has reached the patience.
    #[must_use]
    pub fn exceeds(self, patience: Duration) -> bool {
        self.0 >= patience
    }
}

/// The time that these bytes take at the minimum rate.
fn worth(bytes: u64, min_rate: u64) -> Duration {
    if bytes == 0 {
        return Duration::ZERO;
    }
    let nanos = (u128::from(bytes) * NANOS).checked_div(u128::from(min_rate));
    nanos.map_or(Duration::MAX, Duration::from_nanos_u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(75);
    /// Bytes a second.
    const RATE: u64 = 240;

    /// The second at which the patience ends, with an update every five seconds and `bytes` at each
    /// `every`th update.
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
            // The worth of one update, at intervals of about the patience or half of it.
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

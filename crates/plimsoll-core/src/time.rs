//! Instants: a count of nanoseconds that the caller supplies.
//!
//! A state machine never reads a clock. The proxy and the library pass nanoseconds since they
//! started (monotonic), and the simulator passes its virtual time. The results are the same.

use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose and never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `duration` after the origin, saturating after 584 years.
    #[must_use]
    pub fn from_origin(duration: Duration) -> Self {
        Self(saturating_nanos(duration))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later, because two threads may
    /// report their readings in either order.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates in place of wrapping: "never" stays never.
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(rhs)))
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_out_of_order_are_zero_apart() {
        let (a, b) = (Timestamp::from_nanos(5), Timestamp::from_nanos(9));
        assert_eq!(b.nanos_since(a), 4);
        assert_eq!(a.nanos_since(b), 0);
    }

    #[test]
    fn adding_past_the_end_of_time_saturates() {
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::from_nanos(u64::MAX));
    }
}

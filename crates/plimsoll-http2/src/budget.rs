//! A token bucket: a rate, a burst, and tokens that a client earns.
//!
//! It holds at most `burst` tokens. It gains `per_second` of them with time and others by
//! [`Budget::earn`]; each deed spends. A fixed count per connection, the usual limit, ends honest
//! connections that merely live long. A bare rate ends busy ones.

use plimsoll_core::Timestamp;

/// The tokens of a client for one kind of deed.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    per_second: f64,
    burst: f64,
    left: f64,
    as_of: Timestamp,
}

impl Budget {
    /// A full one.
    pub(crate) fn new(now: Timestamp, per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(per_second), burst, left: burst, as_of: now }
    }

    /// The most that it can hold.
    pub(crate) fn burst(&self) -> f64 {
        self.burst
    }

    /// Spends `cost`; says whether there was as much.
    #[must_use]
    pub(crate) fn spend(&mut self, now: Timestamp, cost: f64) -> bool {
        self.left = self.left_at(now) - cost;
        self.as_of = self.as_of.max(now);
        self.left >= 0.0
    }

    /// How much less than a full one it is.
    pub(crate) fn missing(&self, now: Timestamp) -> f64 {
        self.burst - self.left_at(now)
    }

    fn left_at(&self, now: Timestamp) -> f64 {
        let gained = now.since(self.as_of).as_secs_f64() * self.per_second;
        (self.left + gained).min(self.burst)
    }

    /// Adds `amount`, up to the burst.
    pub(crate) fn earn(&mut self, amount: f64) {
        self.left = (self.left + amount).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_passes_a_burst_then_the_rate_or_earned_tokens() {
        let mut budget = Budget::new(Timestamp::ZERO, 10, 3);
        let mut spend_at = |millis| budget.spend(Timestamp::ZERO + Duration::from_millis(millis), 1.0);
        assert_eq!([0, 0, 0].map(&mut spend_at), [true; 3]);
        assert!(!spend_at(0));
        // One short, so two tokens' time for the next.
        assert_eq!([200, 250, 1_000_000, 1_000_000].map(&mut spend_at), [true, false, true, true]);
        budget.earn(100.0);
        let now = Timestamp::ZERO + Duration::from_secs(1000);
        assert_eq!([(); 4].map(|()| budget.spend(now, 1.0)), [true, true, true, false]);
    }
}

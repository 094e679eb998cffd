//! Retry advice: whether a shed request should be retried elsewhere.
//!
//! While few arriving requests are retries, only a small part of the cluster is overloaded, and
//! another backend will admit the shed request. Once many are retries, the others shed as much, and
//! each retry makes it worse. Then the advice is not to retry (SRE ch. 21, "Deciding to retry").
//! Clients that keep a retry budget of a tenth of their requests stay below the limit without any
//! advice. A server that knows the whole fleet need not wait for retries: with most tasks overloaded, the
//! advice is not to retry.

use core::time::Duration;

use crate::{Ratio, Rejection, Timestamp, decay};

/// Long enough for a steady estimate. Requests of the last hundredth of a second say more than
/// those of ten seconds ago.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// First attempts counted at the start, so that one retry among the first few requests says
/// nothing.
const PRIOR: f64 = 10.0;

/// Decaying counts of first attempts and retries.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    max_retries: Ratio,
    all: f64,
    retries: f64,
    at: Timestamp,
    is_fleet_overloaded: bool,
}

impl Attempts {
    pub(super) fn new(now: Timestamp, max_retries: Ratio) -> Self {
        Self { max_retries, all: 0.0, retries: 0.0, at: now, is_fleet_overloaded: false }
    }

    /// Counts an arriving request.
    pub(super) fn on_request(&mut self, now: Timestamp, is_retry: bool) {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.at = self.at.max(now);
        self.all = self.all * left + 1.0;
        self.retries = self.retries * left + f64::from(u8::from(is_retry));
    }

    /// Whether most servers of the fleet are overloaded.
    pub(super) fn set_fleet_overloaded(&mut self, is_fleet_overloaded: bool) {
        self.is_fleet_overloaded = is_fleet_overloaded;
    }

    /// The rejection of shed requests, with its advice on retries.
    pub(super) fn rejection(&self) -> Rejection {
        let share = self.retries / (self.all + PRIOR);
        let is_useless = self.is_fleet_overloaded || share > self.max_retries.as_f64();
        if is_useless { Rejection::OverloadedNoRetry } else { Rejection::Overloaded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(is_retry: impl Fn(u64) -> bool, requests: u64) -> Attempts {
        let mut attempts = Attempts::new(Timestamp::ZERO, Ratio::from_percent(10));
        for n in 0..requests {
            attempts.on_request(Timestamp::from_nanos(n * 1_000_000), is_retry(n));
        }
        attempts
    }

    #[test]
    fn retries_are_advised_against_when_many_arrive() {
        assert_eq!(after(|n| n % 12 == 0, 5_000).rejection(), Rejection::Overloaded);
        assert_eq!(after(|n| n % 8 == 0, 5_000).rejection(), Rejection::OverloadedNoRetry);
        assert_eq!(after(|_| true, 1).rejection(), Rejection::Overloaded, "one says nothing");
    }

    #[test]
    fn retry_storm_is_forgotten_after_some_seconds() {
        assert_eq!(after(|n| n < 1_000, 3_000).rejection(), Rejection::OverloadedNoRetry);
        assert_eq!(after(|n| n < 1_000, 6_000).rejection(), Rejection::Overloaded);
    }

    #[test]
    fn ten_first_attempts_are_counted_from_the_start() {
        let of_100 = |retries| {
            let mut attempts = Attempts::new(Timestamp::ZERO, Ratio::from_percent(10));
            (0..100).for_each(|n| attempts.on_request(Timestamp::ZERO, n < retries));
            attempts.rejection()
        };
        assert_eq!(of_100(11), Rejection::Overloaded, "11 of 110 are as many as may be");
        assert_eq!(of_100(12), Rejection::OverloadedNoRetry);
    }
}

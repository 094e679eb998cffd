//! Retry advice: whether a shed request should be retried elsewhere.
//!
//! While few arriving requests are retries, only a small part of the cluster is overloaded, and
//! another backend will admit the shed request. Once many are retries, the others shed as much, and
//! each retry makes it worse. Then the advice is not to retry (SRE ch. 21, "Deciding to retry").
//! Clients that keep a retry budget of a tenth of their requests stay below the limit without any
//! advice. A server that knows the whole fleet need not wait for retries: with most tasks overloaded for requests of a
//! criticality, the advice is not to retry these and less critical ones.

use core::time::Duration;

use crate::{Criticality, Ratio, Rejection, Timestamp, decay};

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
    fleet_overload: Option<Criticality>,
}

impl Attempts {
    pub(super) fn new(now: Timestamp, max_retries: Ratio) -> Self {
        Self { max_retries, all: 0.0, retries: 0.0, at: now, fleet_overload: None }
    }

    /// Counts an arriving request.
    pub(super) fn on_request(&mut self, now: Timestamp, is_retry: bool) {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.at = self.at.max(now);
        self.all = self.all * left + 1.0;
        self.retries = self.retries * left + f64::from(u8::from(is_retry));
    }

    /// Most servers of the fleet are overloaded for requests of this criticality and below; `None`: they are not.
    pub(super) fn set_fleet_overload(&mut self, fleet_overload: Option<Criticality>) {
        self.fleet_overload = fleet_overload;
    }

    /// The rejection of shed requests of this criticality, with its advice on retries.
    pub(super) fn rejection(&self, criticality: Criticality) -> Rejection {
        let share = self.retries / (self.all + PRIOR);
        let is_useless = self.fleet_overload.is_some_and(|most| criticality.rank() >= most.rank())
            || share > self.max_retries.as_f64();
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
        assert_eq!(after(|n| n % 12 == 0, 5_000).rejection(Criticality::Critical), Rejection::Overloaded);
        assert_eq!(after(|n| n % 8 == 0, 5_000).rejection(Criticality::Critical), Rejection::OverloadedNoRetry);
        assert_eq!(after(|_| true, 1).rejection(Criticality::Critical), Rejection::Overloaded, "one says nothing");
    }

    #[test]
    fn retries_of_what_the_fleet_lacks_cpu_for_are_advised_against() {
        let mut attempts = after(|_| false, 100);
        attempts.set_fleet_overload(Some(Criticality::SheddablePlus));
        assert_eq!(Criticality::ALL.map(|criticality| attempts.rejection(criticality)), {
            use Rejection::{Overloaded, OverloadedNoRetry};
            [Overloaded, Overloaded, OverloadedNoRetry, OverloadedNoRetry]
        });
    }

    #[test]
    fn retry_storm_is_forgotten_after_some_seconds() {
        assert_eq!(after(|n| n < 1_000, 3_000).rejection(Criticality::Critical), Rejection::OverloadedNoRetry);
        assert_eq!(after(|n| n < 1_000, 6_000).rejection(Criticality::Critical), Rejection::Overloaded);
    }

    #[test]
    fn ten_first_attempts_are_counted_from_the_start() {
        let of_100 = |retries| {
            let mut attempts = Attempts::new(Timestamp::ZERO, Ratio::from_percent(10));
            (0..100).for_each(|n| attempts.on_request(Timestamp::ZERO, n < retries));
            attempts.rejection(Criticality::Critical)
        };
        assert_eq!(of_100(11), Rejection::Overloaded, "11 of 110 are as many as may be");
        assert_eq!(of_100(12), Rejection::OverloadedNoRetry);
    }
}

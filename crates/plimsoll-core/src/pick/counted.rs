//! Capability by the requests of this client, for backends that report a utilization and no rate.
//!
//! Inference servers report how full they are, and not their requests per second. The rate in
//! [capability](super::capability) is then q, the requests that this client alone sent:
//!
//! ```text
//! weight = (q + φ·C̄) ÷ (u + φ)        C̄ = the mean of q ÷ u over the backends that this client knows
//! ```
//!
//! **Several clients.** q is a share of the backend's rate, so the weight is no capability: where
//! a client sends less, it weighs the backend less. The weight then is the client's former share
//! over u. So each client moves requests from backends above the mean utilization to those below.
//! All clients of a backend see the same u and move alike. At rest all u are equal, however the
//! clients' shares differ.
//!
//! **Why φ?** Where all u are equal, nothing holds the shares of one client: chance moves them, and
//! in minutes a client uses some backends hardly at all. φ draws each weight to the mean (times the
//! configured weight). The price is an error at rest: the utilization of a backend is off by
//! `φ · (C̄/C − 1)` for its capability C. For machines of half the mean speed that is 0.05: 55%
//! beside 50%. Near zero, u is noise, and φ makes the weights equal.
//!
//! **Why are both averaged alike, and over longer?** A rate that is fresher than the utilization
//! rises first, and the weight with it: more requests, more weight. With the same filter for both
//! the loop has a gain below one if u lags by less than the filter's time constant (1.44
//! half-lives). A utilization that requests hold while they run, such as KV cache, lags by half of
//! their duration. So a request counts half when it begins and half when it ends: its mean time is
//! that of u. Measured with requests of 180 s: weights stay within 0.9 to 1.1 of the ideal, and
//! oscillate between 0.3 and 2.0 if requests count in full at their begin.
//!
//! **No [feedback](super::feedback)**: these weights follow utilization already, and a second
//! integrator in the loop drives them to their limits.
//!
//! **A pause is no rate.** While this client sends nothing to a backend, for a break of its own or of
//! the backend's, nothing is learned. The request before the next report says nothing of the rate
//! either: it came at the end. So the count begins anew, and what was known before stays. A gap
//! between reports is a pause if it has at least a half-life, and a tenth of the requests by the rate
//! before. Counted as a rate, it would leave a backend that was unreachable for a minute a hundredth
//! of its weight.
//!
//! **Where it is weak.** A client needs some ten requests to each backend in a half-life; with fewer
//! its weights are chance. A utilization that stands still is *pinned*: nothing shows that it follows
//! the load. At a low value it would collect all requests, so the weight is the mean at most. Above
//! the others it counts: a full backend gets less.

use core::time::Duration;

use super::capability::{CapabilityEstimate, RateSource, WeightedConfig};
use crate::{Timestamp, decay};

/// φ: the utilization below which the mean counts more than the backend's own report.
const PRIOR: f64 = 0.05;
/// Least half-life of rate and utilization. A client with one request a second to a backend has 14
/// in it.
const MIN_HALF_LIFE: Duration = Duration::from_secs(10);
/// Half-lives without a change after which a utilization is no measurement.
const MOVES_WITHIN: u32 = 3;
/// A gap with this part of the requests by the rate before is a pause. By chance a gap is as long
/// once in e¹⁰ = 22,000.
const PAUSE: f64 = 0.1;
/// Cap of a utilization, as that of [feedback](super::feedback): an absurd report is forgotten in
/// seven half-lives.
const MAX_UTILIZATION: f64 = 100.0;

/// The requests of this client at a backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnRequests {
    /// Requests begun plus requests ended, since the backend was added.
    pub(crate) begun_and_ended: u64,
    /// Recent share of failures, in [0, 1].
    pub(crate) failing: f64,
}

/// The rate of this client's requests at a backend, and the utilization of the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    begun_and_ended: u64,
    /// Time of the last report with requests of this client.
    at: Timestamp,
    /// Successes per second, requests per second and utilization with charges; each times
    /// `weight`.
    successes: f64,
    requests: f64,
    utilization: f64,
    /// Weight of all reports so far, which grows to one.
    weight: f64,
    reported: f64,
    /// Time of the last change of the reported utilization.
    changed: Timestamp,
}

impl Counted {
    /// The begin of the count, at the first report.
    pub(crate) fn new(now: Timestamp, own: &OwnRequests, utilization: f64) -> Self {
        Self {
            begun_and_ended: own.begun_and_ended,
            at: now,
            successes: 0.0,
            requests: 0.0,
            utilization: 0.0,
            weight: 0.0,
            reported: utilization,
            changed: now,
        }
    }

    /// Takes a reported utilization. Returns whether it is news: only a report after requests of this
    /// client is.
    pub(crate) fn on_report(
        &mut self,
        now: Timestamp,
        own: &OwnRequests,
        utilization: f64,
        config: &WeightedConfig,
    ) -> bool {
        let new = own.begun_and_ended.saturating_sub(self.begun_and_ended);
        let elapsed = now.since(self.at).as_secs_f64();
        if new == 0 || elapsed <= 0.0 {
            return false;
        }
        if utilization != self.reported {
            (self.reported, self.changed) = (utilization, now);
        }
        let is_pause = now.since(self.at) >= half_life(config)
            && (new as f64 / 2.0).max(1.0) * self.weight <= PAUSE * self.requests * elapsed
            && (self.weight > 0.0 || new <= 2);
        let left = decay::remaining(now, self.at, half_life(config));
        (self.begun_and_ended, self.at) = (own.begun_and_ended, now);
        if is_pause {
            return true;
        }
        let gain = 1.0 - left;
        let rate = new as f64 / 2.0 / elapsed;
        let charged = utilization.min(MAX_UTILIZATION) + config.error_penalty * own.failing;
        self.successes = self.successes * left + rate * (1.0 - own.failing) * gain;
        self.requests = self.requests * left + rate * gain;
        self.utilization = self.utilization * left + charged * gain;
        self.weight = self.weight * left + gain;
        true
    }

    /// The weight; `None` before the first count.
    pub(crate) fn estimate(&self, now: Timestamp, config: &WeightedConfig) -> Option<CapabilityEstimate> {
        if self.weight <= 0.0 {
            return None;
        }
        let serves = 2.0 * self.successes >= self.requests;
        let is_pinned = now.since(self.changed) >= half_life(config) * MOVES_WITHIN;
        let shrunk = self.utilization + PRIOR * self.weight;
        let (weight, prior) = (self.successes / shrunk, PRIOR * self.weight / shrunk);
        Some(CapabilityEstimate { weight, prior, serves, is_pinned, source: RateSource::Counted })
    }
}

/// Half-life of rate and utilization.
fn half_life(config: &WeightedConfig) -> Duration {
    config.smoothing.max(MIN_HALF_LIFE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn own(requests: u64) -> OwnRequests {
        OwnRequests { begun_and_ended: 2 * requests, failing: 0.0 }
    }

    /// Reports once a second after `rate` requests; the estimate after `seconds`.
    fn steady(rate: u64, seconds: u64, failing: f64, utilization: impl Fn(u64) -> f64) -> CapabilityEstimate {
        let config = WeightedConfig::default();
        let mut counted = Counted::new(secs(0), &own(0), utilization(0));
        for second in 1..=seconds {
            let own = OwnRequests { failing, ..own(rate * second) };
            assert!(counted.on_report(secs(second), &own, utilization(second), &config));
        }
        counted.estimate(secs(seconds), &config).expect("it was counted")
    }

    /// About this utilization, as a measurement moves.
    fn about(utilization: f64) -> impl Fn(u64) -> f64 {
        move |second| utilization * (1.0 + if second.is_multiple_of(2) { 1e-6 } else { -1e-6 })
    }

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} instead of {expected}");
    }

    #[test]
    fn weight_is_rate_over_utilization_from_the_first_second_on() {
        for seconds in [1, 5, 100] {
            let estimate = steady(20, seconds, 0.0, about(0.5));
            near(estimate.weight, 20.0 / 0.55);
            near(estimate.prior, 0.05 / 0.55);
            assert!(estimate.serves);
        }
    }

    #[test]
    fn failures_are_no_service_and_cost_utilization() {
        let estimate = steady(20, 100, 0.75, about(0.5));
        near(estimate.weight, 5.0 / 1.3);
        assert!(!estimate.serves);
    }

    #[test]
    fn utilization_near_zero_gives_the_mean_and_not_infinity() {
        let estimate = steady(20, 100, 0.0, about(1e-9));
        near(estimate.prior, 1.0);
        near(estimate.weight, 400.0);
    }

    #[test]
    fn constant_utilization_is_pinned_and_a_moving_one_is_not() {
        let estimate = steady(20, 40, 0.0, |_| 0.3);
        assert!(estimate.is_pinned);
        near(estimate.weight, 20.0 / 0.35);
        assert!(!steady(20, 29, 0.0, |_| 0.3).is_pinned);
        assert!(!steady(20, 40, 0.0, about(0.3)).is_pinned);
    }

    /// The estimate after 100 s of requests, a pause, a first request, and 1 s of requests.
    fn after_a_pause(rate: u64, pause: u64) -> f64 {
        let config = WeightedConfig::default();
        let (mut counted, mut requests) = (Counted::new(secs(0), &own(0), 0.5), 0);
        let mut at = 0;
        for (seconds, count) in core::iter::repeat_n((1, rate), 100).chain([(pause, 1), (1, rate)]) {
            (at, requests) = (at + seconds, requests + count);
            assert!(counted.on_report(secs(at), &own(requests), about(0.5)(at), &config));
        }
        counted.estimate(secs(at), &config).expect("counted").weight
    }

    #[test]
    fn pause_leaves_the_rate_as_it_was() {
        for (rate, pause) in [(20, 60), (20, 10), (1, 170)] {
            near(after_a_pause(rate, pause), rate as f64 / 0.55);
        }
    }

    #[test]
    fn gap_that_may_be_chance_counts_as_a_rate() {
        // Nine intervals of 1 s; and 20 of 0.05 s, in less than a half-life.
        assert!(after_a_pause(1, 9) < 0.9 / 0.55);
        assert!(after_a_pause(20, 5) < 0.9 * 20.0 / 0.55);
    }

    #[test]
    fn requests_between_rare_reports_are_no_pause() {
        let config = WeightedConfig::default();
        let mut counted = Counted::new(secs(0), &own(0), 0.5);
        for report in 1..10 {
            // 20 a second at first, then 4.
            let requests = if report < 5 { 600 * report } else { 2_400 + 120 * (report - 4) };
            assert!(counted.on_report(secs(30 * report), &own(requests), about(0.5)(report), &config));
        }
        let weight = counted.estimate(secs(270), &config).expect("counted").weight;
        assert!((weight / (4.0 / 0.55) - 1.0).abs() < 0.01, "{weight}");
    }

    #[test]
    fn single_request_after_a_first_pause_is_no_rate() {
        let config = WeightedConfig::default();
        let mut counted = Counted::new(secs(0), &own(0), 0.5);
        assert!(counted.on_report(secs(60), &own(1), 0.4, &config));
        assert_eq!(counted.estimate(secs(60), &config), None);
        assert!(counted.on_report(secs(80), &own(11), 0.4, &config));
        near(counted.estimate(secs(80), &config).expect("counted").weight, 0.5 / 0.45);
    }

    #[test]
    fn reports_without_requests_of_this_client_do_not_count() {
        let config = WeightedConfig::default();
        let mut counted = Counted::new(secs(0), &own(3), 0.4);
        assert_eq!(counted.estimate(secs(0), &config), None);
        assert!(!counted.on_report(secs(1), &own(3), 0.5, &config));
        assert!(!counted.on_report(secs(0), &own(4), 0.5, &config), "no time has passed");
        assert!(counted.on_report(secs(2), &own(5), 0.5, &config));
        near(counted.estimate(secs(2), &config).expect("counted").weight, 1.0 / 0.55);
    }

    #[test]
    fn absurd_utilization_is_forgotten_in_seven_half_lives() {
        let estimate = steady(20, 80, 0.0, |second| if second == 5 { 1e300 } else { about(0.5)(second) });
        assert!(estimate.weight > 20.0 / 0.8, "{estimate:?}");
    }

    #[test]
    fn rate_and_utilization_of_a_step_move_together() {
        let config = WeightedConfig { smoothing: Duration::from_secs(20), ..WeightedConfig::default() };
        let (mut counted, mut requests) = (Counted::new(secs(0), &own(0), 0.1), 0);
        for second in 1..200 {
            // Four times the load from 100 s on.
            let load = if second < 100 { 1 } else { 4 };
            requests += 10 * load;
            counted.on_report(secs(second), &own(requests), 0.1 * load as f64 + second as f64 * 1e-9, &config);
            let CapabilityEstimate { weight, prior, .. } = counted.estimate(secs(second), &config).expect("counted");
            near(weight / (1.0 - prior), 100.0);
        }
    }
}

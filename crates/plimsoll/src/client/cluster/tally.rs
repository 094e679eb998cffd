//! Counts of requests, attempts and answers, for metrics.
//!
//! They are plain numbers beside the machine, changed under the short lock that a request takes
//! anyway. So they cost a few nanoseconds, need no atomics that threads contend for, and are
//! consistent with each other.

use std::time::Duration;

use http::StatusCode;
use plimsoll_core::Criticality;
use plimsoll_core::health::{Reason, State};

use super::probes_view::ProbeDrops;
use crate::client::attempt_end::Metric;
use crate::client::failed_attempt::NoRetryReason;

/// Counts of one backend since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendCounts {
    /// Responses by class: index 0 is 1xx, 4 is 5xx.
    pub responses: [u64; 5],
    /// Attempts that the caller gave up.
    pub cancelled: u64,
    /// Attempts that found no connection.
    pub connect_failed: u64,
    /// Attempts with a connection that broke before the response was complete.
    pub broken: u64,
    /// Attempts that were too late.
    pub timed_out: u64,
    /// Load reports read.
    pub reports: u64,
    /// Load reports that could not be read.
    pub malformed_reports: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections closed again, by either end.
    pub connections_closed: u64,
    /// Connections that could not be opened, those without a request included.
    pub connections_failed: u64,
}

impl BackendCounts {
    /// Counts an attempt with this end; one that ended with a response has its `status`.
    pub(crate) fn ended(&mut self, metric: Metric, status: Option<StatusCode>) {
        let count = match metric {
            Metric::Response => {
                let class = status.map_or(0, |status| usize::from(status.as_u16() / 100));
                match self.responses.get_mut(class.wrapping_sub(1)) {
                    Some(class) => class,
                    None => &mut self.broken,
                }
            }
            Metric::Cancelled => &mut self.cancelled,
            Metric::ConnectFailed => &mut self.connect_failed,
            Metric::Broken => &mut self.broken,
            Metric::TimedOut => &mut self.timed_out,
        };
        *count += 1;
    }

    /// Connections open now.
    #[must_use]
    pub fn connections_open(&self) -> u64 {
        self.connections_opened - self.connections_closed
    }
}

/// Counts of a whole cluster since it was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterCounts {
    /// Requests of clients, without batch work, by the rank of their criticality.
    pub offered: [u64; Criticality::ALL.len()],
    /// Requests that had to wait for a backend below its limit: flow control, not ill health.
    pub waited: u64,
    /// Requests that failed because all backends were at their limit.
    pub saturated: u64,
    /// Requests that ended because they waited for their clients while others waited for a slot.
    pub preempted: u64,
    /// Requests that found no usable backend at all.
    pub no_backend: u64,
    /// Further attempts after an attempt that sent nothing.
    pub further_attempts: u64,
    /// Requests sent again because a kept-alive connection had just closed.
    pub replayed: u64,
    /// Throttled requests, nothing sent, by the rank of their criticality.
    pub throttled: [u64; Criticality::ALL.len()],
    /// Requests that no locality had room for, nothing sent, by the rank of their criticality.
    pub no_room: [u64; Criticality::ALL.len()],
    /// Retries after a backend may have seen the request: the reason, the result (`answered`,
    /// `refused`, `failed`) and the number.
    pub retries: Vec<(&'static str, &'static str, u64)>,
    /// Requests sent to a second backend while the first was slow.
    pub hedges: HedgeCounts,
    /// Requests that were not served and not retried, by reason, in the order of [`NoRetryReason::ALL`].
    pub given_up: [u64; NoRetryReason::ALL.len()],
    /// Datagrams of probes that were dropped.
    pub probe_drops: ProbeDrops,
    /// Times the panic rule came into force.
    pub panics: u64,
    /// Changes of state of its backends: into which, why, and how often.
    pub transitions: Vec<(State, Reason, u64)>,
    /// Time from when a backend had all of a request to the head of its response.
    pub latency: Latencies,
}

/// Counts of hedges: second attempts while the first was not answered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounts {
    /// Those that were sent.
    pub sent: u64,
    /// Hedges with the answer that counted.
    pub won: u64,
    /// Requests that were slow enough for one, when the budget was used up.
    pub denied: u64,
}

impl ClusterCounts {
    pub(crate) fn retried(&mut self, reason: &'static str, outcome: &'static str) {
        match self.retries.iter_mut().find(|(why, how, _)| (*why, *how) == (reason, outcome)) {
            Some((.., count)) => *count += 1,
            None => self.retries.push((reason, outcome, 1)),
        }
    }

    pub(crate) fn transition(&mut self, to: State, reason: Reason) {
        match self.transitions.iter_mut().find(|(state, why, _)| (*state, *why) == (to, reason)) {
            Some((.., count)) => *count += 1,
            None => self.transitions.push((to, reason, 1)),
        }
    }
}

/// A histogram of latencies with fixed bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Responses up to each bound of [`Latencies::BOUNDS`] and above the one before; the last entry has
    /// no bound.
    pub buckets: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all.
    pub sum: Duration,
    /// Number of all.
    pub count: u64,
}

impl Latencies {
    /// Upper bounds in seconds, three to a decade: a quantile is known within a factor of 2.5 at most.
    pub const BOUNDS: [f64; 17] =
        [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

    pub(crate) fn bucket(latency: Duration) -> usize {
        let seconds = latency.as_secs_f64();
        Self::BOUNDS.iter().take_while(|bound| seconds > **bound).count()
    }

    pub(crate) fn record(&mut self, bucket: usize, latency: Duration) {
        self.buckets[bucket] += 1;
        self.sum += latency;
        self.count += 1;
    }
}

/// Minimum number of answers from which a usual latency is derived.
const ENOUGH: u32 = 20;
/// At this number half of them are forgotten: the usual latency is a recent one.
const MANY: u32 = 1_024;

/// How long answers usually take: the same histogram, of the last of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual {
    buckets: [u32; Latencies::BOUNDS.len() + 1],
    count: u32,
}

impl Usual {
    pub(super) fn record(&mut self, bucket: usize) {
        self.buckets[bucket] += 1;
        self.count += 1;
        if self.count >= MANY {
            self.buckets.iter_mut().for_each(|count| *count /= 2);
            self.count = self.buckets.iter().sum();
        }
    }

    /// Half of the answers took longer than this; with 2.5 times as long it would be fewer. `None` while too few are known.
    pub(super) fn latency(&self) -> Option<Duration> {
        if self.count < ENOUGH {
            return None;
        }
        let mut left = self.count / 2;
        let of_middle = self.buckets.iter().position(|count| {
            let is_in = left < *count;
            left = left.saturating_sub(*count);
            is_in
        })?;
        let bound = of_middle.checked_sub(1).map_or(0.0, |below| Latencies::BOUNDS[below]);
        Some(Duration::from_secs_f64(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_is_counted_once() {
        let mut counts = BackendCounts::default();
        for status in [101, 200, 204, 404, 503] {
            counts.ended(Metric::Response, Some(StatusCode::from_u16(status).unwrap()));
        }
        counts.ended(Metric::Cancelled, None);
        counts.ended(Metric::Broken, None);
        assert_eq!(counts.responses, [1, 2, 0, 1, 1]);
        assert_eq!((counts.cancelled, counts.broken, counts.timed_out), (1, 1, 0));
    }

    #[test]
    fn status_outside_the_classes_counts_as_broken() {
        let mut counts = BackendCounts::default();
        counts.ended(Metric::Response, Some(StatusCode::from_u16(999).unwrap()));
        assert_eq!(counts.broken, 1);
    }

    #[test]
    fn what_is_usual_is_in_the_middle_of_late() {
        let mut usual = Usual::default();
        let mut record = |times, millis| {
            (0..times).for_each(|_| usual.record(Latencies::bucket(Duration::from_millis(millis))));
            usual.latency().map(|latency| latency.as_millis())
        };
        assert_eq!(record(19, 30), None);
        assert_eq!(record(1, 30), Some(25));
        assert_eq!(record(19, 300), Some(25));
        assert_eq!(record(2, 300), Some(250));
        assert_eq!(record(1_000_000, 30), Some(25));
        assert_eq!(record(1_100, 90_000), Some(60_000), "it does not take another million");
        assert_eq!(record(1_100, 0), Some(0));
    }

    #[test]
    fn a_latency_falls_into_the_bucket_that_bounds_it() {
        assert_eq!(Latencies::bucket(Duration::from_micros(100)), 0);
        assert_eq!(Latencies::bucket(Duration::from_micros(101)), 1);
        assert_eq!(Latencies::bucket(Duration::from_secs(61)), Latencies::BOUNDS.len());
    }
}

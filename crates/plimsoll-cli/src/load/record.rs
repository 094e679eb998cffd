//! What became of the requests: the counts and the latency of one stretch of load.
//!
//! Latency goes from the moment at which a request was *meant* to be sent to the end of its answer.
//! Counting from the real send would leave out the requests that a stall held up ("coordinated
//! omission", G. Tene), which are the ones that matter. Requests that timed out are in it with the
//! time that was waited, so that a server cannot improve its tail by not answering; those that failed
//! without an answer (refused, closed) are not, for a refusal is fast. Dropped ones were never sent.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;
use http::HeaderValue;

use super::tally::Tallies;

/// The longest latency told apart, microseconds: one hour. Longer ones count as this.
const LONGEST_US: u64 = 3_600_000_000;
/// Decimal digits that are exact in a percentile.
const DIGITS: u8 = 3;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// No connection could be opened.
    Connect,
    /// No whole answer in time.
    Timeout,
    /// The connection ended before the answer did.
    Closed,
    /// The server reset the stream, or broke HTTP/2.
    Reset,
    /// The answer was no HTTP.
    Malformed,
    /// An HTTP status of 400 or more.
    Status,
    /// A gRPC status other than 0, or none.
    GrpcStatus,
}

impl Failure {
    /// As shown in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
            Self::Status => "status",
            Self::GrpcStatus => "grpc-status",
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The gRPC status, for calls: `None` if the server sent none that can be read.
    pub(crate) grpc: Option<GrpcStatus>,
    /// Who answered, from `x-backend`.
    pub(crate) backend: Option<HeaderValue>,
    /// Of the body.
    pub(crate) bytes: u64,
    /// Whether it says by `x-plimsoll-shed` that it comes without service.
    pub(crate) marked_shed: bool,
    /// Whether that says that a limit of its customer refused it.
    pub(crate) by_limit: bool,
    /// CPU-microseconds that it cost, from `x-plimsoll-cost-us`.
    pub(crate) cost_us: Option<u64>,
}

/// The end of a gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    /// What the server said.
    Code(u16),
    /// The server ended the call without a status.
    Missing,
}

/// HTTP statuses of overload, RFC 6585 (4) and RFC 9110 (15.6.4), and what gRPC has for them.
const SHED_STATUSES: [u16; 2] = [429, 503];
const SHED_GRPC_CODES: [u16; 2] = [8, 14]; // RESOURCE_EXHAUSTED, UNAVAILABLE

impl Answer {
    /// Whether the request was served.
    pub(crate) fn is_ok(&self) -> bool {
        self.failure().is_none()
    }

    /// Whether it was turned away, by a server that says so or in the statuses that others use for it.
    pub(crate) fn was_shed(&self) -> bool {
        self.marked_shed
            || SHED_STATUSES.contains(&self.status)
            || matches!(self.grpc, Some(GrpcStatus::Code(code)) if SHED_GRPC_CODES.contains(&code))
    }

    fn failure(&self) -> Option<Failure> {
        match (self.status, self.grpc) {
            (400.., _) => Some(Failure::Status),
            (_, None | Some(GrpcStatus::Code(0))) => None,
            (_, Some(_)) => Some(Failure::GrpcStatus),
        }
    }
}

/// Counts and latency of a stretch of load.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Requests that ended, in whatever way.
    pub(crate) requests: u64,
    /// By why they failed.
    pub(crate) failures: BTreeMap<Failure, u64>,
    /// Answers by HTTP status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Answers by gRPC status.
    pub(crate) grpc_statuses: BTreeMap<u16, u64>,
    /// Answers by `x-backend`.
    pub(crate) backends: HashMap<HeaderValue, u64>,
    /// Never sent, since too many waited for an answer.
    pub(crate) dropped: u64,
    /// Sent again on another connection, since nothing of them was sent on the first.
    pub(crate) resent: u64,
    /// Connections opened.
    pub(crate) connections: u64,
    /// Of answers' bodies.
    pub(crate) bytes: u64,
    /// How long the stretch was.
    pub(crate) elapsed: Duration,
    /// What became of each group, where something sets requests apart.
    pub(crate) tallies: Tallies,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            requests: 0,
            failures: BTreeMap::new(),
            statuses: BTreeMap::new(),
            grpc_statuses: BTreeMap::new(),
            backends: HashMap::new(),
            dropped: 0,
            resent: 0,
            connections: 0,
            bytes: 0,
            elapsed: Duration::ZERO,
            tallies: Tallies::default(),
            latency: histogram(),
            lag: histogram(),
        }
    }
}

impl Record {
    /// A request ended, `latency` after it was meant to be sent.
    pub(crate) fn ended(&mut self, latency: Duration, result: Result<Answer, Failure>) {
        self.requests += 1;
        let failure = match result {
            Ok(answer) => {
                self.latency.saturating_record(micros(latency));
                *self.statuses.entry(answer.status).or_default() += 1;
                if let Some(GrpcStatus::Code(code)) = answer.grpc {
                    *self.grpc_statuses.entry(code).or_default() += 1;
                }
                self.bytes += answer.bytes;
                let failure = answer.failure();
                if let Some(backend) = answer.backend {
                    *self.backends.entry(backend).or_default() += 1;
                }
                failure
            }
            Err(failure) => {
                if failure == Failure::Timeout {
                    self.latency.saturating_record(micros(latency));
                }
                Some(failure)
            }
        };
        if let Some(failure) = failure {
            *self.failures.entry(failure).or_default() += 1;
        }
    }

    /// A request left `lag` after it was meant to: the fault of this program or machine, not of the server.
    pub(crate) fn left(&mut self, lag: Duration) {
        self.lag.saturating_record(micros(lag));
    }

    /// Requests that failed, dropped ones not among them.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Whether there is any latency: of an answer, or of a request that timed out.
    pub(crate) fn has_latency(&self) -> bool {
        !self.latency.is_empty()
    }

    /// Milliseconds within which this share of the requests was answered; 0 without any.
    pub(crate) fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Milliseconds, the mean; 0 without any.
    pub(crate) fn mean_latency_ms(&self) -> f64 {
        self.latency.mean() / 1e3
    }

    /// Milliseconds by which requests left late; 0 without any.
    pub(crate) fn lag_ms(&self, quantile: f64) -> f64 {
        self.lag.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.requests as f64 / seconds } else { 0.0 }
    }

    /// Adds a later stretch to this one.
    pub(crate) fn append(&mut self, later: &Self) {
        fn sum<K: Clone + Ord>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *into.entry(key.clone()).or_default() += count;
            }
        }
        self.requests += later.requests;
        sum(&mut self.failures, &later.failures);
        sum(&mut self.statuses, &later.statuses);
        sum(&mut self.grpc_statuses, &later.grpc_statuses);
        for (backend, count) in &later.backends {
            *self.backends.entry(backend.clone()).or_default() += count;
        }
        self.dropped += later.dropped;
        self.resent += later.resent;
        self.connections += later.connections;
        self.bytes += later.bytes;
        self.elapsed += later.elapsed;
        self.tallies.append(&later.tallies);
        self.latency.add(&later.latency).expect("all records have the same bounds");
        self.lag.add(&later.lag).expect("all records have the same bounds");
    }
}

/// For latencies in microseconds, at the precision of all that are reported.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, DIGITS).expect("the bounds are in order")
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, grpc: Option<GrpcStatus>) -> Result<Answer, Failure> {
        Ok(Answer {
            status,
            grpc,
            backend: Some(HeaderValue::from_static("b")),
            bytes: 10,
            marked_shed: false,
            by_limit: false,
            cost_us: None,
        })
    }

    #[test]
    fn statuses_and_failures_are_counted_apart() {
        let mut record = Record::default();
        record.ended(Duration::from_millis(1), answer(200, None));
        record.ended(Duration::from_millis(1), answer(503, None));
        record.ended(Duration::from_millis(1), answer(200, Some(GrpcStatus::Code(0))));
        record.ended(Duration::from_millis(1), answer(200, Some(GrpcStatus::Code(14))));
        record.ended(Duration::from_millis(1), answer(200, Some(GrpcStatus::Missing)));
        record.ended(Duration::from_millis(1), Err(Failure::Connect));
        assert_eq!((record.requests, record.failed(), record.bytes), (6, 4, 50));
        assert_eq!(record.statuses, BTreeMap::from([(200, 4), (503, 1)]));
        assert_eq!(record.grpc_statuses, BTreeMap::from([(0, 1), (14, 1)]));
        let failures = [(Failure::Connect, 1), (Failure::Status, 1), (Failure::GrpcStatus, 2)];
        assert_eq!(record.failures, BTreeMap::from(failures));
        assert_eq!(record.backends[&HeaderValue::from_static("b")], 5);
    }

    #[test]
    fn a_call_is_shed_by_its_mark_or_by_the_codes_for_it() {
        for (status, grpc, shed) in [
            (200, Some(GrpcStatus::Code(8)), true),
            (200, Some(GrpcStatus::Code(14)), true),
            (200, Some(GrpcStatus::Code(4)), false),
            (200, Some(GrpcStatus::Missing), false),
            (503, None, true),
            (500, None, false),
        ] {
            let answer = answer(status, grpc).unwrap();
            assert_eq!(answer.was_shed(), shed, "{answer:?}");
            assert!(Answer { marked_shed: true, ..answer }.was_shed());
        }
    }

    #[test]
    fn percentiles_are_those_of_the_latencies() {
        let mut record = Record::default();
        for ms in 1..=1_000 {
            record.ended(Duration::from_millis(ms), answer(200, None));
        }
        for (quantile, ms) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1_000.0)] {
            let measured = record.latency_ms(quantile);
            assert!((measured / ms - 1.0).abs() < 0.002, "{quantile}: {measured}");
        }
    }

    #[test]
    fn a_timeout_counts_with_the_time_waited_and_a_refusal_does_not_count_as_fast() {
        let mut record = Record::default();
        record.ended(Duration::from_millis(5), Err(Failure::Connect));
        record.ended(Duration::from_secs(10), Err(Failure::Timeout));
        assert!(record.latency_ms(0.01) > 9_000.0);
    }

    #[test]
    fn a_latency_beyond_the_longest_counts_as_the_longest() {
        let mut record = Record::default();
        record.ended(Duration::from_secs(100_000), answer(200, None));
        assert!((record.latency_ms(1.0) / 3_600_000.0 - 1.0).abs() < 0.001);
    }

    #[test]
    fn stretches_add_up() {
        let (mut first, mut second) = (Record::default(), Record::default());
        first.ended(Duration::from_millis(1), answer(200, None));
        second.ended(Duration::from_millis(3), Err(Failure::Timeout));
        (first.elapsed, second.elapsed) = (Duration::from_secs(1), Duration::from_secs(1));
        second.dropped = 2;
        first.append(&second);
        assert_eq!((first.requests, first.failed(), first.dropped), (2, 1, 2));
        assert!((first.rate() - 1.0).abs() < 1e-9);
        assert!((first.mean_latency_ms() - 2.0).abs() < 0.01);
    }
}

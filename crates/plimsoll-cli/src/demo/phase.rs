//! What is measured under one policy.
//!
//! A phase begins when the policy is switched. Its first quarter lets the traffic settle (weights are
//! averages over some seconds); CPU and latency are measured over the rest, requests and failures
//! over all of it, for a switch that costs requests would be no good.

use std::time::{Duration, Instant};

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::spread::{self, Spread};
use serde::Serialize;

use crate::load::record::Record;

/// The part of a phase that is not measured.
const SETTLING: f64 = 0.25;
/// Over how long the live table shows CPU: long beside the 10 ms in which the kernel counts.
const LIVE_WINDOW: Duration = Duration::from_secs(2);

/// CPU seconds of each backend at a moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    cpu: Vec<f64>,
}

/// CPU in use by each backend over some time, in cores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage(pub(crate) Vec<f64>);

impl Usage {
    fn between(first: &Sample, last: &Sample) -> Self {
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        let cores = first.cpu.iter().zip(&last.cpu).map(|(first, last)| (last - first).max(0.0) / seconds);
        Self(if seconds > 0.0 { cores.collect() } else { vec![0.0; first.cpu.len()] })
    }

    /// How uneven it is; `None` when none was used.
    pub(crate) fn spread(&self) -> Option<Spread> {
        spread::of(self.0.iter().copied())
    }
}

/// A phase under way.
#[derive(Debug)]
pub(crate) struct Phase {
    policy: PolicyKind,
    began: Instant,
    length: Duration,
    samples: Vec<Sample>,
    settling: Record,
    measured: Record,
    latest: Record,
}

impl Phase {
    /// Begins now. `cpu` is what each backend has used until now.
    pub(crate) fn begin(policy: PolicyKind, now: Instant, length: Duration, cpu: Vec<f64>) -> Self {
        Self {
            policy,
            began: now,
            length,
            samples: vec![Sample { at: now, cpu }],
            settling: Record::default(),
            measured: Record::default(),
            latest: Record::default(),
        }
    }

    /// The policy in use.
    pub(crate) fn policy(&self) -> PolicyKind {
        self.policy
    }

    /// When its time is up.
    pub(crate) fn end(&self) -> Instant {
        self.began + self.length
    }

    fn measured_from(&self) -> Instant {
        self.began + self.length.mul_f64(SETTLING)
    }

    /// When something is to be noted at the latest, so that no stretch is half measured.
    pub(crate) fn next_border(&self, now: Instant) -> Instant {
        if now < self.measured_from() { self.measured_from() } else { self.end() }
    }

    /// Whether the figures count yet.
    pub(crate) fn is_settling(&self, now: Instant) -> bool {
        now < self.measured_from()
    }

    /// Notes what happened since the last note.
    pub(crate) fn note(&mut self, now: Instant, cpu: Vec<f64>, record: Record) {
        let last = self.samples.last().map_or(self.began, |sample| sample.at);
        if last < self.measured_from() { &mut self.settling } else { &mut self.measured }.append(&record);
        self.samples.push(Sample { at: now, cpu });
        self.latest = record;
    }

    /// Notes requests whose answers came after the end.
    pub(crate) fn note_late(&mut self, record: &Record) {
        self.measured.append(record);
    }

    /// The last stretch that was noted.
    pub(crate) fn latest(&self) -> &Record {
        &self.latest
    }

    /// Requests that failed until now.
    pub(crate) fn failed(&self) -> u64 {
        self.settling.failed() + self.settling.dropped + self.measured.failed() + self.measured.dropped
    }

    /// Why requests failed, each cause with its count.
    pub(crate) fn causes(&self) -> Vec<String> {
        let mut all = self.settling.clone();
        all.append(&self.measured);
        let mut causes: Vec<String> =
            all.failures.iter().map(|(failure, count)| format!("{} {count}", failure.name())).collect();
        causes.extend(all.statuses.iter().filter(|(status, _)| **status >= 400).map(|(s, n)| format!("HTTP {s} {n}")));
        causes.extend((all.dropped > 0).then(|| format!("never sent {}", all.dropped)));
        causes
    }

    /// CPU in use lately.
    pub(crate) fn live_usage(&self) -> Usage {
        let last = self.samples.last().expect("a phase begins with a sample");
        let first = self.samples.iter().rev().find(|sample| last.at.duration_since(sample.at) >= LIVE_WINDOW);
        Usage::between(first.unwrap_or(&self.samples[0]), last)
    }

    /// CPU in use over the measured part.
    pub(crate) fn usage(&self) -> Usage {
        let from = self.measured_from();
        let first = self.samples.iter().find(|sample| sample.at >= from).unwrap_or(&self.samples[0]);
        Usage::between(first, self.samples.last().expect("a phase begins with a sample"))
    }

    /// The figures.
    pub(crate) fn result(&self) -> PhaseResult {
        let spread = self.usage().spread();
        PhaseResult {
            policy: self.policy.name(),
            max_over_mean: spread.map(|spread| spread.max_over_mean),
            max_over_min: spread.map(|spread| spread.max_over_min),
            requests: self.settling.requests + self.measured.requests,
            failed: self.failed(),
            p50_ms: self.measured.latency_ms(0.5),
            p99_ms: self.measured.latency_ms(0.99),
        }
    }
}

/// The figures of a phase. The fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseResult {
    /// Its name.
    pub(crate) policy: &'static str,
    /// CPU of the most loaded backend over the mean; 1 = even.
    pub(crate) max_over_mean: Option<f64>,
    /// CPU of the most over that of the least loaded one; `null` in JSON when that had none.
    pub(crate) max_over_min: Option<f64>,
    /// Requests that ended.
    pub(crate) requests: u64,
    /// Those among them that failed, and those never sent.
    pub(crate) failed: u64,
    /// Median latency, milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile, milliseconds.
    pub(crate) p99_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Failure;

    fn record(failed: bool) -> Record {
        let mut record = Record::default();
        if failed {
            record.ended(Duration::ZERO, Err(Failure::Closed));
        }
        record
    }

    #[test]
    fn cpu_counts_from_the_end_of_the_settling_and_failures_from_the_beginning() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut phase = Phase::begin(PolicyKind::Weighted, start, Duration::from_secs(8), vec![10.0, 10.0]);
        assert_eq!(phase.next_border(start), at(2));
        assert!(phase.is_settling(at(1)) && !phase.is_settling(at(2)));
        phase.note(at(2), vec![14.0, 10.0], record(true)); // uneven while settling
        phase.note(at(5), vec![17.0, 13.0], record(false));
        phase.note(at(8), vec![20.0, 16.0], record(true));
        assert_eq!(phase.next_border(at(5)), at(8));
        assert_eq!(phase.usage(), Usage(vec![1.0, 1.0]));
        let result = phase.result();
        assert_eq!((result.max_over_mean, result.requests, result.failed), (Some(1.0), 2, 2));
    }

    #[test]
    fn nothing_used_has_no_spread() {
        let start = Instant::now();
        let phase = Phase::begin(PolicyKind::RoundRobin, start, Duration::from_secs(1), vec![1.0, 1.0]);
        assert_eq!(phase.result().max_over_mean, None);
        assert_eq!(phase.live_usage(), Usage(vec![0.0, 0.0]));
    }
}

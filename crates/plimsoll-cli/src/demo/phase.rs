//! The measurement of one stage.
//!
//! A phase begins when the proxy's setting is switched. Its first quarter lets the traffic settle
//! (weights are averages over some seconds, and a queue has to drain). CPU, latency and the fate of
//! requests are measured over the rest. The balancing act counts requests and failures over all of
//! it: a switch must not cost requests.

use std::time::{Duration, Instant};

use plimsoll_core::spread::{self, Spread};
use serde::Serialize;

use super::stage::Stage;
use crate::load::record::Record;
use crate::load::tally::Group;

/// The part of a phase that is not measured.
const SETTLING: f64 = 0.25;
/// The span of the live table's figures: long beside the 10 ms in which the kernel counts CPU.
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
    stage: Stage,
    began: Instant,
    length: Duration,
    samples: Vec<Sample>,
    settling: Record,
    measured: Record,
    latest: Record,
}

impl Phase {
    /// Begins now. `cpu` is the CPU usage of each backend until now, in seconds.
    pub(crate) fn begin(stage: Stage, now: Instant, length: Duration, cpu: Vec<f64>) -> Self {
        Self {
            stage,
            began: now,
            length,
            samples: vec![Sample { at: now, cpu }],
            settling: Record::default(),
            measured: Record::default(),
            latest: Record::default(),
        }
    }

    /// The stage that it measures.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The share of its time that is over.
    pub(crate) fn share(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.began).as_secs_f64() / self.length.as_secs_f64()
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

    /// The figures of a balancing stage.
    pub(crate) fn balance(&self) -> BalanceResult {
        let spread = self.usage().spread();
        BalanceResult {
            phase: self.stage.name(),
            policy: self.stage.policy().name(),
            max_over_mean: spread.map(|spread| spread.max_over_mean),
            max_over_min: spread.map(|spread| spread.max_over_min),
            requests: self.settling.requests + self.measured.requests,
            failed: self.failed(),
            p50_ms: self.measured.latency_ms(0.5),
            p99_ms: self.measured.latency_ms(0.99),
        }
    }

    /// The figures of an overload stage, by criticality from the most important down.
    pub(crate) fn overload(&self, names: &[String], capacity: f64, rate: f64) -> OverloadResult {
        let criticalities = names
            .iter()
            .enumerate()
            .map(|(number, name)| Served::of(name, Group::Criticality(number), &self.measured))
            .collect();
        let all = Served::of("all", Group::All, &self.measured);
        OverloadResult { phase: self.stage.name(), capacity, rate, all, criticalities }
    }
}

/// The figures of a balancing stage. The fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BalanceResult {
    /// The name of the stage.
    pub(crate) phase: &'static str,
    /// The policy of the proxy.
    pub(crate) policy: &'static str,
    /// CPU of the most loaded backend over the mean; 1 = even.
    pub(crate) max_over_mean: Option<f64>,
    /// CPU of the most over that of the least loaded backend; `null` if that used none.
    pub(crate) max_over_min: Option<f64>,
    /// Requests that ended.
    pub(crate) requests: u64,
    /// Failed requests, and those never sent.
    pub(crate) failed: u64,
    /// Median latency, milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile of the latency, milliseconds.
    pub(crate) p99_ms: f64,
}

/// The figures of an overload stage. The fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OverloadResult {
    /// The name of the stage.
    pub(crate) phase: &'static str,
    /// Requests a second that the service can serve, measured before.
    #[serde(rename = "capacity_per_second")]
    pub(crate) capacity: f64,
    /// Requests a second that were sent.
    #[serde(rename = "rate_per_second")]
    pub(crate) rate: f64,
    /// All requests.
    pub(crate) all: Served,
    /// By criticality, from the most important down.
    pub(crate) criticalities: Vec<Served>,
}

/// The fate of the requests of one group. Shares are of all its requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Served {
    /// The name of the group.
    pub(crate) name: String,
    /// Requests that ended or were never sent.
    pub(crate) requests: u64,
    /// Share that was answered in time; `null` without requests.
    pub(crate) in_time: Option<f64>,
    /// Share that was shed.
    pub(crate) shed: Option<f64>,
    /// Share that was answered too late, failed or was never sent.
    pub(crate) lost: Option<f64>,
    /// 99th percentile of the latency of those in time, milliseconds.
    pub(crate) p99_ms: Option<f64>,
}

impl Served {
    /// The group's requests in a record.
    pub(crate) fn of(name: &str, group: Group, record: &Record) -> Self {
        let tally = record.tallies.of(group);
        let requests = tally.requests + tally.dropped;
        let share = |count: u64| (requests > 0).then(|| count as f64 / requests as f64);
        Self {
            name: name.to_owned(),
            requests,
            in_time: share(tally.useful),
            shed: share(tally.shed),
            lost: share(requests - tally.useful - tally.shed),
            p99_ms: tally.useful_ms(0.99),
        }
    }
}

/// The figures of a stage.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum PhaseResult {
    /// Of the balancing act.
    Balance(BalanceResult),
    /// Of the overload act.
    Overload(OverloadResult),
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
        let mut phase = Phase::begin(Stage::Weighted, start, Duration::from_secs(8), vec![10.0, 10.0]);
        assert_eq!(phase.next_border(start), at(2));
        assert!(phase.is_settling(at(1)) && !phase.is_settling(at(2)));
        phase.note(at(2), vec![14.0, 10.0], record(true)); // uneven while settling
        phase.note(at(5), vec![17.0, 13.0], record(false));
        phase.note(at(8), vec![20.0, 16.0], record(true));
        assert_eq!(phase.next_border(at(5)), at(8));
        assert_eq!(phase.usage(), Usage(vec![1.0, 1.0]));
        let result = phase.balance();
        assert_eq!((result.max_over_mean, result.requests, result.failed), (Some(1.0), 2, 2));
    }

    #[test]
    fn shares_are_of_all_requests_of_a_criticality() {
        use crate::load::mix::Kind;
        use crate::load::tally::Fate;
        let start = Instant::now();
        let mut phase = Phase::begin(Stage::Overload, start, Duration::from_secs(4), vec![0.0]);
        let kind = |criticality| Kind { criticality: Some(criticality), customer: None };
        let mut record = Record::default();
        record.tallies.ended(kind(0), Duration::from_millis(10), Fate::Useful);
        for fate in [Fate::Useful, Fate::Shed, Fate::Late] {
            record.tallies.ended(kind(1), Duration::from_millis(10), fate);
        }
        record.tallies.dropped(kind(1));
        // Requests that end while the traffic settles do not count.
        phase.note(start + Duration::from_secs(1), vec![0.0], record.clone());
        phase.note(start + Duration::from_secs(4), vec![1.0], record);
        let result = phase.overload(&["critical".to_owned(), "sheddable".to_owned()], 100.0, 300.0);
        let shares = |served: &Served| (served.requests, served.in_time, served.shed, served.lost);
        assert_eq!(shares(&result.criticalities[0]), (1, Some(1.0), Some(0.0), Some(0.0)));
        assert_eq!(shares(&result.criticalities[1]), (4, Some(0.25), Some(0.25), Some(0.5)));
        assert_eq!(result.all.requests, 5);
        assert_eq!(shares(&Served::of("none", Group::Criticality(7), &Record::default())), (0, None, None, None));
    }

    #[test]
    fn nothing_used_has_no_spread() {
        let start = Instant::now();
        let phase = Phase::begin(Stage::RoundRobin, start, Duration::from_secs(1), vec![1.0, 1.0]);
        assert_eq!(phase.balance().max_over_mean, None);
        assert_eq!(phase.live_usage(), Usage(vec![0.0, 0.0]));
    }
}

//! The result of `plimsoll load`, for people and as JSON.
//!
//! Percentiles 50, 90, 99, 99.9 and the maximum: means hide what a user meets. `send_lag` says how
//! late this program was itself; when it is not small beside the latencies, the machine is too busy
//! for the measurement to be believed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::plan::{Plan, Shape};
use super::record::Record;

/// The result of one run. The fields are the keys of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    url: String,
    protocol: String,
    load: String,
    /// Seconds measured, to the last answer.
    seconds: f64,
    requests: u64,
    failed: u64,
    dropped: u64,
    resent: u64,
    /// Requests a second that ended.
    rate: f64,
    failures: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<u16, u64>,
    grpc_statuses: BTreeMap<u16, u64>,
    backends: BTreeMap<String, u64>,
    latency_ms: Percentiles,
    send_lag_ms: Lag,
    connections: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Lag {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Report {
    /// Of a finished run.
    pub(crate) fn new(plan: &Plan, record: &Record) -> Self {
        Self {
            url: plan.target.label(),
            protocol: plan.protocol.to_string(),
            load: match plan.shape {
                Shape::Open { rate, arrival } => format!("open loop, {arrival}, {rate}/s"),
                Shape::Closed { concurrency } => format!("closed loop, {concurrency} callers"),
            },
            seconds: record.elapsed.as_secs_f64(),
            requests: record.requests,
            failed: record.failed(),
            dropped: record.dropped,
            resent: record.resent,
            rate: record.rate(),
            failures: record.failures.iter().map(|(failure, count)| (failure.name(), *count)).collect(),
            statuses: record.statuses.clone(),
            grpc_statuses: record.grpc_statuses.clone(),
            backends: record
                .backends
                .iter()
                .map(|(backend, count)| (String::from_utf8_lossy(backend.as_bytes()).into_owned(), *count))
                .collect(),
            latency_ms: Percentiles {
                mean: record.mean_latency_ms(),
                p50: record.latency_ms(0.5),
                p90: record.latency_ms(0.9),
                p99: record.latency_ms(0.99),
                p99_9: record.latency_ms(0.999),
                max: record.latency_ms(1.0),
            },
            send_lag_ms: Lag { p50: record.lag_ms(0.5), p99: record.lag_ms(0.99), max: record.lag_ms(1.0) },
            connections: record.connections,
            bytes: record.bytes,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}  {}", self.url, self.protocol, self.load)?;
        let Self { requests, seconds, rate, failed, .. } = self;
        writeln!(f, "  requests   {requests} in {seconds:.2} s, {rate:.1}/s, {failed} failed")?;
        let p = &self.latency_ms;
        writeln!(
            f,
            "  latency    p50 {:.2} ms   p90 {:.2} ms   p99 {:.2} ms   p99.9 {:.2} ms   max {:.2} ms   (mean {:.2} ms)",
            p.p50, p.p90, p.p99, p.p99_9, p.max, p.mean
        )?;
        let lag = &self.send_lag_ms;
        writeln!(f, "  send lag   p50 {:.2} ms   p99 {:.2} ms   max {:.2} ms", lag.p50, lag.p99, lag.max)?;
        for (status, count) in &self.statuses {
            writeln!(f, "  status     {status:<24} {count:>9}")?;
        }
        for (status, count) in &self.grpc_statuses {
            writeln!(f, "  grpc       {status:<24} {count:>9}")?;
        }
        for (failure, count) in &self.failures {
            writeln!(f, "  failed     {failure:<24} {count:>9}")?;
        }
        if self.dropped > 0 {
            writeln!(f, "  DROPPED    {:<24} {:>9}", "never sent", self.dropped)?;
        }
        if self.resent > 0 {
            writeln!(f, "  sent again {:<24} {:>9}", "on a fresh connection", self.resent)?;
        }
        let answers = self.backends.values().sum::<u64>().max(1) as f64;
        for (backend, count) in &self.backends {
            writeln!(f, "  backend    {backend:<24} {count:>9}  {:>5.1}%", *count as f64 / answers * 100.0)?;
        }
        writeln!(f, "  connections {}, {} bytes received", self.connections, self.bytes)
    }
}

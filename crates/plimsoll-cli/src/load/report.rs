//! The result of `plimsoll load`, for people and as JSON.
//!
//! Percentiles 50, 90, 99, 99.9 and the maximum: means hide what a user meets. `send_lag` says how
//! late this program was itself; when it is not small beside the latencies, the machine is too busy
//! for the measurement to be believed.
//!
//! Where something sets requests apart, a table of groups follows. Its shares are of the requests that were
//! meant to be sent, the dropped ones included: who is not even asked was not served.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::mix::{Mix, Parts};
use super::plan::{Plan, Shape};
use super::record::Record;
use super::tally::{Group, Tally};

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
    /// `None` where nothing was answered or timed out.
    latency_ms: Option<Percentiles>,
    send_lag_ms: Lag,
    connections: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
}

/// What became of the requests that are counted together.
#[derive(Debug, Serialize)]
struct Groups {
    /// `None`: an answer is of use for ever.
    useful_within_ms: Option<f64>,
    all: Counts,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_map")]
    by_criticality: Option<Vec<(String, Counts)>>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_map")]
    by_customer: Option<Vec<(String, Counts)>>,
}

/// As a map that keeps the order.
fn as_map<S: Serializer>(rows: &Option<Vec<(String, Counts)>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().flatten().map(|(name, counts)| (name, counts)))
}

#[derive(Debug, Serialize)]
struct Counts {
    requests: u64,
    ok: u64,
    useful: u64,
    shed: u64,
    /// Neither answered nor shed.
    failed_otherwise: u64,
    dropped: u64,
    /// `None` without a useful one.
    useful_p50_ms: Option<f64>,
    useful_p90_ms: Option<f64>,
    useful_p99_ms: Option<f64>,
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
            latency_ms: record.has_latency().then(|| Percentiles {
                mean: record.mean_latency_ms(),
                p50: record.latency_ms(0.5),
                p90: record.latency_ms(0.9),
                p99: record.latency_ms(0.99),
                p99_9: record.latency_ms(0.999),
                max: record.latency_ms(1.0),
            }),
            send_lag_ms: Lag { p50: record.lag_ms(0.5), p99: record.lag_ms(0.99), max: record.lag_ms(1.0) },
            connections: record.connections,
            bytes: record.bytes,
            groups: Groups::new(plan.target.mix(), record),
        }
    }
}

impl Groups {
    fn new(mix: &Mix, record: &Record) -> Option<Self> {
        if mix.is_plain() {
            return None;
        }
        let counts = |group| Counts::from(&record.tallies.of(group));
        let rows = |parts: &Option<Parts>, group: fn(usize) -> Group| {
            let names = parts.as_ref()?.names();
            Some(names.enumerate().map(|(at, name)| (name, counts(group(at)))).collect())
        };
        Some(Self {
            useful_within_ms: mix.useful_within.map(|within| within.as_secs_f64() * 1e3),
            all: counts(Group::All),
            by_criticality: rows(&mix.criticalities, Group::Criticality),
            by_customer: rows(&mix.customers, Group::Customer),
        })
    }
}

impl From<&Tally> for Counts {
    fn from(tally: &Tally) -> Self {
        Self {
            requests: tally.requests,
            ok: tally.ok,
            useful: tally.useful,
            shed: tally.shed,
            failed_otherwise: tally.requests - tally.ok - tally.shed,
            dropped: tally.dropped,
            useful_p50_ms: tally.useful_ms(0.5),
            useful_p90_ms: tally.useful_ms(0.9),
            useful_p99_ms: tally.useful_ms(0.99),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}  {}", self.url, self.protocol, self.load)?;
        let Self { requests, seconds, rate, failed, .. } = self;
        writeln!(f, "  requests   {requests} in {seconds:.2} s, {rate:.1}/s, {failed} failed")?;
        match &self.latency_ms {
            Some(p) => writeln!(
                f,
                "  latency    p50 {:.2} ms   p90 {:.2} ms   p99 {:.2} ms   p99.9 {:.2} ms   max {:.2} ms   (mean {:.2} ms)",
                p.p50, p.p90, p.p99, p.p99_9, p.max, p.mean
            )?,
            None => writeln!(f, "  latency    -")?,
        }
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
        writeln!(f, "  connections {}, {} bytes received", self.connections, self.bytes)?;
        self.groups.as_ref().map_or(Ok(()), |groups| groups.fmt(f))
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.useful_within_ms {
            Some(ms) => writeln!(f, "\nuseful: answered without failure within {ms} ms")?,
            None => writeln!(f, "\nuseful: answered without failure")?,
        }
        writeln!(
            f,
            "  {:<18} {:>9} {:>9} {:>9} {:>7} {:>9} {:>9} {:>10} {:>9} {:>9}",
            "", "requests", "ok", "useful", "", "shed", "otherwise", "never sent", "p50 ms", "p99 ms"
        )?;
        let rows = |rows| Option::iter(rows).flatten();
        let all = std::iter::once(("all", &self.all));
        let named = rows(&self.by_criticality).chain(rows(&self.by_customer)).map(|(name, counts)| (&name[..], counts));
        for (name, counts) in all.chain(named) {
            writeln!(f, "  {name:<18} {counts}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.useful as f64 / (self.requests + self.dropped).max(1) as f64 * 100.0;
        let Self { requests, ok, useful, shed, failed_otherwise, dropped, .. } = self;
        write!(
            f,
            "{requests:>9} {ok:>9} {useful:>9} {share:>6.1}% {shed:>9} {failed_otherwise:>9} {dropped:>10} {:>9} {:>9}",
            milliseconds(self.useful_p50_ms),
            milliseconds(self.useful_p99_ms)
        )
    }
}

fn milliseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::mix::{Kind, Mix};
    use crate::load::plan::{Arrival, Protocol};
    use crate::load::record::{Answer, Failure};
    use crate::load::target::{Params, Target};

    fn plan(mix: Mix) -> Plan {
        let params = Params {
            url: "http://127.0.0.1:1/",
            protocol: Protocol::Http1,
            method: None,
            path: None,
            headers: &[],
            body_size: 0,
        };
        Plan {
            target: Target::new(params).unwrap().with_mix(mix).unwrap(),
            protocol: Protocol::Http1,
            shape: Shape::Open { rate: 10.0, arrival: Arrival::Poisson },
            duration: None,
            requests: Some(3),
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(1),
            max_in_flight: 10,
            connections: 1,
            spread: None,
            seed: 1,
        }
    }

    fn mixed() -> Mix {
        Mix {
            criticalities: Some(Parts::of_criticalities("critical-plus=1,sheddable=9").unwrap()),
            useful_within: Some(Duration::from_millis(250)),
            ..Mix::default()
        }
    }

    fn record(mix: &Mix) -> Record {
        let answer = |status| Answer {
            status,
            grpc: None,
            backend: None,
            bytes: 0,
            marked_shed: false,
            by_limit: false,
            cost_us: None,
        };
        let mut record = Record::default();
        for (at, ms, result) in
            [(0, 20, Ok(answer(200))), (1, 900, Ok(answer(200))), (1, 1, Ok(answer(503))), (1, 1, Err(Failure::Closed))]
        {
            let (kind, latency) = (Kind { criticality: Some(at), customer: None }, Duration::from_millis(ms));
            record.tallies.ended(kind, latency, mix.fate(latency, &result));
        }
        record.tallies.dropped(Kind { criticality: Some(1), customer: None });
        record
    }

    #[test]
    fn groups_are_keys_of_the_json_from_the_most_critical_down() {
        let report = Report::new(&plan(mixed()), &record(&mixed()));
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.find("critical-plus").unwrap() < text.find("sheddable").unwrap());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let groups = &json["groups"];
        assert_eq!(groups["useful_within_ms"], 250.0);
        assert_eq!(groups["all"]["requests"], 4);
        assert_eq!(groups["by_criticality"]["critical-plus"]["useful"], 1);
        let sheddable = &groups["by_criticality"]["sheddable"];
        for (key, count) in
            [("requests", 3), ("ok", 1), ("useful", 0), ("shed", 1), ("failed_otherwise", 1), ("dropped", 1)]
        {
            assert_eq!(sheddable[key], count, "{key}");
        }
        for quantile in ["useful_p50_ms", "useful_p90_ms", "useful_p99_ms"] {
            assert!(sheddable[quantile].is_null(), "{quantile}");
            let plus = groups["by_criticality"]["critical-plus"][quantile].as_f64().unwrap();
            assert!((plus / 20.0 - 1.0).abs() < 0.002, "{quantile}: {plus}");
        }
        assert!(groups.get("by_customer").is_none());
    }

    #[test]
    fn groups_have_a_line_each_in_the_text() {
        let text = Report::new(&plan(mixed()), &record(&mixed())).to_string();
        assert!(text.contains("within 250 ms"), "{text}");
        let line = text.lines().find(|line| line.trim_start().starts_with("critical-plus")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..8], ["critical-plus", "1", "1", "1", "100.0%", "0", "0", "0"]);
    }

    #[test]
    fn where_nothing_was_answered_there_is_no_latency() {
        let mut record = Record::default();
        record.ended(Duration::from_micros(20), Err(Failure::Connect));
        let report = Report::new(&plan(Mix::default()), &record);
        let text = report.to_string();
        assert!(text.lines().any(|line| line.trim_end() == "  latency    -"), "{text}");
        assert!(serde_json::to_value(&report).unwrap()["latency_ms"].is_null());
        record.ended(Duration::from_millis(30), Err(Failure::Timeout));
        let text = Report::new(&plan(Mix::default()), &record).to_string();
        assert!(text.contains("p50 30."), "{text}");
    }

    #[test]
    fn without_anything_that_sets_requests_apart_there_are_no_groups() {
        let report = Report::new(&plan(Mix::default()), &Record::default());
        let json = serde_json::to_value(&report).unwrap();
        assert!(json.get("groups").is_none());
        assert!(report.to_string().trim_end().ends_with("bytes received"));
    }
}

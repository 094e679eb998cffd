//! Ten minutes of a cluster at each proxy, and of the fleet.
//!
//! Proxies sample at moments of their own. So the fleet's second is the latest sample of each proxy
//! that is at most [`MAX_AGE_S`] old: a second without any would make a dip of a whole proxy. Rates
//! and counts add up; the other rules are in [`Rule`].

use std::collections::{BTreeMap, VecDeque};

use plimsoll_admin::LiveSample;
use plimsoll_admin::parts::{MAX_SAMPLES, live_series, significant};
use serde::Serialize;

use super::follow::History;

/// Age up to which a sample stands for the present: one may be late, and one lost.
const MAX_AGE_S: f64 = 2.5;
/// Samples that are no later than this after the one before are the same.
const SAME_S: f64 = 0.001;

/// The way from the samples of proxies to that of the fleet. A figure that a proxy does not know
/// has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The sum.
    Sum,
    /// The largest: of figures that cannot be added up, or count backends that proxies share.
    Max,
    /// The mean, weighted by the series with this name.
    Mean(&'static str),
}

/// The rule of a series. One of a later version is left out.
fn rule(series: &str) -> Option<Rule> {
    let load = ["offered_cpus.", "admitted_cpus.", "offered_qps.", "admitted_qps."];
    Some(match series {
        _ if load.iter().any(|prefix| series.starts_with(prefix)) => Rule::Sum,
        "capacity_cpus" | "load_line_cpus" | "used_cpus" | "throttled_qps" | "retries_qps" | "hedges_qps"
        | "batch_queued" | "batch_active" | "requests_qps" | "failures_qps" | "in_flight" | "waiting" => Rule::Sum,
        "load_max" | "backends_healthy" | "backends_total" | "p99_ms" | "verdict" => Rule::Max,
        "load_mean" => Rule::Mean("backends_healthy"),
        "p50_ms" => Rule::Mean("requests_qps"),
        _ => return None,
    })
}

/// One second: a number for each series, NaN where it is not known.
type Row = Box<[f32]>;

/// Ten minutes of a cluster at one proxy. Takes 90 KB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    cluster: String,
    rows: VecDeque<(f64, Row)>,
}

impl Past {
    /// Takes a history whose times are `ahead_s` ahead of ours. Older seconds stay: a proxy that
    /// was restarted does not know them.
    pub(crate) fn begin(&mut self, history: &History, ahead_s: f64) {
        self.of(&history.cluster);
        let begin = history.begin - ahead_s;
        self.rows.retain(|(at, _)| *at < begin - history.step_s / 2.0);
        let samples = history.samples.min(MAX_SAMPLES);
        let first = history.samples - samples;
        for place in first..history.samples {
            let value = |name: &str| history.series.get(name)?.get(place).copied().flatten();
            self.push(begin + place as f64 * history.step_s, live_series().map(|name| known(value(name))).collect());
        }
    }

    /// Takes the sample of a second of `cluster`.
    pub(crate) fn add(&mut self, cluster: &str, sample: &LiveSample, ahead_s: f64) {
        self.of(cluster);
        let value = |name: &str| sample.series.get(name).copied().flatten();
        self.push(sample.at - ahead_s, live_series().map(|name| value(name).unwrap_or(f32::NAN)).collect());
    }

    /// Forgets another cluster.
    fn of(&mut self, cluster: &str) {
        if self.cluster != cluster {
            self.rows.clear();
            cluster.clone_into(&mut self.cluster);
        }
    }

    fn push(&mut self, at: f64, row: Row) {
        if !at.is_finite() || self.rows.back().is_some_and(|(last, _)| at <= last + SAME_S) {
            return;
        }
        if self.rows.len() == MAX_SAMPLES {
            self.rows.pop_front();
        }
        self.rows.push_back((at, row));
    }
}

fn known(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

/// The history of the fleet, as the event of one proxy has it.
#[derive(Debug, Serialize)]
pub(crate) struct FleetHistory<'a> {
    cluster: &'a str,
    step_s: f64,
    begin: f64,
    samples: usize,
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
}

/// The last ten minutes of a cluster until `at`, in seconds since 1970; `None` before the first
/// sample.
pub(crate) fn history<'a>(pasts: &[&Past], cluster: &'a str, at: f64) -> Option<FleetHistory<'a>> {
    let pasts: Vec<&Past> = pasts.iter().copied().filter(|past| past.cluster == cluster).collect();
    let oldest = pasts.iter().filter_map(|past| past.rows.front()).map(|(at, _)| *at).reduce(f64::min)?;
    let seconds = ((at - oldest).floor() + 1.0).clamp(0.0, MAX_SAMPLES as f64);
    let samples = seconds as usize;
    if samples == 0 {
        return None;
    }
    let begin = at - (samples - 1) as f64;
    let rows: Vec<Row> = (0..samples).map(|place| merged(&pasts, begin + place as f64)).collect();
    let column = |place: usize| rows.iter().map(|row| shown(row[place])).collect();
    let series = live_series().enumerate().map(|(place, name)| (name, column(place))).collect();
    Some(FleetHistory { cluster, step_s: 1.0, begin, samples, series })
}

/// The second of the fleet that ends at `at`; `None` if no proxy has one.
pub(crate) fn sample(pasts: &[&Past], cluster: &str, at: f64) -> Option<LiveSample> {
    let pasts: Vec<&Past> = pasts.iter().copied().filter(|past| past.cluster == cluster).collect();
    let row = merged(&pasts, at);
    if row.iter().all(|value| value.is_nan()) {
        return None;
    }
    let series = live_series().zip(&row).map(|(name, value)| (name.to_owned(), shown(*value))).collect();
    Some(LiveSample { at, series })
}

fn shown(value: f32) -> Option<f32> {
    value.is_finite().then(|| significant(f64::from(value)) as f32)
}

/// The fleet at `at`: of each proxy the latest sample.
fn merged(pasts: &[&Past], at: f64) -> Row {
    let latest = |past: &Past| -> Option<usize> {
        let place = past.rows.partition_point(|(end, _)| *end <= at + SAME_S).checked_sub(1)?;
        (at - past.rows[place].0 <= MAX_AGE_S).then_some(place)
    };
    let rows: Vec<&Row> = pasts.iter().filter_map(|past| Some(&past.rows[latest(past)?].1)).collect();
    live_series().enumerate().map(|(place, name)| merge(&rows, place, rule(name))).collect()
}

fn merge(rows: &[&Row], place: usize, rule: Option<Rule>) -> f32 {
    let values = || rows.iter().map(|row| row[place]).filter(|value| !value.is_nan());
    match rule {
        Some(Rule::Sum) => values().reduce(|a, b| a + b).unwrap_or(f32::NAN),
        Some(Rule::Max) => values().reduce(f32::max).unwrap_or(f32::NAN),
        Some(Rule::Mean(weights)) => {
            let Some(weight) = live_series().position(|name| name == weights) else { return f32::NAN };
            let (sum, total) = rows.iter().filter(|row| !row[place].is_nan()).fold((0.0, 0.0), |(sum, total), row| {
                let weight = if row[weight] > 0.0 { row[weight] } else { f32::EPSILON };
                (sum + row[place] * weight, total + weight)
            });
            if total > 0.0 { sum / total } else { f32::NAN }
        }
        None => f32::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of a cluster that began at `begin`: each second has these requests a second and
    /// this median.
    fn past(begin: f64, seconds: usize, requests: f64, median: Option<f64>) -> Past {
        let series = BTreeMap::from([
            ("requests_qps".to_owned(), vec![Some(requests); seconds]),
            ("p50_ms".to_owned(), vec![median; seconds]),
            ("p99_ms".to_owned(), vec![Some(requests); seconds]),
        ]);
        let mut past = Past::default();
        past.begin(&History { cluster: "web".to_owned(), begin, step_s: 1.0, samples: seconds, series }, 0.0);
        past
    }

    fn series(history: &FleetHistory<'_>, name: &str) -> Vec<Option<f32>> {
        history.series[name].clone()
    }

    #[test]
    fn every_series_of_a_proxy_has_a_rule() {
        let without: Vec<&str> = live_series().filter(|name| rule(name).is_none()).collect();
        assert_eq!(without, Vec::<&str>::new());
        for name in live_series() {
            if let Some(Rule::Mean(weight)) = rule(name) {
                assert!(live_series().any(|each| each == weight), "{name} is weighted by {weight}");
            }
        }
    }

    #[test]
    fn seconds_of_proxies_with_other_phases_add_up() {
        let (a, b) = (past(100.3, 10, 30.0, Some(2.0)), past(104.8, 5, 10.0, Some(6.0)));
        let history = history(&[&a, &b], "web", 109.5).unwrap();
        assert_eq!((history.begin, history.samples), (100.5, 10));
        let requests = series(&history, "requests_qps");
        assert_eq!(requests[..5], [Some(30.0); 5], "the other proxy is not there yet");
        assert_eq!(requests[5..], [Some(40.0); 5]);
        assert_eq!(series(&history, "p99_ms").last(), Some(&Some(30.0)));
        assert_eq!(series(&history, "p50_ms").last(), Some(&Some(3.0)), "(30 · 2 + 10 · 6) / 40");
        assert_eq!(series(&history, "used_cpus"), vec![None; 10]);
    }

    #[test]
    fn sample_has_no_part_of_a_proxy_that_is_silent() {
        let (a, b) = (past(100.0, 10, 30.0, None), past(100.0, 5, 10.0, None));
        let of = |at: f64| sample(&[&a, &b], "web", at).map(|sample| sample.series["requests_qps"]);
        assert_eq!(of(104.5), Some(Some(40.0)));
        assert_eq!(of(106.0), Some(Some(40.0)), "one or two seconds may be late");
        assert_eq!(of(107.0), Some(Some(30.0)));
        assert_eq!(of(120.0), None);
        assert_eq!(sample(&[&a], "api", 104.5), None, "another cluster");
    }

    #[test]
    fn restart_and_other_clocks_keep_one_past() {
        let mut past = past(100.0, 5, 30.0, None);
        let again = History {
            cluster: "web".to_owned(),
            begin: 3_710.0,
            step_s: 1.0,
            samples: 2,
            series: BTreeMap::from([("requests_qps".to_owned(), vec![Some(7.0); 2])]),
        };
        past.begin(&again, 3_600.0);
        assert_eq!(
            past.rows.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [100.0, 101.0, 102.0, 103.0, 104.0, 110.0, 111.0]
        );
        past.begin(&History { cluster: "api".to_owned(), ..again }, 0.0);
        assert_eq!(past.rows.len(), 2, "the past of another cluster is another one");
    }

    #[test]
    fn past_has_ten_minutes_at_most() {
        let mut past = past(0.0, 5_000, 1.0, None);
        assert_eq!((past.rows.len(), past.rows[0].0), (MAX_SAMPLES, 4_400.0));
        past.add("web", &LiveSample { at: 5_000.0, series: BTreeMap::new() }, 0.0);
        past.add("web", &LiveSample { at: 5_000.0, series: BTreeMap::new() }, 0.0);
        past.add("web", &LiveSample { at: f64::NAN, series: BTreeMap::new() }, 0.0);
        assert_eq!((past.rows.len(), past.rows.back().unwrap().0), (MAX_SAMPLES, 5_000.0));
        let long = history(&[&past], "web", 1e12);
        assert_eq!(long.unwrap().samples, MAX_SAMPLES, "a bound for any clock");
    }
}

//! Ten minutes of one cluster: the offered and the admitted load of each second.
//!
//! A proxy that restarts has a short history. Older seconds stay, with a gap.

use std::collections::VecDeque;

use plimsoll_admin::LiveSample;
use plimsoll_core::Criticality;

use crate::fleet::follow::History;

/// Seconds kept.
pub(super) const MAX_POINTS: usize = 600;

/// The load in CPUs, or in requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub(super) offered: f64,
    pub(super) admitted: f64,
}

/// One second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Its end, in seconds since 1970.
    pub(super) at: f64,
    /// `None` without a gate.
    pub(super) cpus: Option<Load>,
    pub(super) qps: Option<Load>,
    /// CPUs that requests may fill.
    pub(super) load_line: Option<f64>,
}

impl Point {
    fn of(at: f64, value: impl Fn(&str) -> Option<f64>) -> Self {
        let sum = |of: &str| -> Option<f64> {
            Criticality::ALL.into_iter().map(|criticality| value(&format!("{of}.{}", criticality.name()))).sum()
        };
        let load = |unit: &str| {
            let (offered, admitted) = (sum(&format!("offered_{unit}"))?, sum(&format!("admitted_{unit}"))?);
            Some(Load { offered, admitted })
        };
        Self { at, cpus: load("cpus"), qps: load("qps"), load_line: value("load_line_cpus") }
    }
}

/// The points of a history, the oldest first.
fn points(history: &History) -> impl Iterator<Item = Point> {
    (0..history.samples.min(MAX_POINTS)).map(|i| {
        let value = |name: &str| history.series.get(name)?.get(i).copied().flatten();
        Point::of(history.begin + i as f64 * history.step_s, value)
    })
}

/// The points of a cluster, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    cluster: String,
    points: VecDeque<Point>,
}

impl Points {
    /// Adds a history. Points before it stay if they are of the same cluster.
    pub(super) fn begin(&mut self, history: &History) {
        if self.cluster != history.cluster {
            self.points.clear();
            self.cluster.clone_from(&history.cluster);
        }
        self.points.retain(|point| point.at < history.begin - history.step_s / 2.0);
        for point in points(history) {
            self.push(point);
        }
    }

    /// Adds a second of `cluster`.
    pub(super) fn add(&mut self, cluster: &str, sample: &LiveSample) {
        if self.cluster != cluster {
            self.points.clear();
            cluster.clone_into(&mut self.cluster);
        }
        if self.points.back().is_none_or(|last| last.at + 0.001 < sample.at) {
            let value = |name: &str| sample.series.get(name).copied().flatten().map(f64::from);
            self.push(Point::of(sample.at, value));
        }
    }

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Point> {
        self.points.iter()
    }

    pub(super) fn last(&self) -> Option<&Point> {
        self.points.back()
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(begin: f64, offered: &[Option<f64>]) -> History {
        let zeros = vec![Some(0.0); offered.len()];
        let mut series = serde_json::Map::new();
        for of in ["offered_qps", "admitted_qps"] {
            for criticality in Criticality::ALL {
                series.insert(format!("{of}.{}", criticality.name()), json!(zeros));
            }
        }
        series.insert("offered_qps.critical".to_owned(), json!(offered));
        let samples = offered.len();
        serde_json::from_value(
            json!({ "cluster": "web", "begin": begin, "step_s": 1.0, "samples": samples, "series": series }),
        )
        .unwrap()
    }

    fn offered(points: &Points) -> Vec<(f64, Option<f64>)> {
        points.all().map(|point| (point.at, point.qps.map(|load| load.offered))).collect()
    }

    #[test]
    fn restart_keeps_the_past_and_another_cluster_does_not() {
        let mut points = Points::default();
        points.begin(&history(100.0, &[Some(1.0), Some(2.0)]));
        points.begin(&history(105.0, &[Some(3.0), None]));
        assert_eq!(offered(&points), [(100.0, Some(1.0)), (101.0, Some(2.0)), (105.0, Some(3.0)), (106.0, None)]);
        // The same seconds again, as after a short break of the connection.
        points.begin(&history(105.0, &[Some(3.0), Some(4.0)]));
        assert_eq!(offered(&points).len(), 4);
        assert!(points.last().unwrap().cpus.is_none(), "without a gate");
        points.begin(&History { cluster: "api".to_owned(), ..history(50.0, &[Some(9.0)]) });
        assert_eq!(offered(&points), [(50.0, Some(9.0))]);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut points = Points::default();
        for at in 0..700 {
            points.add("web", &LiveSample { at: f64::from(at), ..LiveSample::default() });
        }
        points.add("web", &LiveSample { at: 699.0, ..LiveSample::default() });
        assert_eq!((points.all().count(), points.last().unwrap().at), (MAX_POINTS, 699.0));
    }
}

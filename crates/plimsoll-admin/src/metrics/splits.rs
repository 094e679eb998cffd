//! Splits of routes over clusters, the verdicts on canaries, and mirrors.

use plimsoll_core::canary::{Metric as Compared, Verdict};

use super::text::Kind;
use super::{Metric, Samples, Scrape};
use crate::split::{MirrorSnapshot, SideSnapshot};

const SIDE: &[&str] = &["route", "cluster"];
const SIDE_METRIC: &[&str] = &["route", "cluster", "metric"];

/// A number of each side of each split.
fn sides(scrape: &Scrape, mut each: impl FnMut(&str, &SideSnapshot)) {
    for split in &scrape.snapshot.splits {
        split.sides.iter().for_each(|side| each(&split.route, side));
    }
}

/// A number of each metric of each comparison with an estimate.
fn differences(scrape: &Scrape, out: &mut Samples<'_>, value: impl Fn(&plimsoll_core::canary::MetricReport) -> f64) {
    for split in &scrape.snapshot.splits {
        for (side, report) in split.sides.iter().skip(1).zip(&split.comparisons) {
            for (metric, report) in Compared::ALL.into_iter().zip(&report.metrics) {
                out.gauge(&[&split.route, &side.cluster, metric.name()], value(report));
            }
        }
    }
}

fn mirrors(scrape: &Scrape, each: impl FnMut(&MirrorSnapshot)) {
    scrape.snapshot.mirrors.iter().for_each(each);
}

/// The table.
pub(super) static SPLITS: &[Metric] = &[
    Metric {
        name: "split_share_ratio",
        kind: Kind::Gauge,
        labels: SIDE,
        help: "Share of a route's requests that a cluster is to get, by weight",
        fill: |s, out| sides(s, |route, side| out.gauge(&[route, &side.cluster], side.share)),
    },
    Metric {
        name: "split_requests_total",
        kind: Kind::Counter,
        labels: SIDE,
        help: "Requests that a side of a split has finished",
        fill: |s, out| sides(s, |route, side| out.count(&[route, &side.cluster], side.requests)),
    },
    Metric {
        name: "split_failures_total",
        kind: Kind::Counter,
        labels: SIDE,
        help: "Requests of a side that failed: status 5xx, a failed gRPC call, or no response",
        fill: |s, out| sides(s, |route, side| out.count(&[route, &side.cluster], side.failures)),
    },
    Metric {
        name: "split_fallbacks_total",
        kind: Kind::Counter,
        labels: SIDE,
        help: "Requests of a side without a backend that another side served",
        fill: |s, out| sides(s, |route, side| out.count(&[route, &side.cluster], side.fallbacks)),
    },
    Metric {
        name: "split_verdict",
        kind: Kind::Gauge,
        labels: &["route", "cluster", "verdict"],
        help: "1 for the present verdict on a canary, 0 for the others",
        fill: |s, out| {
            for split in &s.snapshot.splits {
                for (side, report) in split.sides.iter().skip(1).zip(&split.comparisons) {
                    for verdict in Verdict::ALL {
                        let is_it = f64::from(u8::from(verdict == report.verdict));
                        out.gauge(&[&split.route, &side.cluster, verdict.name()], is_it);
                    }
                }
            }
        },
    },
    Metric {
        name: "split_difference_ratio",
        kind: Kind::Gauge,
        labels: SIDE_METRIC,
        help: "Estimated difference of a canary from the main version: relative, of errors absolute; no sample while unknown",
        fill: |s, out| differences(s, out, |report| report.difference),
    },
    Metric {
        name: "split_difference_low_ratio",
        kind: Kind::Gauge,
        labels: SIDE_METRIC,
        help: "Lower end of the interval of the difference",
        fill: |s, out| differences(s, out, |report| report.low),
    },
    Metric {
        name: "split_difference_high_ratio",
        kind: Kind::Gauge,
        labels: SIDE_METRIC,
        help: "Upper end of the interval of the difference; no sample while unknown",
        fill: |s, out| differences(s, out, |report| report.high),
    },
    Metric {
        name: "mirror_active_requests",
        kind: Kind::Gauge,
        labels: SIDE,
        help: "Copies of requests in flight",
        fill: |s, out| mirrors(s, |mirror| out.gauge(&[&mirror.route, &mirror.cluster], f64::from(mirror.active))),
    },
    Metric {
        name: "mirror_requests_total",
        kind: Kind::Counter,
        labels: &["route", "cluster", "result"],
        help: "Requests that a mirror was to copy, by result: the copy was answered or failed, or the reason for none",
        fill: |s, out| {
            mirrors(s, |mirror| {
                for (result, count) in &mirror.requests {
                    out.count(&[&mirror.route, &mirror.cluster, result], *count);
                }
            });
        },
    },
];

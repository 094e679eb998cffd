//! Utilization from the metrics that the reader names (gRFC A114).
//!
//! A backend may have something scarcer than CPU, such as the KV cache of an inference server, and
//! report it under a name of its own. The largest of the named metrics is then the utilization.
//! Without any of them in a report the usual rule holds: `application_utilization`, else
//! `cpu_utilization`. A value that is not a finite number above zero counts as absent.
//!
//! Why is 0 absent, where it might mean idle? A114 and Envoy say so for each of these fields. A
//! report in protobuf cannot tell a field of 0 from one that is not set, and a weight divides by the
//! utilization. So one report has one meaning for all clients of a backend. The price: a server that
//! is idle by its named metric counts by its CPU, if it reports that too. A server that should not
//! leaves the CPU out.

use std::fmt;
use std::str::FromStr;

use http::HeaderMap;
use plimsoll_core::LoadReport;

use super::{Malformed, OrcaLoadReport, read, read_load};

/// A number in a load report that may stand for the utilization.
///
/// Its text is that of gRPC's and Envoy's `metric_names_for_computing_utilization`:
/// `cpu_utilization`, `mem_utilization`, `application_utilization`, `utilization.NAME` or
/// `named_metrics.NAME`. The name may have dots of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtilizationMetric(Field);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Cpu,
    Memory,
    Application,
    Utilization(Box<str>),
    Named(Box<str>),
}

/// The text names no number in a load report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMetric;

impl fmt::Display for UnknownMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no number in a load report")
    }
}

impl std::error::Error for UnknownMetric {}

impl FromStr for UtilizationMetric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let field = match text.split_once('.') {
            Some((_, "")) => return Err(UnknownMetric),
            Some(("named_metrics", name)) => Field::Named(name.into()),
            Some(("utilization", name)) => Field::Utilization(name.into()),
            Some(_) => return Err(UnknownMetric),
            None => match text {
                "cpu_utilization" => Field::Cpu,
                "mem_utilization" => Field::Memory,
                "application_utilization" => Field::Application,
                _ => return Err(UnknownMetric),
            },
        };
        Ok(Self(field))
    }
}

impl fmt::Display for UtilizationMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Field::Cpu => f.write_str("cpu_utilization"),
            Field::Memory => f.write_str("mem_utilization"),
            Field::Application => f.write_str("application_utilization"),
            Field::Utilization(name) => write!(f, "utilization.{name}"),
            Field::Named(name) => write!(f, "named_metrics.{name}"),
        }
    }
}

impl UtilizationMetric {
    fn of(&self, report: &OrcaLoadReport) -> Option<f64> {
        let value = match &self.0 {
            Field::Cpu => report.cpu_utilization,
            Field::Memory => report.mem_utilization,
            Field::Application => report.application_utilization,
            Field::Utilization(name) => *report.utilization.get(&**name)?,
            Field::Named(name) => *report.named_metrics.get(&**name)?,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// [`read_load`] with the largest of `metrics` as the utilization of the application.
///
/// Without metrics it is [`read_load`], which does not allocate for a usual report.
#[must_use]
pub fn read_load_by(headers: &HeaderMap, metrics: &[UtilizationMetric]) -> Option<Result<LoadReport, Malformed>> {
    if metrics.is_empty() {
        return read_load(headers);
    }
    Some(read(headers)?.map(|report| {
        let load = LoadReport::from(&report);
        let largest = metrics.iter().filter_map(|metric| metric.of(&report)).reduce(f64::max);
        LoadReport { application_utilization: largest.unwrap_or(load.application_utilization), ..load }
    }))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};

    fn metric(text: &str) -> UtilizationMetric {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_those_of_grpc_and_envoy() {
        for text in [
            "cpu_utilization",
            "mem_utilization",
            "application_utilization",
            "utilization.disk",
            "named_metrics.kv_cache_usage_perc",
            "named_metrics.a.b",
        ] {
            assert_eq!(metric(text).to_string(), text);
        }
        for text in ["", "kv_cache_usage_perc", "named_metrics", "named_metrics.", "request_cost.cpu", "rps", ".x"] {
            assert_eq!(text.parse::<UtilizationMetric>(), Err(UnknownMetric), "{text}");
        }
    }

    #[test]
    fn largest_named_metric_counts_before_the_usual_ones() {
        let metrics = ["named_metrics.kv", "utilization.gpu", "mem_utilization"].map(metric);
        for (text, utilization) in [
            (
                "TEXT named_metrics.kv=0.4,utilization.gpu=0.7,mem_utilization=0.2,application_utilization=0.9",
                Some(0.7),
            ),
            ("TEXT named_metrics.kv=0.4,cpu_utilization=0.9", Some(0.4)),
            ("TEXT named_metrics.kv=0,application_utilization=0.3,cpu_utilization=0.9", Some(0.3)),
            ("TEXT named_metrics.kv=-1,cpu_utilization=0.9", Some(0.9)),
            ("TEXT named_metrics.waiting=3", None),
            ("TEXT named_metrics.kv=12", Some(12.0)),
        ] {
            let headers = HeaderMap::from_iter([(ENDPOINT_LOAD_METRICS, HeaderValue::from_static(text))]);
            let load = read_load_by(&headers, &metrics).unwrap().unwrap();
            assert_eq!(load.utilization(), utilization, "{text}");
        }
        assert_eq!(read_load_by(&HeaderMap::new(), &metrics), None);
    }

    #[test]
    fn binary_report_with_a_number_that_is_infinite_counts_as_absent() {
        let named_metrics = [("kv".to_owned(), f64::INFINITY), ("other".to_owned(), f64::NAN)].into();
        let report = OrcaLoadReport { named_metrics, cpu_utilization: 0.5, rps_fractional: 7.0, ..Default::default() };
        let headers = HeaderMap::from_iter([(ENDPOINT_LOAD_METRICS_BIN, report.to_header_value())]);
        let load = read_load_by(&headers, &["named_metrics.kv", "named_metrics.other"].map(metric)).unwrap().unwrap();
        assert_eq!((load.utilization(), load.qps), (Some(0.5), 7.0));
        assert_eq!(read_load_by(&headers, &[]), read_load(&headers));
    }
}

//! The load reports of backends: the request for them, and the metrics that are their utilization.

use plimsoll::client::{LoadReports, ReportFormat, UtilizationMetric};
use plimsoll_config::{Checker, Choice, Flaw, Format, List, OFF, quoted, table, text};

/// Named metrics of one cluster: more are a mistake, and each costs a look-up with every response.
const MAX_METRICS: usize = 8;

table! {
    /// The load reports of a cluster's backends.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct LoadReporting {
        /// The format to request; `None`: text, if metrics are named, else none.
        pub request: Option<Requested> = None, optional_as(REQUESTED);
        /// The metrics that are the utilization: the largest counts.
        pub utilization: Vec<UtilizationMetric> = Vec::new(), value_as(List(METRIC));
    }
}

/// The report that is requested with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// In this format.
    Format(ReportFormat),
    /// None: reports come unasked.
    Off,
}

const REQUESTED: Choice<Requested> = Choice {
    noun: "a format of load reports",
    names: &[
        ("text", Requested::Format(ReportFormat::Text)),
        ("json", Requested::Format(ReportFormat::Json)),
        (OFF, Requested::Off),
    ],
};

const METRIC: Format<UtilizationMetric> = Format {
    read: |v| {
        let name = text(v, "the name of a metric", "a name in quotes, such as \"named_metrics.kv_cache_usage_perc\"")?;
        name.parse().map_err(|_| Flaw::new(format!("\"{name}\" is not a metric of a load report"), metric_help(name)))
    },
    print: |metric| quoted(metric),
};

fn metric_help(name: &str) -> String {
    let is_bare = !name.is_empty() && !name.contains('.') && !matches!(name, "named_metrics" | "utilization");
    // Prometheus has a colon after the name of the server.
    let name = name.rsplit(':').next().unwrap_or(name);
    if is_bare && !matches!(name, "rps" | "rps_fractional" | "eps") {
        return format!("write \"named_metrics.{name}\"");
    }
    "write \"named_metrics.NAME\", \"utilization.NAME\", \"cpu_utilization\", \"mem_utilization\" or \
     \"application_utilization\""
        .to_owned()
}

impl LoadReporting {
    /// As the library has it.
    pub(super) fn client(&self) -> LoadReports {
        let request = match self.request {
            Some(Requested::Format(format)) => Some(format),
            Some(Requested::Off) => None,
            None => (!self.utilization.is_empty()).then_some(ReportFormat::Text),
        };
        let mut reports = LoadReports::default();
        reports.request = request;
        reports.utilization = self.utilization.clone().into();
        reports
    }

    /// Reports metrics that are named twice or are too many. `path` is that of the table.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        for (k, metric) in self.utilization.iter().enumerate() {
            if self.utilization[..k].contains(metric) {
                let reason = format!("\"{metric}\" is in the list twice");
                checker.report(format!("{path}.utilization[{k}]"), reason, "remove one of them");
            }
        }
        if self.utilization.len() > MAX_METRICS {
            let reason = format!("names {} metrics, more than {MAX_METRICS}", self.utilization.len());
            let help = "name those that can be the bottleneck of a backend";
            checker.report(format!("{path}.utilization"), reason, help);
        }
    }
}

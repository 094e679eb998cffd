//! The metrics of a comparison, the finding on each, and the verdict over all.

/// A metric of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// CPU per request, by load reports.
    Cpu,
    /// The share of failed requests.
    Errors,
    /// The median latency of answered requests.
    Median,
    /// The 99th percentile of the latency of answered requests.
    P99,
}

impl Metric {
    /// All metrics, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Errors, Self::Median, Self::P99];

    /// The metric's name in metrics and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Errors => "errors",
            Self::Median => "latency-median",
            Self::P99 => "latency-p99",
        }
    }

    /// The metric in words, for logs.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Cpu => "CPU per request",
            Self::Errors => "error rate",
            Self::Median => "median latency",
            Self::P99 => "p99 latency",
        }
    }

    /// Whether its difference is one of two shares, and not relative to the main version.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(self, Self::Errors)
    }
}

/// The differences that are relevant. Smaller ones are no reason to stop a rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// More CPU per request, relative.
    pub cpu: f64,
    /// More failed requests, as a share of all requests.
    pub errors: f64,
    /// More latency, relative: the median and the 99th percentile.
    pub latency: f64,
}

impl Margins {
    /// A twentieth more CPU is a twentieth more machines.
    pub const DEFAULT_CPU: f64 = 0.05;
    /// One request in two hundred.
    pub const DEFAULT_ERRORS: f64 = 0.005;
    /// Users notice no less.
    pub const DEFAULT_LATENCY: f64 = 0.1;

    pub(super) const fn of(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Cpu => self.cpu,
            Metric::Errors => self.errors,
            Metric::Median | Metric::P99 => self.latency,
        }
    }
}

impl Default for Margins {
    fn default() -> Self {
        Self { cpu: Self::DEFAULT_CPU, errors: Self::DEFAULT_ERRORS, latency: Self::DEFAULT_LATENCY }
    }
}

/// The finding on one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// More requests are needed.
    Undecided {
        /// Estimate of the further requests of the canary.
        needed: u64,
    },
    /// One side has no load report at all.
    Unmeasured,
    /// Equal within the margin, or a little better.
    NoDifference,
    /// The canary is better by the margin or more.
    Better,
    /// The canary is worse by the margin or more.
    Worse,
}

impl Finding {
    /// The finding's name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecided { .. } => "undecided",
            Self::Unmeasured => "unmeasured",
            Self::NoDifference => "no-difference",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    pub(super) const fn is_decided(self) -> bool {
        matches!(self, Self::NoDifference | Self::Better | Self::Worse)
    }

    /// Further requests of the canary that it needs.
    #[must_use]
    pub const fn needed(self) -> Option<u64> {
        match self {
            Self::Undecided { needed } => Some(needed),
            _ => None,
        }
    }
}

/// One metric of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricReport {
    /// Its value on the main version: CPU-seconds (or a share of the machine), a share, seconds.
    pub main: f64,
    /// Its value on the canary.
    pub canary: f64,
    /// The estimate of the difference: relative to the main version, for errors absolute.
    pub difference: f64,
    /// The lower end of the difference's interval.
    pub low: f64,
    /// The upper end; infinite while there is none.
    pub high: f64,
    /// The finding.
    pub finding: Finding,
}

impl MetricReport {
    /// Nothing is known yet.
    pub(super) const UNKNOWN: Self = Self {
        main: f64::NAN,
        canary: f64::NAN,
        difference: f64::NAN,
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
        finding: Finding::Undecided { needed: 0 },
    };

    pub(super) fn of(main: f64, canary: f64, difference: f64, low: f64, high: f64) -> Self {
        Self { main, canary, difference, low, high, ..Self::UNKNOWN }
    }

    /// Whether there is an estimate.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.difference.is_nan()
    }

    /// The same with its finding. `requests` are those of the canary so far; `wait` is the number
    /// that it needs before any finding.
    pub(super) fn judged(self, margin: f64, before: Finding, requests: u64, wait: u64) -> Self {
        let Self { difference, low, high, .. } = self;
        let finding = if wait > 0 {
            Finding::Undecided { needed: self.needed(margin, requests).max(wait) }
        } else if low > 0.0 && difference >= margin {
            Finding::Worse
        } else if high < 0.0 && difference <= -margin {
            Finding::Better
        } else if high < 0.0 || high < margin && low > -margin {
            Finding::NoDifference
        } else if before.is_decided() {
            before
        } else {
            Finding::Undecided { needed: self.needed(margin, requests) }
        };
        Self { finding, ..self }
    }

    /// The requests that it still needs, by the root of the requests: widths shrink with it. So does a
    /// difference below the margin, as most of it is chance in equal versions. A greater one stays.
    ///
    /// The two halves of an interval of a quantile differ at first and become equal. Their geometric
    /// mean is the half that shrinks with the root.
    fn needed(&self, margin: f64, requests: u64) -> u64 {
        let width = libm::sqrt((self.high - self.difference) * (self.difference - self.low));
        let distance = self.difference.abs();
        let times = if distance < margin { (width + distance) / margin } else { width / distance };
        // Without an upper end, at least as many again.
        let further = if times.is_finite() { (times * times - 1.0).max(0.0) } else { 1.0 };
        ((requests as f64 * further) as u64).max(1)
    }
}

/// The verdict on a canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// More requests are needed.
    #[default]
    Undecided,
    /// No metric is worse, and none is better by its margin.
    NoDifference,
    /// No metric is worse, and at least one is better by its margin.
    Better,
    /// At least one metric is worse.
    Worse,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [Self::Undecided, Self::NoDifference, Self::Better, Self::Worse];

    /// The verdict's name in metrics and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::NoDifference => "no-difference",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    /// One worse metric is enough; all others must be decided, or unmeasured.
    pub(super) fn of(metrics: &[MetricReport]) -> Self {
        let any = |is: fn(Finding) -> bool| metrics.iter().any(|metric| is(metric.finding));
        if any(|finding| finding == Finding::Worse) {
            Self::Worse
        } else if any(|finding| matches!(finding, Finding::Undecided { .. })) {
            Self::Undecided
        } else if any(|finding| finding == Finding::Better) {
            Self::Better
        } else {
            Self::NoDifference
        }
    }
}

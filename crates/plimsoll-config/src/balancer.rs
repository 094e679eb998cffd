//! The settings of the core's machines, as the file names them.
//!
//! Their defaults and the reasons for these stand beside the rules that they belong to, in
//! `plimsoll_core`; here are only their names and codecs.

use std::time::Duration;

use plimsoll_core::admit::Outlook;
use plimsoll_core::batch::{BatchConfig, Target};
use plimsoll_core::health::{BackoffConfig, OutlierConfig, SlowStartConfig};
use plimsoll_core::pick::{HashConfig, LoadBound, PrequalConfig, ProbeRule, ProbeSource, WeightedConfig};
use plimsoll_core::retry::hedge::HedgeConfig;
use plimsoll_core::spill::SpillConfig;
use plimsoll_core::subset::Algorithm;
use plimsoll_core::{BalancerConfig, Ratio};

use crate::check::Checker;
use crate::codec::{Format, SpanOrOff};
use crate::problem::Flaw;
use crate::table::{Table, Visitor};
use crate::value::{choice, number, quoted};
use crate::values;
use crate::variants::Variants;

impl Table for OutlierConfig {
    const OFF: &'static str = "consecutive_failures = \"off\" and success_rate_stdev = \"off\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.switch("consecutive_failures", &mut self.consecutive_failures);
        visitor.switch("success_rate_stdev", &mut self.success_rate_stdev);
        visitor.value("interval", &mut self.interval);
        visitor.value("base_ejection", &mut self.base_ejection);
        visitor.value("max_ejection", &mut self.max_ejection);
        visitor.value("max_ejected", &mut self.max_ejected);
        visitor.value("min_hosts", &mut self.min_hosts);
        visitor.value("min_requests", &mut self.min_requests);
    }
}

impl Table for SlowStartConfig {
    const OFF: &'static str = "window = \"off\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("window", &mut self.window, SpanOrOff);
        visitor.value("floor", &mut self.floor);
    }
}

impl Table for WeightedConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("blackout", &mut self.blackout, SpanOrOff);
        visitor.value("expiry", &mut self.expiry);
        visitor.value("update", &mut self.update);
        visitor.value("smoothing", &mut self.smoothing);
        visitor.value("error_penalty", &mut self.error_penalty);
        visitor.value_as("feedback", &mut self.feedback, SpanOrOff);
    }
}

impl Table for BackoffConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("initial", &mut self.initial);
        visitor.value("max", &mut self.max);
        visitor.value("jitter", &mut self.jitter);
    }
}

impl Variants for ProbeRule {
    const NOUN: &'static str = "a rule for probe answers";

    fn all() -> Vec<(&'static str, Self)> {
        let linear = Self::Linear { in_flight_share: Ratio::ONE, per_request: Duration::ZERO };
        let rules = [Self::HotCold, Self::LeastInFlight, Self::TwoChoices, linear, Self::C3 { clients: 0 }];
        rules.map(|rule| (rule.name(), rule)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::HotCold => "hot-cold",
            Self::LeastInFlight => "least-in-flight",
            Self::TwoChoices => "two-choices",
            Self::Linear { .. } => "linear",
            Self::C3 { .. } => "c3",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::HotCold | Self::LeastInFlight | Self::TwoChoices => {}
            Self::Linear { in_flight_share, per_request } => {
                visitor.required("in_flight_share", in_flight_share);
                visitor.required("per_request", per_request);
            }
            Self::C3 { clients } => visitor.required("clients", clients),
        }
    }
}

const OUTLOOKS: [(&str, Outlook); 2] = [("optimistic", Outlook::Optimistic), ("pessimistic", Outlook::Pessimistic)];
const PROBE_SOURCES: [(&str, ProbeSource); 3] =
    [("frugal", ProbeSource::Frugal), ("live", ProbeSource::Live), ("responses", ProbeSource::Responses)];

values! {
    Outlook: |v| choice(v, "an outlook", &OUTLOOKS), |outlook| {
        quoted(OUTLOOKS.into_iter().find(|(_, known)| known == outlook).expect("all are listed").0)
    };
    ProbeSource: |v| choice(v, "a source of probe answers", &PROBE_SOURCES), |source| {
        quoted(PROBE_SOURCES.into_iter().find(|(_, known)| known == source).expect("all are listed").0)
    };
    Algorithm: |v| {
        let choices: Vec<_> = Algorithm::ALL.iter().map(|algorithm| (algorithm.name(), *algorithm)).collect();
        choice(v, "a subset algorithm", &choices)
    }, |algorithm| quoted(algorithm.name());
}

impl Table for PrequalConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("pool", &mut self.pool);
        visitor.value("max_age", &mut self.max_age);
        visitor.value("probes_per_pick", &mut self.probes_per_pick);
        visitor.value("removals_per_pick", &mut self.removals_per_pick);
        visitor.value("reuse_delta", &mut self.reuse_delta);
        visitor.value("hot_quantile", &mut self.hot_quantile);
        visitor.value("rule", &mut self.rule);
        visitor.value("source", &mut self.source);
    }
}

impl Table for HashConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.switch_as("bound", &mut self.bound, LOAD_BOUND);
    }
}

/// The bound on loads under the policy `hash`.
pub const LOAD_BOUND: Format<LoadBound> = Format {
    read: |v| {
        let range = LoadBound::RANGE;
        let help = format!("write a number from {} to {}, such as 1.25, or \"off\"", range.start(), range.end());
        number(v).and_then(LoadBound::new).ok_or_else(|| Flaw::new("is not a bound on loads", help))
    },
    print: |bound| format!("{:?}", bound.as_f64()),
};

impl Table for HedgeConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("quantile", &mut self.quantile);
        visitor.value("at_least", &mut self.at_least);
    }
}

impl Table for SpillConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("target", &mut self.target);
        visitor.value("drain_below", &mut self.drain_below);
    }
}

impl Table for BatchConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("max_active", &mut self.max_active);
        visitor.value("max_queue", &mut self.max_queue);
        visitor.value("queue_timeout", &mut self.queue_timeout);
        visitor.value_as("target_utilization", &mut self.target, TARGET_UTILIZATION);
    }
}

const TARGET_UTILIZATION: Format<Target> = Format {
    read: |v| {
        let flaw = || Flaw::new("is not a target utilization", "write a number above 0, at most 1, such as 0.7");
        number(v).and_then(Target::new).ok_or_else(flaw)
    },
    print: |target| format!("{:?}", target.as_f64()),
};

/// All but the health checks, to which the proxy and the scenarios add settings of their own.
impl Table for BalancerConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("policy", &mut self.policy);
        visitor.value("max_active_requests", &mut self.max_active_requests);
        visitor.value("panic_threshold", &mut self.panic_threshold);
        visitor.table("outlier", &mut self.outlier);
        visitor.table("slow_start", &mut self.slow_start);
        visitor.table("weighted", &mut self.weighted);
        visitor.table("prequal", &mut self.prequal);
        visitor.table("hash", &mut self.hash);
        visitor.table("backoff", &mut self.backoff);
    }
}

/// Reports contradictions among the settings of a balancer with its tables below `path`.
pub fn check_balancer(checker: &mut Checker<'_>, path: &str, balancer: &mut BalancerConfig) {
    let [outlier_table, backoff_table, weighted_table] =
        ["outlier", "backoff", "weighted"].map(|table| format!("{path}.{table}"));
    if balancer.weighted.update < WeightedConfig::MIN_UPDATE {
        let least = humantime::format_duration(WeightedConfig::MIN_UPDATE);
        checker.report(
            format!("{weighted_table}.update"),
            "the weights would follow noise",
            format!("write at least \"{least}\""),
        );
    }
    if balancer.outlier.success_rate_stdev == Some(0.0) {
        let reason = "every backend below the mean would be ejected";
        checker.report(
            format!("{outlier_table}.success_rate_stdev"),
            reason,
            "write a number above 0, such as 1.9, or \"off\"",
        );
    }
    if balancer.slow_start.floor == Ratio::ZERO {
        let reason = "a backend without requests never warms up";
        checker.report(format!("{path}.slow_start.floor"), reason, "write a share above 0, such as \"10%\"");
    }
    feedback(checker, &weighted_table, &mut balancer.weighted);
    let BalancerConfig { outlier, backoff, weighted, .. } = balancer;
    let max_ejection = ("max_ejection", outlier.max_ejection);
    checker.order(&outlier_table, ("base_ejection", &mut outlier.base_ejection), max_ejection);
    checker.order(&backoff_table, ("initial", &mut backoff.initial), ("max", backoff.max));
    checker.order(&weighted_table, ("blackout", &mut weighted.blackout), ("expiry", weighted.expiry));
    checker.order(&weighted_table, ("update", &mut weighted.update), ("expiry", weighted.expiry));
}

/// A known utilization is as old as its smoothing and one update. Corrections that are not slower
/// than that overshoot, and weights swing. A default yields.
fn feedback(checker: &mut Checker<'_>, table: &str, weighted: &mut WeightedConfig) {
    let least = weighted.smoothing.saturating_mul(2).saturating_add(weighted.update);
    let readable = ["smoothing", "update"].iter().all(|key| checker.is_readable(&format!("{table}.{key}")));
    if weighted.feedback.is_zero() || weighted.feedback >= least || !readable {
        return;
    }
    let path = format!("{table}.feedback");
    if !checker.is_set(&path) {
        weighted.feedback = least;
        return;
    }
    let [given, least] = [weighted.feedback, least].map(humantime::format_duration);
    let reason = format!("the weights would swing: {given} is less than twice smoothing, and update ({least})");
    checker.report(path, reason, format!("write at least \"{least}\", or \"off\""));
}

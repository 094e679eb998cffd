//! What is expected of a scenario: ranges for metrics.
//!
//! A range says why it is what it is: from what was published, from a formula, or from how far runs differ by chance. One
//! without a reason would be widened by the first who finds it too narrow.

use plimsoll_config::{Checker, Table, Visitor, help_for_name};

/// A range that a metric is expected to lie in, its ends included.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Check {
    /// The metric, by name.
    pub metric: String,
    /// The metric that it is divided by, run by run, so that what all arms of a run have in common does not count; `None` for by
    /// nothing.
    pub over: Option<String>,
    /// The least; `None` for any.
    pub low: Option<f64>,
    /// The greatest; `None` for any.
    pub high: Option<f64>,
    /// Why.
    pub why: String,
}

impl Check {
    /// What is checked, in words: the metric, and what it is divided by.
    #[must_use]
    pub fn name(&self) -> String {
        self.over.as_ref().map_or_else(|| self.metric.clone(), |over| format!("{} over {over}", self.metric))
    }

    /// Whether `value` is as expected. What is not a number never is.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        value.is_finite() && self.low.is_none_or(|low| value >= low) && self.high.is_none_or(|high| value <= high)
    }
}

impl Table for Check {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("metric", &mut self.metric);
        visitor.optional("over", &mut self.over);
        visitor.optional("low", &mut self.low);
        visitor.optional("high", &mut self.high);
        visitor.required("why", &mut self.why);
    }
}

/// How many metrics a message lists, at most.
const LISTED: usize = 60;

/// Reports checks that cannot be made: of metrics that the experiment does not find, or of no range.
pub(super) fn check(checks: &[Check], metrics: &[String], checker: &mut Checker<'_>) {
    // Without arms there are no metrics, which is a problem of its own.
    let known = |name: &str| metrics.is_empty() || metrics.iter().any(|metric| metric == name);
    for (i, one) in checks.iter().enumerate() {
        let path = format!("checks[{i}]");
        let (metric, _) = split_extreme(&one.metric);
        if !known(metric) {
            let reason = format!("no metric is named \"{}\"", one.metric);
            checker.report(format!("{path}.metric"), reason, unknown(metric, metrics));
        }
        if let Some(over) = &one.over {
            let (plain, is_extreme) = split_extreme(over);
            let path = format!("{path}.over");
            if !known(plain) {
                checker.report(path, format!("no metric is named \"{over}\""), unknown(plain, metrics));
            } else if is_extreme {
                let reason = format!("\"{over}\" covers several runs, but each run is divided by its own value");
                checker.report(
                    path,
                    reason,
                    format!("write \"{plain}\"; .min or .max of metric is then that of the ratio"),
                );
            }
        }
        if checks[..i].iter().any(|other| (&other.metric, &other.over) == (&one.metric, &one.over)) {
            let reason = format!("\"{}\" is checked already", one.name());
            checker.report(format!("{path}.metric"), reason, "merge the two checks");
        }
        match (one.low, one.high) {
            (Some(low), Some(high)) if low > high => {
                let reason = format!("low ({low}) is above high ({high}), so no value passes");
                checker.report(format!("{path}.low"), reason, "swap the two");
            }
            (None, None) if checker.is_readable(&path) => {
                checker.report(&path, "has neither low nor high, so every value passes", "add low, high or both");
            }
            _ => {}
        }
    }
}

/// What is put behind the name of a metric for its least and its greatest value over several seeds.
pub const EXTREMES: [&str; 2] = [".min", ".max"];

/// A metric's name, and whether the least or greatest value over the seeds is meant.
fn split_extreme(name: &str) -> (&str, bool) {
    EXTREMES.iter().find_map(|end| name.strip_suffix(end)).map_or((name, false), |metric| (metric, true))
}

/// What to do about a metric that there is not.
fn unknown(name: &str, metrics: &[String]) -> String {
    let names = metrics.iter().map(String::as_str);
    // Names that begin alike are near in letters whatever they end with, so those that end right come first.
    let last = name.rsplit('.').next().unwrap_or_default();
    let mend = help_for_name(name, names.clone().filter(|metric| metric.ends_with(last) && !last.is_empty()));
    if mend.starts_with("did you mean") {
        return mend;
    }
    let mend = help_for_name(name, names.clone());
    if mend.starts_with("did you mean") || metrics.len() <= LISTED {
        return mend;
    }
    let first = names.take(LISTED).collect::<Vec<_>>().join(", ");
    format!("use one of: {first} and {} more", metrics.len() - LISTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_range_belong_to_it_and_no_nan_does() {
        let check = Check { low: Some(1.0), high: Some(2.0), ..Check::default() };
        assert!(check.holds(1.0) && check.holds(2.0));
        assert!(!check.holds(0.999) && !check.holds(2.001) && !check.holds(f64::NAN));
        let open = Check { low: Some(1.0), ..Check::default() };
        assert!(open.holds(1e300) && !open.holds(f64::INFINITY));
    }

    #[test]
    fn a_metric_that_is_nearly_right_is_suggested() {
        let metrics = ["a.p50", "a.max_over_mean", "a.max_over_min", "b.max_over_mean"].map(str::to_owned);
        assert_eq!(unknown("a.max_over_maen", &metrics), "did you mean \"a.max_over_mean\"?");
        assert_eq!(unknown("c.p50", &metrics), "did you mean \"a.p50\"?");
        assert!(unknown("zzz", &metrics).starts_with("use one of: a.max_over_mean, "));
    }
}

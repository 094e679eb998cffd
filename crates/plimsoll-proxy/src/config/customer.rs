//! Customers: their names, as the listener finds them in requests, and their limits.

use std::fmt;
use std::num::NonZeroU32;

use http::HeaderValue;
use plimsoll_config::{Checker, Effect, Flaw, Format, number, quoted, table, text, values, whole};
use plimsoll_core::Weight;
use plimsoll_core::admit::Mode;
use plimsoll_core::request_limit::RequestLimit;

/// The name of a customer: the value of a field, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomerName(String);

impl CustomerName {
    pub(crate) fn parse(name: &str) -> Result<Self, Flaw> {
        let help = "write the name as requests have it, such as \"acme\"";
        // The codecs take blanks around a value for no part of it.
        let is_value = !name.is_empty() && name.trim() == name && HeaderValue::from_str(name).is_ok();
        is_value
            .then(|| Self(name.to_owned()))
            .ok_or_else(|| Flaw::new(format!("\"{name}\" is not the name of a customer"), help))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As it is written in the file.
impl fmt::Display for CustomerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

table! {
    /// The limits of a customer: on the process behind each gate, in CPUs (CPU-seconds a second), and
    /// on its requests.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct CustomerLimits {
        /// Its share when there is not enough for all; the hard limit if left out.
        pub soft_limit: Option<Weight> = None, optional_as(SOFT_LIMIT);
        /// Its most, at any load.
        pub hard_limit: Option<f64> = None, optional;
        /// Requests per second that the proxy forwards, whatever they cost.
        pub requests_per_second: Option<f64> = None, optional_as(RATE), REQUEST_LIMIT;
        /// Requests of it that may come at once; those of one second if left out.
        pub burst: Option<NonZeroU32> = None, optional_as(BURST), REQUEST_LIMIT;
        /// Requests over `requests_per_second` are counted, and forwarded all the same.
        pub dry_run: bool = false, value, REQUEST_LIMIT;
    }
}

const REQUEST_LIMIT: Effect = Effect::Applied("from the next request on; buckets keep their fill");

const RATE_HELP: &str = "write a number from 0.001 to 1000000, without quotes, such as 10 or 0.5";

/// Requests per second.
const RATE: Format<f64> = Format {
    read: |v| {
        if number(v) == Some(0.0) {
            let help = "write a route with customers = [\"NAME\"] and an answer, which refuses all its requests";
            return Err(Flaw::new("0 would refuse every request", help));
        }
        let is_rate = |rate: &f64| (RequestLimit::MIN_RATE..=RequestLimit::MAX_RATE).contains(rate);
        number(v).filter(is_rate).ok_or_else(|| Flaw::new("is not a number of requests per second", RATE_HELP))
    },
    print: |rate| format!("{rate:?}"),
};

/// Requests at once.
const BURST: Format<NonZeroU32> = Format {
    read: |v| {
        let burst = whole::<u32>(v, 1)?;
        NonZeroU32::new(burst).filter(|burst| burst.get() <= RequestLimit::MAX_BURST).ok_or_else(|| {
            Flaw::new(format!("{burst} is out of range"), format!("write at most {}", RequestLimit::MAX_BURST))
        })
    },
    print: |burst| burst.to_string(),
};

/// A weight, as a number of CPUs.
const SOFT_LIMIT: Format<Weight> = Format {
    read: |v| {
        let range = Weight::RANGE;
        let help =
            format!("write a number from {} to {}, without quotes, such as 2 or 0.5", range.start(), range.end());
        number(v).and_then(Weight::new).ok_or_else(|| Flaw::new("is not a number of CPUs", help))
    },
    print: |limit| format!("{:?}", limit.as_f64()),
};

impl CustomerLimits {
    /// The limit on its requests; `None` without one.
    pub(crate) fn request_limit(&self) -> Option<RequestLimit> {
        let rate = self.requests_per_second?;
        let burst = self.burst.unwrap_or_else(|| RequestLimit::default_burst(rate));
        let limit = RequestLimit::new(rate, burst).expect("the file holds numbers in range");
        Some(limit.in_mode(if self.dry_run { Mode::DryRun } else { Mode::Protect }))
    }

    /// Whether it has a limit in CPUs.
    pub(super) fn limits_cpu(&self) -> bool {
        self.soft_limit.is_some() || self.hard_limit.is_some()
    }

    /// Reports contradictions among its settings, those at `path`.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        if self.requests_per_second.is_none() && checker.is_readable(&format!("{path}.requests_per_second")) {
            let help = "add requests_per_second = 10, or remove it";
            if self.burst.is_some() {
                checker.report(format!("{path}.burst"), "has no effect without requests_per_second", help);
            }
            if self.dry_run {
                let help = "add requests_per_second = 10; for limits in CPUs set dry_run in [clusters.NAME.inbound]";
                checker.report(format!("{path}.dry_run"), "has no effect without requests_per_second", help);
            }
        }
        let (Some(soft), Some(hard)) = (self.soft_limit, self.hard_limit) else { return };
        if soft.as_f64() > hard {
            let reason = format!("{} is more than hard_limit ({hard})", soft.as_f64());
            checker.report(format!("{path}.soft_limit"), reason, "lower it, or raise hard_limit");
        }
    }
}

values! {
    CustomerName: |v| CustomerName::parse(text(v, "the name of a customer", "a name in quotes, such as \"acme\"")?), |name| quoted(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_values_that_a_field_can_hold() {
        for name in ["acme", "Acme Corp.", "team/batch-7", "*"] {
            assert_eq!(CustomerName::parse(name).unwrap().as_str(), name);
        }
        for junk in ["", " acme", "acme ", "a\nb", "a\u{7f}b"] {
            assert!(CustomerName::parse(junk).is_err(), "{junk:?}");
        }
    }
}

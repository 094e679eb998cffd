//! Customers: their names, as requests give them in the `customer_header` of their listener, and
//! their quotas.

use std::fmt;

use http::HeaderValue;
use plimsoll_config::{Checker, Flaw, Format, number, quoted, table, text, values};
use plimsoll_core::Weight;

/// The name of a customer: the value of a field, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomerName(String);

impl CustomerName {
    pub(crate) fn parse(name: &str) -> Result<Self, Flaw> {
        let help = "write the name as in the customer_header, such as \"acme\"";
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
    /// The limits of a customer on the process behind each gate, in CPUs: CPU-seconds a second.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct CustomerLimits {
        /// Its share when there is not enough for all; the hard limit if left out.
        pub soft_limit: Option<Weight> = None, optional_as(SOFT_LIMIT);
        /// Its most, at any load.
        pub hard_limit: Option<f64> = None, optional;
    }
}

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
    /// Reports contradictions among its settings, those at `path`.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
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

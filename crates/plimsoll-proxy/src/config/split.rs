//! A route's split of its requests over clusters, and the comparison of these, as in the file.

use std::fmt;

use http::HeaderName;
use plimsoll_config::{Checker, Effect, Flaw, help_for_name, quoted, table, text, values};
use plimsoll_core::Ratio;
use plimsoll_core::canary;
use plimsoll_core::split::MAX_SIDES;

use super::route::Route;

/// Requests in flight stay where they are.
const ACTION: Effect = Effect::Applied("from the next request on; the comparison begins anew");

table! {
    /// One side of a split.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct SplitSide {
        /// The cluster that serves it, by name; it exists.
        pub cluster: String = String::new(), required, ACTION;
        /// Its part of the requests, over the sum of all weights; 0 for none.
        pub weight: f64 = 0.0, required, ACTION;
    }
}

table! {
    /// The differences that are relevant between the versions of a split.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Margins {
        /// More CPU per request, relative.
        pub cpu: Ratio = share(canary::Margins::DEFAULT_CPU), value, JUDGED;
        /// More failed requests, as a share of all.
        pub errors: Ratio = share(canary::Margins::DEFAULT_ERRORS), value, JUDGED;
        /// More latency, relative: median and 99th percentile.
        pub latency: Ratio = share(canary::Margins::DEFAULT_LATENCY), value, JUDGED;
    }
}

const JUDGED: Effect = Effect::Applied("at once, for the requests so far as well");

fn share(value: f64) -> Ratio {
    Ratio::new(value).expect("a default is a share")
}

impl Margins {
    /// As the core has them.
    pub(crate) fn of_core(&self) -> canary::Margins {
        let Self { cpu, errors, latency } = self;
        canary::Margins { cpu: cpu.as_f64(), errors: errors.as_f64(), latency: latency.as_f64() }
    }
}

/// What keeps a user on one side of a split.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SplitKey {
    /// The customer, by the listener's `customer`.
    Customer,
    /// The client's address.
    Address,
    /// The value of this field.
    Header(HeaderName),
    /// The value of this cookie.
    Cookie(String),
}

impl SplitKey {
    fn parse(key: &str) -> Result<Self, Flaw> {
        let help = "write \"customer\", \"address\", \"header:x-user\" or \"cookie:session\"";
        let flaw = || Flaw::new(format!("\"{key}\" is not a key of users"), help);
        let is_token = |name: &str| HeaderName::from_bytes(name.as_bytes()).is_ok();
        match key.split_once(':') {
            None if key == "customer" => Ok(Self::Customer),
            None if key == "address" => Ok(Self::Address),
            Some(("header", name)) => HeaderName::from_bytes(name.as_bytes()).map(Self::Header).map_err(|_| flaw()),
            // A cookie's name is a token, as a field's, but its case counts.
            Some(("cookie", name)) if is_token(name) => Ok(Self::Cookie(name.to_owned())),
            _ => Err(flaw()),
        }
    }
}

/// As it is written in the file.
impl fmt::Display for SplitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Customer => f.write_str("customer"),
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

values! {
    SplitKey: |v| SplitKey::parse(text(v, "a key of users", "one in quotes, such as \"cookie:session\"")?), |key| quoted(key);
}

impl Route {
    /// Reports contradictions among the settings of its split. `path` is that of the route,
    /// `clusters` are the names of all clusters.
    pub(super) fn check_split<'c>(
        &self,
        path: &str,
        clusters: impl Iterator<Item = &'c str> + Clone,
        checker: &mut Checker<'_>,
    ) {
        let sides = &self.split;
        if sides.is_empty() {
            for (key, is_there) in [("split_by", self.split_by.is_some()), ("margins", self.margins.is_some())] {
                if is_there && checker.is_readable(&format!("{path}.split")) {
                    let help = "add split = [{ cluster = \"web\", weight = 95 }, { cluster = \"canary\", weight = 5 }]";
                    checker.report(format!("{path}.{key}"), "has no effect: the route has no split", help);
                }
            }
            return;
        }
        for (k, side) in sides.iter().enumerate() {
            let place = format!("{path}.split[{k}].cluster");
            // One that could not be read was reported already.
            if clusters.clone().next().is_some()
                && !side.cluster.is_empty()
                && !clusters.clone().any(|name| name == side.cluster)
            {
                let help = help_for_name(&side.cluster, clusters.clone());
                checker.report(place, format!("there is no cluster \"{}\"", side.cluster), help);
            } else if sides[..k].iter().any(|other| other.cluster == side.cluster) && !side.cluster.is_empty() {
                let reason = format!("\"{}\" is a side of this split already", side.cluster);
                checker.report(place, reason, "remove it, and add its weight to the other one");
            }
        }
        if !checker.is_readable(&format!("{path}.split")) {
            return;
        }
        if sides.len() == 1 {
            let help = format!("add a second side, or write cluster = \"{}\" in place of it", sides[0].cluster);
            checker.report(format!("{path}.split"), "has one side only", help);
        }
        if sides.len() > MAX_SIDES {
            let reason = format!("has {} sides", sides.len());
            checker.report(format!("{path}.split"), reason, format!("write at most {MAX_SIDES}"));
        }
        if sides.iter().all(|side| side.weight == 0.0) {
            let help = "give one side a weight above 0";
            checker.report(format!("{path}.split"), "all weights are 0, so no side gets requests", help);
        }
        let margins = self.margins.unwrap_or_default();
        for (key, margin) in [("cpu", margins.cpu), ("errors", margins.errors), ("latency", margins.latency)] {
            if margin.as_f64() <= 0.0 {
                let reason = "is 0, and no two versions are equal to that degree";
                checker.report(format!("{path}.margins.{key}"), reason, "write a share above 0, such as \"5%\"");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_users_is_read_and_printed_the_same() {
        for key in ["customer", "address", "header:x-user", "cookie:Session_1"] {
            assert_eq!(SplitKey::parse(key).unwrap().to_string(), key);
        }
        for junk in ["", "cookie", "cookie:", "cookie:a b", "header:a b", "user", "host:a", "customer:a"] {
            assert!(SplitKey::parse(junk).unwrap_err().help.contains("cookie:session"), "{junk}");
        }
    }
}

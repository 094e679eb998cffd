//! The quota of each customer, from the configuration: looked up for each request that comes to a
//! gate. The limits on requests ([`RequestLimits`]) stand beside them, for all listeners.
//!
//! Limits are those of the process behind the gate. They are looked up by name and passed on with
//! the request, so that a reload changes them and none of the gate's knowledge. Customers without a
//! table share the table of all others. Requests without a name are one customer together.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use plimsoll_core::admit::Quota;

use crate::classify::request_limits::RequestLimits;
use crate::config::{Config, CustomerLimits};

/// The limits of each customer.
#[derive(Clone)]
pub(crate) struct Quotas {
    named: HashMap<Box<[u8]>, Quota>,
    others: Quota,
    /// `None` if the configuration has no limit on requests.
    requests: Option<Arc<RequestLimits>>,
}

impl Quotas {
    /// Those of `config`, whose limits on requests are in force in `requests`.
    pub(crate) fn new(config: &Config, requests: &Arc<RequestLimits>) -> Self {
        let named = config.customers().iter();
        Self {
            named: named.map(|(name, limits)| (name.as_bytes().into(), quota(limits))).collect(),
            others: quota(config.other_customers()),
            requests: Some(requests).filter(|requests| requests.is_on()).cloned(),
        }
    }

    /// The limits on requests; `None` if there are none.
    pub(crate) fn requests(&self) -> Option<&Arc<RequestLimits>> {
        self.requests.as_ref()
    }

    /// That of the customer of this name.
    pub(crate) fn of(&self, customer: Option<&[u8]>) -> Quota {
        // Most have no tables, and need not be hashed.
        let named = customer.filter(|_| !self.named.is_empty()).and_then(|customer| self.named.get(customer));
        named.copied().unwrap_or(self.others)
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas").field("named", &self.named).field("others", &self.others).finish_non_exhaustive()
    }
}

fn quota(limits: &CustomerLimits) -> Quota {
    let hard = limits.hard_limit.map(|cpus| Quota::hard(cpus).expect("files hold finite numbers of at least 0"));
    let hard = hard.unwrap_or(Quota::UNLIMITED);
    let share = limits.soft_limit;
    Quota { share: share.unwrap_or(hard.share), ..hard }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(customers: &str) -> Quotas {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:1\"\ncustomer_header = \"x-customer\"\n[[routes]]\ncluster = \"a\"\n\
             [clusters.a]\nbackends = [\"127.0.0.1:80\"]\n[clusters.a.inbound]\npid = 1\n{customers}"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        Quotas::new(&config, &Arc::default())
    }

    fn of(quotas: &Quotas, customer: Option<&str>) -> (f64, Option<f64>) {
        let Quota { share, most } = quotas.of(customer.map(str::as_bytes));
        (share.as_f64(), most)
    }

    #[test]
    fn nobody_is_limited_unless_the_file_says_so() {
        let quotas = quotas("");
        assert_eq!((of(&quotas, None), of(&quotas, Some("acme"))), ((1.0, None), (1.0, None)));
    }

    #[test]
    fn customer_without_a_table_has_the_limits_of_others() {
        let quotas = quotas(
            "[customers.acme]\nsoft_limit = 2\nhard_limit = 3.5\n[customers.\"team/a b\"]\nhard_limit = 0\n\
             [other_customers]\nsoft_limit = 0.5\n",
        );
        assert_eq!(of(&quotas, Some("acme")), (2.0, Some(3.5)));
        assert_eq!(of(&quotas, Some("team/a b")), (0.001, Some(0.0)), "nothing at all");
        assert_eq!((of(&quotas, Some("ACME")), of(&quotas, None)), ((0.5, None), (0.5, None)));
    }
}

//! Whether it matters that a listener names the fields of customers and cohorts.
//!
//! It matters where a gate, a limit, a route or a kept answer of the listener depends on the
//! customer or the field. It also matters where one of another listener does: such a field is removed
//! from requests of every listener that does not name it.

use super::customer_source::CustomerSource;
use super::listener::Listener;
use super::raw::RawConfig;
use super::route::Route;
use super::split::SplitKey;

/// Whether the customers of `listener` have an effect.
pub(super) fn customers_matter(raw: &RawConfig, listener: &Listener) -> bool {
    let sources = listener.customer_sources();
    let is_same = |other: &&Listener| other.customer_sources() == sources;
    let holds_slots = !sources.iter().any(CustomerSource::can_be_invented);
    limits_requests(raw)
        || raw.listeners.iter().filter(is_same).any(|listener| {
            raw.routes.iter().filter(|route| route.applies_to(&listener.name)).any(|route| {
                let is_stale = route.degraded.as_ref().is_some_and(|degraded| degraded.max_stale.is_some());
                let is_key = route.split_by == Some(SplitKey::Customer);
                leads_to_gate(raw, route)
                    || holds_slots && limits_clients(raw, route)
                    || is_stale
                    || is_key
                    || !route.customers.is_empty()
            })
        })
}

/// Whether any customer has a limit on its requests.
pub(super) fn limits_requests(raw: &RawConfig) -> bool {
    raw.customers.values().chain([&raw.other_customers]).any(|limits| limits.requests_per_second.is_some())
}

/// Whether the cluster of `route` limits the slots of a client, which is a customer.
fn limits_clients(raw: &RawConfig, route: &Route) -> bool {
    let limits = |name| raw.clusters.get(name).is_some_and(|cluster| cluster.max_active_requests_per_client.is_some());
    route.clusters().any(limits)
}

/// Whether the cohort header of `listener` has an effect.
pub(super) fn cohort_header_matters(raw: &RawConfig, listener: &Listener) -> bool {
    let is_same = |other: &&Listener| other.cohort_header == listener.cohort_header;
    raw.listeners
        .iter()
        .filter(is_same)
        .any(|listener| raw.routes.iter().any(|route| route.applies_to(&listener.name) && leads_to_gate(raw, route)))
}

/// A cluster that does not exist is reported elsewhere.
fn leads_to_gate(raw: &RawConfig, route: &Route) -> bool {
    route.clusters().any(|name| raw.clusters.get(name).is_none_or(|cluster| cluster.inbound.is_some()))
}

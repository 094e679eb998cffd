//! How critical a request is, and whose: from what its sender claims as far as its listener believes it, and from its route.
//!
//! In this order: what the route says; what the sender claims, as far as it is believed; what the listener says. The decision is
//! written on the request that goes on, so that a claim that is not believed ends here and does not reach those behind who
//! believe this proxy: in `x-criticality`, and in the member of `baggage` if there is one, which services pass on that know
//! nothing of the other. Where the file says nothing of all this, nothing is read and nothing is written.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use plimsoll_core::admit::Arrival;
use plimsoll_core::classify::Classifier;
use plimsoll_core::meter::Kind;
use plimsoll_core::{Criticality, Weight};
use plimsoll_wire::grpc;
use plimsoll_wire::headers::{BAGGAGE, X_CRITICALITY};
use plimsoll_wire::metadata::Metadata;

use crate::config;
use crate::inbound::Inbound;

/// What a listener says of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    classifier: Classifier,
    /// The file says something about criticality, so that it is written on what goes on.
    is_set: bool,
    customer_header: Option<HeaderName>,
}

impl From<&config::Listener> for Claims {
    fn from(listener: &config::Listener) -> Self {
        Self {
            classifier: listener.classifier(),
            is_set: listener.criticality.is_some() || listener.trust_criticality.is_some(),
            customer_header: listener.customer_header.as_ref().map(|name| name.0.clone()),
        }
    }
}

/// How the requests of one listener and route are told apart.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    claims: Claims,
    /// What the route says.
    fixed: Option<Criticality>,
    /// The name of the route.
    route: Box<str>,
}

/// What is made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) criticality: Criticality,
    /// Until nobody wants an answer any more.
    left: Option<Duration>,
    is_retry: bool,
}

impl Rules {
    pub(crate) fn new(claims: &Claims, route: &config::Route) -> Self {
        let fixed = route.criticality.map(|level| level.0);
        Self { claims: claims.clone(), fixed, route: route.to_string().into() }
    }

    /// Whether what goes on says how critical it is.
    pub(crate) fn marks(&self) -> bool {
        self.claims.is_set || self.fixed.is_some()
    }

    pub(crate) fn classify(&self, headers: &HeaderMap) -> Class {
        let Metadata { criticality, timeout, attempt, .. } = Metadata::read(headers);
        let decided = self.fixed.unwrap_or_else(|| self.claims.classifier.criticality(criticality));
        Class { criticality: decided, left: timeout, is_retry: attempt.is_some_and(|attempt| attempt > 1) }
    }

    /// What the gate is told of a request. Costs are remembered by route and method, and for gRPC by path, which is the name of what is
    /// called; other paths have names in them without end, and whoever knows which of them cost alike makes a route for these.
    pub(crate) fn arrival<B>(&self, class: Class, request: &Request<B>, inbound: &Inbound) -> Arrival {
        let path = if grpc::is_grpc(request.headers()) { request.uri().path() } else { "" };
        let customer = self.claims.customer_header.as_ref().and_then(|name| request.headers().get(name));
        Arrival {
            criticality: class.criticality,
            kind: Kind {
                route: inbound.number_of((&*self.route, request.method(), path)),
                customer: customer.map_or(0, |customer| inbound.number_of(customer.as_bytes())),
            },
            share: Weight::ONE,
            timeout: class.left,
            cohort: None,
            is_retry: class.is_retry,
        }
    }
}

/// Says on a request how critical it is.
pub(crate) fn mark(headers: &mut HeaderMap, criticality: Criticality) {
    headers.insert(X_CRITICALITY, HeaderValue::from_static(criticality.name()));
    let is_it = |member: &[u8]| {
        let key = member.split(|byte| *byte == b'=').next().unwrap_or(member);
        key.trim_ascii() == b"criticality"
    };
    let members = |list: &HeaderValue| list.as_bytes().split(|byte| *byte == b',').any(is_it);
    if !headers.get_all(BAGGAGE).iter().any(members) {
        return;
    }
    let lists = headers.get_all(BAGGAGE).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let mut baggage = Vec::new();
    for member in lists.filter(|member| !is_it(member) && !member.trim_ascii().is_empty()) {
        baggage.extend_from_slice(member.trim_ascii());
        baggage.push(b',');
    }
    baggage.extend_from_slice(b"criticality=");
    baggage.extend_from_slice(criticality.name().as_bytes());
    let baggage = HeaderValue::from_bytes(&baggage).expect("each piece was part of a value, and so is what joins them");
    headers.insert(BAGGAGE, baggage);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(baggage: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert(X_CRITICALITY, HeaderValue::from_static("critical-plus"));
        headers.append(X_CRITICALITY, HeaderValue::from_static("critical-plus"));
        for list in baggage {
            headers.append(BAGGAGE, HeaderValue::from_static(list));
        }
        mark(&mut headers, Criticality::Sheddable);
        let lines = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        lines.collect()
    }

    #[test]
    fn what_was_decided_takes_the_place_of_every_claim() {
        assert_eq!(marked(&[]), ["x-criticality: sheddable"]);
        assert_eq!(marked(&["user=7;a=b, x=y"]), ["x-criticality: sheddable", "baggage: user=7;a=b, x=y"]);
        assert_eq!(
            marked(&["criticality = critical-plus;ttl=3,user=7", "a=b,,criticality=x"]),
            ["x-criticality: sheddable", "baggage: user=7,a=b,criticality=sheddable"]
        );
    }
}

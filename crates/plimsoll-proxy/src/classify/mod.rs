//! The criticality and the customer of a request: from its sender's claim, as far as the listener
//! believes it, and from its route.
//!
//! The order is: the route's setting, the sender's claim as far as it is believed, the listener's
//! setting. The decision is written on the request that goes on, so that an unbelieved claim ends
//! here and does not reach services that believe this proxy: in `x-criticality`, and in the member
//! of `baggage` if there is one, which services pass on that know
//! nothing of the other. Where the file says nothing of all this, requests that claim
//! nothing go on as they are, and a claim is capped: clients of such a listener are strangers.
//!
//! The attempt count of a request is believed only of senders that are trusted with another harmful
//! claim: the names of customers, or a raised criticality. Where one in ten requests claims to be a
//! retry, each shedding gate tells everybody not to retry, and any client could bring that about.
//! The counts of other senders go no further. Deadlines are believed of all: a short one harms its
//! sender alone, and `request_timeout` bounds a long one. A field that names the customer or cohort
//! on another listener of the file is removed: backends believe it. So is a priority header, unless its
//! listener believes every claim: `x-criticality` has the decision. The decision to record a trace
//! is believed of the same senders as the attempt count (`trace`).

pub(crate) mod quotas;
pub(crate) mod request_limits;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, Method, Request};
use plimsoll_core::Criticality;
use plimsoll_core::admit::{self, Arrival};
use plimsoll_core::classify::{Classifier, Source};
use plimsoll_core::meter::Kind;
use plimsoll_wire::headers::{GRPC_PREVIOUS_RPC_ATTEMPTS, X_ENVOY_ATTEMPT_COUNT};
use plimsoll_wire::metadata::{Claim, Metadata, PriorityHeader, claims_criticality, say_criticality};

use crate::classify::quotas::Quotas;
use crate::classify::request_limits::RequestLimits;
use crate::config::{self, CustomerSource};
use crate::inbound::Inbound;

/// A listener's rules for its requests.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    classifier: Classifier,
    /// The file sets criticality, so that requests are marked with it.
    is_set: bool,
    /// Senders are believed that say which attempt a request is, and whether its trace is recorded.
    counts_attempts: bool,
    /// The field with an integer priority.
    priority: Option<Arc<PriorityHeader>>,
    /// The facts that name the customer; none where customers are not known.
    customer: Arc<[CustomerSource]>,
    cohort_header: Option<HeaderName>,
    /// Fields that are trusted at other listeners, and not here.
    foreign: Arc<[HeaderName]>,
    quotas: Arc<Quotas>,
}

impl Claims {
    /// The claims accepted at `listener`, one of `all`, with the quotas of its customers.
    pub(crate) fn new(listener: &config::Listener, all: &[config::Listener], quotas: &Arc<Quotas>) -> Self {
        let classifier = listener.classifier();
        let is_own = |name: &&HeaderName| listener.believed_fields().any(|own| own == *name);
        Self {
            quotas: Arc::clone(quotas),
            counts_attempts: classifier.lets_raise() || listener.customer_headers().next().is_some(),
            classifier,
            foreign: all
                .iter()
                .flat_map(config::Listener::believed_fields)
                .filter(|name| !is_own(name))
                .cloned()
                .collect(),
            is_set: listener.criticality.is_some()
                || listener.trust_criticality.is_some()
                || listener.priority.is_some()
                || listener.batch.is_some(),
            priority: listener.priority.as_ref().map(|priority| Arc::new(priority.header())),
            customer: listener.customer_sources().into(),
            cohort_header: listener.cohort_header.clone(),
        }
    }

    /// Whether senders are trusted with claims that can harm others.
    pub(crate) fn trusts_senders(&self) -> bool {
        self.counts_attempts
    }

    /// The facts that name the customer.
    pub(crate) fn customer(&self) -> &Arc<[CustomerSource]> {
        &self.customer
    }

    /// Whether a customer is the holder of its requests' slots. It is not where a client can invent
    /// customers: it would take all slots, each under another name.
    pub(crate) fn customers_hold_slots(&self) -> bool {
        !self.customer.iter().any(CustomerSource::can_be_invented)
    }

    /// The fields that may name the customer.
    pub(crate) fn customer_fields(&self) -> Box<[HeaderName]> {
        self.customer.iter().filter_map(CustomerSource::field).cloned().collect()
    }

    /// The limits on requests, where customers are known and have any.
    pub(crate) fn request_limits(&self) -> Option<&Arc<RequestLimits>> {
        self.quotas.requests().filter(|_| !self.customer.is_empty())
    }
}

/// The rules of one listener and route.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    claims: Claims,
    /// The route's setting.
    fixed: Option<Criticality>,
    /// The name of the route.
    route: Arc<str>,
}

/// Where it comes from how critical a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its route says so, whatever its claim.
    Route,
    /// It says so, in this place.
    Claimed(Claim),
    /// It claims more than its listener believes, in this place.
    Capped(Claim),
    /// It claims something, and its listener believes nothing.
    Unbelieved,
    /// It claims nothing, and its listener says so.
    Listener,
}

impl Origin {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Route => "set by the route",
            Self::Claimed(Claim::Header) => "claimed in x-criticality",
            Self::Claimed(Claim::Baggage) => "claimed in baggage",
            Self::Claimed(Claim::Priority) => "claimed by the priority header",
            Self::Capped(Claim::Header) => "capped: x-criticality claims more than the listener trusts",
            Self::Capped(Claim::Baggage) => "capped: baggage claims more than the listener trusts",
            Self::Capped(Claim::Priority) => "capped: the priority header claims more than the listener trusts",
            Self::Unbelieved => "default of the listener: claims are not trusted",
            Self::Listener => "default of the listener: no claim",
        }
    }
}

/// The operation of a request, in words: its route, and the parts of the request that its cost
/// depends on.
pub(crate) struct Asked<'a> {
    route: &'a str,
    method: &'a Method,
    path: &'a str,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, method, path } = self;
        // A call's path says it all.
        if path.is_empty() { write!(f, "{method} {route}") } else { f.write_str(path) }
    }
}

/// The classification of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) criticality: Criticality,
    /// The caller's deadline.
    left: Option<Duration>,
    is_retry: bool,
    pub(crate) from: Origin,
    /// Values of its headers that could not be read.
    pub(crate) malformed: u8,
}

impl Rules {
    pub(crate) fn new(claims: &Claims, route: config::NamedRoute<'_>) -> Self {
        Self { claims: claims.clone(), fixed: route.criticality, route: Arc::clone(route.name) }
    }

    /// Whether requests that go on are marked with their criticality.
    pub(crate) fn marks(&self) -> bool {
        self.claims.is_set || self.fixed.is_some()
    }

    /// Removes claims that are not believed, and caps the criticality. Where [`Self::marks`], that
    /// is written anew instead.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        for name in &*self.claims.foreign {
            headers.remove(name);
        }
        if let Some(priority) = &self.claims.priority
            && !self.claims.classifier.trusts_all_claims()
        {
            headers.remove(&priority.name);
        }
        if !self.marks() && claims_criticality(headers) {
            let criticality = self.criticality(&Metadata::read(headers));
            say_criticality(headers, criticality);
        }
        if !self.claims.counts_attempts {
            headers.remove(X_ENVOY_ATTEMPT_COUNT);
            headers.remove(GRPC_PREVIOUS_RPC_ATTEMPTS);
        }
    }

    /// A request's metadata, without claims that are not believed.
    pub(crate) fn read(&self, headers: &HeaderMap) -> Metadata {
        let read = Metadata::read_with(headers, self.claims.priority.as_deref());
        Metadata { attempt: read.attempt.filter(|_| self.claims.counts_attempts), ..read }
    }

    /// The classification of a request with this metadata.
    pub(crate) fn classify(&self, said: Metadata) -> Class {
        let Metadata { criticality, claimed_in, timeout, attempt, malformed } = said;
        let (criticality, from) = match (self.fixed, claimed_in) {
            (Some(fixed), _) => (fixed, Origin::Route),
            (None, claim) => {
                let (decided, source) = self.claims.classifier.decide(criticality);
                let from = match (source, claim) {
                    (Source::Claimed, Some(claim)) => Origin::Claimed(claim),
                    (Source::Capped, Some(claim)) => Origin::Capped(claim),
                    (Source::Untrusted, _) => Origin::Unbelieved,
                    (_, None) | (Source::Unclaimed, _) => Origin::Listener,
                };
                (decided, from)
            }
        };
        let is_retry = attempt.is_some_and(|attempt| attempt > 1);
        Class { criticality, left: timeout, is_retry, from, malformed }
    }

    /// How critical a request is that says this of itself.
    pub(crate) fn criticality(&self, said: &Metadata) -> Criticality {
        self.fixed.unwrap_or_else(|| self.claims.classifier.criticality(said.criticality))
    }

    /// The cohort of a request: the same to each gate, by the hour of the wall clock.
    fn cohort(&self, headers: &HeaderMap) -> Option<u64> {
        let key = headers.get(self.claims.cohort_header.as_ref()?)?;
        admit::cohort(key.as_bytes(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The operation of a request. `is_grpc`: a call, whose path names the method.
    pub(crate) fn asked<'r, B>(&'r self, request: &'r Request<B>, is_grpc: bool) -> Asked<'r> {
        // Other paths have names in them without end.
        let path = if is_grpc { request.uri().path() } else { "" };
        Asked { route: &self.route, method: request.method(), path }
    }

    /// A request as its gate sees it. Costs are stored by route and method, and for gRPC by path.
    /// Other paths with a cost of their own need a route of their own.
    pub(crate) fn arrival(
        &self,
        class: Class,
        asked: &Asked<'_>,
        customer: Option<&[u8]>,
        headers: &HeaderMap,
        inbound: &Inbound,
    ) -> Arrival {
        Arrival {
            criticality: class.criticality,
            kind: Kind {
                route: inbound.number_of((asked.route, asked.method, asked.path)),
                customer: customer.map_or(0, |customer| inbound.number_of(customer)),
            },
            quota: self.claims.quotas.of(customer),
            timeout: class.left,
            cohort: self.cohort(headers),
            is_retry: class.is_retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_that_another_listener_believes_are_removed() {
        let text = "[[listeners]]\naddress = \":80\"\ncustomer = { header = \"x-customer\" }\n\
                    trust_criticality = \"critical-plus\"\n[listeners.priority]\nheader = \"x-priority\"\n\
                    critical_plus = \"0-7\"\n[[listeners]]\naddress = \":81\"\n[[routes]]\ncluster = \"a\"\n[clusters.a]\n\
                    backends = [\"10.0.0.1:80\"]\n[other_customers]\nrequests_per_second = 10\n";
        let config = config::Config::parse("test", text).unwrap_or_else(|error| panic!("{error}"));
        let quotas = Arc::new(Quotas::new(&config, &Arc::default()));
        let left = config.listeners().iter().map(|listener| {
            let claims = Claims::new(listener, config.listeners(), &quotas);
            let rules = Rules::new(&claims, config.named_routes().next().expect("there is one"));
            let fields = ["x-customer", "x-priority", "x-other"];
            let mut headers: HeaderMap =
                fields.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1"))).collect();
            rules.strip(&mut headers);
            fields.map(|name| headers.contains_key(name))
        });
        assert_eq!(left.collect::<Vec<_>>(), [[true, true, true], [false, false, true]]);
    }
}

//! Classifies the head of a request before it is served.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use http::{HeaderName, Request};
use plimsoll_core::admit::Quota;
use plimsoll_core::classify::Classifier;
use plimsoll_core::meter::Kind;
use plimsoll_wire::metadata::{Metadata, claims_criticality, say_criticality};
use tokio::time::Instant;

use super::context::{Cohort, Customer, RequestContext, RequestHead, Trace};

/// Names the customer of a request.
type CustomerRule = Box<dyn Fn(RequestHead<'_>) -> Option<Customer> + Send + Sync>;
/// Names the cohort of a request.
type CohortRule = Box<dyn Fn(RequestHead<'_>) -> Option<Cohort> + Send + Sync>;
/// The quota of a customer, if it is known.
type QuotaRule = Box<dyn Fn(&Customer) -> Option<Quota> + Send + Sync>;
/// The route of a request, as a number.
type RouteRule = Box<dyn Fn(RequestHead<'_>) -> u64 + Send + Sync>;
/// Whether something is so.
type Rule = Box<dyn Fn(RequestHead<'_>) -> bool + Send + Sync>;

/// The rules that classify requests.
pub(super) struct Rules {
    pub(super) classifier: Classifier,
    pub(super) customer_header: Option<HeaderName>,
    pub(super) customer: Option<CustomerRule>,
    pub(super) cohort_header: Option<HeaderName>,
    pub(super) cohort: Option<CohortRule>,
    pub(super) quota: Option<QuotaRule>,
    pub(super) default_quota: Quota,
    pub(super) route: Option<RouteRule>,
    pub(super) exempt: Option<Rule>,
    hasher: RandomState,
}

/// A request's classification.
pub(super) struct Classified {
    pub(super) context: RequestContext,
    /// The quota of its customer.
    pub(super) quota: Quota,
    /// Until its deadline, if it has one.
    pub(super) left: Option<Duration>,
    /// It had no time any more when it came.
    pub(super) is_expired: bool,
    /// Values of its headers that could not be read.
    pub(super) malformed: u8,
    /// It is served whatever the load.
    pub(super) exempt: bool,
}

impl Classified {
    /// It has waited since.
    pub(super) fn waited(&mut self) {
        self.left = self.context.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            classifier: Classifier::default(),
            customer_header: None,
            customer: None,
            cohort_header: None,
            cohort: None,
            quota: None,
            default_quota: Quota::UNLIMITED,
            route: None,
            exempt: None,
            hasher: RandomState::new(),
        }
    }
}

impl Rules {
    /// Classifies a request by the rules. A claim that is not believed as it stands is replaced in
    /// the headers: the service may pass it on to servers that believe this one.
    pub(super) fn classify<B>(&self, request: &mut Request<B>) -> Classified {
        let classified = self.read(request);
        if !self.classifier.trusts_all_claims() && claims_criticality(request.headers()) {
            say_criticality(request.headers_mut(), classified.context.criticality);
        }
        classified
    }

    /// The number of a customer's name.
    pub(super) fn key(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Whether callers are trusted with something else that could harm others.
    fn believes_attempts(&self) -> bool {
        self.classifier.lets_raise() || self.customer_header.is_some()
    }

    fn read<B>(&self, request: &Request<B>) -> Classified {
        let head = RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() };
        let Metadata { criticality, timeout, attempt, malformed, .. } = Metadata::read(head.headers);
        let by_header = || Customer::read(head.headers, self.customer_header.as_ref()?);
        let mut customer = self.customer.as_ref().and_then(|customer| customer(head)).or_else(by_header);
        if let Some(customer) = &mut customer
            && customer.header.is_none()
        {
            customer.header.clone_from(&self.customer_header);
        }
        let by_header = || Cohort::read(head.headers, self.cohort_header.as_ref()?);
        let mut cohort = self.cohort.as_ref().and_then(|cohort| cohort(head)).or_else(by_header);
        if let Some(cohort) = &mut cohort
            && cohort.header.is_none()
        {
            cohort.header.clone_from(&self.cohort_header);
        }
        let quota = customer.as_ref().and_then(|customer| self.quota.as_ref()?(customer)).unwrap_or(self.default_quota);
        let route = match &self.route {
            Some(route) => route(head),
            None => self.hasher.hash_one((head.method, head.uri.path())),
        };
        let kind = Kind { route, customer: customer.as_ref().map_or(0, |customer| self.key(customer.name())) };
        let context = RequestContext {
            criticality: self.classifier.criticality(criticality),
            customer,
            cohort,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            attempt: attempt.filter(|_| self.believes_attempts()).unwrap_or(1),
            trace: Trace::read(head.headers),
            kind,
        };
        let exempt = self.exempt.as_ref().is_some_and(|exempt| exempt(head));
        let is_expired = timeout.is_some_and(|timeout| timeout.is_zero());
        Classified { context, quota, left: timeout, is_expired, malformed, exempt }
    }
}

//! The context of the request that is being served.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use plimsoll_core::Criticality;
use plimsoll_core::admit::{Pressure, cohort};
use plimsoll_core::meter::Kind;
use plimsoll_wire::headers::TRACEPARENT;
use plimsoll_wire::trace_context;
use tokio::time::Instant;

use super::cost;
use crate::clock::after;

/// The context of a request: in its extensions, and by [`current`] in all code that serves it.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The criticality, as far as the caller is trusted with it.
    pub criticality: Criticality,
    /// The customer, if the request names one.
    pub customer: Option<Customer>,
    /// The cohort, if the request names one.
    pub cohort: Option<Cohort>,
    /// The time after which the caller no longer wants an answer.
    pub deadline: Option<Instant>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Its trace, if it belongs to one.
    pub(crate) trace: Option<Arc<Trace>>,
    /// The key of its cost estimate.
    pub(super) kind: Kind,
}

/// The trace of a request, for requests made on its behalf.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) parent: HeaderValue,
    pub(crate) state: Option<HeaderValue>,
}

/// The customer of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "tenant")]
pub struct Customer {
    name: HeaderValue,
    /// The header that names it in requests made on its behalf.
    pub(crate) header: Option<HeaderName>,
}

impl Customer {
    /// Stands for the name in reports on requests without a customer.
    pub const NONE: &str = "no customer";

    /// The customer of this name. `None` if a header cannot hold the name.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        Some(Self { name: HeaderValue::from_str(name).ok()?, header: None })
    }

    /// Sets the header that carries the customer in requests sent on its behalf.
    ///
    /// By default it is the [`customer_header`](super::ServerLayerBuilder::customer_header), if
    /// that is set.
    #[must_use]
    pub fn carried_in(self, header: HeaderName) -> Self {
        Self { header: Some(header), ..self }
    }

    pub(super) fn read(headers: &HeaderMap, header: &HeaderName) -> Option<Self> {
        let mut names = headers.get_all(header).iter();
        let name = names.next()?.clone();
        // Two names are none: another server may read the other one.
        names.next().is_none().then(|| Self { name, header: Some(header.clone()) })
    }

    /// The name as bytes. A name from outside need not be text.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(crate) fn header_value(&self) -> &HeaderValue {
        &self.name
    }
}

/// A cohort: requests that are admitted or shed together, such as a session or all calls of a task.
#[derive(Clone, PartialEq, Eq)]
pub struct Cohort {
    key: HeaderValue,
    /// The header that names it in requests made on its behalf.
    pub(crate) header: Option<HeaderName>,
}

impl Cohort {
    /// The cohort of this key, such as a session name. `None` if a header cannot hold it.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        let key = HeaderValue::from_str(key).ok().filter(|key| !key.is_empty())?;
        Some(Self { key, header: None })
    }

    /// Sets the header that carries the cohort in requests sent on its behalf.
    ///
    /// By default it is the [`cohort_header`](super::ServerLayerBuilder::cohort_header), if that is
    /// set.
    #[must_use]
    pub fn carried_in(self, header: HeaderName) -> Self {
        Self { header: Some(header), ..self }
    }

    pub(super) fn read(headers: &HeaderMap, header: &HeaderName) -> Option<Self> {
        let key = headers.get(header).filter(|key| !key.is_empty())?.clone();
        Some(Self { key, header: Some(header.clone()) })
    }

    /// The key as bytes. A key from outside need not be text.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) fn header_value(&self) -> &HeaderValue {
        &self.key
    }

    /// Its number in this hour, equal on all servers: they share the wall clock.
    pub(super) fn number(&self) -> Option<u64> {
        cohort(self.key(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Debug for Cohort {
    /// Leaves out the key: with a session's name a reader may be able to continue the session, and
    /// contexts are written to logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cohort").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Trace {
    /// The trace in these headers, if there is one that can be read.
    pub(super) fn read(headers: &HeaderMap) -> Option<Arc<Self>> {
        let parent = headers.get(TRACEPARENT)?;
        trace_context::read(headers).ok()?;
        Some(Arc::new(Self { parent: parent.clone(), state: trace_context::state(headers) }))
    }
}

impl RequestContext {
    /// A request of this criticality, the first attempt, without customer, cohort, deadline and trace.
    ///
    /// The layer makes the contexts of requests. A context of your own is for work without a request, such
    /// as a cron job, and for tests.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use plimsoll::Criticality;
    /// use plimsoll::server::{Customer, RequestContext};
    ///
    /// let context = RequestContext::new(Criticality::Sheddable)
    ///     .with_customer(Customer::new("ann").expect("a name"))
    ///     .within(Duration::from_secs(2));
    /// assert!(context.deadline.is_some());
    /// ```
    #[must_use]
    pub fn new(criticality: Criticality) -> Self {
        Self {
            criticality,
            customer: None,
            cohort: None,
            deadline: None,
            attempt: 1,
            trace: None,
            kind: Kind { route: 0, customer: 0 },
        }
    }

    /// The same of a customer.
    #[must_use]
    pub fn with_customer(mut self, customer: Customer) -> Self {
        self.customer = Some(customer);
        self
    }

    /// The same of a cohort.
    #[must_use]
    pub fn with_cohort(mut self, cohort: Cohort) -> Self {
        self.cohort = Some(cohort);
        self
    }

    /// The same with a deadline this long from now.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.deadline = Some(after(Instant::now(), timeout));
        self
    }

    /// The same as this attempt, from 1.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt.max(1);
        self
    }

    /// The same as a part of the trace in these headers, `traceparent` and `tracestate`. Has no effect
    /// if they cannot be read.
    #[must_use]
    pub fn with_trace(mut self, headers: &HeaderMap) -> Self {
        self.trace = Trace::read(headers);
        self
    }

    /// The field `traceparent` of the request, by which logs can name its trace. `None` without one,
    /// and for a malformed or repeated one.
    #[must_use]
    pub fn trace_parent(&self) -> Option<&HeaderValue> {
        self.trace.as_ref().map(|trace| &trace.parent)
    }
}

/// The head of a request, the argument of rules.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// The request that the calling code serves.
///
/// Known in a service within a [`ServerLayer`](super::ServerLayer), in the body of its response,
/// and in tasks started by [`spawn`](super::spawn) and [`spawn_blocking`](super::spawn_blocking).
#[must_use]
pub fn current() -> Option<RequestContext> {
    Some(cost::current()?.context.clone())
}

/// How close the server is to shedding requests as critical as the current one.
///
/// A handler under pressure should answer at less cost if it can. [`Pressure::None`] outside of
/// requests.
#[must_use]
#[doc(alias("backpressure", "brownout"))]
pub fn pressure() -> Pressure {
    cost::current().map_or(Pressure::None, |request| request.pressure())
}

/// Charges the current request for a resource of your own: tokens, rows, bytes read.
///
/// The sum by name stands in the `request_cost` of its load report, beside the measured `cpu`,
/// which cannot be charged. Has no effect outside of requests, for exempt requests and without
/// admission.
///
/// ```
/// plimsoll::server::charge("tokens", 812.0);
/// ```
pub fn charge(name: impl Into<Cow<'static, str>>, amount: f64) {
    if let Some(request) = charged() {
        request.charge_with(name.into(), amount);
    }
}

/// CPU time of this machine that the current request has used so far, without the running section.
///
/// `None` outside of requests, for exempt requests and without admission.
#[must_use]
pub fn used() -> Option<Duration> {
    Some(charged()?.used())
}

fn charged() -> Option<Arc<cost::Request>> {
    cost::current().filter(|request| request.is_charged())
}

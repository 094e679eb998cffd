//! What is known of the request that is being served.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use plimsoll_core::Criticality;
use plimsoll_core::admit::{Pressure, cohort};
use plimsoll_core::meter::Kind;
use tokio::time::Instant;

use super::cost;

/// What is known of a request: in its extensions, and by [`current`] in all code that serves it.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// How bad it is to lose it.
    pub criticality: Criticality,
    /// Whose it is.
    pub customer: Option<Customer>,
    /// What it is taken on or turned away together with.
    pub cohort: Option<Cohort>,
    /// After this nobody wants an answer any more.
    pub deadline: Option<Instant>,
    /// Which attempt it is; 1 is the first.
    pub attempt: u32,
    /// What its cost is remembered by.
    pub(super) kind: Kind,
}

/// Whose a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Customer {
    name: HeaderValue,
    /// The header in which requests made on its behalf name it.
    pub(crate) header: Option<HeaderName>,
}

impl Customer {
    /// The customer of this name; `None` if it holds what a header cannot.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        Some(Self { name: HeaderValue::from_str(name).ok()?, header: None })
    }

    /// The same, and requests made on its behalf name it in `header`. Without this they do in the header that
    /// [`customer_header`](super::ServerLayerBuilder::customer_header) tells of, if it was set.
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

    /// Its name, as bytes: what came from outside need not be text.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(crate) fn header_value(&self) -> &HeaderValue {
        &self.name
    }
}

/// What a request is taken on or turned away together with under overload: the session of a user, or all calls of one task.
#[derive(Clone, PartialEq, Eq)]
pub struct Cohort {
    key: HeaderValue,
    /// The header in which requests made on its behalf name it.
    pub(crate) header: Option<HeaderName>,
}

impl Cohort {
    /// The cohort of this key, such as the name of a session; `None` if it is empty, or holds what a header cannot.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        let key = HeaderValue::from_str(key).ok().filter(|key| !key.is_empty())?;
        Some(Self { key, header: None })
    }

    /// The same, and requests made on its behalf name it in `header`. Without this they do in the header that
    /// [`cohort_header`](super::ServerLayerBuilder::cohort_header) tells of, if it was set.
    #[must_use]
    pub fn carried_in(self, header: HeaderName) -> Self {
        Self { header: Some(header), ..self }
    }

    pub(super) fn read(headers: &HeaderMap, header: &HeaderName) -> Option<Self> {
        let key = headers.get(header).filter(|key| !key.is_empty())?.clone();
        Some(Self { key, header: Some(header.clone()) })
    }

    /// Its key, as bytes: what came from outside need not be text.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) fn header_value(&self) -> &HeaderValue {
        &self.key
    }

    /// What it is known by in this hour, to all servers: the wall clock is what they have in common.
    pub(super) fn number(&self) -> Option<u64> {
        cohort(self.key(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Debug for Cohort {
    /// Without the key: who knows the name of a session may be able to go on with it, and contexts are written into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cohort").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The head of a request, for rules of your own.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it asks for.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// The request that is being served by the code that calls this: in a service within a
/// [`ServerLayer`](super::ServerLayer), in the body of its response, and in tasks started by [`spawn`](super::spawn) and
/// [`spawn_blocking`](super::spawn_blocking).
#[must_use]
pub fn current() -> Option<RequestContext> {
    Some(cost::current()?.context.clone())
}

/// How near the server is to turning away requests as critical as the one that is being served: whoever can answer at less cost
/// had better do so. [`Pressure::None`] outside of requests.
#[must_use]
pub fn pressure() -> Pressure {
    cost::current().map_or(Pressure::None, |request| request.pressure())
}

/// Charges so much of something to the request that is being served: tokens, rows, bytes read, by a name of your own. It stands in the
/// `request_cost` of its load report beside `cpu`, which is measured and cannot be charged; of what is charged several times,
/// the sum does. Outside of requests, and where no cost is measured (of exempt requests, and without admission), nothing happens.
///
/// ```
/// plimsoll::server::charge("tokens", 812.0);
/// ```
pub fn charge(name: impl Into<Cow<'static, str>>, amount: f64) {
    if let Some(request) = charged() {
        request.charge_with(name.into(), amount);
    }
}

/// CPU time that the request which is being served has used so far, the running section not included. `None` outside of requests, and
/// where no cost is measured.
#[must_use]
pub fn used() -> Option<Duration> {
    Some(charged()?.used())
}

fn charged() -> Option<Arc<cost::Request>> {
    cost::current().filter(|request| request.is_charged())
}

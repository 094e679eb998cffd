//! The facts about a request on its way, for a later explanation.
//!
//! It lies on the stack of the request, and allocates nothing: most requests are never asked about.
//! It copies the names by which a person knows the request, as far as they fit, but not the query,
//! which may hold private data.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{Method, Request, StatusCode};
use plimsoll::address::Address;
use plimsoll::client::{Cluster, FailedAttempt};
use plimsoll::server::admission::Assessment;
use plimsoll_core::pick::HashKey;
use plimsoll_core::request_limit::Over;
use plimsoll_core::shedding::Label;
use plimsoll_http1::MAX_METHOD;

use super::id::{Id, RequestId};
use super::{Criticality, End, Explanation, Gated, HashChoice, Reason, customer_label};
use crate::classify::Class;

/// The place that a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The name of the listener.
    pub(crate) listener: &'a Arc<str>,
    pub(crate) client: Address,
}

/// The key of a request, and the cluster that knows its home.
pub(crate) struct HashFacts {
    /// The source of the key, and the key.
    pub(crate) key: Option<(Arc<str>, HashKey)>,
    pub(crate) cluster: Cluster,
}

impl HashFacts {
    /// The home is looked up now, and not for each request.
    fn choice(self) -> HashChoice {
        let (source, key) = self.key.unzip();
        HashChoice { source, home: key.and_then(|key| self.cluster.hash_home(key)) }
    }
}

/// The facts about a request.
pub(crate) struct Case {
    begun: Instant,
    method: Method,
    path: Label,
    id: RequestId,
    /// The id that the proxy made for it, if it did.
    own_id: Option<Label>,
    customer: Option<Label>,
    route: Option<Arc<str>>,
    cluster: Option<Arc<str>>,
    pub(crate) class: Option<Class>,
    pub(crate) said: Option<Assessment>,
    /// The limit on the customer's requests, if this one is over it.
    pub(crate) over: Option<Over>,
    /// The key of a request under the policy `hash`, while requests are recorded.
    pub(crate) hash: Option<HashFacts>,
    /// The route may give something in place of an error.
    pub(crate) may_degrade: bool,
    /// Attempts at backends that failed.
    pub(crate) failed: Vec<FailedAttempt>,
}

impl Case {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        Self {
            begun: Instant::now(),
            method: beginning_of(request.method()),
            path: request.uri().path().into(),
            id: RequestId::read(request.headers()),
            own_id: None,
            customer: None,
            route: None,
            cluster: None,
            class: None,
            said: None,
            over: None,
            hash: None,
            may_degrade: false,
            failed: Vec::new(),
        }
    }

    /// The id to ask about it: the sender's, else one that is made now.
    pub(super) fn id(&mut self) -> Id {
        match self.own_id {
            Some(text) => Id { text, is_own: true },
            None => {
                let id = self.id.or_own();
                self.own_id = id.is_own.then_some(id.text);
                id
            }
        }
    }

    /// The id that the proxy made for it, if it did.
    pub(crate) fn own_id(&self) -> Option<Label> {
        self.own_id
    }

    /// It takes this route to this cluster, for this customer.
    pub(crate) fn goes_to(&mut self, route: &Arc<str>, cluster: &Arc<str>, customer: Option<&[u8]>) {
        self.customer = customer.map(customer_label);
        (self.route, self.cluster) = (Some(Arc::clone(route)), Some(Arc::clone(cluster)));
    }

    /// The explanation of how it ended.
    pub(super) fn explain(&mut self, source: Source<'_>, id: Id, end: End) -> Explanation {
        let ended = Instant::now();
        Explanation {
            id: id.text,
            is_own_id: id.is_own,
            at: SystemTime::now(),
            ended,
            took: ended.saturating_duration_since(self.begun),
            listener: Arc::clone(source.listener),
            client: source.client,
            method: self.method.clone(),
            path: self.path,
            route: self.route.clone(),
            cluster: self.cluster.clone(),
            criticality: self.class.map(|Class { criticality, from, malformed, .. }| Criticality {
                level: criticality,
                from,
                malformed,
            }),
            customer: self.customer,
            over: self.over,
            gate: self.said.map(|Assessment { shed, is_dry_run, expected, pressure, standing, fleet }| Gated {
                decision: shed.map_or("admitted", |reason| reason.name()),
                is_dry_run,
                expected: Duration::try_from_secs_f64(expected).unwrap_or_default(),
                pressure,
                standing,
                fleet,
            }),
            hash: self.hash.take().map(HashFacts::choice),
            failed: std::mem::take(&mut self.failed),
            end,
        }
    }
}

/// The method, or the beginning of one that is refused for its length.
fn beginning_of(method: &Method) -> Method {
    let name = method.as_str().as_bytes();
    if name.len() <= MAX_METHOD {
        return method.clone();
    }
    Method::from_bytes(&name[..MAX_METHOD]).expect("a token is one as far as it goes")
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How a request ended that a backend answered.
pub(crate) struct BackendAnswer {
    pub(crate) status: StatusCode,
    pub(crate) backend: Address,
    pub(crate) attempts: u32,
    /// Why the backend did not serve it, in a word; `None` if it did.
    pub(crate) failure: Option<Reason>,
}

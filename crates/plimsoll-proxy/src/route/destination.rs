//! Where a route leads, on one thread: to a cluster, or to an end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use plimsoll::client::{self, Batch, Client, FailedAttempt, Informational, Protocol, RequestOptions, Tracer};
use plimsoll::server::Customer;
use plimsoll::server::admission::{Assessment, Facts, Permit};
use plimsoll_core::pick::HashKey;
use plimsoll_core::request_limit::Over;
use plimsoll_core::slots::Holder;
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{Criticality, Rejection};
use plimsoll_wire::metadata::{Metadata, say_criticality};

use crate::classify::request_limits::RequestLimits;
use crate::classify::{self, Claims, Class};
use crate::config;
use crate::degrade::Degrade;
use crate::fixed::FixedAnswer;
use crate::forwarded::HostRewrite;
use crate::inbound::Inbound;
use crate::peer::Peer;
use crate::reason::Refusal;
use crate::request_body::RequestBody;
use crate::route::changes::Changes;
use crate::route::header_rules::HeaderRules;
use crate::route::holders;
use crate::route::keys::{Keyed, Keys};
use crate::route::mirror::Mirror;
use crate::route::redirect::Redirect;
use crate::route::split::{SideOf, Sides};

/// Where a route leads.
pub(crate) enum Destination {
    /// To a cluster.
    Cluster(Arc<Target>),
    /// To one of several clusters.
    Split(Sides),
    /// To an answer that stands in the configuration, with these changes to its fields.
    Answer(FixedAnswer, Option<HeaderRules>),
    /// To another URL, in the same way.
    Redirect(Redirect, Option<HeaderRules>),
    /// Nowhere: nothing is said, and the client does not wait for it.
    BlackHole,
}

impl Destination {
    /// Whether a path may lead here that servers read in different ways; where no backend gets it,
    /// it may.
    pub(crate) fn takes_ambiguous_paths(&self) -> bool {
        match self {
            Self::Cluster(target) => target.takes_ambiguous_paths,
            Self::Split(sides) => sides.takes_ambiguous_paths(),
            Self::Answer(..) | Self::Redirect(..) | Self::BlackHole => true,
        }
    }
}

/// The cluster that a route leads to, on one thread, and how it is asked.
pub(crate) struct Target {
    client: Client<RequestBody>,
    request_timeout: Option<Duration>,
    host_rewrite: Option<HostRewrite>,
    /// Backends, or those of copies, get the client's address by the PROXY protocol.
    tells_address: bool,
    /// Backends are spoken to in HTTP/2 only.
    is_http2: bool,
    /// The name of the route.
    route: Arc<str>,
    /// The name of the cluster.
    cluster: Arc<str>,
    /// The rules of criticality and customers.
    rules: classify::Rules,
    /// Requests are marked by those rules, or a gate asks for them.
    is_classified: bool,
    /// Requests may be throttled, or find no headroom, by criticality.
    ranks: bool,
    gate: Option<RouteGate>,
    /// The customer holds the slots of its requests, and not the client.
    customers_hold_slots: bool,
    /// The limits on requests of customers, if this route has any.
    request_limits: Option<Arc<RequestLimits>>,
    /// The gate of batch work, if its requests are such.
    batch: Option<Batch>,
    /// Its backends get paths that servers read in different ways.
    takes_ambiguous_paths: bool,
    /// The keys of its requests; `None` unless its policy reads them.
    keys: Option<Box<Keys>>,
    /// Answers in place of errors.
    pub(crate) degrade: Option<Degrade>,
    /// Changes to paths and fields; most routes have none.
    pub(crate) changes: Option<Box<Changes>>,
    /// The side of a split that it is.
    pub(crate) side: Option<Box<SideOf>>,
    /// Copies its requests for another cluster.
    pub(crate) mirror: Option<Box<Mirror>>,
}

/// The gate of a route's cluster.
struct RouteGate {
    inbound: Arc<Inbound>,
    /// The route is exempt: all of its requests are admitted.
    is_open: bool,
}

impl Target {
    /// `claims` and `batch` are those of the listener, `inbound` the gate of the cluster.
    pub(crate) fn new(
        client: Client<RequestBody>,
        route: config::NamedRoute<'_>,
        claims: &Claims,
        inbound: Option<Arc<Inbound>>,
        batch: Option<Batch>,
        degrade: Option<Degrade>,
        keys: Option<Keys>,
    ) -> Self {
        let rules = classify::Rules::new(claims, route);
        let settings = client.cluster().config();
        Self {
            route: Arc::clone(route.name),
            cluster: client.cluster().name().into(),
            is_classified: rules.marks() || inbound.is_some(),
            rules,
            ranks: settings.throttle != ThrottlePolicy::Off || settings.localities.is_some(),
            customers_hold_slots: claims.customers_hold_slots(),
            request_limits: claims.request_limits().filter(|_| !route.exempt).cloned(),
            gate: inbound.map(|inbound| RouteGate { inbound, is_open: route.exempt }),
            tells_address: settings.proxy_protocol.is_some(),
            is_http2: settings.requests.protocol == Protocol::Http2,
            client,
            batch,
            takes_ambiguous_paths: route.ambiguous_paths,
            keys: keys.map(Box::new),
            degrade,
            changes: Changes::new(&route),
            side: None,
            mirror: None,
            request_timeout: route.request_timeout,
            host_rewrite: route.host_rewrite.as_ref().map(HostRewrite::new),
        }
    }

    /// Lets a request of `customer` in if its limit has room for it, and the process behind the
    /// cluster can take it on, where that is looked at; and says how critical it is, where that
    /// matters.
    pub(crate) fn let_in<B>(&self, request: &Request<B>, is_grpc: bool, customer: Option<&[u8]>) -> Decision {
        let over = self.request_limits.as_ref().and_then(|limits| limits.take(customer).err());
        match over.and_then(Over::shed) {
            Some(shed) => Decision { permit: Err(Refusal::Rejected(shed)), over, ..Decision::default() },
            None => Decision { over, ..self.ask_gate(request, is_grpc, customer) },
        }
    }

    fn ask_gate<B>(&self, request: &Request<B>, is_grpc: bool, customer: Option<&[u8]>) -> Decision {
        let rules = &self.rules;
        if !self.is_classified && !self.ranks {
            return Decision::default();
        }
        let read = rules.read(request.headers());
        let taken_as = |criticality| Some(Metadata { criticality: Some(criticality), ..read });
        if !self.is_classified {
            return Decision { metadata: taken_as(rules.criticality(&read)), ..Decision::default() };
        }
        let class = rules.classify(read);
        let (permit, said) = match &self.gate {
            None => (Ok(None), None),
            Some(gate) if gate.is_open => (Ok(Some(gate.inbound.admit_exempt())), None),
            Some(RouteGate { inbound, .. }) => {
                let asked = rules.asked(request, is_grpc);
                let name = customer.unwrap_or(Customer::NONE.as_bytes()).escape_ascii();
                let arrival = rules.arrival(class, &asked, customer, request.headers(), inbound);
                let is_expired = arrival.timeout.is_some_and(|timeout| timeout.is_zero());
                let (permit, said) = inbound.ask(&Facts {
                    arrival,
                    is_expired,
                    name: customer.unwrap_or_default(),
                    customer: &name,
                    route: &asked,
                });
                (permit.map(Some).map_err(Refusal::Rejected), Some(said))
            }
        };
        let metadata = taken_as(class.criticality);
        Decision { permit, metadata, is_marked: rules.marks(), class: Some(class), said, over: None }
    }

    /// A request of this class found no backend after its gate said this.
    pub(crate) fn lost(&self, class: Class, said: Assessment, reason: Rejection) {
        if let Some(gate) = &self.gate {
            gate.inbound.lost(class.criticality, said, reason);
        }
    }

    /// The holder of the slot of a request of `customer`, if it is the customer.
    pub(crate) fn customer_holder(&self, customer: Option<&[u8]>) -> Option<Holder> {
        customer.filter(|_| self.customers_hold_slots).map(holders::of_customer)
    }

    /// How critical a request is.
    pub(crate) fn criticality(&self, headers: &HeaderMap) -> Criticality {
        self.rules.criticality(&self.rules.read(headers))
    }

    /// The changes to the fields of each response.
    pub(crate) fn response_rules(&self) -> Option<&HeaderRules> {
        self.changes.as_ref()?.response.as_ref()
    }

    /// The key of a request as it came, where one is read. Boxed, because few are, and the future of
    /// every request would hold it.
    pub(crate) fn keyed<B>(&self, request: &Request<B>, client: impl Fn() -> Option<IpAddr>) -> Option<Box<Keyed>> {
        self.keys.as_ref().map(|keys| Box::new(keys.of(request, client)))
    }

    /// A key with its source in words.
    pub(crate) fn named_key(&self, keyed: &Keyed) -> Option<(Arc<str>, HashKey)> {
        let source = self.keys.as_ref()?.source(keyed)?;
        Some((Arc::clone(source), keyed.key?))
    }

    /// The cluster, which knows the homes of keys.
    pub(crate) fn live_cluster(&self) -> &client::Cluster {
        self.client.cluster()
    }

    /// Gives the client of a request its cookie, if it needs one.
    pub(crate) fn mark_response<B>(&self, keyed: Option<Box<Keyed>>, is_tls: bool, response: &mut Response<B>) {
        if let (Some(keys), Some(keyed)) = (&self.keys, keyed) {
            keys.mark(*keyed, is_tls, response);
        }
    }

    /// Copies its requests by this mirror.
    pub(crate) fn mirrored(mut self, mirror: Mirror) -> Self {
        self.tells_address |= mirror.tells_address();
        self.mirror = Some(Box::new(mirror));
        self
    }

    /// The name of the route.
    pub(crate) fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// Changes a request of `peer` as the route has it, and marks it as so critical.
    pub(crate) fn prepare<B>(&self, request: &mut Request<B>, peer: &Peer, mark: Option<Criticality>) {
        self.rules.strip(request.headers_mut());
        if let Some(criticality) = mark {
            say_criticality(request.headers_mut(), criticality);
        }
        if let Some(host) = &self.host_rewrite {
            host.apply(request);
        }
        // A client at a Unix socket has no address to tell: the header says that it is unknown.
        if self.tells_address
            && let (Some(source), Some(destination)) = (peer.address.inet(), peer.local.inet())
        {
            let address = client::ClientAddress { source, destination };
            request.extensions_mut().insert(address);
        }
    }

    /// Whether backends can be asked for another protocol, which they are on HTTP/1.
    pub(crate) fn can_upgrade(&self) -> bool {
        !self.is_http2
    }

    /// Whether its backends get paths that servers read in different ways.
    pub(crate) fn takes_ambiguous_paths(&self) -> bool {
        self.takes_ambiguous_paths
    }

    /// The name of the cluster.
    pub(crate) fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// Not `async` itself: the future would hold the request twice, and each idle connection has
    /// its memory.
    pub(crate) fn send<'a>(
        &'a self,
        request: Request<RequestBody>,
        informational: Option<Informational>,
        metadata: Option<Metadata>,
        (client, key): (Holder, Option<HashKey>),
        tracer: Option<Arc<dyn Tracer>>,
        failed: &'a mut Vec<FailedAttempt>,
    ) -> impl Future<Output = Result<Response<client::ResponseBody>, client::Error>> + Send + 'a {
        let mut options = RequestOptions::default();
        (options.timeout, options.informational, options.metadata) = (self.request_timeout, informational, metadata);
        options.batch.clone_from(&self.batch);
        (options.client, options.key, options.tracer) = (client, key, tracer);
        self.client.send_recording(request, options, failed)
    }
}

/// The decision on a request before it goes on.
pub(crate) struct Decision {
    /// None where no gate is.
    pub(crate) permit: Result<Option<Box<Permit>>, Refusal>,
    /// The request's metadata, where anything here depends on it.
    pub(crate) metadata: Option<Metadata>,
    /// How critical it is is to be written on it.
    pub(crate) is_marked: bool,
    /// Its classification; `None` where only a throttle depends on it.
    pub(crate) class: Option<Class>,
    /// The gate's decision, if it was asked.
    pub(crate) said: Option<Assessment>,
    /// The limit on the customer's requests, if this one is over it.
    pub(crate) over: Option<Over>,
}

impl Default for Decision {
    fn default() -> Self {
        Self { permit: Ok(None), metadata: None, is_marked: false, class: None, said: None, over: None }
    }
}

//! One listening address on one thread: its limits, its routes, and what the threads share of it.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderMap, Request, Response};
use plimsoll::client::{self, Client, FailedAttempt, Informational, Terms};
use plimsoll_core::Criticality;
use plimsoll_wire::shed::ShedReason;
use tokio::sync::Notify;

use crate::access_log::AccessLog;
use crate::classify::{self, Claims, Class};
use crate::clients::Clients;
use crate::config;
use crate::ended::EndedCounts;
use crate::explain::Recorder;
use crate::forwarded::{self, HostRewrite};
use crate::handshake::Handshakes;
use crate::http2::{Allowance, Stalled};
use crate::inbound::{Inbound, Names, Passage, Said};
use crate::peer::Peer;
use crate::phase::Life;
use crate::pressure::Pressure;
use crate::reason::{Refusal, Refusals};
use crate::request_body::RequestBody;
use crate::route::RouteTable;
use crate::tls::ServerTls;
use crate::turned_away::TurnedAwayCounts;

/// What a client may take of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The listener's name.
    pub(crate) name: Arc<str>,
    pub(crate) header_read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_headers: usize,
    pub(crate) max_header_size: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,
    pub(crate) max_body: Option<u64>,
    pub(crate) max_uri: usize,
    /// Bytes a second; zero when off.
    pub(crate) min_body_rate: u64,
    pub(crate) upgrade_idle_timeout: Duration,
    pub(crate) http2: Allowance,
    /// Which header of the PROXY protocol connections begin with.
    pub(crate) proxy_protocol: Option<config::ProxyProtocol>,
    pub(crate) forwarding: forwarded::Rules,
}

impl From<&config::Listener> for Limits {
    fn from(listener: &config::Listener) -> Self {
        Self {
            name: listener.name.as_str().into(),
            header_read_timeout: listener.header_read_timeout,
            idle_timeout: listener.idle_timeout,
            max_headers: listener.max_headers.get() as usize,
            max_header_size: listener.max_header_size.bytes(),
            max_connections: listener.max_connections.get(),
            max_connections_per_client: listener.max_connections_per_client,
            max_body: listener.max_body.map(|size| size.bytes() as u64),
            max_uri: listener.max_uri.bytes(),
            min_body_rate: listener.min_body_rate.map_or(0, |size| size.bytes() as u64),
            upgrade_idle_timeout: listener.upgrade_idle_timeout,
            http2: listener.http2,
            proxy_protocol: listener.proxy_protocol,
            forwarding: forwarded::Rules::from(listener),
        }
    }
}

/// What requests are remembered under that name no customer.
const NO_CUSTOMER: &[u8] = b"(none)";

/// Where a route leads, on one thread.
pub(crate) struct Target {
    client: Client<RequestBody>,
    request_timeout: Option<Duration>,
    host_rewrite: Option<HostRewrite>,
    /// Backends are told of clients by the PROXY protocol.
    tells_address: bool,
    /// The route, in words.
    route: Arc<str>,
    /// How its requests are told apart; `None` where nothing depends on it.
    rules: Option<classify::Rules>,
    gate: Option<RouteGate>,
}

/// The gate of a route's cluster.
struct RouteGate {
    inbound: Arc<Inbound>,
    /// The route is exempt: all of its requests are let in.
    is_open: bool,
}

impl Target {
    /// `claims` are those of the listener, `inbound` the gate of the cluster.
    pub(crate) fn new(
        client: Client<RequestBody>,
        route: &config::Route,
        claims: &Claims,
        inbound: Option<Arc<Inbound>>,
    ) -> Self {
        let rules = classify::Rules::new(claims, route);
        Self {
            route: route.to_string().into(),
            rules: (rules.marks() || inbound.is_some()).then_some(rules),
            gate: inbound.map(|inbound| RouteGate { inbound, is_open: route.exempt }),
            tells_address: client.cluster().config().proxy_protocol.is_some(),
            client,
            request_timeout: route.request_timeout,
            host_rewrite: route.host_rewrite.as_ref().map(|host| HostRewrite::new(&host.0)),
        }
    }

    /// Lets the request in if the process behind the cluster can take it on, where that is looked at; and says how critical it
    /// is, where that matters.
    pub(crate) fn let_in<B>(&self, request: &Request<B>) -> Decided {
        let Some(rules) = &self.rules else { return Decided::default() };
        let class = rules.classify(request.headers());
        let (passage, said) = match &self.gate {
            None => (Ok(None), None),
            Some(gate) if gate.is_open => (Ok(Some(gate.inbound.let_in())), None),
            Some(RouteGate { inbound, .. }) => {
                let customer = rules.customer(request.headers()).unwrap_or(NO_CUSTOMER).escape_ascii();
                let names = Names { customer: &customer, route: &rules.asked(request) };
                let (passage, said) = inbound.ask(&rules.arrival(class, request, inbound), names);
                (passage.map(Some).map_err(Refusal::Shed), Some(said))
            }
        };
        Decided { passage, mark: rules.marks().then_some(class.criticality), class: Some(class), said }
    }

    /// A request of this class, of which its gate said this, got no backend.
    pub(crate) fn lost(&self, class: Class, said: Said, reason: ShedReason) {
        if let Some(gate) = &self.gate {
            gate.inbound.lost(class.criticality, said, reason);
        }
    }

    /// Whose a request is, where the listener says how that is known.
    pub(crate) fn customer<'r>(&self, headers: &'r HeaderMap) -> Option<&'r [u8]> {
        self.rules.as_ref()?.customer(headers)
    }

    /// The route, in words.
    pub(crate) fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// Changes a request of `peer` as the route has it, and marks it as so critical.
    pub(crate) fn prepare<B>(&self, request: &mut Request<B>, peer: &Peer, mark: Option<Criticality>) {
        if let Some(criticality) = mark {
            classify::mark(request.headers_mut(), criticality);
        }
        if let Some(host) = &self.host_rewrite {
            host.apply(request);
        }
        if self.tells_address {
            let address = client::ClientAddress { source: peer.address, destination: peer.local };
            request.extensions_mut().insert(address);
        }
    }

    pub(crate) fn cluster_name(&self) -> &str {
        self.client.cluster().name()
    }

    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
        informational: Option<Informational>,
        failed: &mut Vec<FailedAttempt>,
    ) -> Result<Response<client::ResponseBody>, client::Error> {
        let mut terms = Terms::default();
        (terms.timeout, terms.informational) = (self.request_timeout, informational);
        self.client.send_telling(request, terms, failed).await
    }
}

/// What was decided about a request before it goes on.
pub(crate) struct Decided {
    /// None where no gate is.
    pub(crate) passage: Result<Option<Box<Passage>>, Refusal>,
    /// How critical it is, if that is to be written on it.
    pub(crate) mark: Option<Criticality>,
    /// What it was made of it; `None` where nothing depends on it.
    pub(crate) class: Option<Class>,
    /// What its gate said, if it was asked.
    pub(crate) said: Option<Said>,
}

impl Default for Decided {
    fn default() -> Self {
        Self { passage: Ok(None), mark: None, class: None, said: None }
    }
}

/// What the threads of one listener share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) refusals: Refusals,
    pub(crate) ended: EndedCounts,
    pub(crate) turned_away: TurnedAwayCounts,
    /// HTTP/2 streams that were ended because their client took nothing.
    pub(crate) stalled_streams: AtomicU64,
    /// How short the process is of memory and descriptors.
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) clients: Arc<Clients>,
    /// TLS of connections that come from now on; none for plain ones.
    pub(crate) tls: ArcSwapOption<ServerTls>,
    pub(crate) handshakes: Handshakes,
    connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    room: Notify,
}

impl Shared {
    /// Of a listener that begins.
    pub(crate) fn new(pressure: Arc<Pressure>) -> Self {
        Self { pressure, ..Self::default() }
    }

    /// Speaks TLS like this from now on, or none.
    pub(crate) fn set_tls(&self, tls: Option<&ServerTls>) {
        let earlier = self.tls.load();
        self.tls.store(tls.map(|tls| Arc::new(tls.continuing(earlier.as_deref()))));
    }

    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were not taken, by reason.
    pub(crate) fn turned_away(&self) -> Vec<(&'static str, u64)> {
        self.turned_away.counts().chain([("client", self.clients.refused())]).collect()
    }

    /// The limit may be another now: those who wait for room look again.
    pub(crate) fn limits_changed(&self) {
        self.room.notify_waiters();
    }
}

impl Stalled for Shared {
    fn on_stalled_stream(&self) {
        self.stalled_streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that counts against the listener's limit until this is dropped.
pub(crate) struct Seat(Arc<Shared>);

impl Seat {
    /// Waits until there is room for one more.
    pub(crate) async fn take(listener: &ListenerState) -> Self {
        let shared = &listener.shared;
        loop {
            // Registered before the look, so that a seat freed in between wakes this one.
            let mut room = pin!(shared.room.notified());
            room.as_mut().enable();
            let most = listener.limits.load().max_connections;
            let one_more = |open: usize| (open < most).then_some(open + 1);
            if shared.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
                return Self(Arc::clone(shared));
            }
            room.await;
        }
    }

    /// One whether there is room or not.
    pub(crate) fn take_anyway(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

/// A listener on one thread.
pub(crate) struct ListenerState {
    /// For connections that come from now on.
    pub(crate) limits: ArcSwap<Limits>,
    pub(crate) routes: ArcSwap<RouteTable<Arc<Target>>>,
    pub(crate) life: Life,
    pub(crate) shared: Arc<Shared>,
    pub(crate) access_log: AccessLog,
    pub(crate) recorder: Recorder,
}

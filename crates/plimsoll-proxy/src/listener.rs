//! One listening address on one thread: its limits, its routes, and what the threads share of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::access_log::AccessLog;
use crate::classify::Claims;
use crate::clients::Clients;
use crate::config::{TlsMaterial, normalise};
use crate::counts::Counts;
use crate::degrade::Substitute;
use crate::destination::Destination;
use crate::ended::Ended;
use crate::explain::Recorder;
use crate::handshake::Handshakes;
use crate::http2::Stalled;
use crate::limits::Limits;
use crate::phase::Life;
use crate::pressure::Pressure;
use crate::reason::Refusal;
use crate::route::{Asked, RouteTable};
use crate::seats::Seats;
use crate::tls::ServerTls;
use crate::turned_away::TurnedAway;
use crate::turns::Turns;

/// The routes of a listener, and by what in a request they tell customers apart.
pub(crate) struct Routes {
    table: RouteTable<Arc<Destination>>,
    /// `None` where senders are not trusted with it.
    customer_header: Option<HeaderName>,
}

impl Routes {
    /// `claims` are those of the listener.
    pub(crate) fn new(table: RouteTable<Arc<Destination>>, claims: &Claims) -> Self {
        Self { table, customer_header: claims.customer_header().cloned() }
    }

    /// Where a request for `host` leads, that comes from a client with these names.
    ///
    /// The path is compared in its normal form, and goes on as it was sent. So a cluster gets no path that could be read in another way,
    /// unless its route says that it may, or no route looks at paths.
    pub(crate) fn find<B>(
        &self,
        request: &Request<B>,
        host: &str,
        client_names: &[Box<str>],
    ) -> Result<Arc<Destination>, Refusal> {
        let customer = self.customer(request.headers())?;
        let find =
            |path: &str| self.table.find(&Asked { host, path, method: request.method(), client_names, customer });
        if !self.table.asks_for_paths() {
            return find(request.uri().path()).cloned().ok_or(Refusal::NoRoute);
        }
        let path = normalise(request.uri().path());
        let found = find(&path.text).ok_or(Refusal::NoRoute)?;
        let is_found_by = |path: &str| find(path).is_some_and(|other| Arc::ptr_eq(other, found));
        let has_one_reading = !path.is_ambiguous && path.unresolved.as_deref().is_none_or(is_found_by);
        if has_one_reading || found.takes_ambiguous_paths() {
            Ok(Arc::clone(found))
        } else {
            Err(Refusal::AmbiguousPath)
        }
    }

    /// The name of the customer; none where senders are not trusted with it.
    pub(crate) fn customer<'r>(&self, headers: &'r HeaderMap) -> Result<Option<&'r [u8]>, Refusal> {
        let Some(name) = &self.customer_header else { return Ok(None) };
        let mut names = headers.get_all(name).iter();
        let first = names.next();
        // Backends may take the last one.
        if names.next().is_some() { Err(Refusal::Customers) } else { Ok(first.map(HeaderValue::as_bytes)) }
    }
}

/// What the threads of one listener share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) refusals: Counts<Refusal>,
    pub(crate) degraded: Counts<Substitute>,
    pub(crate) ended: Counts<Ended>,
    pub(crate) turned_away: Counts<TurnedAway>,
    /// HTTP/2 streams that were ended because their client took nothing.
    pub(crate) stalled_streams: AtomicU64,
    /// How short the process is of memory and descriptors.
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) clients: Arc<Clients>,
    /// TLS of connections that come from now on; none for plain ones.
    pub(crate) tls: ArcSwapOption<ServerTls>,
    pub(crate) handshakes: Handshakes,
    pub(crate) seats: Seats,
    pub(crate) accepted: AtomicU64,
}

impl Shared {
    /// Of a listener that begins.
    pub(crate) fn new(pressure: Arc<Pressure>) -> Self {
        Self { pressure, ..Self::default() }
    }

    /// Speaks TLS like this from now on, or none.
    pub(crate) fn set_tls(&self, tls: Option<&TlsMaterial>) {
        let earlier = self.tls.load();
        self.tls.store(tls.map(|tls| Arc::new(ServerTls::new(tls).continuing(earlier.as_deref()))));
    }

    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.seats.taken()
    }

    /// How long a connection may be idle now that may be idle for `configured` otherwise.
    pub(crate) fn idle_timeout(&self, configured: Duration) -> Duration {
        self.pressure.idle_timeout(configured, self.seats.halvings())
    }

    /// Connections that were not taken, by reason.
    pub(crate) fn turned_away(&self) -> Vec<(&'static str, u64)> {
        self.turned_away.counts().chain([("client", self.clients.refused())]).collect()
    }
}

impl Stalled for Shared {
    fn on_stalled_stream(&self) {
        self.stalled_streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// A listener on one thread.
pub(crate) struct ListenerState {
    /// For connections that come from now on.
    pub(crate) limits: ArcSwap<Limits>,
    pub(crate) routes: ArcSwap<Routes>,
    pub(crate) life: Life,
    /// In which the thread's handshakes go on.
    pub(crate) turns: Arc<Turns>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Recorder,
    pub(crate) access_log: AccessLog,
}

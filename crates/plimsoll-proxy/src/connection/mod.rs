//! A client connection, as its requests and its time limits see it.

pub(crate) mod activity;
pub(crate) mod context;
pub(crate) mod end_reason;
pub(crate) mod flow;
pub(crate) mod interim;
pub(crate) mod permits;
pub(crate) mod time_limits;
pub(crate) mod turns;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, Request};
use plimsoll::server::admission::Permit;
use plimsoll_core::slots::Holder;
use plimsoll_core::trace::{Recording, Sender};
use tokio::time::Instant;

use self::activity::Activity;
use self::context::Context;
use self::end_reason::EndReason;
use self::interim::Interim;
use crate::access_log::Entry;
use crate::counts::Label as _;
use crate::explain::Source;
use crate::forwarded::Marks;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::route::customer::{Customer, CustomerFacts};
use crate::route::holders;
use crate::route::host::host;
use crate::split::Fact;
use crate::trace::RequestTrace;

/// A connection, as its requests see it.
pub(crate) struct Connection {
    pub(crate) context: Arc<Context>,
    pub(crate) since: Instant,
    /// As they were when it came.
    pub(crate) limits: Arc<Limits>,
    pub(crate) peer: Peer,
    /// The holder of its requests' slots, unless they name a customer.
    holder: Holder,
    /// The fields that tell backends of the client.
    pub(crate) marks: Marks,
    pub(crate) activity: Activity,
    pub(crate) interim: Interim,
}

impl Connection {
    /// One that begins now.
    pub(crate) fn new(context: &Arc<Context>, peer: Peer) -> Self {
        let limits = context.limits.load_full();
        let marks = Marks::new(&peer, &limits.forwarding);
        let holder = holders::of_peer(&peer);
        Self {
            context: Arc::clone(context),
            since: Instant::now(),
            limits,
            peer,
            holder,
            marks,
            activity: Activity::default(),
            interim: Interim::default(),
        }
    }

    /// The place that its requests come from, for explanations.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { listener: &self.limits.name, client: self.peer.address }
    }

    /// The facts about a request for `host` that may name its customer.
    pub(crate) fn customer_facts<'r>(&'r self, headers: &'r HeaderMap, host: &'r str) -> CustomerFacts<'r> {
        CustomerFacts { peer: &self.peer, marks: &self.marks, forwarding: &self.limits.forwarding, headers, host }
    }

    /// The customer of a request that was refused before its route was looked for; none if it
    /// cannot be known.
    pub(crate) fn customer<B>(&self, request: &Request<B>) -> Option<Customer> {
        let facts = self.customer_facts(request.headers(), host(request).unwrap_or_default());
        self.context.routes.load().customer(request, &facts).ok().flatten()
    }

    /// The client that a request with these fields counts for, unless it names a customer.
    pub(crate) fn holder(&self, headers: &HeaderMap) -> Holder {
        let named = self.marks.client(&self.limits.forwarding, headers);
        named.map_or(self.holder, holders::of_address)
    }

    /// The address of the client of a request with these fields: behind a trusted proxy, the client
    /// that the proxy names. `None` at a Unix socket without such a proxy.
    pub(crate) fn client_address(&self, headers: &HeaderMap) -> Option<IpAddr> {
        self.marks.client(&self.limits.forwarding, headers).or_else(|| self.peer.address.ip())
    }

    /// That address, or the part of it that a client cannot choose.
    pub(crate) fn client_network(&self, headers: &HeaderMap) -> [u8; 16] {
        let named = self.marks.client(&self.limits.forwarding, headers);
        named.map_or_else(|| holders::octets_of_peer(&self.peer), holders::octets_of)
    }

    /// Ends for a reason that is not its own; counted, and said once.
    pub(crate) fn end_for(&self, ended: EndReason) {
        self.context.counts.ended.count(ended);
        tracing::debug!(client = %self.peer.address, listener = %self.limits.name, reason = ended.name(), "connection ended");
    }
}

/// A request that its connection counts as active, and that goes into the log, until this is
/// dropped.
pub(crate) struct ActiveRequest {
    connection: Arc<Connection>,
    /// Its line in the log, if it gets one.
    pub(crate) entry: Option<Box<Entry>>,
    /// Admission by the gate of its cluster, if there is one.
    pub(crate) permit: Option<Box<Permit>>,
    /// What it tells the comparison of the versions of its route, if these are compared.
    pub(crate) fact: Option<Box<Fact>>,
    /// Its spans, if it is recorded.
    pub(crate) trace: Option<Arc<RequestTrace>>,
    /// Bytes of its body, counted only for the log.
    bytes_in: Option<Arc<AtomicU64>>,
}

impl ActiveRequest {
    /// `request` is as the client sent it.
    pub(crate) fn begin<B>(connection: &Arc<Connection>, request: &Request<B>) -> Self {
        connection.activity.begin();
        let context = &connection.context;
        let entry = context.access_log.begin(&connection.peer, &connection.limits.name, request);
        let bytes_in = entry.as_ref().map(|_| Arc::default());
        Self { connection: Arc::clone(connection), entry, permit: None, fact: None, trace: None, bytes_in }
    }

    /// Decides whether its spans are recorded, and corrects its trace in the headers.
    #[inline]
    pub(crate) fn trace<B>(&mut self, request: &mut Request<B>) {
        if self.connection.context.traces.is_on() {
            self.decide_trace(request);
        }
    }

    fn decide_trace<B>(&mut self, request: &mut Request<B>) {
        let connection = &*self.connection;
        let sender = || match connection.context.routes.load().trusts_senders() {
            true => Sender::Trusted,
            false => Sender::Stranger,
        };
        let client = |headers: &HeaderMap| connection.holder(headers);
        if let Some(recording) = connection.context.traces.decide(request.headers_mut(), sender, client) {
            self.record(recording, request);
        }
    }

    #[cold]
    fn record<B>(&mut self, recording: Recording, request: &Request<B>) {
        let (connection, headers) = (&*self.connection, request.headers());
        let context = &connection.context;
        let client = connection.marks.client(&connection.limits.forwarding, headers);
        self.trace = Some(context.traces.begin(recording, headers, client));
        if self.entry.is_none() {
            let mut entry = Entry::new(&connection.peer, &connection.limits.name, request);
            entry.is_logged = false;
            self.entry = Some(Box::new(entry));
        }
    }

    /// Where the bytes of its body are to be counted.
    pub(crate) fn bytes_in(&self) -> Option<Arc<AtomicU64>> {
        self.bytes_in.clone()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.connection.activity.end();
        if let Some(mut entry) = self.entry.take() {
            entry.bytes_in = self.bytes_in.as_ref().map_or(0, |bytes| bytes.load(Ordering::Relaxed));
            self.connection.context.access_log.write(&entry);
            if let Some(trace) = &self.trace {
                trace.end(&entry);
            }
        }
    }
}

//! A client connection, as its requests and its time limits see it.

pub(crate) mod context;
pub(crate) mod end_reason;
pub(crate) mod flow;
pub(crate) mod permits;
pub(crate) mod time_limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use http::{HeaderMap, Request};
use plimsoll_core::slots::Holder;
use tokio::time::Instant;

use crate::access_log::Entry;
use crate::connection::context::Context;
use crate::connection::end_reason::EndReason;
use crate::counts::Label as _;
use crate::explain::Source;
use crate::forwarded::Marks;
use crate::inbound::Passage;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::route::holders;

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
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// For the client's next request.
    Idle,
    /// For the rest of a head.
    Head,
    /// For us, or for a backend.
    Busy,
    /// For more of a request's body.
    Body,
}

/// Events on a connection, for its time limits.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests begun so far, wrapping.
    begun: AtomicU32,
    active: AtomicU32,
    stage: AtomicU8,
    /// Bytes of bodies that came in so far.
    received: AtomicU64,
    /// Bytes that went out so far.
    sent: AtomicU64,
    /// The last write got nothing out: the client does not read.
    write_blocked: AtomicBool,
    /// Ends with the request in progress.
    closing: AtomicBool,
    /// Has overstayed a time limit.
    overdue: AtomicBool,
    /// Ends at once.
    cut_off: AtomicBool,
}

// One thread drives a connection, so that plain loads and stores would do; relaxed atomics are the same instructions
// and need no promise to the compiler.
impl Activity {
    pub(crate) fn begin(&self) {
        self.begun.store(self.begun().wrapping_add(1), Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        self.enter(Stage::Busy);
    }

    pub(crate) fn end(&self) {
        if self.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter(Stage::Idle);
        }
    }

    pub(crate) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Idle,
            1 => Stage::Head,
            2 => Stage::Busy,
            _ => Stage::Body,
        }
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn on_received(&self, bytes: usize) {
        self.received.store(self.received() + bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn on_sent(&self, bytes: usize) {
        self.sent.store(self.sent() + bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn write_is_blocked(&self, blocked: bool) {
        self.write_blocked.store(blocked, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Relaxed)
    }

    pub(crate) fn overstay(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }
}

impl Connection {
    /// One that begins now.
    pub(crate) fn new(context: &Arc<Context>, peer: Peer) -> Self {
        let limits = context.limits.load_full();
        let marks = Marks::new(&peer, &limits.forwarding);
        let holder = holders::of_peer(&peer);
        let context = Arc::clone(context);
        Self { context, since: Instant::now(), limits, peer, holder, marks, activity: Activity::default() }
    }

    /// The place that its requests come from, for explanations.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { listener: &self.limits.name, client: self.peer.address }
    }

    /// The client that a request with these fields counts for, unless it names a customer.
    pub(crate) fn holder(&self, headers: &HeaderMap) -> Holder {
        let named = self.marks.client(&self.limits.forwarding, headers);
        named.map_or(self.holder, holders::of_address)
    }

    /// Ends for a reason that is not its own; counted, and said once.
    pub(crate) fn end_for(&self, ended: EndReason) {
        self.context.counts.ended.count(ended);
        tracing::debug!(client = %self.peer.address, listener = %self.limits.name, reason = ended.name(), "connection ended");
    }
}

/// A request that its connection counts as active, and that goes into the log, until this is dropped.
pub(crate) struct ActiveRequest {
    connection: Arc<Connection>,
    /// Its line in the log, if it gets one.
    pub(crate) entry: Option<Box<Entry>>,
    /// Admission by the gate of its cluster, if there is one.
    pub(crate) passage: Option<Box<Passage>>,
    /// Bytes of its body, counted only for the log.
    bytes_in: Option<Arc<AtomicU64>>,
}

impl ActiveRequest {
    /// `request` is as the client sent it.
    pub(crate) fn begin<B>(connection: &Arc<Connection>, request: &Request<B>) -> Self {
        connection.activity.begin();
        let context = &connection.context;
        let customer = |headers| context.routes.load().customer(headers).ok().flatten();
        let entry = context.access_log.begin(&connection.peer, &connection.limits.name, request, customer);
        let bytes_in = entry.as_ref().map(|_| Arc::default());
        Self { connection: Arc::clone(connection), entry, passage: None, bytes_in }
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
        }
    }
}

//! The part of a listener that its connections and their requests use, on one thread.
//!
//! The listener knows more: its sockets, handshakes, clients and certificates. A connection holds
//! only this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::access_log::AccessLog;
use crate::connection::end_reason::EndReason;
use crate::connection::flow::Stalled;
use crate::connection::permits::Permits;
use crate::connection::turns::Turns;
use crate::counts::Counts;
use crate::degrade::Substitute;
use crate::explain::Recorder;
use crate::limits::Limits;
use crate::phase::Life;
use crate::pressure::Pressure;
use crate::reason::Refusal;
use crate::route::routes::Routes;
use crate::trace::Traces;

/// The part of a listener that its connections use, on one thread.
pub(crate) struct Context {
    /// For connections that come from now on.
    pub(crate) limits: ArcSwap<Limits>,
    /// For requests that come from now on.
    pub(crate) routes: ArcSwap<Routes>,
    pub(crate) life: Life,
    pub(crate) recorder: Recorder,
    pub(crate) access_log: AccessLog,
    pub(crate) traces: Traces,
    /// Shared by the threads of the listener, as are its permits.
    pub(crate) counts: Arc<ConnectionCounts>,
    pub(crate) permits: Arc<Permits>,
    /// How short the process is of memory and descriptors.
    pub(crate) pressure: Arc<Pressure>,
    /// The bulk steps of the thread.
    pub(crate) turns: Arc<Turns>,
}

impl Context {
    /// The time that a connection may be idle now: `configured`, or less where memory or permits
    /// are short.
    pub(crate) fn idle_timeout(&self, configured: Duration) -> Duration {
        self.pressure.idle_timeout(configured, self.permits.halvings())
    }
}

/// Events on the connections of a listener, on all threads.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    /// Requests that the proxy answered itself.
    pub(crate) refusals: Counts<Refusal>,
    /// Answers in place of errors.
    pub(crate) degraded: Counts<Substitute>,
    /// Connections that the proxy ended.
    pub(crate) ended: Counts<EndReason>,
    /// HTTP/2 streams that were ended because their client took nothing.
    pub(crate) stalled_streams: AtomicU64,
}

impl Stalled for ConnectionCounts {
    fn on_stalled_stream(&self) {
        self.stalled_streams.fetch_add(1, Ordering::Relaxed);
    }
}

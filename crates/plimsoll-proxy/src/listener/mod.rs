//! One listening address: the state shared by its threads, and its state on one thread.

pub(crate) mod accept;
mod clients;
mod handshake;
pub(crate) mod handshakes;
mod proxy_protocol;
pub(crate) mod rejections;
mod serve;
pub(crate) mod turns;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;

use crate::connection::context::{ConnectionCounts, Context};
use crate::connection::permits::Permits;
use crate::counts::Counts;
use crate::listener::clients::Clients;
use crate::listener::handshakes::Handshakes;
use crate::listener::rejections::RejectReason;
use plimsoll::tls::{ServerTls, TlsMaterial};

use crate::listener::turns::Turns;
use crate::pressure::Pressure;

/// State shared by the threads of one listener.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) counts: Arc<ConnectionCounts>,
    pub(crate) rejections: Counts<RejectReason>,
    /// How short the process is of memory and descriptors.
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) clients: Arc<Clients>,
    /// TLS of connections that come from now on; none for plain ones.
    pub(crate) tls: ArcSwapOption<ServerTls>,
    pub(crate) handshakes: Handshakes,
    pub(crate) permits: Arc<Permits>,
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
        self.permits.taken()
    }

    /// Connections that were not taken, by reason.
    pub(crate) fn rejections(&self) -> Vec<(&'static str, u64)> {
        self.rejections.counts().chain([("client", self.clients.refused())]).collect()
    }
}

/// A listener on one thread.
pub(crate) struct ListenerState {
    /// The part that its connections hold.
    pub(crate) context: Arc<Context>,
    /// In which the thread's handshakes go on.
    pub(crate) turns: Arc<Turns>,
    pub(crate) shared: Arc<Shared>,
}

//! The services of a server, each behind a lock of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use plimsoll::server::Phase;
use plimsoll_config::LastReload;
use plimsoll_core::Timestamp;
use plimsoll_tls_config::ClientName;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::envoy::RateLimits;
use crate::hosted::Hosted;

/// How long streams of tasks go on while the server drains: its probes are seen, and the drain still finds them ended.
const LAST_WORDS: Duration = Duration::from_millis(1_400);

/// The account of Envoy's rate limit service at a service.
type RateLimitAccount = (Weak<Hosted>, Arc<RateLimits>);

/// The services of a server.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) origin: Instant,
    /// The owners' number: milliseconds since the Unix epoch at the start.
    pub(crate) epoch: u64,
    pub(crate) services: RwLock<BTreeMap<String, Arc<Hosted>>>,
    /// From the first request to a service on.
    pub(crate) rate_limits: Mutex<BTreeMap<String, RateLimitAccount>>,
    /// Names in certificates of clients that may change limits.
    pub(crate) operators: RwLock<Vec<ClientName>>,
    /// Of the configuration.
    pub(crate) last_reload: LastReload,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl Services {
    /// Resolves when streams are to end, so that a drain finds none.
    pub(crate) fn ending(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.phase.clone();
        async move {
            // Without a sender the server has ended.
            let _ = phase.wait_for(|phase| *phase >= Phase::LameDuck).await;
            tokio::time::sleep(LAST_WORDS).await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Hosted>> {
        self.services.read().get(name).cloned()
    }

    /// The account of Envoy's rate limit service at this service. `start` is called with a new one.
    pub(crate) fn rate_limits(
        &self,
        name: &str,
        hosted: &Arc<Hosted>,
        start: impl FnOnce(&Arc<RateLimits>),
    ) -> Arc<RateLimits> {
        let mut all = self.rate_limits.lock();
        let known = all.get(name).filter(|(of, _)| of.as_ptr() == Arc::as_ptr(hosted));
        if let Some((_, limits)) = known {
            return Arc::clone(limits);
        }
        // A removed service takes its account with it.
        all.retain(|_, (of, _)| of.strong_count() > 0);
        let limits = Arc::new(RateLimits::new(self.now()));
        start(&limits);
        all.insert(name.to_owned(), (Arc::downgrade(hosted), Arc::clone(&limits)));
        limits
    }

    /// All services, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, Arc<Hosted>> {
        self.services.read().clone()
    }
}

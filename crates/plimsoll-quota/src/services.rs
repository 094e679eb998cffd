//! The services of a server, each behind a lock of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use plimsoll_core::Timestamp;
use plimsoll_tls_config::ClientName;
use tokio::time::Instant;

use crate::envoy::RateLimits;
use crate::hosted::Hosted;

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
}

impl Services {
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

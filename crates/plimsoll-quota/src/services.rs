//! The services of a server, each behind a lock of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use plimsoll_core::Timestamp;
use plimsoll_tls_config::ClientName;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::caller::{Caller, Denied};
use crate::service::Service;

/// A service, and the wake-up of its timer.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) service: Mutex<Service>,
    /// The timer is to look again.
    pub(crate) is_due: Notify,
}

impl Hosted {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Service> {
        self.service.lock()
    }

    /// Whether a caller may report for this service, of this name. A refusal is counted.
    pub(crate) fn may_report(&self, name: &str, caller: &Caller) -> Result<(), Denied> {
        let mut service = self.lock();
        let may = caller.may_report(name, service.config());
        if may.is_err() {
            service.count_denied();
        }
        may
    }

    /// Calls with the service, whose timer then looks again.
    pub(crate) fn change<R>(&self, call: impl FnOnce(&mut Service) -> R) -> R {
        let result = call(&mut self.lock());
        self.is_due.notify_one();
        result
    }
}

/// The services of a server.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) origin: Instant,
    /// The owners' number: milliseconds since the Unix epoch at the start.
    pub(crate) epoch: u64,
    pub(crate) services: RwLock<BTreeMap<String, Arc<Hosted>>>,
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

    /// All services, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, Arc<Hosted>> {
        self.services.read().clone()
    }
}

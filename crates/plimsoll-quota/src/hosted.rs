//! A service that this server has: its lock, its timer, and the owner beside it.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::caller::{Caller, Denied};
use crate::service::Service;

/// The other owner of a service that counts CPU.
#[derive(Debug)]
pub(crate) enum Beside {
    /// This one is for the Envoys as well.
    None,
    /// The owner for Envoys.
    Front(Arc<Hosted>),
    /// This is the owner for Envoys, and that the one of the backends.
    Backends(Weak<Hosted>),
}

/// A service, and the wake-up of its timer.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) service: Mutex<Service>,
    /// The timer is to look again.
    pub(crate) is_due: Notify,
    pub(crate) beside: Beside,
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

    /// The owner for Envoys, if it is another one.
    pub(crate) fn front(&self) -> Option<Arc<Self>> {
        match &self.beside {
            Beside::Front(front) => Some(Arc::clone(front)),
            Beside::None | Beside::Backends(_) => None,
        }
    }

    /// The owner of the backends, if this one is for Envoys only.
    pub(crate) fn backends(&self) -> Option<Arc<Self>> {
        match &self.beside {
            Beside::Backends(backends) => backends.upgrade(),
            Beside::None | Beside::Front(_) => None,
        }
    }

    /// Calls with the service, whose timer then looks again. New limits that its tasks have tried go to Envoys next.
    pub(crate) fn change<R>(&self, call: impl FnOnce(&mut Service) -> R) -> R {
        let (result, applied) = {
            let mut service = self.lock();
            (call(&mut service), service.take_applied())
        };
        self.is_due.notify_one();
        if let (Some((now, limits)), Some(front)) = (applied, self.front()) {
            front.lock().follow(now, &limits);
            front.is_due.notify_one();
        }
        result
    }
}

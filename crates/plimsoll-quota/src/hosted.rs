//! A service that this server has: its lock, its timer, and the owner beside it.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::Timestamp;
use tokio::sync::{Notify, watch};
use tonic::Status;

use crate::caller::{Caller, Denied};
use crate::ownership::Ownership;
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

/// The reason why a service ends here.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It has no settings any more.
    Removed,
    /// It has another owner.
    Moved(Ownership),
}

impl End {
    /// The last message of a stream to the service.
    pub(crate) fn status(&self, service: &str) -> Status {
        match self {
            Self::Removed => Status::not_found(format!("service {service:?} is no longer here")),
            Self::Moved(ownership) => ownership.status(service),
        }
    }
}

/// A service that this server owns, and the wake-up of its timer.
#[derive(Debug)]
pub(crate) struct Hosted {
    /// The number of this owner.
    pub(crate) epoch: u64,
    /// From its end here on.
    end: watch::Sender<Option<End>>,
    pub(crate) service: Mutex<Service>,
    /// The timer is to look again.
    pub(crate) is_due: Notify,
    pub(crate) beside: Beside,
}

impl Hosted {
    pub(crate) fn new(service: Service, beside: Beside) -> Self {
        let epoch = service.epoch();
        let end = watch::Sender::default();
        Self { epoch, end, service: Mutex::new(service), is_due: Notify::new(), beside }
    }

    /// All streams end.
    pub(crate) fn end(&self, end: End) {
        if let Some(front) = self.front() {
            front.end(end.clone());
        }
        self.end.send_replace(Some(end));
        self.is_due.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Resolves with the last message when the service has ended here.
    pub(crate) fn ended(&self, name: &str) -> impl Future<Output = Status> + Send + 'static {
        let (mut end, name) = (self.end.subscribe(), name.to_owned());
        async move {
            match end.wait_for(Option::is_some).await {
                Ok(end) => end.as_ref().map_or_else(|| Status::unavailable(""), |end| end.status(&name)),
                Err(_) => Status::unavailable("the server is ending"),
            }
        }
    }

    /// Another owner may begin then.
    pub(crate) fn set_certain_until(&self, now: Timestamp, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        for hosted in [Some(self), self.front().as_deref()].into_iter().flatten() {
            hosted.lock().set_certain_until(now, until);
            hosted.is_due.notify_one();
        }
    }

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

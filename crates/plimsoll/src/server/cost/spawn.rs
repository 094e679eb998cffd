//! Starting tasks that are parts of the request that starts them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::section::{current, run};
use super::task::Metered;

/// [`tokio::spawn`] on the account of the current request.
///
/// The task's CPU usage is charged to the request, and [`current`](crate::server::current) works in
/// it. Outside of a request it is `tokio::spawn`.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match current() {
        Some(request) => tokio::spawn(Metered::new(request, future)),
        None => tokio::spawn(future),
    }
}

/// [`tokio::task::spawn_blocking`] on the account of the current request.
///
/// The closure's CPU usage is charged to the request, and [`current`](crate::server::current) works
/// in it.
pub fn spawn_blocking<R: Send + 'static>(code: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    tokio::task::spawn_blocking(bind(code))
}

/// Binds a closure to the current request, for threads of your own. It counts as runnable from now
/// on.
pub fn bind<R>(code: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let bound = current().map(Runnable::new);
    move || match &bound {
        Some(Runnable(request)) => run(request, code),
        None => code(),
    }
}

/// Work that another process does for the current request.
///
/// Until it is dropped the request counts as runnable: it has a CPU elsewhere, or waits for one.
/// Use it with [`cpu_clock`](crate::server::ServerLayerBuilder::cpu_clock), which counts the same
/// CPU time in the whole server. Outside of requests it does nothing.
#[derive(Debug)]
pub struct RemoteWork(Option<Runnable>);

impl RemoteWork {
    /// Work that could run from now on.
    #[must_use]
    pub fn begin() -> Self {
        Self(current().map(Runnable::new))
    }

    /// The work has used this much more CPU time.
    pub fn charge(&self, used: Duration) {
        if let Some(Runnable(request)) = &self.0 {
            request.charge(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

/// Could run, until it is dropped.
#[derive(Debug)]
struct Runnable(Arc<super::Request>);

impl Runnable {
    fn new(request: Arc<super::Request>) -> Self {
        request.on_runnable();
        Self(request)
    }
}

impl Drop for Runnable {
    fn drop(&mut self) {
        self.0.on_waiting();
    }
}

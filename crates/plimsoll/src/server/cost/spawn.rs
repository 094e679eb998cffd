//! Starting tasks that are parts of the request that starts them.

use std::sync::Arc;

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

/// Could run, until it is dropped.
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

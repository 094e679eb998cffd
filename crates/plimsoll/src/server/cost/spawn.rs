//! Starting tasks that are parts of the request that starts them.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::section::{current, run};
use super::task::Metered;

/// [`tokio::spawn`] for code that serves requests: what the task uses is charged to the request that starts it, and within it
/// [`current`](crate::server::current) is that request. Outside of a request it is `tokio::spawn`.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match current() {
        Some(request) => tokio::spawn(Metered::new(request, future)),
        None => tokio::spawn(future),
    }
}

/// [`tokio::task::spawn_blocking`] for code that serves requests: what the closure uses is charged to the request that starts it, and
/// within it [`current`](crate::server::current) is that request.
pub fn spawn_blocking<R: Send + 'static>(code: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    tokio::task::spawn_blocking(bind(code))
}

/// The same closure as a part of the request that calls this, for threads of your own: it could run from now on.
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

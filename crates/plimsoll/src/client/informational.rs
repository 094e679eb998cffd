//! Interim responses (1xx) on their way to the caller.

use std::fmt;
use std::sync::Arc;

use http::Response;

/// Receives interim responses.
pub trait InterimReceiver: Send + Sync {
    /// Takes one. It must be quick: the final response waits for it.
    fn receive(&self, response: Response<()>);
}

impl<F: Fn(Response<()>) + Send + Sync> InterimReceiver for F {
    fn receive(&self, response: Response<()>) {
        self(response);
    }
}

/// An extension of a request: receives its interim responses, such as `103 Early Hints`, as they
/// come. `100 Continue` is not among them: the client handles it. Without this extension they are
/// dropped, as those of HTTP/2 backends always are.
#[derive(Clone)]
pub struct Informational(Arc<dyn InterimReceiver>);

impl Informational {
    /// Has `tell` called for each. It must be quick: the response waits for it.
    pub fn new(tell: impl Fn(Response<()>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Gives each to `receiver`, which requests may share.
    pub fn shared(receiver: Arc<impl InterimReceiver + 'static>) -> Self {
        Self(receiver)
    }

    pub(super) fn tell(&self, response: Response<()>) {
        self.0.receive(response);
    }
}

impl fmt::Debug for Informational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informational").finish_non_exhaustive()
    }
}

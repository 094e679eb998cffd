//! Interim responses (1xx) on their way to the caller.

use std::fmt;
use std::sync::Arc;

use http::Response;

/// An extension of a request: receives its interim responses, such as `103 Early Hints`, as they
/// come. `100 Continue` is not among them: the client handles it. Without this extension they are
/// dropped, as those of HTTP/2 backends always are.
#[derive(Clone)]
pub struct Informational(Arc<dyn Fn(Response<()>) + Send + Sync>);

impl Informational {
    /// Has `tell` called for each. It must be quick: the response waits for it.
    pub fn new(tell: impl Fn(Response<()>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(super) fn tell(&self, response: Response<()>) {
        (self.0)(response);
    }
}

impl fmt::Debug for Informational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informational").finish_non_exhaustive()
    }
}

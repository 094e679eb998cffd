//! A request that is served without a layer, for tests.

use std::sync::Arc;

use plimsoll_core::admit::Pressure;

use super::context::RequestContext;
use super::cost::{Metered, Request, current};

/// Runs a future as a request with this context, under this pressure.
pub(crate) fn scope<F: Future>(
    context: RequestContext,
    pressure: Pressure,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    Metered::new(Arc::new(Request::of_test(context, pressure)), future)
}

/// The charges of the current request by this name.
pub(crate) fn charged(name: &str) -> f64 {
    current().map_or(0.0, |request| request.charged_with(name))
}

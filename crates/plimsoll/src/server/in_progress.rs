//! A request from when it is taken on until its response has ended, however that comes about.

use std::sync::Arc;

use super::cost::Request;
use super::lifecycle::InFlight;

/// Ends when it is dropped.
pub(super) struct InProgress {
    _in_flight: InFlight,
    /// None where no cost is measured.
    request: Option<Arc<Request>>,
}

impl InProgress {
    pub(super) fn new(in_flight: InFlight, request: Option<Arc<Request>>) -> Self {
        Self { _in_flight: in_flight, request }
    }

    pub(super) fn request(&self) -> Option<&Arc<Request>> {
        self.request.as_ref()
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.end();
        }
    }
}

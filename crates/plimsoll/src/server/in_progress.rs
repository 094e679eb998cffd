//! A request from its admission until its response has ended, in whatever way.

use std::sync::Arc;

use super::cost::Request;
use super::lifecycle::InFlight;
use super::places::Place;

/// Ends when it is dropped.
pub(super) struct InProgress {
    _in_flight: InFlight,
    request: Arc<Request>,
    /// None where as many are in progress at a time as there are.
    _place: Option<Place>,
}

impl InProgress {
    pub(super) fn new(in_flight: InFlight, request: Arc<Request>, place: Option<Place>) -> Self {
        Self { _in_flight: in_flight, request, _place: place }
    }

    pub(super) fn request(&self) -> &Arc<Request> {
        &self.request
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.request.end();
    }
}

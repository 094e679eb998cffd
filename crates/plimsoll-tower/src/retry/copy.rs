//! Copies of requests.

/// Copies a request, so that it can be sent again.
pub trait CloneRequest<Req> {
    /// A copy; `None` if the request can be sent only once.
    fn clone_request(&self, request: &Req) -> Option<Req>;

    /// Whether the copy can be sent now, after an attempt with the original. A copy that shares a
    /// body may have lost a part of it.
    fn is_whole(&self, _copy: &Req) -> bool {
        true
    }
}

/// Copies requests by [`Clone`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByClone;

impl<Req: Clone> CloneRequest<Req> for ByClone {
    fn clone_request(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Copies requests by a closure.
#[derive(Clone, Copy, Debug)]
pub struct CloneBy<F>(pub(super) F);

impl<Req, F: Fn(&Req) -> Option<Req>> CloneRequest<Req> for CloneBy<F> {
    fn clone_request(&self, request: &Req) -> Option<Req> {
        (self.0)(request)
    }
}

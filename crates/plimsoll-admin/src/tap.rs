//! New requests among those that are remembered, for `GET /api/v1/explain/stream`.

use serde::Serialize;

use crate::explain::{Explanation, Wanted};

/// A reader of requests as they are remembered.
pub trait Tap: Send {
    /// The wanted requests since the last look.
    fn look(&mut self, wanted: &Wanted) -> Tapped;
}

/// The requests since the last look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tapped {
    /// The wanted requests, the earliest first. If there are more than wanted, the latest of them.
    pub requests: Vec<Explanation>,
    /// Wanted requests that are left out.
    pub left_out: u64,
    /// Requests of any kind that were displaced from memory before this look.
    pub missed: u64,
}

impl Tapped {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.left_out == 0 && self.missed == 0
    }
}

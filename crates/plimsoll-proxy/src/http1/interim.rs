//! Interim responses (1xx) of backends, on their way to the client (RFC 9110, 15.2).
//!
//! The library's client calls back when one comes, in the middle of the poll that waits for the
//! final one; what is to be written is left here, for the connection to find after that poll.
//! Hardly any backend sends them, so a request costs a count of references and a look at a flag.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Response;
use parking_lot::Mutex;
use plimsoll::client::Informational;
use plimsoll_http1::{Framing, write};
use plimsoll_wire::hop;

/// Responses to be written.
#[derive(Default)]
struct Unwritten {
    is_any: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

/// The interim responses on one connection.
#[derive(Default)]
pub(super) struct Interim {
    left: Arc<Unwritten>,
    /// Made with the first request.
    informational: Option<Informational>,
}

impl Interim {
    /// The callback that collects them.
    pub(super) fn informational(&mut self) -> Informational {
        let left = &self.left;
        self.informational
            .get_or_insert_with(|| {
                let left = Arc::clone(left);
                Informational::new(move |response| left.put(response))
            })
            .clone()
    }

    /// Moves the responses that have come to the end of the output.
    pub(super) fn take(&self, into: &mut Vec<u8>) {
        if self.left.is_any.load(Ordering::Relaxed) {
            into.append(&mut self.left.bytes.lock());
            self.left.is_any.store(false, Ordering::Relaxed);
        }
    }
}

impl Unwritten {
    fn put(&self, mut response: Response<()>) {
        hop::strip_response(response.headers_mut());
        let (status, headers) = (response.status(), response.headers());
        write::response_head(&mut self.bytes.lock(), status, headers, Framing::Empty, write::Connection::Unsaid);
        self.is_any.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Interim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interim").finish_non_exhaustive()
    }
}

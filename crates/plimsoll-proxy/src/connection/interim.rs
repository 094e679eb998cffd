//! Interim responses (1xx) of backends, on their way to an HTTP/1 client (RFC 9110, 15.2).
//!
//! The library's client calls back when one comes, in the middle of the poll that waits for the
//! final one; what is to be written is left here, for the connection to find after that poll.
//! Hardly any backend sends them, so a request costs a count of references and a look at a flag.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Response;
use parking_lot::Mutex;
use plimsoll::client::InterimReceiver;
use plimsoll_http1::{Framing, write};
use plimsoll_wire::hop;

use crate::connection::Connection;

/// Responses to be written.
#[derive(Default)]
pub(crate) struct Interim {
    is_any: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

impl Interim {
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Moves the responses that have come to the end of the output.
    pub(crate) fn take(&self, into: &mut Vec<u8>) {
        into.append(&mut std::mem::take(&mut *self.bytes.lock()));
        self.is_any.store(false, Ordering::Relaxed);
    }

    fn put(&self, mut response: Response<()>) {
        hop::strip_response(response.headers_mut());
        let (status, headers) = (response.status(), response.headers());
        write::response_head(&mut self.bytes.lock(), status, headers, Framing::Empty, write::Connection::Unsaid);
        self.is_any.store(true, Ordering::Relaxed);
    }
}

impl InterimReceiver for Connection {
    fn receive(&self, response: Response<()>) {
        self.interim.put(response);
    }
}

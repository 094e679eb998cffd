//! What happens on a client connection, as its requests and its time limits see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use crate::listener::{Limits, ListenerState};

/// A connection, as its requests see it.
pub(crate) struct Connection {
    pub(crate) listener: Arc<ListenerState>,
    /// As they were when it came.
    pub(crate) limits: Arc<Limits>,
    pub(crate) activity: Activity,
}

/// What happens on a connection, for whoever keeps its time limits.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests begun so far, wrapping.
    pub(crate) begun: AtomicU32,
    pub(crate) active: AtomicU32,
    /// Bytes came in while no request was active.
    pub(crate) partial_head: AtomicBool,
    pub(crate) http2: AtomicBool,
    /// Writes that got something out so far, wrapping.
    pub(crate) written: AtomicU32,
    /// The last write got nothing out: the client does not read.
    pub(crate) write_blocked: AtomicBool,
}

// One thread drives a connection, so that plain loads and stores would do; relaxed atomics are the same instructions
// and need no promise to the compiler.
impl Activity {
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        self.partial_head.store(false, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0 || self.http2.load(Ordering::Relaxed)
    }

    pub(crate) fn on_read(&self) {
        if self.active.load(Ordering::Relaxed) == 0 {
            self.partial_head.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn on_write(&self, poll: &Poll<std::io::Result<usize>>) {
        self.write_blocked.store(poll.is_pending(), Ordering::Relaxed);
        if poll.is_ready() {
            self.written.fetch_add(1, Ordering::Relaxed);
            // An HTTP/2 server speaks before it is asked. (An HTTP/1 server only to refuse what it cannot read.)
            if self.begun.load(Ordering::Relaxed) == 0 {
                self.is_http2();
            }
        }
    }
}

/// A request that its connection counts as active until this is dropped.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl ActiveRequest {
    pub(crate) fn begin(connection: Arc<Connection>) -> Self {
        connection.activity.begin();
        Self(connection)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.activity.end();
    }
}

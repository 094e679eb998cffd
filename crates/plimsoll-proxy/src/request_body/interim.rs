//! Tells clients on one HTTP/2 connection to go on with their bodies: 100 (Continue), RFC 9110,
//! 10.1.1.
//!
//! A client that sends `Expect: 100-continue` gets 100 when its body is first wanted. Its request
//! was admitted by then. A client with a shed request gets its response at once, and sends no body.
//! The proxy answers by itself and does not pass the field on: h2 drops interim responses of
//! backends.
//!
//! hyper has no way to send an interim response, so the frame is written past it. That is done when
//! h2 has flushed all of its own: between two frames, and not within a header block. Its one field
//! is a literal that no table keeps, so h2's encoder and the client's decoder stay in step.
//!
//! **Which stream** a request came on hyper does not say either. [`Guard`](plimsoll_http2::Guard)
//! knows the stream of each head with `expect`. Bytes behind such a head are therefore held until
//! hyper has handed on all requests that it has: the last one with that field is the one on that
//! stream. If h2 refuses it instead, nobody asks for the stream, and it is forgotten in the next
//! turn of the connection. A request without the field costs a look at two flags.
//!
//! Where it is weak: a client with a decoder table below the initial size of HTTP/2 is not told.
//! Our block could be the first after that change, and would have to begin with the new size. Such
//! a client goes on by itself after a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Stands for no stream.
const NONE: u32 = 0;
/// The clients' waits on one connection.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    /// The stream of the last head that h2 was given, if it has `expect` and no request took it.
    expecting: AtomicU32,
    is_due: AtomicBool,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// Streams of clients that are due for the frame.
    due: Vec<u32>,
    /// The connection's task, which writes.
    writer: Option<Waker>,
}

// One thread drives a connection and its streams; relaxed atomics are plain loads and stores.
impl Interim {
    /// h2 is given a head with `expect` on `stream`, and no byte behind it for now.
    pub(crate) fn hold(&self, cx: &Context<'_>, stream: u32) {
        self.expecting.store(stream, Ordering::Relaxed);
        self.waits.lock().writer = Some(cx.waker().clone());
    }

    /// Whether bytes behind such a head are held.
    pub(crate) fn is_holding(&self) -> bool {
        self.expecting.load(Ordering::Relaxed) != NONE
    }

    /// hyper has handed on all requests that it has.
    pub(crate) fn release(&self) {
        self.expecting.store(NONE, Ordering::Relaxed);
    }

    /// A request with `expect` was handed on; its stream, which is held no longer.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Continue> {
        let stream = self.expecting.swap(NONE, Ordering::Relaxed);
        (stream != NONE).then(|| Continue { interim: Arc::clone(self), stream })
    }

    /// The streams of clients that are due for the frame now.
    pub(crate) fn due(&self) -> Vec<u32> {
        if !self.is_due.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut self.waits.lock().due)
    }
}

/// A client that waits for 100 (Continue) before it sends a request's body.
#[derive(Debug)]
pub(crate) struct Continue {
    interim: Arc<Interim>,
    stream: u32,
}

impl Continue {
    /// Tells it, unless its response has begun by then.
    pub(crate) fn send(self) {
        let mut waits = self.interim.waits.lock();
        waits.due.push(self.stream);
        self.interim.is_due.store(true, Ordering::Relaxed);
        if let Some(writer) = &waits.writer {
            writer.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_with_expect_takes_the_stream_that_is_held() {
        let interim = Arc::new(Interim::default());
        assert!(interim.take().is_none() && !interim.is_holding());
        interim.hold(&Context::from_waker(Waker::noop()), 5);
        assert!(interim.is_holding());
        let waiting = interim.take().unwrap();
        assert!(interim.take().is_none() && !interim.is_holding() && interim.due().is_empty());
        waiting.send();
        assert_eq!((interim.due(), interim.due()), (vec![5], vec![]));
    }

    #[test]
    fn stream_of_a_refused_request_is_forgotten() {
        let interim = Arc::new(Interim::default());
        interim.hold(&Context::from_waker(Waker::noop()), 5);
        interim.release();
        assert!(interim.take().is_none() && !interim.is_holding());
    }
}

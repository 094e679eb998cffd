//! Whether an HTTP/2 connection is still alive.
//!
//! A NAT, a load balancer or a failing node may forget a connection without a word. Each request on
//! it then waits until its time is up, while checks pass on connections of their own. All requests
//! to a backend share the connection, so this would go on. Over HTTP/1 the first request takes its
//! connection with it.
//!
//! So a connection gets no new request if one on it was not answered, and nothing at all has come
//! for [`LONG`] since that was sent. A backend that is merely slow may look the same if it does
//! nothing else; this costs it one connection per [`LONG`]. The requests on such a connection stay,
//! and it is used again as soon as anything comes.
//!
//! PING is no alternative by default: gRPC servers close connections that get more than one PING in
//! five minutes. Where the backends permit more, [`Ping`](crate::client::Ping) also ends a dead
//! connection under the requests that it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_core::Timestamp;

/// The default time to open a connection: one that is silent for this time is of no more use than
/// none.
const LONG: Duration = Duration::from_secs(1);

/// How often something has come on a connection.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<AtomicU32>);

impl Heard {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn so_far(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The silence of one connection.
#[derive(Default)]
pub(super) struct Silence {
    heard: Heard,
    /// Start of an unanswered wait, and the activity up to then.
    since: Option<(Timestamp, u32)>,
    /// It was long when this much had been heard.
    long_at: Option<u32>,
}

impl Silence {
    pub(super) fn of(heard: Heard) -> Self {
        Self { heard, ..Self::default() }
    }

    /// The activity so far.
    pub(super) fn heard(&self) -> u32 {
        self.heard.so_far()
    }

    /// A request was not answered that was sent at `sent`, when this much had been `heard`.
    pub(super) fn unanswered(&mut self, now: Timestamp, sent: Timestamp, heard: u32) {
        if heard != self.heard() {
            return;
        }
        let since = self.since.filter(|(_, then)| *then == heard).map_or(sent, |(earlier, _)| earlier.min(sent));
        self.since = Some((since, heard));
        if now.since(since) >= LONG {
            self.long_at = Some(heard);
        }
    }

    /// Whether it lasts for long.
    pub(super) fn is_long(&self) -> bool {
        self.long_at.is_some_and(|then| then == self.heard())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn requests_in_vain_add_up_until_something_comes() {
        let heard = Heard::default();
        let mut silence = Silence::of(heard.clone());
        heard.count();
        for (sent, ended, is_long) in [(0, 400, false), (400, 800, false), (800, 1_200, true)] {
            let then = silence.heard();
            silence.unanswered(at(ended), at(sent), then);
            assert_eq!(silence.is_long(), is_long, "{ended}");
        }
        heard.count();
        assert!(!silence.is_long(), "it is there again");
        let then = silence.heard();
        silence.unanswered(at(1_700), at(1_200), then);
        assert!(!silence.is_long(), "the silence is a new one");
    }

    #[test]
    fn a_connection_that_answers_others_is_not_silent() {
        let heard = Heard::default();
        let mut silence = Silence::of(heard.clone());
        let then = silence.heard();
        heard.count();
        silence.unanswered(at(60_000), at(0), then);
        assert!(!silence.is_long());
    }
}

//! The HTTP/1.1 connections to one backend: one request at a time on each.
//!
//! Idle ones are a stack: the last used goes first, so that under little load few connections do all the work and the
//! others grow old and are closed. One in use is owned by its request; here it is only counted.

#![expect(clippy::vec_box, reason = "a connection moves between here and its request, and is large")]

use plimsoll_core::Timestamp;

use crate::client::http1::Connection;

/// One connection shows whether the backend accepts any, and a few more serve the next requests.
/// Without a limit there would be as many as requests come while one opens, and no limit on
/// requests would hold.
const MOST_ORPHANS: usize = 8;

/// The connections to one backend.
#[derive(Default)]
pub(super) struct Http1 {
    /// The one idle for longest first.
    idle: Vec<Box<Connection>>,
    in_use: usize,
    /// Connections that are being opened though the requests that wanted them have left.
    orphans: usize,
    /// The backend is no member any more.
    is_retired: bool,
    /// Connections with a lower serial number are not kept.
    oldest: u64,
}

/// The result of offering a connection to the pool.
#[must_use]
pub(super) enum ReturnOutcome {
    Yes,
    /// It is to be closed, without anybody waiting for another in its place.
    No(Box<Connection>),
    /// The backend has closed it.
    Closed(Box<Connection>),
}

impl Http1 {
    pub(super) fn len(&self) -> usize {
        self.idle.len() + self.in_use
    }

    /// An idle connection that is ready for a request; it counts as in use from here. Those that had ended go into
    /// `ended`.
    pub(super) fn take(&mut self, ended: &mut Vec<Box<Connection>>) -> Option<Box<Connection>> {
        while let Some(mut connection) = self.idle.pop() {
            if connection.is_silent() {
                self.in_use += 1;
                return Some(connection);
            }
            ended.push(connection);
        }
        None
    }

    /// A request left while its connection opens. Whether the opening may go on;
    /// [`Http1::orphan_ended`] must follow.
    pub(super) fn may_orphan(&mut self) -> bool {
        let may = self.orphans < MOST_ORPHANS;
        self.orphans += usize::from(may);
        may
    }

    /// One that was allowed to go on has come to its end.
    pub(super) fn orphan_ended(&mut self) {
        self.orphans -= 1;
    }

    /// A connection is there that is in use at once.
    pub(super) fn lend(&mut self) {
        self.in_use += 1;
    }

    /// A connection that was in use is closed.
    pub(super) fn closed(&mut self) {
        self.in_use -= 1;
    }

    /// Takes in a connection that is in use no more, unless `max_idle` others are idle. One that was closed counts as in
    /// use until [`Http1::closed`].
    pub(super) fn give_back(&mut self, connection: Box<Connection>, now: Timestamp, max_idle: usize) -> ReturnOutcome {
        let kept = self.put(connection, now, max_idle);
        if !matches!(kept, ReturnOutcome::Closed(_)) {
            self.in_use -= 1;
        }
        kept
    }

    /// Takes in a connection that nobody waits for.
    pub(super) fn put(&mut self, mut connection: Box<Connection>, now: Timestamp, max_idle: usize) -> ReturnOutcome {
        if self.is_retired || connection.serial < self.oldest || self.idle.len() >= max_idle {
            return ReturnOutcome::No(connection);
        }
        connection.idle_since = now;
        if !connection.watch_silence() {
            return ReturnOutcome::Closed(connection);
        }
        self.idle.push(connection);
        ReturnOutcome::Yes
    }

    /// Checks an idle connection after an event. Returns the connection if it is no longer usable.
    pub(super) fn look(&mut self, serial: u64) -> Option<Box<Connection>> {
        let at = self.idle.iter().rposition(|connection| connection.serial == serial)?;
        (!self.idle[at].watch_silence()).then(|| self.idle.remove(at))
    }

    /// Takes out connections that were idle since `before` or longer.
    pub(super) fn take_old(&mut self, before: Timestamp) -> impl Iterator<Item = Box<Connection>> {
        let old = self.idle.iter().take_while(|connection| connection.idle_since <= before).count();
        self.idle.drain(..old)
    }

    /// Takes out this number of the connections that were idle for longest.
    pub(super) fn take_oldest(&mut self, count: usize) -> impl Iterator<Item = Box<Connection>> {
        self.idle.drain(..count.min(self.idle.len()))
    }

    /// The backend is no member any more: returns idle connections; those in use end with their
    /// requests.
    pub(super) fn retire(&mut self) -> Vec<Box<Connection>> {
        self.is_retired = true;
        std::mem::take(&mut self.idle)
    }

    /// Connections are opened in another way from the serial number `oldest` on: returns idle
    /// connections; those in use end with their requests.
    pub(super) fn renew(&mut self, oldest: u64) -> Vec<Box<Connection>> {
        self.oldest = oldest;
        std::mem::take(&mut self.idle)
    }
}

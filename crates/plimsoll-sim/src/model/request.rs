//! A request on its way, from its arrival at a client until nobody has to do with it any more.

use plimsoll_core::{BackendId, LoadReport, Timestamp};

use crate::kernel::NEVER;

/// Backends that one request is offered to at most: as the library's client, which gives up after so many refused
/// connections.
pub(crate) const MAX_OFFERS: usize = 4;

/// How an offer of a request to a backend came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Answered.
    #[default]
    Answered,
    /// Answered with a failure.
    Failed,
    /// Turned away as too much.
    Overloaded,
    /// The connection was closed before an answer: the backend is gone.
    Lost,
    /// No connection could be opened.
    Refused,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) client: u32,
    /// Of the last pick.
    pub(crate) backend: u32,
    pub(crate) id: BackendId,
    /// When it arrived at the client.
    pub(crate) arrived: Timestamp,
    /// When the backend was picked.
    pub(crate) picked: Timestamp,
    /// Since when it waits for a backend; [`NEVER`] while it does not.
    pub(crate) queued: Timestamp,
    /// It has a retry from the budget that was not sent yet.
    pub(crate) granted: bool,
    /// When the backend got it.
    pub(crate) reached: Timestamp,
    /// CPU-seconds at speed 1.
    pub(crate) cost: f64,
    /// The number of its key.
    pub(crate) key: Option<u32>,
    /// Requests in flight that it found at the backend.
    pub(crate) found: u32,
    /// The measured part of the run in which it arrived.
    pub(crate) window: u16,
    pub(crate) offers: u8,
    /// Offers that were not refused.
    pub(crate) attempts: u8,
    pub(crate) reply: Reply,
    /// The client waits for it.
    pub(crate) awaited: bool,
    /// It is in the network or at the backend.
    pub(crate) away: bool,
    /// Its client has given it up, and the word of that is on its way.
    pub(crate) recalled: bool,
    pub(crate) tried: [BackendId; MAX_OFFERS],
    /// What came with the reply.
    pub(crate) report: Option<LoadReport>,
}

impl Request {
    /// A request that has just arrived at a client.
    pub(crate) fn new(now: Timestamp, client: u32, cost: f64, window: u16) -> Self {
        Self {
            client,
            backend: 0,
            id: BackendId::new(0, 0),
            arrived: now,
            picked: now,
            queued: NEVER,
            granted: false,
            reached: now,
            cost,
            key: None,
            found: 0,
            window,
            offers: 0,
            attempts: 0,
            reply: Reply::Answered,
            awaited: true,
            away: false,
            recalled: false,
            tried: [BackendId::new(0, 0); MAX_OFFERS],
            report: None,
        }
    }

    /// Backends that it was offered to.
    pub(crate) fn tried(&self) -> &[BackendId] {
        &self.tried[..usize::from(self.offers)]
    }

    /// Whether anybody has to do with it still.
    pub(crate) fn is_over(&self) -> bool {
        !(self.awaited || self.away || self.recalled)
    }
}

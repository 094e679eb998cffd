//! One attempt at one backend, from the pick to the last byte of the response.
//!
//! The machine counts a picked backend's active requests, so every pick must be finished exactly once,
//! whatever happens: an answer, an error, or a caller that goes away at any point. An [`Attempt`] is
//! that promise: dropped unfinished, it finishes as cancelled. Its end takes the cluster's lock once,
//! for the outcome and the load report together.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use plimsoll_core::{BackendId, LoadReport, Outcome, Timestamp};

use super::cluster::{Done, Ending, Report, Shared};
use super::http1::Connection;
use super::pool::ConnectionId;

/// Where a connection goes when its request is over: its client's pool.
///
/// A trait, so that the body of a response need not carry the type of the request's body.
pub(crate) trait Home: Send + Sync {
    fn cluster(&self) -> &Shared;
    /// A request on an HTTP/2 connection is over.
    fn give_back(&self, connection: ConnectionId, now: Timestamp);
    /// An HTTP/1 connection may serve again; it is returned if its backend has closed it.
    fn give_back_http1(&self, backend: BackendId, connection: Box<Connection>) -> Result<(), Box<Connection>>;
    /// An HTTP/1 connection was closed while it was in use, after so many requests.
    fn closed_http1(self: Arc<Self>, backend: BackendId, requests: u64);
}

/// One attempt at one backend.
pub(crate) struct Attempt {
    home: Arc<dyn Home>,
    id: BackendId,
    started: Timestamp,
    connection: Option<ConnectionId>,
    outcome: Option<Outcome>,
    status: Option<StatusCode>,
    latency: Option<Duration>,
    report: Report,
    /// The request is over when this is dropped, and well: so with a connection that left HTTP.
    ends_by_drop: bool,
    open: bool,
}

impl Attempt {
    /// Takes on what [`Shared::pick`] gave.
    pub(crate) fn new(home: Arc<dyn Home>, id: BackendId, started: Timestamp) -> Self {
        Self {
            home,
            id,
            started,
            connection: None,
            outcome: None,
            status: None,
            latency: None,
            report: Report::None,
            ends_by_drop: false,
            open: true,
        }
    }

    pub(crate) fn id(&self) -> BackendId {
        self.id
    }

    /// The request is on this connection now.
    pub(crate) fn sent_on(&mut self, connection: ConnectionId) {
        self.connection = Some(connection);
    }

    /// The connection is of no more use to this attempt.
    pub(crate) fn leave_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.home.give_back(connection, self.home.cluster().now());
        }
    }

    /// The head of the response has come; `outcome` as far as it decides one.
    pub(crate) fn answered(&mut self, status: StatusCode, outcome: Option<Outcome>) {
        let now = self.home.cluster().now();
        self.status = Some(status);
        self.outcome = outcome;
        self.latency = Some(now.since(self.started));
    }

    /// A load report, or the attempt at one, was in the head or the trailers.
    pub(crate) fn reported<E>(&mut self, report: Option<Result<LoadReport, E>>) {
        match report {
            None => {}
            Some(Ok(load)) => self.report = Report::Load(load),
            Some(Err(_)) => self.report = Report::Malformed,
        }
    }

    /// Hands the report in now instead of at the end: of a body that may take long, the report would be
    /// old by then, and a lame duck must be known at once.
    pub(crate) fn report_now(&mut self) {
        let report = std::mem::replace(&mut self.report, Report::None);
        if !matches!(report, Report::None) {
            let cluster = self.home.cluster();
            cluster.report(cluster.now(), self.id, &report);
        }
    }

    /// The connection speaks another protocol from here on; the request lasts until this is dropped.
    pub(crate) fn upgraded(&mut self) {
        self.ends_by_drop = true;
        self.report_now();
    }

    /// The response is complete. `outcome` counts unless the head decided already.
    pub(crate) fn complete(&mut self, outcome: Outcome) {
        if self.ends_by_drop {
            return;
        }
        let outcome = self.outcome.unwrap_or(outcome);
        self.end(outcome, self.status.map_or(Ending::Broken, Ending::Answered));
    }

    /// The attempt failed before its response was complete.
    pub(crate) fn fail(&mut self, ending: Ending) {
        let outcome = if ending == Ending::Cancelled { Outcome::Cancelled } else { Outcome::Failure };
        if ending == Ending::TimedOut {
            // What it would have taken is not known, but it is at least this.
            let waited = self.home.cluster().now().since(self.started);
            self.latency = self.latency.or(Some(waited));
        }
        self.end(outcome, ending);
    }

    /// The attempt failed for a reason that says nothing of the backend.
    pub(crate) fn fail_without_blame(&mut self, ending: Ending) {
        self.end(Outcome::Cancelled, ending);
    }

    fn end(&mut self, outcome: Outcome, ending: Ending) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let cluster = self.home.cluster();
        let now = cluster.now();
        if let Some(connection) = self.connection.take() {
            self.home.give_back(connection, now);
        }
        cluster.finish(now, self.id, &Done { outcome, ending, latency: self.latency, report: self.report });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.ends_by_drop, false) {
            self.complete(Outcome::Success);
        } else if self.open {
            // A head that blames the backend stands, even if nobody reads on.
            let outcome = self.outcome.filter(|outcome| *outcome != Outcome::Success);
            let ending = match (outcome, self.status) {
                (Some(_), Some(status)) => Ending::Answered(status),
                _ => Ending::Cancelled,
            };
            self.end(outcome.unwrap_or(Outcome::Cancelled), ending);
        }
    }
}

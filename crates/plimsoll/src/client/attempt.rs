//! One attempt at one backend, from the pick to the last byte of the response.
//!
//! The machine counts a picked backend's active requests, so every pick must be finished exactly once,
//! whatever happens: an answer, an error, or a caller that goes away at any point. An [`Attempt`] is
//! that promise: dropped unfinished, it finishes as cancelled. Its end takes the cluster's lock once,
//! for the outcome and the load report together.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use plimsoll_core::{BackendId, Criticality, LoadReport, Outcome, Timestamp, throttle};

use super::batch::Place;
use super::cluster::{Done, Ending, Report, Shared, Taken};
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
    criticality: Criticality,
    /// The throttle knows what it can learn by it.
    is_told: bool,
    /// What the throttle is to make of it, where the outcome does not say.
    taken: Option<throttle::Outcome>,
    connection: Option<ConnectionId>,
    outcome: Option<Outcome>,
    status: Option<StatusCode>,
    latency: Option<Duration>,
    report: Report,
    /// The request's right to be at a backend, if it is batch work.
    place: Option<Box<Place>>,
    /// The request is over when this is dropped, and well: so with a connection that left HTTP.
    ends_by_drop: bool,
    open: bool,
}

impl Attempt {
    /// Takes on what [`Shared::pick`] gave.
    pub(crate) fn new(home: Arc<dyn Home>, id: BackendId, started: Timestamp, criticality: Criticality) -> Self {
        Self {
            home,
            id,
            started,
            criticality,
            is_told: false,
            taken: None,
            connection: None,
            outcome: None,
            status: None,
            latency: None,
            report: Report::None,
            place: None,
            ends_by_drop: false,
            open: true,
        }
    }

    /// The same of a request that has a place, which lasts as long as this does. It went by credit and not by the throttle, which is told
    /// nothing of it either.
    pub(crate) fn in_place(mut self, place: Option<Box<Place>>) -> Self {
        self.is_told = place.is_some();
        self.place = place;
        self
    }

    pub(crate) fn id(&self) -> BackendId {
        self.id
    }

    /// The request was refused, and comes back if it is batch work.
    pub(crate) fn refused(&mut self) {
        if let Some(place) = &mut self.place {
            place.rejected();
        }
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

    /// The backend has room, and held the request back from one behind it that has not: nothing to hold back from this one for. It is
    /// as fast as a failure, though, so that to the balancer it stays one that would rather not.
    pub(crate) fn held_back(&mut self) {
        self.taken = Some(throttle::Outcome::Accepted);
    }

    /// A load report, or the attempt at one, was in the head or the trailers.
    pub(crate) fn reported<E>(&mut self, report: Option<Result<LoadReport, E>>) {
        match report {
            None => {}
            Some(Ok(load)) => {
                if let Some(place) = &self.place {
                    place.reported(&load);
                }
                self.report = Report::Load(load);
            }
            Some(Err(_)) => self.report = Report::Malformed,
        }
    }

    /// Hands in what the head of the response says now instead of at the end: of a body that may take long, the report would be
    /// old by then, and a lame duck must be known at once; and that the backend takes requests on is news only today.
    pub(crate) fn report_now(&mut self) {
        let report = std::mem::replace(&mut self.report, Report::None);
        let cluster = self.home.cluster();
        let is_taken = !self.is_told
            && cluster.throttles()
            && (self.taken.is_some() || !matches!(self.outcome, Some(Outcome::Overloaded)));
        if is_taken || !matches!(report, Report::None) {
            self.is_told |= is_taken;
            let outcome = self.taken.unwrap_or(throttle::Outcome::Accepted);
            let taken = Taken { criticality: self.criticality, outcome };
            cluster.report(cluster.now(), self.id, &report, is_taken.then_some(taken));
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

    /// Nothing listens there: for the health of the backend to deal with. A restart is no overload, and after one nothing is to be held
    /// back; nor does it cost a backend anything not to be there.
    pub(crate) fn fail_refused(&mut self, ending: Ending) {
        self.taken = Some(throttle::Outcome::Unknown);
        self.fail(ending);
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
        let said = taken(outcome, ending, self.status.is_some());
        let mut place = self.place.take();
        if let Some(place) = &mut place {
            match said {
                throttle::Outcome::Rejected => place.rejected(),
                throttle::Outcome::Accepted => place.accepted(),
                throttle::Outcome::Unknown => {}
            }
        }
        let taken =
            (!self.is_told).then(|| Taken { criticality: self.criticality, outcome: self.taken.unwrap_or(said) });
        cluster.finish(now, self.id, &Done { outcome, ending, latency: self.latency, report: self.report, taken });
        // Last, so that who gets the place finds the backend free.
        drop(place);
    }
}

/// What the throttle, or the credit of batch work, makes of an attempt that ended so, whether or not there was the head of a response.
fn taken(outcome: Outcome, ending: Ending, has_head: bool) -> throttle::Outcome {
    match (outcome, ending) {
        (Outcome::Overloaded, _) => throttle::Outcome::Rejected,
        // Without blame: it was this side that could not, or that went away.
        (Outcome::Cancelled, _) if !has_head => throttle::Outcome::Unknown,
        (Outcome::Cancelled, _) | (_, Ending::Answered(_) | Ending::Cancelled) => throttle::Outcome::Accepted,
        (_, Ending::ConnectFailed | Ending::Broken | Ending::TimedOut) => throttle::Outcome::Rejected,
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

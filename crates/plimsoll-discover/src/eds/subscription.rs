//! The protocol of one service: the next request, the meaning of a response, and the time of the next
//! stream.
//!
//! ```text
//! first request of a stream   the last accepted version, no nonce
//! ACK                         the version of the response, its nonce
//! NACK                        the last accepted version, the nonce of the response, the problem
//! no list within 8 s          an error: the control plane does not know the service
//! no word within 8 s, with
//! a list of an earlier stream nothing changed
//! stream ended                after a response: a new one within a second, and no error
//!                             else an error: Refresh, 1 s doubled up to 30 s, ±20%
//! ```
//!
//! State of the world: each response has the whole list of a service. Such a response may leave out
//! services, and that removes nothing: only an assignment without endpoints is an empty list.
//!
//! A control plane need not repeat a version that the client had on its last stream. So silence on a new
//! stream means that the list is as before. The first seconds of silence mean nothing, though, and the
//! source counts as failing until then.
//!
//! Control planes end streams when they restart, and some do so every half an hour to spread their
//! clients. That is no failure while the next stream begins at once (gRFC A57).
//!
//! Where it is weak: a control plane that counts its versions anew after a restart may call another list by
//! the version that the client has, and then not send it. The protocol forbids that.
//!
//! Source: "xDS REST and gRPC protocol" of the Envoy documentation.

use std::time::Duration;

use bytes::Bytes;
use plimsoll::discover::Endpoint;
use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Refresh, RefreshConfig};
use prost::Message as _;
use rand_core::Rng;

use super::assignment::{self, Assignment, AssignmentError};
use super::levels::LocalityFrom;
use super::message::{ASSIGNMENT, Any, AssignmentHead, ResponseHead, WRAPPER, Wrapper};
use super::repeated::{Malformed, Repeated};

/// Time for a first list on a stream. Envoy and gRPC wait for 15 s, and then the service has no endpoints. Here
/// it is an error that changes nothing, and a start of the proxy waits for 10 s only.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(8);
/// Longest wait after a stream that was in order. The clients of a control plane that restarts do not
/// return in step.
const MAX_SPREAD: Duration = Duration::from_secs(1);
/// The longest version and nonce that are kept, in bytes.
const MAX_TEXT: usize = 4096;

/// A request, apart from the parts that never change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) version: String,
    pub(super) nonce: String,
    /// The problem of the response of this nonce. `None`: accepted, or the first request.
    pub(super) rejected: Option<String>,
}

/// The reason why a response is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResponseError {
    /// It is rejected by the request that goes with this.
    #[error("its ClusterLoadAssignment is rejected: {0}")]
    Rejected(#[from] Rejection),
    /// It cannot be answered, and the stream is no use.
    #[error("a response is no DiscoveryResponse: {0}")]
    Malformed(#[from] Malformed),
    #[error("a version or nonce has more than {MAX_TEXT} bytes")]
    TooLong,
}

/// The reason why a resource is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejection {
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    #[error("a resource is a `{0}`")]
    Type(String),
    #[error("it is there twice")]
    Twice,
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        Self::Assignment(malformed.into())
    }
}

impl From<prost::DecodeError> for Rejection {
    fn from(error: prost::DecodeError) -> Self {
        Malformed::from(error).into()
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// There is no stream until then.
    Closed { due: Timestamp },
    Open {
        began: Timestamp,
        /// The end of the wait for a first word.
        answer_due: Option<Timestamp>,
        /// It had a response, or was silent for long enough.
        is_good: bool,
    },
}

/// The subscription to one service. See the [module](self).
#[derive(Debug)]
pub(super) struct Subscription {
    service: String,
    from: LocalityFrom,
    phase: Phase,
    /// The last accepted version.
    version: String,
    /// The last good list.
    list: Option<Vec<Endpoint>>,
    /// The control plane's word is the list: it neither failed since nor sent a wrong one.
    is_confirmed: bool,
    /// The last response with the service was wrong.
    is_rejected: bool,
    /// The last answer of the source was the list.
    is_told: bool,
    /// Shares of requests to drop were warned of.
    is_warned: bool,
    errors: Refresh,
}

impl Subscription {
    /// Before the first stream, which is due at once.
    pub(super) fn new(service: String, now: Timestamp) -> Self {
        Self {
            service,
            from: LocalityFrom::default(),
            phase: Phase::Closed { due: now },
            version: String::new(),
            list: None,
            is_confirmed: false,
            is_rejected: false,
            is_told: false,
            is_warned: false,
            errors: Refresh::new(RefreshConfig::default()),
        }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    pub(super) fn locality_from(&self) -> LocalityFrom {
        self.from
    }

    pub(super) fn set_locality_from(&mut self, from: LocalityFrom) {
        self.from = from;
    }

    /// The first request of a stream, if one is due. It counts as begun.
    pub(super) fn poll_stream(&mut self, now: Timestamp) -> Option<Request> {
        match self.phase {
            Phase::Closed { due } if due <= now => {}
            _ => return None,
        }
        self.phase = Phase::Open { began: now, answer_due: None, is_good: false };
        (self.is_rejected, self.is_confirmed) = (false, false);
        Some(Request { version: self.version.clone(), ..Request::default() })
    }

    /// When to call [`poll_stream`](Self::poll_stream) and [`on_due`](Self::on_due).
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Closed { due } => Some(due),
            Phase::Open { answer_due, .. } => answer_due,
        }
    }

    /// The stream has a connection.
    pub(super) fn on_connected(&mut self, now: Timestamp) {
        if let Phase::Open { answer_due, .. } = &mut self.phase {
            *answer_due = Some(now + ANSWER_TIME);
        }
    }

    /// The time to wait for a list is over. Returns whether the control plane does not know the service.
    pub(super) fn on_due(&mut self, now: Timestamp) -> bool {
        let Phase::Open { answer_due, is_good, .. } = &mut self.phase else { return false };
        if answer_due.is_none_or(|due| now < due) {
            return false;
        }
        *answer_due = None;
        if self.list.is_none() {
            return true;
        }
        *is_good = true;
        self.is_confirmed = !self.is_rejected;
        self.errors = Refresh::new(RefreshConfig::default());
        false
    }

    /// A response came. Returns the request that answers it; an error without one ends the stream: call
    /// [`on_ended`](Self::on_ended).
    pub(super) fn on_response(&mut self, response: Bytes) -> (Option<Request>, Result<(), ResponseError>) {
        let head = match ResponseHead::decode(response.clone()) {
            Ok(head) => head,
            Err(error) => return (None, Err(ResponseError::Malformed(error.into()))),
        };
        if head.version_info.len() > MAX_TEXT || head.nonce.len() > MAX_TEXT {
            return (None, Err(ResponseError::TooLong));
        }
        // A stream of all types. To answer another one would subscribe to it.
        if head.type_url != ASSIGNMENT {
            tracing::debug!(service = self.service, type_url = assignment::short(&head.type_url), "response ignored");
            return (None, Ok(()));
        }
        if let Phase::Open { is_good, .. } = &mut self.phase {
            *is_good = true;
        }
        self.errors = Refresh::new(RefreshConfig::default());
        match self.find(response) {
            Ok(found) => {
                self.version = head.version_info;
                match found {
                    Some(Assignment { endpoints, has_drops }) => self.accept(endpoints, has_drops),
                    None => self.is_confirmed = self.list.is_some() && !self.is_rejected,
                }
                (Some(Request { version: self.version.clone(), nonce: head.nonce, rejected: None }), Ok(()))
            }
            Err(rejection) => {
                (self.is_rejected, self.is_confirmed) = (true, false);
                self.stop_waiting();
                let rejected = Some(format!("{}: {rejection}", self.service));
                let request = Request { version: self.version.clone(), nonce: head.nonce, rejected };
                (Some(request), Err(rejection.into()))
            }
        }
    }

    fn accept(&mut self, endpoints: Vec<Endpoint>, has_drops: bool) {
        if has_drops && !self.is_warned {
            self.is_warned = true;
            tracing::warn!(service = self.service, "drop_overloads of the control plane has no effect");
        }
        self.is_told &= self.list.as_ref() == Some(&endpoints);
        self.list = Some(endpoints);
        (self.is_rejected, self.is_confirmed) = (false, true);
        self.stop_waiting();
    }

    fn stop_waiting(&mut self) {
        if let Phase::Open { answer_due, .. } = &mut self.phase {
            *answer_due = None;
        }
    }

    /// The assignment of the service among the resources of a response.
    fn find(&self, response: Bytes) -> Result<Option<Assignment>, Rejection> {
        let mut found = None;
        for resource in Repeated::new(response, ResponseHead::RESOURCES) {
            let mut any = Any::decode(resource?)?;
            if any.type_url == WRAPPER {
                match Wrapper::decode(any.value)?.resource {
                    Some(resource) => any = resource,
                    None => continue,
                }
            }
            if any.type_url != ASSIGNMENT {
                return Err(Rejection::Type(assignment::short(&any.type_url)));
            }
            if AssignmentHead::decode(any.value.clone())?.cluster_name != self.service {
                continue;
            }
            if found.replace(assignment::read(any.value, self.from)?).is_some() {
                return Err(Rejection::Twice);
            }
        }
        Ok(found)
    }

    /// The stream ended, or did not begin. Returns whether that is an error; else the next one begins
    /// within a second.
    pub(super) fn on_ended(&mut self, now: Timestamp, rng: &mut impl Rng) -> bool {
        let Phase::Open { began, is_good, .. } = self.phase else { return false };
        let wait = self.errors.on_error(rng);
        if is_good {
            // The first wait counts from the begin of the stream: one that always ends at once must not cost
            // much.
            let spread = MAX_SPREAD.mul_f64(f64::from(rng.next_u32()) / f64::from(u32::MAX));
            self.errors = Refresh::new(RefreshConfig::default());
            self.phase = Phase::Closed { due: (began + wait).max(now + spread) };
            return false;
        }
        self.phase = Phase::Closed { due: now + wait };
        true
    }

    /// The list, if it differs from the last answer of the source.
    pub(super) fn poll_list(&mut self) -> Option<Vec<Endpoint>> {
        if !self.is_confirmed || self.is_told {
            return None;
        }
        self.is_told = true;
        self.list.clone()
    }

    /// The answer of the source is an error. The same list is an answer again after it.
    pub(super) fn on_error(&mut self) {
        self.is_told = false;
    }
}

//! The end of an attempt at a backend, with everything that follows from it, in one table.
//!
//! An attempt ends once. The balancer, the throttle, the gate of batch work, the retry decision, the
//! metrics and the caller each need their own view of that end. [`AttemptEnd::row`] holds all views of
//! an end in one line, so a new kind of end is one variant and one line.
//!
//! The head of a response may blame its backend before the attempt fails: [`Blame`] says which of the
//! two counts. Two columns depend on the moment as well: the throttle's view of a lost connection and
//! of a wait depends on the silence and on the length of the wait
//! ([`throttle`](plimsoll_core::throttle)).

use http::StatusCode;
use plimsoll_core::batch::{self, Fate};
use plimsoll_core::rejection::Evidence;
use plimsoll_core::retry::{Advice, Failure};
use plimsoll_core::{Outcome, Rejection};
use plimsoll_wire::grpc::Code;

/// The end of one attempt at a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// A response that does not blame the backend.
    Served,
    /// HTTP 429 or RESOURCE_EXHAUSTED.
    RateLimited,
    /// A response that blames the backend, such as 500.
    Failed,
    /// A gRPC status after an accepted call: a backend behind this one had no time for it.
    ExpiredBehind,
    /// The backend shed the request, for a reason that it named.
    Shed(Rejection),
    /// The backend shed the request and named no reason: pushback, `Retry-After`, Envoy's mark.
    PushedBack,
    /// The same, with the advice never to retry.
    PushedBackFinally,
    /// 502, 503 or UNAVAILABLE; the request may have been carried out.
    Unavailable,
    /// The same, with the advice never to retry.
    UnavailableFinally,
    /// Nothing listens at the backend's address.
    ConnectRefused,
    /// No connection could be opened.
    ConnectFailed,
    /// No connection could be opened, for a reason on this side.
    ConnectLocal,
    /// No connection was open in time.
    ConnectTimeout,
    /// The backend was removed while the request waited for a connection.
    Removed,
    /// No head of a response came in time.
    Timeout,
    /// No head of a response came in the time of one attempt, and another took its place.
    Overdue,
    /// The body of a response stopped, and the backend had announced more.
    BodyOverdue,
    /// The body of a response stopped, and nothing says that the backend owes more.
    BodyIdle,
    /// The caller's own body failed.
    RequestBody,
    /// The request waited for its caller, and ended for others.
    Preempted,
    /// The peer refused the stream: it did not look at the request.
    RefusedStream,
    /// The connection closed, or the backend reset the stream.
    Closed,
    /// The backend ended the response early, without an error.
    CutOff,
    /// The response is not HTTP.
    Malformed,
    /// A connection that other requests share broke the protocol.
    MalformedConnection,
    /// The caller left before there was a response.
    Left,
    /// This side took the request back: another attempt was quicker, or it was never sent.
    Withdrawn,
}

/// The effects of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The word in metrics and logs.
    pub(crate) name: &'static str,
    /// The outcome for the balancer.
    pub(crate) outcome: Outcome,
    /// Whether the outcome counts beside that of a head.
    pub(crate) blame: Blame,
    /// The view of the throttle.
    pub(crate) throttle: Lesson,
    /// The count of the backend.
    pub(crate) metric: Metric,
    /// The view of the retry decision, without advice; `None` if no time is left for a retry.
    pub(crate) retry: Option<Failure>,
    /// The view of the gate of batch work, on sending again.
    pub(crate) batch: batch::Failure,
    /// The fate of batch work for its credit; `None` goes by the throttle's view.
    pub(crate) credit: Option<Fate>,
    /// The answer of a gateway.
    pub(crate) gateway: Gateway,
}

/// Which of an end and the head before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The backend is to blame for this end, even after a good head.
    Backend,
    /// The backend is to blame if it had long enough, and nobody otherwise.
    Wait,
    /// Nobody is to blame for this end: the blame in a head stands.
    Nobody,
    /// The caller is to blame: not even the head counts for the balancer.
    Caller,
}

/// The view of the throttle, before its circumstances are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// The backend accepted the request.
    Accepted,
    /// The backend shed the request.
    Shed,
    /// The backend throttled the request, and has headroom itself.
    Throttled,
    /// Nothing listens there.
    ConnectRefused,
    /// A connection was lost: that counts in a silence only.
    Lost,
    /// An answer did not come: that counts if the wait was long.
    Waited,
    /// As [`Lesson::Waited`], in a silence or not.
    WaitedWithinLimit,
    /// Nothing.
    Nothing,
}

/// The count that an end adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Responses, by the class of the status.
    Response,
    /// Attempts that the caller abandoned.
    Cancelled,
    /// Attempts without a connection.
    ConnectFailed,
    /// Attempts that ended with a broken connection.
    Broken,
    /// Attempts that ran out of time.
    TimedOut,
}

/// The answer of a gateway to a request that ended so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gateway {
    /// The answer of this reason.
    Shed(Rejection),
    /// Status, gRPC code and a line for people, which names no backend: its reader may be a stranger.
    Own(StatusCode, Code, &'static str),
}

const REQUEST_BODY: Gateway =
    Gateway::Own(StatusCode::BAD_REQUEST, Code::Cancelled, "request-body: the body of the request ended too early");
const PREEMPTED: Gateway = Gateway::Own(
    StatusCode::REQUEST_TIMEOUT,
    Code::Unavailable,
    "preempted: the client was slow while other requests waited for a backend",
);
const BAD_RESPONSE: Gateway =
    Gateway::Own(StatusCode::BAD_GATEWAY, Code::Internal, "bad-response: the backend's answer broke the protocol");
const BODY_IDLE: Gateway = Gateway::Own(
    StatusCode::GATEWAY_TIMEOUT,
    Code::Unavailable,
    "body-idle: the backend sent nothing more for too long",
);
const CLOSED: Gateway = Gateway::Own(
    StatusCode::BAD_GATEWAY,
    Code::Unavailable,
    "closed: the backend closed the connection before its answer was complete",
);
const NO_BACKEND: Gateway = Gateway::Shed(Rejection::NoBackend);
const DEADLINE: Gateway = Gateway::Shed(Rejection::Deadline);

/// A failure of these classes, without advice of the backend.
const SHED: Option<Failure> = Some(Failure::Shed(Advice::None));
const UNAVAILABLE: Option<Failure> = Some(Failure::Failed(Advice::None));
const FINAL: Option<Failure> = Some(Failure::Final);

impl AttemptEnd {
    /// The table.
    pub(crate) const fn row(self) -> Row {
        use batch::Failure as B;
        use {Failure as Retry, Lesson as L, Metric as M};
        const OVERLOADED: B = B::Rejected(Rejection::Overloaded);
        const BROKEN: Option<Failure> = Some(Retry::Broken);
        const THROTTLED: Option<Failure> = Some(Retry::Throttled);
        const ELSEWHERE: Option<Failure> = Some(Retry::Shed(Advice::Elsewhere));
        match self {
            // The response decides: outcome, throttle, retry, batch.
            Self::Served => Row::response("served", Outcome::Success, L::Accepted, FINAL, B::Final, CLOSED),
            Self::RateLimited => Row::rejection(Rejection::Quota, Outcome::RateLimited, L::Accepted, FINAL),
            Self::Failed => Row::response("failed", Outcome::Failure, L::Accepted, FINAL, B::Final, CLOSED),
            Self::ExpiredBehind => Row::rejection(Rejection::Deadline, Outcome::Cancelled, L::Accepted, FINAL),
            Self::Unavailable => {
                Row::response("unavailable", Outcome::Failure, L::Accepted, UNAVAILABLE, B::Unavailable, NO_BACKEND)
            }
            Self::UnavailableFinally => Row { batch: B::ToldNot, ..Self::Unavailable.row() },
            Self::PushedBack => {
                Row::response("unavailable", Outcome::Overloaded, L::Shed, SHED, OVERLOADED, NO_BACKEND)
            }
            Self::PushedBackFinally => Row { batch: B::ToldNot, ..Self::PushedBack.row() },
            Self::Shed(reason) => {
                let (throttle, retry) = match reason.row().evidence {
                    Evidence::Overload => (L::Shed, SHED),
                    Evidence::Headroom => (L::Throttled, THROTTLED),
                    Evidence::TooLate => (L::WaitedWithinLimit, SHED),
                };
                Row::rejection(reason, Outcome::Overloaded, throttle, retry)
            }
            // Nothing was sent: blame, throttle.
            Self::ConnectRefused => Row::unsent(Blame::Backend, L::ConnectRefused),
            Self::ConnectFailed => Row::unsent(Blame::Backend, L::Lost),
            Self::ConnectLocal => Row::unsent(Blame::Nobody, L::Nothing),
            Self::ConnectTimeout => Row { credit: None, ..Row::unsent(Blame::Wait, L::Waited) },
            Self::Removed => Row::own(Rejection::NoBackend.name(), Blame::Nobody, L::Nothing, M::Cancelled, NO_BACKEND),
            // The backend may have seen the request: retry, batch.
            Self::RefusedStream => Row::lost("closed", ELSEWHERE, OVERLOADED, CLOSED),
            Self::Closed => Row::lost("closed", BROKEN, B::Broken, CLOSED),
            Self::CutOff => Row::lost("closed", FINAL, B::Final, CLOSED),
            Self::Malformed => Row::lost("bad-response", FINAL, B::Final, BAD_RESPONSE),
            // Another request's response may have been the malformed one.
            Self::MalformedConnection => Row::lost("bad-response", BROKEN, B::Final, BAD_RESPONSE),
            // The time of the request is up, and not that of an attempt: there is none left for a retry.
            Self::Timeout => Row { retry: None, batch: B::TimedOut, ..Row::late("timeout", Blame::Wait, DEADLINE) },
            // Another attempt has begun already.
            Self::Overdue => Row { retry: Some(Retry::Overdue), ..Row::late("attempt-timeout", Blame::Wait, DEADLINE) },
            Self::BodyOverdue => Row::late("body-idle", Blame::Backend, BODY_IDLE),
            Self::BodyIdle => Row { outcome: Outcome::Cancelled, ..Row::late("body-idle", Blame::Nobody, BODY_IDLE) },
            // This side ended it: blame, throttle.
            Self::RequestBody => Row::own("request-body", Blame::Caller, L::Nothing, M::Cancelled, REQUEST_BODY),
            Self::Preempted => Row::own("preempted", Blame::Nobody, L::Nothing, M::Cancelled, PREEMPTED),
            Self::Left => Row::own("left", Blame::Nobody, L::Waited, M::Cancelled, DEADLINE),
            Self::Withdrawn => Row::own("withdrawn", Blame::Nobody, L::Nothing, M::Cancelled, DEADLINE),
        }
    }

    /// Whether the end says something about the health of the backend.
    pub(crate) const fn is_evidence(self) -> bool {
        !matches!(self.row().outcome, Outcome::Cancelled)
    }

    /// Whether the backend shed the request.
    pub(crate) const fn is_shed(self) -> bool {
        matches!(self, Self::Shed(_) | Self::PushedBack | Self::PushedBackFinally)
    }

    /// Whether a response blames its backend for this end, so that the blame stands if nobody reads on.
    pub(crate) const fn blames_backend(self) -> bool {
        !matches!(self.row().outcome, Outcome::Success | Outcome::Cancelled)
    }
}

impl Row {
    /// A response, which counts by its status.
    const fn response(
        name: &'static str,
        outcome: Outcome,
        throttle: Lesson,
        retry: Option<Failure>,
        batch: batch::Failure,
        gateway: Gateway,
    ) -> Self {
        let (blame, metric, credit) = (Blame::Backend, Metric::Response, None);
        Self { name, outcome, blame, throttle, metric, retry, batch, credit, gateway }
    }

    /// A response for a reason of the table of rejections.
    const fn rejection(reason: Rejection, outcome: Outcome, throttle: Lesson, retry: Option<Failure>) -> Self {
        let batch = batch::Failure::Rejected(reason);
        Self::response(reason.name(), outcome, throttle, retry, batch, Gateway::Shed(reason))
    }

    /// No connection was opened. Batch work is retried, but not at once: its credit falls for every
    /// cause.
    const fn unsent(blame: Blame, throttle: Lesson) -> Self {
        let outcome = if matches!(blame, Blame::Nobody) { Outcome::Cancelled } else { Outcome::Failure };
        let credit = Some(Fate::Rejected);
        let own = Self::own("connect-failed", blame, throttle, Metric::ConnectFailed, NO_BACKEND);
        Self { outcome, credit, batch: batch::Failure::Unsent, ..own }
    }

    /// A connection that broke under the request. Lost work must not come back at once.
    const fn lost(name: &'static str, retry: Option<Failure>, batch: batch::Failure, gateway: Gateway) -> Self {
        let (outcome, blame, throttle, metric) = (Outcome::Failure, Blame::Backend, Lesson::Lost, Metric::Broken);
        Self { name, outcome, blame, throttle, metric, retry, batch, credit: Some(Fate::Rejected), gateway }
    }

    /// Time ran out.
    const fn late(name: &'static str, blame: Blame, gateway: Gateway) -> Self {
        Self { outcome: Outcome::TimedOut, ..Self::own(name, blame, Lesson::Waited, Metric::TimedOut, gateway) }
    }

    /// An end without evidence.
    const fn own(name: &'static str, blame: Blame, throttle: Lesson, metric: Metric, gateway: Gateway) -> Self {
        let (outcome, retry, batch, credit) = (Outcome::Cancelled, FINAL, batch::Failure::Final, None);
        Self { name, outcome, blame, throttle, metric, retry, batch, credit, gateway }
    }

    /// The view of the retry decision, with the advice of the backend.
    pub(crate) const fn retry_with(&self, advice: Advice) -> Failure {
        match self.retry {
            Some(Failure::Shed(_)) => Failure::Shed(advice),
            Some(Failure::Failed(_)) => Failure::Failed(advice),
            Some(failure) => failure,
            None => Failure::Final,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Lines of `dir` with a match on a kind of end.
    fn matches(dir: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                matches(&path, found);
            } else if !path.ends_with("attempt_end.rs") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let is_match = |line: &&str| {
                    let arm = line.split_once("=>").is_some_and(|(pattern, _)| pattern.contains("AttemptEnd::"));
                    arm || line.contains("matches!") && line.contains("AttemptEnd::")
                };
                found.extend(text.lines().filter(is_match).map(|line| format!("{}: {line}", path.display())));
            }
        }
    }

    /// A new kind of end is its variant and its row: the compiler asks for the row, and nothing else looks at the kind.
    #[test]
    fn kinds_of_ends_are_told_apart_in_the_table_alone() {
        let mut found = Vec::new();
        matches(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn end_of_a_shed_request_answers_with_its_reason() {
        for &reason in Rejection::SHED {
            let row = AttemptEnd::Shed(reason).row();
            assert_eq!((row.name, row.gateway), (reason.name(), Gateway::Shed(reason)));
        }
    }
}

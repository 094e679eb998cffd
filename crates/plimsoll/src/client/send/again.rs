//! The retry of a request that a backend may have seen and did not serve.
//!
//! [`plimsoll_core::retry`] decides, under the cluster's lock, where the budget is. Here are the
//! facts for that decision, and the fields of a further attempt:
//!
//! - its number, in `x-envoy-attempt-count` or `grpc-previous-rpc-attempts`. A first attempt has none,
//!   so a request without retries pays nothing for it. A request that came with a number counts on from it;
//! - the time left, if the request states its timeout. A first attempt that waited for its turn or for a
//!   connection states it too.

use crate::address::Address;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use http_body::Body as _;
use plimsoll_core::BackendId;
use plimsoll_core::retry::{self, CallerAnswer};
use plimsoll_wire::headers::{
    GRPC_PREVIOUS_RPC_ATTEMPTS, GRPC_TIMEOUT, X_ENVOY_ATTEMPT_COUNT, X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
};
use plimsoll_wire::metadata;
use plimsoll_wire::shed::say_overloaded_no_retry;

use super::{Call, Turn};
use crate::client::attempt::Streams as _;
use crate::client::body::ResponseBody;
use crate::client::cluster::{Ask, Denial, Grant};
use crate::client::error::Error;
use crate::client::failed_attempt::{Failure, NextStep, NoRetryReason};
use crate::client::outgoing::Outgoing;
use crate::client::refused::Refusal;
use crate::client::replay::{Copy, is_idempotent};
use crate::client::request_body::RequestBody;

/// Largest part of a refusal's body that is read so that its connection can be used again, and the
/// longest wait for it.
const MAX_DISCARDED: usize = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The facts that decide whether a request can be sent again.
#[derive(Clone, Copy)]
pub(super) struct Repeatability {
    is_idempotent: bool,
    /// All that was sent of its body is there.
    is_whole: bool,
    /// Bytes kept of it.
    kept: usize,
}

impl Repeatability {
    pub(super) fn of<B: RequestBody>(request: &Request<Outgoing<B>>) -> Self {
        Self {
            is_idempotent: is_idempotent(request.method(), request.extensions()),
            is_whole: request.body().is_whole(),
            kept: request.body().kept_bytes(),
        }
    }

    /// Whether carrying it out twice is the same as once.
    pub(super) fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// Whether all that was sent of its body is there.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The same of a request that was handed over; `None` if no copy could be made.
    pub(super) fn of_copy<B: RequestBody>(copy: Option<&Copy<B>>) -> Self {
        let Some(copy) = copy else { return Self { is_idempotent: false, is_whole: false, kept: 0 } };
        Self { is_idempotent: copy.is_idempotent(), is_whole: copy.is_whole(), kept: copy.kept_bytes() }
    }
}

impl<B: RequestBody> Call<'_, B> {
    /// The attempt at `id` broke, and the backend may have seen the request: the next turn, or the
    /// error.
    #[cold]
    pub(super) fn after_error(
        &mut self,
        id: BackendId,
        error: Error,
        request: Repeatability,
    ) -> Result<Turn, Box<Error>> {
        if self.race.is_some() {
            return Err(Box::new(error));
        }
        self.retried("failed");
        let outcome = match () {
            () if self.is_batch() => self.comes_back(&error, request).map_err(Denial::as_it_is),
            () => match error.end().row().retry {
                Some(failure) => self.decide(id, failure, error.clone(), request),
                None => Err(Denial::as_it_is(NoRetryReason::TooLate)),
            },
        };
        self.report(id, Failure::Error(error.clone()), &outcome);
        outcome.map_err(|denied| Box::new(error.after(self.made, self.seen).with_caller_answer(denied.caller_answer)))
    }

    /// The backend `id` has refused the request: the next turn, or the reason to pass its answer
    /// on.
    #[cold]
    pub(super) fn after_refusal(
        &mut self,
        id: BackendId,
        address: Address,
        refused: Refusal,
        request: Repeatability,
    ) -> Result<Turn, Denial> {
        self.retried("refused");
        let otherwise = Error::Refused { address, refused, attempts: 1, caller_answer: CallerAnswer::Answer };
        let outcome = match self.is_batch() {
            true => self.comes_back(&otherwise, request).map_err(Denial::as_it_is),
            false => self.decide(id, refused.failure(), otherwise, request),
        };
        self.report(id, Failure::Refused(refused), &outcome);
        outcome
    }

    /// Marks a refusal that the caller gets to see.
    pub(super) fn pass_on(&self, refused: &Refusal, denied: Denial, headers: &mut HeaderMap) {
        if denied.caller_answer == CallerAnswer::DoNotRetry {
            say_overloaded_no_retry(headers, refused.code.is_some());
        }
    }

    pub(super) fn decide(
        &mut self,
        id: BackendId,
        failure: retry::Failure,
        otherwise: Error,
        request: Repeatability,
    ) -> Result<Turn, Denial> {
        let pool = self.pool;
        let cluster = pool.cluster();
        let now = cluster.now();
        self.seen += 1;
        if !self.tried.contains(&id) {
            self.tried.push(id);
        }
        let ask = Ask {
            kind: self.kind,
            tried: &self.tried,
            attempts: self.seen,
            failure,
            is_idempotent: request.is_idempotent,
            is_whole: request.is_whole,
            kept: request.kept,
            deadline: self.started + self.left.min(self.timeout),
        };
        let (mut retry, grant) = cluster.again(now, otherwise.reason(), &ask)?;
        let turn = match grant {
            Grant::At(next) => Turn::At(next, now),
            Grant::After(wait, places) => {
                retry.waits_in(places);
                Turn::After(wait, Box::new(otherwise))
            }
        };
        self.retry = Some(retry);
        Ok(turn)
    }

    /// Records and counts the end of an attempt.
    fn report(&mut self, id: BackendId, failure: Failure, outcome: &Result<Turn, Denial>) {
        let next = match outcome {
            Err(denied) => NextStep::GaveUp(denied.why),
            Ok(Turn::Back(_)) => NextStep::Queued,
            Ok(_) => NextStep::Retried,
        };
        self.tell(id, failure, next);
    }

    /// The request is not sent again after all, though that was told of its last attempt.
    pub(super) fn not_made(&mut self, why: NoRetryReason) -> Denial {
        self.pool.cluster().count_given_up(why);
        if let Some(last) = self.told.as_mut().and_then(|told| told.last_mut()) {
            last.next = NextStep::GaveUp(why);
        }
        self.retry.take().map_or_else(|| Denial::as_it_is(why), |retry| retry.denied(why))
    }

    /// The present attempt, if it is a retry, has ended so.
    pub(super) fn retried(&mut self, outcome: &'static str) {
        if let Some(retry) = self.retry.take() {
            retry.ended(outcome);
        }
    }

    /// Writes the number of a further attempt.
    #[cold]
    pub(super) fn mark(&mut self, headers: &mut HeaderMap) {
        if let Some(retry) = &mut self.retry {
            retry.made();
        }
        let number = self.first.saturating_add(self.seen);
        if self.is_grpc {
            headers.insert(GRPC_PREVIOUS_RPC_ATTEMPTS, HeaderValue::from(number - 1));
        }
        if !self.is_grpc || headers.contains_key(X_ENVOY_ATTEMPT_COUNT) {
            headers.insert(X_ENVOY_ATTEMPT_COUNT, HeaderValue::from(number));
        }
    }

    /// Writes how much is left of the time that the sender waits, where the request says that.
    #[cold]
    pub(super) fn say_time_left(&self, headers: &mut HeaderMap) {
        if self.left == Duration::MAX {
            return;
        }
        let left = self.left.saturating_sub(self.pool.cluster().now().since(self.started));
        if headers.contains_key(GRPC_TIMEOUT) {
            headers.insert(GRPC_TIMEOUT, metadata::to_grpc_timeout(left));
        }
        if headers.contains_key(X_ENVOY_EXPECTED_RQ_TIMEOUT_MS) {
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            headers.insert(X_ENVOY_EXPECTED_RQ_TIMEOUT_MS, HeaderValue::from(millis));
        }
    }
}

/// Reads a refusal that is not passed on to its end, so that its connection can be used again.
/// Under overload there are many: opening a connection for each would be the next load.
pub(super) fn discard(mut body: ResponseBody) {
    let mut left = MAX_DISCARDED;
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Pending => break,
            Poll::Ready(Some(Ok(frame))) => {
                let len = frame.data_ref().map_or(0, bytes::Bytes::len);
                match left.checked_sub(len) {
                    Some(less) => left = less,
                    None => return,
                }
            }
            Poll::Ready(Some(Err(_)) | None) => return,
        }
    }
    // The rest comes later, and the request does not wait for it.
    tokio::spawn(tokio::time::timeout(DISCARD_TIME, async move {
        while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let len = frame.data_ref().map_or(0, bytes::Bytes::len);
            match left.checked_sub(len) {
                Some(less) => left = less,
                None => return,
            }
        }
    }));
}

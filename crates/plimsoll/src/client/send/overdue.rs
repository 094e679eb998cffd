//! The time of one attempt: after it, another backend gets the request.
//!
//! One slow or hanging backend need not use up the time of a request. When an attempt has no head of
//! a response in [`attempt_timeout`], [`plimsoll_core::retry`] is asked as after a failure: the
//! request must be idempotent, its body kept, and budget, attempts and another backend with headroom
//! available. The attempt ends only if all of them agree. Other proxies end it in any case, and so
//! answer 504 to every slow request when all backends are slow. Here it goes on until
//! `request_timeout`, so a limit that is too short costs the retry budget and no answer.
//!
//! The time counts from the moment that the request is on its connection, or from the last piece of
//! its body. It stands still while the caller owes more of the body. Requests that may be hedged have
//! no such limit: the hedge is their second attempt. Neither has batch work: its attempts hold a place
//! that was waited for.
//!
//! [`attempt_timeout`]: crate::client::RequestConfig::attempt_timeout

use std::time::Duration;

use http::Request;
use plimsoll_core::BackendId;
use tokio::time::Instant;

use super::again::Repeatability;
use super::{Call, Turn};
use crate::client::attempt::{Attempt, Streams as _};
use crate::client::attempt_end::AttemptEnd;
use crate::client::error::Error;
use crate::client::failed_attempt::{Failure, NextStep};
use crate::client::outgoing::Outgoing;
use crate::client::replay::Copy;
use crate::client::request_body::RequestBody;

impl<B: RequestBody> Call<'_, B> {
    /// The request is on a connection: the time of the attempt begins.
    pub(super) fn start_attempt_time(&mut self) {
        let timeout = self.requests.attempt_timeout;
        if timeout < Duration::MAX {
            let is_limited = self.race.is_none() && !self.is_batch();
            self.due = is_limited.then(|| Instant::now().checked_add(timeout)).flatten();
        }
    }

    /// The end of the present wait for a response.
    pub(super) fn wait_end(&self) -> Instant {
        self.due.map_or(self.deadline, |due| due.min(self.deadline))
    }

    /// Whether a wait up to [`Call::wait_end`] ended by the time of the attempt.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due < self.deadline)
    }

    /// The time of the attempt at `id` is up: the attempt in its place, or `None` if it goes on.
    /// `moved` is the time of the last piece of the request's body.
    #[cold]
    pub(super) fn replace(
        &mut self,
        id: BackendId,
        awaits_caller: bool,
        moved: Option<Instant>,
        request: Repeatability,
    ) -> Option<Turn> {
        let timeout = self.requests.attempt_timeout;
        let now = Instant::now();
        let from = if awaits_caller { Some(now) } else { moved };
        self.due = from.map(|from| from + timeout).filter(|due| *due > now);
        if self.due.is_some() {
            return None;
        }
        let error = self.overdue_error(id);
        let (failure, tried) = (error.end().row().retry?, self.tried.len());
        let present = self.retry.take();
        match self.decide(id, failure, error.clone(), request) {
            Ok(turn) => {
                if let Some(present) = present {
                    present.ended("failed");
                }
                self.tell(id, Failure::Error(error), NextStep::Retried);
                Some(turn)
            }
            // It has not failed.
            Err(_) => {
                self.retry = present;
                self.tried.truncate(tried);
                self.seen -= 1;
                None
            }
        }
    }

    #[cfg(feature = "http2")]
    /// The same of a request that hyper has: `copy` is it again.
    #[cold]
    pub(super) fn replace_http2(
        &mut self,
        id: BackendId,
        body: &Outgoing<B>,
        copy: &mut Option<Copy<B>>,
    ) -> Option<(Turn, Request<Outgoing<B>>)> {
        let request = Repeatability::of_copy(copy.as_ref());
        let turn = self.replace(id, body.is_awaited(), body.moved(), request)?;
        match copy.take().and_then(Copy::into_request) {
            Some(again) => Some((turn, again)),
            // A piece that is not kept has passed since.
            None => {
                self.take_back(turn);
                None
            }
        }
    }

    /// The attempt ends, since another has taken its place.
    pub(super) fn overdue(&mut self, attempt: &mut Attempt) {
        self.due = None;
        attempt.time_out(AttemptEnd::Overdue, self.requests.attempt_timeout);
    }

    fn overdue_error(&self, id: BackendId) -> Error {
        let address = self.pool.cluster().backend(id).map(|backend| backend.address());
        Error::Overdue { after: self.requests.attempt_timeout, address }
    }
}

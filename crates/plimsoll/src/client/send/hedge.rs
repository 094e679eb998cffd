//! Hedging: a request with a slow first attempt goes to a second backend too, and the first good
//! answer counts.
//!
//! [`plimsoll_core::retry::hedge`] decides whether and when. This module runs two attempts side by
//! side; neither decides the outcome of the request alone ([`Call::race`]). It also decides the
//! step after both:
//!
//! - one has a good answer: the other is dropped, which closes its connection or resets its stream, and
//!   blames nobody;
//! - one fails, or is answered with a failure: the request waits for the other;
//! - both fail: the last one counts, as if they had been two attempts in a row. If only one was answered
//!   at all, its answer counts.
//!
//! Only safe requests are hedged, not all that may be retried: a second DELETE that is quicker
//! would get 404 for the work of the first. And only requests without a body, so that none is sent
//! twice at a time.

use std::pin::{Pin, pin};

use futures_util::future::{Either, select};
use http::header::UPGRADE;
use http::{Request, Response};
use http_body::Body as _;
use plimsoll_core::{BackendId, Outcome, Timestamp};
use tokio::time::timeout_at;

use super::again::{Repeatability, discard};
use super::{AttemptResult, Call};
use crate::client::attempt::{Race, Streams as _};
use crate::client::body::ResponseBody;
use crate::client::classify;
use crate::client::cluster::{First, Shared};
use crate::client::config::Version;
use crate::client::error::Error;
use crate::client::failed_attempt::{Failure, NextStep};
use crate::client::outgoing::Outgoing;
use crate::client::refused::Refusal;
use crate::client::request_body::RequestBody;
use crate::client::request_options::Idempotent;
use crate::client::timer::Limit;

/// An attempt that failed while the other was out.
struct LosingAttempt {
    id: BackendId,
    was_seen: bool,
    /// `None` for an answer that is passed on wherever there is no other.
    failure: Option<Failure>,
    answer: Option<Box<Response<ResponseBody>>>,
}

/// The lesson of a request that could be hedged, for its cluster, when this is dropped.
struct Lesson<'a> {
    cluster: &'a Shared,
    /// From when on its first attempt takes longer than a hedge waits.
    slow_from: Option<Timestamp>,
    /// How it ended, and whether by its hedge; `None` as long as its caller may leave.
    end: Option<(First, bool)>,
}

impl Drop for Lesson<'_> {
    fn drop(&mut self) {
        let is_slow = || self.slow_from.is_some_and(|from| self.cluster.now() >= from);
        if let Some((first, has_won)) = self.end.or_else(|| is_slow().then_some((First::TookLonger, false))) {
            self.cluster.on_hedged(first, has_won);
        }
    }
}

impl<'a, B: RequestBody> Call<'a, B> {
    /// Whether a second attempt of `request` may be sent while its first is out.
    pub(super) fn may_be_hedged(&self, request: &Request<Outgoing<B>>) -> bool {
        self.pool.cluster().hedges()
            && !self.is_batch()
            && (request.method().is_safe() || request.extensions().get::<Idempotent>().is_some())
            && request.body().is_end_stream()
            && !request.headers().contains_key(UPGRADE)
    }

    /// Offers the request to the backend `first`, chosen at `picked_at`, and to a second one if
    /// that is slow.
    pub(super) async fn hedged(
        &mut self,
        limit: Pin<&mut Limit>,
        first: BackendId,
        picked_at: Timestamp,
        request: &mut Request<Outgoing<B>>,
    ) -> AttemptResult {
        let cluster = self.pool.cluster();
        let delay = cluster.hedge_delay();
        let mut lesson = Lesson { cluster, slow_from: delay.map(|delay| picked_at + delay), end: None };
        let (race, is_grpc) = (Race::default(), self.is_grpc);
        let (repeatable, kept) = (Repeatability::of(request), copy(request));
        let mut twin = self.twin(&race);
        self.race = Some(race.clone());
        // The lesson of the first attempt when it has ended.
        let fate = |tried: &AttemptResult| {
            let took = cluster.now().since(picked_at);
            // Its caller may have had less time than that, which says nothing.
            let is_slow = delay.is_some_and(|delay| took >= delay);
            match tried {
                _ if is_good(tried, is_grpc) => First::Took(took),
                AttemptResult::Failed(error) if is_slow && matches!(**error, Error::Timeout { .. }) => {
                    First::TookLonger
                }
                _ => First::Failed,
            }
        };
        let mut second = None;
        let (learnt, id, tried, lost) = {
            let mut attempt = pin!(self.attempt_at(limit, first, picked_at, request));
            let in_time = match delay {
                Some(delay) => timeout_at(cluster.clock().instant(picked_at + delay), attempt.as_mut()).await.ok(),
                None => Some(attempt.as_mut().await),
            };
            if let Some(tried) = in_time {
                (fate(&tried), first, tried, None)
            } else if let Some(id) = twin.hedge(first) {
                second = Some(id);
                let hedge = pin!(twin.send_hedge(id, copy(&kept)));
                // The hedge is polled first, which begins its attempt: its pick must come to an
                // end.
                let ended = match select(hedge, attempt).await {
                    Either::Left((tried, _)) if is_good(&tried, is_grpc) => (First::TookLonger, id, tried, None),
                    Either::Right((tried, _)) if is_good(&tried, is_grpc) => (fate(&tried), first, tried, None),
                    Either::Left((failed, attempt)) => {
                        let lost = LosingAttempt::new(id, failed);
                        let tried = attempt.await;
                        (fate(&tried), first, tried, Some(lost))
                    }
                    Either::Right((failed, hedge)) => {
                        let (learnt, lost) = (fate(&failed), LosingAttempt::new(first, failed));
                        (learnt, id, hedge.await, Some(lost))
                    }
                };
                race.end();
                ended
            } else {
                let tried = attempt.await;
                (fate(&tried), first, tried, None)
            }
        };
        self.race = None;
        self.made += u32::from(second.is_some());
        lesson.end = Some((learnt, second == Some(id) && lost.is_none() && is_good(&tried, is_grpc)));
        let (id, tried, lost) = match lost {
            Some(LosingAttempt { id: answered, answer: Some(answer), .. })
                if !matches!(tried, AttemptResult::Answered(_)) =>
            {
                (answered, AttemptResult::Answered(*answer), Some(LosingAttempt::new(id, tried)))
            }
            lost => (id, tried, lost),
        };
        if let Some(lost) = lost {
            self.lost(lost);
        }
        let tried = self.settle(id, tried, repeatable);
        if let AttemptResult::Again(_) = tried {
            *request = kept;
        }
        tried
    }

    /// The call of its hedge.
    fn twin(&self, race: &Race) -> Self {
        Call {
            tried: Vec::new(),
            seen: 1,
            retry: None,
            told: None,
            batch: None,
            place: None,
            race: Some(race.clone()),
            // The first attempt passes interim responses on already.
            informational: None,
            is_hedge: true,
            ..*self
        }
    }

    /// A backend for a hedge of a request that is at `first`, if it is sent one.
    fn hedge(&self, first: BackendId) -> Option<BackendId> {
        let cluster = self.pool.cluster();
        let deadline = self.started + self.left.min(self.timeout);
        cluster.hedge(cluster.now(), self.kind, first, deadline)
    }

    async fn send_hedge(&mut self, id: BackendId, mut request: Request<Outgoing<B>>) -> AttemptResult {
        let now = self.pool.cluster().now();
        self.mark(request.headers_mut());
        self.say_time_left(request.headers_mut());
        let limit = pin!(Limit::new(self.deadline));
        self.attempt_at(limit, id, now, &mut request).await
    }

    async fn attempt_at(
        &mut self,
        limit: Pin<&mut Limit>,
        id: BackendId,
        picked_at: Timestamp,
        request: &mut Request<Outgoing<B>>,
    ) -> AttemptResult {
        match self.version {
            Version::Http1 => self.over_http1(limit, id, picked_at, request).await,
            #[cfg(feature = "http2")]
            Version::Http2 => self.over_http2(limit, id, picked_at, request).await,
        }
    }

    /// Notes that one attempt has failed and the other one counts.
    fn lost(&mut self, lost: LosingAttempt) {
        self.seen += u32::from(lost.was_seen);
        self.tried.push(lost.id);
        if let Some(failure) = lost.failure {
            self.tell(lost.id, failure, NextStep::Hedged);
        }
        if let Some(answer) = lost.answer {
            discard(answer.into_body());
        }
    }

    /// The result of the last attempt, which was at `id`.
    fn settle(&mut self, id: BackendId, tried: AttemptResult, request: Repeatability) -> AttemptResult {
        match tried {
            AttemptResult::Answered(response) => self.answered(id, response, request),
            AttemptResult::Failed(error) => self.failed(id, *error, request),
            AttemptResult::NotSent(error) => self
                .elsewhere(id, error)
                .map_or_else(|error| AttemptResult::Failed(Box::new(error)), AttemptResult::Again),
            AttemptResult::Again(turn) => AttemptResult::Again(turn),
        }
    }

    fn answered(
        &mut self,
        id: BackendId,
        mut response: Response<ResponseBody>,
        request: Repeatability,
    ) -> AttemptResult {
        let Some(refused) = self.refusal(response.status(), response.headers()) else {
            return AttemptResult::Answered(response);
        };
        let address = response.body().backend_address();
        match self.after_refusal(id, address, refused, request) {
            Ok(turn) => {
                discard(response.into_body());
                AttemptResult::Again(turn)
            }
            Err(denied) => {
                self.pass_on(&refused, denied, response.headers_mut());
                AttemptResult::Answered(response)
            }
        }
    }
}

impl LosingAttempt {
    fn new(id: BackendId, tried: AttemptResult) -> Self {
        let was_seen = !matches!(tried, AttemptResult::NotSent(_));
        let (failure, answer) = match tried {
            AttemptResult::Answered(mut response) => {
                // The backend must not wait for the fate of the answer.
                response.body_mut().settle();
                let refused = Refusal::read(response.status(), response.headers());
                (refused.map(Failure::Refused), Some(Box::new(response)))
            }
            AttemptResult::NotSent(error) => (Some(Failure::Error(error)), None),
            AttemptResult::Failed(error) => (Some(Failure::Error(*error)), None),
            AttemptResult::Again(_) => (None, None),
        };
        Self { id, was_seen, failure, answer }
    }
}

/// Whether an attempt has an answer that no other attempt would better, as far as its head says.
fn is_good(tried: &AttemptResult, is_grpc: bool) -> bool {
    let AttemptResult::Answered(response) = tried else { return false };
    let (status, headers) = (response.status(), response.headers());
    let outcome = classify::head(status, headers, is_grpc).map(|end| end.row().outcome);
    let is_failure = matches!(outcome, Some(Outcome::Failure | Outcome::Overloaded));
    !is_failure && Refusal::read(status, headers).is_none()
}

/// The same request, which has no body.
fn copy<B: RequestBody>(request: &Request<Outgoing<B>>) -> Request<Outgoing<B>> {
    let mut copy = Request::new(Outgoing::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

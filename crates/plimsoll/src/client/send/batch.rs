//! Batch work: wait for credit, be sent once, and wait again if no backend accepted it.
//!
//! [`plimsoll_core::batch::requeue`] decides whether and when a request goes back, and on the final
//! answer. Here are the facts for that decision. A request can go back only if its body is kept.
//!
//! A further attempt does not state its number: servers take it as a sign that retries multiply
//! their load, and these do not.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use plimsoll_core::batch::{self, BatchFailure, GiveUpReason, History};
use plimsoll_core::retry::Repeat;
use plimsoll_core::{BackendId, Rejection};
use plimsoll_wire::grpc;

use super::again::Repeatability;
use super::{Call, Turn};
use crate::client::attempt::{Attempt, Streams as _};
use crate::client::batch::{Batch, Place, QueueFull};
use crate::client::body::ResponseBody;
use crate::client::cluster::{Found, Kind};
use crate::client::error::Error;
use crate::client::failed_attempt::{FailedAttempt, Failure, NextStep, NoRetryReason};
use crate::client::outgoing::Outgoing;
use crate::client::pool::Pool;
use crate::client::refused::Refusal;
use crate::client::request_body::RequestBody;
use crate::client::request_options::RequestOptions;
use crate::client::timer::{Limit, TooLate};
use crate::client::trace;

/// A request's dealings with its gate.
pub(super) struct BatchState {
    batch: Batch,
    history: History,
    /// How long it waits by itself before it goes back.
    pause: Duration,
}

/// Sends `request` through `batch`.
pub(super) async fn send<B: RequestBody>(
    pool: &Arc<Pool<B>>,
    batch: &Batch,
    mut request: Request<Outgoing<B>>,
    options: &RequestOptions,
    kind: Kind,
    left: Duration,
    told: Option<&mut Vec<FailedAttempt>>,
) -> Result<Response<ResponseBody>, Error> {
    let cluster = pool.cluster();
    let started = cluster.now();
    let config = cluster.config();
    let is_grpc = grpc::is_grpc(request.headers());
    let requests = options.over(config.requests);
    let limit = requests.request_timeout;
    let until = cluster.clock().instant(started + batch.config().queue_timeout.min(left));
    request.body_mut().keep(config.retry.max_body.map_or(0, NonZeroUsize::get));
    let mut waiting =
        BatchState { batch: batch.clone(), history: History::new(kind.criticality), pause: Duration::ZERO };
    let mut call = Call {
        pool,
        is_grpc,
        version: requests.protocol.version(is_grpc),
        requests,
        timeout: limit,
        limit,
        left,
        deadline: until,
        due: None,
        informational: options.informational.as_ref(),
        tracer: trace::tracer(options.tracer.as_deref().or_else(|| cluster.tracer())),
        lent_host: false,
        started,
        kind,
        tried: Vec::new(),
        made: 0,
        seen: 0,
        first: 1,
        retry: None,
        told,
        batch: Some(&mut waiting),
        place: None,
        is_back: false,
        race: None,
        is_hedge: false,
    };
    loop {
        let waits = std::pin::pin!(Limit::new(until)).wait(until, call.place()).await;
        let place = match waits {
            Ok(Ok(place)) => place,
            Ok(Err(QueueFull(after))) => return Err(call.turned_away(after)),
            Err(TooLate) => return Err(call.turned_away(batch.timed_out())),
        };
        match call.attempt(place, &mut request).await {
            Err(_) if std::mem::take(&mut call.is_back) => {}
            answered => return answered,
        }
    }
}

impl<B: RequestBody> Call<'_, B> {
    /// Whether the request is batch work.
    pub(super) fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Waits for a place.
    async fn place(&mut self) -> Result<Box<Place>, QueueFull> {
        let Some(BatchState { batch, history, pause }) = self.batch.as_deref_mut() else {
            return Err(QueueFull(Duration::ZERO));
        };
        batch.place(history, *pause).await
    }

    /// Sends the request once, to whichever backend has room.
    async fn attempt(
        &mut self,
        mut place: Box<Place>,
        request: &mut Request<Outgoing<B>>,
    ) -> Result<Response<ResponseBody>, Error> {
        let cluster = self.pool.cluster();
        let now = cluster.now();
        let (failure, error) = match cluster.pick_batch(now, self.kind) {
            Found::Backend(id, _) => {
                let (due, patience) = (now + self.timeout, self.started + self.left);
                self.deadline = cluster.clock().instant(due.min(patience));
                self.place = Some(place);
                self.say_time_left(request.headers_mut());
                let limit = std::pin::pin!(Limit::new(self.deadline));
                return self.run(limit, request, Turn::At(id, now)).await;
            }
            Found::NoBackend => (batch::Failure::Unsent, Error::NoBackend),
            _ => (batch::Failure::Rejected(Rejection::Saturated), Error::Saturated { waited: now.since(self.started) }),
        };
        place.rejected();
        self.is_back = self.again(failure, Repeat::Unsafe, None).is_ok();
        Err(error)
    }

    /// The request has failed: whether it goes back, after a pause.
    fn again(&mut self, failure: batch::Failure, repeat: Repeat, after: Option<Duration>) -> Result<(), GiveUpReason> {
        let Some(BatchState { batch, history, pause }) = self.batch.as_deref_mut() else {
            return Err(GiveUpReason::Final);
        };
        *pause = batch.again(history, &BatchFailure { failure, repeat, after })?;
        Ok(())
    }

    /// An attempt failed with `error`, and a backend may have seen the request: whether it goes
    /// back.
    #[cold]
    pub(super) fn comes_back(&mut self, error: &Error, request: Repeatability) -> Result<Turn, NoRetryReason> {
        self.seen += 1;
        let after = match error {
            Error::Refused { refused, .. } => refused.after,
            _ => None,
        };
        let failure = error.end().row().batch;
        let repeat = match (request.is_whole(), request.is_idempotent()) {
            (false, _) => Repeat::Impossible,
            (true, true) => Repeat::Safe,
            (true, false) => Repeat::Unsafe,
        };
        self.again(failure, repeat, after).map_err(given_up)?;
        Ok(Turn::Back(Box::new(error.clone())))
    }

    /// Nothing of it was sent to `id`.
    #[cold]
    pub(super) fn back_unsent(&mut self, id: BackendId, error: Error) -> Result<Turn, Error> {
        let again = self.again(batch::Failure::Unsent, Repeat::Unsafe, None).map_err(given_up);
        self.tell(id, Failure::Error(error.clone()), again.err().map_or(NextStep::Queued, NextStep::GaveUp));
        if again.is_err() { Err(error) } else { Ok(Turn::Back(Box::new(error))) }
    }

    /// Tells the gate of a refusal.
    #[cold]
    pub(super) fn learn(&self, refused: &Refusal, attempt: &mut Attempt) {
        if self.is_batch() && refused.end().row().batch.is_rejection() {
            attempt.refused();
        }
    }

    /// The request ends while it waits.
    fn turned_away(&mut self, after: Duration) -> Error {
        let reason = self.batch.as_ref().map_or(Rejection::Overloaded, |waiting| waiting.history.reason());
        let waited = self.pool.cluster().now().since(self.started);
        Error::TurnedAway { reason, waited, after, attempts: self.made }
    }
}

const fn given_up(why: GiveUpReason) -> NoRetryReason {
    match why {
        GiveUpReason::ToldNot => NoRetryReason::ToldNotTo,
        GiveUpReason::Unsafe => NoRetryReason::MayBeSeen,
        GiveUpReason::Impossible => NoRetryReason::BodyIsGone,
        GiveUpReason::Attempts => NoRetryReason::TooMany,
        GiveUpReason::TooLate => NoRetryReason::TooLate,
        GiveUpReason::Final => NoRetryReason::Final,
    }
}

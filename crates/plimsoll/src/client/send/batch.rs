//! The way of a request that is batch work: wait for credit, be sent once, and wait again if nobody took it.
//!
//! What goes back to the queue: a request that a backend turned away, or that met no backend with room; and one that may have been
//! seen only if it is idempotent. In either case its body has to be kept. It goes on until its time in the queue is up, and then ends with
//! the reason for which it was turned away last.
//!
//! A further attempt does not say its number: servers go by it to see whether retries multiply their load, and these do not.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use plimsoll_core::{BackendId, Criticality, Timestamp};
use plimsoll_wire::grpc;
use plimsoll_wire::metadata::Metadata;
use plimsoll_wire::shed::{Retry, ShedReason};
use tokio::time::Instant;

use super::again::Repeatable;
use super::{Call, Turn, version};
use crate::client::Terms;
use crate::client::attempt::{Attempt, Home as _};
use crate::client::batch::{Batch, Full, Place};
use crate::client::body::ResponseBody;
use crate::client::cluster::Found;
use crate::client::error::Error;
use crate::client::outgoing::Outgoing;
use crate::client::pool::{Pool, RequestBody};
use crate::client::refused::Refused;
use crate::client::timer::{Limit, TooLate};
use crate::client::told::{FailedAttempt, Failure, GivenUp, Next};

/// The longest time that a backend may name to come again after; a longer one is shortened to it, since credit keeps it from being
/// asked too often.
const LONGEST_AFTER: Duration = Duration::from_secs(10);

/// Sends `request` through `batch`.
pub(super) async fn send<B: RequestBody>(
    pool: &Arc<Pool<B>>,
    batch: &Batch,
    mut request: Request<Outgoing<B>>,
    terms: &Terms,
    criticality: Criticality,
    left: Duration,
    told: Option<&mut Vec<FailedAttempt>>,
) -> Result<Response<ResponseBody>, Error> {
    let cluster = pool.cluster();
    let started = cluster.now();
    let config = cluster.config();
    let is_grpc = grpc::is_grpc(request.headers());
    let Metadata { timeout: said, attempt, .. } = Metadata::read(request.headers());
    let said = said.unwrap_or(Duration::MAX);
    let limit = terms.timeout.unwrap_or(config.requests.request_timeout);
    let until = started + batch.config().queue_timeout.min(said).min(left);
    request.body_mut().keep(config.retry.max_body.map_or(0, NonZeroUsize::get));
    let mut call = Call {
        pool,
        is_grpc,
        version: version(config.requests.protocol, is_grpc),
        requests: config.requests,
        timeout: limit,
        limit,
        deadline: cluster.clock().instant(until),
        informational: terms.informational.as_ref(),
        lent_host: false,
        started,
        criticality,
        tried: Vec::new(),
        made: 0,
        seen: 0,
        first_said: Some((said, attempt.unwrap_or(1))),
        retry: None,
        told,
        batch: Some(batch),
        place: None,
        is_back: false,
    };
    let age = batch.come();
    let mut last = None;
    let mut pause = Duration::ZERO;
    loop {
        let until_there = cluster.clock().instant(until);
        let wait = async {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            batch.place(criticality, age, last.is_some()).await
        };
        let place = match std::pin::pin!(Limit::new(until_there)).wait(until_there, wait).await {
            Ok(Ok(place)) => place,
            Ok(Err(Full(after))) => return Err(call.turned_away(last.as_ref(), after)),
            Err(TooLate) => return Err(call.turned_away(last.as_ref(), batch.timed_out())),
        };
        let error = match call.attempt(place, &mut request, said.min(left)).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if !std::mem::take(&mut call.is_back) {
            return Err(error);
        }
        pause = match &error {
            Error::Refused { refused: Refused { after: Some(after), .. }, .. } => (*after).min(LONGEST_AFTER),
            _ => Duration::ZERO,
        };
        last = Some(error);
    }
}

impl<B: RequestBody> Call<'_, B> {
    /// Whether the request is batch work.
    pub(super) fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Sends the request once, to whichever backend has room. Its sender waits for an answer for so long in all.
    async fn attempt(
        &mut self,
        mut place: Box<Place>,
        request: &mut Request<Outgoing<B>>,
        patience: Duration,
    ) -> Result<Response<ResponseBody>, Error> {
        let cluster = self.pool.cluster();
        let now = cluster.now();
        let id = match cluster.pick_batch(now, self.criticality) {
            Found::Backend(id, _) => id,
            nobody => {
                place.rejected();
                self.is_back = true;
                let waited = now.since(self.started);
                return Err(if let Found::NoBackend = nobody { Error::NoBackend } else { Error::Saturated { waited } });
            }
        };
        self.place = Some(place);
        self.deadline = self.due(now, patience);
        if let Some((said, _)) = self.first_said {
            self.say_time_left(said, request.headers_mut());
        }
        let limit = std::pin::pin!(Limit::new(self.deadline));
        self.run(limit, request, Turn::At(id, now)).await
    }

    /// By when an attempt that begins `now` has to be answered.
    fn due(&self, now: Timestamp, patience: Duration) -> Instant {
        let answered = now + self.timeout;
        self.pool.cluster().clock().instant(answered.min(self.started + patience))
    }

    /// An attempt has failed with `error`, and a backend may have seen the request: whether it goes back.
    pub(super) fn comes_back(&mut self, error: &Error, request: &Repeatable<'_>) -> Result<Turn, GivenUp> {
        self.seen += 1;
        match error {
            Error::Refused { refused, .. } if !is_rejection(refused) => Err(GivenUp::ToldNotTo),
            Error::Refused { refused, .. } if !refused.is_certain && !request.is_idempotent() => {
                Err(GivenUp::MayBeSeen)
            }
            Error::Closed { .. } if !request.is_idempotent() => Err(GivenUp::MayBeSeen),
            Error::Refused { .. } | Error::Closed { .. } if request.is_whole() => {
                Ok(Turn::Back(Box::new(error.clone())))
            }
            Error::Refused { .. } | Error::Closed { .. } => Err(GivenUp::BodyIsGone),
            Error::Timeout { .. } => Err(GivenUp::TooLate),
            _ => Err(GivenUp::Final),
        }
    }

    /// Nothing of it was sent to `id`.
    #[cold]
    pub(super) fn back_unsent(&mut self, id: BackendId, error: Error) -> Turn {
        self.tell(id, Failure::Error(error.clone()), Next::Queued);
        Turn::Back(Box::new(error))
    }

    /// What the gate learns by a refusal.
    #[cold]
    pub(super) fn learn(&self, refused: &Refused, attempt: &mut Attempt) {
        if self.is_batch() && is_rejection(refused) {
            attempt.refused();
        }
    }

    /// The request is given up on while it waits.
    fn turned_away(&self, last: Option<&Error>, after: Duration) -> Error {
        let waited = self.pool.cluster().now().since(self.started);
        let reason = match last {
            Some(Error::Saturated { .. }) => ShedReason::Saturated,
            Some(Error::NoBackend | Error::Connect { .. }) => ShedReason::NoBackend,
            Some(Error::Refused { refused: Refused { why: Some(why), .. }, .. })
                if *why != ShedReason::OverloadedNoRetry =>
            {
                *why
            }
            _ => ShedReason::Overloaded,
        };
        Error::TurnedAway { reason, waited, after, attempts: self.made }
    }
}

/// Whether a refusal says that there is too much to do, or nobody to do it. One for a customer's quota does not, nor one that says no more
/// than not to try again.
fn is_rejection(refused: &Refused) -> bool {
    match refused.why {
        Some(ShedReason::Quota | ShedReason::Deadline) => false,
        Some(_) => true,
        None => refused.retry != Retry::Never,
    }
}

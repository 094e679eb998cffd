//! The way of one request: wait for a turn, find a connection, send, take the head of the response.
//!
//! If nothing of a request was sent (no connection could be opened, or its connection closed
//! first), it goes to another backend, a few times at most. A request that was sent but not served
//! is retried within a budget, if it can be sent again ([`again`]). One deadline covers all of it,
//! and moves on while the request's body does. The throttle comes before all of it.

mod again;
mod batch;
#[cfg(test)]
mod golden;
mod hedge;
mod http1;
#[cfg(feature = "http2")]
mod http2;
mod overdue;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use plimsoll_core::{BackendId, Timestamp};
use plimsoll_wire::grpc;
use plimsoll_wire::headers::GRPC_STATUS;
use plimsoll_wire::metadata::{Metadata, say_criticality};
use tokio::time::Instant;

use self::again::Repeatability;
use super::attempt::{Attempt, Race, Streams};
use super::attempt_end::AttemptEnd;
use super::backend::Backend;
use super::batch::Place;
use super::body::{ResponseBody, Source};
use super::classify;
use super::cluster::{Denial, Found, Kind, NoTurn, Retry, Shared};
use super::config::{RequestConfig, Version};
use super::error::{ConnectError, Error};
use super::failed_attempt::{FailedAttempt, Failure, NextStep, NoRetryReason};
use super::informational::Informational;
use super::inherit::inherit;
use super::outgoing::Outgoing;
use super::pool::Pool;
use super::refused::Refusal;
use super::request_body::RequestBody;
use super::request_options::RequestOptions;
use super::timer::{Limit, TooLate};
use super::trace::{self, AttemptStart, Tracer};

/// Backends that a request is offered to at most. Suppose that a quarter of the backends is
/// unreachable and not yet known to be: one request in 256 then fails four times. More attempts
/// would only delay the error when all are unreachable.
const MAX_ATTEMPTS: usize = 4;

/// Closed connections that a request may find at one backend before it counts as an attempt. After
/// the first one it gets a new connection, which cannot surprise it in the same way.
const MAX_CLOSED: usize = 2;

/// Failed attempts that are recorded of one request. Batch work may have any number; the first ones
/// give the reason.
const MAX_TOLD: usize = 16;

/// A load report may be old by the end of a body that is longer than this.
const SHORT_BODY_BYTES: u64 = 64 * 1024;

/// The result of an attempt.
enum AttemptResult {
    Answered(Response<ResponseBody>),
    /// Nothing was sent, so it may go elsewhere.
    NotSent(Error),
    /// It may have been seen, and is to be sent again.
    Again(Turn),
    Failed(Box<Error>),
}

/// The next step of a request.
pub(super) enum Turn {
    /// It goes to this backend, which was chosen then.
    At(BackendId, Timestamp),
    /// It waits until one has room, in the queue of this locality.
    Queue(usize),
    /// It waits for this time, then goes to any backend; or ends with this error, if there is none.
    After(Duration, Box<Error>),
    /// It goes back to where it waits for credit; it failed with this.
    Back(Box<Error>),
}

/// A request under way.
struct Call<'a, B> {
    pool: &'a Arc<Pool<B>>,
    is_grpc: bool,
    version: Version,
    requests: RequestConfig,
    timeout: Duration,
    /// The configured timeout; the caller may wait less.
    limit: Duration,
    /// The time that the caller waits, by its own word and by that of the request that it serves.
    left: Duration,
    deadline: Instant,
    /// When the present attempt makes way for another; `None`: not before the deadline.
    due: Option<Instant>,
    informational: Option<&'a Informational>,
    tracer: Option<&'a dyn Tracer>,
    lent_host: bool,
    started: Timestamp,
    kind: Kind,
    /// Backends that did not serve it.
    tried: Vec<BackendId>,
    /// Attempts, the present one included.
    made: u32,
    /// Those of them that a backend may have seen.
    seen: u32,
    /// Which attempt it was as it came.
    first: u32,
    /// The retry that the present attempt is, or that the next is to be.
    retry: Option<Retry<'a>>,
    /// Records failed attempts for the caller, if it asked for them.
    told: Option<&'a mut Vec<FailedAttempt>>,
    /// Its state at the gate of batch work, if it is any.
    batch: Option<&'a mut batch::BatchState>,
    /// The right of the next attempt to be made.
    place: Option<Box<Place>>,
    /// It is batch work that failed and goes back to where it waits.
    is_back: bool,
    /// It may have two attempts now. Neither decides the outcome before the other has ended
    /// ([`hedge`]).
    race: Option<Race>,
    /// It is the second attempt beside another.
    is_hedge: bool,
}

/// Sends `request` to a backend of the client's cluster, with `options`; attempts that fail are added to `told`.
///
/// Not `async` itself: the future would hold the request once as it came and once as it is sent.
pub(super) fn send<B: RequestBody>(
    pool: &Arc<Pool<B>>,
    request: Request<B>,
    options: RequestOptions,
    told: Option<&mut Vec<FailedAttempt>>,
) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
    let mut request = request.map(Outgoing::new);
    if let Some(criticality) = options.criticality {
        say_criticality(request.headers_mut(), criticality);
    }
    pool.cluster().load_reports().request(request.headers_mut());
    let left = inherit(request.headers_mut()).unwrap_or(Duration::MAX);
    async move {
        pool.keep_once();
        let cluster = pool.cluster();
        let begun = cluster.now();
        let is_grpc = grpc::is_grpc(request.headers());
        let said = options.metadata.unwrap_or_else(|| Metadata::read(request.headers()));
        let criticality = options.criticality.or(said.criticality).unwrap_or_default();
        let kind =
            Kind { criticality, operation: cluster.operation(&request), client: options.client, key: options.key };
        let left = said.timeout.map_or(left, |timeout| timeout.min(left));
        if let Some(batch) = options.batch.as_ref().or_else(|| cluster.batch()) {
            // Boxed, because few are, and it would make the future of every request larger.
            return Box::pin(batch::send(pool, batch, request, &options, kind, left, told)).await;
        }
        if left.is_zero() {
            return Err(not_sent(cluster, Error::Timeout { after: left, address: None, attempts: 0 }));
        }
        let mut started = begun;
        if cluster.awaits_first_list() {
            // Boxed, because it is rare, and would make the future of every request larger.
            Box::pin(cluster.first_list(left.min(options.timeout.unwrap_or(Duration::MAX)))).await;
            started = cluster.now();
        }
        let (turn, requests) = match cluster.pick(started, kind) {
            Found::Backend(id, requests) => (Turn::At(id, started), requests),
            Found::Wait(requests, at) => (Turn::Queue(at), requests),
            Found::NoBackend => return Err(not_sent(cluster, Error::NoBackend)),
            Found::NoRoom => return Err(not_sent(cluster, Error::NoRoom { criticality })),
            Found::Held(hold) => return Err(not_sent(cluster, Error::Throttled { criticality, held: hold.share })),
        };
        let requests = options.over(requests);
        request.body_mut().keep(cluster.kept_of_bodies());
        let limit = requests.request_timeout;
        let timeout = limit.min(left);
        let deadline = cluster.clock().instant(begun + timeout);
        let mut call = Call {
            pool,
            is_grpc,
            version: requests.protocol.version(is_grpc),
            requests,
            timeout,
            limit,
            left,
            deadline,
            due: None,
            informational: options.informational.as_ref(),
            tracer: trace::tracer(options.tracer.as_deref().or_else(|| cluster.tracer())),
            lent_host: false,
            started: begun,
            kind,
            tried: Vec::new(),
            made: 0,
            seen: 0,
            first: said.attempt.unwrap_or(1),
            retry: None,
            told,
            batch: None,
            place: None,
            is_back: false,
            race: None,
            is_hedge: false,
        };
        if said.timeout.is_some_and(|said| said > left) {
            // The request that this one serves has less time.
            call.say_time_left(request.headers_mut());
        }
        let limit = std::pin::pin!(Limit::new(deadline));
        let answered = call.run(limit, &mut request, turn).await;
        match answered {
            Err(error) if call.made == 0 => Err(not_sent(cluster, error)),
            answered => answered,
        }
    }
}

/// A request ends with `error` before any attempt.
#[cold]
fn not_sent(cluster: &Shared, error: Error) -> Error {
    trace::not_sent(cluster.name(), error.reason());
    error
}

impl<B: RequestBody> Call<'_, B> {
    /// Goes from backend to backend until one has served the request; `turn` is the first step.
    async fn run(
        &mut self,
        mut limit: Pin<&mut Limit>,
        request: &mut Request<Outgoing<B>>,
        mut turn: Turn,
    ) -> Result<Response<ResponseBody>, Error> {
        loop {
            let is_at_once = self.made == 0 && matches!(turn, Turn::At(..));
            let (id, picked_at) = match turn {
                Turn::At(id, at) => (id, at),
                Turn::Queue(at) => self.wait_turn(limit.as_mut(), at).await?,
                // Boxed, because it is rare, and would make the future of every request larger.
                Turn::After(wait, otherwise) => Box::pin(self.come_again(limit.as_mut(), wait, *otherwise)).await?,
                Turn::Back(error) => {
                    self.is_back = true;
                    return Err(*error);
                }
            };
            self.made += 1;
            if self.seen > 0 && !self.is_batch() {
                self.mark(request.headers_mut());
            }
            if !is_at_once {
                self.say_time_left(request.headers_mut());
            }
            let tried_here = match self.version {
                // Boxed, because it is rare, and would make the future of every request larger.
                _ if is_at_once && self.may_be_hedged(request) => {
                    Box::pin(self.hedged(limit.as_mut(), id, picked_at, request)).await
                }
                Version::Http1 => self.over_http1(limit.as_mut(), id, picked_at, request).await,
                #[cfg(feature = "http2")]
                // Boxed, because hyper's part would make the future of every HTTP/1 request twice as large.
                Version::Http2 => Box::pin(self.over_http2(limit.as_mut(), id, picked_at, request)).await,
            };
            turn = match tried_here {
                AttemptResult::Answered(mut response) => {
                    self.retried("answered");
                    response.body_mut().set_made_before(self.made - 1);
                    return Ok(response);
                }
                AttemptResult::Again(turn) => turn,
                AttemptResult::Failed(error) => return Err(*error),
                AttemptResult::NotSent(error) => self.elsewhere(id, error)?,
            };
        }
    }

    /// An attempt at `id`, which was chosen then, begins.
    fn begin(&mut self, id: BackendId, picked_at: Timestamp) -> Attempt {
        let attempt = Attempt::new(self.pool.clone(), id, picked_at, self.kind);
        attempt.within(self.limit).in_place(self.place.take()).in_race(self.race.clone())
    }

    /// Begins the span of an attempt with `request`.
    #[cold]
    fn trace(&self, tracer: &dyn Tracer, attempt: &mut Attempt, request: &mut Request<Outgoing<B>>) {
        let cluster = self.pool.cluster();
        let method = request.method().clone();
        let start = AttemptStart {
            cluster: cluster.name(),
            backend: cluster.backend(attempt.id()).map(|backend| backend.address()),
            method: &method,
            resends: self.made - 1 + u32::from(self.is_hedge),
            is_hedge: self.is_hedge,
        };
        attempt.traced(tracer.begin(&start, request.headers_mut()));
    }

    /// The result of an attempt at `id` that the backend may have seen.
    #[cold]
    fn failed(&mut self, id: BackendId, error: Error, request: Repeatability) -> AttemptResult {
        match self.after_error(id, error, request) {
            Ok(turn) => AttemptResult::Again(turn),
            Err(error) => AttemptResult::Failed(error),
        }
    }

    /// The next turn after nothing was sent to `id`, or the error to end with.
    #[cold]
    fn elsewhere(&mut self, id: BackendId, error: Error) -> Result<Turn, Error> {
        if self.is_batch() {
            return self.back_unsent(id, error);
        }
        self.tried.push(id);
        let next = self.next();
        let told = next.as_ref().map_or_else(|given_up| NextStep::GaveUp(*given_up), |_| NextStep::Elsewhere);
        if next.is_err() {
            self.retried("failed");
        }
        self.tell(id, Failure::Error(error.clone()), told);
        next.map_err(|_| error.after(self.made, self.seen))
    }

    /// The next turn after nothing was sent to the last backend, or the reason why there is none.
    fn next(&self) -> Result<Turn, NoRetryReason> {
        let cluster = self.pool.cluster();
        let now = cluster.now();
        if self.tried.len() >= MAX_ATTEMPTS {
            return Err(NoRetryReason::TooMany);
        }
        if cluster.clock().instant(now) >= self.deadline {
            return Err(NoRetryReason::TooLate);
        }
        match cluster.pick_except(now, self.kind, &self.tried) {
            // Only backends that failed this request already are left: one more round would not help.
            Found::Backend(id, _) if self.tried.contains(&id) => {
                drop(Attempt::new(self.pool.clone(), id, now, self.kind));
                Err(NoRetryReason::NoOther)
            }
            Found::Backend(id, _) => Ok(Turn::At(id, now)),
            // A retry does not take the place of a request that waits for its first attempt.
            Found::Wait(..) if self.seen > 0 => {
                cluster.not_sent(now, self.kind);
                Err(NoRetryReason::NoOther)
            }
            Found::Wait(_, at) => Ok(Turn::Queue(at)),
            Found::NoBackend | Found::NoRoom => Err(NoRetryReason::NoOther),
            Found::Held(_) => Err(NoRetryReason::HeldBack),
        }
    }

    /// The request cannot be sent again after all: a part of its body passed that is not kept.
    #[cold]
    fn take_back(&mut self, turn: Turn) -> Denial {
        if let Turn::At(id, at) = turn {
            drop(Attempt::new(self.pool.clone(), id, at, self.kind));
        }
        self.not_made(NoRetryReason::BodyIsGone)
    }

    /// Records a failed attempt and the next step; counts requests that give up.
    fn tell(&mut self, id: BackendId, failure: Failure, next: NextStep) {
        let cluster = self.pool.cluster();
        if let NextStep::GaveUp(why) = next {
            cluster.count_given_up(why);
        }
        if let Some(told) = &mut self.told
            && told.len() < MAX_TOLD
        {
            let backend = cluster.backend(id).map(|backend| backend.address());
            told.push(FailedAttempt { backend, after: cluster.now().since(self.started), failure, next });
        }
    }

    /// Waits in the queue of this locality.
    async fn wait_turn(&self, limit: Pin<&mut Limit>, at: usize) -> Result<(BackendId, Timestamp), Error> {
        let cluster = self.pool.cluster();
        let until = self.deadline.min(cluster.clock().instant(cluster.now() + self.requests.queue_timeout));
        let saturated = |waited| {
            cluster.count_saturated();
            Error::Saturated { waited }
        };
        match limit.wait(until, cluster.wait_turn(self.kind, at, &self.tried)).await {
            Ok(Ok((id, _))) => Ok((id, cluster.now())),
            Ok(Err(NoTurn::NoBackend)) => Err(Error::NoBackend),
            Ok(Err(NoTurn::Full)) => Err(saturated(Duration::ZERO)),
            // The caller has no more time, and would have none for another attempt.
            Err(TooLate) if until == self.deadline && self.left <= self.limit => {
                Err(Error::Timeout { after: self.timeout, address: None, attempts: self.made })
            }
            Err(TooLate) => Err(saturated(cluster.now().since(self.started))),
        }
    }

    /// Waits for this time, and then for a turn. Without a turn it ends with `otherwise`, since a
    /// backend may have seen the request.
    async fn come_again(
        &mut self,
        limit: Pin<&mut Limit>,
        wait: Duration,
        otherwise: Error,
    ) -> Result<(BackendId, Timestamp), Error> {
        let cluster = self.pool.cluster();
        tokio::time::sleep(wait).await;
        let now = cluster.now();
        let turn = match cluster.pick_again(now, self.kind, &self.tried) {
            Found::Backend(id, _) => Ok((id, now)),
            Found::Wait(_, at) => self.wait_turn(limit, at).await.map_err(|_| NoRetryReason::NoOther),
            Found::NoBackend | Found::NoRoom => Err(NoRetryReason::NoOther),
            Found::Held(_) => Err(NoRetryReason::HeldBack),
        };
        turn.map_err(|why| {
            let denied = self.not_made(why);
            otherwise.after(self.made, self.seen).with_caller_answer(denied.caller_answer)
        })
    }

    /// Whether a request that ran out of time gets more: while its body moves, the limit counts
    /// from the last piece. The caller's own limit stands, and so does that of batch work, since
    /// others wait for its place.
    #[cold]
    fn goes_on(&mut self, body: &Outgoing<B>) -> bool {
        let Some(moved) = body.moved().filter(|_| !self.is_batch()) else { return false };
        let clock = self.pool.cluster().clock();
        let deadline = clock.instant((clock.at(moved) + self.limit).min(self.started + self.left));
        let goes_on = deadline > self.deadline;
        self.deadline = deadline.max(self.deadline);
        goes_on
    }

    /// The most that is waited for a connection.
    fn connect_limit(&self) -> Duration {
        self.requests.connect_timeout.min(self.limit)
    }

    /// The time of the request was up before the head of a response came; `limit` is the longest
    /// wait.
    fn too_late(&self, attempt: &mut Attempt, limit: Duration) -> Error {
        let address = self.pool.cluster().backend(attempt.id()).map(|backend| backend.address());
        attempt.time_out(AttemptEnd::Timeout, limit);
        Error::Timeout { after: self.timeout, address, attempts: 1 }
    }

    /// The request ends for others, having waited for its caller.
    #[cold]
    fn preempted(&mut self, attempt: &mut Attempt) -> AttemptResult {
        attempt.fail(AttemptEnd::Preempted);
        self.retried("failed");
        let error = Error::Preempted;
        self.tell(attempt.id(), Failure::Error(error.clone()), NextStep::GaveUp(NoRetryReason::Final));
        AttemptResult::Failed(Box::new(error))
    }

    /// Records the facts in the head of a response.
    fn read_head(&self, attempt: &mut Attempt, status: StatusCode, headers: &HeaderMap) {
        read_head(attempt, status, headers, self.is_grpc);
    }

    /// The refusal in the head of a response, if the backend did not serve the request. The status
    /// alone rules that out for nearly all responses.
    fn refusal(&self, status: StatusCode, headers: &HeaderMap) -> Option<Refusal> {
        if status.as_u16() < 400 && !(self.is_grpc && headers.contains_key(GRPC_STATUS))
            || !self.pool.cluster().retries() && !self.is_batch()
            || self.race.is_some()
        {
            return None;
        }
        Refusal::read(status, headers)
    }

    /// Wraps the body of a response.
    fn body(&self, mut attempt: Attempt, source: Source, backend: &Backend) -> ResponseBody {
        if source.is_end_stream() {
            attempt.complete(classify::bare_end(self.is_grpc));
        } else if source.size_hint().upper().is_none_or(|upper| upper > SHORT_BODY_BYTES) {
            attempt.report_now();
        }
        let idle_limit = self.requests.body_idle_timeout;
        ResponseBody::new(source, attempt, backend.address(), self.is_grpc, idle_limit)
    }
}

/// Records the facts in the head of a response.
fn read_head(attempt: &mut Attempt, status: StatusCode, headers: &HeaderMap, is_grpc: bool) {
    attempt.answered(status, classify::head(status, headers, is_grpc));
    attempt.read_report(headers);
}

/// The backend was removed while the request waited for a connection to it.
fn gone(attempt: &mut Attempt) -> Error {
    attempt.fail(AttemptEnd::Removed);
    Error::NoBackend
}

/// The time of the request was up before there was a connection.
fn connect_too_late(attempt: &mut Attempt, backend: &Backend, timeout: Duration, limit: Duration) -> Error {
    attempt.time_out(AttemptEnd::ConnectTimeout, limit);
    let cause = ConnectError::Timeout(timeout);
    Error::Connect { address: backend.address(), cause, attempts: 1, was_seen: false }
}

fn connect_error(attempt: &mut Attempt, backend: &Backend, cause: ConnectError) -> Error {
    attempt.fail(cause.end());
    Error::Connect { address: backend.address(), cause, attempts: 1, was_seen: false }
}

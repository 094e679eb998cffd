//! The way of one request: wait for a turn, find a connection, send, take the head of the response.
//!
//! A request of which nothing was sent (no connection could be opened, or the one it was queued on closed
//! first) goes to another backend, a few times at most. One that was sent is never sent again, but for
//! the case that [`replay`](super::replay) describes. All of it has one deadline.

mod http1;
mod http2;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use plimsoll_core::{BackendId, Timestamp};
use plimsoll_wire::{grpc, orca};
use tokio::time::Instant;

use super::attempt::{Attempt, Home};
use super::body::{ResponseBody, Source};
use super::classify;
use super::cluster::{Backend, Ending, Found, NoTurn};
use super::config::{Protocol, RequestConfig};
use super::error::{ConnectError, Error};
use super::http1::Informational;
use super::inherit::inherit;
use super::outgoing::Outgoing;
use super::pool::{Pool, RequestBody, Version};
use super::timer::{Limit, TooLate};
use super::told::{FailedAttempt, Next};
use super::{Client, Terms};

/// Backends that a request is offered to before it is given up. With a quarter of the backends gone and
/// not yet known to be, one request in 256 is unlucky four times; more attempts would only delay the
/// news when all are gone.
const MAX_ATTEMPTS: usize = 4;

/// Connections at one backend that a request may find closed before it counts as an attempt: after
/// the first such surprise it gets a new connection, on which there can be no second.
const MAX_CLOSED: usize = 2;

/// Bodies longer than this may take long enough for the report in their head to be old by their end.
const SHORT_BODY_BYTES: u64 = 64 * 1024;

/// What became of a request at one backend.
enum Tried {
    Answered(Response<ResponseBody>),
    /// Nothing was sent, so it may go elsewhere.
    NotSent(Error),
    Failed(Error),
}

/// A request under way.
struct Call<'a, B> {
    pool: &'a Arc<Pool<B>>,
    is_grpc: bool,
    version: Version,
    requests: RequestConfig,
    timeout: Duration,
    deadline: Instant,
    informational: Option<Informational>,
    lent_host: bool,
    /// Attempts that failed, for who wants to know.
    told: Option<&'a mut Vec<FailedAttempt>>,
}

/// Sends `request` to a backend of the client's cluster, on `terms`; attempts that fail are added to `told`.
///
/// Not `async` itself: the future would hold the request once as it came and once as it is sent.
pub(super) fn send<B: RequestBody>(
    client: &Client<B>,
    request: Request<B>,
    terms: Terms,
    told: Option<&mut Vec<FailedAttempt>>,
) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
    let mut request = request.map(Outgoing::new);
    let left = inherit(request.headers_mut()).unwrap_or(Duration::MAX);
    async move {
        client.keep_pool_once();
        let pool = &client.inner.pool;
        let cluster = pool.cluster();
        let started = cluster.now();
        let is_grpc = grpc::is_grpc(request.headers());
        let (found, requests) = match cluster.pick(started) {
            Found::Backend(id, requests) => (Some(id), requests),
            Found::Wait(requests) => (None, requests),
            Found::NoBackend => return Err(Error::NoBackend),
        };
        let timeout = terms.timeout.unwrap_or(requests.request_timeout).min(left);
        let deadline = cluster.clock().instant(started + timeout);
        let version = match requests.protocol {
            Protocol::Http2 => Version::Http2,
            Protocol::Auto if is_grpc => Version::Http2,
            Protocol::Auto | Protocol::Http1 => Version::Http1,
        };
        let mut call = Call {
            pool,
            is_grpc,
            version,
            requests,
            timeout,
            deadline,
            informational: terms.informational,
            lent_host: false,
            told,
        };
        let limit = std::pin::pin!(Limit::new(deadline));
        call.run(limit, &mut request, found, started).await
    }
}

impl<B: RequestBody> Call<'_, B> {
    /// Goes from backend to backend until one has the request; `found` is the first, if there is one at once.
    async fn run(
        &mut self,
        mut limit: Pin<&mut Limit>,
        request: &mut Request<Outgoing<B>>,
        found: Option<BackendId>,
        started: Timestamp,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut tried = Vec::new();
        let mut turn = found.map(|id| (id, started));
        loop {
            let (id, picked_at) = match turn {
                Some(turn) => turn,
                None => self.wait_turn(limit.as_mut(), started, &tried).await?,
            };
            let tried_here = match self.version {
                Version::Http1 => self.over_http1(limit.as_mut(), id, picked_at, request).await,
                // Boxed, because hyper's part would make the future of every HTTP/1 request twice as large.
                Version::Http2 => Box::pin(self.over_http2(limit.as_mut(), id, picked_at, request)).await,
            };
            let error = match tried_here {
                Tried::Answered(mut response) => {
                    response.body_mut().set_tried_before(tried.len());
                    return Ok(response);
                }
                Tried::Failed(error) => {
                    self.tell(id, started, &error, Next::MayBeSeen);
                    return Err(error);
                }
                Tried::NotSent(error) => error,
            };
            tried.push(id);
            let next = self.next(&tried);
            let told = next.as_ref().map_or_else(|end| *end, |_| Next::Elsewhere);
            self.tell(id, started, &error, told);
            turn = match next {
                Ok(turn) => turn,
                Err(_) => return Err(error),
            };
        }
    }

    /// The next backend for a request of which nothing was sent to those `tried`, `None` if there will be one in a while; or why
    /// there is none.
    fn next(&self, tried: &[BackendId]) -> Result<Option<(BackendId, Timestamp)>, Next> {
        let cluster = self.pool.cluster();
        let now = cluster.now();
        if tried.len() == MAX_ATTEMPTS {
            return Err(Next::TooMany);
        }
        if cluster.clock().instant(now) >= self.deadline {
            return Err(Next::TooLate);
        }
        match cluster.pick_except(now, tried) {
            // Only backends that failed this request already are left: one more round would not help.
            Found::Backend(id, _) if tried.contains(&id) => {
                drop(Attempt::new(self.pool.clone(), id, now));
                Err(Next::NoOther)
            }
            Found::Backend(id, _) => Ok(Some((id, now))),
            Found::Wait(..) => Ok(None),
            Found::NoBackend => Err(Next::NoOther),
        }
    }

    /// Says that an attempt has failed, and what comes of it.
    fn tell(&mut self, id: BackendId, started: Timestamp, error: &Error, next: Next) {
        let cluster = self.pool.cluster();
        if let Some(told) = &mut self.told {
            let backend = cluster.backend(id).map(|backend| backend.address());
            told.push(FailedAttempt { backend, after: cluster.now().since(started), error: error.clone(), next });
        }
    }

    /// Waits in the queue.
    async fn wait_turn(
        &self,
        limit: Pin<&mut Limit>,
        started: Timestamp,
        tried: &[BackendId],
    ) -> Result<(BackendId, Timestamp), Error> {
        let cluster = self.pool.cluster();
        let until = self.deadline.min(cluster.clock().instant(cluster.now() + self.requests.queue_timeout));
        let saturated = |waited| {
            cluster.count_saturated();
            Error::Saturated { waited }
        };
        match limit.wait(until, cluster.wait_turn(tried)).await {
            Ok(Ok((id, _))) => Ok((id, cluster.now())),
            Ok(Err(NoTurn::NoBackend)) => Err(Error::NoBackend),
            Ok(Err(NoTurn::Full)) => Err(saturated(Duration::ZERO)),
            Err(TooLate) => Err(saturated(cluster.now().since(started))),
        }
    }

    fn too_late(&self, attempt: &mut Attempt) -> Error {
        attempt.fail(Ending::TimedOut);
        Error::Timeout { after: self.timeout }
    }

    /// Takes in what the head of a response says.
    fn read_head(&self, attempt: &mut Attempt, status: StatusCode, headers: &HeaderMap) {
        attempt.answered(status, classify::head(status, headers, self.is_grpc));
        attempt.reported(orca::read_load(headers));
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

/// The backend was removed while the request waited for a connection to it.
fn gone(attempt: &mut Attempt) -> Error {
    attempt.fail(Ending::Cancelled);
    Error::NoBackend
}

fn connect_error(attempt: &mut Attempt, backend: &Backend, cause: ConnectError) -> Error {
    let is_own = cause.is_own_shortage();
    let error = Error::Connect { address: backend.address(), cause };
    match is_own {
        true => attempt.fail_without_blame(error.ending()),
        false => attempt.fail(error.ending()),
    }
    error
}

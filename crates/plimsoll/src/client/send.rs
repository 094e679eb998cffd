//! The way of one request: wait for a turn, find a connection, send, take the head of the response.
//!
//! A request of which nothing was sent (no connection could be opened, or the one it was queued on closed
//! first) goes to another backend, a few times at most. One that was sent is never sent again, but for
//! the case that [`replay`](super::replay) describes. All of it has one deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use plimsoll_core::{BackendId, Timestamp};
use plimsoll_wire::{grpc, orca};
use tokio::time::Instant;

use super::attempt::{Attempt, Home};
use super::body::ResponseBody;
use super::classify;
use super::cluster::{Backend, Ending, Found, NoTurn};
use super::config::{Protocol, RequestConfig};
use super::error::{ConnectError, Error, refused, was_reset};
use super::outgoing::Outgoing;
use super::pool::{ConnectionId, Pool, Purpose, RequestBody, Sending, Use, Version};
use super::replay::Copy;
use super::timer::{Limit, TooLate};

/// Backends that a request is offered to before it is given up. With a quarter of the backends gone and
/// not yet known to be, one request in 256 is unlucky four times; more attempts would only delay the
/// news when all are gone.
const MAX_ATTEMPTS: usize = 4;

/// Connections at one backend that a request may find closed before it counts as an attempt: after
/// the first such surprise it gets a new connection, on which there can be no second.
const MAX_CLOSED: usize = 2;

/// HTTP/2 connections that a request may see opened without getting room on one. Others who waited were
/// quicker; or the peer closes each at once, and that must not go on for the whole of the request's time.
const MAX_OPENINGS: usize = 100;

/// Bodies longer than this may take long enough for the report in their head to be old by their end.
const SHORT_BODY_BYTES: u64 = 64 * 1024;

/// What became of a request at one backend.
enum Tried<B> {
    Answered(Response<ResponseBody>),
    /// Nothing was sent, so it may go elsewhere.
    NotSent(Request<Outgoing<B>>, Error),
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
    lent_host: bool,
}

/// Sends `request` to a backend of the pool's cluster, within `timeout` or the configured time.
pub(super) async fn send<B: RequestBody>(
    pool: &Arc<Pool<B>>,
    request: Request<B>,
    timeout: Option<Duration>,
) -> Result<Response<ResponseBody>, Error> {
    let cluster = pool.cluster();
    let started = cluster.now();
    let is_grpc = grpc::is_grpc(request.headers());
    let (found, requests) = match cluster.pick(started) {
        Found::Backend(id, requests) => (Some(id), requests),
        Found::Wait(requests) => (None, requests),
        Found::NoBackend => return Err(Error::NoBackend),
    };
    let timeout = timeout.unwrap_or(requests.request_timeout);
    let deadline = cluster.clock().instant(started + timeout);
    let version = match requests.protocol {
        Protocol::Http2 => Version::Http2,
        Protocol::Auto if is_grpc => Version::Http2,
        Protocol::Auto | Protocol::Http1 => Version::Http1,
    };
    let mut call = Call { pool, is_grpc, version, requests, timeout, deadline, lent_host: false };
    let mut limit = std::pin::pin!(Limit::new(deadline));
    let mut tried = Vec::new();
    let mut request = request.map(Outgoing::new);
    let mut turn = found.map(|id| (id, started));
    loop {
        let (id, picked_at) = match turn {
            Some(turn) => turn,
            None => call.wait_turn(limit.as_mut(), started, &tried).await?,
        };
        let attempt = Attempt::new(pool.clone(), id, picked_at);
        let (returned, error) = match call.attempt(limit.as_mut(), attempt, request).await {
            Tried::Answered(response) => return Ok(response),
            Tried::Failed(error) => return Err(error),
            Tried::NotSent(request, error) => (request, error),
        };
        tried.push(id);
        let now = cluster.now();
        if tried.len() == MAX_ATTEMPTS || cluster.clock().instant(now) >= deadline {
            return Err(error);
        }
        request = returned;
        turn = match cluster.pick_except(now, &tried) {
            // Only backends that failed this request already are left: one more round would not help.
            Found::Backend(id, _) if tried.contains(&id) => {
                drop(Attempt::new(pool.clone(), id, now));
                return Err(error);
            }
            Found::Backend(id, _) => Some((id, now)),
            Found::Wait(..) => None,
            Found::NoBackend => return Err(error),
        };
    }
}

impl<B: RequestBody> Call<'_, B> {
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

    /// Offers the request to the attempt's backend.
    async fn attempt(
        &mut self,
        mut limit: Pin<&mut Limit>,
        mut attempt: Attempt,
        mut request: Request<Outgoing<B>>,
    ) -> Tried<B> {
        let mut which = Use::Any;
        let mut closed = 0;
        let mut openings = 0;
        loop {
            let sending = self.pool.send(attempt.id(), self.version, which, request, &mut self.lent_host);
            let (answer, backend, copy) = match sending {
                Sending::Http1(answer, connection, backend, copy) => {
                    attempt.sent_on(connection);
                    (limit.as_mut().wait(self.deadline, answer).await, backend, copy)
                }
                Sending::Http2(answer, connection, backend, copy) => {
                    attempt.sent_on(connection);
                    (limit.as_mut().wait(self.deadline, answer).await, backend, copy)
                }
                Sending::Open(returned, backend) => {
                    request = returned;
                    closed += usize::from(matches!(which, Use::Only(_)));
                    if closed >= MAX_CLOSED {
                        return self.closed_at_once(attempt, request, &backend);
                    }
                    match self.open(limit.as_mut(), &mut attempt, &backend).await {
                        Ok(Some(connection)) => which = Use::Only(connection),
                        Ok(None) => return gone(attempt, request),
                        Err(error) => return Tried::NotSent(request, error),
                    }
                    continue;
                }
                Sending::Wait(returned, backend, opened) => {
                    request = returned;
                    match limit.as_mut().wait(self.deadline, opened).await {
                        Ok(Ok(Ok(()))) if openings < MAX_OPENINGS => {
                            openings += 1;
                            continue;
                        }
                        Ok(Ok(Ok(()))) => return self.closed_at_once(attempt, request, &backend),
                        Ok(Ok(Err(cause))) => {
                            return Tried::NotSent(request, connect_error(&mut attempt, &backend, cause));
                        }
                        // The opening was dropped with its backend.
                        Ok(Err(_)) => return gone(attempt, request),
                        Err(TooLate) => return Tried::Failed(self.too_late(&mut attempt)),
                    }
                }
                Sending::Gone(returned) => return gone(attempt, returned),
            };
            let mut failure = match answer {
                Ok(Ok(response)) => return Tried::Answered(self.answered(attempt, response, &backend)),
                Ok(Err(failure)) => failure,
                Err(TooLate) => return Tried::Failed(self.too_late(&mut attempt)),
            };
            attempt.leave_connection();
            closed += 1;
            request = match (failure.take_message(), copy) {
                (Some(returned), _) if closed < MAX_CLOSED => returned,
                (Some(returned), _) => {
                    let error = Error::from_hyper(backend.address(), failure.into_error());
                    attempt.fail(Ending::Broken);
                    return Tried::NotSent(returned, error);
                }
                (None, Some(copy)) if closed < MAX_CLOSED && may_replay(&copy, &failure) => {
                    self.pool.cluster().count_replay();
                    copy.into_request()
                }
                (None, _) => {
                    let error = Error::from_hyper(backend.address(), failure.into_error());
                    attempt.fail(error.ending());
                    return Tried::Failed(error);
                }
            };
            which = Use::New;
        }
    }

    /// Opens an HTTP/1.1 connection for this request.
    async fn open(
        &self,
        limit: Pin<&mut Limit>,
        attempt: &mut Attempt,
        backend: &Backend,
    ) -> Result<Option<ConnectionId>, Error> {
        match limit.wait(self.deadline, self.pool.open_http1(attempt.id(), Purpose::Request)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(cause)) => Err(connect_error(attempt, backend, cause)),
            Err(TooLate) => Err(connect_error(attempt, backend, ConnectError::Timeout(self.timeout))),
        }
    }

    /// Connections can be opened, and are closed before a request is on them.
    fn closed_at_once(&self, mut attempt: Attempt, request: Request<Outgoing<B>>, backend: &Backend) -> Tried<B> {
        Tried::NotSent(request, connect_error(&mut attempt, backend, ConnectError::ClosedAtOnce))
    }

    fn too_late(&self, attempt: &mut Attempt) -> Error {
        attempt.fail(Ending::TimedOut);
        Error::Timeout { after: self.timeout }
    }

    /// Reads what the head says and wraps the body.
    fn answered(
        &self,
        mut attempt: Attempt,
        response: Response<Incoming>,
        backend: &Backend,
    ) -> Response<ResponseBody> {
        let (head, incoming) = response.into_parts();
        attempt.answered(head.status, classify::head(head.status, &head.headers, self.is_grpc));
        attempt.reported(orca::read_load(&head.headers));
        let size = http_body::Body::size_hint(&incoming);
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            attempt.upgraded();
        } else if http_body::Body::is_end_stream(&incoming) {
            attempt.complete(classify::bare_end(self.is_grpc));
        } else if size.upper().is_none_or(|upper| upper > SHORT_BODY_BYTES) {
            attempt.report_now();
        }
        let idle_limit = self.requests.body_idle_timeout;
        let body = ResponseBody::new(incoming, head.version, attempt, backend.address(), self.is_grpc, idle_limit);
        Response::from_parts(head, body)
    }
}

/// The backend was removed while the request waited for a connection to it.
fn gone<B>(mut attempt: Attempt, request: Request<Outgoing<B>>) -> Tried<B> {
    attempt.fail(Ending::Cancelled);
    Tried::NotSent(request, Error::NoBackend)
}

fn connect_error(attempt: &mut Attempt, backend: &Backend, cause: ConnectError) -> Error {
    let error = Error::Connect { address: backend.address(), cause };
    attempt.fail(error.ending());
    error
}

/// Whether the connection may just have been closed as an idle one, or the peer did not look.
fn may_replay<B>(copy: &Copy, failure: &TrySendError<Request<Outgoing<B>>>) -> bool {
    let error = failure.error();
    refused(error)
        || !(copy.only_if_refused() || error.is_user() || error.is_parse() || error.is_timeout() || was_reset(error))
}

//! A request at one backend over HTTP/1.1.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use http::{HeaderMap, Request, Response};
use plimsoll_core::{BackendId, Timestamp};
use plimsoll_http1::ResponseHead;

use super::again::{Repeatability, discard};
use super::{AttemptResult, Call, MAX_CLOSED, Turn, connect_error, connect_too_late, gone};
use crate::client::ClientAddress;
use crate::client::attempt::{Attempt, Streams as _};
use crate::client::backend::Backend;
use crate::client::body::{ResponseBody, Source};
use crate::client::classify;
use crate::client::error::{ConnectError, Error};
use crate::client::form;
use crate::client::http1::{AfterHead, Exchange, Fate, Incoming, Lease};
use crate::client::outgoing::Outgoing;
use crate::client::pool::Http1Checkout;
use crate::client::request_body::RequestBody;
use crate::client::timer::{Limit, TooLate};
use crate::client::upgraded::Upgraded;

/// A request that is at its backend. Dropped, it was abandoned there.
struct Flight<'a, 'r, B: RequestBody> {
    exchange: Option<Exchange<'r, B>>,
    attempt: &'a mut Attempt,
}

impl<'r, B: RequestBody> Flight<'_, 'r, B> {
    /// It is not waited for any longer, and its caller is still there.
    fn land(mut self) -> Exchange<'r, B> {
        self.exchange.take().expect("it lands once")
    }
}

impl<B: RequestBody> Drop for Flight<'_, '_, B> {
    fn drop(&mut self) {
        // None if it landed.
        let Some(lease) = self.exchange.take().and_then(Exchange::abandon) else { return };
        if let Some(abandoned) = self.attempt.abandon() {
            abandoned.until_closed(lease);
        }
    }
}

/// Why an answer is not waited for any longer.
enum WaitEnd {
    TooLate(TooLate),
    /// Another attempt takes its place, at this backend.
    Overdue(Turn),
    Preempted,
}

impl<B: RequestBody> Call<'_, B> {
    /// Offers the request to the backend `id`, which was chosen at `picked_at`.
    pub(super) async fn over_http1(
        &mut self,
        mut limit: Pin<&mut Limit>,
        id: BackendId,
        picked_at: Timestamp,
        request: &mut Request<Outgoing<B>>,
    ) -> AttemptResult {
        let mut attempt = self.begin(id, picked_at);
        if let Some(tracer) = self.tracer {
            self.trace(tracer, &mut attempt, request);
        }
        let mut closed = 0;
        loop {
            let client = request.extensions().get().copied();
            let (lease, backend) =
                match self.lease(limit.as_mut(), &mut attempt, client, request.headers_mut(), &mut closed).await {
                    Ok(lease) => lease,
                    Err(error) => return AttemptResult::NotSent(error),
                };
            form::http1(request, &backend, &mut self.lent_host);
            self.start_attempt_time();
            let exchange = Exchange::new(lease, request, self.informational);
            let mut flight = Flight { exchange: Some(exchange), attempt: &mut attempt };
            let answer = std::future::poll_fn(|cx| {
                let Flight { exchange, attempt } = &mut flight;
                let exchange = exchange.as_mut().expect("it lands below");
                loop {
                    if attempt.is_preempted(cx) {
                        return Poll::Ready(Err(WaitEnd::Preempted));
                    }
                    let polled =
                        exchange.poll_answer(cx, self.wait_end()).map(|answer| answer.map_err(WaitEnd::TooLate));
                    attempt.set_sent(exchange.is_sent(), exchange.request().body().moved());
                    if polled.is_pending() && exchange.awaits_body() && !attempt.has_preemption() {
                        exchange.set_preemption(attempt.preemption());
                        continue;
                    }
                    let is_late = matches!(polled, Poll::Ready(Err(WaitEnd::TooLate(TooLate))));
                    if is_late && self.is_due() {
                        let (awaits_caller, moved) = (exchange.awaits_body(), exchange.request().body().moved());
                        match self.replace(id, awaits_caller, moved, Repeatability::of(exchange.request())) {
                            Some(turn) => return Poll::Ready(Err(WaitEnd::Overdue(turn))),
                            None => continue,
                        }
                    }
                    if !is_late || !self.goes_on(exchange.request().body()) {
                        return polled;
                    }
                }
            });
            let answer = answer.await;
            let mut exchange = flight.land();
            let cause = match answer {
                Ok(Ok(mut head)) => {
                    exchange.note_keep_alive(&head, &backend);
                    if let Some(refused) = self.refusal(head.status, &head.headers) {
                        self.learn(&refused, &mut attempt);
                        match self.after_refusal(id, backend.address(), refused, Repeatability::of(exchange.request()))
                        {
                            Ok(turn) => {
                                self.give_up_answer(attempt, &head, exchange.refused(&head), &backend);
                                request.body_mut().rewind();
                                return AttemptResult::Again(turn);
                            }
                            Err(given_up) => self.pass_on(&refused, given_up, &mut head.headers),
                        }
                    }
                    if !exchange.is_sent() {
                        exchange.set_preemption(attempt.preemption());
                    }
                    let after = exchange.answered(&head);
                    return AttemptResult::Answered(self.answered_http1(attempt, head, after, &backend));
                }
                Ok(Err(cause)) => cause,
                Err(WaitEnd::Preempted) => {
                    drop(exchange);
                    return self.preempted(&mut attempt);
                }
                Err(WaitEnd::Overdue(turn)) => {
                    drop(exchange);
                    self.overdue(&mut attempt);
                    request.body_mut().rewind();
                    return AttemptResult::Again(turn);
                }
                Err(WaitEnd::TooLate(TooLate)) => {
                    attempt.set_awaits_caller(exchange.awaits_body());
                    drop(exchange);
                    let error = self.too_late(&mut attempt, self.limit);
                    return self.failed(id, error, Repeatability::of(request));
                }
            };
            let fate = exchange.fate(&cause);
            drop(exchange);
            closed += 1;
            if fate == Fate::Failed || closed >= MAX_CLOSED {
                let error = Error::from_http1(backend.address(), cause);
                attempt.fail(error.end());
                if fate != Fate::NotSent {
                    let tried = self.failed(id, error, Repeatability::of(request));
                    request.body_mut().rewind();
                    return tried;
                }
                request.body_mut().rewind();
                return AttemptResult::NotSent(error);
            }
            request.body_mut().rewind();
            if fate == Fate::Replay {
                self.pool.cluster().count_replay();
            }
        }
    }

    /// A connection for the request with these headers, for `client`. After a connection that was
    /// closed it is a new one, which has no idle time to end. With an error nothing was sent, and
    /// the attempt is over.
    async fn lease(
        &self,
        mut limit: Pin<&mut Limit>,
        attempt: &mut Attempt,
        client: Option<ClientAddress>,
        headers: &mut HeaderMap,
        closed: &mut usize,
    ) -> Result<(Lease, Arc<Backend>), Error> {
        loop {
            let backend = match self.pool.take_http1(attempt.id(), *closed == 0) {
                Http1Checkout::Ready(lease, backend) => return Ok((lease, backend)),
                Http1Checkout::Open(backend) => backend,
                Http1Checkout::Gone => return Err(gone(attempt)),
            };
            // Boxed, because it is rare and large, and would make the future of every request so.
            let opening = Box::pin(self.pool.open_http1(attempt.id(), client));
            match limit.as_mut().wait(self.deadline, opening).await {
                Ok(Ok(Some(mut lease))) => {
                    if lease.is_silent() {
                        attempt.connected();
                        self.say_time_left(headers);
                        return Ok((lease, backend));
                    }
                    *closed += 1;
                    if *closed >= MAX_CLOSED {
                        return Err(connect_error(attempt, &backend, ConnectError::ClosedAtOnce));
                    }
                }
                Ok(Ok(None)) => return Err(gone(attempt)),
                Ok(Err(cause)) => return Err(connect_error(attempt, &backend, cause)),
                Err(TooLate) => return Err(connect_too_late(attempt, &backend, self.timeout, self.connect_limit())),
            }
        }
    }

    /// Ends an attempt with an answer that is not passed on.
    fn give_up_answer(&self, mut attempt: Attempt, head: &ResponseHead, incoming: Option<Incoming>, backend: &Backend) {
        self.read_head(&mut attempt, head.status, &head.headers);
        match incoming {
            Some(incoming) => discard(self.body(attempt, Source::Http1(incoming), backend)),
            None => attempt.complete(classify::bare_end(self.is_grpc)),
        }
    }

    fn answered_http1(
        &self,
        mut attempt: Attempt,
        head: ResponseHead,
        after: AfterHead,
        backend: &Backend,
    ) -> Response<ResponseBody> {
        self.read_head(&mut attempt, head.status, &head.headers);
        let (body, upgraded) = match after {
            AfterHead::Body(mut incoming) => {
                let upload = incoming.take_upload();
                let mut body = self.body(attempt, Source::Http1(incoming), backend);
                body.set_upload(upload);
                (body, None)
            }
            AfterHead::Tunnel(lease) => {
                let empty = ResponseBody::empty(backend.address());
                (empty, Some(Upgraded::new(lease, attempt)))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(upgraded) = upgraded {
            upgraded.put_into(&mut response);
        }
        response
    }
}

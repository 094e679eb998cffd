//! A request at one backend over HTTP/2.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use plimsoll_core::{BackendId, Timestamp};

use super::again::{Repeatability, discard};
use super::{AttemptResult, Call, MAX_CLOSED, connect_error, gone};
use crate::client::attempt::{Attempt, Streams as _};
use crate::client::attempt_end::AttemptEnd;
use crate::client::backend::Backend;
use crate::client::body::Source;
use crate::client::error::{Cause, ConnectError, Error};
use crate::client::http2_body::Http2Body;
use crate::client::hyper_error::{is_malformed, refused, was_reset};
use crate::client::outgoing::Outgoing;
use crate::client::pool::Sending;
use crate::client::preemption::Preemption;
use crate::client::replay::Copy;
use crate::client::request_body::RequestBody;
use crate::client::timer::{Limit, TooLate};

/// Connections that may open while a request waits, without a free stream for it. Others were
/// quicker; or the peer closes each at once, and that must not go on for the whole time of the
/// request.
const MAX_OPENINGS: usize = 100;

/// An attempt with a body that hyper sends during the wait for an answer. Its progress is read when
/// the wait ends for any reason: a caller that leaves may have sent all of it.
struct Uploading<'a, B: RequestBody> {
    attempt: &'a mut Attempt,
    /// Exclusively, so that bodies need not be shared between threads.
    body: &'a mut Outgoing<B>,
}

impl<B: RequestBody> Drop for Uploading<'_, B> {
    fn drop(&mut self) {
        self.attempt.set_sent(self.body.is_end_stream(), self.body.moved());
    }
}

/// The request was ended for others.
struct Preempted;

/// The result of `answer`, unless the request is ended early.
async fn unless_preempted<F: Future + Unpin>(
    preemption: Option<&Preemption>,
    mut answer: F,
) -> Result<F::Output, Preempted> {
    std::future::poll_fn(|cx| {
        if let Some(preemption) = preemption {
            preemption.watch(cx.waker());
            if preemption.is_ended() {
                return Poll::Ready(Err(Preempted));
            }
        }
        Pin::new(&mut answer).poll(cx).map(Ok)
    })
    .await
}

impl<B: RequestBody> Call<'_, B> {
    /// Offers the request to the backend `id`, which was chosen at `picked_at`.
    pub(super) async fn over_http2(
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
        let is_head = *request.method() == Method::HEAD;
        let mut closed = 0;
        let mut openings = 0;
        loop {
            let (answer, backend, mut body, copy) = match self.pool.send_http2(id, request, &mut self.lent_host) {
                Sending::Sent(mut answer, stream, backend, mut body, mut copy) => {
                    attempt.sent_on(stream);
                    let preemption = (!body.is_end_stream()).then(|| attempt.preemption().clone());
                    if let Some(preemption) = &preemption {
                        body.set_preemption(preemption);
                    }
                    self.start_attempt_time();
                    let uploading = Uploading { attempt: &mut attempt, body: &mut body };
                    let mut replaced = None;
                    let answer = loop {
                        let answer = unless_preempted(preemption.as_deref(), answer.as_mut());
                        let answer = limit.as_mut().wait(self.wait_end(), answer).await;
                        if answer.is_err() && self.is_due() {
                            replaced = self.replace_http2(id, uploading.body, &mut copy);
                            match replaced {
                                Some(_) => break answer,
                                None => continue,
                            }
                        }
                        if answer.is_ok() || !self.goes_on(uploading.body) {
                            break answer;
                        }
                    };
                    drop(uploading);
                    if let Some((turn, again)) = replaced {
                        self.overdue(&mut attempt);
                        *request = again;
                        return AttemptResult::Again(turn);
                    }
                    (answer, backend, body, copy)
                }
                Sending::Wait(backend, opened) => match limit.as_mut().wait(self.deadline, opened).await {
                    // The opener may have ended first, with its backend or with its runtime. That
                    // shows at the next request for a connection.
                    Ok(Ok(Ok(())) | Err(_)) if openings < MAX_OPENINGS => {
                        openings += 1;
                        attempt.connected();
                        self.say_time_left(request.headers_mut());
                        continue;
                    }
                    Ok(Ok(Ok(())) | Err(_)) => {
                        return AttemptResult::NotSent(connect_error(
                            &mut attempt,
                            &backend,
                            ConnectError::ClosedAtOnce,
                        ));
                    }
                    Ok(Ok(Err(cause))) => return AttemptResult::NotSent(connect_error(&mut attempt, &backend, cause)),
                    Err(TooLate) => {
                        let error = self.too_late(&mut attempt, self.connect_limit());
                        return self.failed(id, error, Repeatability::of(request));
                    }
                },
                Sending::Gone => return AttemptResult::NotSent(gone(&mut attempt)),
            };
            let mut failure = match answer {
                Ok(Err(Preempted)) => return self.preempted(&mut attempt),
                Ok(Ok(Ok(response))) => {
                    let upload = body.follow();
                    let status = response.status();
                    let response = response.map(|incoming| source(is_head, status, incoming));
                    let mut tried = self.answered_http2(id, attempt, response, &backend, copy, request);
                    if let AttemptResult::Answered(response) = &mut tried {
                        response.body_mut().set_upload(upload);
                    }
                    return tried;
                }
                Ok(Ok(Err(failure))) => failure,
                Err(TooLate) => {
                    attempt.set_awaits_caller(body.is_awaited());
                    let error = self.too_late(&mut attempt, self.limit);
                    return self.failed_http2(id, error, copy, request);
                }
            };
            attempt.leave_connection();
            closed += 1;
            if let Some(returned) = failure.take_message() {
                *request = returned;
                if closed < MAX_CLOSED {
                    continue;
                }
                attempt.fail(AttemptEnd::Closed);
                return AttemptResult::NotSent(Error::from_hyper(backend.address(), failure.into_error()));
            }
            let copy = match copy {
                Some(copy) if closed < MAX_CLOSED && may_replay(&copy, &failure) => match copy.into_request() {
                    Some(again) => {
                        self.pool.cluster().count_replay();
                        *request = again;
                        continue;
                    }
                    // More of its body has passed than is kept.
                    None => None,
                },
                copy => copy,
            };
            let error = Error::from_hyper(backend.address(), failure.into_error());
            attempt.fail(error.end());
            return self.failed_http2(id, error, copy, request);
        }
    }

    /// An attempt failed that the backend may have seen. `request` is there again if it is to be
    /// sent again.
    #[cold]
    fn failed_http2(
        &mut self,
        id: BackendId,
        error: Error,
        copy: Option<Copy<B>>,
        request: &mut Request<Outgoing<B>>,
    ) -> AttemptResult {
        match self.after_error(id, error.clone(), Repeatability::of_copy(copy.as_ref())) {
            Ok(turn) => match copy.and_then(Copy::into_request) {
                Some(again) => {
                    *request = again;
                    AttemptResult::Again(turn)
                }
                None => {
                    let denied = self.take_back(turn);
                    AttemptResult::Failed(Box::new(
                        error.after(self.made, self.seen).with_caller_answer(denied.caller_answer),
                    ))
                }
            },
            Err(error) => AttemptResult::Failed(error),
        }
    }

    fn answered_http2(
        &mut self,
        id: BackendId,
        mut attempt: Attempt,
        response: Response<Source>,
        backend: &Backend,
        copy: Option<Copy<B>>,
        request: &mut Request<Outgoing<B>>,
    ) -> AttemptResult {
        let (mut head, source) = response.into_parts();
        if let Some(fault) = fault_of(&head) {
            let cause = Cause::out_of_turn(fault);
            let error = Error::BadResponse { address: backend.address(), cause, attempts: 1 };
            attempt.fail(error.end());
            return self.failed_http2(id, error, copy, request);
        }
        self.read_head(&mut attempt, head.status, &head.headers);
        let refused = self.refusal(head.status, &head.headers);
        if let Some(refused) = &refused {
            self.learn(refused, &mut attempt);
        }
        let body = self.body(attempt, source, backend);
        if let Some(refused) = refused {
            match self.after_refusal(id, backend.address(), refused, Repeatability::of_copy(copy.as_ref())) {
                Ok(turn) => match copy.and_then(Copy::into_request) {
                    Some(again) => {
                        *request = again;
                        discard(body);
                        return AttemptResult::Again(turn);
                    }
                    // A piece that is not kept has passed since.
                    None => {
                        let denied = self.take_back(turn);
                        self.pass_on(&refused, denied, &mut head.headers);
                        return AttemptResult::Answered(Response::from_parts(head, body));
                    }
                },
                Err(given_up) => self.pass_on(&refused, given_up, &mut head.headers),
            }
        }
        if let Some(copy) = copy {
            copy.forget();
        }
        AttemptResult::Answered(Response::from_parts(head, body))
    }
}

/// The body of a response. One to HEAD has none, even if its backend sends one or leaves the stream open.
fn source(is_head: bool, status: StatusCode, incoming: Incoming) -> Source {
    if is_head { Source::Empty } else { Source::Http2(Http2Body::new(incoming, status)) }
}

/// The fault of a head that h2 accepts. HTTP/1 would refuse it, and a client would blame something
/// other than its backend for it.
fn fault_of(head: &http::response::Parts) -> Option<&'static str> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // HTTP/2 has no such response (RFC 9113, 8.6).
        return Some("it switches protocols without a request");
    }
    if !plimsoll_http1::has_valid_length(&head.headers) {
        return Some("its content-length is not one number");
    }
    (!plimsoll_http1::are_valid(&head.headers)).then_some("a field in its head is malformed")
}

/// Whether the connection may just have been closed as an idle one, or the peer did not look.
fn may_replay<B: RequestBody>(copy: &Copy<B>, failure: &TrySendError<Request<Outgoing<B>>>) -> bool {
    let error = failure.error();
    let says_why = error.is_user() || error.is_timeout() || was_reset(error) || is_malformed(error);
    refused(error) || !(copy.only_if_refused() || says_why)
}

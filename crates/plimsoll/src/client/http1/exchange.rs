//! One request on one connection, up to the head of its response.
//!
//! Sending and reading go on side by side from the start: a backend may answer before it has the whole request, most
//! often with an error, and then that answer is the result, even if it stops reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use plimsoll_http1::{ResponseHead, Scan};
use tokio::time::{Instant, Sleep};

use super::duplex::Duplex;
use super::upload::{Failure, Upload};
use super::{Incoming, Lease};
use crate::client::backend::Backend;
use crate::client::error::Cause;
use crate::client::informational::Informational;
use crate::client::outgoing::Outgoing;
use crate::client::preemption::Preemption;
use crate::client::replay::is_idempotent;
use crate::client::request_body::RequestBody;
use crate::client::timer::TooLate;

/// Maximum wait for `100 Continue` before the body is sent anyway (RFC 9110, 10.1.1). A server that
/// knows the expectation answers within a round trip and the time to read the head. A server that
/// does not know it never answers, and must get the body all the same.
pub(super) const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Interim responses to one request. One or two are usual; a server that sends them without end sends no response.
pub(crate) const MAX_INTERIM: u8 = 16;

/// A request on a connection. The caller keeps the request and decides its further use.
pub(crate) struct Exchange<'r, B: RequestBody> {
    lease: Lease,
    request: &'r mut Request<Outgoing<B>>,
    informational: Option<&'r Informational>,
    upload: Upload<Outgoing<B>>,
    scan: Scan,
    interim: u8,
    /// There was a byte of an answer.
    answer_begun: bool,
    /// The backend stopped reading; why.
    broken: Option<io::Error>,
    hold: Option<Pin<Box<Sleep>>>,
}

/// The use that is left for a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing was sent: it may go anywhere.
    NotSent,
    /// It may have crossed the end of an idle connection, and may be sent again.
    Replay,
    /// It is over.
    Failed,
}

/// The part after the head of a response.
pub(crate) enum AfterHead {
    /// The body.
    Body(Incoming),
    /// Another protocol.
    Tunnel(Lease),
}

impl<'r, B: RequestBody> Exchange<'r, B> {
    pub(crate) fn new(
        mut lease: Lease,
        request: &'r mut Request<Outgoing<B>>,
        informational: Option<&'r Informational>,
    ) -> Self {
        lease.begin();
        let upload = Upload::new(request.headers(), lease.is_single_use);
        Self {
            lease,
            request,
            informational,
            upload,
            scan: Scan::default(),
            interim: 0,
            answer_begun: false,
            broken: None,
            hold: None,
        }
    }

    /// Sends the request as far as that goes, and waits for the head of the final response, until `deadline`.
    pub(crate) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Instant,
    ) -> Poll<Result<Result<ResponseHead, Cause>, TooLate>> {
        match self.poll_head(cx) {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending => self.lease.poll_deadline(cx, deadline).map(|()| Err(TooLate)),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Cause>> {
        loop {
            self.send(cx)?;
            let (method, begun) = (self.request.method(), &mut self.answer_begun);
            let head = match ready!(self.lease.poll_head(cx, &mut self.scan, method, begun)) {
                Ok(head) => head,
                // The first fault of the connection says more than the end that followed.
                Err(cause) if cause.is_of_connection() => {
                    return Poll::Ready(Err(self.broken.take().map_or(cause, Cause::from)));
                }
                Err(cause) => return Poll::Ready(Err(cause)),
            };
            if !head.status.is_informational() {
                return Poll::Ready(Ok(head));
            }
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                let may_switch = self.upload.is_complete() && self.upload.asks_for_upgrade(self.request.headers());
                let unasked = Cause::out_of_turn("it switches protocols without a request");
                return Poll::Ready(if may_switch { Ok(head) } else { Err(unasked) });
            }
            self.interim(head)?;
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Cause> {
        if self.upload.is_over() {
            return Ok(());
        }
        match self.upload.poll(cx, self.request, &mut self.lease.stream) {
            Poll::Pending if self.upload.is_held() => {
                let hold = self.hold.get_or_insert_with(|| Box::pin(tokio::time::sleep(CONTINUE_WAIT)));
                if hold.as_mut().poll(cx).is_ready() {
                    self.upload.go_on();
                    return self.send(cx);
                }
            }
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Failure::Body(error))) => return Err(Cause::body(error)),
            Poll::Ready(Err(Failure::Write(error))) if !self.upload.wrote => return Err(error.into()),
            Poll::Ready(Err(Failure::Write(error))) => {
                // Why it does not read on may be there to be read.
                self.upload.stop();
                self.broken = Some(error);
            }
        }
        Ok(())
    }

    /// A response before the final one has come.
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cause> {
        self.interim += 1;
        if self.interim > MAX_INTERIM {
            return Err(Cause::out_of_turn("too many interim responses"));
        }
        if head.status == StatusCode::CONTINUE {
            self.upload.go_on();
        } else if let Some(informational) = self.informational {
            let mut response = http::Response::new(());
            *response.status_mut() = head.status;
            *response.version_mut() = head.version;
            *response.headers_mut() = head.headers;
            informational.tell(response);
        }
        Ok(())
    }

    /// The use that is left for the request after it failed by `cause`.
    pub(crate) fn fate(&self, cause: &Cause) -> Fate {
        let is_whole = !self.upload.took_body || self.request.body().is_whole();
        if !is_whole || self.answer_begun || !cause.is_of_connection() {
            Fate::Failed
        } else if !self.upload.wrote {
            Fate::NotSent
        } else if self.lease.was_idle() && is_idempotent(self.request.method(), self.request.extensions()) {
            Fate::Replay
        } else {
            Fate::Failed
        }
    }

    /// Whether all of the request was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.upload.is_complete()
    }

    /// The caller has left: the connection, if the backend has all of the request. A backend with a
    /// part of it can only wait for the rest, and does no work.
    pub(crate) fn abandon(self) -> Option<Lease> {
        self.is_sent().then_some(self.lease)
    }

    /// Whether more of the request's body is waited for, and not the backend.
    pub(crate) fn awaits_body(&self) -> bool {
        self.upload.awaits_body()
    }

    /// Tells `preemption` when more of the request's body is waited for.
    pub(crate) fn set_preemption(&mut self, preemption: &Arc<Preemption>) {
        self.request.body_mut().set_preemption(preemption);
    }

    /// The request, as far as it is still there.
    pub(crate) fn request(&self) -> &Request<Outgoing<B>> {
        self.request
    }

    /// Records on `backend` whether it keeps connections open. A request that asks for the end
    /// itself is no evidence.
    pub(crate) fn note_keep_alive(&self, head: &ResponseHead, backend: &Backend) {
        if !self.upload.is_last() && head.status != StatusCode::SWITCHING_PROTOCOLS {
            backend.note_keep_alive(head.keep_alive);
        }
    }

    /// The body of an answer that is not passed on, if the connection is of use after it. Nothing
    /// more of the request is sent.
    pub(crate) fn refused(mut self, head: &ResponseHead) -> Option<Incoming> {
        if !self.upload.is_complete() || head.status.is_informational() {
            return None;
        }
        self.lease.begin_body(head);
        self.lease.is_reusable &= !self.upload.is_last();
        Some(Incoming::new(self.lease))
    }

    /// The part after the head that has come. The rest of the request's body, if any, is sent
    /// beside it.
    pub(crate) fn answered(mut self, head: &ResponseHead) -> AfterHead {
        let is_tunnel = head.status == StatusCode::SWITCHING_PROTOCOLS
            || *self.request.method() == Method::CONNECT && head.status.is_success();
        if is_tunnel {
            return AfterHead::Tunnel(self.lease);
        }
        self.lease.begin_body(head);
        self.lease.is_reusable &= !self.upload.is_last();
        if self.upload.is_complete() {
            return AfterHead::Body(Incoming::new(self.lease));
        }
        if self.upload.is_over() || self.upload.is_held() || self.lease.has_whole_body() {
            // The rest of the request is not sent, so that no other can follow it.
            self.lease.is_reusable = false;
            return AfterHead::Body(Incoming::new(self.lease));
        }
        let mut body = std::mem::replace(self.request.body_mut(), Outgoing::empty());
        body.forget();
        AfterHead::Body(Incoming::beside(Duplex::spawn(self.lease, self.upload, body)))
    }
}

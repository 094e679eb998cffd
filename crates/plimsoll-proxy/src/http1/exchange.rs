//! One request on an HTTP/1 connection, and its answer.
//!
//! Three things may go on at once: the answer is on its way from a backend, the request's body on
//! its way in, the answer's on its way out. One poll moves each as far as it goes, in this order,
//! until none moves any more; which is also why an answer whose head and body come together leaves
//! in one write.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, DATE, EXPECT, HeaderMap};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use plimsoll::client::Informational;
use plimsoll_core::Rejection;
use plimsoll_http1::write::{self, CHUNK_END};
use plimsoll_http1::{Decoder, Framing, Origin, RequestHead};
use socket2::SockRef;

use super::{Http1, NextState};
use crate::connection::ActiveRequest;
use crate::connection::activity::Stage;
use crate::connection::time_limits::LINGER;
use crate::connection::turns;
use crate::date;
use crate::reason::Refusal;
use crate::request::forward::{ClientFeatures, Outcome, Switched, forward};
use crate::request::response_body::ResponseBody;
use crate::request::upgrade::Upgrade;
use crate::request_body::pipe::{self, Demand, Pipe};
use crate::request_body::{RequestBody, RequestBodyError};

/// How much is written at once when a backend is quick: beyond it nothing is gained by waiting for
/// more.
const MAX_WRITE: usize = 64 * 1024;

/// Bytes behind a request that are read before its response is written.
const MAX_READ_AHEAD: usize = 64 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The way of a request's body.
struct Upload {
    pipe: Pipe,
    decoder: Decoder,
    /// The client waits for 100 (Continue).
    expects_continue: bool,
    /// It broke off: where it ends is not known.
    is_broken: bool,
}

/// The answer did not come to its end at the client.
struct BrokenAnswer;

/// The progress of an upload in one step.
enum UploadProgress {
    /// Something was delivered, which the request may wait for.
    Yes,
    No,
    /// The client is gone.
    Gone,
}

/// The progress of a response's body into the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Flowing,
    Whole,
    /// The backend broke it off. Its bytes go out, but not its end.
    Broken,
}

/// The end of a request.
#[expect(clippy::large_enum_variant, reason = "the large one is nearly every one")]
enum ExchangeEnd {
    By(Outcome),
    /// The client takes nothing of the interim responses, or its body has no reader.
    TooSlow,
    Gone,
}

impl Upload {
    fn break_off(&mut self, error: RequestBodyError, cx: &Context<'_>) {
        self.is_broken = true;
        self.pipe.break_off(error, cx);
    }

    /// Whether the client never got 100 (Continue), now that the final response begins. Such a
    /// client may send its body or not, so the next bytes are ambiguous. If the backend wants the
    /// body all the same, 100 is sent now; later it would be in the middle of the response.
    fn is_held_back(&mut self, output: &mut Vec<u8>) -> bool {
        let waits = std::mem::replace(&mut self.expects_continue, false) && !self.decoder.is_done();
        if waits && self.pipe.wants_piece() {
            output.extend_from_slice(CONTINUE);
            return false;
        }
        waits
    }
}

impl Http1 {
    /// Has a request answered, and writes the answer.
    pub(super) async fn exchange(&mut self, head: Box<RequestHead>) -> NextState {
        let RequestHead { method, uri, version, mut headers, framing, keep_alive, expects_continue, wants_upgrade } =
            *head;
        // A client that sends its body without 100 (Continue) does not wait for it.
        let sends_on = expects_continue && !self.input.is_empty();
        if sends_on {
            headers.remove(EXPECT);
        }
        let expects_continue = expects_continue && !sends_on;
        let is_head = method == Method::HEAD;
        let (mut upload, body) = if framing.is_empty() {
            (None, RequestBody::empty())
        } else {
            let (pipe, reader) = pipe::pipe(framing);
            let decoder = Decoder::new(framing, Origin::Client);
            (
                Some(Upload { pipe, decoder, expects_continue, is_broken: false }),
                RequestBody::http1(reader, &self.connection.limits),
            )
        };
        let response = {
            let connection = Arc::clone(&self.connection);
            let informational =
                (version == Version::HTTP_11).then(|| Informational::shared(Arc::clone(&self.connection)));
            let forwarded = {
                // In a block, because borrowed values stay in the future, and each idle connection
                // holds its memory.
                let mut request = Request::new(body);
                (*request.method_mut(), *request.uri_mut(), *request.version_mut(), *request.headers_mut()) =
                    (method, uri, version, headers);
                let active = ActiveRequest::begin(&self.connection, &request);
                // With a body it is passed over (RFC 9110, 7.8): where the other protocol begins
                // would be known at its end only, and a backend that agreed before would have
                // failed.
                let may_upgrade = wants_upgrade && framing.is_empty();
                let upgrade = if may_upgrade { Upgrade::of_http1(request.headers()) } else { None };
                forward(&connection, request, ClientFeatures { upgrade, informational }, active)
            };
            let mut answer = pin!(forwarded);
            poll_fn(|cx| {
                loop {
                    let polled = answer.as_mut().poll(cx);
                    if self.connection.interim.is_any() {
                        self.connection.interim.take(self.output.buffer());
                    }
                    if let Poll::Ready(outcome) = polled {
                        return Poll::Ready(ExchangeEnd::By(outcome));
                    }
                    if !self.output.is_empty() && matches!(self.poll_write(cx), Poll::Ready(Err(_))) {
                        return Poll::Ready(ExchangeEnd::Gone);
                    }
                    match self.upload(&mut upload, cx) {
                        UploadProgress::Yes if turns::is_step_over(cx, &self.connection.activity) => {
                            return Poll::Pending;
                        }
                        UploadProgress::Yes => {}
                        UploadProgress::No if self.connection.activity.is_overdue() => match &mut upload {
                            // The reader of the body ends the request, with the fields of its route.
                            Some(upload) if upload.pipe.wants_piece() => {
                                upload.break_off(RequestBodyError::TooSlow, cx);
                            }
                            Some(upload) if upload.is_broken => return Poll::Pending,
                            _ => return Poll::Ready(ExchangeEnd::TooSlow),
                        },
                        UploadProgress::No => return Poll::Pending,
                        UploadProgress::Gone => return Poll::Ready(ExchangeEnd::Gone),
                    }
                }
            })
            .await
        };
        let response = match response {
            ExchangeEnd::By(Outcome::Answer(response)) => response,
            ExchangeEnd::By(Outcome::Switched(switched)) => return self.switch(switched).await,
            ExchangeEnd::By(Outcome::Dropped) => return NextState::Broken,
            ExchangeEnd::TooSlow => return NextState::Refuse(Refusal::of(Rejection::SlowBody)),
            ExchangeEnd::Gone => return NextState::Broken,
        };
        self.answer(response, version, is_head, keep_alive, &mut upload).await
    }

    /// Tells the client that it has got the protocol that it asked for.
    async fn switch(&mut self, switched: Box<Switched>) -> NextState {
        let (status, headers) = (switched.response.status(), switched.response.headers());
        write::response_head(self.output.buffer(), status, headers, Framing::Empty, write::Connection::Upgrade);
        match poll_fn(|cx| self.poll_write(cx)).await {
            Ok(()) => NextState::Upgraded(switched),
            Err(_) => NextState::Broken,
        }
    }

    /// Writes the answer.
    async fn answer(
        &mut self,
        mut response: Response<ResponseBody>,
        version: Version,
        is_head: bool,
        keep_alive: bool,
        upload: &mut Option<Upload>,
    ) -> NextState {
        self.connection.activity.enter(Stage::Busy);
        let framing = framing_of(&response, version, is_head);
        let is_held_back = upload.as_mut().is_some_and(|upload| upload.is_held_back(self.output.buffer()));
        let stays = keep_alive
            && !is_held_back
            && !upload.as_ref().is_some_and(|upload| upload.is_broken)
            && framing != Framing::UntilClose
            && !self.connection.activity.is_closing()
            && !self.connection.context.life.is_leaving()
            && !self.connection.context.pressure.is_lean()
            && !self.connection.context.permits.are_wanted_from(self.connection.since);
        self.write_head(&mut response, framing, version, stays);
        let mut body = response.into_body();
        let mut progress = if framing.is_empty() { Body::Whole } else { Body::Flowing };
        let whole = poll_fn(|cx| self.poll_answer(cx, &mut body, framing, &mut progress, upload)).await;
        drop(body);
        self.output.end_message();
        let after = match (whole, upload.take()) {
            (Err(BrokenAnswer), _) => {
                if framing == Framing::UntilClose {
                    self.reset_on_close();
                }
                NextState::Broken
            }
            (Ok(()), Some(upload)) if !upload.decoder.is_done() => {
                let is_read = stays && self.discard(upload).await;
                if is_read { NextState::Next } else { NextState::Close { unread: true } }
            }
            (Ok(()), _) if stays => NextState::Next,
            (Ok(()), _) => NextState::Close { unread: false },
        };
        self.input.end_message();
        after
    }

    /// A body that ends with its connection must not look whole when it is not.
    fn reset_on_close(&self) {
        // Where it fails, the connection is gone already.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Reads the rest of an unwanted body, so that the connection can go on, if the rest comes
    /// soon; says whether it did.
    async fn discard(&mut self, upload: Upload) -> bool {
        let Upload { pipe, mut decoder, .. } = upload;
        drop(pipe);
        let rest = poll_fn(|cx| {
            loop {
                match decoder.decode(self.input.bytes()) {
                    Err(_) => return Poll::Ready(false),
                    Ok(_) if decoder.is_done() => return Poll::Ready(true),
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        let read = self.input.poll_body(&mut self.stream, cx, decoder.remaining());
                        if !matches!(ready!(read), Ok(1..)) {
                            return Poll::Ready(false);
                        }
                    }
                }
            }
        });
        tokio::time::timeout(LINGER, rest).await.unwrap_or(false)
    }

    fn write_head(&mut self, response: &mut Response<ResponseBody>, framing: Framing, version: Version, stays: bool) {
        if !response.headers().contains_key(DATE) {
            response.headers_mut().insert(DATE, date::now());
        }
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let connection = match (stays, version) {
            (false, _) => write::Connection::Close,
            (true, Version::HTTP_10) => write::Connection::KeepAlive,
            (true, _) => write::Connection::Unsaid,
        };
        let buffer = self.output.buffer();
        buffer.reserve(write::TYPICAL_HEAD);
        write::response_head(buffer, response.status(), response.headers(), framing, connection);
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut ResponseBody,
        framing: Framing,
        progress: &mut Body,
        upload: &mut Option<Upload>,
    ) -> Poll<Result<(), BrokenAnswer>> {
        loop {
            if self.connection.activity.is_cut_off() {
                return Poll::Ready(Err(BrokenAnswer));
            }
            let waits = *progress == Body::Flowing && self.fill(cx, body, framing, progress).is_pending();
            match (self.poll_write(cx), *progress) {
                (Poll::Ready(Ok(())), Body::Whole) => return Poll::Ready(Ok(())),
                (Poll::Ready(Ok(())), Body::Broken) | (Poll::Ready(Err(_)), _) => {
                    return Poll::Ready(Err(BrokenAnswer));
                }
                (Poll::Ready(Ok(())), Body::Flowing) if !waits => {
                    if turns::is_step_over(cx, &self.connection.activity) {
                        return Poll::Pending;
                    }
                    continue;
                }
                (Poll::Ready(Ok(())), Body::Flowing) | (Poll::Pending, _) => {}
            }
            return match self.upload(upload, cx) {
                UploadProgress::Yes => continue,
                UploadProgress::No if !self.connection.activity.is_overdue() => Poll::Pending,
                UploadProgress::No | UploadProgress::Gone => Poll::Ready(Err(BrokenAnswer)),
            };
        }
    }

    /// Appends the next bytes of the response's body to the output; pending while there are none.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut ResponseBody,
        framing: Framing,
        progress: &mut Body,
    ) -> Poll<()> {
        let is_chunked = framing == Framing::Chunked;
        while self.output.has_room() && self.output.len() < MAX_WRITE {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else { return Poll::Pending };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => {
                    *progress = Body::Broken;
                    break;
                }
                None => {
                    self.end_body(is_chunked, None, progress);
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if is_chunked => {
                    write::chunk_start(self.output.buffer(), data.len());
                    self.output.data(data, CHUNK_END);
                }
                Ok(data) => {
                    self.output.data(data, b"");
                    // Known now, the end needs no further look.
                    if body.is_end_stream() {
                        *progress = Body::Whole;
                        break;
                    }
                }
                Err(frame) => {
                    self.end_body(is_chunked, frame.trailers_ref(), progress);
                    break;
                }
            }
        }
        Poll::Ready(())
    }

    fn end_body(&mut self, is_chunked: bool, trailers: Option<&HeaderMap>, progress: &mut Body) {
        if is_chunked {
            write::last_chunk(self.output.buffer(), trailers);
        }
        *progress = Body::Whole;
    }

    /// Moves the request's body on, or looks whether the client is still there.
    fn upload(&mut self, upload: &mut Option<Upload>, cx: &mut Context<'_>) -> UploadProgress {
        let Some(way) = upload else { return self.look_for_end(cx) };
        match way.pipe.poll_demand(cx) {
            Poll::Pending => {
                self.connection.activity.enter(Stage::Busy);
                self.look_for_end(cx)
            }
            Poll::Ready(Demand::Done | Demand::Gone) => {
                self.connection.activity.enter(Stage::Busy);
                self.look_for_end(cx)
            }
            Poll::Ready(Demand::Piece) => self.deliver(way, cx),
        }
    }

    fn deliver(&mut self, way: &mut Upload, cx: &mut Context<'_>) -> UploadProgress {
        if std::mem::replace(&mut way.expects_continue, false) && self.input.is_empty() && self.output.has_room() {
            self.output.buffer().extend_from_slice(CONTINUE);
        }
        if !self.output.is_empty() && matches!(self.poll_write(cx), Poll::Ready(Err(_))) {
            return UploadProgress::Gone;
        }
        loop {
            match way.decoder.decode(self.input.bytes()) {
                Err(fault) => {
                    way.break_off(RequestBodyError::Malformed(fault), cx);
                    return UploadProgress::Yes;
                }
                Ok(None) if !way.decoder.is_done() => {}
                Ok(piece) => {
                    way.pipe.deliver(piece, way.decoder.is_done(), cx);
                    return UploadProgress::Yes;
                }
            }
            let activity = &self.connection.activity;
            match self.input.poll_body(&mut self.stream, cx, way.decoder.remaining()) {
                Poll::Ready(Ok(read)) if read > 0 => activity.on_received(read),
                Poll::Ready(_) => return UploadProgress::Gone,
                Poll::Pending => {
                    activity.enter(Stage::Body);
                    return UploadProgress::No;
                }
            }
        }
    }

    /// A client that closes its side while it waits has left; its other bytes are read later.
    fn look_for_end(&mut self, cx: &mut Context<'_>) -> UploadProgress {
        loop {
            if self.input.len() >= MAX_READ_AHEAD || self.stream.poll_read_ready(cx).is_pending() {
                return UploadProgress::No;
            }
            match self.input.poll_head(&mut self.stream, cx) {
                Poll::Ready(Ok(read)) if read > 0 => {}
                Poll::Ready(_) => return UploadProgress::Gone,
                Poll::Pending => return UploadProgress::No,
            }
        }
    }
}

/// How the body of an answer is delimited for a client of `version`.
fn framing_of(response: &Response<ResponseBody>, version: Version, is_head: bool) -> Framing {
    let status = response.status();
    let bodiless = is_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    if bodiless {
        return Framing::Empty;
    }
    match response.body().size_hint().exact() {
        Some(length) => Framing::Length(length),
        None if version < Version::HTTP_11 => Framing::UntilClose,
        None => Framing::Chunked,
    }
}

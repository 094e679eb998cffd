//! A request on its way out: its head, its body, and the bytes written of them.
//!
//! Ready parts go out together: head and short pieces are gathered in one buffer, long pieces are
//! written in place, beside it. The next piece is requested only when the last was written, so that
//! a slow backend slows the caller down and nothing piles up here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap};
use http::{Method, Request};
use http_body::{Body, Frame};
use plimsoll_http1::{Framing, write};
use tokio::io::AsyncWrite;

use super::buffers;
use crate::client::request_body::{BoxError, RequestBody};

/// Pieces up to this size are copied behind the bytes before them: cheaper than a second entry in a
/// vectored write.
const MAX_COPIED: usize = 4 * 1024;

/// Bytes gathered before they are written.
const MAX_GATHERED: usize = 16 * 1024;

/// How far a request has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was done yet.
    New,
    /// The head is out or on its way; the body waits to be asked for.
    Held,
    Body,
    /// All of it was taken, though perhaps not all written.
    Ended,
    /// The rest of it is not sent.
    Stopped,
}

/// Why sending stopped.
#[derive(Debug)]
pub(super) enum Failure {
    /// The caller's body.
    Body(BoxError),
    /// The connection.
    Write(io::Error),
}

/// Sends one request.
pub(super) struct Upload<B: Body> {
    state: State,
    framing: Framing,
    /// Bytes that the body still owes, where its length was announced.
    owed: u64,
    /// To be written, from `written` on; then `data`, then `tail`.
    out: Vec<u8>,
    written: usize,
    data: Option<B::Data>,
    tail: &'static [u8],
    needs_flush: bool,
    facts: Facts,
    /// It is the last request on its connection, and says so.
    is_last: bool,
    /// A part of the body was taken, so that it is no longer whole.
    pub(super) took_body: bool,
    /// A byte was written.
    pub(super) wrote: bool,
}

impl<B: RequestBody> Upload<B> {
    /// An upload of a request with these fields. `is_last`: the connection carries no further
    /// request, whatever the fields say.
    pub(super) fn new(headers: &HeaderMap, is_last: bool) -> Self {
        let facts = Facts::of(headers);
        Self {
            facts,
            is_last: is_last || facts.is(Facts::CONNECTION) && names_option(headers, b"close"),
            state: State::New,
            framing: Framing::Empty,
            owed: 0,
            out: Vec::new(),
            written: 0,
            data: None,
            tail: b"",
            needs_flush: false,
            took_body: false,
            wrote: false,
        }
    }

    /// Whether all is written, or nothing more will be.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Stopped || self.state == State::Ended && self.is_flushed()
    }

    /// Whether all was written.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Ended && self.is_flushed()
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether the request, which has these fields, asks for another protocol.
    pub(super) fn asks_for_upgrade(&self, headers: &HeaderMap) -> bool {
        self.facts.is(Facts::UPGRADE) && self.facts.is(Facts::CONNECTION) && names_option(headers, b"upgrade")
    }

    /// Whether all that there is of the body was written, and more is to come.
    pub(super) fn awaits_body(&self) -> bool {
        self.state == State::Body && self.is_flushed()
    }

    /// Whether the body waits for [`Upload::go_on`].
    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// The backend wants the body.
    pub(super) fn go_on(&mut self) {
        if self.state == State::Held {
            self.state = State::Body;
        }
    }

    /// Sends no more.
    pub(super) fn stop(&mut self) {
        self.state = State::Stopped;
        self.out.clear();
        self.written = 0;
        self.data = None;
    }

    /// Sends as much as can be sent. Ready when all is written.
    pub(super) fn poll<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut Request<B>,
        writer: &mut W,
    ) -> Poll<Result<(), Failure>> {
        if self.state == State::New {
            self.begin(cx, request)?;
        }
        self.poll_rest(cx, request.body_mut(), writer)
    }

    /// The same, when the head is out.
    pub(super) fn poll_rest<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut B,
        writer: &mut W,
    ) -> Poll<Result<(), Failure>> {
        loop {
            let mut waits = self.state == State::Held;
            while self.state == State::Body && self.data.is_none() && self.out.len() - self.written < MAX_GATHERED {
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.take(frame, body.is_end_stream())?,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Failure::Body(error.into()))),
                    Poll::Ready(None) => self.finish(None)?,
                    Poll::Pending => {
                        waits = true;
                        break;
                    }
                }
            }
            if !self.is_flushed() {
                ready!(self.poll_write(cx, writer)).map_err(Failure::Write)?;
            }
            if waits {
                return Poll::Pending;
            }
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Decides how the body is delimited, and puts the head together.
    fn begin(&mut self, cx: &mut Context<'_>, request: &mut Request<B>) -> Result<(), Failure> {
        let facts = self.facts;
        let expects = facts.is(Facts::EXPECT)
            && request.headers().get(EXPECT).is_some_and(|e| e.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut first = None;
        self.framing = match announced(request, facts) {
            Some(framing) => framing,
            None if expects => Framing::Chunked,
            // Of a body that is already there the length can be told.
            None => match Pin::new(request.body_mut()).poll_frame(cx) {
                Poll::Pending => Framing::Chunked,
                Poll::Ready(None) => {
                    self.took_body = true;
                    without_body(request.method(), facts)
                }
                Poll::Ready(Some(Err(error))) => return Err(Failure::Body(error.into())),
                Poll::Ready(Some(Ok(frame))) => {
                    self.took_body = true;
                    let only = frame.data_ref().filter(|_| request.body().is_end_stream());
                    let framing = only.map_or(Framing::Chunked, |data| Framing::Length(data.remaining() as u64));
                    first = Some(frame);
                    framing
                }
            },
        };
        self.out = buffers::output();
        self.written = 0;
        let connection = match self.is_last {
            _ if self.asks_for_upgrade(request.headers()) => write::Connection::Upgrade,
            true => write::Connection::Close,
            false => write::Connection::Unsaid,
        };
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        write::request_head(&mut self.out, method, uri, headers, self.framing, connection);
        self.owed = if let Framing::Length(length) = self.framing { length } else { 0 };
        self.state = match self.framing {
            Framing::Empty | Framing::Length(0) => State::Ended,
            _ if expects => State::Held,
            _ => State::Body,
        };
        match first {
            Some(frame) if self.state == State::Body => self.take(frame, request.body().is_end_stream()),
            _ => Ok(()),
        }
    }

    /// Takes a piece of the body on; `is_last` if it is known to be the last.
    fn take(&mut self, frame: Frame<B::Data>, is_last: bool) -> Result<(), Failure> {
        self.took_body = true;
        let frame = match frame.into_data() {
            Ok(data) => {
                self.take_data(data)?;
                // A body of the announced length is whole, whether or not it says so yet.
                let is_whole = self.framing != Framing::Chunked && self.owed == 0;
                return if is_last || is_whole { self.finish(None) } else { Ok(()) };
            }
            Err(frame) => frame,
        };
        match frame.into_trailers() {
            Ok(trailers) => self.finish(Some(&trailers)),
            // There are no other frames today.
            Err(_) => Ok(()),
        }
    }

    fn take_data(&mut self, data: B::Data) -> Result<(), Failure> {
        let len = data.remaining();
        if len == 0 {
            return Ok(());
        }
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        if self.framing == Framing::Chunked {
            write::chunk_start(&mut self.out, len);
            self.tail = write::CHUNK_END;
        } else {
            self.owed = self.owed.checked_sub(len as u64).ok_or_else(too_long)?;
        }
        if len <= MAX_COPIED {
            self.out.put(data);
            self.out.extend_from_slice(std::mem::take(&mut self.tail));
        } else {
            self.data = Some(data);
        }
        Ok(())
    }

    /// The body has ended.
    fn finish(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Failure> {
        if self.owed > 0 {
            return Err(Failure::Body("it is shorter than its announced length".into()));
        }
        self.state = State::Ended;
        if self.framing != Framing::Chunked {
            return Ok(());
        }
        if self.data.is_some() {
            // Behind the data, in one write. Trailers never come to this: they are requested after
            // the data.
            self.tail = b"\r\n0\r\n\r\n";
            return Ok(());
        }
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        write::last_chunk(&mut self.out, trailers);
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.written == self.out.len() && self.data.is_none() && !self.needs_flush
    }

    fn poll_write<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, writer: &mut W) -> Poll<io::Result<()>> {
        loop {
            let out = &self.out[self.written..];
            let written = match &self.data {
                None if out.is_empty() => break,
                None => ready!(Pin::new(&mut *writer).poll_write(cx, out))?,
                Some(data) => {
                    let chunk = data.chunk();
                    let tail = if chunk.len() == data.remaining() { self.tail } else { b"" };
                    let slices = [IoSlice::new(out), IoSlice::new(chunk), IoSlice::new(tail)];
                    if out.is_empty() && tail.is_empty() {
                        ready!(Pin::new(&mut *writer).poll_write(cx, chunk))?
                    } else {
                        ready!(Pin::new(&mut *writer).poll_write_vectored(cx, &slices))?
                    }
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.wrote = true;
            self.needs_flush = true;
            self.advance(written);
        }
        if self.needs_flush {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.needs_flush = false;
        }
        self.written = 0;
        buffers::return_output(std::mem::take(&mut self.out));
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        let of_out = written.min(self.out.len() - self.written);
        self.written += of_out;
        written -= of_out;
        let Some(data) = &mut self.data else { return };
        let of_data = written.min(data.remaining());
        data.advance(of_data);
        if !data.has_remaining() {
            self.data = None;
            self.out.clear();
            self.written = 0;
            self.out.extend_from_slice(&std::mem::take(&mut self.tail)[written - of_data..]);
        }
    }
}

/// The fields of a request that decide its framing. Most requests have none, and a search for each
/// costs more than one pass over the names.
#[derive(Clone, Copy, Debug)]
struct Facts(u8);

impl Facts {
    const CONNECTION: u8 = 1;
    const CONTENT_LENGTH: u8 = 1 << 1;
    const EXPECT: u8 = 1 << 2;
    const TRANSFER_ENCODING: u8 = 1 << 3;
    const UPGRADE: u8 = 1 << 4;

    fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |facts, name| {
            facts
                | match name.as_str() {
                    "connection" => Self::CONNECTION,
                    "content-length" => Self::CONTENT_LENGTH,
                    "expect" => Self::EXPECT,
                    "transfer-encoding" => Self::TRANSFER_ENCODING,
                    "upgrade" => Self::UPGRADE,
                    _ => 0,
                }
        }))
    }

    /// Whether it has one of `fields`.
    fn is(self, fields: u8) -> bool {
        self.0 & fields != 0
    }
}

/// The framing of a request where it is known without looking at its body.
fn announced<B: Body>(request: &Request<B>, facts: Facts) -> Option<Framing> {
    let body = request.body();
    if body.is_end_stream() {
        return Some(without_body(request.method(), facts));
    }
    match body.size_hint().exact() {
        Some(0) => Some(without_body(request.method(), facts)),
        Some(length) => Some(Framing::Length(length)),
        None => length(request.headers()).map(Framing::Length),
    }
}

/// The framing of a request without a body, whatever its fields say.
fn without_body(method: &Method, facts: Facts) -> Framing {
    let speaks_of_one = facts.is(Facts::CONTENT_LENGTH | Facts::TRANSFER_ENCODING);
    // A method that has one as a rule says that it is empty (RFC 9110, 8.6).
    if speaks_of_one || matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        Framing::Length(0)
    } else {
        Framing::Empty
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let only = lines.next().filter(|_| lines.next().is_none())?;
    only.to_str().ok()?.parse().ok()
}

/// Whether `Connection` names `option`.
fn names_option(headers: &HeaderMap, option: &[u8]) -> bool {
    headers.get_all(CONNECTION).iter().any(|line| {
        line.as_bytes().split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(option))
    })
}

fn too_long() -> Failure {
    Failure::Body("it is longer than its announced length".into())
}

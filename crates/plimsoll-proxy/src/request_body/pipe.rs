//! The body of an HTTP/1 request, from the connection that reads it to its sender.
//!
//! The connection reads only what is asked for: one piece at a time, so that a slow backend slows
//! its client down and memory stays bounded. The two ends are mostly polled by one task, one after
//! the other; but the sender may have moved to a task of its own (when a backend answers before it
//! has read all), so each end can wake the other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use plimsoll_http1::{Fault, Framing, Piece};

use super::RequestBodyError;

/// The connection's end.
pub(crate) struct Pipe(Arc<Mutex<State>>);

/// The sender's end: the body.
pub(crate) struct Reader {
    state: Arc<Mutex<State>>,
    /// As far as it is known from the head.
    left: Option<u64>,
}

#[derive(Default)]
struct State {
    piece: Option<Result<Frame<Bytes>, RequestBodyError>>,
    /// No piece comes after the one that is there, if one is.
    ended: bool,
    wanted: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

/// The reader's demand on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// One piece more.
    Piece,
    /// Nothing ever again.
    Gone,
    /// All is delivered.
    Done,
}

/// A pipe for a body that is delimited by `framing`.
pub(crate) fn pipe(framing: Framing) -> (Pipe, Reader) {
    let state = Arc::new(Mutex::new(State::default()));
    let left = match framing {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    (Pipe(Arc::clone(&state)), Reader { state, left })
}

impl Pipe {
    /// The reader's demand; pending while it has an unread piece.
    pub(crate) fn poll_demand(&self, cx: &mut Context<'_>) -> Poll<Demand> {
        let mut state = self.0.lock();
        if state.ended {
            return Poll::Ready(Demand::Done);
        }
        if state.reader_gone {
            return Poll::Ready(Demand::Gone);
        }
        if state.wanted && state.piece.is_none() {
            return Poll::Ready(Demand::Piece);
        }
        remember(&mut state.connection, cx);
        Poll::Pending
    }

    /// Whether the reader waits for a piece.
    pub(crate) fn wants_piece(&self) -> bool {
        let state = self.0.lock();
        state.wanted && state.piece.is_none() && !state.ended && !state.reader_gone
    }

    /// Delivers the wanted piece; `is_last`: no other follows.
    pub(crate) fn deliver(&self, piece: Option<Piece>, is_last: bool, cx: &Context<'_>) {
        let frame = piece.map(|piece| match piece {
            Piece::Data(data) => Ok(Frame::data(data)),
            Piece::Trailers(trailers) => Ok(Frame::trailers(trailers)),
        });
        self.push(frame, is_last, cx);
    }

    /// Tells the reader that the body breaks off.
    pub(crate) fn break_off(&self, error: RequestBodyError, cx: &Context<'_>) {
        self.push(Some(Err(error)), true, cx);
    }

    fn push(&self, piece: Option<Result<Frame<Bytes>, RequestBodyError>>, is_last: bool, cx: &Context<'_>) {
        let mut state = self.0.lock();
        state.wanted = false;
        state.piece = piece;
        state.ended = is_last;
        let reader = state.reader.take().filter(|reader| !reader.will_wake(cx.waker()));
        drop(state);
        // A reader on the connection's own task is polled next anyhow.
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if !state.ended {
            state.ended = true;
            state.piece = Some(Err(RequestBodyError::Malformed(Fault::CutOff)));
        }
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        place => *place = Some(cx.waker().clone()),
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut state = self.state.lock();
        let Some(piece) = state.piece.take() else {
            if state.ended {
                return Poll::Ready(None);
            }
            state.wanted = true;
            remember(&mut state.reader, cx);
            if let Some(connection) = state.connection.take().filter(|waker| !waker.will_wake(cx.waker())) {
                drop(state);
                connection.wake();
            }
            return Poll::Pending;
        };
        drop(state);
        if let (Some(left), Ok(frame)) = (&mut self.left, &piece) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        Poll::Ready(Some(piece))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.state.lock();
        state.ended && state.piece.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.reader_gone = true;
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

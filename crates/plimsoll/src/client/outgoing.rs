//! The body of a request on its way to a backend, kept so that it can be sent again.
//!
//! A request that one backend sheds may go to another, but a body can be read only once. So the
//! bytes that pass are kept, up to a limit. Large pieces are shared and not copied, where they are
//! [`Bytes`]. A body that turns out longer is forgotten at once, and its request is sent once only:
//! large uploads must not cost memory for each request in flight.
//!
//! Over HTTP/1 the request stays with its sender. hyper's HTTP/2 takes it; there the body is
//! *lent*, and taken back to be sent again. A read by hyper then ends with an error, so that no
//! backend takes half of a body for a whole.
//!
//! All of it passes here, so the time of its last piece is known here, and whether more is awaited.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::preemption::Preemption;
use super::request_body::{BoxError, RequestBody};

/// A piece shorter than this is copied: the buffer that it was read into may be much larger, and
/// would be kept with it.
const COPIED: usize = 4096;
/// Mean size of kept pieces, at least. Each costs about as much beside its bytes, and a body may
/// come a byte at a time.
const MEAN_PIECE: usize = 128;
/// Pieces that a body may come in, however short it is.
const FEW_PIECES: usize = 16;

/// The body of a request, or nothing.
pub(crate) struct Outgoing<B>(Source<B>);

enum Source<B> {
    Empty,
    Own(Record<B>),
    /// The borrower's side, with the number of its loan.
    Lent(Arc<Mutex<Record<B>>>, u32),
}

/// A body, and the part of it that has passed.
struct Record<B> {
    body: B,
    /// All that came so far, while it is kept.
    kept: Vec<Bytes>,
    /// How many of these the present attempt has got.
    given: usize,
    /// Bytes that may still be kept.
    room: usize,
    most_pieces: usize,
    /// A piece came that is not kept.
    has_lost: bool,
    trailers: Option<Box<HeaderMap>>,
    gave_trailers: bool,
    /// The caller's body has said that it is over.
    has_ended: bool,
    /// The caller's body was asked for a piece.
    was_asked: bool,
    /// It was, and has none yet.
    is_awaited: bool,
    /// Time of its last piece, other than those that it had from the start.
    moved: Option<Instant>,
    /// The same for the reader of the answer, while there is more to come.
    progress: Option<Progress>,
    /// Which loan is in force.
    loan: u32,
    /// The borrower that waits for more.
    waiting: Option<Waker>,
    /// Told when the caller is waited for, if set.
    preemption: Option<Arc<Preemption>>,
}

/// The progress of a body, for the reader of an answer that began before the body was over.
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Clone, Copy)]
struct State {
    moved: Option<Instant>,
    is_awaited: bool,
}

impl Progress {
    /// Time of its last piece; `None` if all pieces were there from the start.
    pub(crate) fn moved(&self) -> Option<Instant> {
        self.0.lock().moved
    }

    /// Whether the caller owes more of it now.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_open() && self.0.lock().is_awaited
    }

    /// Whether more of it is to come: then the body itself holds the other side of this.
    pub(crate) fn is_open(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A piece of a body: as it came, or as it was kept.
pub(crate) enum Piece<D> {
    Passing(D),
    Kept(Bytes),
}

/// A piece of a body on its way, or its error.
type PassedFrame<D> = Result<Frame<Piece<D>>, BoxError>;

impl<B: RequestBody> Outgoing<B> {
    pub(crate) fn new(body: B) -> Self {
        Self(Source::Own(Record {
            body,
            kept: Vec::new(),
            given: 0,
            room: 0,
            most_pieces: 0,
            has_lost: false,
            trailers: None,
            gave_trailers: false,
            has_ended: false,
            was_asked: false,
            is_awaited: false,
            moved: None,
            progress: None,
            loan: 0,
            waiting: None,
            preemption: None,
        }))
    }

    pub(crate) fn empty() -> Self {
        Self(Source::Empty)
    }

    /// Keeps the bytes that pass from now on, up to `most`; nothing of a body that is known to be
    /// longer.
    pub(crate) fn keep(&mut self, most: usize) {
        if let Source::Own(record) = &mut self.0
            && !record.body.is_end_stream()
            && usize::try_from(record.body.size_hint().lower()).is_ok_and(|least| least <= most)
        {
            record.room = most;
            record.most_pieces = (most / MEAN_PIECE).max(FEW_PIECES);
        }
    }

    /// Tells `preemption` from now on when the caller is waited for.
    pub(crate) fn set_preemption(&mut self, preemption: &Arc<Preemption>) {
        self.with(|record| {
            if record.is_awaited {
                preemption.wait();
            }
            record.preemption = Some(preemption.clone());
        });
    }

    /// Keeps nothing any more: it will not be sent again.
    pub(crate) fn forget(&mut self) {
        self.with(Record::forget);
    }

    /// Begins anew, if all that was sent of it is there.
    pub(crate) fn rewind(&mut self) -> bool {
        self.with(Record::rewind).unwrap_or(true)
    }

    /// Whether [`Outgoing::rewind`] would succeed.
    pub(crate) fn is_whole(&self) -> bool {
        self.look(Record::is_whole).unwrap_or(true)
    }

    /// Bytes that are kept of it.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.look(|record| record.kept.iter().map(Bytes::len).sum()).unwrap_or(0)
    }

    /// Whether nothing of it is kept: once handed over, there is nothing to take back.
    pub(crate) fn goes_once(&self) -> bool {
        matches!(&self.0, Source::Own(record)
            if record.room == 0 && record.kept.is_empty() && !record.body.is_end_stream())
    }

    /// Lends the body: the returned one is to be sent, and this one takes it back with
    /// [`Outgoing::take_back`]. `None` where there would be nothing to take back.
    pub(crate) fn lend(&mut self) -> Option<Self> {
        (!self.goes_once()).then(|| self.share())
    }

    /// The same body once more, to follow its progress after this one was handed over.
    pub(crate) fn share(&mut self) -> Self {
        let record = match std::mem::replace(&mut self.0, Source::Empty) {
            Source::Empty => return Self::empty(),
            Source::Own(record) if record.body.is_end_stream() && record.kept.is_empty() => return Self::empty(),
            Source::Own(record) => Arc::new(Mutex::new(record)),
            Source::Lent(record, _) => record,
        };
        let loan = record.lock().loan;
        self.0 = Source::Lent(record.clone(), loan);
        Self(Source::Lent(record, loan))
    }

    /// Ends a loan: it begins anew here, and ends with an error there. `None` if not all of it is kept.
    pub(crate) fn take_back(self) -> Option<Self> {
        let Source::Lent(record, _) = self.0 else { return Some(self) };
        let mut held = record.lock();
        if !held.rewind() {
            return None;
        }
        held.loan += 1;
        let (loan, waiting) = (held.loan, held.waiting.take());
        drop(held);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        Some(Self(Source::Lent(record, loan)))
    }

    /// When some of it last came that had not been there from the start.
    pub(crate) fn moved(&self) -> Option<Instant> {
        self.look(|record| record.moved).flatten()
    }

    /// Whether all that the caller gave was taken, and more is to come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.look(|record| record.is_awaited).unwrap_or(false)
    }

    /// Follows the rest of the body from outside; `None` when it is over. There is one follower.
    pub(crate) fn follow(&mut self) -> Option<Progress> {
        self.with(Record::follow).flatten()
    }

    fn look<T>(&self, look: impl FnOnce(&Record<B>) -> T) -> Option<T> {
        match &self.0 {
            Source::Empty => None,
            Source::Own(record) => Some(look(record)),
            Source::Lent(record, _) => Some(look(&record.lock())),
        }
    }

    fn with<T>(&mut self, change: impl FnOnce(&mut Record<B>) -> T) -> Option<T> {
        match &mut self.0 {
            Source::Empty => None,
            Source::Own(record) => Some(change(record)),
            Source::Lent(record, _) => Some(change(&mut record.lock())),
        }
    }
}

impl<B: RequestBody> Record<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<PassedFrame<B::Data>>> {
        if let Some(piece) = self.kept.get(self.given) {
            self.given += 1;
            return Poll::Ready(Some(Ok(Frame::data(Piece::Kept(piece.clone())))));
        }
        if self.has_ended {
            let again = self.trailers.as_ref().filter(|_| !self.gave_trailers);
            let again = again.map(|trailers| Ok(Frame::trailers((**trailers).clone())));
            self.gave_trailers = true;
            return Poll::Ready(again);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.note(match &polled {
            Poll::Pending => None,
            Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Buf::remaining)),
            Poll::Ready(_) => Some(0),
        });
        let frame = match ready!(polled) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.lose();
                return Poll::Ready(Some(Err(error.into())));
            }
            None => {
                self.end();
                return Poll::Ready(None);
            }
        };
        let frame = match frame.into_data() {
            Ok(data) => return Poll::Ready(Some(Ok(Frame::data(self.pass(data))))),
            Err(frame) => frame,
        };
        Poll::Ready(match frame.into_trailers() {
            Ok(trailers) => {
                self.end();
                self.gave_trailers = true;
                self.trailers = (!self.has_lost).then(|| Box::new(trailers.clone()));
                Some(Ok(Frame::trailers(trailers)))
            }
            // There are no other frames today.
            Err(_) => {
                self.lose();
                Some(Ok(Frame::data(Piece::Kept(Bytes::new()))))
            }
        })
    }

    /// Notes how many bytes a poll of the caller's body gave, or that it has none yet. The first
    /// piece costs no look at the clock: most bodies have no more.
    fn note(&mut self, bytes: Option<usize>) {
        let is_pending = bytes.is_none();
        match (&self.preemption, bytes) {
            (Some(preemption), None) => preemption.wait(),
            (Some(preemption), Some(bytes)) => preemption.moved(bytes as u64),
            (None, _) => {}
        }
        if self.was_asked && !is_pending {
            self.moved = Some(Instant::now());
        }
        (self.was_asked, self.is_awaited) = (true, is_pending);
        if let Some(progress) = &self.progress {
            *progress.0.lock() = State { moved: self.moved, is_awaited: is_pending };
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.progress = None;
    }

    fn follow(&mut self) -> Option<Progress> {
        if self.is_end_stream() {
            return None;
        }
        let state = Arc::new(Mutex::new(State { moved: self.moved, is_awaited: self.is_awaited }));
        self.progress = Some(Progress(state.clone()));
        Some(Progress(state))
    }

    /// Remembers a piece that passes, if it can.
    fn pass(&mut self, mut data: B::Data) -> Piece<B::Data> {
        let len = data.remaining();
        if self.has_lost || len == 0 {
            return Piece::Passing(data);
        }
        if len > self.room || self.kept.len() == self.most_pieces {
            self.lose();
            return Piece::Passing(data);
        }
        self.room -= len;
        let bytes = if len < COPIED {
            let mut own = BytesMut::with_capacity(len);
            own.put(data);
            own.freeze()
        } else {
            data.copy_to_bytes(len)
        };
        self.kept.push(bytes.clone());
        self.given = self.kept.len();
        Piece::Kept(bytes)
    }

    fn lose(&mut self) {
        self.has_lost = true;
        self.trailers = None;
        self.forget();
    }

    /// Pieces that the present attempt has still to get stay.
    fn forget(&mut self) {
        self.room = 0;
        if self.given == self.kept.len() {
            self.has_lost |= !self.kept.is_empty();
            (self.kept, self.given) = (Vec::new(), 0);
        }
    }

    fn is_whole(&self) -> bool {
        !self.has_lost
    }

    fn rewind(&mut self) -> bool {
        (self.given, self.gave_trailers, self.is_awaited) = (0, false, false);
        self.is_whole()
    }

    fn is_end_stream(&self) -> bool {
        let has_trailers = self.trailers.is_some() && !self.gave_trailers;
        self.given == self.kept.len() && !has_trailers && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = if self.has_ended { SizeHint::with_exact(0) } else { self.body.size_hint() };
        let again: u64 = self.kept[self.given..].iter().map(|piece| piece.len() as u64).sum();
        if again == 0 {
            return rest;
        }
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(again));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(again)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: RequestBody> Body for Outgoing<B> {
    type Data = Piece<B::Data>;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.0 {
            Source::Empty => Poll::Ready(None),
            Source::Own(record) => record.poll_frame(cx),
            Source::Lent(record, loan) => {
                let mut record = record.lock();
                if record.loan != *loan {
                    return Poll::Ready(Some(Err("the request is sent to another backend".into())));
                }
                let polled = record.poll_frame(cx);
                if polled.is_pending() {
                    match &mut record.waiting {
                        Some(waiting) => waiting.clone_from(cx.waker()),
                        none => *none = Some(cx.waker().clone()),
                    }
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Empty => true,
            Source::Own(record) => record.is_end_stream(),
            Source::Lent(record, loan) => {
                let record = record.lock();
                record.loan == *loan && record.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Empty => SizeHint::with_exact(0),
            Source::Own(record) => record.size_hint(),
            Source::Lent(record, _) => record.lock().size_hint(),
        }
    }
}

impl<D: Buf> Buf for Piece<D> {
    fn remaining(&self) -> usize {
        match self {
            Self::Passing(data) => data.remaining(),
            Self::Kept(bytes) => bytes.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Passing(data) => data.chunk(),
            Self::Kept(bytes) => bytes.chunk(),
        }
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        match self {
            Self::Passing(data) => data.chunks_vectored(dst),
            Self::Kept(bytes) => bytes.chunks_vectored(dst),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Passing(data) => data.advance(count),
            Self::Kept(bytes) => bytes.advance(count),
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        match self {
            Self::Passing(data) => data.copy_to_bytes(len),
            Self::Kept(bytes) => bytes.copy_to_bytes(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Wake, Waker};

    use futures_util::stream::{self, StreamExt as _};
    use http_body_util::{Full, StreamBody};

    use super::*;

    /// Takes all bytes that are there; `Err` holds those before an error.
    fn read(body: &mut (impl Body<Data: Buf> + Unpin)) -> Result<(Vec<u8>, bool), Vec<u8>> {
        let (mut all, mut has_trailers) = (Vec::new(), false);
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut *body).poll_frame(&mut cx) {
            let Ok(frame) = frame else { return Err(all) };
            match frame.into_data() {
                Ok(mut data) => all.extend_from_slice(&data.copy_to_bytes(data.remaining())),
                Err(_) => has_trailers = true,
            }
        }
        Ok((all, has_trailers))
    }

    fn whole(text: &'static str, has_trailers: bool) -> Result<(Vec<u8>, bool), Vec<u8>> {
        Ok((text.into(), has_trailers))
    }

    fn pieces(
        texts: &[&'static str],
    ) -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Unpin + 'static> {
        let frames = texts.iter().map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
        let trailers = [Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, "\"x\"".parse().unwrap())]))];
        StreamBody::new(stream::iter(frames.chain(trailers).map(Ok).collect::<Vec<_>>()))
    }

    #[test]
    fn what_is_kept_is_sent_again_from_any_point_with_its_trailers() {
        for taken in 0..=4 {
            let mut body = Outgoing::new(pieces(&["ab", "", "cde"]));
            body.keep(5);
            for _ in 0..taken {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
            }
            assert!(body.is_whole() && body.rewind(), "after {taken}");
            assert_eq!(read(&mut body), whole("abcde", true), "after {taken}");
            assert!(body.is_end_stream());
            assert!(body.rewind());
            assert!(!body.is_end_stream());
            assert_eq!(read(&mut body), whole("abcde", true), "twice, after {taken}");
        }
    }

    #[test]
    fn a_body_beyond_the_limit_is_sent_once_and_not_kept() {
        let mut body = Outgoing::new(pieces(&["ab", "cde", "f"]));
        body.keep(4);
        assert!(body.rewind(), "nothing was sent of it yet");
        assert_eq!(read(&mut body), whole("abcdef", true));
        assert!(!body.is_whole() && !body.rewind());
        let Outgoing(Source::Own(record)) = &body else { panic!("it is still its own") };
        assert!(record.kept.is_empty());
    }

    /// Each piece costs more memory than it holds.
    #[test]
    fn a_body_in_too_many_pieces_is_not_kept() {
        for (count, is_kept) in [(FEW_PIECES, true), (FEW_PIECES + 1, false)] {
            let mut body = Outgoing::new(pieces(&vec!["a"; count]));
            body.keep(MEAN_PIECE);
            assert!(read(&mut body).is_ok());
            assert_eq!(body.rewind(), is_kept, "{count}");
        }
    }

    #[test]
    fn a_small_piece_does_not_keep_what_it_was_read_into() {
        let large = Bytes::from(vec![b'a'; 1 << 16]);
        let mut body = Outgoing::new(Full::new(large.slice(..10)));
        body.keep(10);
        assert!(read(&mut body).is_ok() && body.is_whole());
        assert!(large.is_unique());
    }

    #[test]
    fn a_body_that_is_known_to_be_long_is_not_kept_from_the_start() {
        let mut body = Outgoing::new(Full::new(Bytes::from_static(b"abc")));
        body.keep(2);
        assert!(body.lend().is_none());
        assert_eq!(read(&mut body), whole("abc", false));
        assert!(!body.rewind());
    }

    #[test]
    fn its_length_is_the_same_each_time() {
        let mut body = Outgoing::new(Full::new(Bytes::from_static(b"abc")));
        body.keep(9);
        for _ in 0..2 {
            assert_eq!(body.size_hint().exact(), Some(3));
            assert_eq!(read(&mut body), whole("abc", false));
            assert_eq!(body.size_hint().exact(), Some(0));
            assert!(body.rewind());
        }
    }

    #[test]
    fn what_was_lent_ends_with_an_error_when_it_is_taken_back() {
        let mut body = Outgoing::new(pieces(&["ab", "cd"]));
        body.keep(9);
        let mut lent = body.lend().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut lent).poll_frame(&mut cx).is_ready());
        let mut again = body.take_back().unwrap();
        assert!(!lent.is_end_stream());
        assert_eq!(read(&mut lent), Err(Vec::new()));
        assert_eq!(read(&mut again), whole("abcd", true));
    }

    #[test]
    fn who_waits_for_more_of_what_was_lent_hears_that_it_was_taken_back() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let never = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let mut body = Outgoing::new(StreamBody::new(never));
        body.keep(9);
        let mut lent = body.lend().unwrap();
        let woken = Arc::new(Woken(false.into()));
        let waker = Waker::from(woken.clone());
        assert!(Pin::new(&mut lent).poll_frame(&mut Context::from_waker(&waker)).is_pending());
        let _again = body.take_back().unwrap();
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(read(&mut lent), Err(Vec::new()));
    }

    #[test]
    fn what_is_forgotten_passes_all_the_same() {
        let mut body = Outgoing::new(pieces(&["ab", "cd"]));
        body.keep(9);
        let mut lent = body.lend().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut lent).poll_frame(&mut cx).is_ready());
        body.forget();
        assert_eq!(read(&mut lent), whole("cd", true));
        assert!(body.take_back().is_none());
    }

    #[test]
    fn what_was_there_from_the_start_has_not_moved() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut body = Outgoing::new(pieces(&["ab", "cd"]));
        body.keep(9);
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
        assert_eq!((body.moved(), body.is_awaited()), (None, false));
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
        let moved = body.moved();
        assert!(moved.is_some());
        assert!(body.rewind() && Pin::new(&mut body).poll_frame(&mut cx).is_ready());
        assert_eq!(body.moved(), moved, "it is what it was before");
    }

    #[test]
    fn a_caller_is_waited_for_who_has_no_more_yet_and_not_before_what_there_is_was_taken() {
        let mut cx = Context::from_waker(Waker::noop());
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"ab")))]);
        let mut body = Outgoing::new(StreamBody::new(first.chain(stream::pending())));
        body.keep(9);
        let mut lent = body.lend().unwrap();
        for (is_pending, is_awaited) in [(false, false), (true, true)] {
            assert_eq!(Pin::new(&mut lent).poll_frame(&mut cx).is_pending(), is_pending);
            assert_eq!(body.is_awaited(), is_awaited);
        }
        assert!(!body.take_back().unwrap().is_awaited());
    }

    #[test]
    fn nothing_is_kept_of_what_fails() {
        let frames = [Ok(Frame::data(Bytes::from_static(b"ab"))), Err("gone")];
        let mut body = Outgoing::new(StreamBody::new(stream::iter(frames)));
        body.keep(9);
        assert_eq!(read(&mut body), Err(b"ab".to_vec()));
        assert!(!body.rewind());
    }
}

//! A copy of a request's body, made as the body goes to a backend. It holds up nothing: the copy is
//! there once the last piece of the body has passed.

use bytes::{Bytes, BytesMut};

/// Why a copy is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// The body is longer than the copy may be.
    TooLong,
    /// The body broke off, or nobody read it to its end.
    Incomplete,
}

type Done = Box<dyn FnOnce(Result<Bytes, CopyError>) + Send>;

/// A copy in progress.
pub(crate) struct BodyCopy {
    pieces: BytesMut,
    max: usize,
    /// Bytes of the whole body, if its length is known.
    length: Option<u64>,
    /// Called exactly once.
    done: Option<Done>,
}

impl BodyCopy {
    /// A copy of at most `max` bytes for `done`.
    pub(crate) fn new(max: usize, done: impl FnOnce(Result<Bytes, CopyError>) + Send + 'static) -> Box<Self> {
        Box::new(Self { pieces: BytesMut::new(), max, length: None, done: Some(Box::new(done)) })
    }

    /// The body has this length, if it is known. Its sender stops reading at the last byte, and does
    /// not see the end of a body with trailers.
    pub(super) fn expect(&mut self, length: Option<u64>) {
        self.length = length;
    }

    /// Takes a piece. Once the body is too long, all of the copy is dropped.
    pub(super) fn add(&mut self, piece: &Bytes) {
        if self.done.is_some() && self.pieces.len() + piece.len() > self.max {
            self.pieces = BytesMut::new();
            self.end(Err(CopyError::TooLong));
        } else if self.done.is_some() {
            self.pieces.extend_from_slice(piece);
            if self.length == Some(self.pieces.len() as u64) {
                self.finish();
            }
        }
    }

    /// The body is complete.
    pub(super) fn finish(&mut self) {
        let pieces = std::mem::take(&mut self.pieces).freeze();
        self.end(Ok(pieces));
    }

    fn end(&mut self, copy: Result<Bytes, CopyError>) {
        if let Some(done) = self.done.take() {
            done(copy);
        }
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        self.end(Err(CopyError::Incomplete));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Ends = Arc<Mutex<Vec<Result<Bytes, CopyError>>>>;

    fn copy(max: usize) -> (Box<BodyCopy>, Ends) {
        let ends = Ends::default();
        let kept = Arc::clone(&ends);
        (BodyCopy::new(max, move |end| kept.lock().unwrap().push(end)), ends)
    }

    #[test]
    fn whole_body_is_copied_and_ends_once() {
        let (mut body, ends) = copy(5);
        body.add(&Bytes::from_static(b"ab"));
        body.add(&Bytes::from_static(b"cde"));
        body.finish();
        drop(body);
        assert_eq!(*ends.lock().unwrap(), [Ok(Bytes::from_static(b"abcde"))]);
    }

    #[test]
    fn body_of_known_length_ends_with_its_last_byte() {
        let (mut body, ends) = copy(5);
        body.expect(Some(3));
        body.add(&Bytes::from_static(b"ab"));
        assert!(ends.lock().unwrap().is_empty());
        body.add(&Bytes::from_static(b"c"));
        assert_eq!(*ends.lock().unwrap(), [Ok(Bytes::from_static(b"abc"))]);
        drop(body);
        assert_eq!(ends.lock().unwrap().len(), 1);
    }

    #[test]
    fn long_and_broken_bodies_are_not_copied() {
        let (mut long, ends) = copy(4);
        long.add(&Bytes::from_static(b"abcde"));
        long.finish();
        assert_eq!(*ends.lock().unwrap(), [Err(CopyError::TooLong)]);
        let (broken, ends) = copy(4);
        drop(broken);
        assert_eq!(*ends.lock().unwrap(), [Err(CopyError::Incomplete)]);
    }
}

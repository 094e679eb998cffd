//! The copy that is made of an answer's body as it passes, to be kept once it is whole.
//!
//! Bytes are copied, not referred to: a piece of a body is a slice of a larger read buffer, and
//! would keep all of it in memory. A copy ends without a trace when it gets too long, when there
//! are too many at once, or when
//! the body breaks off; the client notices nothing of it.

use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{AGE, CONTENT_LENGTH, DATE};
use http_body::Frame;
use plimsoll_core::Timestamp;

use super::keep::Life;
use super::store::{Fields, Kept, Owner, Store, size_of};
use crate::date;

/// A copy under way.
pub(crate) struct BodyCopy {
    store: Arc<Store>,
    owner: Owner,
    fields: Fields,
    headers: HeaderMap,
    life: Life,
    came: Timestamp,
    body: BytesMut,
    /// Bytes that the body may still have.
    left: usize,
}

/// The state of a copy after another piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Goes,
    /// It is stored, or dropped.
    Over,
}

impl BodyCopy {
    /// `length` is the body's, if it is known; `None` if it is too long.
    pub(super) fn begin(
        store: &Arc<Store>,
        owner: &Owner,
        fields: Fields,
        answer: &HeaderMap,
        life: Life,
        length: Option<u64>,
    ) -> Option<Self> {
        let left = store.max_entry()?.checked_sub(size_of(answer))?;
        if length.is_some_and(|length| length > left as u64) {
            return None;
        }
        let mut headers = answer.clone();
        headers.remove(AGE);
        headers.remove(CONTENT_LENGTH);
        // When it was made, not when it is given again.
        headers.entry(DATE).or_insert_with(date::now);
        let (store, owner, came, body) = (Arc::clone(store), owner.clone(), store.now(), BytesMut::new());
        Some(Self { store, owner, fields, headers, life, came, body, left })
    }

    /// Sees a piece of the body; `is_end`: it is the last one.
    pub(crate) fn see<E>(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, E>>>, is_end: bool) -> Progress {
        let Poll::Ready(frame) = polled else { return Progress::Goes };
        match frame {
            Some(Ok(frame)) => {
                // Trailers are not stored: few clients read them, and they may report a failure.
                if !frame.data_ref().is_some_and(|data| self.add(data)) {
                    return Progress::Over;
                }
                if !is_end {
                    return Progress::Goes;
                }
                self.finish();
            }
            None => self.finish(),
            Some(Err(_)) => {}
        }
        Progress::Over
    }

    fn add(&mut self, data: &[u8]) -> bool {
        let fits = data.len() <= self.left && self.store.reserve(data.len());
        if fits {
            self.left -= data.len();
            self.body.extend_from_slice(data);
        }
        fits
    }

    /// The body is whole.
    pub(crate) fn finish(&mut self) {
        let kept = Kept {
            fields: std::mem::take(&mut self.fields),
            headers: std::mem::take(&mut self.headers),
            body: Bytes::copy_from_slice(&self.body),
            came: self.came,
            age: self.life.age,
            until: self.came + self.life.left,
        };
        self.store.keep(&self.owner, kept);
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        self.store.release(self.body.len());
    }
}

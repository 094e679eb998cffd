//! In place of HTTP/2 connections where their feature is off: a backend has none.

use std::convert::Infallible;
use std::marker::PhantomData;

use plimsoll_core::Timestamp;

/// The HTTP/2 connections to one backend: none.
pub(super) struct Http2<B>(PhantomData<fn(B)>);

impl<B> Default for Http2<B> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<B> Http2<B> {
    pub(super) fn len(&self) -> usize {
        0
    }

    pub(super) fn give_back(&mut self, _: usize, _: u64, _: Option<(Timestamp, u32)>, _: Timestamp) {}

    pub(super) fn close_idle(&mut self, _: Timestamp) {}

    pub(super) fn wait_for_opening(&mut self, _: Option<Infallible>) -> bool {
        false
    }

    pub(super) fn retire(&mut self) {}

    pub(super) fn renew(&mut self, _: u64) {}
}

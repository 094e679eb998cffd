//! The classes of errors in place of which a route may give another answer.

pub(crate) use plimsoll_core::rejection::Trouble;

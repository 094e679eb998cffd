//! Parts that tests of several files share.

pub(in crate::top) mod examples;

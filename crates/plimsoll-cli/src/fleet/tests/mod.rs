//! Parts that tests of several files share.

pub(crate) mod examples;

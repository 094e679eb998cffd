//! Several proxies as one fleet: their states as they change, their sums, and one state of all.

pub(crate) mod follow;
pub(crate) mod merge;
pub(crate) mod past;
pub(crate) mod sums;

#[cfg(test)]
pub(crate) mod tests;

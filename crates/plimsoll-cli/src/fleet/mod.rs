//! Several proxies as one fleet: their states as they change, and their sums.

pub(crate) mod follow;
pub(crate) mod sums;

#[cfg(test)]
pub(crate) mod tests;

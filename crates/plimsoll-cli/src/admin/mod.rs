//! Clients of an admin API: requests, streams of events, and what can go wrong on the way.

pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod fetch;
pub(crate) mod path;

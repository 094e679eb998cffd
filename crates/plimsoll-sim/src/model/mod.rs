//! The world around the machines: what arrives, what it costs, who serves it and what lies between.
//!
//! Nothing here decides anything: whom a client sends to, when a backend counts as ill and who belongs to a subset is
//! asked of `plimsoll-core`.

pub(crate) mod antagonist;
pub(crate) mod arena;
pub(crate) mod arrival;
pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod cost;
pub(crate) mod network;
pub(crate) mod processor;
pub(crate) mod request;
pub(crate) mod retries;
pub(crate) mod skew;

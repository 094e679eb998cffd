//! The world around the machines: arrivals, costs, clients, networks and backends.
//!
//! Nothing here decides. `plimsoll-core` chooses the backend of a request and the members of a
//! subset, and it judges health.

pub(crate) mod antagonist;
pub(crate) mod arena;
pub(crate) mod arrival;
pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod cost;
pub(crate) mod gated;
pub(crate) mod keys;
pub(crate) mod network;
pub(crate) mod processor;
pub(crate) mod request;
pub(crate) mod retries;
pub(crate) mod skew;

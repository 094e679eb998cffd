//! The client's end of probes: its keys, and the sockets that carry queries, answers and notices.
//!
//! The core decides ([`plimsoll_core::probe`]); this module carries datagrams.

mod handed;
mod keys;
mod sockets;

pub(crate) use handed::HandedKeys;
pub(crate) use keys::KeysInUse;
pub use keys::ProbeKeys;
pub(crate) use sockets::{Incoming, QuerySockets};

//! Probes by UDP: a client learns the state and the load of a backend without a connection.
//!
//! - [`Responder`] answers queries about a server, on a thread of its own, and tells clients when
//!   the server becomes a lame duck.
//! - [`Subject`]: the server that it speaks for.
//! - [`ProbeKeys`]: the keys of a client that probes its backends.
//! - [`read_keys`] reads the keys that sign datagrams; [`hand_out_keys`] makes some for clients that
//!   have none.
//!
//! The state machines are in [`plimsoll_core::probe`], the datagrams in [`plimsoll_wire::probe`].

mod client;
mod keys;
mod random;
mod responder;
mod socket;

pub use client::ProbeKeys;
pub(crate) use client::{HandedKeys, Incoming, KeysInUse, QuerySockets};
pub use keys::{InvalidKeys, hand_out_keys, read_keys};
pub use plimsoll_core::probe::{QueryLimits, ResponderCounts, ServerState};
pub use plimsoll_wire::probe::Keyring;
pub(crate) use random::random;
pub use responder::{Responder, ResponderSettings, ResponderView, Subject, Waker};

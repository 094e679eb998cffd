//! Load balancing and overload protection for Rust services, on hyper, tower and tonic.
//!
//! - [`client`]: spreads requests over the backends of a cluster. It is a `tower` service over
//!   hyper's connections, and the transport of a tonic client.
//! - [`discover`]: where the list of backends comes from.
//! - [`server`]: what a backend does for its clients: it reports its load, and says in time when it
//!   is about to go away.
//! - [`system`]: what the system lets a process use, and what it uses.
//! - [`tls`]: certificates, and how backends are spoken to in TLS.
//!
//! The decisions themselves are made by the state machines of `plimsoll-core`; this crate gives them
//! sockets, a clock and threads.

pub mod client;
mod clock;
pub mod discover;
pub mod server;
pub mod stream;
pub mod system;
pub mod tls;

/// The state machines, whose configuration and values appear in this crate's interface.
pub use plimsoll_core as core;

/// What stands on the wire beside the payload: answers without service, load reports, codes of gRPC.
pub use plimsoll_wire as wire;

/// Runs the Rust code of the README and the guides as tests of the documentation.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/customers.md")]
    mod customers {}
    #[doc = include_str!("../../../docs/overload.md")]
    mod overload {}
    #[doc = include_str!("../../../docs/policies.md")]
    mod policies {}
}

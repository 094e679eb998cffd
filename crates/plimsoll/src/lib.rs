//! Load balancing and overload protection for Rust services, on hyper, tower and tonic.
//!
//! - [`server`]: a tower layer for backends. It sheds the least important requests under overload,
//!   reports the load to clients, and ends without failing a request.
//! - [`client`]: spreads requests over the backends of a cluster. It is a `tower` service over
//!   hyper's connections, and the transport of a tonic client.
//! - [`discover`]: sources of the list of backends.
//! - [`probe`]: probes by UDP.
//! - [`tls`]: certificates, and TLS to backends.
//!
//! The state machines of `plimsoll-core` make all decisions. This crate gives them sockets, a clock
//! and threads.

pub mod address;
pub mod client;
mod clock;
pub mod discover;
pub mod probe;
pub mod server;
pub mod tls;

/// The state machines. Their configuration and values appear in this crate's interface.
pub use plimsoll_core as core;

/// Wire formats beside the payload: answers without service, load reports, gRPC codes.
pub use plimsoll_wire as wire;

/// Runs the Rust code of the README and the guides as tests of the documentation.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/customers.md")]
    mod customers {}
    #[doc = include_str!("../../../docs/machine-speed.md")]
    mod machine_speed {}
    #[doc = include_str!("../../../docs/overload.md")]
    mod overload {}
    #[doc = include_str!("../../../docs/policies.md")]
    mod policies {}
    #[doc = include_str!("../../../docs/probes.md")]
    mod probes {}
}

#[cfg(not(target_os = "linux"))]
compile_error!(
    "plimsoll needs Linux; help: use plimsoll-core or plimsoll-tower, or one of the other portable crates (docs/crates.md)"
);

//! One fleet on many machines: the registry of backends, the indices of clients and the assignments of
//! subsets, in etcd.
//!
//! - [`Registration`] puts a backend into the registry, [`Registry`] is the source of those backends.
//!
//! Nothing here is on the way of a request. When etcd is lost, the last word stays: backends, indices
//! and assignments freeze, and traffic goes on. When it is back, removals are believed after two lease
//! times, since the leases of healthy processes may have expired meanwhile.
//!
//! The decisions are those of `plimsoll_core::fleet`; here are the keys, the transactions and the tasks.
#![forbid(unsafe_code)]

mod clock;
mod layout;
mod record;
mod registration;
mod registry;

pub use layout::{InvalidName, MAX_NAME, Name};
pub use record::RecordError;
pub use registration::Registration;
pub use registry::Registry;

use std::time::Duration;

/// The lease of each process of the fleet: how long a backend stays in the registry that ended without
/// a word. Its clients notice earlier, by refused connections or probes.
pub const LEASE: Duration = Duration::from_secs(10);

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

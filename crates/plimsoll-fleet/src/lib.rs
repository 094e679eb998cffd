//! One fleet on many machines: the registry of backends, the indices of clients and the assignments of
//! subsets, in etcd.
//!
//! - [`Registration`] puts a backend into the registry, [`Registry`] is the source of those backends.
//! - [`Member`] is a client in its group. Its subset comes from an [`Index`] or a [`Ledger`].
//!
//! Nothing here is on the way of a request. When etcd is lost, the last word stays: backends, indices
//! and assignments freeze, and traffic goes on. When it is back, removals are believed after two lease
//! times, since the leases of healthy processes may have expired meanwhile.
//!
//! The decisions are those of `plimsoll_core::fleet`; here are the keys, the transactions and the tasks.
#![forbid(unsafe_code)]

mod clock;
mod held_number;
mod index;
mod kept;
mod layout;
mod lease;
mod ledger;
mod member;
mod record;
mod refusals;
mod registration;
mod registry;

pub use held_number::HeldNumber;
pub use index::Index;
pub use layout::{InvalidName, MAX_NAME, Name};
pub use lease::LEASE;
pub use ledger::{Ledger, LedgerConfig};
pub use member::Member;
pub use record::{MAX_LABEL, RecordError};
pub use registration::Registration;
pub use registry::Registry;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

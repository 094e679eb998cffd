//! Sources of the backends of a cluster: each is a [`Discover`](plimsoll::discover::Discover) for
//! [`Cluster::follow_with`](plimsoll::client::Cluster::follow_with).
//!
//! A source translates: from the words of a file or a server into a whole list of endpoints, or into
//! an error that names the place. The decision on the members is that of [`plimsoll_core::discover`].
#![forbid(unsafe_code)]

pub mod dns;
pub mod eds;
pub mod file;
pub mod kubernetes;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

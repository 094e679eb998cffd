//! Sources of the backends of a cluster: each is a [`Discover`](plimsoll::discover::Discover) for
//! [`Cluster::follow_with`](plimsoll::client::Cluster::follow_with).
//!
//! [`Sources`] adds them to the builder of a cluster: `Cluster::builder("search").dns("search:8080")`.
//!
//! A source translates: from the words of a file or a server into a whole list of endpoints, or into
//! an error that names the place. The decision on the members is that of [`plimsoll_core::discover`].
#![forbid(unsafe_code)]

mod builder;
pub mod dns;
pub mod eds;
pub mod file;
pub mod kubernetes;

pub use builder::Sources;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

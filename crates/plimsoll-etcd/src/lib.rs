//! A thin client of etcd (3.4 and later): the parts that a fleet of Plimsoll needs.
//!
//! - [`Client`]: reads and transactions. Endpoints in turn, TLS, users.
//! - [`Session`]: a lease that is kept alive, and another one after it expired.
//! - [`Mirror`]: the records of a prefix as they change. It goes on after broken streams, and lists
//!   again after a gap.
//!
//! A lost etcd is an error of requests and nothing else: sessions and mirrors go on by themselves
//! until it is back, and [`Client::reach`] tells.
//!
//! Written for this project because the crate `etcd-client` needs `protoc` at build time, and its
//! watches neither connect again nor list again after a gap (decision 73).
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod config;
mod connection;
mod endpoints;
mod error;
mod failure;
mod message;
mod mirror;
mod reach;
mod rng;
mod session;
pub mod settings;
mod stream;
mod token;
mod txn;

pub use backoff::Backoff;
pub use client::{Client, Listing, Record};
pub use config::{Credentials, DEFAULT_PREFIX, EtcdConfig, InvalidConfig};
pub use error::EtcdError;
pub use mirror::{Event, Mirror, Update};
pub use reach::Reach;
pub use rng::rng;
pub use session::{Lease, Session};
pub use settings::read_password;
pub use txn::{Condition, Txn, TxnResult};

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

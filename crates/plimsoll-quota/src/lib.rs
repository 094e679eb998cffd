//! Quotas over a fleet: one limit of a customer for all tasks of a service.
//!
//! ```text
//! service.rs   one service: its owner, its limits, its tasks     no clock, no socket
//! server.rs    streams of tasks, timers                          client.rs   the stream of a task
//! ownership.rs the owner of each service                        locate.rs   tasks ask for it
//! caller.rs    rights of callers, by certificate
//! fleet/       servers that share services by etcd, and settings in it
//! envoy/       Envoy as a task
//! api.rs       state, changes of limits, metrics                 config.rs   the file
//! live/        the live page's data
//! ```
//!
//! The decisions are those of [`plimsoll_core::quota`]. A service takes part with a [`Client`] beside its
//! [`ServerLayer`](plimsoll::server::ServerLayer).
#![forbid(unsafe_code)]

mod api;
mod caller;
mod changes;
mod client;
pub mod config;
mod convert;
mod dictionary;
mod envoy;
pub mod fleet;
mod hosted;
mod limits;
mod live;
mod locate;
mod message;
mod metrics;
mod name;
mod ownership;
mod random;
mod server;
mod service;
mod services;
mod status;
mod tls;

pub use client::{Client, InvalidClient};
pub use server::{Listening, Server};

/// Runs the Rust code of the guide as a test of the documentation.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../docs/quotas.md")]
    mod quotas {}
}

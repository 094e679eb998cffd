//! Quotas over a fleet: one limit of a customer for all tasks of a service.
//!
//! ```text
//! service.rs   one service: its owner, its limits, its tasks     no clock, no socket
//! server.rs    streams of tasks, timers                          client.rs   the stream of a task
//! caller.rs    rights of callers, by certificate
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
mod hosted;
mod limits;
mod live;
mod message;
mod metrics;
mod name;
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

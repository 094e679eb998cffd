//! The frames of an HTTP/2 connection as bytes: when a client asks for too much, without I/O.
//!
//! ```text
//! bytes of the client ──▶ Guard::on_read ──▶ Passed, or Breach: the connection ends
//! bytes of the server ──▶ Guard::on_written
//! ```
//!
//! It speaks no HTTP/2: h2 does, on the same bytes. The [`Guard`] sees frames that h2 does not
//! limit (resets, control frames, responses that stand still) and header blocks that h2 reads
//! differently. The time is an argument.

#![forbid(unsafe_code)]

mod budget;
pub mod frames;
mod guard;
mod header_blocks;
mod interim;
mod streams;

pub use guard::{Abuse, Allowance, Breach, Guard, Passed};

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

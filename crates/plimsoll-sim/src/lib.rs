//! The simulator: the machines that the proxy and the library ship, in virtual time.
//!
//! This crate is the world around the machines: clients that send, a network that delays and loses,
//! backends that compute, and the measurements. Decisions (the backend, its health, the subset) are
//! those of `plimsoll-core`, the code that serves real traffic. So a plan made here holds there.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod findings;
mod kernel;
mod model;
pub mod reference;
pub mod report;
pub mod run;
pub mod scenario;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! The simulator: the machines that the proxy and the library ship, in virtual time.
//!
//! What is here is the world around the machines: clients that send, a network that delays and loses, backends
//! that compute, and the measurement of what comes out. What is decided (which backend, who is healthy, which
//! subset) is decided by `plimsoll-core`, the same code that serves real traffic; so a plan that was made here
//! holds there.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod findings;
mod kernel;
mod model;
pub mod reference;
pub mod report;
pub mod run;
pub mod scenario;

//! Algorithms that no library or proxy offers: references for the shipped ones, and proposals under
//! test.
//!
//! - `admission_control`: Envoy's client throttle, beside the core's.
//! - [`aperture`]: Finagle's subsets with fractions of backends, beside the core's subsets.
//! - [`procrustean`]: sheds a share of all requests alike, beside the core's gate.
//! - [`schedule`]: the criticality of a request falls as its user waits.
//!
//! Every other decision of the simulator is the core's. The table in
//! `plimsoll-testkit/tests/imports.rs` lists the files that use this folder.

pub(crate) mod admission_control;
pub mod aperture;
pub mod procrustean;
pub mod schedule;

//! The formats that Plimsoll reads and writes on the wire, beside the payload.
//!
//! Each module is one format, named after the public specification that it follows. Where no public
//! specification exists (the marker of shed answers, the lame-duck flag in load reports) the module
//! says so. Input from a peer is not trusted: no input panics, and a malformed value is an error as
//! data. The request that carried it goes on.
//!
//! - [`orca`]: load reports, in all four forms in use; `orca_service`: the stream of them.
//! - [`shed`]: the table of answers without service.
//! - [`grpc`]: status codes, framing, and the recognition of gRPC requests.
//! - `health`: the messages of `grpc.health.v1`.
//! - [`proxy_protocol`]: the client's address, passed on by a proxy for connections.
//! - `probe`: the datagrams of probes by UDP.
//! - [`metadata`]: the criticality, deadline and attempt of a request.
//! - [`trace_context`]: the trace of a request; `otlp`: spans for a collector.
//! - [`hop`]: the removal of hop-by-hop fields.
//! - [`headers`]: the names of the headers.
//!
//! Features, all on by default: `grpc` (`health`, `orca_service`), `json` (load reports as JSON),
//! `otlp`, and `probe`. Without `probe` no C compiler is needed.

pub mod grpc;
pub mod headers;
#[cfg(feature = "grpc")]
pub mod health;
pub mod hop;
pub mod metadata;
pub mod orca;
#[cfg(feature = "grpc")]
pub mod orca_service;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "probe")]
pub mod probe;
pub mod proxy_protocol;
pub mod shed;
pub mod trace_context;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! What Plimsoll reads from and writes to the wire beside the payload itself.
//!
//! Each module is one format, named after the public specification that it follows; where nothing
//! public exists (a marker for answers without service, a lame-duck flag in load reports) the module
//! says so. Everything that comes from a peer is parsed without trust: no input panics, a malformed
//! value is an error as data, and the request that it came with goes on.
//!
//! - [`orca`]: load reports, in all four forms that are in use; [`orca_service`]: the stream of them.
//! - [`shed`]: the one table of answers without service.
//! - [`grpc`]: status codes, framing, and what makes a request a gRPC request.
//! - [`mod@health`]: the messages of `grpc.health.v1`.
//! - [`proxy_protocol`]: whose connection a proxy passes on.
//! - [`metadata`]: what a request says of itself: criticality, deadline, attempt.
//! - [`hop`]: what of a message concerns one connection only.
//! - [`headers`]: the names of the headers.

pub mod grpc;
pub mod headers;
pub mod health;
pub mod hop;
pub mod metadata;
pub mod orca;
pub mod orca_service;
pub mod proxy_protocol;
pub mod shed;

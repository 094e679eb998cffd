//! Names of the headers and gRPC metadata keys that this crate reads or writes.

use http::HeaderName;

/// A load report: base64 of the `OrcaLoadReport` message. HTTP response header and gRPC trailer.
pub const ENDPOINT_LOAD_METRICS_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// A load report in words: `TEXT k=v,…`, `JSON {…}` or `BIN base64`.
pub const ENDPOINT_LOAD_METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// Marks an answer that was given without service, and says why: see [`crate::shed`].
pub const X_PLIMSOLL_SHED: HeaderName = HeaderName::from_static("x-plimsoll-shed");

/// Marks an answer that was given in place of an error, and says what it is and why: `stale; reason=overloaded`.
pub const X_PLIMSOLL_DEGRADED: HeaderName = HeaderName::from_static("x-plimsoll-degraded");

/// The code of a finished RPC, in decimal: see [`crate::grpc::Code`].
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The message of a finished RPC, percent-encoded: see [`crate::grpc::encode_message`].
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// When to retry, in milliseconds; negative or junk means never (gRFC A6).
pub const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Envoy's mark on answers of its rate limiter.
pub const X_ENVOY_RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// Envoy's mark on answers that it dropped because of overload.
pub const X_ENVOY_OVERLOADED: HeaderName = HeaderName::from_static("x-envoy-overloaded");

/// How critical a request is: a name of [`plimsoll_core::Criticality`].
pub const X_CRITICALITY: HeaderName = HeaderName::from_static("x-criticality");

/// Properties that go along with a request through all services (W3C); the member `criticality` is read.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// How long the sender of a request waits for its answer, in milliseconds: what Envoy and meshes made of it emit.
pub const X_ENVOY_EXPECTED_RQ_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// The same for an RPC, with a unit.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Which attempt a request is, from 1.
pub const X_ENVOY_ATTEMPT_COUNT: HeaderName = HeaderName::from_static("x-envoy-attempt-count");

/// How many attempts of an RPC were made before (gRFC A6).
pub const GRPC_PREVIOUS_RPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

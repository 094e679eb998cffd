//! Names of the headers and gRPC metadata keys that this crate reads or writes.

use http::HeaderName;

/// A load report: base64 of the `OrcaLoadReport` message. HTTP response header and gRPC trailer.
pub const ENDPOINT_LOAD_METRICS_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// A load report as text: `TEXT k=v,…`, `JSON {…}` or `BIN base64`.
pub const ENDPOINT_LOAD_METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// Requests a load report with the response: `text` or `json`. vLLM and Triton send none without it.
/// A proxy never forwards it: reports are for the proxy.
pub const ENDPOINT_LOAD_METRICS_FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");

/// Marks an answer that was given without service, and says why: see [`crate::shed`].
pub const X_PLIMSOLL_SHED: HeaderName = HeaderName::from_static("x-plimsoll-shed");

/// CPU cost of the request in reference CPU-microseconds, as far as it is known with the response head.
pub const X_PLIMSOLL_COST_US: HeaderName = HeaderName::from_static("x-plimsoll-cost-us");

/// Marks a degraded answer in place of an error, with its kind and reason: `stale;
/// reason=overloaded`.
pub const X_PLIMSOLL_DEGRADED: HeaderName = HeaderName::from_static("x-plimsoll-degraded");

/// Requests the key of a client's probes in a health check, and hands it out in the answer: see
/// [`crate::probe::Seed`]. A proxy never forwards it.
pub const X_PLIMSOLL_PROBE_KEY: HeaderName = HeaderName::from_static("x-plimsoll-probe-key");

/// The code of a finished RPC, in decimal: see [`crate::grpc::Code`].
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The message of a finished RPC, percent-encoded: see [`crate::grpc::encode_message`].
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The wait before a retry, in milliseconds. A negative or malformed value means never (gRFC A6).
pub const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The wait before a retry, in milliseconds, as services of AWS and their clients have it.
pub const X_AMZ_RETRY_AFTER: HeaderName = HeaderName::from_static("x-amz-retry-after");

/// Envoy's mark on answers of its rate limiter.
pub const X_ENVOY_RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// Envoy's mark on answers that it dropped because of overload.
pub const X_ENVOY_OVERLOADED: HeaderName = HeaderName::from_static("x-envoy-overloaded");

/// The criticality of a request: a name of [`plimsoll_core::Criticality`].
pub const X_CRITICALITY: HeaderName = HeaderName::from_static("x-criticality");

/// Properties that travel with a request through all services (W3C). The member `criticality` is
/// read.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The trace of a request, and the span that caused it (W3C): see [`crate::trace_context`].
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Facts of tracing systems about a request's trace (W3C).
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The time left until the deadline, in milliseconds, as Envoy and meshes on it send it.
pub const X_ENVOY_EXPECTED_RQ_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// The same for an RPC, with a unit.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The number of the attempt, from 1.
pub const X_ENVOY_ATTEMPT_COUNT: HeaderName = HeaderName::from_static("x-envoy-attempt-count");

/// The number of earlier attempts of an RPC (gRFC A6).
pub const GRPC_PREVIOUS_RPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

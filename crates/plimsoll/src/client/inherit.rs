//! The metadata that a request inherits from the request that it serves.
//!
//! The edge knows the importance of a request, so it goes along with each request made for the
//! first one. Otherwise the services below shed the requests that the ones above need most (SRE ch.
//! 21, "Criticality"). The same holds for the customer, the time left and the number of attempts.
//! It holds for the cohort too: otherwise services shed different tasks, until none is whole. The
//! trace goes along as it came, unless the service continues it with spans of its own. The request's
//! own metadata stands.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use plimsoll_wire::headers::{
    GRPC_PREVIOUS_RPC_ATTEMPTS, GRPC_TIMEOUT, TRACEPARENT, TRACESTATE, X_CRITICALITY, X_ENVOY_ATTEMPT_COUNT,
    X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
};
use plimsoll_wire::{grpc, metadata};
use tokio::time::Instant;

#[cfg(feature = "server")]
use crate::server;

/// Without the server side, no request is served.
#[cfg(not(feature = "server"))]
pub(super) fn inherit(_: &mut HeaderMap) -> Option<Duration> {
    None
}

/// Writes the inherited metadata into the headers of a request. Returns its remaining time.
#[cfg(feature = "server")]
pub(super) fn inherit(headers: &mut HeaderMap) -> Option<Duration> {
    let parent = server::current()?;
    if !headers.contains_key(X_CRITICALITY) {
        headers.insert(X_CRITICALITY, HeaderValue::from_static(parent.criticality.name()));
    }
    if let Some(customer) = &parent.customer
        && let Some(header) = &customer.header
        && !headers.contains_key(header)
    {
        headers.insert(header.clone(), customer.header_value().clone());
    }
    if let Some(cohort) = &parent.cohort
        && let Some(header) = &cohort.header
        && !headers.contains_key(header)
    {
        headers.insert(header.clone(), cohort.header_value().clone());
    }
    if let Some(trace) = parent.trace
        && !headers.contains_key(TRACEPARENT)
    {
        headers.insert(TRACEPARENT, trace.parent.clone());
        // The state of another trace would be of no use.
        match &trace.state {
            Some(state) => headers.insert(TRACESTATE, state.clone()),
            None => headers.remove(TRACESTATE),
        };
    }
    let says = |name| headers.contains_key(name);
    if parent.attempt > 1 && !says(GRPC_PREVIOUS_RPC_ATTEMPTS) && !says(X_ENVOY_ATTEMPT_COUNT) {
        // Work for a retried request is itself repeated work.
        match grpc::is_grpc(headers) {
            true => headers.insert(GRPC_PREVIOUS_RPC_ATTEMPTS, HeaderValue::from(parent.attempt - 1)),
            false => headers.insert(X_ENVOY_ATTEMPT_COUNT, HeaderValue::from(parent.attempt)),
        };
    }
    let left = parent.deadline?.saturating_duration_since(Instant::now());
    if !headers.contains_key(GRPC_TIMEOUT) && !headers.contains_key(X_ENVOY_EXPECTED_RQ_TIMEOUT_MS) {
        if grpc::is_grpc(headers) {
            headers.insert(GRPC_TIMEOUT, metadata::to_grpc_timeout(left));
        } else {
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            headers.insert(X_ENVOY_EXPECTED_RQ_TIMEOUT_MS, HeaderValue::from(millis));
        }
    }
    Some(left)
}

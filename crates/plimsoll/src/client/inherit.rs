//! What a request made while serving another has from that one.
//!
//! Importance is known at the edge, where the user is; so it has to go along with each request that is made for the first one, or the
//! services below shed what the ones above could least do without (SRE ch. 21, "Criticality"). The same holds for the customer,
//! the time that is left, and how often it was tried; and for the cohort, or those below turn away other tasks than the ones above, until
//! none is whole. What the request says itself stands.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use plimsoll_wire::headers::{
    GRPC_PREVIOUS_RPC_ATTEMPTS, GRPC_TIMEOUT, X_CRITICALITY, X_ENVOY_ATTEMPT_COUNT, X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
};
use plimsoll_wire::{grpc, metadata};
use tokio::time::Instant;

use crate::server;

/// Writes what is inherited into the headers of a request. Returns the time that is left for it.
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
    let says = |name| headers.contains_key(name);
    if parent.attempt > 1 && !says(GRPC_PREVIOUS_RPC_ATTEMPTS) && !says(X_ENVOY_ATTEMPT_COUNT) {
        // What is done for a request that is tried again is done again.
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

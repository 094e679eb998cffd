//! The options of one request, where they differ from the configured ones.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Criticality;
use plimsoll_core::pick::HashKey;
use plimsoll_core::slots::Holder;
use plimsoll_wire::metadata::Metadata;

use super::batch::Batch;
use super::config::RequestConfig;
use super::informational::Informational;
use super::trace::Tracer;

/// The options of one request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RequestOptions {
    /// Time to the head of the response; `None` for the configured one.
    pub timeout: Option<Duration>,
    /// Longest time without a byte of the response's body while the reader waits for one;
    /// [`Duration::MAX`] for no limit, `None` for the configured one.
    pub body_idle_timeout: Option<Duration>,
    /// Receives the interim responses of HTTP/1.1 backends; `None` for nobody.
    pub informational: Option<Informational>,
    /// The criticality, which replaces the claims in the headers; `None` keeps those.
    pub criticality: Option<Criticality>,
    /// The request's metadata, for a caller that has read the headers already or does not trust
    /// them; `None` reads the headers. The headers go to the backend unchanged.
    pub metadata: Option<Metadata>,
    /// The gate that it goes through as batch work; `None`: that of the cluster, if it has one.
    pub batch: Option<Batch>,
    /// The client that it is sent for: no client takes all slots from others. Requests that name
    /// none count as those of one client.
    pub client: Holder,
    /// The key by which the policy `hash` picks the backend; `None`: a least loaded one.
    pub key: Option<HashKey>,
    /// Receives the spans of its attempts; `None` for subscribers of `tracing`.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// Marks a request as idempotent, in its extensions.
///
/// Such a request may be retried after a backend may have seen it, with any method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idempotent;

impl RequestOptions {
    /// Sets the time to the response head.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the longest pause of the response body; [`Duration::MAX`] for no limit, as for a stream
    /// with rare messages.
    #[must_use]
    pub fn with_body_idle_timeout(mut self, timeout: Duration) -> Self {
        self.body_idle_timeout = Some(timeout);
        self
    }

    /// Sets the criticality, and replaces the claims in the headers by it.
    #[must_use]
    pub fn with_criticality(mut self, criticality: Criticality) -> Self {
        self.criticality = Some(criticality);
        self
    }

    /// Sends the request as batch work through this gate.
    ///
    /// It waits for credit. The throttle and the retry budget do not apply, and a shed request is
    /// queued again. Its timeout counts anew for each attempt, and not while it waits.
    #[must_use]
    pub fn with_batch(mut self, batch: Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Sends the request for this client. A client leaves some slots to others.
    #[must_use]
    pub fn on_behalf_of(mut self, client: Holder) -> Self {
        self.client = client;
        self
    }

    /// Sends the request to the backend of this key, in a cluster with the policy `hash`.
    ///
    /// ```
    /// use plimsoll::client::{HashKey, RequestOptions};
    ///
    /// let options = RequestOptions::default().with_key(HashKey::of(b"user 17"));
    /// # assert!(options.key.is_some());
    /// ```
    #[must_use]
    pub fn with_key(mut self, key: HashKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Passes interim responses to `informational`.
    #[must_use]
    pub fn with_informational(mut self, informational: Informational) -> Self {
        self.informational = Some(informational);
        self
    }

    /// Has `tracer` receive the spans of the attempts.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// These options, completed by the configuration. By value, because the future of every request
    /// would hold a borrowed part.
    pub(super) fn over(&self, configured: RequestConfig) -> RequestConfig {
        RequestConfig {
            request_timeout: self.timeout.unwrap_or(configured.request_timeout),
            body_idle_timeout: self.body_idle_timeout.unwrap_or(configured.body_idle_timeout),
            ..configured
        }
    }
}

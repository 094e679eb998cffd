//! Traces: the ids of a request's trace, and whether its spans are recorded.
//!
//! A trace is all work for one request of a user, over all services. Each piece of it is a span,
//! and each request names its trace and the span that caused it (W3C Trace Context). [`Sampler`]
//! decides which requests a proxy records, [`RateLimit`] bounds their number.

mod context;
mod limit;
mod sample;

pub use context::{Flags, SpanId, TraceContext, TraceId};
pub use limit::{RateLimit, RateLimits};
pub use sample::{Decision, Recording, Sampler, Sender};

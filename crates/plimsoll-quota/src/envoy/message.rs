//! The messages of Envoy's `envoy.service.rate_limit_quota.v3`, as protocol buffers. Fields without use here
//! are left out.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// The key of the customer, in a bucket and in a descriptor.
pub(super) const CUSTOMER: &str = "customer";
/// The longest name of a customer.
pub(super) const MAX_NAME: usize = 256;

/// The method of the rate limit quota service.
pub(crate) const STREAM_QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub(crate) struct BucketId {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) bucket: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UsageReports {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) usages: Vec<BucketUsage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketUsage {
    #[prost(message, optional, tag = "1")]
    pub(crate) bucket_id: Option<BucketId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) time_elapsed: Option<Duration>,
    #[prost(uint64, tag = "3")]
    pub(crate) allowed: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) denied: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QuotaResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) actions: Vec<BucketAction>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketAction {
    #[prost(message, optional, tag = "1")]
    pub(crate) bucket_id: Option<BucketId>,
    #[prost(oneof = "Action", tags = "2, 3")]
    pub(crate) action: Option<Action>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Action {
    #[prost(message, tag = "2")]
    Assign(Assign),
    #[prost(message, tag = "3")]
    Abandon(Abandon),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Abandon {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Assign {
    #[prost(message, optional, tag = "2")]
    pub(crate) time_to_live: Option<Duration>,
    #[prost(message, optional, tag = "3")]
    pub(crate) strategy: Option<Strategy>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Strategy {
    #[prost(oneof = "Kind", tags = "1, 3")]
    pub(crate) kind: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(crate) enum Kind {
    /// 0: allow all, 1: deny all.
    #[prost(int32, tag = "1")]
    Blanket(i32),
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

impl Kind {
    pub(crate) const ALLOW_ALL: Self = Self::Blanket(0);
    pub(crate) const DENY_ALL: Self = Self::Blanket(1);
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct TokenBucket {
    #[prost(uint32, tag = "1")]
    pub(crate) max_tokens: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) tokens_per_fill: Option<UInt32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) fill_interval: Option<Duration>,
}

/// `google.protobuf.UInt32Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct UInt32 {
    #[prost(uint32, tag = "1")]
    pub(crate) value: u32,
}

/// The method of the rate limit service.
pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<RateLimit>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<UInt64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A limit in hits a unit: 1 second, 2 minute, 3 hour, 4 day, 5 month, 6 year.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(crate) hits_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
}

/// `google.protobuf.UInt64Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct UInt64 {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    /// 1: OK, 2: over the limit.
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Duration>,
}

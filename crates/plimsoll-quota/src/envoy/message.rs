//! The messages of Envoy's `envoy.service.rate_limit_quota.v3`, as protocol buffers. Fields without use here
//! are left out.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

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

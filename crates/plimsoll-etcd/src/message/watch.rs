//! Watches.

use prost::{Message, Oneof};

use super::{KeyValue, ResponseHeader};

pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// [`WatchEvent::kind`]: the key was deleted, or its lease expired.
pub(crate) const EVENT_DELETE: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchRequestKind", tags = "1, 3")]
    pub(crate) kind: Option<WatchRequestKind>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum WatchRequestKind {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not 0: the revision asked for was compacted, this is the oldest.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<WatchEvent>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchEvent {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    /// Of a deletion the key and the revision alone.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

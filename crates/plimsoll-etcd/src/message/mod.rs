//! The messages of etcd's API, version 3, as protocol buffers: the fields that this client uses.
//!
//! Source: `rpc.proto`, `kv.proto` of etcd 3.4; 3.5 adds to them only.

mod auth;
mod kv;
mod lease;
mod watch;

use prost::Message;

pub(crate) use self::auth::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse};
pub(crate) use self::kv::{
    Compare, CompareTarget, DeleteRangeRequest, EQUAL, KeyValue, PutRequest, RANGE, RangeRequest, RangeResponse,
    RequestOp, RequestOpKind, TARGET_CREATE, TARGET_LEASE, TARGET_MOD, TARGET_VALUE, TXN, TxnRequest, TxnResponse,
};
pub(crate) use self::lease::{
    LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse,
};
pub(crate) use self::watch::{
    EVENT_DELETE, WATCH, WatchCreateRequest, WatchEvent, WatchProgressRequest, WatchRequest, WatchRequestKind,
    WatchResponse,
};

/// The head of each response.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// The revision of the store at the response.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

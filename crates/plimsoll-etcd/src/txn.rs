//! A transaction: changes that are made together, and only if all conditions hold.

use crate::message::{
    Compare, CompareTarget, DeleteRangeRequest, EQUAL, PutRequest, RequestOp, RequestOpKind, TARGET_CREATE,
    TARGET_LEASE, TARGET_MOD, TARGET_VALUE, TxnRequest,
};

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(Compare);

impl Condition {
    /// There is no such key.
    #[must_use]
    pub fn absent(key: &str) -> Self {
        Self::created(key, 0)
    }

    /// The key came to be at this revision; 0: it is absent.
    #[must_use]
    pub fn created(key: &str, revision: i64) -> Self {
        Self::equal(key, TARGET_CREATE, CompareTarget::CreateRevision(revision))
    }

    /// The key changed last at this revision; 0: it is absent.
    #[must_use]
    pub fn unchanged(key: &str, revision: i64) -> Self {
        Self::equal(key, TARGET_MOD, CompareTarget::ModRevision(revision))
    }

    /// The key has this value.
    #[must_use]
    pub fn value(key: &str, value: impl Into<Vec<u8>>) -> Self {
        Self::equal(key, TARGET_VALUE, CompareTarget::Value(value.into()))
    }

    /// The key ends with this lease.
    #[must_use]
    pub fn lease(key: &str, lease: i64) -> Self {
        Self::equal(key, TARGET_LEASE, CompareTarget::Lease(lease))
    }

    fn equal(key: &str, target: i32, with: CompareTarget) -> Self {
        Self(Compare { result: EQUAL, target, key: key.into(), with: Some(with) })
    }
}

/// Changes, and their conditions. A key may be in one change only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Txn {
    conditions: Vec<Compare>,
    changes: Vec<RequestOp>,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnResult {
    /// The conditions held, and the changes were made.
    pub is_done: bool,
    /// The revision of the store; that of the changes if they were made.
    pub revision: i64,
}

impl Txn {
    /// The most changes in one transaction: the limit of etcd (`--max-txn-ops`).
    pub const MAX_CHANGES: usize = 128;

    /// A transaction without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if this holds, too.
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(condition.0);
        self
    }

    /// Sets the value of a key, and the lease that the key ends with.
    pub fn put(self, key: &str, value: impl Into<Vec<u8>>, lease: Option<i64>) -> Self {
        let put = PutRequest { key: key.into(), value: value.into(), lease: lease.unwrap_or(0) };
        self.change(RequestOpKind::Put(put))
    }

    /// Deletes a key. An absent one is no error.
    pub fn delete(self, key: &str) -> Self {
        self.change(RequestOpKind::DeleteRange(DeleteRangeRequest { key: key.into() }))
    }

    /// The number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn change(mut self, kind: RequestOpKind) -> Self {
        self.changes.push(RequestOp { kind: Some(kind) });
        self
    }

    pub(crate) fn into_request(self) -> TxnRequest {
        TxnRequest { compare: self.conditions, success: self.changes }
    }
}

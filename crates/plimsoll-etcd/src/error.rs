//! The errors of a request to etcd.

use thiserror::Error;

/// The reason why a request to etcd failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No endpoint answered. A transaction may have been done all the same.
    #[error("etcd unreachable: {0}")]
    Unreachable(String),
    /// etcd refused the request.
    #[error("etcd refused the request: {0}")]
    Refused(String),
    /// The revision asked for, or one to watch from, exists no more.
    #[error("etcd compacted the revision")]
    Compacted,
    /// The lease that the request names has ended.
    #[error("the lease has ended")]
    LeaseNotFound,
    /// An answer was larger than a client accepts.
    #[error("an answer of etcd is larger than 32 MiB")]
    MessageTooLarge,
    /// A prefix has more records, or larger ones, than a client accepts.
    #[error("{prefix}: more than {limit}")]
    TooLarge {
        /// The prefix.
        prefix: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// The user's name or password, or a file that they come from.
    #[error("{0}")]
    Credentials(String),
}

//! How a request ends without the answer that was asked for.

use tonic::{Code, Status};

use crate::error::EtcdError;

/// The refusal of members without a leader, before anything else is done.
const NO_LEADER: &str = "etcdserver: no leader";

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The token is no longer valid. The request was not done.
    Token,
    /// The endpoint is of no use now.
    Endpoint { error: String, may_be_done: bool },
    /// The answer of etcd.
    Final(EtcdError),
}

impl Failure {
    /// No answer, or the end of a stream.
    pub(crate) fn silent(error: impl Into<String>) -> Self {
        Self::Endpoint { error: error.into(), may_be_done: true }
    }

    /// The same as an error of the client.
    pub(crate) fn into_error(self) -> EtcdError {
        match self {
            Self::Token => EtcdError::Refused("the token is not accepted".to_owned()),
            Self::Endpoint { error, .. } => EtcdError::Unreachable(error),
            Self::Final(error) => error,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let message = status.message();
        match status.code() {
            Code::Unauthenticated => Self::Token,
            // Users or roles changed since the token was made.
            Code::InvalidArgument if message.contains("revision of auth store is old") => Self::Token,
            Code::NotFound if message.contains("lease not found") => Self::Final(EtcdError::LeaseNotFound),
            Code::OutOfRange if message.contains("compacted") => Self::Final(EtcdError::Compacted),
            // The words of tonic: the message was not read.
            Code::OutOfRange if message.contains("message length too large") => Self::Final(EtcdError::MessageTooLarge),
            // No leader, a member that starts or stops, a connection that broke.
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal => {
                let error = if message.is_empty() { plimsoll::tls::chain(&status) } else { message.to_owned() };
                Self::Endpoint { may_be_done: error != NO_LEADER, error }
            }
            _ => Self::Final(EtcdError::Refused(message.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_for_lack_of_a_leader_was_certainly_not_done() {
        for (message, expected) in [("etcdserver: no leader", false), ("etcdserver: request timed out", true)] {
            let Failure::Endpoint { may_be_done, .. } = Status::unavailable(message).into() else {
                panic!("{message}")
            };
            assert_eq!(may_be_done, expected, "{message}");
        }
    }
}

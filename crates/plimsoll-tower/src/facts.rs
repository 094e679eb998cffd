//! Facts about a request that the layers decide by.

use std::time::Duration;

use plimsoll_core::meter::Kind;
use plimsoll_core::pick::HashKey;
use plimsoll_core::retry::Repeat;
use plimsoll_core::{Criticality, Operation};

/// Facts about a request, before it is sent. All layers read the same ones.
///
/// The defaults suit requests of one kind that may not be sent twice:
///
/// ```
/// use plimsoll_tower::plimsoll_core::Criticality;
/// use plimsoll_tower::RequestFacts;
///
/// let facts = RequestFacts::default();
/// assert_eq!(facts.criticality, Criticality::Critical);
/// let batch = facts.with_criticality(Criticality::Sheddable).idempotent();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RequestFacts {
    /// How bad it is to lose the request.
    pub criticality: Criticality,
    /// The endpoint, where the caller tells endpoints apart.
    pub operation: Operation,
    /// Whether it may be sent again after a backend may have seen it.
    pub repeat: Repeat,
    /// The time in which its answer is useful, from now.
    pub timeout: Option<Duration>,
    /// The route and the customer, for costs and fair shares at a gate.
    pub kind: Kind,
    /// The key of consistent hashing.
    pub key: Option<HashKey>,
    /// Whether it was shed or failed before, here or elsewhere.
    pub is_retry: bool,
}

impl Default for RequestFacts {
    fn default() -> Self {
        Self {
            criticality: Criticality::default(),
            operation: Operation::UNKNOWN,
            repeat: Repeat::Unsafe,
            timeout: None,
            kind: Kind { route: 0, customer: 0 },
            key: None,
            is_retry: false,
        }
    }
}

impl RequestFacts {
    /// The same with this criticality.
    #[must_use]
    pub fn with_criticality(self, criticality: Criticality) -> Self {
        Self { criticality, ..self }
    }

    /// The same with this operation.
    #[must_use]
    pub fn with_operation(self, operation: Operation) -> Self {
        Self { operation, ..self }
    }

    /// The same for a request that may be sent twice.
    #[must_use]
    pub fn idempotent(self) -> Self {
        Self { repeat: Repeat::Safe, ..self }
    }

    /// The same with a time in which the answer is useful.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The same with the route and the customer, by any numbers that are the same for one and
    /// seldom for two, such as hashes of their names.
    #[must_use]
    pub fn with_kind(self, route: u64, customer: u64) -> Self {
        Self { kind: Kind { route, customer }, ..self }
    }

    /// The same with a key of consistent hashing.
    #[must_use]
    pub fn with_key(self, key: HashKey) -> Self {
        Self { key: Some(key), ..self }
    }
}

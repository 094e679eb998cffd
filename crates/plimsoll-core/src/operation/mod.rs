//! Operations: the endpoints of a service, as far as evidence must tell them apart.
//!
//! An endpoint can fail by itself: its handler panics, its own limit is reached, a firewall drops
//! its requests. Evidence from one endpoint alone says nothing about a backend, nor about the
//! cluster. So the throttle, the retry budget and outlier ejection each note the operation of an
//! outcome.
//!
//! An operation has two levels, because the paths below one endpoint may be unlimited (`/posts/a`,
//! `/posts/b`): the endpoint and its group. Each level is a hash that the caller makes, with a
//! secret key if strangers choose the hashed text. Two operations with one hash share their
//! evidence: the price of bounded memory.

mod table;

use core::num::NonZeroU64;

pub(crate) use self::table::Table;
use crate::{Criticality, rng};

/// An endpoint of a service, and its group of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    endpoint: Option<NonZeroU64>,
    group: Option<NonZeroU64>,
}

/// Level of a key: an endpoint and a group of one hash are not the same.
const ENDPOINT: u64 = 0x9e37_79b9_7f4a_7c15;
const GROUP: u64 = 0xd1b5_4a32_d192_ed03;

impl Operation {
    /// An operation that the caller does not tell from others. Evidence of it is evidence about the
    /// whole cluster.
    pub const UNKNOWN: Self = Self { endpoint: None, group: None };

    /// The operation with these hashes.
    #[must_use]
    pub fn new(endpoint: u64, group: u64) -> Self {
        let key = |hash: u64, level: u64| NonZeroU64::new(rng::spread(hash ^ level)).or(NonZeroU64::new(level));
        Self { endpoint: key(endpoint, ENDPOINT), group: key(group, GROUP) }
    }

    /// Whether the caller tells it from others.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.endpoint.is_some()
    }

    /// The hash of the endpoint; zero for an unknown operation.
    #[must_use]
    pub fn hash(self) -> u64 {
        self.endpoint.map_or(0, NonZeroU64::get)
    }

    /// The keys of both levels, the endpoint first; none for an unknown operation.
    pub(crate) fn keys(self) -> impl Iterator<Item = u64> + Clone {
        [self.endpoint, self.group].into_iter().flatten().map(NonZeroU64::get)
    }

    /// The same operation, for requests of this criticality alone.
    pub(crate) fn of(self, criticality: Criticality) -> Self {
        let key = |key: NonZeroU64| key.checked_add(criticality.rank() as u64).unwrap_or(key);
        Self { endpoint: self.endpoint.map(key), group: self.group.map(key) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn levels_and_criticalities_have_keys_of_their_own() {
        let operations = [Operation::new(1, 1), Operation::new(0, 0), Operation::new(2, 3)];
        let keys: Vec<u64> = operations
            .into_iter()
            .flat_map(|operation| Criticality::ALL.map(|criticality| operation.of(criticality)))
            .flat_map(Operation::keys)
            .collect();
        assert_eq!(keys.len(), 3 * 4 * 2);
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert_eq!(Operation::UNKNOWN.of(Criticality::Critical).keys().count(), 0);
    }

    #[test]
    fn hash_tells_endpoints_apart_and_is_zero_when_unknown() {
        let hashes = [(1, 9), (2, 9), (0, 9)].map(|(endpoint, group)| Operation::new(endpoint, group).hash());
        assert_eq!(hashes.into_iter().chain([0]).collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(Operation::new(1, 5).hash(), hashes[0], "the group has a key of its own");
        assert_eq!(Operation::UNKNOWN.hash(), 0);
    }
}

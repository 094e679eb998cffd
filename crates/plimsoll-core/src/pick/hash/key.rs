//! Keys of requests: the part of a request that decides on its backend, as a number.
//!
//! The hash is XXH64 with fixed seeds. It is specified outside this crate, so proxies of different
//! versions and machines agree on the backend of a key. It has no secret. A secret would have to be
//! equal in all proxies, and would protect little: an attacker who chooses keys can reach one
//! backend on purpose, but the bound on loads limits the requests there
//! ([`hash`](super)).

use twox_hash::XxHash64;

/// Seed of the hashes of keys. Any number serves, as long as it never changes: another one moves
/// every key.
const KEY_SEED: u64 = 0x706c_696d_736f_6c6c;

/// The key of a request under the policy `hash`: equal keys go to the same backend.
///
/// ```
/// use plimsoll_core::pick::{HashKey, PolicyKind};
/// use plimsoll_core::subset::Backend;
/// use plimsoll_core::{Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};
///
/// let (mut rng, now) = (rand_pcg::Pcg64Mcg::new(1), Timestamp::ZERO);
/// let mut caches = Balancer::new(BalancerConfig::new(PolicyKind::Hash));
/// for address in ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"] {
///     let id = caches.add_as(now, Backend::key_of(address), Weight::ONE, &mut ());
///     caches.on_connected(now, id, &mut ());
/// }
/// let alice = Some(HashKey::of(b"alice"));
/// let first = caches.pick_for(now, &mut rng, 0, &[], alice);
/// let Pick::Backend(id) = first else { panic!("all are healthy") };
/// caches.finish(now, id, Completion { outcome: Outcome::Success, latency: None }, &mut ());
/// assert_eq!(caches.pick_for(now, &mut rng, 0, &[], alice), first);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashKey(u64);

impl HashKey {
    /// The key of a request with this text: the value of a header field, a path, an address.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self(XxHash64::oneshot(KEY_SEED, text))
    }

    /// A key that is a hash already. Its values should be spread evenly over all numbers.
    #[must_use]
    pub const fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// The key as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// The position of a backend's point number `index` on the ring.
pub(super) fn position(identity: u64, index: u32) -> u64 {
    XxHash64::oneshot(identity, &index.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by another implementation of the specification. Other values would move every key of
    /// a fleet.
    #[test]
    fn hashes_are_those_of_the_specification() {
        assert_eq!(HashKey::of(b"alice").as_u64(), 0x29ec_ae44_875f_bf80);
        assert_eq!(HashKey::of(&b"0123456789".repeat(5)).as_u64(), 0x29b8_2b10_b5b5_74e7);
        assert_eq!([position(1, 0), position(1, 1)], [0x2db1_1370_7a70_2ac0, 0x4460_2b44_0cdd_c382]);
    }
}

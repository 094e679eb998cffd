//! The members of a client's subset, taken from its order of preference, as backends fail and
//! return.
//!
//! The members are the shortest head of the order that has `size` usable backends. So the next in
//! the order replaces an unusable backend. The unusable one stays a member, because a client must
//! notice its recovery; then the last replacement leaves. After any trouble the members are the
//! same as before.
//!
//! Dropping the unusable backend was rejected. It would return to a client that has forgotten it,
//! and no other client would notice a fault in the network between the two.
//!
//! If fewer than `size` of the whole order are usable, all of it are members.
//!
//! Another list of backends, or another size, is another order. It needs a new [`Subset`], which
//! must be told again which backends are unusable.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use crate::health::State;

/// The members of one client's subset.
///
/// ```
/// use core::num::NonZeroU32;
/// use plimsoll_core::subset::{Algorithm, Backend, Client, Subset, SubsetConfig, order};
/// use plimsoll_core::Weight;
///
/// let addresses: Vec<String> = (0..100).map(|i| format!("10.0.0.{i}:80")).collect();
/// let backend = |address: &String| {
///     Backend { key: Backend::key_of(address), domain: 0, weight: Weight::ONE }
/// };
/// let backends: Vec<Backend> = addresses.iter().map(backend).collect();
/// let size = NonZeroU32::new(20).expect("not zero");
/// let config = SubsetConfig { algorithm: Algorithm::Rocksteadier, size, seed: 1 };
/// let mut subset = Subset::new(order(&config, Client::numbered(7), &backends)?, size);
/// assert_eq!(subset.members().len(), 20); // numbers of addresses to connect to
/// let failed = subset.members()[0];
/// subset.on_usable(failed, false);
/// assert_eq!(subset.members().len(), 21, "the next in the order replaces it");
/// # Ok::<(), plimsoll_core::subset::MissingInput>(())
/// ```
#[derive(Clone, Debug)]
pub struct Subset {
    order: Vec<u32>,
    /// The last known usability, by position in the order. An unknown backend counts as usable;
    /// otherwise a client that has just started would connect to all of its order.
    usable: Vec<bool>,
    size: usize,
    members: usize,
}

impl Subset {
    /// The first `size` of `order`, which [`order`](super::order) made.
    #[must_use]
    pub fn new(order: Vec<u32>, size: NonZeroU32) -> Self {
        let size = size.get() as usize;
        Self { usable: vec![true; order.len()], members: size.min(order.len()), size, order }
    }

    /// The members, the most preferred first: at least `size` if the order is that long.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.order[..self.members]
    }

    /// Notes that `backend` is now in `state`: usable if it serves or has yet to be reached.
    /// Returns whether the members changed, as [`Subset::on_usable`] does.
    pub fn on_state(&mut self, backend: u32, state: State) -> bool {
        self.on_usable(backend, matches!(state, State::Healthy | State::Connecting))
    }

    /// Notes whether `backend` is usable. Returns whether the members changed: some were added at
    /// the end or removed from it.
    ///
    /// The usability of a non-member is remembered until it becomes one. A backend outside the
    /// order has no effect.
    pub fn on_usable(&mut self, backend: u32, usable: bool) -> bool {
        let Some(position) = self.order.iter().position(|b| *b == backend) else { return false };
        if core::mem::replace(&mut self.usable[position], usable) == usable {
            return false;
        }
        let mut wanted = self.size;
        let members = self.usable.iter().position(|usable| {
            wanted -= usize::from(*usable);
            wanted == 0
        });
        let members = members.map_or(self.order.len(), |last| last + 1);
        core::mem::replace(&mut self.members, members) != members
    }
}

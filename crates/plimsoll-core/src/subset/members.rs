//! Whom a client is connected to, out of its order of preference, as backends fail and return.
//!
//! The members are the shortest head of the order that has `size` usable backends. So an unusable one is replaced by the
//! next in the order; it stays a member itself, because someone must notice that it is well again; and when it is, the
//! last replacement leaves. After any trouble the members are those of before.
//!
//! Why not drop the unusable one: it would come back to a client that has forgotten it, and where a fault is in the network
//! between the two nobody else would tell.
//!
//! When fewer than `size` of the whole order are usable all of it are members, and no more is to be had.
//!
//! Another list of backends, or another size, is another order: a new [`Subset`], which must be told again who is unusable.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use crate::health::State;

/// The members of one client's subset.
#[derive(Clone, Debug)]
pub struct Subset {
    order: Vec<u32>,
    /// By position in the order: what was last said of it. One of whom nothing was said counts as usable, else a client
    /// that has just started would connect to all of its order.
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

    /// The members, dearest first: at least `size` when the order has so many.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.order[..self.members]
    }

    /// `backend` is now in `state`: usable when it serves, and when it has yet to be reached. Returns whether the members
    /// changed, as [`Subset::on_usable`] does.
    pub fn on_state(&mut self, backend: u32, state: State) -> bool {
        self.on_usable(backend, matches!(state, State::Healthy | State::Connecting))
    }

    /// `backend` is now usable or not. Returns whether the members changed: some were added or taken from their end.
    ///
    /// What is said of one that is not a member is remembered for when it is; of one outside the order it means nothing.
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

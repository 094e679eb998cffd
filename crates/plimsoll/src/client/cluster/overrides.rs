//! Changes of single backends by hand, over the word of their source.
//!
//! [`plimsoll_core::discover::overrides`] decides on them. They live as long as the cluster, whatever
//! source it follows, and are under the lock of the source: each change of members goes through
//! [`Shared::put_members_in_force`].

use crate::address::Address;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::discover::overrides::{Overridden, Override, Overrides};

use super::follow::Following;
use super::machine::News;
use super::{Cluster, Shared};
use crate::clock::NEVER;
use crate::discover::{Endpoint, OverrideChange, OverrideCommand, OverrideError, Readiness};

/// The overrides of a cluster.
pub(super) type ByHand = Overrides<Address, Endpoint>;

/// An override in force.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideView {
    /// The address of the backend.
    pub address: Address,
    /// The change.
    pub change: OverrideChange<Endpoint>,
    /// The time until its end. `None`: it ends when it is revoked.
    pub remaining: Option<Duration>,
}

/// The outcome of a command about a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverrideOutcome {
    /// Known backends that are not drained by hand. Zero: the operator has taken all out.
    pub serving: usize,
}

impl Cluster {
    /// Changes one backend by hand, now: adds, removes, weighs or drains it, whatever its source lists.
    ///
    /// The change stays in force for `lasts`, or until it is revoked, also when the cluster follows
    /// another source. Requests at a removed or drained backend finish. Other backends, and one that
    /// changes in place, keep state and connections. Of the endpoint of
    /// [`OverrideCommand::Put`] only weight, zone and locality count for a listed backend, and the speed if
    /// it has one.
    ///
    /// # Errors
    ///
    /// Nothing changes if neither the source nor an override knows the address and the command adds
    /// none, or if the cluster has [`MAX_OVERRIDES`](crate::discover::MAX_OVERRIDES).
    pub fn override_backend(
        &self,
        address: impl Into<Address>,
        command: OverrideCommand<Endpoint>,
        lasts: Option<Duration>,
    ) -> Result<OverrideOutcome, OverrideError> {
        let address = address.into();
        let now = self.0.now();
        let mut following = self.0.following.lock();
        let is_listed = following.is_listed(&address);
        following.overrides.obey(&address, command, lasts.map(|lasts| now + lasts.min(NEVER)), is_listed)?;
        let (news, serving) = self.0.put_members_in_force(now, &following);
        drop(following);
        self.0.publish(news);
        self.0.reconsider();
        Ok(OverrideOutcome { serving })
    }

    /// Gives the backend at `address` no new requests until [`Cluster::undrain`]. `false` when there
    /// is no such backend, or the cluster has too many overrides.
    ///
    /// It is the override *drained* of [`Cluster::override_backend`]: it stays also while the source
    /// does not list the backend.
    pub fn drain(&self, address: impl Into<Address>) -> bool {
        self.set_drained(address.into(), true)
    }

    /// Ends [`Cluster::drain`]: the backend at `address` is used again once a check passes.
    pub fn undrain(&self, address: impl Into<Address>) -> bool {
        self.set_drained(address.into(), false)
    }

    fn set_drained(&self, address: Address, is_drained: bool) -> bool {
        let command = OverrideCommand::Patch { weight: None, is_drained: Some(is_drained) };
        self.override_backend(address, command, None).is_ok()
    }

    /// The overrides in force, by address.
    #[must_use]
    pub fn overrides(&self) -> Vec<OverrideView> {
        let now = self.0.now();
        let following = self.0.following.lock();
        let view = |Override { key, change, ends }: Override<_, _>| OverrideView {
            address: key,
            change,
            remaining: ends.map(|ends: Timestamp| ends.since(now)),
        };
        following.overrides.iter().map(view).collect()
    }

    /// Puts the overrides of an earlier process in force. Returns the number of those that are too many.
    pub fn restore_overrides(&self, saved: impl IntoIterator<Item = OverrideView>) -> usize {
        let now = self.0.now();
        let saved = saved.into_iter().map(|OverrideView { address, change, remaining }| Override {
            key: address,
            change,
            ends: remaining.map(|remaining| now + remaining.min(NEVER)),
        });
        let mut following = self.0.following.lock();
        let left_out = following.overrides.restore(saved);
        let (news, _) = self.0.put_members_in_force(now, &following);
        drop(following);
        self.0.publish(news);
        self.0.reconsider();
        left_out
    }
}

impl Shared {
    /// The members by source and operator come into force. Returns the number of backends that are
    /// not drained by hand, too.
    pub(super) fn put_members_in_force(&self, now: Timestamp, following: &Following) -> (News, usize) {
        let overrides = &following.overrides;
        let listed = following.listed.iter().map(|endpoint| (&endpoint.address, endpoint));
        let members = overrides.apply(listed);
        let drained: HashSet<Address> =
            members.iter().filter(|member| member.is_drained).map(|member| *member.key).collect();
        let endpoints = members.into_iter().filter_map(endpoint).collect();
        let mut machine = self.machine.lock();
        let news = machine.update(now, endpoints, drained);
        (news, machine.known() - machine.drained())
    }

    pub(super) fn log_ended(&self, ended: &[Override<Address, Endpoint>]) {
        let cluster = &*self.name;
        for Override { key: backend, change, .. } in ended {
            tracing::info!(cluster, %backend, change = change.kind().name(), "backend override ended: its time is over");
        }
    }
}

/// The endpoint of a member. An operator states weight, zone and locality, and may state the speed; the rest
/// is the source's.
fn endpoint(member: Overridden<'_, Address, &Arc<Endpoint>, Endpoint>) -> Option<Arc<Endpoint>> {
    if let (Some(listed), None, None) = (member.listed, member.added, member.weight) {
        return Some(Arc::clone(listed));
    }
    let mut endpoint = member.listed.map(|listed| &**listed).or(member.added)?.clone();
    if let Some(Endpoint { weight, zone, locality, speed, .. }) = member.added.cloned() {
        endpoint = Endpoint { weight, zone, locality, speed: speed.or(endpoint.speed), ..endpoint };
    }
    (endpoint.address, endpoint.readiness) = (*member.key, Readiness::Ready);
    endpoint.weight = member.weight.unwrap_or(endpoint.weight);
    Some(Arc::new(endpoint))
}

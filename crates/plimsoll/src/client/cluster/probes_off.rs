//! In place of probes where their feature is off: no query is sent, and no key is requested.

use http::HeaderValue;
use plimsoll_core::{BackendId, Timestamp};
use rand_pcg::Pcg64Mcg;

use super::Shared;
use super::machine::Machine;
use crate::client::check::ClientKey;

/// The name of this client in probes: none.
pub(super) struct Identity;

impl Identity {
    pub(super) fn new(_: &mut Pcg64Mcg) -> Self {
        Self
    }
}

impl Machine {
    pub(super) fn set_probes(&mut self, _: Timestamp) {}

    pub(super) fn begin_probes(&mut self, _: Timestamp) {}

    pub(super) fn key_request(&self) -> Option<HeaderValue> {
        None
    }

    pub(super) fn take_key(&mut self, _: Timestamp, _: BackendId, key: ClientKey) -> bool {
        match key {}
    }

    pub(super) fn lacks_key(&mut self, _: BackendId) -> bool {
        false
    }

    pub(super) fn queries(&mut self) -> Vec<Outgoing> {
        Vec::new()
    }
}

/// A query on its way out.
pub(super) enum Outgoing {}

/// The network of a cluster's probes: nothing comes.
#[derive(Default)]
pub(super) struct Network;

impl Network {
    pub(super) async fn wait(&self) {
        std::future::pending().await
    }

    pub(super) fn send(&mut self, _: &Shared, _: Vec<Outgoing>) {}

    pub(super) fn receive(&mut self, _: &Shared) {}
}

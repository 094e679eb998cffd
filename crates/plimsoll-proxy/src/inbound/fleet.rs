//! The client of a gate at the quota server.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll::server::FleetLimits;
use plimsoll::server::admission::{ForeignProcess, Gate};
use plimsoll_quota::Client;
use tokio::task::AbortHandle;

use crate::config::Quota;

/// One for each gate. Its client ends with it.
#[derive(Debug)]
pub(super) struct FleetClient {
    gate: Arc<Gate<ForeignProcess>>,
    hasher: RandomState,
    running: Mutex<Option<(Quota, AbortHandle)>>,
}

impl FleetClient {
    pub(super) fn new(gate: &Arc<Gate<ForeignProcess>>, hasher: &RandomState) -> Arc<Self> {
        Arc::new(Self { gate: Arc::clone(gate), hasher: hasher.clone(), running: Mutex::default() })
    }

    /// Has the gate join this server, or none. Without one it has no limits over a fleet.
    pub(super) fn set(&self, quota: Option<&Quota>) {
        let mut running = self.running.lock();
        if running.as_ref().map(|(quota, _)| quota) == quota {
            return;
        }
        if let Some((_, client)) = running.take() {
            client.abort();
        }
        let Some(quota) = quota else { return self.gate.end_fleet_limits() };
        let hasher = self.hasher.clone();
        let limits = FleetLimits::new(Arc::clone(&self.gate), move |name| hasher.hash_one(name));
        limits.with(|_, limiter| limiter.disconnect());
        let servers = quota.servers.iter().map(ToString::to_string);
        let client = Client::new(servers, &quota.service).expect("the configuration has checked it");
        *running = Some((quota.clone(), tokio::spawn(client.run(limits)).abort_handle()));
    }
}

impl Drop for FleetClient {
    fn drop(&mut self) {
        if let Some((_, client)) = self.running.get_mut().take() {
            client.abort();
        }
    }
}

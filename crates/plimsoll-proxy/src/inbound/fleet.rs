//! The client of a gate at the quota server.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll::server::FleetLimits;
use plimsoll::server::admission::{ForeignProcess, Gate};
use plimsoll::tls::TlsConfig;
use plimsoll_quota::Client;
use tokio::task::AbortHandle;

use crate::config::Quota;

/// One for each gate. Its client ends with it.
#[derive(Debug)]
pub(super) struct FleetClient {
    gate: Arc<Gate<ForeignProcess>>,
    hasher: RandomState,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    quota: Quota,
    /// For the next connection.
    tls: Arc<Mutex<Option<TlsConfig>>>,
    client: AbortHandle,
}

impl FleetClient {
    pub(super) fn new(gate: &Arc<Gate<ForeignProcess>>, hasher: &RandomState) -> Arc<Self> {
        Arc::new(Self { gate: Arc::clone(gate), hasher: hasher.clone(), running: Mutex::default() })
    }

    /// Has the gate join this server, or none. Without one it has no limits over a fleet. A stream goes on
    /// if only certificates have changed, and the next connection takes them.
    pub(super) fn set(&self, quota: Option<&Quota>, tls: Option<&TlsConfig>) {
        let mut running = self.running.lock();
        match (&mut *running, quota) {
            (None, None) => return,
            (Some(running), Some(quota)) if running.goes_on(quota, tls) => {
                running.quota = quota.clone();
                *running.tls.lock() = tls.cloned();
                return;
            }
            _ => {}
        }
        if let Some(running) = running.take() {
            running.client.abort();
        }
        let Some(quota) = quota else { return self.gate.end_fleet_limits() };
        let hasher = self.hasher.clone();
        let limits = FleetLimits::new(Arc::clone(&self.gate), move |name| hasher.hash_one(name));
        limits.with(|_, limiter| limiter.disconnect());
        let servers = quota.servers.iter().map(ToString::to_string);
        let mut client = Client::new(servers, &quota.service).expect("the configuration has checked it");
        let tls = Arc::new(Mutex::new(tls.cloned()));
        if quota.tls.is_some() {
            let tls = Arc::clone(&tls);
            client = client.tls_from(move || tls.lock().clone().ok_or_else(|| "no certificates".to_owned()));
        }
        let client = tokio::spawn(client.run(limits)).abort_handle();
        *running = Some(Running { quota: quota.clone(), tls, client });
    }
}

impl Running {
    /// Whether the stream goes on with these settings.
    fn goes_on(&self, quota: &Quota, tls: Option<&TlsConfig>) -> bool {
        let is_same_server = (&self.quota.servers, &self.quota.service) == (&quota.servers, &quota.service);
        is_same_server
            && match (tls, &*self.tls.lock()) {
                (Some(tls), Some(old)) => tls.continues(old),
                (None, None) => true,
                _ => false,
            }
    }
}

impl Drop for FleetClient {
    fn drop(&mut self) {
        if let Some(running) = self.running.get_mut().take() {
            running.client.abort();
        }
    }
}

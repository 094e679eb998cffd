//! Tells in the log that other processes listen at the addresses of listeners, and that they stopped.

use std::time::Duration;

use plimsoll::address::Address;
use plimsoll_proxy::Proxy;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often it looks. A look takes some milliseconds: the kernel searches its table of connections for the end of
/// the list.
const LOOK: Duration = Duration::from_secs(5);

/// The listeners that share their addresses with other processes.
pub(super) struct SharedPorts {
    known: Vec<(String, Address)>,
    ticks: Interval,
}

impl SharedPorts {
    /// Looks at once, and regularly from then on. To be called within a tokio runtime.
    pub(super) fn new() -> Self {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { known: Vec::new(), ticks }
    }

    /// Waits for the time of the next look.
    pub(super) async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    /// Logs changes since the last look.
    pub(super) fn look(&mut self, proxy: &Proxy) {
        let shared = proxy.shared_listeners();
        for (listener, address) in shared.iter().filter(|listener| !self.known.contains(listener)) {
            tracing::warn!(
                listener,
                %address,
                "another process listens at this address: it gets a part of the connections"
            );
        }
        for (listener, address) in self.known.iter().filter(|listener| !shared.contains(listener)) {
            tracing::info!(listener, %address, "no other process listens at this address any more");
        }
        self.known = shared;
    }
}

//! The limits of customers over a fleet, at the gate of this process.
//!
//! The gate decides on each request by [`Limiter`]. A client of the quota server speaks for it: it sends the
//! reports of the limiter and passes on the answers. This is the handle between the two, the same for a
//! server's own gate and for that of a sidecar.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::quota::Limiter;
use plimsoll_core::{Speed, Timestamp};
use tokio::time::Instant;

use super::admission::{Gate, Signals};

/// The number of a customer's name at a gate.
type Key = dyn Fn(&[u8]) -> u64 + Send + Sync;

/// A gate that enforces fleet limits.
trait Limited: Send + Sync {
    fn with(&self, call: &mut dyn FnMut(Timestamp, &mut Limiter));

    fn instant(&self, at: Timestamp) -> Instant;

    fn capacity(&self) -> f64;

    fn speed(&self) -> Speed;

    fn wake(&self) -> &tokio::sync::Notify;
}

/// A handle to the fleet limits at a gate. Clones share the gate.
#[derive(Clone)]
pub struct FleetLimits {
    gate: Arc<dyn Limited>,
    key: Arc<Key>,
}

impl FleetLimits {
    /// Has `gate` enforce fleet limits. `key` is its number of a customer's name.
    pub fn new<S: Signals + Send + Sync + 'static>(
        gate: Arc<Gate<S>>,
        key: impl Fn(&[u8]) -> u64 + Send + Sync + 'static,
    ) -> Self {
        gate.enforce_fleet_limits();
        Self { gate, key: Arc::new(key) }
    }

    /// Calls with the time and the limiter, under the lock of the gate.
    pub fn with<R>(&self, call: impl FnOnce(Timestamp, &mut Limiter) -> R) -> R {
        let (mut call, mut result) = (Some(call), None);
        self.gate.with(&mut |now, limiter| result = call.take().map(|call| call(now, limiter)));
        result.expect("the gate has a limiter")
    }

    /// The instant of a time of the gate.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.gate.instant(at)
    }

    /// The number of a customer's name at the gate.
    #[must_use]
    pub fn key(&self, name: &[u8]) -> u64 {
        (self.key)(name)
    }

    /// Reference CPUs that the process may use.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.gate.capacity()
    }

    /// The speed of the machine.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.gate.speed()
    }

    /// Waits until a report is due earlier than [`Limiter::poll_timeout`] said.
    pub async fn hurried(&self) {
        self.gate.wake().notified().await;
    }
}

impl fmt::Debug for FleetLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimits").finish_non_exhaustive()
    }
}

impl<S: Signals + Send + Sync> Limited for Gate<S> {
    fn with(&self, call: &mut dyn FnMut(Timestamp, &mut Limiter)) {
        self.with_limiter(call);
    }

    fn instant(&self, at: Timestamp) -> Instant {
        Gate::instant(self, at)
    }

    fn capacity(&self) -> f64 {
        Gate::capacity(self)
    }

    fn speed(&self) -> Speed {
        Gate::speed(self)
    }

    fn wake(&self) -> &tokio::sync::Notify {
        self.report_is_due()
    }
}

//! A server behind the core's gate: the gate, and the measurements that a server gives it.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::admit::{AdmissionConfig, Gate, Mode, Observation};
use plimsoll_core::signal::Gauges;

/// Time between two updates of a gate, which requests trigger: that of the library.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A gate and its measurements.
pub(crate) struct Gated {
    pub(crate) gate: Gate,
    /// CPU-seconds charged to requests.
    pub(crate) charged: f64,
    look_at: Timestamp,
}

impl Gated {
    pub(crate) fn new(now: Timestamp, config: AdmissionConfig) -> Self {
        let gate = Gate::new(now, config, Mode::Protect, Observation::default());
        Self { gate, charged: 0.0, look_at: now }
    }

    /// Updates the gate if it is time, with the CPU-seconds used so far and the requests that run.
    pub(crate) fn look(&mut self, now: Timestamp, cpu: f64, runnable: usize) {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            let seen = Observation { cpu, charged: self.charged, runnable: runnable as f64, queued: 0.0 };
            self.gate.observe(now, seen, &Gauges::default());
        }
    }
}

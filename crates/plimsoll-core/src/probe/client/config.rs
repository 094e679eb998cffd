//! The settings of probes at a client, and the facts about its TCP traffic.

use core::time::Duration;

use super::super::message::Instance;
use crate::Timestamp;

/// The source of the keys of a client's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// They are fixed, or none is needed.
    #[default]
    Fixed,
    /// Checks bring them. A process that has restarted has another key, and cannot be understood before
    /// a check.
    Checks,
}

/// The settings of a client's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// The client's process.
    pub instance: Instance,
    /// Mean time between two queries.
    pub interval: Duration,
    /// Requested time of notices while inactive, in seconds.
    pub lease_s: u16,
    /// Time without a request after which a backend is inactive; `None` for never.
    pub inactive_after: Option<Duration>,
    /// The source of the keys.
    pub keys: KeySource,
}

impl ProberConfig {
    /// Twenty times rarer than a lame duck's queries, and three queries within a lease.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(20);
    /// Two queries in a row may be lost before notices end.
    pub const DEFAULT_LEASE_S: u16 = 60;

    /// The default settings of this client.
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            interval: Self::DEFAULT_INTERVAL,
            lease_s: Self::DEFAULT_LEASE_S,
            inactive_after: None,
            keys: KeySource::Fixed,
        }
    }
}

/// The TCP traffic of one backend, as its client knows it anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The last request, or the time at which the backend was added.
    pub last_request: Timestamp,
    /// Requests in flight.
    pub in_flight: u32,
    /// The last response or passed check; `None` before the first.
    pub last_success: Option<Timestamp>,
}

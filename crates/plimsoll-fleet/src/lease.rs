//! The time to live of the members of a fleet.

use std::time::Duration;

/// The lease of each process of the fleet: how long a backend stays in the registry that ended without
/// a word. Its clients notice earlier, by refused connections or probes.
pub const LEASE: Duration = Duration::from_secs(10);

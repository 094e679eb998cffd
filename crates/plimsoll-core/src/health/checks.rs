//! Active health checks: their schedule and their outcomes.
//!
//! A backend is checked as soon as it is added, so that a cluster starts quickly. A reload can add
//! five hundred backends at once, and a deployment heals them at once. With a fixed interval their
//! checks would come in one burst for ever. Therefore
//!
//! ```text
//! wait before the second check = interval · U(0, 1)
//! every further wait           = interval · U(0.9, 1.1)
//! ```
//!
//! and a backend that becomes healthy again starts over. The first draw spreads the checks evenly
//! over the interval. The second keeps several clients of one backend out of step. A phase from a
//! hash of the address was rejected: all clients of a backend would check it together.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::{Random, rng};

/// Jitter of a wait, as a share of the interval, either way. Small enough to keep the time of a
/// detection predictable, large enough to move a check by a whole interval within a few hundred.
const JITTER: f64 = 0.1;

/// The schedule of checks, and the numbers in a row that change a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckConfig {
    /// Whether healthy backends are checked. If not, a backend that accepts a connection counts as
    /// healthy, and only one that refuses is checked.
    pub active: bool,
    /// Mean time between two checks of a backend that is not refusing.
    pub interval: Duration,
    /// Failed checks in a row after which a backend counts as refusing.
    pub failures_to_refuse: NonZeroU32,
    /// Passed checks in a row after which a refusing backend is healthy again.
    pub passes_to_heal: NonZeroU32,
}

impl CheckConfig {
    /// Often enough to take a hanging backend out within half a minute. Rare enough that a hundred
    /// clients cost a backend ten checks a second.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
    /// One lost packet does not make a backend unhealthy.
    pub const DEFAULT_FAILURES_TO_REFUSE: NonZeroU32 = NonZeroU32::new(3).expect("not zero");
    /// Slow start is the caution here; a second wait on top would only lengthen an outage.
    pub const DEFAULT_PASSES_TO_HEAL: NonZeroU32 = NonZeroU32::MIN;

    /// Time from the first to the second regular check.
    pub(crate) fn first_wait(&self, rng: &mut impl Random) -> Duration {
        self.interval.mul_f64(rng::unit(rng))
    }

    /// Time between two further checks.
    pub(crate) fn wait(&self, rng: &mut impl Random) -> Duration {
        self.interval.mul_f64(1.0 + JITTER * (2.0 * rng::unit(rng) - 1.0))
    }
}

impl Default for CheckConfig {
    fn default() -> Self {
        Self {
            active: false,
            interval: Self::DEFAULT_INTERVAL,
            failures_to_refuse: Self::DEFAULT_FAILURES_TO_REFUSE,
            passes_to_heal: Self::DEFAULT_PASSES_TO_HEAL,
        }
    }
}

/// The outcome of one check of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The backend serves.
    Passed,
    /// The backend answered that it wants no requests now (gRPC `NOT_SERVING`, HTTP 503, a
    /// lame-duck flag).
    NotServing,
    /// The backend gave a wrong answer, or none in time.
    Failed,
    /// The backend did not accept the connection.
    Unreachable,
    /// This process lacked a resource to make the check: no evidence about the backend.
    NotMade,
}

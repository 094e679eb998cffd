//! Active checks: how often, and what their answers mean.
//!
//! A backend is checked at once when it is added, so that a cluster starts quickly. A reload can add five hundred at once,
//! and a deployment heals them at once. With a fixed interval their checks would come in one burst for ever. So
//!
//! ```text
//! wait before the second check = interval · U(0, 1)
//! every further wait           = interval · U(0.9, 1.1)
//! ```
//!
//! where a backend that becomes healthy again begins anew. The first draw spreads the checks evenly over the interval. The second keeps
//! several clients of one backend from staying in step. Why not a phase from a hash of the address: all clients of a backend
//! would then check it together.

use core::num::NonZeroU32;
use core::time::Duration;

use rand_core::Rng;

use crate::rng;

/// How far a wait may be drawn from the interval, either way: as little as keeps the time of a detection predictable, as
/// much as moves a check by a whole interval within a few hundred.
const JITTER: f64 = 0.1;

/// When a backend is checked, and how many answers in a row change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// Whether healthy backends are checked at all. Without, a backend that accepts a connection is taken as
    /// healthy, and only one that does not is looked at again.
    pub active: bool,
    /// Between two checks of a backend that is not refusing, on average.
    pub interval: Duration,
    /// Failed checks in a row after which it counts as refusing.
    pub failures_to_refuse: NonZeroU32,
    /// Passed checks in a row after which one that refused is healthy again.
    pub passes_to_heal: NonZeroU32,
}

impl CheckConfig {
    /// Often enough that a backend that hangs is out within half a minute, rare enough that a hundred
    /// clients cost a backend ten checks a second.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
    /// One lost packet is no illness.
    pub const DEFAULT_FAILURES_TO_REFUSE: NonZeroU32 = NonZeroU32::new(3).expect("not zero");
    /// Slow start is the caution here; a second wait on top would only lengthen an outage.
    pub const DEFAULT_PASSES_TO_HEAL: NonZeroU32 = NonZeroU32::MIN;

    /// Time from the first to the second regular check.
    pub(crate) fn first_wait(&self, rng: &mut impl Rng) -> Duration {
        self.interval.mul_f64(rng::unit(rng))
    }

    /// Time between two further checks.
    pub(crate) fn wait(&self, rng: &mut impl Rng) -> Duration {
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

/// What a check of a backend found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It serves.
    Passed,
    /// It answered that it does not want requests now (gRPC `NOT_SERVING`, HTTP 503, a lame-duck flag).
    NotServing,
    /// It answered wrongly, or not in time.
    Failed,
    /// It did not accept the connection.
    Unreachable,
    /// It could not be made, since this process lacked something for it: says nothing of the backend.
    NotMade,
}

//! The draw of a request that is admitted by chance: its own, or that of its cohort.
//!
//! A task that sends M requests to a service, or a session that sends them again and again, is
//! useful only as a whole. If each request is admitted with probability P on its own, P^M of the
//! tasks succeed, and the work on the others is wasted. If all requests of a task share a draw, P
//! of the tasks succeed (DAGOR: Zhou et al., "Overload Control for Scaling WeChat Microservices",
//! SoCC 2018, "subsequent overload").
//!
//! ```text
//! hour = seconds since the Unix epoch ÷ 3,600, rounded down
//! cohort = XXH64(key, seed = hour)
//! draw = the upper 32 bits of mix(cohort) ÷ 2³²,    admitted if draw < P
//! ```
//!
//! where mix is the finaliser of SplitMix64. The draw must be the same wherever requests of the
//! cohort arrive: at each replica of a service, and at the services behind it. These then shed the
//! cohorts that are nearly shed before them, and not others. So the draw contains nothing of the
//! process, and it is specified outside of this crate: **after a change, the versions of one fleet
//! would disagree.** The hour is that of the wall clock, for the same reason. The draw is constant
//! within an hour, and a cohort that is shed now may be admitted in the next. A task gets two draws
//! if it spans the hour, or if the clocks of its machines differ. It would have had as many without
//! a cohort.
//!
//! The draw is no secret: a caller that may choose its key finds one that is admitted.

use core::time::Duration;

use twox_hash::XxHash64;

use super::Ask;
use crate::Random;
use crate::rng::{self, spread};

/// The time that a draw lasts: much longer than a task, and than the retries of a user.
const DRAW_LIFETIME: Duration = Duration::from_secs(3_600);

/// The cohort of requests with this key, such as the name of a session, at a time since the Unix
/// epoch. It is the same in all processes, versions and architectures. `None` for an empty key:
/// requests that name no cohort do not form one.
#[must_use]
pub fn cohort(key: &[u8], since_epoch: Duration) -> Option<u64> {
    let hour = since_epoch.as_secs() / DRAW_LIFETIME.as_secs();
    (!key.is_empty()).then(|| XxHash64::oneshot(hour, key))
}

/// The draw of a request: a number in [0, 1), the same for all requests of a cohort.
pub(super) fn draw(ask: &Ask, rng: &mut impl Random) -> f64 {
    draw_of(ask.cohort, rng)
}

/// The same for a cohort, or for a request on its own.
pub(super) fn draw_of(cohort: Option<u64>, rng: &mut impl Random) -> f64 {
    let Some(cohort) = cohort else { return rng::unit(rng) };
    (spread(cohort) >> 32) as f64 / (f64::from(u32::MAX) + 1.0)
}

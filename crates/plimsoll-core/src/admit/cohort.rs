//! The luck of a request where some are taken on by chance: its own, or that of its cohort.
//!
//! A task that asks a service M times, or a session that does over and over, is of use only as a whole. Where each request is taken on
//! with probability P by itself, P^M of the tasks succeed, and what went into the others was for nothing; where all of a task have the
//! same luck, P do (DAGOR: Zhou et al., "Overload Control for Scaling WeChat Microservices", SoCC 2018, "subsequent overload").
//!
//! ```text
//! hour = seconds since the Unix epoch ÷ 3,600, rounded down
//! cohort = XXH64(key, seed = hour)
//! luck = the upper 32 bits of mix(cohort) ÷ 2³²,    taken on if luck < P
//! ```
//!
//! where mix is the finaliser of SplitMix64. Luck has to be the same wherever requests of the cohort come: at each replica of a service, and at
//! the services behind it, which then turn away those that are nearly turned away before them, and not others. So nothing of the
//! process is in it, and it is specified outside of this crate: **changing it has versions of one fleet disagree.** The hour is that of the
//! wall clock, for the same reason; in it luck stays, and a cohort that has none now may have some in the next. A task that is under
//! way then, or is served by machines whose clocks differ, has two lots, as it would have had without a cohort.
//!
//! Luck is no secret: who may choose a key finds a lucky one.

use core::time::Duration;

use rand_core::Rng;
use twox_hash::XxHash64;

use super::Ask;
use crate::rng::{self, spread};

/// Nobody is out of luck for longer; much longer than a task, and than a user who tries again.
const LUCK_LASTS: Duration = Duration::from_secs(3_600);

/// The cohort of requests that have this key, such as the name of a session, at a time since the Unix epoch: the same in all processes,
/// versions and architectures. `None` for an empty key: who names no cohort is not of one with all others who do not.
#[must_use]
pub fn cohort(key: &[u8], since_epoch: Duration) -> Option<u64> {
    let hour = since_epoch.as_secs() / LUCK_LASTS.as_secs();
    (!key.is_empty()).then(|| XxHash64::oneshot(hour, key))
}

/// A number in [0, 1): the same for all of a cohort.
pub(super) fn luck(ask: &Ask, rng: &mut impl Rng) -> f64 {
    let Some(cohort) = ask.cohort else { return rng::unit(rng) };
    (spread(cohort) >> 32) as f64 / (f64::from(u32::MAX) + 1.0)
}

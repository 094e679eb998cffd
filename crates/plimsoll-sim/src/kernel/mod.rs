//! Virtual time: what happens next, and the random numbers of what happens.
//!
//! - [`queue`]: events in order of time, then of their making.
//! - [`streams`]: random numbers by label, so that one thing's draws do not depend on another's.
//! - [`slab`]: things that events refer to by number.
//!
//! Nothing here knows what is simulated.

pub(crate) mod queue;
pub(crate) mod slab;
pub(crate) mod streams;

use plimsoll_core::Timestamp;

/// The time of what will not happen.
pub(crate) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

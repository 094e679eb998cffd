//! How short memory is, in three levels.
//!
//! ```text
//!            ≥ 80%            ≥ 95%
//!   normal ─────────▶ shrink ─────────▶ refuse          of max_memory
//!          ◀─────────        ◀─────────
//!            < 70%            < 85%, or 10 s without growth and below 100%
//! ```
//!
//! Each level is left well below where it was entered, or the proxy would come and go with each
//! connection. An allocator gives memory back late, or never if a little of each page is in use;
//! what it keeps it will use again, so a process that does not grow may serve although it is large.
//! Without that exception one burst could make it refuse for ever.

use std::time::Duration;

use plimsoll_core::Timestamp;

/// Per cent of the limit at which it holds less: early, as memory falls only as fast as clients
/// end.
const SHRINK_AT: u64 = 80;
/// Per cent below which that is over.
const SHRINK_UNTIL: u64 = 70;
/// Per cent of the limit at which nothing new is accepted: requests in flight still grow a little.
const REFUSE_AT: u64 = 95;
/// Per cent below which new requests are accepted again.
const REFUSE_UNTIL: u64 = 85;
/// Time in which growth would have shown.
const STEADY_FOR: Duration = Duration::from_secs(10);

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// It is not.
    #[default]
    Normal,
    /// Hold less: close idle connections, give less memory to new ones.
    Shrink,
    /// Take nothing new.
    Refuse,
}

impl Level {
    /// Its name in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Shrink => "shrink",
            Self::Refuse => "refuse",
        }
    }
}

/// Keeps the level.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    level: Level,
    /// The most that was used since nothing new is taken, and since when it is the most.
    peak: (u64, Timestamp),
}

impl Levels {
    /// The level now that `used` bytes of `most` are in use.
    pub(super) fn on_sample(&mut self, now: Timestamp, used: u64, most: u64) -> Level {
        let is_at = |per_cent: u64| u128::from(used) * 100 >= u128::from(most) * u128::from(per_cent);
        let grows = used > self.peak.0;
        self.level = match self.level {
            Level::Refuse if !is_at(SHRINK_UNTIL) => Level::Normal,
            Level::Refuse if !is_at(REFUSE_UNTIL) => Level::Shrink,
            Level::Refuse if !grows && !is_at(100) && now.since(self.peak.1) >= STEADY_FOR => Level::Shrink,
            Level::Refuse => Level::Refuse,
            // After a lapse for steadiness it takes growth to come back.
            _ if is_at(REFUSE_AT) && (grows || is_at(100)) => Level::Refuse,
            Level::Shrink if is_at(SHRINK_UNTIL) => Level::Shrink,
            _ if is_at(SHRINK_AT) => Level::Shrink,
            _ => Level::Normal,
        };
        if !is_at(REFUSE_UNTIL) {
            self.peak = (0, now);
        } else if grows && is_at(REFUSE_AT) {
            self.peak = (used, now);
        }
        self.level
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn levels_are_left_below_where_they_are_entered() {
        use Level::{Normal, Refuse, Shrink};
        let mut levels = Levels::default();
        for (second, (used, expected)) in [
            (79, Normal),
            (80, Shrink),
            (71, Shrink),
            (69, Normal),
            (79, Normal),
            (94, Shrink),
            (95, Refuse),
            (86, Refuse),
            (84, Shrink),
            (94, Shrink),
            (99, Refuse),
            (10, Normal),
            (100, Refuse),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(levels.on_sample(at(second as u64), used, 100), expected, "step {second}");
        }
    }

    #[test]
    fn a_process_that_is_large_and_steady_serves_again_until_it_grows() {
        let mut levels = Levels::default();
        let level_at = |levels: &mut Levels, second, used| levels.on_sample(at(second), used, 1000);
        assert_eq!(level_at(&mut levels, 0, 960), Level::Refuse);
        assert_eq!(level_at(&mut levels, 9, 960), Level::Refuse);
        assert_eq!(level_at(&mut levels, 10, 955), Level::Shrink);
        assert_eq!(level_at(&mut levels, 11, 960), Level::Shrink);
        assert_eq!(level_at(&mut levels, 12, 961), Level::Refuse);
        assert_eq!(level_at(&mut levels, 21, 961), Level::Refuse);
        assert_eq!(level_at(&mut levels, 22, 961), Level::Shrink);
    }

    #[test]
    fn a_process_at_its_limit_refuses_however_steady() {
        let mut levels = Levels::default();
        for second in 0..1000 {
            assert_eq!(levels.on_sample(at(second), 1000, 1000), Level::Refuse);
        }
    }

    proptest! {
        #[test]
        fn level_is_normal_with_little_and_refuse_with_too_much_after_any_past(samples in prop::collection::vec(0_u64..2000, 0..100)) {
            let mut levels = Levels::default();
            for (i, used) in samples.into_iter().enumerate() {
                let level = levels.on_sample(at(i as u64), used, 1000);
                prop_assert!(used >= 700 || level == Level::Normal);
                prop_assert!(used < 800 || level >= Level::Shrink);
                prop_assert!(used < 1000 || level == Level::Refuse);
            }
        }
    }
}

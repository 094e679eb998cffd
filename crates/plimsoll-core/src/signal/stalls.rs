//! What part of the time some task stood still for want of CPU, or of memory.
//!
//! It is what the kernel counts as pressure (PSI: Weiner, "Tracking pressure-stall information", 2018): the time in which one task at
//! least could not go on. Of memory, that is the time spent on getting back pages that were thrown out a moment ago: there is less than
//! is needed, whatever the limit says. Of CPU, it is that somebody waited, and a server that is busy and well has somebody wait
//! most of the time. So how much is too much only its owner can say.

use core::time::Duration;

use crate::{Ratio, Timestamp, decay};

/// Some looks; the correction that follows from it has about as long a memory, and more would make the two swing.
const HALF_LIFE: Duration = Duration::from_millis(250);

/// Watches for how long tasks stand still.
#[derive(Clone, Debug)]
pub(super) struct StallLoad {
    line: Ratio,
    /// When it was seen last, and what the total was then; `None` before that.
    last: Option<(Timestamp, Duration)>,
    share: f64,
}

impl StallLoad {
    /// With as much as can be borne.
    pub(super) const fn new(line: Ratio) -> Self {
        Self { line, last: None, share: 0.0 }
    }

    /// The load, when some task has stood still for so long since some time: 1 is as much as can be borne.
    pub(super) fn sample(&mut self, now: Timestamp, total: Duration) -> f64 {
        let (at, before) = *self.last.get_or_insert((now, total));
        let gone = now.nanos_since(at) as f64 * 1e-9;
        if gone > 0.0 {
            let left = decay::remaining(now, at, HALF_LIFE);
            let share = total.saturating_sub(before).as_secs_f64() / gone;
            self.share = self.share * left + share.min(1.0) * (1.0 - left);
            self.last = Some((now, total));
        }
        self.share / self.line.as_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_time_lost_over_what_may_be_lost_and_goes_as_it_came() {
        let mut load = StallLoad::new(Ratio::from_percent(10));
        let at = |look: u64| Timestamp::from_nanos(look * 250_000_000);
        // Twenty seconds before anybody looked; then a fifth of the time, then none.
        let mut total = Duration::from_secs(20);
        assert_eq!(load.sample(at(0), total), 0.0);
        let mut last = 0.0;
        for look in 1..=8 {
            total += Duration::from_millis(50);
            last = load.sample(at(look), total);
            assert_eq!(load.sample(at(look), total), last, "two looks at one time say the same");
        }
        assert!((last - 2.0).abs() < 0.02, "{last}");
        assert!(load.sample(at(10), total) < 0.6);
        assert!(load.sample(at(12), Duration::ZERO) < 0.2, "a total that falls is another's");
    }
}

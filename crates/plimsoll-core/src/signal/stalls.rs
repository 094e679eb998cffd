//! The load of pressure stalls: the share of time that some task waited for CPU or memory.
//!
//! The kernel counts it as pressure (PSI: Weiner, "Tracking pressure-stall information", 2018): the
//! time that at least one task could not continue. For memory, that is the time to bring back
//! pages that were evicted a moment ago. Then there is less memory than needed, whatever the limit
//! says. For CPU, it means that some task waited, which is true most of the time on a busy and
//! healthy server. So only the owner can state a limit.

use core::time::Duration;

use crate::{Ratio, Timestamp, decay};

/// Some samples. The correction that follows it has a memory of about this length; a longer one
/// would make the two oscillate.
const HALF_LIFE: Duration = Duration::from_millis(250);

/// The load of pressure stalls.
#[derive(Clone, Debug)]
pub(super) struct StallLoad {
    line: Ratio,
    /// The time and the total at the last sample; `None` before the first.
    last: Option<(Timestamp, Duration)>,
    share: f64,
}

impl StallLoad {
    /// Starts with a line: the largest part of the time that the server can bear.
    pub(super) const fn new(line: Ratio) -> Self {
        Self { line, last: None, share: 0.0 }
    }

    /// The load after a sample of the total stall time: 1 is the most that the server can bear.
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
    fn load_is_stalled_time_over_its_limit_and_decays() {
        let mut load = StallLoad::new(Ratio::from_percent(10));
        let at = |look: u64| Timestamp::from_nanos(look * 250_000_000);
        // Twenty seconds before the first sample; then a fifth of the time, then none.
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

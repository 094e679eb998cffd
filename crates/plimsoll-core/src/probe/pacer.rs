//! The pace of datagrams that are ready at the same time.
//!
//! A thousand queries sent at once overflow the receive buffer of their sender when the answers
//! come: of unpaced rounds 8–9% were lost on loopback. A pacer permits some at a time.
//!
//! ```text
//! slot = max(slot, now − burst · gap)        permitted: ⌊(now − slot) / gap⌋ + 1 if slot ≤ now
//! slot' = slot + permitted · gap             gap = 1 / rate
//! ```
//!
//! A late caller catches up by the burst at most.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::Timestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A rate of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Datagrams per second; above 10⁹ it counts as 10⁹.
    pub per_second: NonZeroU32,
    /// Datagrams that a late caller may send at once.
    pub burst: NonZeroU32,
}

impl Pace {
    /// The pace of a client's queries: 1,000 backends in 50 ms. Answers to a burst fit into the
    /// receive buffer of a socket, some 200 datagrams by default.
    pub const QUERIES: Self =
        Self { per_second: NonZeroU32::new(20_000).expect("not zero"), burst: NonZeroU32::new(64).expect("not zero") };
    /// The pace of a responder's notices: 10,000 clients in 62 ms. A notice and its acknowledgement
    /// cost two passes through the kernel; a faster pace would outrun one thread.
    pub const NOTICES: Self =
        Self { per_second: NonZeroU32::new(160_000).expect("not zero"), burst: NonZeroU32::new(64).expect("not zero") };

    fn gap(self) -> u64 {
        (NANOS_PER_SECOND / u64::from(self.per_second.get())).max(1)
    }
}

/// Permits datagrams at a pace.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    pace: Pace,
    /// The time of the next datagram, if the earlier ones were sent in time.
    slot: u64,
}

impl Pacer {
    /// A pacer with a full burst.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, slot: 0 }
    }

    /// Permits up to `wanted` datagrams now, and returns their number.
    pub fn take(&mut self, now: Timestamp, wanted: usize) -> usize {
        let (gap, now) = (self.pace.gap(), now.as_nanos());
        let burst = u64::from(self.pace.burst.get());
        let slot = self.slot.max(now.saturating_sub((burst - 1) * gap));
        if slot > now || wanted == 0 {
            return 0;
        }
        let permitted = ((now - slot) / gap + 1).min(wanted as u64);
        self.slot = slot + permitted * gap;
        permitted as usize
    }

    /// Whether a datagram is permitted now.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.slot <= now.as_nanos()
    }

    /// The time at which `wanted` datagrams are permitted at once, or a full burst if that is less.
    #[must_use]
    pub fn ready_at(&self, wanted: usize) -> Timestamp {
        let more = (wanted as u64).clamp(1, self.pace.burst.get().into()) - 1;
        Timestamp::from_nanos(self.slot) + Duration::from_nanos(more * self.pace.gap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { per_second: NonZeroU32::new(1_000).unwrap(), burst: NonZeroU32::new(10).unwrap() };

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn pacer_permits_a_burst_then_the_rate() {
        let mut pacer = Pacer::new(PACE);
        assert_eq!(pacer.take(ms(1_000), 3), 3);
        assert_eq!(pacer.take(ms(1_000), 100), 7);
        assert_eq!((pacer.take(ms(1_000), 1), pacer.ready_at(1)), (0, ms(1_001)));
        assert_eq!([1_000, 1_001].map(|at| pacer.is_ready(ms(at))), [false, true]);
        assert_eq!(pacer.take(ms(1_001), 5), 1);
        assert_eq!(pacer.take(ms(1_005), 5), 4);
        assert_eq!(pacer.take(ms(9_000), 100), 10, "a long pause adds no more than a burst");
    }

    #[test]
    fn wait_for_several_ends_when_they_are_permitted() {
        let mut pacer = Pacer::new(PACE);
        pacer.take(ms(50), 100);
        for (wanted, permitted) in [(1, 1), (4, 4), (50, 10)] {
            let mut waiting = pacer;
            let at = waiting.ready_at(wanted);
            assert_eq!(waiting.take(at, wanted), permitted, "{wanted}");
            let mut early = pacer;
            let before = Timestamp::from_nanos(at.as_nanos() - 1);
            assert!(early.take(before, wanted) < permitted, "{wanted}");
        }
    }

    #[test]
    fn any_rate_is_met_over_a_second() {
        for per_second in [1, 7, 1_000, 160_000, u32::MAX] {
            let pace = Pace { per_second: NonZeroU32::new(per_second).unwrap(), ..Pace::NOTICES };
            let mut pacer = Pacer::new(pace);
            let mut sent = 0;
            for step in 0..10_000 {
                sent += pacer.take(Timestamp::from_nanos(step * 100_000), 1_000_000) as u64;
            }
            let burst = u64::from(pace.burst.get());
            let most = u64::from(per_second).min(burst * 10_000) + burst;
            assert!(
                sent <= most && sent * 100 >= most.saturating_sub(2 * burst) * 99,
                "{per_second}: {sent} of {most}"
            );
        }
    }
}

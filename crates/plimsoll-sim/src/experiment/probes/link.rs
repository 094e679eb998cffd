//! A network for datagrams: it loses, delays, repeats and reorders them.

use plimsoll_core::Timestamp;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;

use super::plan;
use crate::kernel::streams::unit;

/// Carries datagrams, by random numbers of its own.
#[derive(Clone, Debug)]
pub(super) struct Link {
    plan: plan::Link,
    is_blocked: bool,
    rng: Pcg64Mcg,
}

impl Link {
    pub(super) fn new(plan: plan::Link, rng: Pcg64Mcg) -> Self {
        Self { plan, is_blocked: false, rng }
    }

    /// Drops all datagrams sent from now on, or carries them again.
    pub(super) fn block(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// The arrivals of a datagram sent now: none, one or two.
    pub(super) fn arrivals(&mut self, now: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let copies = if unit(&mut self.rng) < self.plan.duplicates.as_f64() { 2 } else { 1 };
        let arrivals: [Option<Timestamp>; 2] =
            std::array::from_fn(|copy| (copy < copies).then(|| self.arrival(now))?);
        arrivals.into_iter().flatten()
    }

    fn arrival(&mut self, now: Timestamp) -> Option<Timestamp> {
        let is_lost = unit(&mut self.rng) < self.plan.loss.as_f64();
        let factor: f64 = Exp1.sample(&mut self.rng);
        let at = now + self.plan.delay + self.plan.jitter.mul_f64(factor);
        (!is_lost && !self.is_blocked).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::Ratio;

    use super::*;
    use crate::kernel::streams::Streams;

    fn arrivals(plan: plan::Link, n: u64) -> Vec<Vec<Timestamp>> {
        let mut link = Link::new(plan, Streams::new(1).stream("link", 0));
        (0..n).map(|i| link.arrivals(Timestamp::from_nanos(i * 1_000_000)).collect()).collect()
    }

    /// Seed 1, n = 10,000: five standard deviations are 150 of 1,000 lost and 109 of 500 repeated.
    #[test]
    fn link_loses_and_repeats_its_shares() {
        let plan =
            plan::Link { loss: Ratio::from_percent(10), duplicates: Ratio::from_percent(5), ..plan::Link::default() };
        let arrivals = arrivals(plan, 10_000);
        let copies: usize = arrivals.iter().map(Vec::len).sum();
        assert!(copies.abs_diff(9_450) < 160, "{copies}: 10,500 copies, a tenth lost");
        let twice = arrivals.iter().filter(|copies| copies.len() == 2).count();
        assert!(twice.abs_diff(405) < 100, "{twice}");
    }

    #[test]
    fn jitter_reorders_and_a_block_drops_all() {
        let jitter = Duration::from_millis(5);
        let plan = plan::Link { jitter, ..plan::Link::default() };
        let times: Vec<Timestamp> = arrivals(plan, 1_000).into_iter().flatten().collect();
        assert!(times.len() == 1_000 && !times.is_sorted());
        let steady: Vec<Timestamp> = arrivals(plan::Link::default(), 1_000).into_iter().flatten().collect();
        assert!(steady.len() == 1_000 && steady.is_sorted());
        let mut link = Link::new(plan, Streams::new(1).stream("link", 0));
        link.block(true);
        assert_eq!(link.arrivals(Timestamp::ZERO).count(), 0);
        link.block(false);
        assert_eq!(link.arrivals(Timestamp::ZERO).count(), 1);
    }
}

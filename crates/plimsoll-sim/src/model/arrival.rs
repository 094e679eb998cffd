//! The arrivals and the costs of one client's requests.
//!
//! Open loop: a Poisson process. The time to the next arrival is drawn in units of the mean gap. A
//! change of the rate stretches the rest of it. So a run with a change of load has the same
//! arrivals as a run without, closer together or farther apart. Closed loop: users with think time.

use std::time::Duration;

use plimsoll_core::Timestamp;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;

use super::cost::Sampler;
use crate::kernel::NEVER;

/// The requests of one client.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Random numbers of arrivals or think times.
    when: Pcg64Mcg,
    /// Random numbers of costs.
    what: Pcg64Mcg,
    /// Arrivals per second at a load of 1; zero in a closed loop.
    pub(crate) rate: f64,
    /// Multiplies the cost of each request.
    cost_factor: f64,
    /// Multiplies the rate.
    load: f64,
    /// Time of the next arrival of an open loop. An event for another time is void.
    pub(crate) due: Timestamp,
    /// Mean gaps from the last change until `due`, and the time of that change.
    ahead: (f64, Timestamp),
    /// Nothing more arrives.
    pub(crate) stopped: bool,
}

impl Source {
    pub(crate) fn new(when: Pcg64Mcg, what: Pcg64Mcg, rate: f64, cost_factor: f64, load: f64) -> Self {
        Self { when, what, rate, cost_factor, load, due: NEVER, ahead: (0.0, Timestamp::ZERO), stopped: false }
    }

    /// Draws the time of the next arrival of an open loop.
    pub(crate) fn advance(&mut self, now: Timestamp) -> Timestamp {
        let gaps: f64 = Exp1.sample(&mut self.when);
        self.place(now, gaps)
    }

    /// Changes the load, and with it the time of the next arrival.
    pub(crate) fn set_load(&mut self, now: Timestamp, load: f64) -> Timestamp {
        let (gaps, since) = self.ahead;
        let gone = now.since(since).as_secs_f64() * self.rate * self.load;
        self.load = load;
        self.place(now, (gaps - gone).max(0.0))
    }

    fn place(&mut self, now: Timestamp, gaps: f64) -> Timestamp {
        self.ahead = (gaps, now);
        let seconds = gaps / (self.rate * self.load);
        self.due = if self.stopped || !seconds.is_finite() || seconds > 1e9 {
            NEVER
        } else {
            now + Duration::from_secs_f64(seconds)
        };
        self.due
    }

    /// A user's think time.
    pub(crate) fn think(&mut self, mean: Duration) -> Duration {
        let factor: f64 = Exp1.sample(&mut self.when);
        mean.mul_f64(factor)
    }

    /// CPU-seconds of the next request.
    pub(crate) fn cost(&mut self, sampler: &Sampler) -> f64 {
        sampler.draw(&mut self.what) * self.cost_factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::streams::Streams;

    fn source(rate: f64) -> Source {
        let streams = Streams::new(5);
        Source::new(streams.stream("arrivals", 0), streams.stream("costs", 0), rate, 1.0, 1.0)
    }

    /// Seed 5, n = 100,000 gaps at 1,000/s: 4 standard errors of the mean are 1.26%, false alarm
    /// 6e-5.
    #[test]
    fn source_has_arrivals_at_its_rate() {
        let mut source = source(1000.0);
        let last = (0..100_000).fold(Timestamp::ZERO, |now, _| source.advance(now));
        assert!((last.as_nanos() as f64 / 1e11 - 1.0).abs() < 0.0126, "{last:?}");
    }

    #[test]
    fn change_of_load_stretches_the_rest_of_a_gap() {
        let mut source = source(10.0);
        let due = source.advance(Timestamp::ZERO).as_nanos();
        let half = Timestamp::from_nanos(due / 2);
        let doubled = source.set_load(half, 2.0).as_nanos();
        assert!(doubled.abs_diff(due / 2 + due / 4) < 5, "{doubled} of {due}");
        assert_eq!(source.set_load(half, 0.0), NEVER);
        let again = source.set_load(Timestamp::from_nanos(due * 3), 1.0).as_nanos();
        assert!(again.abs_diff(due * 3 + due / 2) < 5, "{again} of {due}");
    }
}

//! The expected cost of the next request.
//!
//! A running mean of the costs of a route and customer. While it is young, the mean of the route
//! stands in for it, and for that the mean of all requests:
//!
//! ```text
//! expected = (n · mean + PRIOR · expected above) ÷ (n + PRIOR)
//! mean += (cost − mean) ÷ min(n, MEMORY)
//! ```
//!
//! Beside each mean stands the mean deviation of costs from it. A cautious server adds a multiple
//! of the deviation to the mean ([`Costs::high`]). It is not the standard deviation, which one cost
//! in a thousand may decide.
//!
//! Memory is counted in requests and not in time: a route that is called once an hour costs the
//! same as an hour ago. Rare routes and customers are forgotten, so that memory does not depend on
//! their number. Then the mean above them stands in again.

use core::time::Duration;

use super::recent_map::RecentMap;
use crate::rng::spread;

/// Expected cost of the very first request, in CPU-seconds: a middling one. From the second request
/// on, the first one's cost dominates.
const FIRST: f64 = 1e-3;
/// In requests. With costs that vary much, a mean of four is still mostly chance.
const PRIOR: f64 = 4.0;
/// In requests. With lognormal costs of σ = 1 the mean is then known to 4%, nearly as well as a
/// rate. With half as many, a customer below its share is now and then taken for one above it. With
/// twice as many, estimates from outside of a process come too late. A lasting change is believed
/// after three times as many requests; until then, costs are corrected while requests run.
const MEMORY: f64 = 512.0;

/// In mean deviations. Of exponential costs, all but one in twelve are below it. Constant costs
/// have no deviation.
const HIGH: f64 = 2.0;

/// The kind of a request: a route and a customer. Any numbers that are always the same for one and
/// seldom for two, such as hashes of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The route.
    pub route: u64,
    /// The customer.
    pub customer: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    requests: f64,
    /// CPU-seconds.
    mean: f64,
    /// |cost − mean|, in CPU-seconds.
    deviation: f64,
}

impl Mean {
    fn add(&mut self, cost: f64) {
        self.requests += 1.0;
        let step = cost - self.mean;
        self.mean += step / self.requests.min(MEMORY);
        // The very first cost deviates from nothing.
        let off = if self.requests > 1.0 { step.abs() } else { 0.0 };
        self.deviation += (off - self.deviation) / self.requests.min(MEMORY);
    }

    /// Blends this mean with the one above it, the more so the younger this one is.
    fn blend(&self, above: Self) -> Self {
        let of = |own, above| (self.requests * own + PRIOR * above) / (self.requests + PRIOR);
        Self { mean: of(self.mean, above.mean), deviation: of(self.deviation, above.deviation), ..*self }
    }
}

/// The costs of kinds of requests.
#[derive(Clone, Debug)]
pub struct Costs {
    all: Mean,
    routes: RecentMap<Mean>,
    kinds: RecentMap<Mean>,
}

impl Costs {
    /// Default number of routes, and of pairs of route and customer, that are remembered. Each
    /// takes 40 bytes.
    pub const DEFAULT_KINDS: usize = 4_096;

    /// Remembers about this many routes, and as many pairs of route and customer.
    #[must_use]
    pub fn new(kinds: usize) -> Self {
        Self { all: Mean::default(), routes: RecentMap::new(kinds), kinds: RecentMap::new(kinds) }
    }

    /// The expected cost of a request of this kind, in CPU-seconds; above zero.
    #[must_use]
    pub fn expected(&self, kind: Kind) -> f64 {
        at_least_something(self.mean(kind).mean)
    }

    /// A cost that few requests of this kind exceed, in CPU-seconds: the expected cost and two mean
    /// deviations.
    #[must_use]
    pub fn high(&self, kind: Kind) -> f64 {
        let Mean { mean, deviation, .. } = self.mean(kind);
        at_least_something(mean + HIGH * deviation)
    }

    fn mean(&self, kind: Kind) -> Mean {
        let first = Mean { requests: 0.0, mean: FIRST, deviation: 0.0 };
        let all = if self.all.requests > 0.0 { self.all } else { first };
        let route = self.routes.get(kind.route).map_or(all, |mean| mean.blend(all));
        self.kinds.get(pair(kind)).map_or(route, |mean| mean.blend(route))
    }

    /// Records the cost of a request of this kind, in CPU-seconds.
    pub fn observe(&mut self, kind: Kind, cost: f64) {
        self.all.add(cost);
        self.routes.entry(kind.route).add(cost);
        self.kinds.entry(pair(kind)).add(cost);
    }
}

fn at_least_something(cost: f64) -> f64 {
    cost.max(Duration::from_nanos(1).as_secs_f64())
}

fn pair(kind: Kind) -> u64 {
    kind.route ^ spread(kind.customer.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Kind = Kind { route: 1, customer: 1 };
    const DEAR: Kind = Kind { route: 2, customer: 1 };

    #[test]
    fn routes_and_customers_are_told_apart_once_they_are_known() {
        let mut costs = Costs::new(64);
        assert_eq!(costs.expected(CHEAP), FIRST);
        for _ in 0..1_000 {
            costs.observe(CHEAP, 0.001);
            costs.observe(DEAR, 0.1);
            costs.observe(Kind { customer: 2, ..DEAR }, 0.2);
        }
        let near = |kind, cost: f64| {
            assert!((costs.expected(kind) / cost - 1.0).abs() < 0.1, "{kind:?}: {}", costs.expected(kind));
        };
        near(CHEAP, 0.001);
        near(DEAR, 0.1);
        near(Kind { customer: 2, ..DEAR }, 0.2);
        near(Kind { customer: 3, ..DEAR }, 0.15);
        near(Kind { route: 3, customer: 1 }, 0.1);
    }

    #[test]
    fn lasting_change_is_believed_after_some_thousand_requests() {
        let mut costs = Costs::new(64);
        (0..10_000).for_each(|_| costs.observe(CHEAP, 0.001));
        (0..4_000).for_each(|_| costs.observe(CHEAP, 0.002));
        assert!((costs.expected(CHEAP) / 0.002 - 1.0).abs() < 0.05, "{}", costs.expected(CHEAP));
    }

    #[test]
    fn high_cost_is_the_mean_when_costs_do_not_vary() {
        let mut costs = Costs::new(64);
        for n in 0..4_000 {
            costs.observe(CHEAP, 0.001);
            costs.observe(DEAR, if n % 4 == 0 { 0.4 } else { 0.0 });
        }
        assert!((costs.high(CHEAP) / 0.001 - 1.0).abs() < 0.01, "{}", costs.high(CHEAP));
        // A mean of 0.1: a quarter is 0.3 away from it, and the others 0.1.
        assert!((costs.high(DEAR) / 0.4 - 1.0).abs() < 0.05, "{}", costs.high(DEAR));
    }

    #[test]
    fn one_request_says_nothing_of_how_costs_vary() {
        let mut costs = Costs::new(64);
        costs.observe(CHEAP, 0.1);
        assert_eq!(costs.high(CHEAP), costs.expected(CHEAP));
    }
}

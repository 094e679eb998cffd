//! What the next request is expected to cost.
//!
//! A running mean of what requests of the same route and customer did cost, for which the mean of the route stands in while it
//! is young, and for that the mean of all:
//!
//! ```text
//! expected = (n · mean + PRIOR · expected above) ÷ (n + PRIOR)
//! mean += (cost − mean) ÷ min(n, MEMORY)
//! ```
//!
//! Beside each mean stands how far costs are from it, on average: whoever must not take on too much goes by the one and a multiple of
//! the other ([`Costs::high`]). The mean deviation and not the standard one, which one cost in a thousand may decide.
//!
//! Counted in requests and not in time: a route that is called once an hour costs what it did an hour ago. Routes and customers
//! that are seldom seen are forgotten, so that memory does not depend on how many there are, and then have the mean of what is above
//! them again.

use core::time::Duration;

use super::recent::Recent;
use crate::rng::spread;

/// What the first request of all is expected to cost, in CPU-seconds: a middling one. The second is expected to cost mostly what the
/// first did.
const FIRST: f64 = 1e-3;
/// In requests. A mean of four is still mostly chance when costs vary much.
const PRIOR: f64 = 4.0;
/// In requests. With costs that vary as a lognormal of σ = 1 does, known to 4%, nearly as well as a rate is: with half as many, a customer
/// that asks for less than its part is now and then taken for one that asks for more. With twice as many, what is found from outside of a
/// process comes too late. A lasting change is believed after three times as many; until then requests are put right while they run.
const MEMORY: f64 = 512.0;

/// In mean deviations. What costs vary as an exponential does is below it for all but one in twelve; what always costs the same has no
/// deviation.
const HIGH: f64 = 2.0;

/// Which kind of request: a route, and a customer. Any numbers that are always the same for one and seldom for two, such as hashes of
/// their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Of what is asked for.
    pub route: u64,
    /// Of who asks.
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
        // The first of all is no step from anything.
        let off = if self.requests > 1.0 { step.abs() } else { 0.0 };
        self.deviation += (off - self.deviation) / self.requests.min(MEMORY);
    }

    /// With that of what is above it, in so far as it is young.
    fn blend(&self, above: Self) -> Self {
        let of = |own, above| (self.requests * own + PRIOR * above) / (self.requests + PRIOR);
        Self { mean: of(self.mean, above.mean), deviation: of(self.deviation, above.deviation), ..*self }
    }
}

/// What kinds of requests cost.
#[derive(Clone, Debug)]
pub struct Costs {
    all: Mean,
    routes: Recent<Mean>,
    kinds: Recent<Mean>,
}

impl Costs {
    /// Kinds of requests that are remembered, at 40 bytes for each route and each pair of route and customer.
    pub const DEFAULT_KINDS: usize = 4_096;

    /// Remembers about so many routes, and so many pairs of route and customer.
    #[must_use]
    pub fn new(kinds: usize) -> Self {
        Self { all: Mean::default(), routes: Recent::new(kinds), kinds: Recent::new(kinds) }
    }

    /// What a request of this kind is expected to cost, in CPU-seconds; above zero.
    #[must_use]
    pub fn expected(&self, kind: Kind) -> f64 {
        at_least_something(self.mean(kind).mean)
    }

    /// What few requests of this kind exceed, in CPU-seconds: what is expected, and twice the mean deviation from that.
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

    /// A request of this kind has cost so many CPU-seconds.
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
    fn a_lasting_change_is_believed_after_some_thousands_of_requests() {
        let mut costs = Costs::new(64);
        (0..10_000).for_each(|_| costs.observe(CHEAP, 0.001));
        (0..4_000).for_each(|_| costs.observe(CHEAP, 0.002));
        assert!((costs.expected(CHEAP) / 0.002 - 1.0).abs() < 0.05, "{}", costs.expected(CHEAP));
    }

    #[test]
    fn what_few_exceed_is_what_is_expected_where_costs_do_not_vary() {
        let mut costs = Costs::new(64);
        for n in 0..4_000 {
            costs.observe(CHEAP, 0.001);
            costs.observe(DEAR, if n % 4 == 0 { 0.4 } else { 0.0 });
        }
        assert!((costs.high(CHEAP) / 0.001 - 1.0).abs() < 0.01, "{}", costs.high(CHEAP));
        // A mean of 0.1, from which a quarter is 0.3 away and the others 0.1.
        assert!((costs.high(DEAR) / 0.4 - 1.0).abs() < 0.05, "{}", costs.high(DEAR));
    }

    #[test]
    fn one_request_says_nothing_of_how_costs_vary() {
        let mut costs = Costs::new(64);
        costs.observe(CHEAP, 0.1);
        assert_eq!(costs.high(CHEAP), costs.expected(CHEAP));
    }
}

//! The customers of the scene, and their load.
//!
//! Each has a few backends of its own that get most of its requests, as a customer with few connections has.
//! So an even part of its limit for each backend would refuse requests below the limit.

use std::net::SocketAddr;
use std::time::Duration;

use crate::load::mix::{Mix, Parts};
use crate::load::plan::{Arrival, Plan, Protocol, Shape};
use crate::load::spread::Spread;
use crate::load::target::{self, Target};

use super::stage::Stage;

/// CPU of a request, seconds. Short beside the limits: with a mean cost c and N tasks, N · c over a limit is
/// about the part of it that whole requests leave unused. Long beside the tens of microseconds of HTTP.
pub(crate) const COST: f64 = 0.000_75;
/// Requests differ, as in production (sigma of the logarithm).
pub(crate) const COST_SIGMA: f64 = 0.3;
/// Parts of the requests of each customer, in percent. At three times a limit, the first two need 75% of it.
const CRITICALITIES: &str = "critical-plus=10,critical=15,sheddable-plus=25,sheddable=50";
/// Parts of the requests of a customer at the backends, the first being its own.
const PARTS: [f64; 8] = [5.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0];
/// Backends between the first ones of two customers.
const APART: usize = 2;
/// Users abandon a request after this long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Requests in flight beyond which the fleet is stuck.
const MAX_IN_FLIGHT: u32 = 1_000;
/// Open connections to each backend.
const CONNECTIONS: u32 = 2;

/// A customer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Customer {
    /// Its name in `x-customer`.
    pub(crate) name: &'static str,
    /// Its limit over all backends, in CPUs.
    pub(crate) limit: f64,
}

/// All customers. Together their limits are well below two cores, so that the machine is never full: a
/// customer is cut for its limit, not for an overload.
pub(crate) const CUSTOMERS: [Customer; 4] = [
    Customer { name: "acme", limit: 0.25 },
    Customer { name: "globex", limit: 0.25 },
    Customer { name: "initech", limit: 0.2 },
    Customer { name: "umbrella", limit: 0.15 },
];

/// The place of the customer that goes to three times its limit.
pub(crate) const GREEDY: usize = 0;

/// The criticalities of the requests, from the most critical down.
pub(crate) fn criticalities() -> anyhow::Result<Parts> {
    Parts::of_criticalities(CRITICALITIES).map_err(anyhow::Error::msg)
}

/// The load of the customer of this place in a stage.
pub(crate) fn plan(customer: usize, stage: Stage, length: Duration, backends: &[SocketAddr]) -> anyhow::Result<Plan> {
    let Customer { name, limit } = CUSTOMERS[customer];
    let mix = Mix { criticalities: Some(criticalities()?), ..Mix::default() };
    let target = Target::new(target::Params {
        url: "http://quota-demo/",
        protocol: Protocol::Http1,
        method: None,
        path: None,
        headers: &[format!("x-customer: {name}")],
        body_size: 0,
    })
    .and_then(|target| target.with_mix(mix))
    .map_err(anyhow::Error::msg)?;
    let part = |at: usize| PARTS[(at + backends.len() * APART - APART * customer) % PARTS.len()];
    Ok(Plan {
        target,
        protocol: Protocol::Http1,
        shape: Shape::Open { rate: stage.demand(customer) * limit / COST, arrival: Arrival::Poisson },
        duration: Some(length),
        requests: None,
        warmup: Duration::ZERO,
        timeout: TIMEOUT,
        max_in_flight: MAX_IN_FLIGHT,
        connections: CONNECTIONS,
        spread: Spread::new(backends.iter().enumerate().map(|(at, address)| (*address, part(at)))),
        // No two loads are alike.
        seed: (stage.number() * CUSTOMERS.len() + customer) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_leaves_a_core_of_two_free() {
        for stage in Stage::ALL {
            let used = CUSTOMERS.iter().enumerate().map(|(at, of)| of.limit * stage.demand(at).min(1.0));
            assert!(used.sum::<f64>() < 1.0, "{stage:?}");
        }
    }
}

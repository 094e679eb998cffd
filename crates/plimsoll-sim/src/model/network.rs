//! The network between clients and backends.

use std::time::Duration;

use plimsoll_core::Ratio;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;

use super::arena::Arena;
use crate::kernel::queue::Lane;
use crate::kernel::streams::unit;

/// The network between clients and backends, for each message in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Delay of every message.
    pub delay: Duration,
    /// Mean of the random addition to it, exponentially distributed.
    pub jitter: Duration,
    /// Share of lost messages: requests, answers, probes and checks. Only a time-out reveals a
    /// loss.
    pub loss: Ratio,
}

impl Network {
    /// One direction within a datacenter.
    pub const DEFAULT_DELAY: Duration = Duration::from_micros(100);
}

impl Default for Network {
    fn default() -> Self {
        Self { delay: Self::DEFAULT_DELAY, jitter: Duration::ZERO, loss: Ratio::ZERO }
    }
}

/// Carries messages.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    network: Network,
    lane: Lane,
    rng: Pcg64Mcg,
}

impl Carrier {
    pub(crate) fn new<E: Copy>(network: Network, arena: &mut Arena<E>) -> Self {
        Self { network, lane: arena.open_lane(), rng: arena.stream("network") }
    }

    /// Schedules `event` for the arrival of a message sent now. `false` if the message is lost.
    pub(crate) fn send<E: Copy>(&mut self, arena: &mut Arena<E>, event: E) -> bool {
        let loss = self.network.loss.as_f64();
        if loss > 0.0 && unit(&mut self.rng) < loss {
            return false;
        }
        self.send_surely(arena, event);
        true
    }

    /// As [`Carrier::send`], for messages that the transport repeats until they arrive.
    pub(crate) fn send_surely<E: Copy>(&mut self, arena: &mut Arena<E>, event: E) {
        let Network { delay, jitter, .. } = self.network;
        if jitter.is_zero() {
            arena.push_lane(self.lane, arena.now + delay, event);
        } else {
            let factor: f64 = Exp1.sample(&mut self.rng);
            arena.push(arena.now + delay + jitter.mul_f64(factor), event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::NEVER;

    fn sent(network: Network, n: u32) -> Vec<u64> {
        let mut arena = Arena::new(2, Duration::ZERO);
        let mut carrier = Carrier::new(network, &mut arena);
        for message in 0..n {
            carrier.send(&mut arena, message);
        }
        std::iter::from_fn(|| arena.queue.pop_until(NEVER)).map(|(at, _)| at.as_nanos()).collect()
    }

    #[test]
    fn message_takes_at_least_the_delay() {
        let network = Network { delay: Duration::from_nanos(500), ..Network::default() };
        assert_eq!(sent(network, 3), [500; 3]);
        let jittered = sent(Network { jitter: Duration::from_nanos(100), ..network }, 1000);
        assert!(jittered[0] >= 500 && jittered.is_sorted());
        // Seed 2, n = 1000: the mean addition is 100 ns ± 13 at four standard errors, false alarm
        // 6e-5.
        let mean = jittered.iter().sum::<u64>() as f64 / 1000.0;
        assert!((mean - 600.0).abs() < 13.0, "{mean}");
    }

    /// Seed 2, n = 10,000, p = 0.1: five standard deviations are 150, false alarm 6e-7.
    #[test]
    fn network_loses_the_configured_share() {
        let network = Network { loss: Ratio::from_percent(10), ..Network::default() };
        let arrived = sent(network, 10_000).len();
        assert!(arrived.abs_diff(9_000) < 150, "{arrived}");
    }
}

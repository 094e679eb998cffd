//! Worked examples: the small tables and formulas of the literature, computed by the shipped code.
//!
//! There are no draws and no time, so each example has one right answer. Metrics:
//!
//! | metric | meaning |
//! |---|---|
//! | `least_loaded.idle_picked` | picks that go to backends with the fewest requests, of as many
//! picks as there are such backends |
//! | `least_loaded.twice` | backends with a second one of these picks |
//! | `throttle.NAME` | the probability by equation 21-1 |
//! | `aperture.NAME.least_over_mean`, `.most_over_mean` | load of the least and the most loaded
//! backend, over the mean |
//! | `aperture.NAME.backends` | backends that one client covers, in whole or in part, on average |
//! | `aperture.NAME.whole` | backends that it covers in whole |

mod figures;

use std::num::{NonZeroU32, NonZeroUsize};

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::throttle::adaptive::{DEFAULT_K, rejection_probability};
use plimsoll_core::{Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};

use crate::findings::Findings;
use crate::kernel::streams::Streams;
use crate::reference::aperture::{FINAGLE_MINIMUM, cover};

/// The examples; each part may be left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Active requests of each backend, for `least-loaded`. Empty for no example.
    pub least_loaded: Vec<u32>,
    /// Points of equation 21-1.
    pub throttle: Vec<Throttle>,
    /// Fleets with backends shared by fractions.
    pub aperture: Vec<Aperture>,
}

/// One point of equation 21-1.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttle {
    /// Names it in metrics; no dots.
    pub name: String,
    /// Requests of the application.
    pub requests: f64,
    /// Requests that the backend accepted, of these.
    pub accepts: f64,
    /// The multiple of the accepted requests that is sent.
    pub k: f64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { name: String::new(), requests: 0.0, accepts: 0.0, k: DEFAULT_K }
    }
}

/// A fleet with backends shared by fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aperture {
    /// Names it in metrics; no dots.
    pub name: String,
    /// Number of clients.
    pub clients: NonZeroU32,
    /// Number of backends.
    pub backends: NonZeroU32,
    /// Smallest number of backends that each client covers.
    pub minimum: NonZeroU32,
}

impl Default for Aperture {
    fn default() -> Self {
        Self { name: String::new(), clients: NonZeroU32::MIN, backends: NonZeroU32::MIN, minimum: FINAGLE_MINIMUM }
    }
}

impl Plan {
    /// The names of the metrics of a run.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        let mut names = Vec::new();
        if !self.least_loaded.is_empty() {
            names.extend(["idle_picked", "twice"].map(|metric| format!("least_loaded.{metric}")));
        }
        names.extend(self.throttle.iter().map(|point| format!("throttle.{}", point.name)));
        for fleet in &self.aperture {
            let metrics = ["least_over_mean", "most_over_mean", "backends", "whole"];
            names.extend(metrics.map(|metric| format!("aperture.{}.{metric}", fleet.name)));
        }
        names
    }

    /// Computes the examples.
    #[must_use]
    pub fn run(&self, seed: u64) -> Findings {
        let mut findings = Findings::default();
        if !self.least_loaded.is_empty() {
            let picks = least_loaded(&self.least_loaded, seed);
            let fewest = self.least_loaded.iter().min().expect("there is one");
            let idle = picks.iter().zip(&self.least_loaded).filter(|(_, active)| *active == fewest);
            findings.metric("least_loaded.idle_picked", idle.map(|(picks, _)| f64::from(*picks)).sum::<f64>());
            findings.metric("least_loaded.twice", picks.iter().filter(|picks| **picks > 1).count() as f64);
            findings.figures.push(figures::least_loaded(&self.least_loaded, &picks));
        }
        for Throttle { name, requests, accepts, k } in &self.throttle {
            findings.metric(format!("throttle.{name}"), rejection_probability(*requests, *accepts, *k));
        }
        findings.figures.extend((!self.throttle.is_empty()).then(|| figures::throttle(&self.throttle)));
        for fleet in &self.aperture {
            fleet.work(&mut findings);
        }
        findings
    }
}

/// Picks of each backend, starting from these active requests. There are as many picks as backends
/// with the fewest requests.
fn least_loaded(active: &[u32], seed: u64) -> Vec<u32> {
    let now = Timestamp::ZERO;
    let mut rng = Streams::new(seed).stream("policy", 0);
    let mut balancer = Balancer::new(BalancerConfig::new(PolicyKind::LeastLoaded));
    let ids: Vec<_> = active.iter().map(|_| balancer.add(now, Weight::ONE, &mut ())).collect();
    ids.iter().for_each(|id| balancer.on_connected(now, *id, &mut ()));
    let place = |id| ids.iter().position(|known| *known == id).expect("a member");
    // All backends get the largest number, then release the surplus.
    let most = active.iter().copied().max().unwrap_or_default() as usize;
    for _ in 0..most * ids.len() {
        let Pick::Backend(_) = balancer.pick(now, &mut rng) else { break };
    }
    for (id, active) in ids.iter().zip(active) {
        for _ in *active as usize..most {
            balancer.finish(now, *id, Completion { outcome: Outcome::Success, latency: None }, &mut ());
        }
    }
    let fewest = active.iter().copied().min().unwrap_or_default();
    let mut picks = vec![0; active.len()];
    for _ in active.iter().filter(|active| **active == fewest) {
        if let Pick::Backend(id) = balancer.pick(now, &mut rng) {
            picks[place(id)] += 1;
        }
    }
    picks
}

impl Aperture {
    fn work(&self, findings: &mut Findings) {
        let backends = NonZeroUsize::try_from(self.backends).expect("32 bits fit").get();
        let clients = self.clients.get();
        let (mut load, mut covered, mut whole) = (vec![0.0; backends], 0, 0);
        let mut first = Vec::new();
        for client in 0..clients {
            let arc = cover(client, self.clients, self.backends, self.minimum);
            // The requests of a client are one unit, divided by coverage.
            let width: f64 = arc.iter().map(|(_, fraction)| fraction).sum();
            arc.iter().for_each(|(backend, fraction)| load[*backend as usize] += fraction / width);
            covered += arc.len();
            whole += arc.iter().filter(|(_, fraction)| *fraction >= 1.0 - 1e-9).count();
            if first.len() < figures::SHOWN_CLIENTS {
                first.push(arc);
            }
        }
        let mean = f64::from(clients) / backends as f64;
        let name = &self.name;
        findings.metric(
            format!("aperture.{name}.least_over_mean"),
            load.iter().copied().fold(f64::INFINITY, f64::min) / mean,
        );
        findings.metric(format!("aperture.{name}.most_over_mean"), load.iter().copied().fold(0.0, f64::max) / mean);
        findings.metric(format!("aperture.{name}.backends"), covered as f64 / f64::from(clients));
        findings.metric(format!("aperture.{name}.whole"), whole as f64 / f64::from(clients));
        findings.figures.push(figures::aperture(self, &first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).expect("not zero")
    }

    #[test]
    fn metric_names_lists_exactly_the_metrics_of_a_run() {
        let plan = Plan {
            least_loaded: vec![2, 1, 0],
            throttle: vec![Throttle { name: "a".to_owned(), requests: 99.0, accepts: 29.0, k: 2.0 }],
            aperture: vec![Aperture {
                name: "b".to_owned(),
                clients: number(3),
                backends: number(7),
                minimum: number(2),
            }],
        };
        let found: Vec<String> = plan.run(1).metrics.into_keys().collect();
        let mut announced = plan.metrics();
        announced.sort_unstable();
        assert_eq!(found, announced);
    }

    #[test]
    fn least_loaded_picks_the_idle_tasks_of_the_book() {
        let picks = least_loaded(&[2, 1, 0, 0, 1, 0, 2, 0, 0, 1], 1);
        assert_eq!(picks, [0, 0, 1, 1, 0, 1, 0, 1, 1, 0]);
    }

    #[test]
    fn aperture_is_exactly_even_by_fractions() {
        let fleet = Aperture { name: "a".to_owned(), clients: number(7), backends: number(10), minimum: number(3) };
        let findings = Plan { aperture: vec![fleet], ..Plan::default() }.run(1);
        for metric in ["least_over_mean", "most_over_mean"] {
            assert!((findings.metrics[&format!("aperture.a.{metric}")] - 1.0).abs() < 1e-9);
        }
    }
}

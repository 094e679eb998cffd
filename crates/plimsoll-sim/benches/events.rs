//! How many events a second the simulator handles on one core.
//!
//! The world is that of the scenario `policy-spread`: 100 clients with subsets of 20 out of 100 unequal backends,
//! heavy-tailed costs, reports with each answer. Each policy runs a few times, and the best counts: what else the
//! machine does only ever takes away.
//!
//! ```text
//! cargo bench -p plimsoll-sim --bench events [-- POLICY...]
//! ```

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use plimsoll_core::pick::{PolicyKind, ProbeSource};
use plimsoll_core::subset::{Algorithm, SubsetConfig};
use plimsoll_core::{BalancerConfig, Ratio};
use plimsoll_sim::experiment::fleet::plan::{
    Antagonist, Arm, Arrivals, BackendGroup, Clients, Cost, Interference, Plan, Rate, Skew, Speed, Usage,
};
use plimsoll_sim::experiment::fleet::run;

const RUNS: usize = 3;
/// Of virtual time: about three million events.
const DURATION: Duration = Duration::from_secs(60);

fn main() {
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    println!("{:<14} {:>12} {:>10}", "policy", "events", "million/s");
    for policy in PolicyKind::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == policy.name()) {
            continue;
        }
        let plan = plan(policy);
        let (mut events, mut best) = (0.0, 0.0_f64);
        for _ in 0..RUNS {
            let begin = Instant::now();
            let findings = run(&plan, 1, &mut |_| ());
            events = findings.metrics[&format!("{policy}.events")];
            best = best.max(events / begin.elapsed().as_secs_f64());
        }
        println!("{:<14} {events:>12.0} {:>10.2}", policy.name(), best / 1e6);
    }
}

fn plan(policy: PolicyKind) -> Plan {
    let hundred = NonZeroU32::new(100).expect("not zero");
    let mut balancer = BalancerConfig::new(policy);
    balancer.prequal.source = ProbeSource::Live;
    let usage = Usage {
        low: Ratio::ZERO,
        high: Ratio::from_percent(20),
        jitter: Ratio::from_percent(5),
        holds: Duration::from_secs(1),
    };
    Plan {
        duration: DURATION,
        warmup: DURATION / 3,
        clients: Clients {
            count: hundred,
            rates: Skew::LogNormal { sigma: 0.5 },
            costs: Skew::LogNormal { sigma: 0.3 },
        },
        arrivals: Arrivals::Open { rate: Rate::OfCapacity(0.6) },
        cost: Cost::BoundedPareto { mean: Duration::from_millis(5), ratio: 1000.0, shape: Cost::DEFAULT_SHAPE },
        backends: vec![BackendGroup {
            count: hundred,
            speed: Speed::Uniform { low: 0.6, high: 1.4 },
            antagonist: Antagonist::Some { usage, interference: Interference::Cores },
            ..BackendGroup::default()
        }],
        arms: vec![Arm {
            name: policy.name().to_owned(),
            balancer,
            subset: Some(SubsetConfig {
                algorithm: Algorithm::Deterministic,
                size: SubsetConfig::DEFAULT_SIZE,
                seed: 0,
            }),
            ..Arm::default()
        }],
        ..Plan::default()
    }
}

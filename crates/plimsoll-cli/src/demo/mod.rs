//! `plimsoll demo`: a whole fleet on this machine, and what a policy does to it.
//!
//! Backends of different speeds, the proxy and load in front of it, each backend and the proxy a real
//! process of this program. First `round-robin`, which gives each the same number of requests; then,
//! by a reload as in production, `weighted`, which gives each the same CPU. The figure to look at is
//! the CPU of the most loaded backend over the mean: what it is above 1 has to be bought as hardware.
//!
//! The load is sized for a machine with two cores: little more than half of one for the backends
//! together, something for the proxy and the load, and the rest for whatever else is going on, since
//! backends that the kernel keeps waiting show the kernel's balancing and not the policy's.

mod child;
mod cpu;
mod fleet;
mod phase;
mod table;

use std::rc::Rc;
use std::time::{Duration, Instant};

use plimsoll_core::pick::PolicyKind;
use serde::Serialize;

use crate::exit::{Outcome, Problem, Verdict};
use crate::load::engine::Engine;
use crate::load::plan::{Arrival, Plan, Protocol, Shape};
use crate::load::target::{self, Target};
use crate::output::{errln, out, outln};
use crate::{process, units};

use fleet::Fleet;
use phase::{Phase, PhaseResult};
use table::Table;

/// The policies shown, one phase each.
const POLICIES: [PolicyKind; 2] = [PolicyKind::RoundRobin, PolicyKind::Weighted];
/// CPU of a request at speed 1, seconds. Long beside the tens of microseconds that HTTP itself costs a
/// backend, which a faster machine would pay in less time and these processes do not.
const COST_SECONDS: f64 = 0.002;
/// Requests differ, as they do everywhere; this much (sigma of the logarithm) still averages out over
/// the some thousand requests that a backend gets in a phase.
const COST_SIGMA: f64 = 0.3;
/// Cores that all backends together use under round-robin.
const CORES_IN_USE: f64 = 0.6;
/// What the slowest backend may use of its one core under round-robin, so that its queue stays short.
const BUSIEST: f64 = 0.5;
/// Between two drawings on a terminal.
const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// Between two lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// Requests without an answer beyond which the fleet has come to a stop.
const MAX_IN_FLIGHT: u32 = 5_000;
/// For one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// More backends than this need more CPU at rest than two cores have to give.
const MAX_BACKENDS: usize = 32;

/// Arguments of `plimsoll demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo                     round-robin, then weighted: half a minute
  plimsoll demo --for 2m --speeds 1,1,1,1,8
  plimsoll demo --for 30s --json    the figures of each phase on stdout")]
pub(crate) struct Args {
    /// How long, both phases together
    #[arg(long = "for", value_name = "D", value_parser = units::positive_duration, default_value = "30s")]
    length: Duration,
    /// Speed of each backend, relative to the others
    #[arg(long, value_name = "F,F,...", value_parser = units::positive, value_delimiter = ',', default_value = "1,1,2,4")]
    speeds: Vec<f64>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// The result. The field is the key of the JSON.
#[derive(Debug, Serialize)]
struct Figures {
    phases: Vec<PhaseResult>,
}

/// Runs the demo to its end.
pub(crate) fn run(args: Args) -> Outcome {
    if args.speeds.len() < 2 || args.speeds.len() > MAX_BACKENDS {
        return Err(Problem::usage(format!("--speeds needs 2 to {MAX_BACKENDS} speeds, separated by commas")));
    }
    process::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let phases = tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        // Whichever branch is dropped ends the processes that it started.
        tokio::select! {
            phases = demonstrate(&args) => phases,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    })?;
    let causes: Vec<String> = phases.iter().flat_map(Phase::causes).collect();
    let phases: Vec<PhaseResult> = phases.iter().map(Phase::result).collect();
    let failed: u64 = phases.iter().map(|phase| phase.failed).sum();
    if args.json {
        outln!("{}", serde_json::to_string(&Figures { phases })?)?;
    } else {
        out!("{}", table::summary(&phases))?;
    }
    if failed > 0 {
        errln!("error: {failed} requests failed: {}", causes.join(", "));
        return Ok(Verdict::Bad);
    }
    Ok(Verdict::Good)
}

/// Requests a second that load the backends as [`CORES_IN_USE`] and [`BUSIEST`] say.
fn rate(speeds: &[f64]) -> f64 {
    let count = speeds.len() as f64;
    let costs = speeds.iter().map(|speed| COST_SECONDS / speed);
    let mean = costs.clone().sum::<f64>() / count;
    let largest = costs.fold(0.0, f64::max);
    (CORES_IN_USE / mean).min(BUSIEST * count / largest)
}

async fn demonstrate(args: &Args) -> anyhow::Result<Vec<Phase>> {
    let cost = format!("lognormal:{}us,{COST_SIGMA}", COST_SECONDS * 1e6);
    let mut fleet = Fleet::start(&args.speeds, &cost, POLICIES[0]).await?;
    let rate = rate(&args.speeds);
    errln!(
        "proxy on http://{}, admin on http://{}, {} backends, {rate:.0} requests/s\n",
        fleet.proxy,
        fleet.admin,
        fleet.members.len()
    );
    let engine = Engine::new(plan(&fleet, rate, args.length)?);
    let load = {
        let engine = Rc::clone(&engine);
        tokio::task::spawn_local(async move { engine.run().await })
    };
    let mut table = Table::new();
    let mut phases: Vec<Phase> = Vec::new();
    for (number, policy) in POLICIES.into_iter().enumerate() {
        if number > 0 {
            fleet.switch(policy)?;
        }
        let length = args.length / u32::try_from(POLICIES.len()).unwrap_or(1);
        let mut phase = Phase::begin(policy, Instant::now(), length, fleet.cpu_used()?);
        play(&mut phase, &mut fleet, &engine, &mut table).await?;
        table.keep()?;
        phases.push(phase);
    }
    // The load ends by itself at about now; what is in flight still belongs to the last phase.
    load.await??;
    if let Some(last) = phases.last_mut() {
        last.note_late(&engine.take_measured());
    }
    fleet.end().await;
    Ok(phases)
}

/// One phase, from its beginning to its end.
async fn play(phase: &mut Phase, fleet: &mut Fleet, engine: &Engine, table: &mut Table) -> anyhow::Result<()> {
    let every = if table.is_live() { REDRAW_EVERY } else { LINE_EVERY };
    let mut now = Instant::now();
    while now < phase.end() {
        let next = (now + every).min(phase.next_border(now));
        tokio::time::sleep_until(next.into()).await;
        fleet.must_run()?;
        now = Instant::now();
        phase.note(now, fleet.cpu_used()?, engine.take_measured());
        table.show(fleet, phase, phase.is_settling(now))?;
    }
    Ok(())
}

fn plan(fleet: &Fleet, rate: f64, length: Duration) -> anyhow::Result<Plan> {
    let target = Target::new(target::Params {
        url: &format!("http://{}/", fleet.proxy),
        protocol: Protocol::Http1,
        method: None,
        path: None,
        headers: &[],
        body_size: 0,
    })
    .map_err(anyhow::Error::msg)?;
    Ok(Plan {
        target,
        protocol: Protocol::Http1,
        shape: Shape::Open { rate, arrival: Arrival::Poisson },
        duration: Some(length),
        requests: None,
        warmup: Duration::ZERO,
        timeout: TIMEOUT,
        max_in_flight: MAX_IN_FLIGHT,
        connections: 10,
        seed: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_fits_the_machine_and_the_slowest_backend() {
        let rate_of = |speeds: &[f64]| {
            let rate = rate(speeds);
            let per_backend = rate / speeds.len() as f64;
            let cores: Vec<f64> = speeds.iter().map(|speed| per_backend * COST_SECONDS / speed).collect();
            (cores.iter().sum::<f64>(), cores.iter().copied().fold(0.0, f64::max))
        };
        for speeds in [&[1.0, 1.0, 2.0, 4.0][..], &[1.0, 100.0], &[0.1; 8]] {
            let (total, busiest) = rate_of(speeds);
            assert!(total <= CORES_IN_USE + 1e-9 && busiest <= BUSIEST + 1e-9, "{total} {busiest}");
        }
        assert!((rate_of(&[1.0, 1.0, 2.0, 4.0]).0 - CORES_IN_USE).abs() < 1e-9);
    }
}

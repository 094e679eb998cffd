//! The acts of the demo: their processes, their load and their stages.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::fleet::Fleet;
use super::phase::{Phase, PhaseResult};
use super::stage::Stage;
use super::table::Table;
use crate::browser::Page;
use crate::load::engine::Engine;
use crate::load::mix::{Mix, Parts};
use crate::load::plan::{Arrival, Plan, Protocol, Shape};
use crate::load::target::{self, Target};
use crate::output::errln;

/// CPU of a request at speed 1 in the balancing act, seconds. Long beside the tens of microseconds
/// of HTTP itself, which all backends pay alike.
const BALANCE_COST: f64 = 0.002;
/// Requests differ, as in production; this much (sigma of the logarithm) still averages out over
/// the thousands of requests of a phase.
const COST_SIGMA: f64 = 0.3;
/// Cores that all backends together use under round-robin.
const CORES_IN_USE: f64 = 0.6;
/// Largest share of its one core that the slowest backend uses under round-robin, so that its queue
/// stays short.
const MAX_BUSY: f64 = 0.5;
/// CPU of a request in the overload act, seconds. Few and expensive requests, so that the proxy and
/// the load need little of a machine with two cores.
const OVERLOAD_COST: f64 = 0.005;
/// The load of the overload act over the measured capacity.
const OVERLOAD: f64 = 3.0;
/// Parts of the requests by criticality, in percent. The first two need 90% of the capacity.
const CRITICALITIES: &str = "critical-plus=10,critical=20,sheddable-plus=30,sheddable=40";
/// A response is of use for this long.
const USEFUL_WITHIN: Duration = Duration::from_millis(500);
/// Users of the overload act abandon a request after this long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Length of the measurement of the capacity.
const CALIBRATION: Duration = Duration::from_secs(1);
/// Callers during that measurement: enough to keep one core busy.
const CALIBRATION_CALLERS: u32 = 4;
/// Fewest CPUs that the file names.
const MIN_CPUS: f64 = 0.05;
/// For one response in the balancing act.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests in flight beyond which the fleet is stuck.
const MAX_IN_FLIGHT: u32 = 5_000;

/// The balancing act: uneven backends under `round-robin`, then under `weighted`.
pub(super) async fn balance(
    speeds: &[f64],
    length: Duration,
    table: &mut Table,
    page: &Page,
) -> anyhow::Result<Vec<Phase>> {
    even(speeds, [Stage::RoundRobin, Stage::Weighted], length, table, page).await
}

/// The restarts: four equal backends, first steady, then restarted one after the other.
pub(super) async fn restarts(length: Duration, table: &mut Table, page: &Page) -> anyhow::Result<Vec<Phase>> {
    even(&[1.0; 4], [Stage::Steady, Stage::Restarts], length, table, page).await
}

/// An act of backends that serve all requests.
async fn even(
    speeds: &[f64],
    stages: [Stage; 2],
    length: Duration,
    table: &mut Table,
    page: &Page,
) -> anyhow::Result<Vec<Phase>> {
    let mut fleet = Fleet::start(speeds, &cost(BALANCE_COST), stages[0], page.admin()).await?;
    let rate = balance_rate(speeds);
    announce(&fleet, page, &format!("{} backends, {rate:.0} requests/s", fleet.members.len()));
    let shape = Shape::Open { rate, arrival: Arrival::Poisson };
    let engine = Engine::new(plan(&fleet, shape, length * 2, TIMEOUT, Mix::default())?);
    let phases = run(&mut fleet, stages, length, &engine, table).await?;
    fleet.end().await;
    Ok(phases)
}

/// The overload act: one service gets three times its capacity, first unprotected, then protected.
pub(super) async fn overload(length: Duration, table: &mut Table, page: &Page) -> anyhow::Result<Vec<PhaseResult>> {
    let mut fleet = Fleet::start(&[1.0], &cost(OVERLOAD_COST), Stage::OverloadUnprotected, page.admin()).await?;
    let capacity = capacity(&fleet).await?;
    // On a machine with other work the service gets less than a core, and the proxy has to know.
    fleet.set_cpus((capacity * OVERLOAD_COST).clamp(MIN_CPUS, 1.0));
    fleet.switch(Stage::OverloadUnprotected)?;
    let rate = OVERLOAD * capacity;
    announce(&fleet, page, &format!("one service of {capacity:.0} requests/s, {rate:.0} requests/s sent"));
    let stages = [Stage::OverloadUnprotected, Stage::Overload];
    let parts = Parts::of_criticalities(CRITICALITIES).map_err(anyhow::Error::msg)?;
    let names: Vec<String> = parts.names().collect();
    table.set_criticalities(&names);
    let mix = Mix { criticalities: Some(parts), useful_within: Some(USEFUL_WITHIN), ..Mix::default() };
    let shape = Shape::Open { rate, arrival: Arrival::Poisson };
    let engine = Engine::new(plan(&fleet, shape, length * 2, PATIENCE, mix)?);
    let phases = run(&mut fleet, stages, length, &engine, table).await?;
    fleet.end().await;
    Ok(phases.iter().map(|phase| PhaseResult::Overload(phase.overload(&names, capacity, rate))).collect())
}

/// Runs the stages under one load.
async fn run(
    fleet: &mut Fleet,
    stages: [Stage; 2],
    length: Duration,
    engine: &Rc<Engine>,
    table: &mut Table,
) -> anyhow::Result<Vec<Phase>> {
    let load = {
        let engine = Rc::clone(engine);
        tokio::task::spawn_local(async move { engine.run().await })
    };
    let mut phases: Vec<Phase> = Vec::new();
    for (number, stage) in stages.into_iter().enumerate() {
        if number > 0 {
            fleet.switch(stage)?;
        }
        let mut phase = Phase::begin(stage, Instant::now(), length, fleet.cpu_used()?);
        play(&mut phase, fleet, engine, table).await?;
        table.keep()?;
        phases.push(phase);
    }
    // The load ends about now. Requests in flight still belong to the last phase.
    load.await??;
    if let Some(last) = phases.last_mut() {
        last.note_late(&engine.take_measured());
    }
    Ok(phases)
}

/// One phase, from its beginning to its end.
async fn play(phase: &mut Phase, fleet: &mut Fleet, engine: &Engine, table: &mut Table) -> anyhow::Result<()> {
    let every = table.interval();
    let mut now = Instant::now();
    let mut restarted = 0;
    while now < phase.end() {
        if phase.stage() == Stage::Restarts
            && restarted < fleet.members.len()
            && phase.share(now) >= restart_at(restarted, fleet.members.len())
        {
            fleet.restart(restarted).await?;
            restarted += 1;
        }
        let next = (now + every).min(phase.next_border(now));
        tokio::time::sleep_until(next.into()).await;
        fleet.must_run()?;
        now = Instant::now();
        phase.note(now, fleet.cpu_used()?, engine.take_measured());
        table.show(fleet, phase, phase.is_settling(now))?;
    }
    Ok(())
}

/// The share of a stage after which this one of `count` backends restarts: evenly, with time before
/// the first one and after the last.
fn restart_at(number: usize, count: usize) -> f64 {
    (number + 1) as f64 / (count + 2) as f64
}

/// Requests a second that the service can serve on this machine now.
async fn capacity(fleet: &Fleet) -> anyhow::Result<f64> {
    let shape = Shape::Closed { concurrency: CALIBRATION_CALLERS };
    let engine = Engine::new(plan(fleet, shape, CALIBRATION, TIMEOUT, Mix::default())?);
    engine.run().await?;
    // At least one, for a machine so busy that none was served in time.
    Ok(engine.take_measured().rate().max(1.0))
}

fn announce(fleet: &Fleet, page: &Page, text: &str) {
    page.show();
    errln!("proxy on http://{}, admin on http://{}\n{text}\n", fleet.proxy, fleet.admin);
}

/// A distribution of cost with this mean, seconds.
fn cost(mean: f64) -> String {
    format!("lognormal:{}us,{COST_SIGMA}", mean * 1e6)
}

/// Requests a second that load the backends as [`CORES_IN_USE`] and [`MAX_BUSY`] allow.
fn balance_rate(speeds: &[f64]) -> f64 {
    let count = speeds.len() as f64;
    let costs = speeds.iter().map(|speed| BALANCE_COST / speed);
    let mean = costs.clone().sum::<f64>() / count;
    let largest = costs.fold(0.0, f64::max);
    (CORES_IN_USE / mean).min(MAX_BUSY * count / largest)
}

fn plan(fleet: &Fleet, shape: Shape, duration: Duration, timeout: Duration, mix: Mix) -> anyhow::Result<Plan> {
    let target = Target::new(target::Params {
        url: &format!("http://{}/", fleet.proxy),
        protocol: Protocol::Http1,
        method: None,
        path: None,
        headers: &[],
        body_size: 0,
    })
    .and_then(|target| target.with_mix(mix))
    .map_err(anyhow::Error::msg)?;
    Ok(Plan {
        target,
        protocol: Protocol::Http1,
        shape,
        duration: Some(duration),
        requests: None,
        warmup: Duration::ZERO,
        timeout,
        max_in_flight: MAX_IN_FLIGHT,
        connections: 10,
        spread: None,
        seed: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_fits_the_machine_and_the_slowest_backend() {
        let rate_of = |speeds: &[f64]| {
            let rate = balance_rate(speeds);
            let per_backend = rate / speeds.len() as f64;
            let cores: Vec<f64> = speeds.iter().map(|speed| per_backend * BALANCE_COST / speed).collect();
            (cores.iter().sum::<f64>(), cores.iter().copied().fold(0.0, f64::max))
        };
        for speeds in [&[1.0, 1.0, 2.0, 4.0][..], &[1.0, 100.0], &[0.1; 8]] {
            let (total, busiest) = rate_of(speeds);
            assert!(total <= CORES_IN_USE + 1e-9 && busiest <= MAX_BUSY + 1e-9, "{total} {busiest}");
        }
        assert!((rate_of(&[1.0, 1.0, 2.0, 4.0]).0 - CORES_IN_USE).abs() < 1e-9);
    }
}

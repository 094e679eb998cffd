//! `plimsoll demo`: a whole fleet on this machine, in one of two scenes.
//!
//! The scene `quota` has a module of its own. The scene `fleet` has two acts.
//!
//! *Balancing*: backends of different speeds behind a proxy. First `round-robin`, which gives each the
//! same number of requests; then, by a reload as in production, `weighted`, which gives each the
//! same CPU load. The figure is the CPU of the most loaded backend over the mean: the part above 1
//! has to be bought as hardware.
//!
//! *Overload*: one service gets three times the requests that it can serve, of four criticalities.
//! First they are served in their order; then, by a reload, the proxy sheds the least important. The
//! figure is the share of the most important requests that is answered in time.
//!
//! Each backend and the proxy is a real process of this program. The loads are sized for a machine
//! with two cores: backends that the kernel keeps waiting would show the kernel's scheduling. The
//! capacity of the service is measured first, so that three times is three times on any machine.

mod act;
mod child;
mod cpu;
mod fleet;
mod phase;
mod quota;
mod screen;
mod stage;
mod table;

use std::time::Duration;

use serde::Serialize;

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, out, outln};
use crate::{process, units};

use phase::{Phase, PhaseResult};
use screen::Screen;
use stage::Stage;
use table::Table;

/// More backends than this need more CPU at rest than two cores have to give.
const MAX_BACKENDS: usize = 32;
/// Speeds of the backends of the balancing act.
const DEFAULT_SPEEDS: [f64; 4] = [1.0, 1.0, 2.0, 4.0];
/// Length of the scene `fleet`.
const DEFAULT_LENGTH: Duration = Duration::from_secs(45);

/// Arguments of `plimsoll demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo                     balancing, then overload: 45 seconds
  plimsoll demo --for 2m --speeds 1,1,1,1,8
  plimsoll demo --scene quota       limits of customers over eight backends
  plimsoll demo --for 45s --json    the figures of each phase on stdout")]
pub(crate) struct Args {
    /// Scene to show
    #[arg(long, value_enum, value_name = "SCENE", default_value_t)]
    scene: Scene,
    /// Length of all four phases together [default: 45s; of the scene quota 32s]
    #[arg(long = "for", value_name = "D", value_parser = units::positive_duration)]
    length: Option<Duration>,
    /// Speed of each backend of the balancing act, relative to the others [default: 1,1,2,4]
    #[arg(long, value_name = "F,F,...", value_parser = units::speed, value_delimiter = ',')]
    speeds: Option<Vec<f64>>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// A scene of the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Scene {
    /// Balancing over unequal backends, then an overload
    #[default]
    Fleet,
    /// Limits of four customers over eight backends; one customer exceeds its limit
    Quota,
}

/// The result. The field is the key of the JSON.
#[derive(Debug, Serialize)]
struct Figures<T> {
    phases: Vec<T>,
}

/// Runs the demo to its end.
pub(crate) fn run(args: Args) -> Outcome {
    match args.scene {
        Scene::Fleet => run_fleet(&args),
        Scene::Quota => run_quota(&args),
    }
}

fn run_fleet(args: &Args) -> Outcome {
    let speeds = args.speeds.as_deref().unwrap_or(&DEFAULT_SPEEDS);
    if speeds.len() < 2 || speeds.len() > MAX_BACKENDS {
        return Err(Problem::usage(format!("--speeds needs 2 to {MAX_BACKENDS} speeds, separated by commas")));
    }
    let length = args.length.unwrap_or(DEFAULT_LENGTH);
    let (balance, overload) = until_signal(demonstrate(speeds, length))?;
    let causes: Vec<String> = balance.iter().flat_map(Phase::causes).collect();
    let failed: u64 = balance.iter().map(Phase::failed).sum();
    let mut phases: Vec<PhaseResult> = balance.iter().map(|phase| PhaseResult::Balance(phase.balance())).collect();
    phases.extend(overload);
    print(args.json, phases, table::summary)?;
    if failed > 0 {
        errln!("error: {failed} requests of the balancing act failed: {}", causes.join(", "));
        return Ok(Verdict::Bad);
    }
    Ok(Verdict::Good)
}

async fn demonstrate(speeds: &[f64], length: Duration) -> anyhow::Result<(Vec<Phase>, Vec<PhaseResult>)> {
    let length = length / u32::try_from(Stage::ALL.len()).unwrap_or(1);
    let mut table = Table::new(Screen::new());
    let balance = act::balance(speeds, length, &mut table).await?;
    let overload = act::overload(length, &mut table).await?;
    Ok((balance, overload))
}

fn run_quota(args: &Args) -> Outcome {
    if args.speeds.is_some() {
        return Err(Problem::usage("--speeds has no effect with --scene quota\n  help: leave out one of them"));
    }
    let length = args.length.unwrap_or(quota::DEFAULT_LENGTH);
    let phases = until_signal(quota::run(length, &mut Screen::new()))?;
    let failed: u64 = phases.iter().map(|phase| phase.failed).sum();
    print(args.json, phases, quota::summary)?;
    if failed > 0 {
        errln!("error: {failed} requests failed that no limit refused");
        return Ok(Verdict::Bad);
    }
    Ok(Verdict::Good)
}

/// Runs a scene, unless a signal ends it before.
fn until_signal<T>(scene: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    process::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        // Dropping a branch ends the processes that it started.
        tokio::select! {
            ended = scene => ended,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    })
}

/// Prints the result on stdout.
fn print<T: Serialize>(is_json: bool, phases: Vec<T>, summary: impl Fn(&[T]) -> String) -> anyhow::Result<()> {
    if is_json { outln!("{}", serde_json::to_string(&Figures { phases })?) } else { out!("{}", summary(&phases)) }
}

//! `plimsoll demo`: a whole fleet on this machine, in one of several scenes.
//!
//! The scene `quota` has a module of its own. The scene `fleet` has two acts, which are scenes of their
//! own too; the scene `restart` is a third. The live page of the proxy shows all of them; its address
//! stays the same over a scene.
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
//! *Restarts*: a deployment restarts one backend after the other, and no request fails.
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

use crate::browser::Browser;
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
/// Length of a stage.
const DEFAULT_STAGE: Duration = Duration::from_millis(11_250);

/// Arguments of `plimsoll demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo                     balancing, then overload: 45 seconds
  plimsoll demo --scene restart     a deployment restarts the backends
  plimsoll demo --for 2m --speeds 1,1,1,1,8
  plimsoll demo --scene quota       limits of customers over eight backends
  plimsoll demo --for 45s --json    the figures of each phase on stdout")]
pub(crate) struct Args {
    /// Scene to show
    #[arg(long, value_enum, value_name = "SCENE", default_value_t)]
    scene: Scene,
    /// Length of the scene [default: 45s for fleet, 32s for quota, else 22s]
    #[arg(long = "for", value_name = "D", value_parser = units::positive_duration)]
    length: Option<Duration>,
    /// Speed of each backend of the balancing act, relative to the others [default: 1,1,2,4]
    #[arg(long, value_name = "F,F,...", value_parser = units::speed, value_delimiter = ',')]
    speeds: Option<Vec<f64>>,
    /// Do not open the live page in a browser
    #[arg(long)]
    no_open: bool,
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
    /// Balancing over unequal backends
    Balance,
    /// One service gets three times its capacity
    Overload,
    /// One backend after the other restarts under load
    Restart,
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
    let browser = Browser::new(args.no_open);
    match args.scene {
        Scene::Quota => run_quota(&args, browser),
        _ => run_fleet(&args, browser),
    }
}

impl Scene {
    /// The stages of a scene with a proxy.
    fn stages(self) -> Vec<Stage> {
        let balance = [Stage::RoundRobin, Stage::Weighted];
        let overload = [Stage::OverloadUnprotected, Stage::Overload];
        match self {
            Self::Fleet => [balance, overload].concat(),
            Self::Balance => balance.to_vec(),
            Self::Overload => overload.to_vec(),
            Self::Restart => vec![Stage::Steady, Stage::Restarts],
            Self::Quota => Vec::new(),
        }
    }
}

fn run_fleet(args: &Args, browser: Browser) -> Outcome {
    let has_speeds = matches!(args.scene, Scene::Fleet | Scene::Balance);
    if args.speeds.is_some() && !has_speeds {
        return Err(Problem::usage("--speeds has an effect with --scene fleet and balance only\n  help: leave it out"));
    }
    let speeds = args.speeds.as_deref().unwrap_or(&DEFAULT_SPEEDS);
    if speeds.len() < 2 || speeds.len() > MAX_BACKENDS {
        return Err(Problem::usage(format!("--speeds needs 2 to {MAX_BACKENDS} speeds, separated by commas")));
    }
    let (even, overload) = until_signal(demonstrate(args.scene, speeds, args.length, browser))?;
    let causes: Vec<String> = even.iter().flat_map(Phase::causes).collect();
    let failed: u64 = even.iter().map(Phase::failed).sum();
    let mut phases: Vec<PhaseResult> = even.iter().map(|phase| PhaseResult::Balance(phase.balance())).collect();
    phases.extend(overload);
    print(args.json, phases, table::summary)?;
    if failed > 0 {
        errln!("error: {failed} requests failed that no backend should have lost: {}", causes.join(", "));
        return Ok(Verdict::Bad);
    }
    Ok(Verdict::Good)
}

/// Returns the phases of acts in which all requests are served, and those of the overload.
async fn demonstrate(
    scene: Scene,
    speeds: &[f64],
    length: Option<Duration>,
    browser: Browser,
) -> anyhow::Result<(Vec<Phase>, Vec<PhaseResult>)> {
    let stages = scene.stages();
    let count = u32::try_from(stages.len()).unwrap_or(1);
    let length = length.map_or(DEFAULT_STAGE, |length| length / count);
    let mut table = Table::new(Screen::new(), stages);
    let page = browser.page(fleet::free_address()?);
    let mut even = Vec::new();
    if matches!(scene, Scene::Fleet | Scene::Balance) {
        even = act::balance(speeds, length, &mut table, &page).await?;
    }
    if scene == Scene::Restart {
        even = act::restarts(length, &mut table, &page).await?;
    }
    let mut overload = Vec::new();
    if matches!(scene, Scene::Fleet | Scene::Overload) {
        overload = act::overload(length, &mut table, &page).await?;
    }
    Ok((even, overload))
}

fn run_quota(args: &Args, browser: Browser) -> Outcome {
    if args.speeds.is_some() {
        return Err(Problem::usage("--speeds has no effect with --scene quota\n  help: leave out one of them"));
    }
    let length = args.length.unwrap_or(quota::DEFAULT_LENGTH);
    let phases = until_signal(quota::run(length, &mut Screen::new(), browser))?;
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

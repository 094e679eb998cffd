//! `plimsoll demo`: a whole fleet on this machine, in two acts.
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
mod stage;
mod table;

use std::time::Duration;

use serde::Serialize;

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, out, outln};
use crate::{process, units};

use phase::{Phase, PhaseResult};
use stage::Stage;
use table::Table;

/// More backends than this need more CPU at rest than two cores have to give.
const MAX_BACKENDS: usize = 32;

/// Arguments of `plimsoll demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo                     balancing, then overload: 45 seconds
  plimsoll demo --for 2m --speeds 1,1,1,1,8
  plimsoll demo --for 45s --json    the figures of each phase on stdout")]
pub(crate) struct Args {
    /// Length of all four phases together
    #[arg(long = "for", value_name = "D", value_parser = units::positive_duration, default_value = "45s")]
    length: Duration,
    /// Speed of each backend of the balancing act, relative to the others
    #[arg(long, value_name = "F,F,...", value_parser = units::speed, value_delimiter = ',', default_value = "1,1,2,4")]
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
    let (balance, overload) = tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        // Dropping a branch ends the processes that it started.
        tokio::select! {
            phases = demonstrate(&args) => phases,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    })?;
    let causes: Vec<String> = balance.iter().flat_map(Phase::causes).collect();
    let failed: u64 = balance.iter().map(Phase::failed).sum();
    let mut phases: Vec<PhaseResult> = balance.iter().map(|phase| PhaseResult::Balance(phase.balance())).collect();
    phases.extend(overload);
    if args.json {
        outln!("{}", serde_json::to_string(&Figures { phases })?)?;
    } else {
        out!("{}", table::summary(&phases))?;
    }
    if failed > 0 {
        errln!("error: {failed} requests of the balancing act failed: {}", causes.join(", "));
        return Ok(Verdict::Bad);
    }
    Ok(Verdict::Good)
}

async fn demonstrate(args: &Args) -> anyhow::Result<(Vec<Phase>, Vec<PhaseResult>)> {
    let length = args.length / u32::try_from(Stage::ALL.len()).unwrap_or(1);
    let mut table = Table::new();
    let balance = act::balance(&args.speeds, length, &mut table).await?;
    let overload = act::overload(length, &mut table).await?;
    Ok((balance, overload))
}

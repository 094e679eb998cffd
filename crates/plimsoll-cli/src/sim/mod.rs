//! `plimsoll sim`: scenarios in virtual time, those that come with the binary and the user's own.

mod bar;
mod list;
mod report;
mod scenarios;
mod single;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use plimsoll_sim::run::MOST_THREADS;
use plimsoll_sim::scenario::{MOST_SEEDS, Scenario};

use crate::exit::{Outcome, Verdict};
use crate::output::outln;

/// Arguments of `plimsoll sim`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  plimsoll sim list                              what there is
  plimsoll sim run two-speeds                    metrics and checks
  plimsoll sim run mine.toml --seeds 10          one of your own, ten times
  plimsoll sim run two-speeds --json             the same as JSON
  plimsoll sim check mine.toml                   all that is wrong with it
  plimsoll sim report --out report               every figure on one page

A run exits with 1 when a check fails; the page has each figure beside what the source says. A run depends on its \
file and seed alone: the same bytes come out on any number of threads."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The scenarios that come with the binary
    List(list::Args),
    /// Run one scenario: its metrics, and whether they are as expected
    Run(single::Args),
    /// Run scenarios and put their figures on one page, beside what was published
    Report(report::Args),
    /// All problems of a scenario of your own at once, each with its place and a hint
    Check(CheckArgs),
}

/// How scenarios are run.
#[derive(Clone, Debug, clap::Args)]
struct Running {
    /// One run with this seed, in place of the scenario's seeds
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs with the seeds 1 to N, at most 10000, in place of the scenario's seeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS as u64))]
    seeds: Option<u64>,
    /// Threads, each of which runs one seed at a time [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl Running {
    /// The scenario with the seeds that are asked for.
    fn seeded(&self, scenario: Scenario) -> Scenario {
        match (self.seed, self.seeds) {
            (Some(seed), _) => scenario.with_seeds(vec![seed]),
            (None, Some(seeds)) => scenario.with_seeds((1..=seeds).collect()),
            (None, None) => scenario,
        }
    }

    fn threads(&self) -> NonZeroUsize {
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(MOST_THREADS);
        self.threads.unwrap_or_else(cores)
    }
}

/// Arguments of `plimsoll sim check`.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Run(args) => single::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Check(args) => check(&args),
    }
}

fn check(args: &CheckArgs) -> Outcome {
    match Scenario::load(&args.file) {
        Ok(scenario) => {
            let (seeds, checks) = (scenario.seeds.len(), scenario.checks.len());
            outln!("{}: ok (scenario: {}, seeds: {seeds}, checks: {checks})", args.file.display(), scenario.name)?;
            Ok(Verdict::Good)
        }
        Err(error) => Ok(scenarios::tell(&error)),
    }
}

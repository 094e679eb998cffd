//! `plimsoll sim`: built-in scenarios and the user's own, in virtual time.

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
  plimsoll sim list                              the built-in scenarios
  plimsoll sim run two-speeds                    results and checks
  plimsoll sim run two-speeds --all              every metric with its unit
  plimsoll sim run mine.toml --seeds 10          your own file, with ten seeds
  plimsoll sim run two-speeds --json             every metric as JSON
  plimsoll sim check mine.toml                   all problems of a file at once
  plimsoll sim report --out report               results and figures on a page

A run exits with 1 when a check fails. A run depends on its file and its seed alone: the same bytes come out on any \
number of threads."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the built-in scenarios
    List(list::Args),
    /// Run one scenario: results by phase and arm, and whether its checks hold
    Run(single::Args),
    /// Run scenarios and write one page with their results, figures and sources
    Report(report::Args),
    /// Check a scenario file: all problems at once, each with its place and a hint
    Check(CheckArgs),
}

/// How scenarios are run.
#[derive(Clone, Debug, clap::Args)]
struct Running {
    /// Run once with this seed instead of the scenario's seeds
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run with the seeds 1 to N (at most 10000) instead of the scenario's seeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS as u64))]
    seeds: Option<u64>,
    /// Number of threads; each runs one seed at a time [default: one per core]
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

    /// The shell command that runs the scenario again with the same seeds: `named` is the argument that named it.
    fn command(&self, named: &str) -> String {
        // A file whose name begins like an option is named by its folder.
        let path = if named.starts_with('-') { format!("./{named}") } else { named.to_owned() };
        let argument = shlex::try_quote(&path).expect("an argument of a process contains no NUL");
        let seeds = match (self.seed, self.seeds) {
            (Some(seed), _) => format!(" --seed {seed}"),
            (None, Some(seeds)) => format!(" --seeds {seeds}"),
            (None, None) => String::new(),
        };
        format!("plimsoll sim run {argument}{seeds}")
    }

    fn threads(&self) -> NonZeroUsize {
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(MOST_THREADS);
        self.threads.unwrap_or_else(cores)
    }
}

/// Arguments of `plimsoll sim check`.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// The scenario file
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

#[cfg(test)]
mod tests {
    use super::*;

    fn running(seed: Option<u64>, seeds: Option<u64>) -> Running {
        Running { seed, seeds, threads: None }
    }

    #[test]
    fn command_of_a_report_quotes_the_path_and_repeats_the_seeds() {
        let plain = running(None, None);
        assert_eq!(plain.command("two-speeds"), "plimsoll sim run two-speeds");
        assert_eq!(plain.command("a dir/it's.toml"), "plimsoll sim run \"a dir/it's.toml\"");
        assert_eq!(plain.command("-x.toml"), "plimsoll sim run ./-x.toml");
        assert_eq!(running(Some(7), None).command("x.toml"), "plimsoll sim run x.toml --seed 7");
        assert_eq!(running(None, Some(3)).command("$x.toml"), "plimsoll sim run '$x.toml' --seeds 3");
    }
}

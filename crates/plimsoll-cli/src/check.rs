//! `plimsoll check`: all problems of a config at once, each with its place and what to do about it.
//!
//! Says the same wherever it is run: it reads the file and asks neither the network nor the machine.

use std::path::PathBuf;

use plimsoll_proxy::config::Config;

use crate::exit::{Outcome, Verdict};

/// Arguments of `plimsoll check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll check -c plimsoll.toml           say all that is wrong; exit 1 if anything is
  plimsoll check -c plimsoll.toml --print   the effective config, with every default")]
pub(crate) struct Args {
    /// The config to check
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print the effective config with every default, as TOML, on stdout
    #[arg(long)]
    print: bool,
}

/// Checks the config.
pub(crate) fn run(args: Args) -> Outcome {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            let count = error.problems().len();
            eprintln!("\n{count} {}", if count == 1 { "problem" } else { "problems" });
            return Ok(Verdict::Bad);
        }
    };
    if args.print {
        print!("{}", config.print());
    } else {
        println!(
            "{}: ok (listeners: {}, routes: {}, clusters: {})",
            args.config.display(),
            config.listeners().len(),
            config.routes().len(),
            config.clusters().len(),
        );
    }
    Ok(Verdict::Good)
}

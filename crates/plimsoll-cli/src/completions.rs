//! `plimsoll completions SHELL`: the completions of a shell, on stdout.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Outcome, Verdict};
use crate::output::out;

/// Arguments of `plimsoll completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(plimsoll completions bash)   a line for ~/.bashrc
  plimsoll completions zsh > ~/.zfunc/_plimsoll
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
pub(crate) struct Args {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the completions.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "plimsoll", &mut script);
    out!("{}", String::from_utf8_lossy(&script))?;
    Ok(Verdict::Good)
}

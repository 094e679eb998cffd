//! `plimsoll man --out DIR`: the manual pages, one of each command, from the same parser as `--help`.
//!
//! The binary writes them itself, so that a package needs no further program, and its pages cannot be those of another
//! version.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

use crate::exit::{Outcome, Verdict};
use crate::output::outln;

/// The program and its version, at the foot of each page.
const SOURCE: &str = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));

/// Arguments of `plimsoll man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll man --out target/man && man target/man/plimsoll.1")]
pub(crate) struct Args {
    /// Folder for the pages; made if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes the pages of `command` and of all commands below it, and prints their names.
pub(crate) fn run(args: &Args, command: Command) -> Outcome {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    for (name, page) in pages(command) {
        let file = args.out.join(name);
        write(&file, &page)?;
        outln!("{}", file.display())?;
    }
    Ok(Verdict::Good)
}

fn write(file: &Path, page: &[u8]) -> anyhow::Result<()> {
    fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

/// Every page with the name of its file, the first one that of the program.
fn pages(command: Command) -> Vec<(String, Vec<u8>)> {
    // `help` repeats every command; `--help` and the pages themselves are that help.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut found = Vec::new();
    collect(&command, &mut found);
    found
}

fn collect(command: &Command, found: &mut Vec<(String, Vec<u8>)>) {
    let page = Man::new(command.clone()).source(SOURCE);
    let mut text = Vec::new();
    page.render(&mut text).expect("a vector takes every byte");
    found.push((page.get_filename(), text));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        collect(subcommand, found);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn text(name: &str) -> String {
        let page = pages(Cli::command()).into_iter().find(|page| page.0 == name);
        String::from_utf8(page.unwrap_or_else(|| panic!("no page {name}")).1).unwrap()
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let proxy = text("plimsoll-proxy.1");
        assert!(proxy.contains(r"\-\-pid\-file"), "{proxy}");
        assert!(proxy.contains("Examples:"), "{proxy}");
        assert!(text("plimsoll.1").contains("plimsoll\\-proxy(1)"));
        text("plimsoll-sim-run.1");
        assert!(pages(Cli::command()).iter().all(|page| !page.0.contains("help")));
    }

    #[test]
    fn pages_hold_no_date_so_that_builds_can_be_compared() {
        assert_eq!(pages(Cli::command()), pages(Cli::command()));
        let page = text("plimsoll-sim-run.1");
        let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert_eq!(title, format!(".TH plimsoll-sim-run 1  \"{SOURCE}\" "));
    }
}

//! The binary `plimsoll`: reads the command line, runs one command, turns its result into an exit code.
//!
//! Every command lives in its own module and has the same shape: `Args` is what clap read (raw), a
//! plan built from it is what was checked (no invalid value can be in it), and `run` does the work.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod answer;
mod backend;
mod browser;
mod check;
mod cli;
mod completions;
mod control;
mod demo;
mod etcd_args;
mod exit;
mod explain;
mod fleet;
mod load;
mod log;
mod man;
mod output;
mod page;
mod probe_keys;
mod process;
mod proxy;
mod quota;
mod register;
mod signals;
mod sim;
mod tap;
mod tls_files;
mod top;
mod units;
mod watched;
mod words;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::parse();
    let log = match log::start() {
        Ok(log) => log,
        Err(error) => return exit::code(Err(anyhow::Error::new(error).context("cannot start a thread").into())),
    };
    let outcome = cli::run(cli);
    // What was logged comes before what stopped the command.
    drop(log);
    exit::code(outcome)
}

//! Decides the commands there are, and hands each its arguments.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::Outcome;
use crate::{
    answer, backend, check, completions, control, demo, explain, load, man, page, proxy, quota, register, sim, tap, top,
};

/// Load balancing and overload protection: a proxy, and the tools to try, test and plan it.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  plimsoll demo                 a whole fleet on this machine
  plimsoll proxy --from :8080 --to 127.0.0.1:8081 --to 127.0.0.1:8082
  plimsoll proxy -c plimsoll.toml
  plimsoll check -c plimsoll.toml
  plimsoll reload
  plimsoll status
  plimsoll top
  plimsoll explain
  plimsoll sim list

Exit codes: 0 ok, 1 the checked item is bad or the command failed, 2 usage or no such proxy.
Logs go to stderr; RUST_LOG sets the log level (default: info)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole fleet on this machine: uneven backends, the proxy, load, and a live table
    Demo(demo::Args),
    /// Run the proxy: listeners in front, clusters of backends behind
    Proxy(proxy::Args),
    /// Check a config: all problems at once, each with its place and its help
    Check(check::Args),
    /// Have a running proxy read its config again, and report the outcome
    Reload(control::ReloadArgs),
    /// Replace the binary of a running proxy without losing a connection
    Upgrade(control::UpgradeArgs),
    /// Have a running proxy finish its requests and end, or take one backend out of use
    Drain(control::DrainArgs),
    /// Let requests go to a drained backend again
    Undrain(control::UndrainArgs),
    /// Status of a running proxy: version, listeners, clusters, last reload
    Status(control::StatusArgs),
    /// Watch a running proxy, or several: verdict, load, backends, customers, as they change
    Top(top::Args),
    /// Serve one live page for a fleet of several proxies
    Page(page::Args),
    /// Print refusals as they happen, each with its reason
    Tap(tap::Args),
    /// Share the CPU limits of customers among all tasks of a service
    Quota(quota::Args),
    /// Explain why a request was shed, failed, was retried, or went to its backend
    Explain(explain::Args),
    /// Run a synthetic HTTP/1, HTTP/2 and gRPC server with a settable cost, for trials and tests
    Backend(backend::Args),
    /// Answer probes by UDP for any process: its state, its lame duck, its load
    Answer(answer::Args),
    /// Keep a process in the fleet's registry in etcd, in any language
    Register(Box<register::Args>),
    /// Send open-loop or closed-loop load; its latency is free of coordinated omission
    Load(load::Args),
    /// Simulate in virtual time: the shipped code against simulated clients, networks and backends
    Sim(sim::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Write the manual pages into a folder
    Man(man::Args),
}

/// Reads the command line. Leaves the process on `--help`, `--version` and on a usage error.
pub(crate) fn parse() -> Cli {
    Cli::parse()
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli) -> Outcome {
    match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Check(args) => check::run(args),
        Command::Reload(args) => control::reload(&args),
        Command::Upgrade(args) => control::upgrade(&args),
        Command::Drain(args) => control::drain(&args),
        Command::Undrain(args) => control::undrain(&args),
        Command::Status(args) => control::status(&args),
        Command::Top(args) => top::run(&args),
        Command::Page(args) => page::run(&args),
        Command::Tap(args) => tap::run(&args),
        Command::Quota(args) => quota::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Backend(args) => backend::run(args),
        Command::Answer(args) => answer::run(&args),
        Command::Register(args) => register::run(&args),
        Command::Load(args) => load::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_config_may_be_named_without_an_option() {
        for line in ["check a.toml", "check -c a.toml", "proxy a.toml", "proxy -c a.toml"] {
            let parsed = Cli::try_parse_from(["plimsoll"].into_iter().chain(line.split(' ')));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in ["check", "check a.toml -c b.toml", "proxy a.toml --from :80", "proxy a.toml -c b.toml"] {
            assert!(Cli::try_parse_from(["plimsoll"].into_iter().chain(line.split(' '))).is_err(), "{line}");
        }
    }

    #[test]
    fn addresses_of_one_s_own_machine_need_no_host() {
        for line in ["backend --listen :8081", "explain --admin localhost:9900", "explain --admin :9900"] {
            let parsed = Cli::try_parse_from(["plimsoll"].into_iter().chain(line.split(' ')));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn help_is_a_command_too() {
        let asked = Cli::try_parse_from(["plimsoll", "help", "proxy"]).unwrap_err();
        assert_eq!(asked.kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "`plimsoll {} --help` has no examples", command.get_name());
            assert!(help.contains(&format!("plimsoll {}", command.get_name())));
        }
    }

    /// clap wraps what is too long for the terminal, and would wrap again what is broken by hand.
    #[test]
    fn help_fits_a_narrow_terminal() {
        const NARROW: usize = 80;
        let whole = Cli::command();
        for command in std::iter::once(&whole).chain(whole.get_subcommands()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| !line.is_empty()) {
                let fits =
                    if line.starts_with(' ') { line.chars().count() < NARROW } else { line.ends_with(['.', ':']) };
                assert!(fits, "`{} --help` breaks a paragraph, or has too long an example: {line}", command.get_name());
            }
        }
    }
}

//! `plimsoll proxy`: balanced traffic, from a config or from `--from` and `--to`.

mod admin;
mod control;
mod explain;
mod fleet;
mod handover;
mod notify;
mod pid_file;
mod reload;
mod serve;
mod shared_ports;
mod upgrade;
mod watch;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll::client::Protocol;
use plimsoll_core::Criticality;
use plimsoll_core::classify::Trust;
use plimsoll_core::pick::PolicyKind;
use plimsoll_proxy::config::{Config, ConfigError, Simple};

use self::handover::Channel;
use self::serve::Files;
use crate::check::is_stdin;
use crate::exit::{Outcome, Problem};
use crate::process;

/// Protocols towards backends, named as in the config.
const PROTOCOLS: [(&str, Protocol); 3] =
    [("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)];

/// Arguments of `plimsoll proxy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll proxy --from 127.0.0.1:8080 --to 127.0.0.1:8081 --to 127.0.0.1:8082
  plimsoll proxy --from :8080 --to 10.0.0.1:80 --policy p2c --admin off
  plimsoll proxy -c plimsoll.toml --watch

`plimsoll reload`, `upgrade` and `drain` command a running proxy; SIGHUP, SIGUSR2 and SIGTERM do the same. A config \
with a problem changes nothing. An upgrade hands all sockets to the new process. A drain answers the requests in \
flight, then the process ends. SIGUSR1 opens the access log again. Listeners use the sockets that systemd passes for \
their addresses (LISTEN_FDS).")]
pub(crate) struct Args {
    /// Config file; replaces all other options but --pid-file and --watch
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["file", "from", "to", "policy", "protocol", "admin", "threads", "trust_criticality", "share_port"])]
    config: Option<PathBuf>,
    /// Config file, as with -c
    #[arg(value_name = "FILE", conflicts_with_all = ["from", "to", "policy", "protocol", "admin", "threads", "trust_criticality", "share_port"])]
    file: Option<PathBuf>,
    /// Address to listen at, as IP:PORT or :PORT; may be repeated
    #[arg(long, value_name = "ADDR")]
    from: Vec<String>,
    /// Address of a backend, as HOST:PORT; may be repeated
    #[arg(long, value_name = "ADDR")]
    to: Vec<String>,
    /// Balancing policy [default: weighted]
    #[arg(long, value_name = "POLICY", value_parser = Policies)]
    policy: Option<PolicyKind>,
    /// Protocol to the backends [default: auto]
    #[arg(long, value_name = "PROTOCOL", value_parser = protocols())]
    protocol: Option<Protocol>,
    /// Address of the admin API and the metrics, or `off` [default: 127.0.0.1:9900]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Highest criticality that clients may claim, or `off` to ignore claims [default: critical]
    #[arg(long, value_name = "LEVEL", value_parser = trusts())]
    trust_criticality: Option<Trust>,
    /// Share each address with other processes that listen there
    #[arg(long)]
    share_port: bool,
    /// Reload when the config file changes; a file with a problem changes nothing
    #[arg(long)]
    watch: bool,
    /// File for the process id, written when the proxy serves
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

/// Policies by name. clap's parser of possible values cannot answer the names of other programs.
#[derive(Clone)]
struct Policies;

impl clap::builder::TypedValueParser for Policies {
    type Value = PolicyKind;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<PolicyKind, clap::Error> {
        plimsoll_config::policy(&value.to_string_lossy()).map_err(|flaw| {
            let text = format!("--policy: {}\n    help: {}\n", flaw.reason, flaw.help);
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, text).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(PolicyKind::ALL.into_iter().map(|kind| clap::builder::PossibleValue::new(kind.name()))))
    }
}

fn trusts() -> impl clap::builder::TypedValueParser<Value = Trust> {
    use clap::builder::TypedValueParser as _;
    let levels = Criticality::ALL.map(|level| (level.name(), Trust::UpTo(level)));
    let all: Vec<_> = levels.into_iter().chain([("off", Trust::None)]).collect();
    clap::builder::PossibleValuesParser::new(all.iter().map(|(name, _)| *name)).map(move |name| {
        let named = all.iter().find(|(known, _)| *known == name);
        named.expect("only names of levels are possible values").1
    })
}

fn protocols() -> impl clap::builder::TypedValueParser<Value = Protocol> {
    use clap::builder::TypedValueParser as _;
    let names = PROTOCOLS.map(|(name, _)| name);
    clap::builder::PossibleValuesParser::new(names).map(|name| {
        let named = PROTOCOLS.into_iter().find(|(known, _)| *known == name);
        named.expect("only names of protocols are possible values").1
    })
}

/// Runs the proxy until it has drained.
pub(crate) fn run(args: &Args) -> Outcome {
    process::prepare();
    let predecessor = Channel::to_predecessor().context("cannot talk to the predecessor")?;
    let outcome = start(args, predecessor.as_ref());
    if let (Some(predecessor), Err(problem)) = (&predecessor, &outcome) {
        predecessor.say_failed(&problem.to_string());
    }
    outcome
}

impl Args {
    /// The config, if one is named.
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref().or(self.file.as_deref())
    }

    /// The config that the other options stand for.
    pub(crate) fn simple(&self) -> Result<Config, ConfigError> {
        let Self { from, to, policy, protocol, admin, trust_criticality, share_port, threads, .. } = self.clone();
        Config::simple(&Simple { from, to, policy, protocol, admin, trust_criticality, share_port, threads })
    }
}

fn start(args: &Args, predecessor: Option<&Channel>) -> Outcome {
    if args.config().is_some_and(is_stdin) {
        return Err(Problem::usage(
            "a proxy reads its config again on a reload and an upgrade, and stdin can be read only once\n    \
             help: write the config to a file, and name that with -c (plimsoll check -c - does read stdin)",
        ));
    }
    if args.watch && args.config().is_none() {
        return Err(Problem::usage(
            "--watch: there is no config file to watch\n  help: name one with -c FILE, or leave it out",
        ));
    }
    // Before the config is loaded: a change in between is then seen as one.
    let watched = args.config().filter(|_| args.watch).map(|file| std::fs::read(file).unwrap_or_default());
    let config = match args.config() {
        Some(file) => Config::load(file).map_err(anyhow::Error::from)?,
        None if args.from.is_empty() && args.to.is_empty() => {
            return Err(Problem::usage(
                "no listener and no backend is named\n  help: name them with --from and --to, or a config with -c FILE",
            ));
        }
        None => args.simple().map_err(|error| Problem::Usage(error.to_string()))?,
    };
    let files = Files { config: args.config().map(Path::to_owned), watched, pid: args.pid_file.clone() };
    Ok(serve::serve(config, files, predecessor)?)
}

//! `plimsoll quota`: the server that shares the limits of customers among the tasks of a service.

mod stored;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll::server::{DrainEnd, Lifecycle};
use plimsoll_quota::config::{Config, DEFAULT_ADMIN, DEFAULT_LISTEN};
use plimsoll_quota::{Listening, Server};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::errln;
use crate::{process, units};

/// The service of limits that arguments name.
const DEFAULT_SERVICE: &str = "default";

/// Arguments of `plimsoll quota`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll quota --limit acme=2 --others 0.5
  plimsoll quota -c quota.toml
  plimsoll check -c quota.toml --print
  plimsoll backend --protect --quota 127.0.0.1:9800
  curl 127.0.0.1:9801/api/v1/quota
  plimsoll quota set shop shop.toml --etcd 127.0.0.1:2379

Limits are in CPUs over all tasks of a service. SIGHUP reads the file again; a file with a problem changes nothing. \
SIGTERM ends the server; tasks go on with their leases.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<stored::Command>,
    /// Config file; replaces all other options
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["limit", "others", "service", "listen", "admin"])]
    config: Option<PathBuf>,
    /// CPU limit of a customer over all tasks; may be repeated
    #[arg(long, value_name = "NAME=CPUS", value_parser = limit)]
    limit: Vec<(String, f64)>,
    /// CPU limit of each other customer over all tasks [default: none]
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    others: Option<f64>,
    /// Name of the service
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SERVICE)]
    service: String,
    /// Address for tasks, on this machine; port 0 takes a free port, and stderr names it
    #[arg(long, value_name = "ADDR", value_parser = units::listen_address, default_value_t = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Address of the admin API and the metrics, or `off`
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN.to_string())]
    admin: String,
}

fn cpus(text: &str) -> Result<f64, String> {
    let cpus = units::number(text)?;
    if cpus >= 0.0 { Ok(cpus) } else { Err("write a number of CPUs, at least 0".to_owned()) }
}

fn limit(text: &str) -> Result<(String, f64), String> {
    let help = "write NAME=CPUS, such as acme=2";
    let (name, limit) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| help.to_owned())?;
    Ok((name.to_owned(), cpus(limit)?))
}

/// Serves until SIGTERM, or changes settings in etcd.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(command) = &args.command {
        return stored::run(command);
    }
    process::prepare();
    let config = load(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(config, args.config.as_deref()))
}

fn load(args: &Args) -> Result<Config, Problem> {
    if let Some(file) = &args.config {
        return Ok(Config::load(file).map_err(anyhow::Error::from)?);
    }
    if args.limit.is_empty() && args.others.is_none() {
        return Err(Problem::usage(
            "no limit is named\n  help: name some with --limit NAME=CPUS and --others CPUS, or a config with -c FILE",
        ));
    }
    let admin = match args.admin.as_str() {
        "off" => None,
        address => Some(units::listen_address(address).map_err(|error| Problem::Usage(format!("--admin: {error}")))?),
    };
    Config::simple(&args.service, &args.limit, args.others, args.listen, admin)
        .map_err(|error| Problem::Usage(error.to_string()))
}

async fn serve(config: Config, file: Option<&Path>) -> Outcome {
    let listening = Listening::bind(&config).await?;
    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm().context("cannot handle signals")?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot handle signals")?;
    let server = Server::new(&config, lifecycle);
    // Scripts wait for these lines, and read the ports from them: they are no log lines.
    errln!("listening on {}", listening.tasks.local_addr()?);
    if let Some(admin) = &listening.admin {
        errln!("admin on {}", admin.local_addr()?);
    }
    let serving = tokio::spawn(server.clone().serve(listening));
    tokio::pin!(serving);
    loop {
        tokio::select! {
            end = &mut serving => {
                if let DrainEnd::Overdue { unfinished } | DrainEnd::CutShort { unfinished } = end? {
                    tracing::info!(streams = unfinished, "ended with streams of tasks, which have their leases");
                }
                return Ok(Verdict::Good);
            }
            _ = hang_up.recv() => reload(&server, &config, file),
        }
    }
}

fn reload(server: &Server, started: &Config, file: Option<&Path>) {
    let Some(file) = file else {
        tracing::warn!("there is no config file to read again");
        return;
    };
    match Config::load(file) {
        Ok(config) => {
            let waiting = server.reload(&config);
            for key in started.needs_restart(&config).into_iter().map(ToOwned::to_owned).chain(waiting) {
                tracing::warn!(key, "changed setting needs a restart");
            }
            tracing::info!(file = %file.display(), "config reloaded");
        }
        Err(error) => {
            server.refuse_reload();
            for problem in error.problems() {
                let place = problem.position.map(|position| position.to_string());
                let (path, reason, help) = (&problem.path, &problem.reason, &problem.help);
                tracing::error!(place, path, reason, help, "config problem");
            }
            tracing::error!(file = %file.display(), "config refused, nothing has changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_name_and_a_number_of_cpus() {
        assert_eq!(limit("acme=2"), Ok(("acme".to_owned(), 2.0)));
        assert_eq!(limit("a=b=0"), Ok(("a=b".to_owned(), 0.0)));
        for (junk, reason) in
            [("acme", "NAME=CPUS"), ("=1", "NAME=CPUS"), ("a=x", "not a number"), ("a=-1", "at least 0")]
        {
            assert!(limit(junk).is_err_and(|error| error.contains(reason)), "{junk}");
        }
    }
}

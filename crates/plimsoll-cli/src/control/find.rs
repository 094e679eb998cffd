//! Finds the proxy that a command is for.
//!
//! A pid file leads to a process, and the command line of the process to its config and its admin address. The API there
//! is used if it names the same process. Else the process gets signals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;
use plimsoll_proxy::config::Config;

use super::Target;
use super::api::{Answer, Api};
use super::process::Process;
use crate::exit::Problem;
use crate::proxy;

/// The path of the status in the API.
pub(super) const STATUS: &str = "/api/v1/process";

/// The command line of a running proxy. A line of another command fails to parse.
#[derive(Debug, clap::Parser)]
struct ProxyLine {
    #[command(subcommand)]
    command: ProxyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ProxyCommand {
    Proxy(proxy::Args),
}

/// The arguments of `plimsoll proxy` in a whole command line; `None` if it is another command, or of
/// another version.
fn proxy_arguments(line: &[String]) -> Option<proxy::Args> {
    let line = line.iter().filter(|part| !part.is_empty());
    let ProxyLine { command: ProxyCommand::Proxy(args) } = ProxyLine::try_parse_from(line).ok()?;
    Some(args)
}

/// A proxy, and the way to command it.
#[derive(Debug)]
pub(super) enum Found {
    /// By its admin API.
    Api(Api),
    /// By signals: its admin API is off or does not answer.
    Signals(Process),
}

impl Target {
    /// The proxy.
    pub(super) fn find(&self) -> Result<Found, Problem> {
        let Some(file) = &self.pid_file else { return Ok(Found::Api(Api { address: self.admin })) };
        let process = Process::named_in(file)?;
        Ok(match process.api() {
            Some((api, _)) => Found::Api(api),
            None => Found::Signals(process),
        })
    }
}

impl Target {
    /// The admin address of the proxy, for a command that needs its API.
    pub(crate) fn admin_address(&self) -> Result<SocketAddr, Problem> {
        match self.find()? {
            Found::Api(api) => Ok(api.address),
            Found::Signals(process) => {
                let pid = process.pid;
                Err(Problem::Failed(anyhow::anyhow!("process {pid} runs, but its admin API is off or does not answer")))
            }
        }
    }
}

impl Process {
    /// Its admin API and the status there, if the API answers for this very process.
    pub(super) fn api(&self) -> Option<(Api, Answer)> {
        let api = Api { address: self.admin()? };
        let status = api.get(STATUS).ok()?;
        (status.status == 200 && status.pid() == Some(self.pid)).then_some((api, status))
    }

    /// Its admin address, as its arguments and its config are now; `None` if it is off or not known.
    pub(super) fn admin(&self) -> Option<SocketAddr> {
        let arguments = self.proxy_arguments()?;
        match arguments.config() {
            Some(_) => Config::admin_in(&self.config_file()?),
            None => arguments.simple().ok()?.admin(),
        }
    }

    /// Its config file.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        let named = self.proxy_arguments()?.config()?.to_owned();
        if named.is_absolute() { Some(named) } else { Some(self.directory()?.join(named)) }
    }

    /// The longest time of its drain, by its config; `None` if that is not known.
    pub(super) fn drain_timeout(&self) -> Option<Duration> {
        let arguments = self.proxy_arguments()?;
        let config = match arguments.config() {
            Some(_) => Config::load(&self.config_file()?).ok()?,
            None => arguments.simple().ok()?,
        };
        Some(config.drain().timeout)
    }

    /// Its arguments; `None` for those of another version that this one does not know.
    fn proxy_arguments(&self) -> Option<proxy::Args> {
        proxy_arguments(&self.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_only_in_a_known_command_line_of_a_proxy() {
        let config = |line: &str| {
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            proxy_arguments(&line).map(|args| args.config().map(|path| path.display().to_string()))
        };
        assert_eq!(config("plimsoll proxy -c a.toml "), Some(Some("a.toml".to_owned())));
        assert_eq!(config("/usr/bin/plimsoll proxy --from :8080 --to :8081"), Some(None));
        assert_eq!(config("plimsoll check -c a.toml"), None);
        assert_eq!(config("plimsoll proxy --of-another-version"), None);
    }
}

//! `plimsoll quota set`, `get` and `history`: the settings of services in etcd.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll_quota::config::{Config, ServiceConfig};
use plimsoll_quota::fleet::{Author, Change, Stored, StoredError};
use serde_json::json;
use similar::TextDiff;

use crate::etcd_args;
use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, out, outln};

/// Lines around a difference.
const CONTEXT: usize = 3;

/// Commands for settings in etcd.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Set the limits of a service in etcd, for all quota servers of a fleet
    Set(SetArgs),
    /// Print the limits of a service in etcd, or the names of all services
    Get(GetArgs),
    /// List the changes of a service in etcd, the last one first
    History(HistoryArgs),
}

/// The etcd of a fleet.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Etcd {
    /// Config file of a quota server: its table `etcd`
    #[arg(short, long, value_name = "FILE", conflicts_with = "etcd")]
    config: Option<PathBuf>,
    #[command(flatten)]
    named: etcd_args::Args,
}

/// Arguments of `plimsoll quota set`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll quota set shop shop.toml -c quota.toml --dry-run
  plimsoll quota set shop shop.toml -c quota.toml
  plimsoll quota set shop --remove -c quota.toml

The file holds the keys of the table [services.shop] without its name, such as [customers.acme]. It is checked as by \
plimsoll check. The difference is printed, and servers take the change at once.")]
pub(super) struct SetArgs {
    /// Name of the service
    service: String,
    /// File with the table of the service; - for stdin
    #[arg(value_name = "FILE", required_unless_present = "remove", conflicts_with = "remove")]
    file: Option<PathBuf>,
    /// Remove the settings from etcd: servers go by their files
    #[arg(long)]
    remove: bool,
    /// Print the difference, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Name of the author, for the history [default: user@host]
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    #[command(flatten)]
    etcd: Etcd,
}

/// Arguments of `plimsoll quota get`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct GetArgs {
    /// Name of the service; without one, the names of all
    service: Option<String>,
    #[command(flatten)]
    etcd: Etcd,
}

/// Arguments of `plimsoll quota history`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll quota history shop -c quota.toml
  plimsoll quota history shop --diff --last 1 -c quota.toml

Changes from before the last compaction of etcd are not known.")]
pub(super) struct HistoryArgs {
    /// Name of the service
    service: String,
    /// Most changes to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    last: u16,
    /// Print the difference of each change
    #[arg(long, conflicts_with = "json")]
    diff: bool,
    /// Print the list as JSON, with the settings after each change
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    etcd: Etcd,
}

/// A store, and whether servers speak TLS, as far as it is known.
struct Opened {
    stored: Stored,
    has_tls: Option<bool>,
}

impl Etcd {
    fn open(&self) -> Result<Opened, Problem> {
        if let Some(file) = &self.config {
            let config = Config::load(file).map_err(anyhow::Error::from)?;
            let Some(client) = config.etcd() else {
                let help = "add [etcd] with endpoints, or name one with --etcd HOST:PORT";
                return Err(Problem::usage(format!("{} has no table etcd\n  help: {help}", file.display())));
            };
            return Ok(Opened { stored: Stored::new(client?), has_tls: Some(config.tls().is_some()) });
        }
        if !self.named.is_named() {
            return Err(Problem::usage(
                "no etcd is named\n  help: name the file of a quota server with -c FILE, or --etcd HOST:PORT",
            ));
        }
        Ok(Opened { stored: Stored::new(self.named.client()?), has_tls: None })
    }
}

/// Runs a command to its end.
pub(super) fn run(command: &Command) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Set(args) => set(args).await,
            Command::Get(args) => get(args).await,
            Command::History(args) => history(args).await,
        }
    })
}

async fn set(args: &SetArgs) -> Outcome {
    let Opened { stored, has_tls } = args.etcd.open()?;
    let service = &args.service;
    let text = args.file.as_deref().map(read).transpose()?;
    if let (Some(text), Some(file)) = (&text, &args.file) {
        let source = if is_stdin(file) { "stdin".to_owned() } else { file.display().to_string() };
        if let Err(error) = ServiceConfig::parse(&source, text, has_tls) {
            errln!("{error}");
            return Ok(Verdict::Bad);
        }
    }
    let before = stored.get(service).await?;
    let (old, revision) = before.map_or((None, 0), |(text, revision)| (Some(text), revision));
    if old == text {
        let state = if text.is_some() { "has these settings" } else { "has no settings in etcd" };
        outln!("service {service:?} {state} already")?;
        return Ok(Verdict::Good);
    }
    out!("{}", difference(service, old.as_deref(), text.as_deref()))?;
    if args.dry_run {
        return Ok(Verdict::Good);
    }
    let author = Author::now(args.author.clone().unwrap_or_else(author));
    let revision = match stored.set(service, text.as_deref(), revision, &author).await {
        Err(error @ StoredError::Changed(_)) => {
            return Err(
                anyhow::anyhow!("{error}\n  help: look at plimsoll quota history {service}, and try again").into()
            );
        }
        set => set?,
    };
    outln!("service {service:?} changed at revision {revision}")?;
    Ok(Verdict::Good)
}

async fn get(args: &GetArgs) -> Outcome {
    let stored = args.etcd.open()?.stored;
    let Some(service) = &args.service else {
        for service in stored.services().await? {
            outln!("{service}")?;
        }
        return Ok(Verdict::Good);
    };
    let Some((text, _)) = stored.get(service).await? else { return Err(unknown(&stored, service).await) };
    out!("{text}")?;
    Ok(Verdict::Good)
}

async fn history(args: &HistoryArgs) -> Outcome {
    let stored = args.etcd.open()?.stored;
    let last = usize::from(args.last);
    // One more, for the first difference.
    let changes = stored.history(&args.service, last + usize::from(args.diff)).await?;
    if changes.is_empty() {
        return Err(unknown(&stored, &args.service).await);
    }
    if args.json {
        let changes: Vec<_> = changes.iter().map(as_json).collect();
        outln!("{}", serde_json::to_string_pretty(&json!({ "service": args.service, "changes": changes }))?)?;
        return Ok(Verdict::Good);
    }
    for (at, change) in changes.iter().take(last).enumerate() {
        outln!("{}", Line(change))?;
        if args.diff {
            let before = changes.get(at + 1).and_then(|before| before.text.as_deref());
            out!("{}", difference(&args.service, before, change.text.as_deref()))?;
        }
    }
    Ok(Verdict::Good)
}

async fn unknown(stored: &Stored, service: &str) -> Problem {
    match stored.services().await {
        Ok(services) if services.is_empty() => {
            anyhow::anyhow!("no service has settings in etcd\n  help: plimsoll quota set {service} FILE").into()
        }
        Ok(services) => {
            let help = format!("use one of: {}", services.join(", "));
            anyhow::anyhow!("service {service:?} has no settings in etcd\n  help: {help}").into()
        }
        Err(error) => error.into(),
    }
}

/// A change in a list.
struct Line<'c>(&'c Change);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { revision, text, author } = self.0;
        let event = if text.is_some() { "set" } else { "removed" };
        match author {
            Some(Author { author, time }) => {
                write!(f, "{revision}  {}  {event} by {}", time.escape_debug(), author.escape_debug())
            }
            None => write!(f, "{revision}  {event} by another program"),
        }
    }
}

fn as_json(change: &Change) -> serde_json::Value {
    let Change { revision, text, author } = change;
    let (author, time) = author.as_ref().map(|of| (&of.author, &of.time)).unzip();
    json!({ "revision": revision, "author": author, "time": time, "settings": text })
}

fn difference(service: &str, old: Option<&str>, new: Option<&str>) -> String {
    let diff = TextDiff::from_lines(old.unwrap_or_default(), new.unwrap_or_default());
    let name = |text: Option<&str>| if text.is_some() { service } else { "/dev/null" };
    diff.unified_diff().context_radius(CONTEXT).header(name(old), name(new)).to_string()
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> Result<String, Problem> {
    if is_stdin(file) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(text);
    }
    Ok(plimsoll_config::load(file)?)
}

/// The user and the machine, as far as the environment tells.
fn author() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (user, host) = (user.unwrap_or_else(|| "unknown".to_owned()), host.trim());
    if host.is_empty() { user } else { format!("{user}@{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_a_line_without_control_characters() {
        let author = Some(Author { author: "ann\u{1b}[1m@a".to_owned(), time: "2026-11-28T20:00:00Z".to_owned() });
        let set = Change { revision: 7, text: Some("lease = \"60s\"".to_owned()), author };
        assert_eq!(Line(&set).to_string(), "7  2026-11-28T20:00:00Z  set by ann\\u{1b}[1m@a");
        let removed = Change { revision: 9, text: None, author: None };
        assert_eq!(Line(&removed).to_string(), "9  removed by another program");
    }

    #[test]
    fn difference_is_that_of_lines() {
        let text = difference("shop", Some("a = 1\nb = 2\n"), Some("a = 1\nb = 3\n"));
        assert_eq!(text, "--- shop\n+++ shop\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n");
        assert!(difference("shop", None, Some("a = 1\n")).starts_with("--- /dev/null\n+++ shop\n"));
    }
}

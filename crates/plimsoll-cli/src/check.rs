//! `plimsoll check`: lists all problems of a config, each with its place and its help, or the changes that a reload of it
//! would make.
//!
//! Problems are the same on every machine: only the files that the config names are read, never the
//! network, unless `--resolve` asks for it. A part that this machine lacks, such as a pid file, is a warning.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http::uri::Authority;
use plimsoll::discover::{Endpoint, Readiness};
use plimsoll_core::Weight;
use plimsoll_proxy::config::{self, Change, Config, ConfigError, Difference};
use plimsoll_proxy::{SavedOverride, SourceAnswer, ask_sources, printable, saved_overrides};

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, out, outln};

/// The name of the config on stdin in messages.
const STDIN: &str = "stdin";

/// Arguments of `plimsoll check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll check -c plimsoll.toml                   all its problems
  plimsoll check -c plimsoll.toml --print           every default written out
  plimsoll check -c plimsoll.toml --diff old.toml   what a reload would do
  plimsoll check -c plimsoll.toml --resolve         all backends, by sources
  envsubst < web.toml.in | plimsoll check -c -      a config from a pipe

Exits with 1 if there is a problem. With --diff it lists the changes that SIGHUP would make to a proxy that runs old.toml, \
and exits with 1 if one needs a restart.")]
pub(crate) struct Args {
    /// The config to check; - for stdin
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The config to check, as with -c
    #[arg(value_name = "FILE", required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Print the effective config with every default, as TOML, on stdout
    #[arg(long, conflicts_with = "diff")]
    print: bool,
    /// Ask every source of backends once, and print its answer
    #[arg(long, conflicts_with_all = ["diff", "print"])]
    resolve: bool,
    /// List the changes from this config, and the effect of each on a reload
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long, requires = "diff")]
    json: bool,
}

/// Checks the config.
pub(crate) fn run(args: Args) -> Outcome {
    let Some(named) = args.config.as_ref().or(args.file.as_ref()) else {
        return Err(Problem::usage("no config is named: plimsoll check -c FILE"));
    };
    if is_stdin(named) && args.diff.as_deref().is_some_and(is_stdin) {
        return Err(Problem::usage("stdin can be one of the two configs only: name a file for -c or for --diff"));
    }
    if is_quota(named) {
        return check_quota(named, &args);
    }
    let Some(config) = load(named) else { return Ok(Verdict::Bad) };
    for warning in config.warnings() {
        errln!("warning: {}", ConfigError::new(&name_of(named), vec![warning]));
    }
    if let Some(file) = &args.diff {
        let Some(old) = load(file) else { return Ok(Verdict::Bad) };
        let by_hand = by_hand(&old, &config);
        return Ok(diff(&config.changes_since(&old), &by_hand, args.json)?);
    }
    if args.resolve {
        return resolve(&config);
    }
    if args.print {
        out!("{}", config.print())?;
    } else {
        outln!(
            "{}: ok (listeners: {}, routes: {}, clusters: {})",
            name_of(named),
            config.listeners().len(),
            config.routes().len(),
            config.clusters().len(),
        )?;
    }
    Ok(Verdict::Good)
}

/// Whether a file is meant for a quota server.
fn is_quota(file: &Path) -> bool {
    // Stdin can be read once, and is for a proxy.
    let text = if is_stdin(file) { None } else { std::fs::read_to_string(file).ok() };
    text.is_some_and(|text| plimsoll_quota::config::is_quota(&text))
}

fn check_quota(file: &Path, args: &Args) -> Outcome {
    if args.diff.is_some() || args.resolve {
        return Err(Problem::usage(
            "--diff and --resolve are for the config of a proxy, and this is one of a quota server",
        ));
    }
    match plimsoll_quota::config::Config::load(file) {
        Ok(config) if args.print => out!("{}", config.print())?,
        Ok(config) => {
            let customers: usize = config.services().values().map(|service| service.customers.len()).sum();
            let services = config.services().len();
            outln!("{}: ok (services: {services}, customers: {customers})", name_of(file))?;
        }
        Err(error) => {
            errln!("{error}");
            return Ok(Verdict::Bad);
        }
    }
    Ok(Verdict::Good)
}

/// Prints the backends of each cluster; bad when a source has no list now.
fn resolve(config: &Config) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from)?;
    let (answers, problems) = runtime.block_on(ask_sources(config));
    let mut verdict = Verdict::Good;
    for SourceAnswer { cluster, source, backends, .. } in answers {
        match backends {
            Ok(backends) => {
                let noun = if backends.len() == 1 { "backend" } else { "backends" };
                outln!("cluster {cluster:?}: {source}: {} {noun}", backends.len())?;
                for backend in &backends {
                    outln!("  {}", Line(backend))?;
                }
            }
            Err(error) => {
                outln!("cluster {cluster:?}: {source}: no list: {}", printable(&error))?;
                verdict = Verdict::Bad;
            }
        }
    }
    if let Some(problems) = problems {
        errln!("{problems}");
        verdict = Verdict::Bad;
    }
    Ok(verdict)
}

/// A backend, with everything about it that is not the default.
struct Line<'a>(&'a Endpoint);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { address, weight, authority, zone, locality, readiness, ordinal, speed, .. } = self.0;
        write!(f, "{address}")?;
        if *weight != Weight::ONE {
            write!(f, " weight {}", weight.as_f64())?;
        }
        let texts = [("host", authority.as_ref().map(Authority::as_str)), ("zone", zone.as_deref())];
        for (name, value) in texts.into_iter().chain([("locality", locality.as_deref())]) {
            // A source may list any text.
            value.map_or(Ok(()), |value| write!(f, " {name} {}", printable(value)))?;
        }
        ordinal.map_or(Ok(()), |ordinal| write!(f, " ordinal {ordinal}"))?;
        speed.map_or(Ok(()), |speed| write!(f, " speed {}", speed.as_f64()))?;
        match readiness {
            Readiness::Ready => Ok(()),
            Readiness::Starting => write!(f, " starting"),
            Readiness::Draining => write!(f, " draining"),
        }
    }
}

/// The config; `None` after its problems were printed.
fn load(file: &Path) -> Option<Config> {
    let config = if is_stdin(file) { from_stdin() } else { Config::load(file) };
    config
        .inspect_err(|error| {
            errln!("{error}");
            let count = error.problems().len();
            errln!("\n{count} {}", if count == 1 { "problem" } else { "problems" });
        })
        .ok()
}

/// Whether `file` stands for stdin.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// The name of `file` in messages.
fn name_of(file: &Path) -> String {
    if is_stdin(file) { STDIN.to_owned() } else { file.display().to_string() }
}

/// The config on stdin. Paths in it begin at the working directory.
fn from_stdin() -> Result<Config, ConfigError> {
    let text = io::read_to_string(io::stdin().lock()).map_err(|error| {
        let help = "write a TOML file in UTF-8 to stdin".to_owned();
        let reason = format!("cannot be read: {error}");
        ConfigError::new(STDIN, vec![config::Problem { path: String::new(), position: None, reason, help }])
    })?;
    Config::parse(STDIN, &text)
}

/// A change of a backend by hand in the folder for state, and its effect in a reload.
type ByHand = (SavedOverride, &'static str);

/// The changes by hand that a proxy with the old config saved. A folder that this machine lacks has none.
fn by_hand(old: &Config, new: &Config) -> Vec<ByHand> {
    let Some(folder) = old.state_dir() else { return Vec::new() };
    let saved = saved_overrides(&folder).unwrap_or_else(|error| {
        errln!("warning: changes of backends by hand are unknown: {error}");
        Vec::new()
    });
    let effect = |saved: &SavedOverride| match new.clusters().contains_key(&saved.cluster) {
        true => "stays in force, over the backends of the config and of its source",
        false => "ends with its cluster",
    };
    let with_effect = |saved: SavedOverride| {
        let effect = effect(&saved);
        (saved, effect)
    };
    saved.into_iter().map(with_effect).collect()
}

/// Prints the changes; bad when a reload is not enough.
fn diff(changes: &[Change], by_hand: &[ByHand], json: bool) -> anyhow::Result<Verdict> {
    let restarts = changes.iter().filter(|change| change.needs_restart).count();
    if json {
        let changes: Vec<_> = changes.iter().map(to_json).collect();
        let by_hand: Vec<_> = by_hand.iter().map(by_hand_json).collect();
        let report = serde_json::json!({ "changes": changes, "by_hand": by_hand, "needs_restart": restarts > 0 });
        outln!("{report:#}")?;
    } else {
        for change in changes {
            outln!("{change}")?;
        }
        match (changes.len(), restarts) {
            (0, _) => outln!("nothing changes")?,
            (_, 0) => outln!("\na reload applies all of it")?,
            (all, _) => outln!("\na reload is not enough: {restarts} of {all} need a restart")?,
        }
        if !by_hand.is_empty() {
            outln!("\nbackends changed by hand:")?;
        }
        for (saved, effect) in by_hand {
            outln!("cluster {:?}: {saved}: {effect}", saved.cluster)?;
        }
    }
    Ok(if restarts == 0 { Verdict::Good } else { Verdict::Bad })
}

fn by_hand_json((saved, effect): &ByHand) -> serde_json::Value {
    serde_json::json!({
        "cluster": saved.cluster,
        "address": saved.address.to_string(),
        "kind": saved.kind,
        "weight": saved.weight,
        "until": saved.until.map(|until| humantime::format_rfc3339_seconds(until).to_string()),
        "effect": effect,
    })
}

fn to_json(change: &Change) -> serde_json::Value {
    let (kind, setting, old, new) = match &change.difference {
        Difference::Added => ("added", None, None, None),
        Difference::Removed => ("removed", None, None, None),
        Difference::Order => ("reordered", None, None, None),
        Difference::Setting { path, old, new } => ("changed", Some(path), old.clone(), new.clone()),
        Difference::Table { path, is_added: true, settings } => ("changed", Some(path), None, Some(settings.clone())),
        Difference::Table { path, is_added: false, settings } => ("changed", Some(path), Some(settings.clone()), None),
    };
    serde_json::json!({
        "part": change.part,
        "change": kind,
        "setting": setting,
        "old": old,
        "new": new,
        "effect": change.effect,
        "needs_restart": change.needs_restart,
    })
}

//! `plimsoll status`: what a proxy is and does now.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::Target;
use super::find::{Found, STATUS};
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, out, outln};

/// Arguments of `plimsoll status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll status                       the proxy at 127.0.0.1:9900
  plimsoll status --admin :9901 --json
  plimsoll status --pid-file /run/plimsoll/proxy.pid

Exits with 0 when the proxy told its status, 1 when it runs and did not, 2 when there is no such proxy.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print the status as JSON, as GET /api/v1/process gives it
    #[arg(long)]
    json: bool,
}

/// Asks, and prints the status.
pub(crate) fn run(args: &Args) -> Outcome {
    let api = match args.target.find()? {
        Found::Api(api) => api,
        Found::Signals(process) => {
            errln!("error: process {} runs, but its admin API is off or does not answer", process.pid);
            return Ok(Verdict::Bad);
        }
    };
    let answer = api.get(STATUS).map_err(|error| api.problem(&error))?;
    if answer.status != 200 {
        return Err(answer.problem(api));
    }
    if args.json {
        outln!("{:#}", answer.json)?;
    } else {
        out!("{}", table(&answer.json))?;
    }
    Ok(Verdict::Good)
}

/// The status for a person.
fn table(status: &Value) -> String {
    let text = |field: &str| status[field].as_str().unwrap_or("?").to_owned();
    let mut out = String::new();
    let (pid, up) = (&status["pid"], span(&status["uptime_s"]));
    let _ = writeln!(out, "plimsoll {}, process {pid}: {}, up {up}", text("version"), text("state"));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<10}{value}");
    };
    line("config", status["config_file"].as_str().unwrap_or("none, started with --from and --to").to_owned());
    line("reload", last_reload(&status["last_reload"]));
    let upgrade = &status["last_failed_upgrade"];
    if let Some(error) = upgrade["error"].as_str() {
        line("upgrade", format!("failed {} ago: {}", span(&upgrade["ago_s"]), first_line(error)));
    }
    line("requests", format!("{} in flight", status["requests_in_flight"]));
    let rows = |field: &str| status[field].as_array().cloned().unwrap_or_default();
    for listener in rows("listeners") {
        let (name, address) = (string(&listener["name"]), string(&listener["address"]));
        let named = if name == address { String::new() } else { format!("{name} ") };
        line("listener", format!("{named}{address}: {} connections", listener["connections"]));
    }
    for cluster in rows("clusters") {
        let name = string(&cluster["name"]);
        line("cluster", format!("{name}: {} of {} backends healthy", cluster["healthy"], cluster["backends"]));
    }
    out
}

fn last_reload(last: &Value) -> String {
    let ago = || span(&last["ago_s"]);
    match (last["result"].as_str(), last["error"].as_str()) {
        (None, _) => "none since the start".to_owned(),
        (Some(_), Some(error)) => format!("refused {} ago: {}", ago(), first_line(error)),
        (Some(result), None) => format!("{result} {} ago, changes: {}", ago(), last["changes"]),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

/// Seconds, for a person.
fn span(seconds: &Value) -> String {
    let seconds = Duration::try_from_secs_f64(seconds.as_f64().unwrap_or_default()).unwrap_or_default().as_secs();
    // The smallest of three units says nothing.
    let seconds = if seconds >= 3600 { seconds / 60 * 60 } else { seconds };
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_is_a_table_for_a_person() {
        let status = json!({
            "version": "0.1.0", "pid": 4711, "uptime_s": 11_100.7, "state": "ready",
            "config_file": "/etc/plimsoll.toml", "requests_in_flight": 12,
            "listeners": [{ "name": "public", "address": "0.0.0.0:80", "connections": 40 }],
            "clusters": [{ "name": "web", "backends": 4, "healthy": 3 }],
            "last_reload": { "ago_s": 61.2, "result": "refused", "changes": 0, "error": "a.toml:1:2: bad\n    help: mend" },
            "last_failed_upgrade": null,
        });
        let expected = "\
plimsoll 0.1.0, process 4711: ready, up 3h 5m
  config    /etc/plimsoll.toml
  reload    refused 1m 1s ago: a.toml:1:2: bad
  requests  12 in flight
  listener  public 0.0.0.0:80: 40 connections
  cluster   web: 3 of 4 backends healthy
";
        assert_eq!(table(&status), expected);
    }
}

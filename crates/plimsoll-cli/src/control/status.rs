//! `plimsoll status`: what a proxy is and does now.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::Target;
use super::api::Api;
use super::find::{Found, STATUS};
use crate::admin::events::clean;
use crate::admin::path::escaped;
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, out, outln};
use crate::words::{self, number, verdict};

/// Clusters with a line of live state. Each takes one request.
const MAX_LIVE: usize = 20;

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
        out!("{}", table(&answer.json, |cluster| live(api, cluster)))?;
    }
    Ok(Verdict::Good)
}

/// The live state of a cluster; `None` where the proxy does not have it, as an older one.
fn live(api: Api, cluster: &str) -> Option<Value> {
    let answer = api.get(&format!("/api/v1/live?cluster={}", escaped(cluster))).ok()?;
    (answer.status == 200).then(|| clean(answer.json)).map(|mut live| live["cluster"].take())
}

/// The state of a cluster in a few lines: its verdict, its load, and what is not as usual.
fn state(cluster: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let gate = &cluster["gate"];
    let cpus = |key: &str| gate[key].as_f64().map_or_else(|| "?".to_owned(), number);
    if let Some(name) = gate["verdict"].as_str() {
        let of = verdict(Some(name));
        let dry_run = if gate["dry_run"] == true { " (dry run)" } else { "" };
        let lasted = words::span(gate["verdict_for_s"].as_f64().unwrap_or_default());
        let meaning = gate["meaning"].as_str().unwrap_or_default();
        lines.push(format!("{} {}{dry_run} for {lasted}: {meaning}", of.glyph, of.word));
        let (used, capacity, line) = (cpus("used_cpus"), cpus("capacity_cpus"), cpus("load_line_cpus"));
        lines.push(format!("{used} of {capacity} CPUs used, load line {line}"));
    }
    let traffic = &cluster["traffic"];
    let sum =
        |key: &str| traffic[key].as_object().into_iter().flatten().filter_map(|(_, qps)| qps.as_f64()).sum::<f64>();
    let mut parts = Vec::new();
    let (throttled, retries, denied) =
        (sum("throttled"), traffic["retries_qps"].as_f64().unwrap_or_default(), sum("retries_denied"));
    if throttled > 0.0 {
        parts.push(format!("{} requests/s throttled", number(throttled)));
    }
    if retries > 0.0 || denied > 0.0 {
        parts.push(format!("{} retries/s, {} denied", number(retries), number(denied)));
    }
    if !parts.is_empty() {
        lines.push(parts.join("; "));
    }
    lines
}

/// The status for a person, with the live state of each cluster.
fn table(status: &Value, live: impl Fn(&str) -> Option<Value>) -> String {
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
    for (place, cluster) in rows("clusters").iter().enumerate() {
        let name = string(&cluster["name"]);
        line("cluster", format!("{name}: {} of {} backends healthy", cluster["healthy"], cluster["backends"]));
        if place < MAX_LIVE {
            live(&name).iter().flat_map(state).for_each(|told| line("", told));
        }
    }
    if rows("clusters").len() > MAX_LIVE {
        line("", format!("the verdicts of the first {MAX_LIVE} are shown; `plimsoll top` has the worst"));
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
        assert_eq!(table(&status, |_| None), expected, "of an older proxy");
        let live = json!({
            "gate": {
                "verdict": "users-affected", "meaning": "users are affected: critical requests are lost",
                "verdict_for_s": 120.0, "dry_run": false, "capacity_cpus": 8.0, "load_line_cpus": 7.84, "used_cpus": 7.9,
            },
            "traffic": { "throttled": { "sheddable": 12.0 }, "retries_qps": 3.0, "retries_denied": { "budget": 2.0 } },
        });
        let state = "            \
                     ✕ users affected for 2 min: users are affected: critical requests are lost
            7.90 of 8.00 CPUs used, load line 7.84
            12.0 requests/s throttled; 3.00 retries/s, 2.00 denied
";
        assert_eq!(table(&status, |name| (name == "web").then(|| live.clone())), expected.to_owned() + state);
        let calm = json!({ "gate": null, "traffic": { "throttled": {}, "retries_qps": 0.0, "retries_denied": {} } });
        assert_eq!(table(&status, |_| Some(calm.clone())), expected, "nothing to tell");
    }
}

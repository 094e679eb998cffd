//! `plimsoll tap`: refusals as they happen, one line each.

use std::time::Duration;

use plimsoll_core::Criticality;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::admin::events::{Events, clean, clean_line};
use crate::admin::failure::Failure;
use crate::admin::path::escaped;
use crate::control::Target;
use crate::exit::{Outcome, Verdict};
use crate::explain::{self, LINE_HEADER};
use crate::output::{errln, write_line};
use crate::units;

/// Refusals in an event, of which there are four a second. The others are counted.
const MAX_EACH: usize = 250;
/// Time between two attempts after a break.
const PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `plimsoll tap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll tap
  plimsoll tap --customer acme --for 30s
  plimsoll tap --reason quota --cluster web
  plimsoll tap --reason no-backend --json | jq -r .id

Each line has the time (UTC), the id for `plimsoll explain`, and the reason. Requests pay nothing for it. At more than \
1,000 refusals a second some are left out, and a line says how many. The proxy must remember requests: see [explain] in \
the configuration.

Exits with 0 when it is ended, 1 when the proxy refuses, 2 when there is no such proxy.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Only requests with this outcome [default: refused; any with --reason]
    #[arg(long, value_parser = ["refused", "failed", "retried", "served"])]
    outcome: Option<String>,
    /// Only requests with this reason, such as `overloaded`, `quota` or `no-backend`
    #[arg(long)]
    reason: Option<String>,
    /// Only requests of this customer
    #[arg(long, value_name = "NAME")]
    customer: Option<String>,
    /// Only requests to this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Only requests of this criticality
    #[arg(long, value_name = "LEVEL", value_parser = Criticality::ALL.map(Criticality::name))]
    criticality: Option<String>,
    /// Print an object of JSON on each line, as GET /api/v1/explain has it
    #[arg(long)]
    json: bool,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::positive_duration)]
    lasts: Option<Duration>,
}

impl Args {
    fn path(&self) -> String {
        let usual = self.reason.is_none().then(|| "refused".to_owned());
        let outcome = self.outcome.clone().or(usual);
        let chosen = [
            ("outcome", &outcome),
            ("reason", &self.reason),
            ("customer", &self.customer),
            ("cluster", &self.cluster),
            ("criticality", &self.criticality),
        ];
        let chosen = chosen.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let chosen: String = chosen.map(|(key, value)| format!("&{key}={}", escaped(value))).collect();
        format!("/api/v1/explain/stream?last={MAX_EACH}{chosen}")
    }
}

/// Prints refusals until it is ended.
pub(crate) fn run(args: &Args) -> Outcome {
    let admin = args.target.admin_address()?.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            () = crate::signals::ending() => Ok(Verdict::Good),
            ended = follow(args, &admin) => ended,
        }
    })
}

async fn follow(args: &Args, admin: &str) -> Outcome {
    let until = args.lasts.map(|lasts| Instant::now() + lasts);
    let path = args.path();
    let mut events = Events::open(admin, &path).await.map_err(|failure| failure.problem(admin))?;
    if !args.json && !write_line(LINE_HEADER)? {
        return Ok(Verdict::Good);
    }
    loop {
        let next = match until {
            Some(until) => match timeout_at(until, events.next()).await {
                Ok(next) => next,
                Err(_) => return Ok(Verdict::Good),
            },
            None => events.next().await,
        };
        let why = match next {
            Ok(Some(event)) => {
                let told = if args.json { json_lines(&event.data) } else { lines(&event.data) };
                for line in told {
                    if !write_line(&line)? {
                        return Ok(Verdict::Good);
                    }
                }
                continue;
            }
            Ok(None) => "the proxy ended the stream".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        errln!("no answer from {admin}: {why}; trying again");
        events = loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Verdict::Good);
            }
            sleep(PAUSE).await;
            match Events::open(admin, &path).await {
                Ok(events) => break events,
                Err(failure @ Failure::Refused { .. }) => return Err(failure.problem(admin)),
                Err(_) => {}
            }
        };
        errln!("{admin} answers again");
    }
}

/// The refusals of an event, a line each, and the count of the others.
fn lines(event: &str) -> Vec<String> {
    lines_by(event, explain::line)
}

/// The same for a screen that shows one cluster.
pub(crate) fn short_lines(event: &str) -> Vec<String> {
    lines_by(event, explain::short_line)
}

fn lines_by(event: &str, line: fn(&Value) -> String) -> Vec<String> {
    let Ok(event) = serde_json::from_str(event).map(clean) else { return Vec::new() };
    let (requests, left_out, missed) = parts(&event);
    let mut lines: Vec<String> = Vec::new();
    // They came before those that follow.
    if left_out > 0 {
        lines.push(format!("# {left_out} more such requests are left out"));
    }
    if missed > 0 {
        lines.push(format!("# {missed} requests were displaced from memory first: see `entries` in [explain]"));
    }
    lines.extend(requests.iter().map(line));
    lines
}

/// The same as JSON.
fn json_lines(event: &str) -> Vec<String> {
    let Ok(event) = serde_json::from_str(event) else { return Vec::new() };
    let (requests, left_out, missed) = parts(&event);
    let counts = (left_out > 0 || missed > 0).then(|| json!({ "left_out": left_out, "missed": missed }));
    counts.iter().chain(requests).map(|line| clean_line(&line.to_string())).collect()
}

fn parts(event: &Value) -> (&[Value], u64, u64) {
    let count = |key: &str| event[key].as_u64().unwrap_or_default();
    (event["requests"].as_array().map_or(&[][..], Vec::as_slice), count("left_out"), count("missed"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn path(line: &str) -> String {
        Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{error}")).args.path()
    }

    #[test]
    fn arguments_become_a_question() {
        assert_eq!(path("tap"), "/api/v1/explain/stream?last=250&outcome=refused");
        assert_eq!(
            path("tap --reason no-backend --customer a&b"),
            "/api/v1/explain/stream?last=250&reason=no-backend&customer=a%26b"
        );
        assert_eq!(
            path("tap --reason quota --outcome failed"),
            "/api/v1/explain/stream?last=250&outcome=failed&reason=quota"
        );
    }

    #[test]
    fn nothing_is_left_out_silently() {
        let event = r#"{"requests":[{"id":"7","reason":"quota"}],"left_out":3,"missed":9}"#;
        let told = lines(event);
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("# 3 more") && told[1].starts_with("# 9 requests") && told[2].contains(" quota "));
        assert_eq!(json_lines(event), [r#"{"left_out":3,"missed":9}"#, r#"{"id":"7","reason":"quota"}"#]);
        assert_eq!(lines(r#"{"requests":[],"left_out":0,"missed":0}"#), Vec::<String>::new());
    }

    #[test]
    fn hostile_names_control_no_terminal() {
        let event = json!({ "requests": [{ "id": "\u{1b}[2J", "customer": "\u{9b}31m\u{202e}", "path": "/\n" }] });
        for line in lines(&event.to_string()).into_iter().chain(json_lines(&event.to_string())) {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
    }
}

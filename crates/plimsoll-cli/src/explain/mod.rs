//! `plimsoll explain`: why a request was shed, failed, was retried, or went to its backend.
//!
//! Asks the admin API of a running proxy, and prints the answer for people.

mod tell;

pub(crate) use self::tell::{LINE_HEADER, line, short_line};

use std::net::SocketAddr;

use http::Method;
use plimsoll_core::Criticality;
use serde_json::Value;

use crate::admin::events::ask_text;
use crate::admin::failure::Failure;
use crate::admin::path::escaped;
use crate::exit::{Outcome, Verdict};
use crate::output::{out, outln};
use crate::units;

/// Where the admin API of a proxy listens unless its config says otherwise.
const ADMIN: &str = "127.0.0.1:9900";
/// Lines that fit on a screen.
const LAST: usize = 20;

/// Arguments of `plimsoll explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll explain                    the latest requests, a line each
  plimsoll explain 1f3a9c4e77b2d015   one of them, by its x-request-id
  plimsoll explain --reason overloaded --criticality critical
  plimsoll explain --outcome retried --json | jq .requests[].failed_attempts

All requests that were refused, failed or retried are remembered, and a sample of the others: see [explain] in the \
configuration. `curl -s ADDR/api/v1/throttling` has the shedding report, with a verdict.")]
pub(crate) struct Args {
    /// The request, by its x-request-id or by the one in its response
    #[arg(value_name = "ID", conflicts_with_all = ["outcome", "reason", "criticality", "customer", "cluster", "last"])]
    id: Option<String>,
    /// Address of the proxy's admin API, as IP:PORT or :PORT
    #[arg(long, value_name = "ADDR", value_parser = units::local_address, default_value = ADMIN)]
    admin: SocketAddr,
    /// Only requests with this outcome
    #[arg(long, value_parser = ["refused", "failed", "retried", "served"])]
    outcome: Option<String>,
    /// Only requests with this reason, the word in the response, such as `overloaded` or `no-backend`
    #[arg(long)]
    reason: Option<String>,
    /// Only requests of this criticality
    #[arg(long, value_name = "LEVEL", value_parser = Criticality::ALL.map(Criticality::name))]
    criticality: Option<String>,
    /// Only requests of this customer
    #[arg(long, value_name = "NAME")]
    customer: Option<String>,
    /// Only requests to this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Number of requests, the latest first
    #[arg(long, value_name = "N", default_value_t = LAST)]
    last: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The path and query of the question.
    fn path(&self) -> String {
        if let Some(id) = &self.id {
            return format!("/api/v1/explain/{}", escaped(id));
        }
        let chosen = [
            ("outcome", &self.outcome),
            ("reason", &self.reason),
            ("criticality", &self.criticality),
            ("customer", &self.customer),
            ("cluster", &self.cluster),
        ];
        let chosen = chosen.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let chosen: String = chosen.map(|(key, value)| format!("&{key}={}", escaped(value))).collect();
        format!("/api/v1/explain?last={}{chosen}", self.last)
    }
}

/// Asks, and prints the answer.
pub(crate) fn run(args: &Args) -> Outcome {
    let admin = args.admin.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(ask_text(&admin, Method::GET, &args.path()));
    let answer = answer.and_then(|text| serde_json::from_str(&text).map_err(|error| Failure::no_json(&error)));
    let answer: Value = answer.map_err(|failure| failure.problem(&admin))?;
    if args.json {
        outln!("{answer:#}")?;
        return Ok(Verdict::Good);
    }
    let requests = answer["requests"].as_array().map_or(&[][..], Vec::as_slice);
    match &args.id {
        Some(_) => requests.iter().try_for_each(|request| outln!("{}", tell::whole(request)))?,
        None => {
            out!("{}", tell::list(requests, remembered(&answer)))?;
            if let (true, Some(reason)) = (requests.is_empty(), args.reason.as_deref().filter(is_only_counted)) {
                outln!("{}", tell::only_counted(reason))?;
            }
        }
    }
    Ok(Verdict::Good)
}

/// The requests of an answer about one cluster, for a screen: a line each, the latest first.
pub(crate) fn lines(answer: &Value) -> Vec<String> {
    let requests = answer["requests"].as_array().map_or(&[][..], Vec::as_slice);
    match requests {
        [] => vec!["none is remembered".to_owned()],
        some => tell::short_lines(some),
    }
}

/// Whether requests with this reason may be counted without being remembered.
fn is_only_counted(reason: &&str) -> bool {
    plimsoll_proxy::explain::may_be_only_counted(reason)
}

fn remembered(answer: &Value) -> &[Value] {
    answer["remembered"].as_array().map_or(&[][..], Vec::as_slice)
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
        assert_eq!(path("explain"), "/api/v1/explain?last=20");
        assert_eq!(path("explain a/b"), "/api/v1/explain/a%2Fb");
        assert_eq!(
            path("explain --reason quota --customer a&b --last 5"),
            "/api/v1/explain?last=5&reason=quota&customer=a%26b"
        );
        assert!(Line::try_parse_from(["explain", "7", "--reason", "quota"]).is_err());
    }
}

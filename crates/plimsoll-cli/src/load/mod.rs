//! `plimsoll load`: how many requests a server answers, how fast, and what it does when there are more.
//!
//! A measuring tool, so it speaks to one address over hyper's connections, without a balancer, and
//! does nothing on its own that would make the server look better: no retries (only a request of
//! which nothing was sent goes out again), no easing off. On one thread, since what is in the way of
//! most measurements on one machine is the CPU that the measuring tool takes from the measured.
//!
//! Two shapes of load:
//! * **open loop** (`--rate`): requests arrive by their own clock, as users do. Slow answers do not
//!   slow the arrivals, so queues at the server grow as they would in production.
//! * **closed loop** (`--concurrency`): each of N callers sends the next request when the last one is
//!   answered. Finds the highest throughput; says little about latency, since a slow server is asked less.
//!
//! Requests may differ in criticality and customer, and their answers be of use for a while only. What
//! became of each group is then in the result: the throughput of an overloaded server says little,
//! whom it still serves in time says much.

mod arrival;
pub(crate) mod engine;
pub(crate) mod mix;
pub(crate) mod pace;
pub(crate) mod plan;
mod pool;
pub(crate) mod record;
mod report;
pub(crate) mod spread;
pub(crate) mod tally;
pub(crate) mod target;

use std::time::Duration;

use crate::exit::{Outcome, Verdict};
use crate::output::{out, outln};
use crate::{process, units};

use mix::Parts;
use plan::{Plan, Protocol};

/// Arguments of `plimsoll load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll load http://127.0.0.1:8080/ --rate 500         500 requests a second
  plimsoll load http://127.0.0.1:8080/ --rate 500 --arrival uniform --json
  plimsoll load http://127.0.0.1:8080/ --concurrency 50   closed loop
  plimsoll load http://127.0.0.1:8080/ --protocol grpc --rate 200
  plimsoll load http://127.0.0.1:8080/ --requests 1000 --fail-on-error

Share of each group that is served in time under overload:
  plimsoll load http://127.0.0.1:8080/ --rate 2000 --useful-within 250ms \\
      --tell-deadline --customers web=3,batch=1 \\
      --criticality critical-plus=10,critical=30,sheddable-plus=30,sheddable=30

Latency runs from the intended send time to the end of the body, so a stall shows in every request that it delayed. A \
request fails without a complete response in time, with an HTTP status of 400 or more, or with a gRPC status other \
than 0. With --fail-on-error the exit code is then 1.

With --criticality, --customers or --useful-within the result has a row for each group. A useful response came in time \
and did not fail. A shed request was answered with x-plimsoll-shed, HTTP 429 or 503, or gRPC RESOURCE_EXHAUSTED or \
UNAVAILABLE.")]
pub(crate) struct Args {
    /// Target, as http://HOST:PORT/PATH
    url: String,
    /// Open loop: requests per second
    #[arg(long, value_name = "R", value_parser = units::positive, conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// Open loop: distribution of the gaps between requests [default: poisson]
    #[arg(long, value_enum, requires = "rate")]
    arrival: Option<plan::Arrival>,
    /// Closed loop: callers that each wait for their response [default: 10, without --rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Protocol
    #[arg(long, value_enum, default_value_t = Protocol::Http1)]
    protocol: Protocol,
    /// Connections opened at the start; HTTP/1 opens more when all are busy
    /// [default: the concurrency, or 1 over HTTP/2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Duration of the measurement [default: 10s, without --requests]
    #[arg(long, value_name = "D", value_parser = units::positive_duration)]
    duration: Option<Duration>,
    /// Number of requests, without the warm-up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "0s")]
    warmup: Duration,
    /// Timeout of a request
    #[arg(long, value_name = "D", value_parser = units::positive_duration, default_value = "10s")]
    timeout: Duration,
    /// Open loop: limit of requests in flight; requests beyond it are dropped, and counted as dropped
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5_000)]
    max_in_flight: u32,
    /// HTTP method [default: GET, POST with --body-size or gRPC]
    #[arg(long, value_name = "METHOD")]
    method: Option<http::Method>,
    /// Header of each request, as `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Path, in place of that of the URL [gRPC: /plimsoll.backend.v1.Backend/Work if the URL has none]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Bytes in the body of a request
    #[arg(long, value_name = "N", default_value_t = 0)]
    body_size: u32,
    /// Mix of criticalities, sent as `x-criticality`:
    /// critical-plus=10,critical=30,sheddable-plus=30,sheddable=30
    #[arg(long, value_name = "LIST", value_parser = Parts::of_criticalities)]
    criticality: Option<Parts>,
    /// Mix of customers, sent as `x-customer`: web=3,batch=1
    #[arg(long, value_name = "LIST", value_parser = Parts::of_customers)]
    customers: Option<Parts>,
    /// Time from the intended send while a response is useful [default: no limit]
    #[arg(long, value_name = "D", value_parser = units::positive_duration)]
    useful_within: Option<Duration>,
    /// Send the rest of --useful-within as the deadline: x-envoy-expected-rq-timeout-ms, or grpc-timeout
    #[arg(long, requires = "useful_within")]
    tell_deadline: bool,
    /// Seed of arrivals, criticalities and customers: the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Exit 1 if a request failed or was dropped
    #[arg(long)]
    fail_on_error: bool,
}

/// Sends the load, prints the result.
pub(crate) fn run(args: Args) -> Outcome {
    let (json, fail_on_error) = (args.json, args.fail_on_error);
    let plan = Plan::try_from(args)?;
    process::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (plan, measured) = tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = engine::Engine::new(plan);
        tokio::select! {
            ended = engine.run() => ended?,
            // What was measured so far is worth reading: stop sending and report it.
            _ = tokio::signal::ctrl_c() => tracing::warn!("interrupted; the result covers the time until now"),
        }
        Ok::<_, anyhow::Error>((engine.plan(), engine.take_measured()))
    })?;
    let report = report::Report::new(&plan, &measured);
    if json {
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        out!("{report}")?;
    }
    if measured.dropped > 0 {
        tracing::warn!(
            dropped = measured.dropped,
            "requests dropped before they were sent: --max-in-flight requests had no response yet; latency leaves them out"
        );
    }
    let faultless = measured.failed() == 0 && measured.dropped == 0;
    Ok(if fail_on_error && !faultless { Verdict::Bad } else { Verdict::Good })
}

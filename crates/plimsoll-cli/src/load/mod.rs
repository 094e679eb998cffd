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
mod pace;
pub(crate) mod plan;
mod pool;
pub(crate) mod record;
mod report;
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
  plimsoll load http://127.0.0.1:8080/ --concurrency 50   what 50 callers get
  plimsoll load http://127.0.0.1:8080/ --protocol grpc --rate 200
  plimsoll load http://127.0.0.1:8080/ --requests 1000 --fail-on-error

Who is served in time when there is too much for all:
  plimsoll load http://127.0.0.1:8080/ --rate 2000 --useful-within 250ms \\
      --tell-deadline --customers web=3,batch=1 \\
      --criticality critical-plus=10,critical=30,sheddable-plus=30,sheddable=30

Latency counts from the moment at which a request was meant to be sent to the end of its body, so a stall shows in every \
request that it held up. A request failed if it got no whole answer in time, an HTTP status of 400 or more, or a gRPC \
status other than 0. With --fail-on-error it exits with 1 if one did.

With --criticality, --customers or --useful-within the result also says what became of each group. Useful are answers \
that did not fail and came in time; shed are requests answered with x-plimsoll-shed, HTTP 429 or 503, or gRPC \
RESOURCE_EXHAUSTED or UNAVAILABLE.")]
pub(crate) struct Args {
    /// Where to: http://HOST:PORT/PATH
    url: String,
    /// Open loop: requests a second
    #[arg(long, value_name = "R", value_parser = units::positive, conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// Open loop: how the gaps between requests are spread [default: poisson]
    #[arg(long, value_enum, requires = "rate")]
    arrival: Option<plan::Arrival>,
    /// Closed loop: callers that each wait for their answer [default: 10, without --rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// What to speak
    #[arg(long, value_enum, default_value_t = Protocol::Http1)]
    protocol: Protocol,
    /// Connections opened at the start; HTTP/1 opens further ones when all are busy
    /// [default: the concurrency, or 1 over HTTP/2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// How long to send [default: 10s, without --requests]
    #[arg(long, value_name = "D", value_parser = units::positive_duration)]
    duration: Option<Duration>,
    /// How many to send, the warm-up not counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Sent before the measurement, and not counted
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "0s")]
    warmup: Duration,
    /// How long to wait for each answer
    #[arg(long, value_name = "D", value_parser = units::positive_duration, default_value = "10s")]
    timeout: Duration,
    /// Open loop: requests waiting for their answer beyond which further ones are dropped, and counted as such
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5_000)]
    max_in_flight: u32,
    /// The method [default: GET, POST with --body-size or gRPC]
    #[arg(long, value_name = "METHOD")]
    method: Option<http::Method>,
    /// A header of each request, as `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The path, instead of the URL's [gRPC: /plimsoll.backend.v1.Backend/Work if the URL has none]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Bytes of body in each request
    #[arg(long, value_name = "N", default_value_t = 0)]
    body_size: u32,
    /// Criticalities that requests name in `x-criticality`, each with its part of them:
    /// critical-plus=10,critical=30,sheddable-plus=30,sheddable=30
    #[arg(long, value_name = "LIST", value_parser = Parts::of_criticalities)]
    criticality: Option<Parts>,
    /// Customers that requests name in `x-customer`, each with its part of them: web=3,batch=1
    #[arg(long, value_name = "LIST", value_parser = Parts::of_customers)]
    customers: Option<Parts>,
    /// How long after a request was meant to be sent its answer is of use [default: for ever]
    #[arg(long, value_name = "D", value_parser = units::positive_duration)]
    useful_within: Option<Duration>,
    /// Tell the server how much of --useful-within is left: x-envoy-expected-rq-timeout-ms, or grpc-timeout
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
            "requests were dropped, never sent: the server fell behind by more than --max-in-flight; latency leaves them out"
        );
    }
    let faultless = measured.failed() == 0 && measured.dropped == 0;
    Ok(if fail_on_error && !faultless { Verdict::Bad } else { Verdict::Good })
}

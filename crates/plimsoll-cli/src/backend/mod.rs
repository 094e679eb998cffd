//! `plimsoll backend`: a synthetic server whose cost, speed and faults can be set while it runs.
//!
//! HTTP/1, HTTP/2 and gRPC on one listener, told apart by what the client sends first. The traffic is
//! served on one thread and the cost is burnt on others ([`cores`]), so that a backend at its limit
//! still accepts, queues and answers its health checks, as servers with a thread pool do. With
//! `--emulate` the cost is not burnt but computed ([`emulated`]).

mod body;
mod control;
mod cores;
mod distribution;
mod emulated;
mod limits;
mod machine;
mod probes;
mod quota_tls;
mod service;
mod settings;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderName;
use plimsoll::server::{DrainEnd, Lifecycle, Mode, ServeConfig, ServerLayer, Trust, coalescing, serve};
use plimsoll_core::Speed;
use tokio::net::TcpSocket;

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::errln;
use crate::{probe_keys, process, units};

use cores::Cores;
use distribution::Distribution;
use emulated::{Discipline, Emulated};
use limits::Limit;
use machine::Machine;
use service::Backend;
use settings::{Report, Settings};

/// Answers 200 when requests are welcome, 503 in lame duck.
const READINESS_PATH: &str = "/readyz";
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Names the customer of a request.
const X_CUSTOMER: HeaderName = HeaderName::from_static("x-customer");

/// Arguments of `plimsoll backend`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll backend --listen 127.0.0.1:9001 --cost exp:2ms
  plimsoll backend --listen :9002 --cost exp:2ms --speed 4   a fast machine
  plimsoll backend --listen :9003 --wait lognormal:20ms,1    waits, without CPU
  plimsoll backend --report utilization=.2,rps=100           fixed load report
  plimsoll backend --listen :9004 --cost exp:2ms --protect   sheds overload
  plimsoll backend --emulate fcfs --cost exp:20ms            an emulated core
  curl -d '{\"speed\": 0.5, \"error_rate\": 0.1}' 127.0.0.1:9001/control

The curl command changes a running backend. Distributions: fixed:D, exp:MEAN, lognormal:MEAN,SIGMA, pareto:LEAST,SHAPE.

gRPC calls go to /plimsoll.backend.v1.Backend/Work, which returns each message.
SIGTERM makes it a lame duck: it asks for no new requests, serves those that still arrive, then ends.")]
pub(crate) struct Args {
    /// Address to listen at, as IP:PORT or :PORT; port 0 takes a free port, and stderr names it
    #[arg(long, value_name = "ADDR", value_parser = units::listen_address, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// CPU cost of a request, at speed 1
    #[arg(long, value_name = "DIST", default_value = "fixed:1ms")]
    cost: Distribution,
    /// Wait of a request, without CPU
    #[arg(long, value_name = "DIST", default_value = "fixed:0ms")]
    wait: Distribution,
    /// Speed of this machine: divides the cost, and reported costs are multiplied by it
    #[arg(long, value_name = "F", value_parser = units::speed, default_value = "1")]
    speed: f64,
    /// Requests processed at the same time; further requests queue
    #[arg(long, value_name = "N", default_value = "1")]
    cores: NonZeroUsize,
    /// Emulate the cores: requests take as long as on a machine of that speed, and use no CPU
    #[arg(long, value_name = "DISCIPLINE", value_enum, conflicts_with = "cpus")]
    emulate: Option<Discipline>,
    /// CPU capacity, where it shares the cores with other processes [default: the cores]
    #[arg(long, value_name = "F", value_parser = units::positive)]
    cpus: Option<f64>,
    /// Load reports: `measured`, or utilization=U,rps=R[,eps=E]
    #[arg(long, value_name = "REPORT", default_value = "measured")]
    report: Report,
    /// Share of requests that fail after the work: HTTP 500, gRPC INTERNAL
    #[arg(long, value_name = "R", value_parser = units::ratio, default_value = "0")]
    error_rate: f64,
    /// Fail every request at once, without work
    #[arg(long)]
    fail_fast: bool,
    /// Bytes in the body of a response
    #[arg(long, value_name = "N", default_value_t = 34)]
    body_size: u32,
    /// Shed the least important requests under overload; `x-customer` names the customer
    #[arg(long)]
    protect: bool,
    /// CPU limit of a customer at speed 1, also when there is headroom; may be repeated
    #[arg(long, value_name = "NAME=CPUS", value_parser = limits::parse, requires = "protect")]
    customer_limit: Vec<Limit>,
    /// Write the CPU cost of each request into the response header x-plimsoll-cost-us
    #[arg(long, requires = "protect")]
    cost_header: bool,
    /// Address of a quota server: CPU limits of customers over a fleet; may be repeated
    #[arg(long, value_name = "ADDR", requires = "protect")]
    quota: Vec<String>,
    /// Service at the quota server
    #[arg(long, value_name = "NAME", default_value = "default", requires = "quota")]
    quota_service: String,
    #[command(flatten)]
    quota_tls: quota_tls::Args,
    #[command(flatten)]
    probe_keys: probe_keys::Args,
    /// Time as a lame duck after the start
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "0s")]
    start_delay: Duration,
    /// Longest drain after SIGTERM
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "30s")]
    drain: Duration,
    /// Seed of costs, waits and errors [default: the port, so that backends differ]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Serves until SIGTERM and the drain that follows.
pub(crate) fn run(args: Args) -> Outcome {
    process::prepare();
    // One thread for the traffic: the cost is burnt elsewhere.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all();
    if args.emulate.is_none() {
        // Emulated cores have ends to keep, and no CPU to save.
        runtime.on_thread_park(coalescing::pause);
    }
    let runtime = runtime.build()?;
    runtime.block_on(run_server(args))
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn run_server(args: Args) -> Outcome {
    let unheard = |error| anyhow::Error::from(error).context(format!("cannot listen on {}", args.listen));
    let socket = bind(args.listen).map_err(unheard)?;
    let listen = socket.local_addr()?;
    // Before anybody can connect: a client probes as soon as it has connected.
    let probed = probes::bind(&args.probe_keys, listen)?;
    let listener = socket.listen(BACKLOG).map_err(unheard)?;
    let settings = Settings {
        cost: args.cost,
        wait: args.wait,
        speed: args.speed,
        error_rate: args.error_rate,
        fail_fast: args.fail_fast,
        body_size: args.body_size,
        report: args.report,
    };
    // Requests are answered on one thread and cost CPU on others: the latter are what can be full.
    let speed = Speed::new(args.speed).context("the speed is out of range")?;
    let cpus = args.cpus.unwrap_or(args.cores.get() as f64);
    let (machine, cpu_clock) = match args.emulate {
        None => (Machine::Real(Cores::start(args.cores).context("cannot start the threads that burn CPU")?), None),
        Some(discipline) => {
            let cores = Emulated::start(discipline, args.cores).context("cannot start the timer of the cores")?;
            let used = cores.used();
            (Machine::Emulated(cores), Some(used))
        }
    };
    let seed = args.seed.unwrap_or(u64::from(listen.port()));
    let backend = Arc::new(Backend::new(listen, machine, settings, seed));

    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm().context("cannot handle signals")?;
    let reporting = Arc::clone(&backend);
    let mut reports = ServerLayer::builder(lifecycle.clone());
    if let Some(used) = cpu_clock {
        reports = reports.cpu_clock(used);
    }
    let reports = reports
        .cpus(cpus)
        .speed(speed)
        // For trying and testing: all claims of clients are believed.
        .trust(Trust::Full)
        .source(move |measured| reporting.report().instead_of(measured))
        .readiness_path(READINESS_PATH)
        .cost_header(args.cost_header)
        .admission(args.protect.then_some(Mode::Protect))
        .customer_header(X_CUSTOMER)
        .quota_by(limits::rule(args.customer_limit))
        .exempt(|head| control::is_meant(head.uri.path()))
        .build();
    if let (false, Some(limits)) = (args.quota.is_empty(), reports.fleet_limits()) {
        let mut client = plimsoll_quota::Client::new(&args.quota, args.quota_service)
            .map_err(|error| Problem::Usage(format!("--quota: {error}")))?;
        if let Some(files) = args.quota_tls.files() {
            files.read().map_err(Problem::Usage)?;
            client = client.tls_from(move || files.read());
        }
        tokio::spawn(client.run(limits));
    }
    let _answers_probes = probes::start(probed, &reports)?;
    let service = tower::service_fn(move |request| {
        let backend = Arc::clone(&backend);
        async move { Ok::<_, Infallible>(backend.answer(request).await) }
    });
    let mut config = ServeConfig::default();
    config.drain.drain = args.drain;
    let server = tokio::spawn(serve([listener], service, reports, config));
    // Scripts wait for this line, and read the port from it: it is no log line.
    errln!("listening on {listen}");
    if !args.start_delay.is_zero() {
        tokio::time::sleep(args.start_delay).await;
    }
    lifecycle.ready();
    match server.await? {
        DrainEnd::Quiet => {}
        DrainEnd::Overdue { unfinished } | DrainEnd::CutShort { unfinished } => {
            tracing::warn!(unfinished, "ended with requests in flight");
        }
    }
    Ok(Verdict::Good)
}

#[cfg(test)]
mod tests;

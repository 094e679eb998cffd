//! `plimsoll register`: keeps a process in the fleet's registry, in any language.
//!
//! It checks the process, derives its state ([`crate::watched`]), and writes both to etcd under a
//! lease. The record ends with the process (`--pid`), with a signal, or 10 s after the end of this
//! command.

mod pid;

use std::net::SocketAddr;
use std::pin::pin;

use plimsoll::discover::{Endpoint, Readiness};
use plimsoll::probe::ServerState;
use plimsoll_core::{Speed, Weight};
use plimsoll_etcd::Session;
use plimsoll_fleet::{LEASE, MAX_LABEL, Name, Registration};

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::errln;
use crate::watched::{self, ProcessState};
use crate::{etcd_args, signals};

use pid::Process;

/// Arguments of `plimsoll register`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll register --etcd 10.0.0.1:2379 --service web --address 10.0.0.7:8080
  plimsoll register --etcd 10.0.0.1:2379 --service web --address 10.0.0.7:80 \\
    --pid 4711 --ready http://127.0.0.1:80/healthz --zone a --weight 2

The process is starting until it passes its first check. A readiness answer of 503, or three failed checks in a row, \
make it draining: it gets no new requests. The next passed check makes it ready.

SIGTERM makes it draining. Have it sent before the process gets its own. The command ends when the process ends, or at \
a second signal. Keep it running by a supervisor: 10 s after its own end, the process leaves the registry.")]
pub(crate) struct Args {
    #[command(flatten)]
    etcd: etcd_args::Args,
    /// Service that the process is a backend of
    #[arg(long, value_name = "NAME")]
    service: Name,
    /// Address that clients reach the process at, as IP:PORT
    #[arg(long, value_name = "ADDR", value_parser = address)]
    address: SocketAddr,
    /// Name of this backend in the registry; a later process of the name replaces it [default: the address]
    #[arg(long, value_name = "NAME")]
    instance: Option<Name>,
    /// Process id: its end removes the backend at once
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    watched: watched::Args,
    /// Capacity relative to the other backends
    #[arg(long, value_name = "F", value_parser = weight, default_value = "1")]
    weight: Weight,
    /// Failure domain: a zone or rack
    #[arg(long, value_name = "NAME", value_parser = label)]
    zone: Option<String>,
    /// Place for nearest-first routing
    #[arg(long, value_name = "NAME", value_parser = label)]
    locality: Option<String>,
    /// Speed of the machine, relative to the reference core
    #[arg(long, value_name = "F", value_parser = speed)]
    speed: Option<Speed>,
    /// Take a slot too: a number among the backends, for subset algorithms that need one
    #[arg(long)]
    slot: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write an IP address and a port, such as 10.0.0.7:8080".to_owned())?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err("name the address that clients reach the process at".to_owned());
    }
    Ok(address)
}

fn label(text: &str) -> Result<String, String> {
    match text.len() {
        1..=MAX_LABEL => Ok(text.to_owned()),
        _ => Err(format!("write 1 to {MAX_LABEL} bytes, or leave it out")),
    }
}

fn weight(text: &str) -> Result<Weight, String> {
    let weight = text.parse().ok().and_then(Weight::new);
    weight.ok_or_else(|| "write a number from 0.001 to 1000".to_owned())
}

fn speed(text: &str) -> Result<Speed, String> {
    let speed = text.parse().ok().and_then(Speed::new);
    speed.ok_or_else(|| "write a number from 0.01 to 100".to_owned())
}

/// Registers until SIGTERM and the end of the process.
pub(crate) fn run(args: &Args) -> Outcome {
    if !args.etcd.is_named() {
        return Err(Problem::usage("no etcd is named\n  help: name it with --etcd HOST:PORT"));
    }
    let client = args.etcd.client()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let process = args.pid.map(Process::open).transpose();
        let process = process.map_err(|reason| Problem::Usage(format!("--pid: {reason}")))?;
        let session = Session::start(client.clone(), LEASE);
        let instance = args.instance.clone().map_or_else(|| Name::new(args.address.to_string()), Ok)?;
        let registration = Registration::start(&client, &session, &args.service, &instance, endpoint(args));
        let registration = if args.slot { registration.with_slot() } else { registration };
        serve(args, process, registration).await;
        if let Err(error) = session.end().await {
            tracing::warn!(%error, "backend not removed from the registry: its lease ends it");
        }
        Ok(Verdict::Good)
    })
}

fn endpoint(args: &Args) -> Endpoint {
    let mut endpoint = Endpoint::new(args.address).weight(args.weight).readiness(Readiness::Starting);
    endpoint.zone = args.zone.as_deref().map(Into::into);
    endpoint.locality = args.locality.as_deref().map(Into::into);
    endpoint.speed = args.speed;
    endpoint
}

async fn serve(args: &Args, process: Option<Process>, registration: Registration) {
    let checks = args.watched.checks(&[args.address]);
    let mut state = ProcessState::new();
    let mut ended = pin!(async {
        match &process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    });
    let mut ending = pin!(signals::ending());
    let mut ticks = args.watched.ticks();
    let mut is_registered = false;
    loop {
        tokio::select! {
            biased;
            () = &mut ending => break,
            () = &mut ended => {
                tracing::info!("the process has ended");
                return;
            }
            () = registration.registered(), if !is_registered => {
                is_registered = true;
                // Scripts wait for this line: it is no log line.
                errln!("registered {} as a backend of {}", args.address, args.service);
            }
            outcome = async { ticks.tick().await; checks.check().await } => {
                state.on_check(outcome);
                publish(&registration, state.get());
            }
        }
    }
    state.end();
    publish(&registration, state.get());
    tokio::select! {
        () = args.watched.wait_for_end(&checks) => {}
        () = &mut ended => {}
    }
}

fn publish(registration: &Registration, state: ServerState) {
    let readiness = match state {
        ServerState::Starting => Readiness::Starting,
        ServerState::Healthy => Readiness::Ready,
        ServerState::LameDuck => Readiness::Draining,
    };
    registration.set(|endpoint| endpoint.readiness = readiness);
}

//! `plimsoll answer`: answers probes by UDP for a process that does not itself, in any language.
//!
//! It checks the process and derives its state ([`crate::watched`]), and hands it to the thread of
//! the library that answers and notifies.

mod load;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::RwLock;
use plimsoll::probe::{Keyring, Responder, ResponderSettings, ServerState, Subject};
use plimsoll_core::LoadReport;

use crate::exit::{Outcome, Problem, Verdict};
use crate::output::errln;
use crate::watched::{self, ProcessState};
use crate::{probe_keys, signals, units};

use load::GroupLoad;

/// Arguments of `plimsoll answer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll answer --for 127.0.0.1:8080 --ready http://127.0.0.1:8080/healthz
  plimsoll answer --for :8080 --probe-keys /etc/plimsoll/probe-keys
  plimsoll answer --for 127.0.0.1:8080 --cgroup /sys/fs/cgroup/app --cpus 2

The process is starting until it passes its first check. A readiness answer of 503, or three failed checks in a row, \
make it a lame duck; the next passed check makes it healthy.

SIGTERM makes it a lame duck at once. Have it sent before the process gets its own: clients with a lease hear of it \
within a round trip. The command ends when the process refuses connections, or at a second signal.")]
pub(crate) struct Args {
    /// TCP address of the process, as IP:PORT or :PORT; UDP is answered there; may be repeated
    #[arg(long = "for", value_name = "ADDR", value_parser = address, required = true)]
    addresses: Vec<SocketAddr>,
    #[command(flatten)]
    watched: watched::Args,
    /// Folder of the control group (version 2) of the process: its CPU usage is the load
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// CPUs at a utilization of 1 [default: the quota of the group, else those of the machine]
    #[arg(long, value_name = "F", value_parser = units::positive, requires = "cgroup")]
    cpus: Option<f64>,
    #[command(flatten)]
    probe_keys: probe_keys::Args,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = units::listen_address(text)?;
    if address.port() == 0 { Err("name the TCP port of the process".to_owned()) } else { Ok(address) }
}

/// Answers until SIGTERM and the end of the process.
pub(crate) fn run(args: &Args) -> Outcome {
    let keyring = keyring(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args, keyring))
}

fn keyring(args: &Args) -> Result<Keyring, Problem> {
    args.probe_keys.keyring(&args.addresses)?.ok_or_else(|| {
        Problem::usage(
            "--for: probes beyond loopback need a key\n  help: name a file of keys with --probe-keys FILE, or answer \
             at loopback alone: --for 127.0.0.1:PORT",
        )
    })
}

/// The facts about the process that the thread of the responder reads.
#[derive(Clone)]
struct Facts(Arc<RwLock<(ServerState, Option<LoadReport>)>>);

impl Subject for Facts {
    fn state(&self) -> ServerState {
        self.0.read().0
    }

    fn load(&self) -> Option<LoadReport> {
        self.0.read().1
    }
}

/// The process as clients see it.
struct Answers {
    process: ProcessState,
    facts: Facts,
    responder: Responder,
}

impl Answers {
    fn start(args: &Args, keyring: Keyring) -> anyhow::Result<Self> {
        let sockets = args.addresses.iter().map(|address| {
            UdpSocket::bind(address).map_err(|error| {
                anyhow::anyhow!(
                    "cannot answer probes at UDP {address}: {error}\n  help: name an address of this machine \
                     with a free UDP port, see `ss -ulpn`"
                )
            })
        });
        let sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;
        let ports = args.addresses.iter().map(SocketAddr::port);
        let settings = ResponderSettings::new(ports, keyring);
        let process = ProcessState::new();
        let facts = Facts(Arc::new(RwLock::new((process.get(), None))));
        let responder = Responder::start(sockets, settings, facts.clone()).context("cannot answer probes")?;
        Ok(Self { process, facts, responder })
    }

    /// Publishes the state, and the load beside it.
    fn publish(&self, load: Option<LoadReport>) {
        let state = self.process.get();
        let before = std::mem::replace(&mut *self.facts.0.write(), (state, load)).0;
        if state != before {
            tracing::info!(state = name(state), before = name(before), "state changed");
            self.responder.waker().wake();
        }
    }
}

fn name(state: ServerState) -> &'static str {
    match state {
        ServerState::Starting => "starting",
        ServerState::Healthy => "healthy",
        ServerState::LameDuck => "lame-duck",
    }
}

async fn serve(args: &Args, keyring: Keyring) -> Outcome {
    let load = args.cgroup.clone().map(|folder| GroupLoad::new(folder, args.cpus)).transpose();
    let mut load = load.map_err(|reason| Problem::Failed(anyhow::anyhow!("--cgroup: {reason}")))?;
    let checks = args.watched.checks(&args.addresses);
    let mut answers = Answers::start(args, keyring)?;
    for address in answers.responder.addresses() {
        // Scripts wait for these lines: they are no log lines.
        errln!("answering probes at UDP {address}");
    }

    let mut ending = pin!(signals::ending());
    let mut ticks = args.watched.ticks();
    loop {
        let outcome = tokio::select! {
            biased;
            () = &mut ending => break,
            outcome = async { ticks.tick().await; checks.check().await } => outcome,
        };
        answers.process.on_check(outcome);
        answers.publish(load.as_mut().and_then(GroupLoad::sample));
    }
    answers.process.end();
    answers.publish(None);
    args.watched.wait_for_end(&checks).await;
    Ok(Verdict::Good)
}

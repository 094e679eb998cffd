//! Runs the proxy: starts it, obeys signals, ends it.
//!
//! `SIGHUP` reads the config again, `SIGUSR1` opens the access log again, `SIGUSR2` hands over to a successor, `SIGTERM`
//! and `SIGINT` drain, a second one of these ends at once. The admin API gives the same commands ([`Command`]). This
//! thread only controls: it checks backends and answers on the admin port; requests are the workers' business.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use listenfd::ListenFd;
use plimsoll::address::Address;
use plimsoll::server::EndSignals;
use plimsoll_admin::{Declined, LivePage, LiveSource, ReloadView, UpgradeView};
use plimsoll_proxy::config::{Config, ConfigError, at_arguments};
use plimsoll_proxy::{Proxy, Sockets};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

use super::admin::{self, Admin, Move};
use super::control::{self, Command, Controls, Ends};
use super::fleet::ProxyFleet;
use super::handover::Channel;
use super::notify;
use super::pid_file::PidFile;
use super::reload;
use super::shared_ports::SharedPorts;
use super::upgrade::Program;
use super::watch::{self, ConfigWatch};
use crate::exit::Verdict;

/// How long a predecessor is kept when no backend gets healthy: they may all be away, and it could serve no better.
const HEALTHY_PATIENCE: Duration = Duration::from_secs(10);
/// How often a successor looks whether a backend is healthy.
const HEALTHY_LOOK: Duration = Duration::from_millis(20);

/// The files of a proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The config, which a reload reads again; `None` without one.
    pub(super) config: Option<PathBuf>,
    /// The bytes of the config at the start, if a change of them is a reload.
    pub(super) watched: Option<Vec<u8>>,
    /// Where to write the process id.
    pub(super) pid: Option<PathBuf>,
}

/// Serves until drained, or told twice to end.
pub(super) fn serve(config: Config, files: Files, predecessor: Option<&Channel>) -> anyhow::Result<Verdict> {
    let Files { config: file, watched, pid } = files;
    let program = Program::of_this_process().context("cannot find the path of this program")?;
    let pid_file = pid.map(|path| PidFile::prepare(&path)).transpose()?;
    let mut given = match predecessor {
        Some(predecessor) => predecessor.receive().context("cannot take over the predecessor's sockets")?,
        None => activated().context("cannot use the sockets passed by LISTEN_FDS")?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let verdict = runtime.block_on(async {
        let drain = Arc::<Notify>::default();
        let mut signals = Signals::new(Arc::clone(&drain)).context("cannot listen for signals")?;
        let mut bound = config.admin().map(|address| admin::Bound::new(address, &mut given)).transpose()?;
        let wanted: Vec<_> = config.listeners().iter().map(|listener| listener.address).collect();
        // Said before anything fails: that a socket was meant for a listener is often why its address is in use.
        for address in given.addresses().filter(|address| predecessor.is_none() && !wanted.contains(address)) {
            tracing::warn!(%address, "passed socket closed: no listener of the config has its address");
        }
        let answers = |address| {
            config
                .listeners()
                .iter()
                .any(|listener| listener.probes.is_some() && listener.address == Address::Inet(address))
        };
        for address in given.udp_addresses().filter(|address| predecessor.is_none() && !answers(*address)) {
            tracing::warn!(%address, "passed UDP socket closed: no listener with a table probes has its address");
        }
        let started = tokio::select! {
            started = Proxy::start_shut(config, &mut given) => started,
            () = signals.end.next() => {
                tracing::info!("ended before it served");
                return Ok(Verdict::Good);
            }
        };
        let proxy = Arc::new(started.map_err(|error| placed(error, file.as_deref()))?);
        // What no listener wants: its predecessor answers those who have connected there.
        let left_files = given.take_files();
        drop(given);
        let watch = file.as_deref().zip(watched).map(|(file, loaded)| ConfigWatch::start(file, loaded));
        let (controls, mut commands) = Controls::new(Arc::clone(&proxy), file, drain);
        let fleet = Arc::new(ProxyFleet::new(Arc::clone(&proxy), Arc::clone(&controls)));
        tokio::spawn(LivePage::run(Arc::clone(&fleet) as Arc<dyn LiveSource>));
        let mut server = Server { proxy, fleet, controls, admin: Admin::default(), watch, program, pid_file };
        if let Some(predecessor) = predecessor {
            // The service manager is told nothing of what does not come to serve: the service is the predecessor still.
            tokio::select! {
                taken_over = server.take_over(predecessor) => {
                    taken_over?;
                    left_files.remove();
                }
                () = signals.end.next() => {
                    tracing::info!("ended before it served");
                    return Ok(Verdict::Good);
                }
            }
        } else {
            server.proxy.answer_probes();
            // A probe reads there that it waits, and why.
            server.serve_admin(bound.take().map_or(Move::Stay, Move::To));
            tokio::select! {
                () = server.proxy.until_listed() => {}
                () = signals.end.next() => {
                    tracing::info!("ended before it served");
                    return Ok(Verdict::Good);
                }
            }
            server.open().map_err(|error| placed(error, server.controls.file()))?;
        }
        // Not before: while the predecessor answers there too, each request would be told of one process or the other.
        server.serve_admin(bound.map_or(Move::Stay, Move::To));
        notify::ready();
        Ok(server.control(&mut signals, &mut commands).await)
    });
    // Dropped, it would wait for a look-up of names that is under way, or for a successor.
    runtime.shutdown_background();
    verdict
}

/// The error, with what is wrong with arguments put at them.
fn placed(error: plimsoll_proxy::Error, file: Option<&Path>) -> plimsoll_proxy::Error {
    match error {
        plimsoll_proxy::Error::Config(error) if file.is_none() => plimsoll_proxy::Error::Config(ConfigError::new(
            "command line",
            error.problems().iter().cloned().map(at_arguments).collect(),
        )),
        error => error,
    }
}

/// Sockets that systemd, or another program of its manners, listens at for this one.
fn activated() -> std::io::Result<Sockets> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Sockets::default();
    for i in 0..passed.len() {
        // It stays in its place if it is of another kind.
        if let Ok(Some(socket)) = passed.take_udp_socket(i) {
            sockets.add_udp(socket)?;
        } else if let Ok(Some(socket)) = passed.take_unix_listener(i) {
            sockets.add(socket)?;
        } else if let Some(socket) = passed.take_tcp_listener(i)? {
            sockets.add(socket)?;
        }
    }
    Ok(sockets)
}

struct Signals {
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
    end: Ends,
}

impl Signals {
    /// `drain` is told when the end is asked for by a command.
    fn new(drain: Arc<Notify>) -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
            end: Ends::new(EndSignals::new()?, drain),
        })
    }
}

/// A proxy, and what surrounds it in this process.
struct Server {
    proxy: Arc<Proxy>,
    fleet: Arc<ProxyFleet>,
    controls: Arc<Controls>,
    admin: Admin,
    watch: Option<ConfigWatch>,
    program: Program,
    pid_file: Option<PidFile>,
}

impl Server {
    /// Begins to listen and to accept, and says where.
    fn open(&self) -> Result<(), plimsoll_proxy::Error> {
        self.proxy.open()?;
        for listener in self.proxy.listeners() {
            tracing::info!(listener = listener.name, address = %listener.address, "listening");
        }
        if let Some(Err(error)) = self.pid_file.as_ref().map(PidFile::publish) {
            let error = format!("{error:#}");
            tracing::error!(error, "pid file not written");
        }
        Ok(())
    }

    async fn control(&mut self, signals: &mut Signals, commands: &mut Receiver<Command>) -> Verdict {
        let mut ports = SharedPorts::new();
        loop {
            // A look-up of names or a successor may take long, and must not keep the end waiting.
            tokio::select! {
                _ = signals.hangup.recv() => tokio::select! {
                    _ = self.reload() => {}
                    () = signals.end.next() => break,
                },
                Some(command) = commands.recv() => match command {
                    Command::Reload(done) => tokio::select! {
                        outcome = self.reload() => {
                            // Whoever asked may have gone.
                            let _ = done.send(outcome);
                        }
                        () = signals.end.next() => break,
                    },
                    Command::Upgrade(done) => tokio::select! {
                        outcome = self.hand_over() => {
                            let is_served = outcome.pid.is_some();
                            let _ = done.send(outcome);
                            if is_served {
                                return self.leave(signals).await;
                            }
                        }
                        () = signals.end.next() => break,
                    },
                },
                () = watch::changed(&mut self.watch) => tokio::select! {
                    () = self.reload_changed() => {}
                    () = signals.end.next() => break,
                },
                () = ports.tick() => ports.look(&self.proxy),
                _ = signals.reopen.recv() => {
                    tracing::info!("reopening the access log");
                    self.proxy.reopen_access_log();
                }
                _ = signals.upgrade.recv() => tokio::select! {
                    outcome = self.hand_over() => if outcome.pid.is_some() {
                        return self.leave(signals).await;
                    },
                    () = signals.end.next() => break,
                },
                () = signals.end.next() => break,
            }
        }
        notify::stopping();
        self.drain(signals).await
    }

    async fn drain(&self, signals: &mut Signals) -> Verdict {
        self.controls.on_drain();
        tracing::info!("draining; a second signal ends at once");
        let verdict = ends_before(self.proxy.drain(), signals).await;
        self.proxy.remove_socket_files();
        verdict
    }

    /// Ends once the clients have gone to the successor; drains when told to end before.
    async fn leave(&mut self, signals: &mut Signals) -> Verdict {
        // The successor answers from now on. Requests that came before are answered here: the one for the upgrade is
        // among them, and an idle proxy has left before the answer is written.
        let answered = self.admin.close();
        tokio::select! {
            ((), ()) = async { tokio::join!(self.proxy.leave_to_successor(), answered) } => {
                tracing::info!("ended after the handover");
                Verdict::Good
            }
            () = signals.end.next() => self.drain(signals).await,
        }
    }

    /// Serves the admin port where `plan` says. Where it cannot, for want of descriptors, clients are served all the same.
    fn serve_admin(&mut self, plan: Move) {
        if let Err(error) = self.admin.go(plan, &self.fleet) {
            tracing::error!(%error, "admin API not served");
        }
    }

    /// Reads the config again and puts it into force.
    async fn reload(&mut self) -> Result<ReloadView, Declined> {
        let controls = Arc::clone(&self.controls);
        let file = controls.file().ok_or_else(|| {
            let declined = control::no_config();
            tracing::warn!("reload without effect: {}", declined.error);
            declined
        })?;
        Ok(self.reload_from(file, reload::refused).await)
    }

    /// Puts a config that has changed into force.
    async fn reload_changed(&mut self) {
        let controls = Arc::clone(&self.controls);
        if let Some(file) = controls.file() {
            tracing::info!(file = %file.display(), "config file changed");
            self.reload_from(file, reload::refused_change).await;
        }
    }

    async fn reload_from(&mut self, file: &Path, refused: fn(&Path, &anyhow::Error) -> ReloadView) -> ReloadView {
        notify::reloading();
        self.watch.iter_mut().for_each(ConfigWatch::before_reload);
        let outcome = match reload::put_in_force(file, &self.proxy, &self.admin).await {
            Ok(taken) => {
                taken.log(file);
                let outcome = taken.view(file);
                self.serve_admin(taken.plan);
                outcome
            }
            Err(error) => refused(file, &error),
        };
        self.controls.on_reload(&outcome);
        notify::ready();
        outcome
    }

    /// Starts a successor with all sockets.
    async fn hand_over(&self) -> UpgradeView {
        self.proxy.freeze_overrides(true);
        let sockets = self.proxy.sockets().and_then(|mut sockets| {
            sockets.extend(self.admin.socket()?.map(OwnedFd::from));
            Ok(sockets)
        });
        let handed_over = match sockets {
            Ok(sockets) => {
                let probes = self.proxy.probe_handover();
                self.program.hand_over(sockets, self.proxy.socket_files(), probes, &self.fleet.healthy_clusters()).await
            },
            Err(error) => Err(anyhow::Error::new(error).context(
                "cannot copy the listening sockets; help: raise the limit of open files (LimitNOFILE= in systemd, ulimit -n)",
            )),
        };
        match handed_over {
            Ok(process) => {
                notify::succeeded_by(process);
                tracing::info!(
                    pid = process,
                    "handed over to the successor; this process ends when its clients have left"
                );
                UpgradeView { result: "serving", pid: Some(process), error: None }
            }
            Err(error) => {
                self.proxy.freeze_overrides(false);
                let error = format!("{error:#}");
                tracing::error!(error, "no upgrade: this process goes on");
                self.controls.on_failed_upgrade(&error);
                UpgradeView { result: "given-up", pid: None, error: Some(error) }
            }
        }
    }

    /// Waits until this process can serve as well as its predecessor, serves, and tells it so.
    ///
    /// # Errors
    /// When it reaches no backend of a cluster in which one is healthy for its predecessor.
    async fn take_over(&self, predecessor: &Channel) -> anyhow::Result<()> {
        self.proxy.until_listed().await;
        let healthy = Channel::healthy_before();
        tracing::info!("waiting for healthy backends before it takes over");
        let until = Instant::now() + HEALTHY_PATIENCE;
        loop {
            let unserved = self.fleet.without_healthy(&healthy);
            if unserved.is_none() && self.fleet.has_started() {
                break;
            }
            if Instant::now() >= until {
                match unserved {
                    Some(cluster) => bail!(
                        "no takeover: cluster {cluster:?} has a healthy backend for the predecessor, and none for this process; \
                         help: see its failed checks, and compare config, binary and environment"
                    ),
                    None => break,
                }
            }
            tokio::time::sleep(HEALTHY_LOOK).await;
        }
        if let Err(error) = predecessor.take_probes() {
            tracing::warn!(%error, "the predecessor may answer probes for a moment more");
        }
        self.open()?;
        match predecessor.say_serving() {
            Ok(()) => tracing::info!("took over from the predecessor"),
            Err(error) => tracing::warn!(%error, "the predecessor has ended"),
        }
        Ok(())
    }
}

async fn ends_before(end: impl Future<Output = ()>, signals: &mut Signals) -> Verdict {
    tokio::select! {
        () = end => {
            tracing::info!("drained");
            Verdict::Good
        }
        () = signals.end.at_once() => {
            tracing::warn!("ended before the drain was over: requests may be cut off");
            Verdict::Bad
        }
    }
}

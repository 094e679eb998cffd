//! The commands of the admin API on their way to the control thread, and their outcomes on the way back.
//!
//! The control thread does one thing at a time, so a command waits until the one before it is done. A drain does not
//! wait: it is a wish to end, like `SIGTERM`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use plimsoll::client::Cluster;
use plimsoll::server::EndSignals;
use plimsoll_admin::{
    ClusterStatus, Declined, LastFailedUpgrade, LastReload, ListenerStatus, Pending, ProcessView, ReloadView,
    UpgradeView,
};
use plimsoll_core::health::State;
use plimsoll_proxy::Proxy;
use tokio::sync::{Notify, mpsc, oneshot};

/// Commands that may wait. Each is a request to the admin API, of which there are few at a time.
const MAX_WAITING: usize = 8;

/// A command, with where its outcome goes.
#[derive(Debug)]
pub(super) enum Command {
    Reload(oneshot::Sender<Result<ReloadView, Declined>>),
    Upgrade(oneshot::Sender<UpgradeView>),
}

/// The wishes to end: signals, and the command `drain`.
#[derive(Debug)]
pub(super) struct Ends {
    signals: EndSignals,
    drain: Arc<Notify>,
}

impl Ends {
    pub(super) fn new(signals: EndSignals, drain: Arc<Notify>) -> Self {
        Self { signals, drain }
    }

    /// Waits for a wish to end.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.signals.next() => {}
            () = self.drain.notified() => {}
        }
    }

    /// Waits for a signal to end at once. A second command is no such wish: it only asks for what happens already.
    pub(super) async fn at_once(&mut self) {
        self.signals.next().await;
    }
}

/// The admin API's end, and the history of the process.
pub(super) struct Controls {
    proxy: Arc<Proxy>,
    file: Option<PathBuf>,
    began: (Instant, SystemTime),
    commands: mpsc::Sender<Command>,
    drain: Arc<Notify>,
    draining_since: OnceLock<Instant>,
    last_reload: Mutex<Option<(Instant, LastReload)>>,
    last_failed_upgrade: Mutex<Option<(Instant, String)>>,
}

impl Controls {
    /// The admin API's end, and the queue of commands for the control thread.
    pub(super) fn new(
        proxy: Arc<Proxy>,
        file: Option<PathBuf>,
        drain: Arc<Notify>,
    ) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (commands, queue) = mpsc::channel(MAX_WAITING);
        let controls = Self {
            proxy,
            file,
            began: (Instant::now(), SystemTime::now()),
            commands,
            drain,
            draining_since: OnceLock::new(),
            last_reload: Mutex::default(),
            last_failed_upgrade: Mutex::default(),
        };
        (Arc::new(controls), queue)
    }

    /// The config file, if the process has one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The process drains from now on.
    pub(super) fn on_drain(&self) {
        self.draining_since.get_or_init(Instant::now);
    }

    /// A reload ended like this.
    pub(super) fn on_reload(&self, done: &ReloadView) {
        let (result, changes, error) = (done.result, done.changes.len(), done.error.clone());
        *self.last_reload.lock() = Some((Instant::now(), LastReload { ago_s: 0.0, result, changes, error }));
    }

    /// An upgrade was given up.
    pub(super) fn on_failed_upgrade(&self, error: &str) {
        *self.last_failed_upgrade.lock() = Some((Instant::now(), error.to_owned()));
    }

    /// Has the control thread carry out a command.
    fn command<T: Send + 'static>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Pending<T> {
        let (done, outcome) = oneshot::channel();
        let sent = self.commands.try_send(command(done)).is_ok();
        Box::pin(async move {
            if !sent {
                return Err(declined("too many commands wait", "wait until the commands before it are done"));
            }
            // Dropped without an outcome when the process was told to end first.
            outcome.await.map_err(|_| declined("the proxy is ending", "start it again, with the new file or binary"))
        })
    }

    /// The status; `state` is that of the whole proxy.
    pub(super) fn view(&self, state: &'static str) -> ProcessView {
        let listeners: Vec<ListenerStatus> = self
            .proxy
            .listeners()
            .into_iter()
            .map(|listener| ListenerStatus {
                name: listener.name,
                address: listener.address.to_string(),
                connections: listener.connections,
            })
            .collect();
        ProcessView {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_at: rounded(self.began.1.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()),
            uptime_s: seconds_since(self.began.0),
            config_file: self.file.as_ref().map(|file| file.display().to_string()),
            state,
            draining_for_s: self.draining_since.get().copied().map(seconds_since),
            drain_timeout_s: self.proxy.config().drain().timeout.as_secs_f64(),
            requests_in_flight: self.proxy.active_requests(),
            connections: self.proxy.connections(),
            listeners,
            clusters: self.proxy.clusters().iter().map(cluster).collect(),
            last_reload: self
                .last_reload
                .lock()
                .clone()
                .map(|(at, last)| LastReload { ago_s: seconds_since(at), ..last }),
            last_failed_upgrade: self
                .last_failed_upgrade
                .lock()
                .clone()
                .map(|(at, error)| LastFailedUpgrade { ago_s: seconds_since(at), error }),
        }
    }
}

/// The commands; the status is the fleet's, which knows whether the proxy is ready.
impl Controls {
    pub(super) fn reload(&self) -> Pending<ReloadView> {
        let outcome = self.command(Command::Reload);
        Box::pin(async { outcome.await.flatten() })
    }

    pub(super) fn upgrade(&self) -> Pending<UpgradeView> {
        self.command(Command::Upgrade)
    }

    pub(super) fn drain(&self) {
        self.drain.notify_one();
    }
}

/// A reload without a config.
pub(super) fn no_config() -> Declined {
    declined("the proxy was started with --from and --to, there is no config to read again", "start it with -c FILE")
}

fn cluster(cluster: &Cluster) -> ClusterStatus {
    let backends = cluster.backends();
    let healthy = backends.iter().filter(|backend| backend.snapshot.state == State::Healthy).count();
    ClusterStatus { name: cluster.name().to_owned(), backends: backends.len(), healthy }
}

fn declined(error: &str, help: &str) -> Declined {
    Declined { error: error.to_owned(), help: help.to_owned() }
}

fn seconds_since(at: Instant) -> f64 {
    rounded(at.elapsed().as_secs_f64())
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

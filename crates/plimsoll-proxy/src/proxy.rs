//! The control side of the proxy: starts the workers, takes new configs, ends it all.
//!
//! It owns the clusters, which all workers share, and the sockets' addresses. A reload prepares all that can
//! fail (names, sockets) before it changes anything; from then on nothing can fail, so a bad config changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use parking_lot::Mutex;
use plimsoll::client::Cluster;
use plimsoll::discover::Endpoint;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::accept;
use crate::config::{Config, ConfigError};
use crate::listener::{Limits, Shared};
use crate::phase::{Life, Phase};
use crate::worker::{ListenerPlan, Order, Plan, Worker};

/// How often a draining proxy looks whether it is idle.
const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// How long it must be idle to end: a client that has just been told to go may have one more request on its way.
const DRAIN_QUIET: Duration = Duration::from_millis(500);
/// Time for connections to end by themselves once the listeners are closed, even if the time to drain is over.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Why the proxy did not start, or did not take a config.
#[derive(Debug)]
pub enum Error {
    /// A backend's name could not be looked up.
    Config(ConfigError),
    /// An address cannot be listened at.
    Listen {
        /// The listener's name.
        listener: String,
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// A thread could not be started.
    Thread(io::Error),
    /// It is ending.
    Draining,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen { listener, address, cause } => {
                let mend = match cause.kind() {
                    io::ErrorKind::AddrInUse => ": end the program that listens there, or choose another port",
                    io::ErrorKind::PermissionDenied => ": ports below 1024 need root or CAP_NET_BIND_SERVICE",
                    io::ErrorKind::AddrNotAvailable => ": this machine has no such address",
                    _ => "",
                };
                write!(f, "listener {listener:?} cannot listen at {address}: {cause}{mend}")
            }
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
            Self::Draining => f.write_str("the proxy is draining and takes no new config"),
        }
    }
}

impl std::error::Error for Error {}

/// A running proxy.
pub struct Proxy {
    workers: Vec<Worker>,
    running: Mutex<Running>,
    /// One change of config at a time.
    changing: tokio::sync::Mutex<()>,
    life: Life,
    reloads: Reloads,
}

/// Configs taken and refused since the start.
#[derive(Debug, Default)]
pub struct Reloads {
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Reloads {
    /// Configs that came into force after the first.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Configs that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A config was refused before it came to the proxy.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

struct Running {
    config: Arc<Config>,
    clusters: BTreeMap<String, RunningCluster>,
    /// By the address in the config, whose port may be 0.
    listeners: HashMap<SocketAddr, RunningListener>,
}

struct RunningCluster {
    cluster: Cluster,
    driver: JoinHandle<()>,
}

#[derive(Clone)]
struct RunningListener {
    name: String,
    bound: SocketAddr,
    shared: Arc<Shared>,
}

/// A listener, for metrics.
#[derive(Clone, Debug)]
pub struct ListenerView {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Connections that are open.
    pub connections: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Requests that the proxy answered itself, by reason.
    pub refusals: Vec<(&'static str, u64)>,
}

impl Proxy {
    /// Starts a proxy: its threads, its listeners, its connections to backends. Must be called within a tokio runtime, on
    /// which backends are checked from now on.
    ///
    /// # Errors
    /// When a name cannot be looked up, an address cannot be listened at, or a thread cannot be started.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let workers =
            (0..config.threads().get()).map(Worker::start).collect::<Result<_, _>>().map_err(Error::Thread)?;
        let config = Arc::new(config);
        let running = Running { config: Arc::clone(&config), clusters: BTreeMap::new(), listeners: HashMap::new() };
        let proxy = Self {
            workers,
            running: Mutex::new(running),
            changing: tokio::sync::Mutex::default(),
            life: Life::new(),
            reloads: Reloads::default(),
        };
        proxy.apply(config).await?;
        Ok(proxy)
    }

    /// Puts another config into force. What it does not change (connections, health, active requests) goes on.
    ///
    /// # Errors
    /// As [`Proxy::start`]; nothing has changed then.
    pub async fn reload(&self, config: Config) -> Result<(), Error> {
        let result = self.apply(Arc::new(config)).await;
        match &result {
            Ok(()) => self.reloads.taken.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.reloads.refused.fetch_add(1, Ordering::Relaxed),
        };
        result
    }

    async fn apply(&self, config: Arc<Config>) -> Result<(), Error> {
        // Asked twice, because a drain keeps the lock, and may get it first.
        self.not_draining()?;
        let _one_at_a_time = self.changing.lock().await;
        self.not_draining()?;
        let lookup = {
            let config = Arc::clone(&config);
            tokio::task::spawn_blocking(move || config.resolve())
        };
        let endpoints = lookup.await.expect("a look-up does not panic").map_err(Error::Config)?;
        let mut sockets = self.bind(&config)?;

        // Nothing fails from here on.
        let (dones, gone) = {
            let mut running = self.running.lock();
            let gone = running.update_clusters(&config, endpoints);
            running.update_listeners(&config, &sockets);
            running.config = Arc::clone(&config);
            let dones: Vec<_> = self.workers.iter().map(|worker| worker.serve(&running, &mut sockets)).collect();
            (dones, gone)
        };
        for done in dones {
            let _ = done.await;
        }
        for cluster in gone {
            cluster.driver.abort();
        }
        Ok(())
    }

    fn not_draining(&self) -> Result<(), Error> {
        if self.life.phase() == Phase::Serving { Ok(()) } else { Err(Error::Draining) }
    }

    /// Sockets, one for each worker, for listeners that are new.
    fn bind(&self, config: &Config) -> Result<HashMap<SocketAddr, Vec<std::net::TcpListener>>, Error> {
        let known: Vec<SocketAddr> = self.running.lock().listeners.keys().copied().collect();
        let mut sockets = HashMap::new();
        for listener in config.listeners().iter().filter(|listener| !known.contains(&listener.address)) {
            let error = |cause| Error::Listen { listener: listener.name.clone(), address: listener.address, cause };
            // The first decides the port where the config leaves it open.
            let first = accept::bind(listener.address).map_err(error)?;
            let bound = first.local_addr().map_err(error)?;
            let mut all = vec![first];
            while all.len() < self.workers.len() {
                all.push(accept::bind(bound).map_err(error)?);
            }
            sockets.insert(listener.address, all);
        }
        Ok(sockets)
    }

    /// Ends the proxy without losing a request: says that it goes, waits until nothing is in flight (or for the
    /// config's `drain.timeout`), closes listeners, then connections.
    pub async fn drain(&self) {
        self.life.advance(Phase::LameDuck);
        let _no_reload = self.changing.lock().await;
        self.advance(Phase::LameDuck);
        let drain = self.config().drain().clone();
        let begun = Instant::now();
        let mut idle_since = None;
        loop {
            tokio::time::sleep(DRAIN_LOOK).await;
            if self.active_requests() > 0 {
                idle_since = None;
            }
            let idle_for = idle_since.get_or_insert_with(Instant::now).elapsed();
            let done = self.active_requests() == 0 && idle_for >= DRAIN_QUIET && begun.elapsed() >= drain.announce;
            if done || begun.elapsed() >= drain.timeout {
                break;
            }
        }
        self.advance(Phase::Closing);
        // A response may have left its backend and still be on its way to a slow client.
        let until = (begun + drain.timeout).max(Instant::now() + CLOSE_GRACE);
        while self.connections() > 0 && Instant::now() < until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    fn advance(&self, phase: Phase) {
        self.life.advance(phase);
        for worker in &self.workers {
            worker.order(Order::Advance(phase));
        }
    }

    /// Whether it wants requests: not while it drains.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life.phase() == Phase::Serving
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.running.lock().config)
    }

    /// Configs taken and refused.
    #[must_use]
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// The clusters, by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<Cluster> {
        self.running.lock().clusters.values().map(|running| running.cluster.clone()).collect()
    }

    /// The cluster of this name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.running.lock().clusters.get(name).map(|running| running.cluster.clone())
    }

    /// The listeners, by name.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerView> {
        let mut views: Vec<ListenerView> = self.running.lock().listeners.values().map(RunningListener::view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    fn active_requests(&self) -> u64 {
        let clusters = self.clusters();
        clusters.iter().flat_map(Cluster::backends).map(|backend| u64::from(backend.snapshot.active)).sum::<u64>()
            + clusters.iter().map(|cluster| cluster.waiting() as u64).sum::<u64>()
    }

    fn connections(&self) -> usize {
        self.listeners().iter().map(|listener| listener.connections).sum()
    }
}

impl Running {
    /// Brings the clusters in line with `config`; hands back those that it has no more.
    fn update_clusters(
        &mut self,
        config: &Config,
        mut endpoints: BTreeMap<String, Vec<Endpoint>>,
    ) -> Vec<RunningCluster> {
        for name in config.clusters().keys() {
            let endpoints = endpoints.remove(name).unwrap_or_default();
            match self.clusters.get(name) {
                Some(running) => {
                    running.cluster.set_config(config.client(name));
                    running.cluster.update(endpoints);
                }
                None => {
                    let cluster = Cluster::new(name, config.client(name), endpoints);
                    let driver = tokio::spawn(cluster.run());
                    self.clusters.insert(name.clone(), RunningCluster { cluster, driver });
                }
            }
        }
        let gone: Vec<String> =
            self.clusters.keys().filter(|name| !config.clusters().contains_key(*name)).cloned().collect();
        gone.iter().filter_map(|name| self.clusters.remove(name)).collect()
    }

    fn update_listeners(&mut self, config: &Config, sockets: &HashMap<SocketAddr, Vec<std::net::TcpListener>>) {
        self.listeners.retain(|address, _| config.listeners().iter().any(|listener| listener.address == *address));
        for listener in config.listeners() {
            match self.listeners.get_mut(&listener.address) {
                Some(running) => running.name.clone_from(&listener.name),
                None => {
                    let bound = sockets[&listener.address][0].local_addr().unwrap_or(listener.address);
                    let running =
                        RunningListener { name: listener.name.clone(), bound, shared: Arc::new(Shared::default()) };
                    self.listeners.insert(listener.address, running);
                }
            }
        }
    }
}

impl RunningListener {
    fn view(&self) -> ListenerView {
        ListenerView {
            name: self.name.clone(),
            address: self.bound,
            connections: self.shared.connections(),
            accepted: self.shared.accepted.load(Ordering::Relaxed),
            refusals: self.shared.refusals.counts().collect(),
        }
    }
}

impl Worker {
    /// Has the worker serve what runs now; the receiver is told when it does.
    fn serve(
        &self,
        running: &Running,
        sockets: &mut HashMap<SocketAddr, Vec<std::net::TcpListener>>,
    ) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let listeners = running.config.listeners().iter().map(|listener| ListenerPlan {
            name: listener.name.clone(),
            address: listener.address,
            limits: Limits::from(listener),
            shared: Arc::clone(&running.listeners[&listener.address].shared),
            socket: sockets.get_mut(&listener.address).and_then(Vec::pop),
        });
        let plan = Plan {
            config: Arc::clone(&running.config),
            clusters: running.clusters.iter().map(|(name, running)| (name.clone(), running.cluster.clone())).collect(),
            listeners: listeners.collect(),
            done,
        };
        self.order(Order::Serve(plan));
        receiver
    }
}

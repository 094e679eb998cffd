//! The control side of the proxy: starts the workers, takes new configs, ends it all.
//!
//! It owns the clusters, which all workers share, and the sockets' addresses. A reload prepares all that can
//! fail (names, sockets, files) before it changes anything; from then on nothing can fail, so a bad config changes nothing.

mod ask;
mod drain;
mod error;
mod overrides;
mod running;
mod source;

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use plimsoll::address::Address;
use plimsoll::client::Cluster;
use plimsoll::probe::ResponderView;
use plimsoll_config::{LastReload, ReloadOutcome};

pub use self::ask::{SourceAnswer, ask_sources};
pub use self::error::Error;
use self::overrides::Overriding;
pub use self::overrides::{OverrideDone, OverrideOrder, OverrideRefused};
use self::running::{Running, RunningListener, SavedLists};
use crate::access_log::{AccessLog, Unprepared};
use crate::batch::BatchListenerView;
use crate::config::Config;
use crate::degrade::StaleView;
use crate::explain::{Explain, Explanation, Tap};
use crate::fleet::EtcdView;
use crate::inbound::{Inbound, InboundView};
use crate::mirror::MirrorView;
use crate::neighbours;
use crate::phase::{Life, Phase};
use crate::pressure::{Pressure, PressureView, descriptors};
use crate::probes::{Answers, Handover};
use crate::sockets::{self, Bound, Listening, Sharing, SocketFile, Sockets};
use crate::split::SplitView;
use crate::state::{self, SavedList, Saver, StateDir};
use crate::trace::{Traces, TracesView};
use crate::worker::{Order, Worker};

/// A running proxy.
pub struct Proxy {
    workers: Vec<Worker>,
    running: Mutex<Running>,
    /// One change of config at a time.
    changing: tokio::sync::Mutex<()>,
    /// One change of a backend by hand at a time.
    overriding: Mutex<Overriding>,
    life: Life,
    /// It listens and accepts.
    is_open: AtomicBool,
    reloads: Reloads,
    access_log: AccessLog,
    traces: Traces,
    saver: Saver,
    explain: Explain,
    pressure: Arc<Pressure>,
}

/// Configs taken and refused since the start.
#[derive(Debug)]
pub struct Reloads {
    taken: AtomicU64,
    refused: AtomicU64,
    last: LastReload,
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

    /// The last one, or the start.
    #[must_use]
    pub fn last(&self) -> (ReloadOutcome, SystemTime) {
        self.last.get()
    }

    /// A config was refused before it came to the proxy.
    pub fn refuse(&self) {
        self.count(ReloadOutcome::Refused);
    }

    fn started() -> Self {
        Self { taken: AtomicU64::new(0), refused: AtomicU64::new(0), last: LastReload::started(SystemTime::now()) }
    }

    fn count(&self, outcome: ReloadOutcome) {
        let count = match outcome {
            ReloadOutcome::Taken => &self.taken,
            ReloadOutcome::Refused => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.last.set(outcome, SystemTime::now());
    }
}

/// A listener, for metrics.
#[derive(Clone, Debug)]
pub struct ListenerView {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// Connections that are open.
    pub connections: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections that had to wait, as all that there may be were open.
    pub waited: u64,
    /// Requests that the proxy answered itself, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Answers in place of errors, by kind and reason.
    pub degraded: Vec<(&'static str, &'static str, u64)>,
    /// Connections that the proxy ended, by reason.
    pub ended: Vec<(&'static str, u64)>,
    /// Connections that were closed as soon as they were accepted, by reason.
    pub turned_away: Vec<(&'static str, u64)>,
    /// HTTP/2 streams that were ended because their client took nothing.
    pub stalled_streams: u64,
    /// Connections that came to no request, by reason.
    pub failed_handshakes: Vec<(&'static str, u64)>,
    /// TLS handshakes, by whether they were full or went on with an earlier session.
    pub tls_handshakes: Vec<(&'static str, u64)>,
    /// TLS handshakes that wait for their turn.
    pub waiting_handshakes: usize,
    /// Time of threads that TLS handshakes took.
    pub handshake_time: Duration,
    /// The gate of batch work; `None` where it is none.
    pub batch: Option<BatchListenerView>,
    /// Its answers to probes; `None` where there are none.
    pub probes: Option<ResponderView>,
}

/// Sockets for listeners that a config brings, and for their answers to probes, by the address in
/// the config.
#[derive(Default)]
struct NewSockets {
    listening: HashMap<Address, Bound>,
    probes: HashMap<Address, UdpSocket>,
}

impl Proxy {
    /// Starts a proxy: its threads, its listeners, its connections to backends. Must be called within a tokio runtime, on
    /// which backends are checked from now on.
    ///
    /// # Errors
    /// When an address cannot be listened at, the access log cannot be opened, or a thread cannot be
    /// started.
    pub async fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, &mut Sockets::default()).await
    }

    /// As [`Proxy::start`], with sockets that were handed over: those at the addresses of its listeners are taken out.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub async fn start_with(config: Config, given: &mut Sockets) -> Result<Self, Error> {
        let proxy = Self::start_shut(config, given).await?;
        proxy.until_listed().await;
        proxy.open()?;
        Ok(proxy)
    }

    /// As [`Proxy::start_with`], but before [`Proxy::open`] it neither listens, but at what it was given, nor accepts, nor
    /// answers probes ([`Proxy::answer_probes`]). It waits for no list of backends ([`Proxy::until_listed`]).
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub async fn start_shut(config: Config, given: &mut Sockets) -> Result<Self, Error> {
        let workers =
            (0..config.threads().get()).map(Worker::start).collect::<Result<_, _>>().map_err(Error::Thread)?;
        let config = Arc::new(config);
        let (pressure, life) = (Pressure::watched(), Life::new());
        let proxy = Self {
            workers,
            running: Mutex::new(Running::new(Arc::clone(&config), Arc::clone(&pressure), life.clone())),
            changing: tokio::sync::Mutex::default(),
            overriding: Mutex::default(),
            life,
            is_open: AtomicBool::new(false),
            reloads: Reloads::started(),
            access_log: AccessLog::default(),
            traces: Traces::default(),
            saver: Saver::start(),
            explain: Explain::default(),
            pressure,
        };
        proxy.apply(config, given).await?;
        Ok(proxy)
    }

    /// Waits for the first list of each cluster, at most 10 s. A cluster without a list would refuse requests that it can
    /// serve a moment later.
    pub async fn until_listed(&self) {
        until_listed(&self.clusters()).await;
    }

    /// Begins to answer probes, before anything listens: as starting until [`Proxy::open`]. A successor does not, since
    /// its predecessor still answers.
    pub fn answer_probes(&self) {
        self.answers().iter().for_each(|answers| answers.start());
    }

    /// Begins to listen and to accept, and to answer probes.
    ///
    /// # Errors
    /// When an address cannot be listened at.
    pub fn open(&self) -> Result<(), Error> {
        self.running.lock().listen()?;
        self.is_open.store(true, Ordering::Relaxed);
        // A client probes as soon as it has connected.
        self.answers().iter().for_each(|answers| answers.open());
        self.answer_probes();
        for worker in &self.workers {
            worker.order(Order::OpenDoors);
        }
        Ok(())
    }

    /// Puts another config into force, but for its number of threads. What it does not change (connections, health, active
    /// requests) goes on.
    ///
    /// # Errors
    /// As [`Proxy::start`]; nothing has changed then.
    pub async fn reload(&self, mut config: Config) -> Result<(), Error> {
        // The config in force says what runs, so that the next one is compared with that.
        config.keep_threads(self.running.lock().config.threads());
        let result = self.apply(Arc::new(config), &mut Sockets::default()).await;
        self.reloads.count(if result.is_ok() { ReloadOutcome::Taken } else { ReloadOutcome::Refused });
        result
    }

    async fn apply(&self, config: Arc<Config>, given: &mut Sockets) -> Result<(), Error> {
        // Asked twice, because a drain keeps the lock, and may get it first.
        self.not_draining()?;
        let _one_at_a_time = self.changing.lock().await;
        self.not_draining()?;
        // All that can fail without the network comes first: its outcome is known at once.
        let bound = self.bind(&config, given)?;
        let access_log = self.access_log.prepare(config.access_log()).map_err(|unprepared| match unprepared {
            Unprepared::Output(cause) => Error::Config(config.unusable_access_log(&cause)),
            Unprepared::Thread(cause) => Error::Thread(cause),
        })?;
        let state_dir = self.state_dir(&config)?;
        let is_start = !self.is_open.load(Ordering::Relaxed);
        let lookup = {
            let (config, known, state_dir) =
                (Arc::clone(&config), self.running.lock().names.lock().clone(), state_dir.clone());
            let news = self.running.lock().new_sources(&config);
            tokio::task::spawn_blocking(move || {
                let resolved = config.resolve(&known);
                let read = |(name, source): (String, String)| {
                    Some((name.clone(), SavedList::read(state_dir.as_deref()?, &name, &source)?))
                };
                // A folder that a reload sets has none that count.
                let overrides = state_dir.as_deref().filter(|_| is_start).map(state::read_overrides);
                (resolved, news.into_iter().filter_map(read).collect::<SavedLists>(), overrides.unwrap_or_default())
            })
        };
        let (resolved, saved, overrides) = lookup.await.expect("a look-up does not panic");
        if self.is_open.load(Ordering::Relaxed) {
            // Last, because clients that connect from then on are answered.
            Self::listen(&config, &bound.listening)?;
        }

        // Nothing fails from here on.
        for (name, reason) in &resolved.kept {
            tracing::warn!(name, reason, "name lookup failed: its backends keep their addresses");
        }
        self.access_log.put_in_force(access_log);
        self.traces.configure(config.tracing(), config.tracing_tls());
        self.explain.configure(config.explain());
        self.pressure.limit_memory(config.max_memory());
        descriptors::prepare_for(&config);
        let (mut sockets, clusters) = {
            let mut running = self.running.lock();
            let sockets = running.update(config, resolved, bound, saved, overrides);
            let clusters: Vec<Cluster> = running.clusters.values().cloned().collect();
            self.saver.follow(state_dir, running.lists(), clusters.clone());
            (sockets, clusters)
        };
        if self.is_open.load(Ordering::Relaxed) {
            // A cluster without a list would refuse requests that it can serve a moment later.
            until_listed(&clusters).await;
        }
        let dones: Vec<_> = {
            let running = self.running.lock();
            let left = (1..=self.workers.len()).rev();
            self.workers
                .iter()
                .zip(left)
                .map(|(worker, left)| {
                    running.serve(worker, &mut sockets, left, &self.access_log, &self.traces, &self.explain)
                })
                .collect()
        };
        for done in dones {
            let _ = done.await;
        }
        if self.is_open.load(Ordering::Relaxed) {
            self.answers().iter().for_each(|answers| answers.open());
            self.answer_probes();
        }
        Ok(())
    }

    /// The folder for state: the one in use, or another one that can be used.
    fn state_dir(&self, config: &Config) -> Result<Option<Arc<StateDir>>, Error> {
        let Some(path) = config.state_dir() else { return Ok(None) };
        if let Some(dir) = self.saver.dir().filter(|dir| dir.path() == path) {
            return Ok(Some(dir));
        }
        let opened = StateDir::open(&path).map_err(|cause| Error::Config(config.unusable_state_dir(&path, &cause)))?;
        Ok(Some(Arc::new(opened)))
    }

    fn not_draining(&self) -> Result<(), Error> {
        if self.life.phase() == Phase::Serving { Ok(()) } else { Err(Error::Draining) }
    }

    /// Sockets for listeners that are not running yet, and for answers to probes that are not given yet.
    fn bind(&self, config: &Config, given: &mut Sockets) -> Result<NewSockets, Error> {
        let listening = self.bind_listeners(config, given)?;
        let probes = self.bind_probes(config, &listening, given)?;
        Ok(NewSockets { listening, probes })
    }

    /// Sockets for the answers to probes at listeners that have none yet.
    fn bind_probes(
        &self,
        config: &Config,
        listening: &HashMap<Address, Bound>,
        given: &mut Sockets,
    ) -> Result<HashMap<Address, UdpSocket>, Error> {
        let running = self.running.lock();
        let mut bound = HashMap::new();
        for (i, listener) in config.listeners().iter().enumerate().filter(|(_, listener)| listener.probes.is_some()) {
            let address = match (running.listeners.get(&listener.address), listening.get(&listener.address)) {
                (Some(running), _) if running.answers.is_some() => continue,
                (Some(running), _) => running.bound,
                // The port is open until a socket has it.
                (None, Some(new)) => new.sockets[0].address().unwrap_or(listener.address),
                (None, None) => continue,
            };
            // A Unix socket has no port; `check` reports it.
            let Some(address) = address.inet() else { continue };
            let socket = given.take_udp(address).map_or_else(|| UdpSocket::bind(address), Ok).map_err(|cause| {
                let place = config.place_of(&format!("listeners[{i}].probes"));
                Error::Probes { place, address, cause }
            })?;
            bound.insert(listener.address, socket);
        }
        Ok(bound)
    }

    /// Sockets for listeners that are not running yet. They do not listen yet, unless they were given.
    fn bind_listeners(&self, config: &Config, given: &mut Sockets) -> Result<HashMap<Address, Bound>, Error> {
        let known: Vec<Address> = self.running.lock().listeners.keys().copied().collect();
        let mut bound = HashMap::new();
        let given_ports: Vec<u16> = given.addresses().filter_map(Address::port).collect();
        let new = |listener: &&crate::config::Listener| !known.contains(&listener.address);
        for (i, listener) in config.listeners().iter().enumerate().filter(|(_, listener)| new(listener)) {
            let port = listener.address.port();
            let mut own_ports =
                known.iter().chain(bound.keys()).filter_map(|known| known.port()).chain(given_ports.iter().copied());
            let sharing = match listener.share_port {
                true => Sharing::Wanted,
                // Another form of an address that is its own: the wildcard address, say.
                false if own_ports.any(|own| port == Some(own)) => Sharing::Own,
                false => Sharing::Refused,
            };
            let given = given.take(listener.address);
            let opened = sockets::open(listener.address, given, self.workers.len(), sharing, listener.mode());
            let opened = opened.map_err(|cause| Self::cannot_listen(config, i, cause))?;
            bound.insert(listener.address, opened);
        }
        Ok(bound)
    }

    /// Listens at those addresses of `config` that were bound for it.
    fn listen(config: &Config, bound: &HashMap<Address, Bound>) -> Result<(), Error> {
        for (i, listener) in config.listeners().iter().enumerate() {
            let sockets = bound.get(&listener.address).map_or(&[][..], |bound| &bound.sockets);
            sockets::listen(sockets).map_err(|cause| Self::cannot_listen(config, i, cause))?;
        }
        Ok(())
    }

    /// The error for the listener at this place in `config`.
    fn cannot_listen(config: &Config, at: usize, cause: io::Error) -> Error {
        let place = config.place_of(&format!("listeners[{at}].address"));
        Error::Listen { place, address: config.listeners()[at].address, cause }
    }

    /// Where it listens, and would not by `next`.
    #[must_use]
    pub fn addresses_left_by(&self, next: &Config) -> Vec<Address> {
        let stays = |address: Address| next.listeners().iter().any(|listener| listener.address == address);
        let running = self.running.lock();
        let left = running.listeners.iter().filter(|(address, _)| !stays(**address));
        left.map(|(_, listener)| listener.bound).collect()
    }

    /// Copies of all sockets that it listens at, for a successor.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let running = self.running.lock();
        // The threads have one Unix socket in common: the same one many times is no news.
        let each = |listener: &RunningListener| match listener.bound {
            Address::Inet(_) => listener.sockets.len(),
            Address::Unix(_) => 1,
        };
        let sockets = running.listeners.values().flat_map(|listener| &listener.sockets[..each(listener)]);
        sockets.map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }

    /// The files of Unix sockets that a successor has to remove in the end.
    #[must_use]
    pub fn socket_files(&self) -> Vec<&'static str> {
        let running = self.running.lock();
        running.files().filter(|file| file.is_own()).map(SocketFile::path).collect()
    }

    /// The answers to probes, for a successor.
    #[must_use]
    pub fn probe_handover(&self) -> Handover {
        Handover::new(self.answers())
    }

    fn answers(&self) -> Vec<Arc<Answers>> {
        self.running.lock().listeners.values().filter_map(|listener| listener.answers.clone()).collect()
    }

    /// The listeners, by name, that share their address, and so their connections, with sockets of
    /// other processes.
    #[must_use]
    pub fn shared_listeners(&self) -> Vec<(String, Address)> {
        let running = self.running.lock();
        let shared = neighbours::shared(
            running.listeners.values().flat_map(|listener| &listener.sockets).filter_map(Listening::tcp),
        );
        let is_shared = |listener: &&RunningListener| listener.bound.inet().is_some_and(|at| shared.contains(&at));
        let listeners = running.listeners.values().filter(is_shared);
        listeners.map(|listener| (listener.name.clone(), listener.bound)).collect()
    }

    /// Opens the file of the access log again, which may have been moved away.
    pub fn reopen_access_log(&self) {
        self.access_log.reopen();
    }

    /// Lines of the access log that were dropped, because they could not be written as fast as they came.
    #[must_use]
    pub fn access_log_dropped(&self) -> u64 {
        self.access_log.dropped()
    }

    /// The etcd of the fleet, and the part of this proxy in it; `None` without one.
    #[must_use]
    pub fn etcd(&self) -> Option<EtcdView> {
        let running = self.running.lock();
        running.fleet.view(&running.config)
    }

    /// What has become of the spans of recorded requests.
    #[must_use]
    pub fn traces(&self) -> TracesView {
        self.traces.view()
    }

    /// How short it is of memory and descriptors.
    #[must_use]
    pub fn pressure(&self) -> PressureView {
        self.pressure.view()
    }

    /// What is kept of backends' answers, to be given again in place of errors.
    #[must_use]
    pub fn stale_answers(&self) -> StaleView {
        self.running.lock().stale.view()
    }

    /// Whether it listens and accepts, or did so.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
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
        self.running.lock().clusters.values().cloned().collect()
    }

    /// The cluster of this name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.running.lock().clusters.get(name).cloned()
    }

    /// What became of the requests of the cluster of this name at its gate; `None` if it has none.
    #[must_use]
    pub fn inbound(&self, cluster: &str) -> Option<InboundView> {
        self.running.lock().inbound.get(cluster).map(|inbound| Inbound::view(inbound))
    }

    /// Decisions of the limits on requests: the customer, the decision, the number. All customers without a table are
    /// one. In a dry run, a request over its limit counts as both. Empty without such limits.
    #[must_use]
    pub fn request_limits(&self) -> Vec<(Box<str>, &'static str, u64)> {
        self.running.lock().request_limits.counts()
    }

    /// The splits of routes, by route.
    #[must_use]
    pub fn splits(&self) -> Vec<SplitView> {
        let mut views = self.running.lock().splits.views();
        for side in views.iter_mut().flat_map(|view| &mut view.sides) {
            side.is_drained = self.cluster(&side.cluster).is_some_and(|cluster| cluster.is_drained());
        }
        views
    }

    /// The mirrors of routes, by route.
    #[must_use]
    pub fn mirrors(&self) -> Vec<MirrorView> {
        self.running.lock().mirrors.views()
    }

    /// What became of the latest requests that were refused, failed or were tried again, and of some of the others; the latest
    /// first.
    #[must_use]
    pub fn explanations(&self) -> Vec<Arc<Explanation>> {
        self.explain.latest()
    }

    /// A reader of explanations as they are recorded.
    #[must_use]
    pub fn tap(&self) -> Tap {
        Tap::new(&self.explain)
    }

    /// The listeners, by name.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerView> {
        let mut views: Vec<ListenerView> = self.running.lock().listeners.values().map(RunningListener::view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Requests in flight, requests that wait included.
    #[must_use]
    pub fn active_requests(&self) -> u64 {
        let clusters = self.clusters();
        clusters.iter().flat_map(Cluster::backends).map(|backend| u64::from(backend.snapshot.active)).sum::<u64>()
            + clusters.iter().map(|cluster| cluster.waiting() as u64).sum::<u64>()
            + self.running.lock().batch_queued()
    }

    /// Connections of clients, at listeners that were removed as well.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.running.lock().connections()
    }
}

async fn until_listed(clusters: &[Cluster]) {
    for cluster in clusters {
        cluster.until_listed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use plimsoll_testkit::ports::free_port;

    use super::*;

    /// Later steps of a reload may fail, and a client of the new address must not notice.
    #[tokio::test]
    async fn bound_address_accepts_nobody_before_the_reload_succeeds() {
        let text = |port: u16| {
            let cluster = "[[routes]]\ncluster = \"c\"\n[clusters.c]\nbackends = [\"127.0.0.1:1\"]\n";
            format!("threads = 1\n[[listeners]]\naddress = \"127.0.0.1:{port}\"\n{cluster}")
        };
        let proxy = Proxy::start(Config::parse("test", &text(free_port())).unwrap()).await.unwrap();
        let port = free_port();
        let next = Config::parse("test", &text(port)).unwrap();
        let bound = proxy.bind(&next, &mut Sockets::default()).unwrap();
        let is_accepted = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(!is_accepted());
        Proxy::listen(&next, &bound.listening).unwrap();
        assert!(is_accepted());
    }
}

//! A cluster: backends that serve the same requests, and one machine that decides among them.
//!
//! All clients on all threads share a [`Cluster`], because its decisions need counts across threads:
//! active requests and states. Its lock is held for a pick or a completion, some tens of
//! nanoseconds. Connections belong to the clients and are outside the lock.

mod again;
mod answers;
mod drive;
mod first_list;
mod fixed;
mod follow;
mod hedge;
mod localities;
mod machine;
mod membership;
mod overrides;
mod overview;
mod preempt;
#[cfg(feature = "probes")]
mod probes;
#[cfg(not(feature = "probes"))]
#[path = "probes_off.rs"]
mod probes;
mod probes_view;
mod silence_log;
mod source_log;
mod tally;
#[cfg(feature = "test-util")]
mod test_throttle;
mod view;
mod wait;

use std::fmt;
use std::future::Future;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use plimsoll_core::health::State;
use plimsoll_core::pick::HashKey;
use plimsoll_core::slots::Holders;
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{BackendId, Event, Operation, Timestamp};
use tokio::sync::{Notify, watch};

pub use self::again::Restraint;
pub(crate) use self::again::{Ask, Denial, Grant, Retry, Since, Unanswered};
use self::first_list::FirstList;
pub use self::follow::DiscoveryView;
use self::follow::Following;
pub(crate) use self::hedge::First;
pub use self::localities::LocalityView;
pub use self::machine::{BackendView, Notice};
pub(crate) use self::machine::{Done, Found, Kind, Report, Taken};
use self::machine::{Machine, News};
pub use self::membership::Coordination;
pub use self::overrides::{OverrideOutcome, OverrideView};
pub use self::overview::{ClusterOverview, Transition};
pub use self::probes_view::{ProbeDrops, ProbesView};
use self::silence_log::SilenceLog;
pub use self::source_log::SourceFailure;
pub use self::tally::{BackendCounts, ClusterCounts, HedgeCounts, Latencies};
pub use self::view::{ClusterSummary, ClusterView};
pub(crate) use self::wait::NoTurn;
use super::backend::Backend;
use super::batch::Batch;
use super::config::ClusterConfig;
use super::error::ConnectError;
use super::load_reports::ReportReader;
use super::operations::Operations;
use super::preemption::Preemption;
use super::trace::Tracer;
use crate::address::Address;
use crate::clock::Clock;
use crate::discover::{Endpoint, Fixed};

/// A handle to a cluster; clones are the same cluster.
#[derive(Clone)]
#[doc(alias("load balancing", "upstream"))]
pub struct Cluster(pub(crate) Arc<Shared>);

/// Shortest time between two log lines that this process cannot open connections. Else each request
/// might write one, while the process lacks resources.
const SHORTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A function of the user for each [`Notice`].
type Observer = Arc<dyn Fn(&Notice) + Send + Sync>;

/// The cluster itself.
pub(crate) struct Shared {
    name: Box<str>,
    clock: Clock,
    /// Tells operations apart.
    operations: Operations,
    machine: Mutex<Machine>,
    /// Whether requests may be throttled.
    throttles: AtomicBool,
    /// Whether requests that were not served may be retried.
    retries: AtomicBool,
    /// Whether requests are sent to a second backend while the first is slow.
    hedges: AtomicBool,
    /// Bytes kept of the body of each request.
    kept_of_bodies: AtomicUsize,
    /// Requests load reports, and reads them.
    load_reports: ReportReader,
    /// Wakes the task of [`Cluster::run`].
    driver: Arc<Notify>,
    /// The source of the backends.
    following: Mutex<Following>,
    /// Whether there was a list, or the wait for the first one is over.
    is_listed: watch::Sender<bool>,
    /// Requests that wait for the first list.
    first_list: FirstList,
    /// The backends by the sources, for those who decide on them outside.
    ready: watch::Sender<Arc<[Arc<Endpoint>]>>,
    /// Counts changes of membership and configuration, for the pools.
    changed: watch::Sender<u64>,
    /// Counts changes of membership. Requests read it without a lock.
    memberships: AtomicU64,
    /// Changes of lame ducks that the driver has not seen yet.
    lame_ducks: Mutex<Vec<(BackendId, bool)>>,
    /// Replaced as a whole, so that events need the lock for a moment only.
    observers: Mutex<Arc<[Observer]>>,
    /// Receives the spans of requests without a tracer of their own.
    tracer: OnceLock<Arc<dyn Tracer>>,
    /// The gate of requests without one of their own, if all are batch work.
    batch: OnceLock<Batch>,
    /// The time of the last log line that this process cannot open connections.
    shortage_told: Mutex<Option<Timestamp>>,
    /// The log lines about probes that are of no use.
    probes_told: SilenceLog,
}

impl Cluster {
    /// A cluster of a [`Fixed`] list of backends, until [`Cluster::follow`] names another source.
    /// Needs no runtime. Nothing happens before a client is made and [`Cluster::run`] is polled.
    pub fn new(name: &str, config: ClusterConfig, endpoints: impl IntoIterator<Item = impl Into<Endpoint>>) -> Self {
        let seed = std::hash::RandomState::new().hash_one(name);
        let (clock, driver) = (Clock::start(), Arc::new(Notify::new()));
        let cluster = Self(Arc::new(Shared {
            name: name.into(),
            operations: Operations::default(),
            throttles: AtomicBool::new(config.throttle != ThrottlePolicy::Off),
            retries: AtomicBool::new(config.retry.is_on()),
            hedges: AtomicBool::new(config.retry.hedges()),
            kept_of_bodies: AtomicUsize::new(config.retry.kept()),
            load_reports: ReportReader::new(&config.load_reports),
            machine: Mutex::new(Machine::new(clock.now(), config, seed, driver.clone())),
            clock,
            driver,
            following: Mutex::default(),
            is_listed: watch::Sender::new(false),
            first_list: FirstList::default(),
            ready: watch::Sender::new(Arc::from([])),
            changed: watch::Sender::new(0),
            memberships: AtomicU64::new(0),
            lame_ducks: Mutex::default(),
            observers: Mutex::new(Arc::from([])),
            tracer: OnceLock::new(),
            batch: OnceLock::new(),
            shortage_told: Mutex::default(),
            probes_told: SilenceLog::default(),
        }));
        cluster.follow(Fixed::new(endpoints));
        cluster
    }

    /// The name of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Calls `observer` for every event from now on, after the cluster's lock was released.
    ///
    /// It must be quick, because a request waits for it. A cluster has any number of observers, and calls
    /// them in the order of their addition. They stay as long as the cluster.
    pub fn on_event(&self, observer: impl Fn(&Notice) + Send + Sync + 'static) {
        let mut observers = self.0.observers.lock();
        let added: Observer = Arc::new(observer);
        *observers = observers.iter().cloned().chain([added]).collect();
    }

    /// Has `tracer` receive the spans of all attempts from now on, but for requests with a tracer in
    /// their [`RequestOptions`](crate::client::RequestOptions). A cluster has one: `false` means that there was one.
    pub fn trace_with(&self, tracer: Arc<dyn Tracer>) -> bool {
        self.0.tracer.set(tracer).is_ok()
    }

    /// Sends all requests from now on as batch work through `batch`, but for those with a gate in
    /// their [`RequestOptions`](crate::client::RequestOptions). A cluster has one: `false` means that
    /// there was one.
    pub fn batch_with(&self, batch: Batch) -> bool {
        self.0.batch.set(batch).is_ok()
    }

    /// Replaces the configuration; all backends keep their state.
    pub fn set_config(&self, config: ClusterConfig) {
        let now = self.0.now();
        self.0.throttles.store(config.throttle != ThrottlePolicy::Off, Ordering::Relaxed);
        self.0.retries.store(config.retry.is_on(), Ordering::Relaxed);
        self.0.hedges.store(config.retry.hedges(), Ordering::Relaxed);
        self.0.kept_of_bodies.store(config.retry.kept(), Ordering::Relaxed);
        self.0.load_reports.set(&config.load_reports);
        let news = self.0.machine.lock().set_config(now, config);
        self.0.publish(news);
        self.0.reconsider();
    }

    /// Takes the word of a coordinator on this process's subset. It has an effect with
    /// [`SubsetChoice::coordinated`](crate::client::SubsetChoice::coordinated). Members that stay keep their
    /// state and connections; requests at those that leave finish.
    pub fn coordinate(&self, word: Coordination) {
        let now = self.0.now();
        let news = self.0.machine.lock().coordinate(now, word);
        self.0.publish(news);
        self.0.reconsider();
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<ClusterConfig> {
        self.0.machine.lock().config.clone()
    }

    /// Follows the source of backends, checks the backends and drives the timers of the cluster,
    /// while it is polled and a handle exists.
    ///
    /// Spawn it once for each cluster. Without it no backend that needs a check becomes healthy.
    pub fn run(&self) -> impl Future<Output = ()> + Send + use<> {
        drive::run(Arc::downgrade(&self.0), self.0.driver.clone())
    }

    /// The current state of every backend, in the order of their addition.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendView> {
        let now = self.0.now();
        self.0.machine.lock().view(now)
    }

    /// The number of known backends. With a subset, not all of them are members.
    #[must_use]
    pub fn known(&self) -> usize {
        self.0.machine.lock().known()
    }

    /// The number of healthy members.
    #[must_use]
    pub fn healthy(&self) -> usize {
        self.0.machine.lock().balancer.healthy()
    }

    /// The home of a key under the policy `hash`: the backend of its requests unless that is unusable
    /// or at its bound, and whether it is usable now. `None` under another policy, without backends,
    /// and with localities.
    #[must_use]
    pub fn hash_home(&self, key: HashKey) -> Option<(Address, bool)> {
        let machine = self.0.machine.lock();
        let (id, is_usable) = machine.balancer.hash_home(key)?;
        Some((machine.backend(id)?.address(), is_usable))
    }

    /// Whether a member is healthy, or new and not known to be unreachable: a request can be served
    /// soon.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        self.0.machine.lock().balancer.can_serve()
    }

    /// Whether an operator drained all members ([`Cluster::drain`]), and there is one.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.0.machine.lock().balancer.is_drained()
    }

    /// The counters since the cluster was created.
    #[must_use]
    pub fn counts(&self) -> ClusterCounts {
        self.0.machine.lock().counts.clone()
    }

    /// The state of the throttle and of the retry budget.
    #[must_use]
    pub fn restraint(&self) -> Restraint {
        let now = self.0.now();
        self.0.machine.lock().restraint(now)
    }

    /// Requests that wait because all backends are at their limit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.machine.lock().waiting()
    }

    /// The current time on the clock of snapshots.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// Clones are equal. Two clusters are not, even with the same backends.
impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cluster {}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Receives the spans of requests without a tracer of their own.
    pub(crate) fn tracer(&self) -> Option<&dyn Tracer> {
        self.tracer.get().map(|tracer| &**tracer)
    }

    /// The gate of requests without one of their own.
    pub(crate) fn batch(&self) -> Option<&Batch> {
        self.batch.get()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The operation of a request.
    pub(crate) fn operation<B>(&self, request: &Request<B>) -> Operation {
        self.operations.of(request)
    }

    pub(crate) fn config(&self) -> Arc<ClusterConfig> {
        self.machine.lock().config.clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The number of changes of membership. A description that was read at another count may be old.
    pub(crate) fn memberships(&self) -> u64 {
        self.memberships.load(Ordering::Acquire)
    }

    pub(crate) fn backend(&self, id: BackendId) -> Option<Arc<Backend>> {
        self.machine.lock().backend(id).cloned()
    }

    pub(crate) fn members(&self) -> Vec<(BackendId, Arc<Backend>)> {
        self.machine.lock().ids().map(|(id, backend)| (id, backend.clone())).collect()
    }

    /// Ends an attempt: exactly once for each pick.
    pub(crate) fn finish(&self, now: Timestamp, id: BackendId, done: &Done) {
        let bucket = done.bucket();
        let mut machine = self.machine.lock();
        let news = machine.finish(now, id, done, bucket);
        drop(machine);
        self.publish(news);
    }

    /// Whether requests may be throttled, so that the outcome of each counts.
    pub(crate) fn throttles(&self) -> bool {
        self.throttles.load(Ordering::Relaxed)
    }

    /// Whether requests that were not served may be retried.
    pub(crate) fn retries(&self) -> bool {
        self.retries.load(Ordering::Relaxed)
    }

    /// Bytes kept of the body of each request, for retries.
    pub(crate) fn kept_of_bodies(&self) -> usize {
        self.kept_of_bodies.load(Ordering::Relaxed)
    }

    /// Requests load reports, and reads them.
    pub(crate) fn load_reports(&self) -> &ReportReader {
        &self.load_reports
    }

    /// Records the head of a response, before its request has finished.
    pub(crate) fn report(&self, now: Timestamp, id: BackendId, report: &Report, taken: Option<Taken>) {
        let mut machine = self.machine.lock();
        if let Some(taken) = taken {
            machine.taken(now, taken);
        }
        machine.answers(now, id);
        machine.report(now, id, report);
        let news = machine.news(now);
        drop(machine);
        self.publish(news);
    }

    pub(crate) fn connected(&self, id: BackendId) {
        let now = self.now();
        let mut machine = self.machine.lock();
        if let Some(counts) = machine.counts_of(id) {
            counts.connections_opened += 1;
        }
        let news = machine.tell(now, |b, _, mut obs| b.on_connected(now, id, &mut obs));
        drop(machine);
        self.publish(news);
    }

    pub(crate) fn connect_failed(&self, id: BackendId, error: &ConnectError) {
        let now = self.now();
        let mut machine = self.machine.lock();
        if let Some(counts) = machine.counts_of(id) {
            counts.connections_failed += 1;
        }
        if error.is_own_shortage() {
            drop(machine);
            return self.ran_short(now, error);
        }
        if !error.end().is_evidence() {
            return;
        }
        let news = machine.tell(now, |b, rng, mut obs| b.on_connect_failed(now, id, rng, &mut obs));
        drop(machine);
        self.publish(news);
    }

    /// This process lacks the resources for a connection. Logs it now and then, and blames no backend.
    fn ran_short(&self, now: Timestamp, error: &ConnectError) {
        let mut told = self.shortage_told.lock();
        if told.is_none_or(|at| now.since(at) >= SHORTAGE_LOG_INTERVAL) {
            *told = Some(now);
            drop(told);
            tracing::warn!(cluster = &*self.name, %error, "cannot open connections: local error, no backend counted as failed");
        }
    }

    pub(crate) fn connection_closed(&self, id: BackendId) {
        if let Some(counts) = self.machine.lock().counts_of(id) {
            counts.connections_closed += 1;
        }
    }

    /// Makes a request of these holders preemptible. Returns its key for [`Done`].
    pub(crate) fn register(&self, preemption: Arc<Preemption>, holders: Holders) -> usize {
        self.machine.lock().preemptibles.insert(preemption, holders)
    }

    /// Tells the throttle the outcome of a request that keeps its slot for now.
    pub(crate) fn taken(&self, now: Timestamp, taken: Taken) {
        self.machine.lock().taken(now, taken);
    }

    /// The usual latency. `None` while too few are known.
    pub(crate) fn usual_latency(&self) -> Option<Duration> {
        self.machine.lock().usual.latency()
    }

    pub(crate) fn count_replay(&self) {
        self.machine.lock().counts.replayed += 1;
    }

    /// Wakes pools and driver after a change by the user.
    fn reconsider(&self) {
        self.changed.send_modify(|count| *count += 1);
        self.driver.notify_one();
    }

    /// Wakes served requests, logs events and calls the observers. Costs nothing without any.
    fn publish(&self, news: News) {
        let (first, others) = news.served;
        first.into_iter().chain(others).for_each(Waker::wake);
        news.preempted.iter().for_each(|preemption| preemption.end());
        if news.members_changed {
            self.memberships.fetch_add(1, Ordering::Release);
            self.changed.send_modify(|count| *count += 1);
        } else if news.notices.is_empty() {
            return;
        }
        let observers = self.observers.lock().clone();
        for notice in &news.notices {
            self.log(notice);
            observers.iter().for_each(|observer| observer(notice));
            if let Event::StateChanged { backend, from, to, .. } = notice.event
                && (from == State::LameDuck || to == State::LameDuck)
                && from != to
            {
                self.lame_ducks.lock().push((backend, to == State::LameDuck));
            }
        }
        self.driver.notify_one();
    }

    fn log(&self, notice: &Notice) {
        let cluster = &*self.name;
        let backend = notice.backend.as_deref().map_or("", Backend::label);
        match notice.event {
            Event::StateChanged { from, to, reason, .. } => {
                tracing::info!(cluster, backend, %from, %to, %reason, "backend changed state");
            }
            Event::ProbesSilent { cause, .. } => {
                let port = notice.backend.as_deref().and_then(|backend| backend.address().port()).unwrap_or(0);
                self.probes_told.log(notice.at, cluster, backend, port, cause);
            }
            Event::PanicBegan { healthy, candidates } => tracing::warn!(
                cluster,
                healthy,
                candidates,
                "below the panic threshold: ejected backends and those that fail checks are chosen as well"
            ),
            Event::PanicEnded { healthy: 0, .. } => {
                tracing::warn!(cluster, "no backend can be chosen");
            }
            Event::PanicEnded { healthy, candidates } => {
                tracing::info!(cluster, healthy, candidates, "above the panic threshold again");
            }
        }
    }
}

impl Drop for Shared {
    /// Ends the driver, which holds no handle.
    fn drop(&mut self) {
        self.driver.notify_one();
    }
}

//! The services of a server: the settings of all, and the owner's state of those that are its own, each behind a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use plimsoll::server::Phase;
use plimsoll_config::LastReload;
use plimsoll_core::Timestamp;
use plimsoll_tls_config::ClientName;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::config::ServiceConfig;
use crate::envoy::RateLimits;
use crate::hosted::{End, Hosted};
use crate::ownership::{Owners, Ownership, shard};
use tonic::Status;

/// How long streams of tasks go on while the server drains: its probes are seen, and the drain still finds them ended.
const LAST_WORDS: Duration = Duration::from_millis(1_400);

/// Time in which a server hears of an owner that a task knows already, and between two looks.
const OWNER_TIMEOUT: Duration = Duration::from_secs(1);
const OWNER_INTERVAL: Duration = Duration::from_millis(20);

/// The account of Envoy's rate limit service at a service.
type RateLimitAccount = (Weak<Hosted>, Arc<RateLimits>);

/// The services of a server.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) origin: Instant,
    /// The settings of each service.
    pub(crate) configs: RwLock<BTreeMap<String, ServiceConfig>>,
    /// The owner of each service.
    pub(crate) owners: watch::Sender<Owners>,
    /// The services that this server owns.
    pub(crate) services: RwLock<BTreeMap<String, Arc<Hosted>>>,
    /// By shard: the epoch of an owner here that has heard of a later one.
    pub(crate) outdated: Mutex<BTreeMap<u32, u64>>,
    /// Services whose settings in etcd have a problem.
    pub(crate) bad_settings: Mutex<Vec<String>>,
    /// Services that this server became the owner of, and services that it lost, since the start.
    pub(crate) takeovers: AtomicU64,
    pub(crate) losses: AtomicU64,
    /// Streams, and attempts at one, that were sent to another owner.
    pub(crate) redirects: AtomicU64,
    /// From the first request to a service on.
    pub(crate) rate_limits: Mutex<BTreeMap<String, RateLimitAccount>>,
    /// Names in certificates of clients that may change limits.
    pub(crate) operators: RwLock<Vec<ClientName>>,
    /// Of the configuration.
    pub(crate) last_reload: LastReload,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl Services {
    /// A server without services.
    pub(crate) fn new(owners: Owners, phase: watch::Receiver<Phase>) -> Self {
        Self {
            origin: Instant::now(),
            configs: RwLock::default(),
            owners: watch::Sender::new(owners),
            services: RwLock::default(),
            outdated: Mutex::default(),
            bad_settings: Mutex::default(),
            takeovers: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            redirects: AtomicU64::new(0),
            rate_limits: Mutex::default(),
            operators: RwLock::default(),
            last_reload: LastReload::started(SystemTime::now()),
            phase,
        }
    }

    /// Resolves when streams are to end, so that a drain finds none.
    pub(crate) fn ending(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.phase.clone();
        async move {
            // Without a sender the server has ended.
            let _ = phase.wait_for(|phase| *phase >= Phase::LameDuck).await;
            tokio::time::sleep(LAST_WORDS).await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// The owner of a service. A server that has heard of a later owner than itself is none, whatever its lease says.
    pub(crate) fn ownership(&self, name: &str) -> Ownership {
        let ownership = self.owners.borrow().of(name);
        let outdated = self.outdated.lock().get(&shard(name)).copied().unwrap_or_default();
        if ownership.owner().is_some_and(|(epoch, _)| epoch <= outdated) { Ownership::Unknown } else { ownership }
    }

    /// A service of this server. A task that was sent here knows its epoch before this server has heard that it is the
    /// owner: so it waits for a moment, until the owner is one of that epoch.
    pub(crate) async fn owned(&self, name: &str, epoch: u64) -> Option<Arc<Hosted>> {
        let until = Instant::now() + OWNER_TIMEOUT;
        loop {
            if let Some(hosted) = self.get(name) {
                return Some(hosted);
            }
            let ownership = self.ownership(name);
            let is_known = ownership.owner().is_some_and(|(of, address)| of >= epoch && !address.is_empty());
            if (is_known && !matches!(ownership, Ownership::Ours { .. })) || Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(OWNER_INTERVAL).await;
        }
    }

    /// A task knows a later owner than that of this epoch here. Its streams end.
    pub(crate) fn step_down(&self, name: &str, epoch: u64) {
        self.outdated.lock().insert(shard(name), epoch);
        self.settle(|_, _, _| None);
    }

    /// Ends the services that are another server's, or that have no settings any more, and begins with `host` those that
    /// have become this one's.
    pub(crate) fn settle(&self, host: impl Fn(&str, &ServiceConfig, u64) -> Option<Arc<Hosted>>) {
        let configs = self.configs.read();
        let mut services = self.services.write();
        services.retain(|name, hosted| {
            let ownership = self.ownership(name);
            let end = match ownership {
                _ if !configs.contains_key(name) => End::Removed,
                Ownership::Ours { epoch, until, .. } if epoch == hosted.epoch => {
                    let until = until.map(|until| Timestamp::from_origin(until.saturating_duration_since(self.origin)));
                    hosted.set_certain_until(self.now(), until);
                    return true;
                }
                ownership => End::Moved(ownership),
            };
            if matches!(end, End::Moved(_)) {
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
            hosted.end(end);
            false
        });
        for (name, config) in &*configs {
            if services.contains_key(name) {
                continue;
            }
            let Ownership::Ours { epoch, until, .. } = self.ownership(name) else { continue };
            let Some(hosted) = host(name, config, epoch) else { continue };
            let until = until.map(|until| Timestamp::from_origin(until.saturating_duration_since(self.origin)));
            hosted.set_certain_until(self.now(), until);
            self.takeovers.fetch_add(1, Ordering::Relaxed);
            services.insert(name.clone(), hosted);
        }
    }

    /// Whether a caller may report for a service of this name, wherever its owner is.
    pub(crate) fn check_right(&self, name: &str, caller: &Caller) -> Result<(), Status> {
        let configs = self.configs.read();
        let config = configs.get(name).ok_or_else(|| {
            let known: Vec<&str> = configs.keys().map(String::as_str).collect();
            Status::not_found(format!("no service {name:?} here; there are: {}", known.join(", ")))
        })?;
        Ok(caller.may_report(name, config)?)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Hosted>> {
        self.services.read().get(name).cloned()
    }

    /// The account of Envoy's rate limit service at this service. `start` is called with a new one.
    pub(crate) fn rate_limits(
        &self,
        name: &str,
        hosted: &Arc<Hosted>,
        start: impl FnOnce(&Arc<RateLimits>),
    ) -> Arc<RateLimits> {
        let mut all = self.rate_limits.lock();
        let known = all.get(name).filter(|(of, _)| of.as_ptr() == Arc::as_ptr(hosted));
        if let Some((_, limits)) = known {
            return Arc::clone(limits);
        }
        // A removed service takes its account with it.
        all.retain(|_, (of, _)| of.strong_count() > 0);
        let limits = Arc::new(RateLimits::new(self.now()));
        start(&limits);
        all.insert(name.to_owned(), (Arc::downgrade(hosted), Arc::clone(&limits)));
        limits
    }

    /// The services that this server owns, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, Arc<Hosted>> {
        self.services.read().clone()
    }
}

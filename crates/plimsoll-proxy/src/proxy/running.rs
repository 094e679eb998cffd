//! What runs now: clusters, which all threads share, and listeners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use plimsoll::address::Address;
use plimsoll::client::{Cluster, OverrideView};
use plimsoll::discover::{Endpoint, MAX_OVERRIDES};
use tokio::sync::oneshot;

use super::source::{Source, label};
use super::{Error, ListenerView, NewSockets};
use crate::access_log::AccessLog;
use crate::batch::ListenerBatch;
use crate::classify::Claims;
use crate::classify::quotas::Quotas;
use crate::classify::request_limits::RequestLimits;
use crate::config::{Config, Names, Resolved};
use crate::degrade::Store;
use crate::explain::Explain;
use crate::fleet::Fleet;
use crate::inbound::{self, Inbound};
use crate::limits::Limits;
use crate::listener::Shared;
use crate::mirror::Mirrors;
use crate::phase::Life;
use crate::pressure::Pressure;
use crate::probes::{Answers, Behind};
use crate::sockets::{self, Bound, Listening, SocketFile};
use crate::split::Splits;
use crate::state::{SavedList, SavedOverrides, Target};
use crate::trace::Traces;
use crate::worker::{ListenerPlan, Order, Plan, Worker};

/// Lists that an earlier process saved, by cluster.
pub(super) type SavedLists = BTreeMap<String, SavedList>;

/// All that a config has brought about.
pub(super) struct Running {
    pub(super) config: Arc<Config>,
    /// The names of its backends, as they were found last.
    pub(super) names: Arc<Mutex<Names>>,
    pub(super) clusters: BTreeMap<String, Cluster>,
    /// The source that each follows.
    sources: BTreeMap<String, Source>,
    /// This proxy among the clients of its fleet.
    pub(super) fleet: Fleet,
    /// The gates of those that have one.
    pub(super) inbound: BTreeMap<String, Arc<Inbound>>,
    /// The limits on customers' requests.
    pub(super) request_limits: Arc<RequestLimits>,
    pub(super) splits: Splits,
    pub(super) mirrors: Mirrors,
    /// By the address in the config, whose port may be 0.
    pub(super) listeners: HashMap<Address, RunningListener>,
    /// Removed, with connections that have not ended yet.
    leaving: Vec<Arc<Shared>>,
    /// Answers that may be given again in place of errors.
    pub(super) stale: Arc<Store>,
    pressure: Arc<Pressure>,
    life: Life,
}

/// A listener, on all threads.
pub(super) struct RunningListener {
    pub(super) name: String,
    pub(super) bound: Address,
    pub(super) shared: Arc<Shared>,
    /// What its requests wait at, if they are batch work.
    pub(super) batch: Option<Arc<ListenerBatch>>,
    /// Copies of what the threads accept from, for a successor of this process.
    pub(super) sockets: Vec<Listening>,
    /// The file of its Unix socket.
    pub(super) file: Option<SocketFile>,
    /// Its answers to probes; `None` where there are none.
    pub(super) answers: Option<Arc<Answers>>,
}

impl Running {
    pub(super) fn new(config: Arc<Config>, pressure: Arc<Pressure>, life: Life) -> Self {
        Self {
            config,
            names: Arc::default(),
            clusters: BTreeMap::new(),
            sources: BTreeMap::new(),
            fleet: Fleet::default(),
            inbound: BTreeMap::new(),
            request_limits: Arc::default(),
            splits: Splits::default(),
            mirrors: Mirrors::default(),
            listeners: HashMap::new(),
            leaving: Vec::new(),
            stale: Arc::default(),
            pressure,
            life,
        }
    }

    /// Brings clusters and listeners in line with `config`; hands back the threads' sockets of listeners that come.
    pub(super) fn update(
        &mut self,
        config: Arc<Config>,
        mut resolved: Resolved,
        bound: NewSockets,
        saved: SavedLists,
        overrides: SavedOverrides,
    ) -> HashMap<Address, Vec<Listening>> {
        // Before the sources that keep it up to date.
        *self.names.lock() = std::mem::take(&mut resolved.names);
        self.update_clusters(&config, resolved, saved, overrides);
        self.fleet.update(&config, &self.clusters);
        self.update_inbound(&config);
        self.splits = self.splits.updated(&config);
        self.mirrors = self.mirrors.updated(&config);
        self.stale.limit(config.stale_answers());
        let copies = self.update_listeners(&config, bound.listening);
        self.update_probes(&config, bound.probes);
        self.config = config;
        copies
    }

    /// The sources of clusters that do not run yet: their saved lists count.
    pub(super) fn new_sources(&self, config: &Config) -> Vec<(String, String)> {
        let new = config.clusters().keys().filter(|name| !self.clusters.contains_key(*name));
        new.filter_map(|name| Some((name.clone(), label(&config.followed(name)?)))).collect()
    }

    /// The clusters with a source, whose lists are saved.
    pub(super) fn lists(&self) -> BTreeMap<String, Target> {
        let target = |(name, source): (&String, &Source)| {
            let source = source.origin()?;
            Some((name.clone(), Target { cluster: self.clusters.get(name)?.clone(), source }))
        };
        self.sources.iter().filter_map(target).collect()
    }

    fn update_clusters(
        &mut self,
        config: &Config,
        mut resolved: Resolved,
        mut saved: SavedLists,
        mut overrides: SavedOverrides,
    ) {
        // One that is removed lives on, checks included, until the last request and the last connection that can bring
        // one are gone: the task that checks it holds no handle.
        self.clusters.retain(|name, _| config.clusters().contains_key(name));
        self.sources.retain(|name, _| config.clusters().contains_key(name));
        for name in config.clusters().keys() {
            let fixed = resolved.endpoints.remove(name).unwrap_or_default();
            let named = resolved.named.remove(name).unwrap_or_default();
            let incomplete = resolved.incomplete.remove(name).and_then(|problems| config.unresolved(&problems));
            let source = Source::new(config, name, fixed, named, incomplete);
            let is_new = !self.clusters.contains_key(name);
            let cluster = self.clusters.entry(name.clone()).or_insert_with(|| {
                let cluster = Cluster::new(name, config.client(name), [] as [Endpoint; 0]);
                tokio::spawn(cluster.run());
                cluster
            });
            let settings = config.client(name);
            if *cluster.config() != settings {
                cluster.set_config(settings);
            }
            // Before the backends, so that a removed one gets no request and no check.
            if let Some(overrides) = overrides.remove(name) {
                restore(cluster, overrides);
            }
            if source.is_fixed() || self.sources.get(name) != Some(&source) {
                let saved = saved.remove(name).map(|list| list.backends).unwrap_or_default();
                source.put_in_force(cluster, is_new, saved, &self.names);
                self.sources.insert(name.clone(), source);
            }
        }
    }

    /// A gate that did not change is kept, with all that it knows.
    fn update_inbound(&mut self, config: &Config) {
        let wanted = |name: &str| config.clusters().get(name)?.inbound.as_ref();
        self.inbound.retain(|name, inbound| wanted(name) == Some(inbound.config()));
        for name in config.clusters().keys() {
            if let (Some(wanted), None) = (wanted(name), self.inbound.get(name)) {
                let inbound = Inbound::new(wanted, self.inbound.values());
                self.inbound.insert(name.clone(), inbound);
            }
        }
        self.request_limits.configure(config);
        let customers = inbound::customer_names(config);
        for inbound in self.inbound.values() {
            inbound.set_customers(&customers);
            inbound.set_quota(config.quota(), config.quota_tls());
        }
    }

    fn update_listeners(
        &mut self,
        config: &Config,
        mut bound: HashMap<Address, Bound>,
    ) -> HashMap<Address, Vec<Listening>> {
        self.leaving.retain(|shared| shared.connections() > 0);
        let stays = |address: &Address| config.listeners().iter().any(|listener| listener.address == *address);
        // Their copies of the sockets are closed here, so that the threads close what is left.
        let removed = self.listeners.extract_if(|address, _| !stays(address));
        for (_, listener) in removed {
            listener.answers.into_iter().for_each(Answers::remove);
            self.leaving.push(listener.shared);
        }
        let mut copies = HashMap::new();
        for listener in config.listeners() {
            if let Some(running) = self.listeners.get_mut(&listener.address) {
                running.name.clone_from(&listener.name);
                continue;
            }
            let Bound { sockets, copies: given, file } =
                bound.remove(&listener.address).expect("what is not running yet was bound before");
            let running = RunningListener {
                name: listener.name.clone(),
                bound: sockets[0].address().unwrap_or(listener.address),
                shared: Arc::new(Shared::new(Arc::clone(&self.pressure))),
                batch: None,
                sockets,
                file,
                answers: None,
            };
            self.listeners.insert(listener.address, running);
            copies.insert(listener.address, given);
        }
        for listener in config.listeners() {
            let running = self.listeners.get_mut(&listener.address).expect("each of the config is there by now");
            if let Some(file) = &running.file {
                file.set_mode(listener.mode());
            }
            running.shared.set_tls(config.server_tls(&listener.name).map(Arc::as_ref));
            let leads_to = config.routes_of(&listener.name).flat_map(|route| route.route.clusters());
            let leads_to = leads_to.filter_map(|name| self.clusters.get(name));
            let former = running.batch.take();
            running.batch =
                listener.batch.map(|batch| Arc::new(ListenerBatch::new(batch, leads_to, former.as_deref())));
        }
        copies
    }

    /// Answers to probes that stay keep their leases, with other keys as well.
    fn update_probes(&mut self, config: &Config, mut bound: HashMap<Address, UdpSocket>) {
        for listener in config.listeners() {
            let Some(running) = self.listeners.get_mut(&listener.address) else { continue };
            match (config.probe_keys(&listener.name), &running.answers) {
                (None, _) => running.answers = None,
                (Some(keyring), Some(answers)) => answers.set_keyring(keyring.clone()),
                (Some(keyring), None) => {
                    let (Some(socket), Some(at)) = (bound.remove(&listener.address), running.bound.inet()) else {
                        continue;
                    };
                    running.answers = Some(Answers::new(socket, at, keyring.clone(), &self.life));
                }
            }
            if let Some(answers) = &running.answers {
                answers.set_behind(behind(config, &listener.name, &self.clusters, &self.inbound));
            }
        }
    }

    /// Listens at all listeners.
    pub(super) fn listen(&self) -> Result<(), Error> {
        for (address, listener) in &self.listeners {
            let listening = sockets::listen(&listener.sockets);
            let (place, address) = (format!("listener {:?}", listener.name), *address);
            listening.map_err(|cause| Error::Listen { place, address, cause })?;
        }
        // From now on this process serves: the files are its own, with the mode of its config.
        for listener in self.config.listeners() {
            if let Some(file) = self.listeners.get(&listener.address).and_then(|running| running.file.as_ref()) {
                file.set_own(true);
                file.set_mode(listener.mode());
            }
        }
        Ok(())
    }

    /// The files of Unix sockets that this process, or its predecessor, made.
    pub(super) fn files(&self) -> impl Iterator<Item = &SocketFile> {
        self.listeners.values().filter_map(|listener| listener.file.as_ref())
    }

    /// Connections of clients, at listeners that were removed as well.
    pub(super) fn connections(&self) -> usize {
        let shared = self.listeners.values().map(|listener| &listener.shared).chain(&self.leaving);
        shared.map(|shared| shared.connections()).sum()
    }

    /// Requests of batch work that wait.
    pub(super) fn batch_queued(&self) -> u64 {
        let batches = self.listeners.values().filter_map(|listener| listener.batch.as_ref());
        batches.flat_map(|batch| batch.gate.view().queued).map(|(_, queued)| queued as u64).sum()
    }

    /// Has `worker`, the one of this number among `workers`, serve what runs now; the receiver is told when it does.
    pub(super) fn serve(
        &self,
        worker: &Worker,
        sockets: &mut HashMap<Address, Vec<Listening>>,
        workers_left: usize,
        access_log: &AccessLog,
        traces: &Traces,
        explain: &Explain,
    ) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let quotas = Arc::new(Quotas::new(&self.config, &self.request_limits));
        let listeners = self.config.listeners().iter().map(|listener| {
            let sockets = sockets.get_mut(&listener.address).map(|left| share(left, workers_left)).unwrap_or_default();
            ListenerPlan {
                name: listener.name.clone(),
                address: listener.address,
                limits: Limits::from(listener),
                claims: Claims::new(listener, self.config.listeners(), &quotas),
                shared: Arc::clone(&self.listeners[&listener.address].shared),
                batch: self.listeners[&listener.address].batch.clone(),
                sockets,
            }
        });
        let plan = Plan {
            config: Arc::clone(&self.config),
            clusters: self.clusters.clone().into_iter().collect(),
            inbound: self.inbound.clone().into_iter().collect(),
            splits: self.splits.clone(),
            mirrors: self.mirrors.clone(),
            stale: Arc::clone(&self.stale),
            listeners: listeners.collect(),
            access_log: access_log.clone(),
            traces: traces.clone(),
            explain: explain.clone(),
            done,
        };
        worker.order(Order::Serve(plan));
        receiver
    }
}

/// The clusters that the routes of a listener lead to, each once.
fn behind(
    config: &Config,
    listener: &str,
    clusters: &BTreeMap<String, Cluster>,
    inbound: &BTreeMap<String, Arc<Inbound>>,
) -> Vec<Behind> {
    let names: BTreeSet<&str> = config.routes_of(listener).flat_map(|route| route.route.clusters()).collect();
    names.into_iter().filter_map(|name| Some((clusters.get(name)?.clone(), inbound.get(name).cloned()))).collect()
}

/// Puts the changes by hand of an earlier process in force.
fn restore(cluster: &Cluster, overrides: Vec<OverrideView>) {
    let (name, count) = (cluster.name(), overrides.len());
    let left_out = cluster.restore_overrides(overrides);
    tracing::info!(cluster = name, overrides = count - left_out, "saved backend overrides in force again");
    if left_out > 0 {
        tracing::warn!(
            cluster = name,
            left_out,
            "saved backend overrides left out: a cluster has {MAX_OVERRIDES} at most"
        );
    }
}

/// One worker's share of what is left for it and those after it.
fn share<T>(left: &mut Vec<T>, workers_left: usize) -> Vec<T> {
    let share = left.len().div_ceil(workers_left);
    left.split_off(left.len() - share)
}

impl RunningListener {
    pub(super) fn view(&self) -> ListenerView {
        ListenerView {
            name: self.name.clone(),
            address: self.bound,
            connections: self.shared.connections(),
            accepted: self.shared.accepted.load(Ordering::Relaxed),
            waited: self.shared.permits.waited(),
            refusals: self.shared.counts.refusals.counts().collect(),
            degraded: self
                .shared
                .counts
                .degraded
                .counts()
                .map(|((kind, reason), count)| (kind, reason, count))
                .collect(),
            ended: self.shared.counts.ended.counts().collect(),
            turned_away: self.shared.rejections(),
            stalled_streams: self.shared.counts.stalled_streams.load(Ordering::Relaxed),
            failed_handshakes: self.shared.handshakes.failed.counts().collect(),
            tls_handshakes: self.shared.handshakes.done.counts().collect(),
            waiting_handshakes: self.shared.handshakes.steps.waiting(),
            handshake_time: self.shared.handshakes.steps.time(),
            batch: self.batch.as_ref().map(|batch| batch.view()),
            probes: self.answers.as_ref().map(|answers| answers.counts()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_dealt_out_evenly_and_none_is_left() {
        let deal = |sockets: usize, workers: usize| -> Vec<usize> {
            let mut left: Vec<usize> = (0..sockets).collect();
            let dealt = (0..workers).map(|i| share(&mut left, workers - i).len()).collect();
            assert!(left.is_empty());
            dealt
        };
        assert_eq!(deal(4, 4), [1, 1, 1, 1]);
        assert_eq!(deal(4, 3), [2, 1, 1]);
        assert_eq!(deal(8, 3), [3, 3, 2]);
    }
}

//! Probes of a cluster: the datagrams between the balancer's probers and the sockets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::probe::{Authenticity, Instance, Pace, Pacer, Query};
use plimsoll_core::{BackendId, Balancer, Observe, Timestamp};
use plimsoll_wire::probe::{ClientKey, Fault, Message, Seed};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use tokio::time::Instant;

use super::Shared;
use super::machine::Machine;
use super::probes_view::ProbeDrops;
use crate::probe::{Incoming, KeysInUse, ProbeKeys, QuerySockets, random};

/// The name of this client in probes.
pub(super) struct Identity {
    instance: Instance,
    /// Requests keys of backends. `None` if the system gave no random bytes.
    seed: Option<Seed>,
}

impl Identity {
    pub(super) fn new(rng: &mut Pcg64Mcg) -> Self {
        // The seed is a secret. The nonces that show the state of `rng` are not.
        let seed = random().ok().map(Seed::new);
        let instance = seed.as_ref().map_or_else(|| instance(rng), Seed::instance);
        Self { instance, seed }
    }
}

fn instance(rng: &mut Pcg64Mcg) -> Instance {
    loop {
        if let Some(instance) = Instance::new(rng.next_u64()) {
            return instance;
        }
    }
}

impl Machine {
    /// Puts the settings of probes in force.
    pub(super) fn set_probes(&mut self, now: Timestamp) {
        let config = self.config.clone();
        let probes = config.probes.as_ref();
        self.probe_keys = probes.map_or_else(ProbeKeys::keyless, |probes| probes.keys_in_force());
        let prober = probes.map(|probes| probes.prober(self.identity.instance, &config.pool, &config.check));
        self.balancer.set_probes(now, prober, &mut self.rng);
    }

    /// Probes every member that the keys suffice for, and no other.
    pub(super) fn begin_probes(&mut self, now: Timestamp) {
        if self.config.probes.is_none() {
            return;
        }
        // A Unix socket has no UDP port beside it; its checks go on.
        let members: Vec<(BackendId, Option<u16>)> =
            self.ids().map(|(id, backend)| (id, backend.address().port())).collect();
        for (id, port) in members {
            if let Some(port) = port.filter(|_| self.keys_in_use(id).is_some()) {
                self.balancer.probe(now, id, port);
            } else {
                self.balancer.end_probes(now, id, &mut self.rng);
            }
        }
    }

    fn takes_keys(&self) -> bool {
        self.config.probes.as_ref().is_some_and(|probes| probes.requests_keys(&self.config.check))
    }

    /// The value that requests a key in a check; `None` if checks bring none.
    pub(super) fn key_request(&self) -> Option<HeaderValue> {
        self.identity.seed.as_ref().filter(|_| self.takes_keys()).map(Seed::to_header_value)
    }

    /// Takes a key that a backend handed out, and begins to probe it. Returns whether it is new.
    pub(super) fn take_key(&mut self, now: Timestamp, id: BackendId, key: ClientKey) -> bool {
        let is_new = self.takes_keys() && self.handed_keys_mut(id).is_some_and(|keys| keys.take(key));
        if is_new && let Some(port) = self.backend(id).and_then(|backend| backend.address().port()) {
            self.balancer.probe(now, id, port);
        }
        is_new
    }

    /// Whether the log has to say that this backend, which passed a check, hands out no key that its
    /// probes need.
    pub(super) fn lacks_key(&mut self, id: BackendId) -> bool {
        let is_probed = self.backend(id).is_some_and(|backend| backend.address().inet().is_some());
        is_probed && self.takes_keys() && self.keys_in_use(id).is_none() && self.tell_keyless(id)
    }

    /// The keys of a backend's probes; `None` if it must not be probed.
    fn keys_in_use(&self, id: BackendId) -> Option<KeysInUse> {
        let handed = self.handed_keys(id).filter(|keys| self.takes_keys() && !keys.is_empty());
        if let Some(keys) = handed {
            return Some(KeysInUse::Handed(*keys));
        }
        let suffice = self.probe_keys.suffice_for(self.backend(id)?.address().inet()?);
        suffice.then(|| KeysInUse::Cluster(self.probe_keys.clone()))
    }

    /// The queries that are due.
    pub(super) fn queries(&mut self) -> Vec<Outgoing> {
        let mut queries = Vec::new();
        while let Some((id, query)) = self.balancer.poll_query() {
            let keys = self.keys_in_use(id);
            queries.extend(
                self.backend(id).and_then(|backend| Some(Outgoing { to: backend.address().inet()?, query, keys })),
            );
        }
        queries
    }
}

/// Datagrams that are read per second: those of ten thousand backends that all have news. A flood
/// must not take a core from requests; the kernel drops the rest.
const READS: Pace =
    Pace { per_second: NonZeroU32::new(50_000).expect("not zero"), burst: NonZeroU32::new(1_000).expect("not zero") };
/// Pause after a burst.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause after any datagram: the answers to queries that were sent together are read together. A
/// notice after a silence is read at once.
const GATHER: Duration = Duration::from_millis(1);

/// A query on its way out.
pub(super) struct Outgoing {
    to: SocketAddr,
    query: Query,
    keys: Option<KeysInUse>,
}

/// The network of a cluster's probes.
pub(super) struct Network {
    sockets: QuerySockets,
    reads: Pacer,
    /// Nothing is read before.
    paused_until: Option<Instant>,
    /// The backends by address, as of that number of changes of the membership.
    backends: HashMap<(IpAddr, u16), BackendId>,
    membership: Option<u64>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            sockets: QuerySockets::default(),
            reads: Pacer::new(READS),
            paused_until: None,
            backends: HashMap::new(),
            membership: None,
        }
    }
}

impl Network {
    /// Waits for a datagram that may be read.
    pub(super) async fn wait(&self) {
        if let Some(until) = self.paused_until {
            tokio::time::sleep_until(until).await;
        }
        self.sockets.wait().await;
    }

    /// Sends queries.
    pub(super) fn send(&mut self, shared: &Shared, queries: Vec<Outgoing>) {
        let mut unsent = 0;
        for Outgoing { to, query, keys } in queries {
            let signed = keys.and_then(|keys| keys.sign(&query));
            let sent = signed.is_some_and(|datagram| self.sockets.send(to, &datagram).is_ok());
            unsent += u64::from(!sent);
        }
        if unsent > 0 {
            shared.machine.lock().counts.probe_drops.unsent += unsent;
        }
    }

    /// Gives the datagrams that have come to the balancer, and sends its replies.
    pub(super) fn receive(&mut self, shared: &Shared) {
        self.follow_members(shared);
        let now = shared.now();
        let instance = shared.machine.lock().identity.instance;
        let (mut facts, mut drops) = (Vec::new(), ProbeDrops::default());
        let backends = &self.backends;
        let reads = self.sockets.receive(|incoming| {
            let (Incoming::Datagram(address, _) | Incoming::Refused(address)) = incoming;
            let Some(id) = backends.get(&key(address)) else {
                drops.invalid += 1;
                return;
            };
            let fact = match incoming {
                Incoming::Refused(_) => Fact::Refused,
                Incoming::Datagram(_, bytes) => {
                    let keys = shared.machine.lock().keys_in_use(*id);
                    match keys.map(|keys| keys.verify(bytes, instance)) {
                        Some(Ok(read)) => Fact::Message(read),
                        None | Some(Err(Fault::Mac | Fault::UnknownKey)) => return drops.unauthentic += 1,
                        Some(Err(_)) => return drops.invalid += 1,
                    }
                }
            };
            facts.push((*id, fact));
        });
        self.reads.take(now, reads);
        self.paused_until = (reads > 0).then(|| Instant::now() + if self.reads.is_ready(now) { GATHER } else { PAUSE });
        let mut machine = shared.machine.lock();
        machine.counts.probe_drops.add(drops);
        let news = machine.tell(now, |balancer, rng, mut observe| {
            for (id, fact) in facts {
                fact.tell(now, balancer, id, rng, &mut observe);
            }
        });
        let queries = machine.queries();
        drop(machine);
        self.send(shared, queries);
        shared.publish(news);
    }

    fn follow_members(&mut self, shared: &Shared) {
        let membership = shared.memberships();
        if self.membership != Some(membership) {
            self.membership = Some(membership);
            let members = shared.members();
            let members = members.iter().filter_map(|(id, backend)| Some((key(backend.address().inet()?), *id)));
            self.backends = members.collect();
        }
    }
}

/// Something that a backend's prober should know.
enum Fact {
    Message((Message, Authenticity)),
    Refused,
}

impl Fact {
    fn tell(
        self,
        now: Timestamp,
        balancer: &mut Balancer,
        id: BackendId,
        rng: &mut Pcg64Mcg,
        observe: &mut impl Observe,
    ) {
        match self {
            Self::Message((Message::Answer(answer), _)) => balancer.on_probe_answer(now, id, &answer, rng, observe),
            Self::Message((Message::Notice(notice), authenticity)) => {
                balancer.on_probe_notice(now, id, &notice, authenticity, rng, observe);
            }
            // The codec gives a client no queries.
            Self::Message((Message::Query(_), _)) => {}
            Self::Refused => balancer.on_query_refused(now, id, rng, observe),
        }
    }
}

/// An address as a key: neither the form of an IPv4 address nor the interface counts.
fn key(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

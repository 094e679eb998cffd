//! A thread that serves: its own runtime, listeners, connections and pools of connections to
//! backends.
//!
//! A request stays on the thread that accepted it. Counts across threads are in the shared
//! [`Cluster`]s. The control thread sends a worker whole plans, each replacing the one before.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{io, thread};

use arc_swap::ArcSwap;
use plimsoll::address::Address;
use plimsoll::client::{Client, Cluster};
use plimsoll::server::coalescing;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::access_log::AccessLog;
use crate::batch::ListenerBatch;
use crate::classify::Claims;
use crate::config::{self, Config, Leads};
use crate::connection::context::Context;
use crate::connection::turns::Turns as BulkTurns;
use crate::degrade::{Degrade, Store};
use crate::explain::Explain;
use crate::fixed::FixedAnswer;
use crate::inbound::Inbound;
use crate::limits::Limits;
use crate::listener::accept::{self, Door};
use crate::listener::turns::Turns;
use crate::listener::{ListenerState, Shared};
use crate::mirror::Mirrors;
use crate::phase::{CLOSE_GRACE, Life, Phase};
use crate::request_body::RequestBody;
use crate::route::RouteTable;
use crate::route::changes::response_rules;
use crate::route::destination::{Destination, Target};
use crate::route::keys::Keys;
use crate::route::mirror::Mirror;
use crate::route::redirect::Redirect;
use crate::route::routes::Routes;
use crate::route::split::{SideOf, Sides};
use crate::sockets;
use crate::split::Splits;
use crate::trace::Traces;

/// All that a worker has to serve.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) clusters: HashMap<String, Cluster>,
    /// The gates of those clusters that have one.
    pub(crate) inbound: HashMap<String, Arc<Inbound>>,
    pub(crate) splits: Splits,
    pub(crate) mirrors: Mirrors,
    /// Answers that may be given again in place of errors.
    pub(crate) stale: Arc<Store>,
    pub(crate) listeners: Vec<ListenerPlan>,
    pub(crate) access_log: AccessLog,
    pub(crate) traces: Traces,
    pub(crate) explain: Explain,
    /// Told when the plan is in force.
    pub(crate) done: oneshot::Sender<()>,
}

/// A listener of a plan.
pub(crate) struct ListenerPlan {
    pub(crate) name: String,
    pub(crate) address: Address,
    pub(crate) limits: Limits,
    pub(crate) claims: Claims,
    pub(crate) shared: Arc<Shared>,
    /// The gate of its requests, if they are batch work.
    pub(crate) batch: Option<Arc<ListenerBatch>>,
    /// The worker's own sockets where the listener is new, at least one; else none.
    pub(crate) sockets: Vec<sockets::Listening>,
}

/// An order of the control thread to a worker.
pub(crate) enum Order {
    Serve(Plan),
    Advance(Phase),
    /// Begin to accept.
    OpenDoors,
    /// Accept the connections that are in the queues, and no more. Answered when all of them are
    /// counted.
    CloseDoors(oneshot::Sender<()>),
}

/// The control thread's end of a worker. The worker closes when this is dropped.
pub(crate) struct Worker {
    orders: mpsc::UnboundedSender<Order>,
}

impl Worker {
    /// Starts a thread.
    pub(crate) fn start(index: usize) -> io::Result<Self> {
        // A sidecar sheds on the CPU that its service is short of.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().on_thread_park(coalescing::pause).build()?;
        let (orders, inbox) = mpsc::unbounded_channel();
        thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            runtime.block_on(Serving::default().run(inbox));
        })?;
        Ok(Self { orders })
    }

    /// A worker without a thread: the test obeys its orders.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        (Self { orders }, inbox)
    }

    /// Gives an order. A worker that is gone needs none.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

/// How often a listener that was removed looks whether its connections have ended.
const LEAVE_LOOK: Duration = Duration::from_millis(50);

/// The listeners and clients of a worker.
#[derive(Default)]
struct Serving {
    listeners: HashMap<Address, Listening>,
    /// Removed, with connections that may not have ended yet.
    leaving: Vec<Weak<ListenerState>>,
    clients: HashMap<String, Client<RequestBody>>,
    /// Of all its listeners: they have the thread in common.
    turns: Arc<Turns>,
    /// The same.
    bulk_turns: Arc<BulkTurns>,
    /// Whether it accepts.
    is_open: bool,
}

/// The common parts of all listeners of a plan.
struct Common<'p> {
    config: &'p Config,
    inbound: &'p HashMap<String, Arc<Inbound>>,
    splits: &'p Splits,
    mirrors: &'p Mirrors,
    stale: &'p Arc<Store>,
    access_log: &'p AccessLog,
    traces: &'p Traces,
    explain: &'p Explain,
}

/// A listener, and the handles that keep it accepting.
struct Listening {
    state: Arc<ListenerState>,
    door: Option<Door>,
    /// The loops that accept, one for each socket.
    accepting: Vec<JoinHandle<()>>,
}

impl Serving {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Serve(plan) => self.serve(plan),
                Order::Advance(phase) => self.advance(phase),
                Order::OpenDoors => {
                    self.is_open = true;
                    self.listeners.values().filter_map(|listening| listening.door.as_ref()).for_each(Door::open);
                }
                Order::CloseDoors(done) => {
                    self.close_doors().await;
                    let _ = done.send(());
                }
            }
        }
    }

    /// Ends the loops that accept. A connection that one of them accepted is counted when this
    /// returns.
    async fn close_doors(&mut self) {
        for listening in self.listeners.values_mut() {
            listening.door = None;
        }
        for accepting in self.listeners.values_mut().flat_map(|listening| listening.accepting.drain(..)) {
            let _ = accepting.await;
        }
    }

    fn advance(&self, phase: Phase) {
        for listening in self.listeners.values() {
            listening.state.context.life.advance(phase);
        }
        for state in self.leaving.iter().filter_map(Weak::upgrade) {
            state.context.life.advance(phase);
        }
    }

    fn serve(&mut self, plan: Plan) {
        let Plan { config, clusters, inbound, splits, mirrors, stale, listeners, access_log, traces, explain, done } =
            plan;
        self.clients.retain(|name, client| clusters.get(name) == Some(client.cluster()));
        for (name, cluster) in clusters {
            self.clients.entry(name).or_insert_with(|| Client::new(&cluster));
        }
        let addresses: Vec<Address> = listeners.iter().map(|listener| listener.address).collect();
        let common = Common {
            config: &config,
            inbound: &inbound,
            splits: &splits,
            mirrors: &mirrors,
            stale: &stale,
            access_log: &access_log,
            traces: &traces,
            explain: &explain,
        };
        for listener in listeners {
            self.listen(&common, listener);
        }
        self.leaving.retain(|state| state.strong_count() > 0);
        for (_, removed) in self.listeners.extract_if(|address, _| !addresses.contains(address)) {
            self.leaving.push(Arc::downgrade(&removed.state));
            tokio::spawn(leave(removed, config.drain().timeout));
        }
        // The control thread may have stopped waiting; the plan is in force all the same.
        let _ = done.send(());
    }

    fn listen(&mut self, common: &Common<'_>, plan: ListenerPlan) {
        let routes = Arc::new(self.routes(common, &plan));
        let limits = Arc::new(plan.limits);
        if plan.sockets.is_empty() {
            if let Some(Listening { state, .. }) = self.listeners.get(&plan.address) {
                state.context.routes.store(routes);
                state.shared.permits.allow(limits.max_connections);
                state.context.limits.store(limits);
            }
            return;
        }
        plan.shared.permits.allow(limits.max_connections);
        let state = Arc::new(ListenerState {
            context: Arc::new(Context {
                limits: ArcSwap::new(limits),
                routes: ArcSwap::new(routes),
                life: Life::new(),
                recorder: common.explain.recorder(),
                access_log: common.access_log.clone(),
                traces: common.traces.clone(),
                counts: Arc::clone(&plan.shared.counts),
                permits: Arc::clone(&plan.shared.permits),
                pressure: Arc::clone(&plan.shared.pressure),
                turns: Arc::clone(&self.bulk_turns),
            }),
            turns: Arc::clone(&self.turns),
            shared: plan.shared,
        });
        let door = Door::new(self.is_open);
        let accept = |socket| tokio::spawn(accept::accept(socket, Arc::clone(&state), door.watch()));
        let accepting = plan.sockets.into_iter().map(accept).collect();
        self.listeners.insert(plan.address, Listening { state, door: Some(door), accepting });
    }

    fn routes(&self, common: &Common<'_>, listener: &ListenerPlan) -> Routes {
        let table = RouteTable::new(common.config.routes_of(&listener.name).filter_map(|route| {
            let destination = match route.route.leads() {
                Leads::Cluster(name) => Destination::Cluster(Arc::new(self.target(common, listener, route, name)?)),
                Leads::Split(_) => Destination::Split(self.sides(common, listener, route)?),
                Leads::Answer(answer) => {
                    Destination::Answer(FixedAnswer::new(common.config, answer), response_rules(&route))
                }
                Leads::Redirect(redirect) => {
                    Destination::Redirect(Redirect::new(redirect, &route), response_rules(&route))
                }
                Leads::BlackHole => Destination::BlackHole,
            };
            Some((route.route, Arc::new(destination)))
        }));
        Routes::new(table, &listener.claims)
    }

    fn sides(&self, common: &Common<'_>, listener: &ListenerPlan, route: config::NamedRoute<'_>) -> Option<Sides> {
        let live = common.splits.of(&route)?;
        let side = |(side, cluster): (usize, &str)| {
            let mut target = self.target(common, listener, route, cluster)?;
            target.side = Some(Box::new(SideOf { live: Arc::clone(live), side }));
            Some((Arc::new(target), self.clients.get(cluster)?.cluster().clone()))
        };
        Sides::new(live, route.clusters().enumerate().map(side).collect::<Option<_>>()?)
    }

    /// `None` for a cluster that does not exist; a config names no such.
    fn target(
        &self,
        common: &Common<'_>,
        listener: &ListenerPlan,
        route: config::NamedRoute<'_>,
        cluster: &str,
    ) -> Option<Target> {
        let batch = listener.batch.as_ref();
        let clients = batch.map_or(&self.clients, |batch| &batch.clients);
        let client = clients.get(cluster)?.clone();
        let batch = batch.map(|batch| batch.gate.clone());
        let degrade = Degrade::new(common.config, &route, cluster, listener.claims.customer_fields(), common.stale);
        let keys = common.config.clusters().get(cluster).and_then(Keys::new);
        let inbound = common.inbound.get(cluster).cloned();
        let target = Target::new(client, route, &listener.claims, inbound, batch, degrade, keys);
        Some(match self.mirror(common, &route) {
            Some(mirror) => target.mirrored(mirror),
            None => target,
        })
    }

    fn mirror(&self, common: &Common<'_>, route: &config::Route) -> Option<Mirror> {
        let live = common.mirrors.of(route)?;
        let cluster = &live.settings().cluster;
        let client = self.clients.get(cluster)?.clone();
        let keys = common.config.clusters().get(cluster).and_then(Keys::new);
        Some(Mirror::new(live, client, route.request_timeout, keys))
    }
}

/// Ends a listener that was removed: it accepts no more, its clients are told to go with their next
/// answer, and those who are still there after `patience` are closed: at once where nothing is in
/// flight, else a little later.
async fn leave(removed: Listening, patience: Duration) {
    let Listening { state, door, .. } = removed;
    drop(door);
    state.context.life.advance(Phase::LameDuck);
    let _ = tokio::time::timeout(patience, emptied(&state.shared)).await;
    state.context.life.advance(Phase::Closing);
    let _ = tokio::time::timeout(CLOSE_GRACE, emptied(&state.shared)).await;
    state.context.life.advance(Phase::Closed);
}

async fn emptied(listener: &Shared) {
    loop {
        // After a pause, so that the queues have been accepted.
        tokio::time::sleep(LEAVE_LOOK).await;
        if listener.connections() == 0 {
            break;
        }
    }
}

//! A thread that serves: its own runtime, listeners, connections and pools of connections to backends.
//!
//! A request stays on the thread that accepted it; what must be counted across threads is in the shared
//! [`Cluster`]s. The control thread tells a worker what to serve by whole plans, each replacing the one before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::{io, thread};

use arc_swap::ArcSwap;
use plimsoll::client::{Client, Cluster};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::accept;
use crate::config::Config;
use crate::listener::{Limits, ListenerState, Shared, Target};
use crate::phase::{Life, Phase};
use crate::request_body::RequestBody;
use crate::route::RouteTable;

/// All that a worker has to serve.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) clusters: HashMap<String, Cluster>,
    pub(crate) listeners: Vec<ListenerPlan>,
    /// Told when the plan is in force.
    pub(crate) done: oneshot::Sender<()>,
}

/// A listener of a plan.
pub(crate) struct ListenerPlan {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) limits: Limits,
    pub(crate) shared: Arc<Shared>,
    /// The worker's own socket, where the listener is new.
    pub(crate) socket: Option<std::net::TcpListener>,
}

/// What the control thread says to a worker.
pub(crate) enum Order {
    Serve(Plan),
    Advance(Phase),
}

/// The control thread's end of a worker. The worker closes when this is dropped.
pub(crate) struct Worker {
    orders: mpsc::UnboundedSender<Order>,
}

impl Worker {
    /// Starts a thread.
    pub(crate) fn start(index: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, inbox) = mpsc::unbounded_channel();
        thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            runtime.block_on(Serving::default().run(inbox));
        })?;
        Ok(Self { orders })
    }

    /// Gives an order. A worker that is gone needs none.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

/// What a worker serves now.
#[derive(Default)]
struct Serving {
    listeners: HashMap<SocketAddr, Arc<ListenerState>>,
    clients: HashMap<String, Client<RequestBody>>,
}

impl Serving {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Serve(plan) => self.serve(plan),
                Order::Advance(phase) => {
                    for listener in self.listeners.values() {
                        listener.life.advance(phase);
                    }
                }
            }
        }
    }

    fn serve(&mut self, plan: Plan) {
        let Plan { config, clusters, listeners, done } = plan;
        self.clients.retain(|name, client| clusters.get(name) == Some(client.cluster()));
        for (name, cluster) in clusters {
            self.clients.entry(name).or_insert_with(|| Client::new(&cluster));
        }
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address).collect();
        for listener in listeners {
            self.listen(&config, listener);
        }
        self.listeners.retain(|address, listener| {
            let kept = addresses.contains(address);
            if !kept {
                listener.life.advance(Phase::Closing);
            }
            kept
        });
        // The control thread may have stopped waiting; the plan is in force all the same.
        let _ = done.send(());
    }

    fn listen(&mut self, config: &Config, plan: ListenerPlan) {
        let routes = Arc::new(self.routes(config, &plan.name));
        let limits = Arc::new(plan.limits);
        let Some(socket) = plan.socket else {
            if let Some(listener) = self.listeners.get(&plan.address) {
                listener.routes.store(routes);
                listener.limits.store(limits);
                listener.shared.limits_changed();
            }
            return;
        };
        let state = Arc::new(ListenerState {
            limits: ArcSwap::new(limits),
            routes: ArcSwap::new(routes),
            life: Life::new(),
            shared: plan.shared,
        });
        match TcpListener::from_std(socket) {
            Ok(socket) => {
                tokio::spawn(accept::accept(socket, Arc::clone(&state)));
                self.listeners.insert(plan.address, state);
            }
            Err(error) => tracing::error!(%error, address = %plan.address, "cannot listen"),
        }
    }

    fn routes(&self, config: &Config, listener: &str) -> RouteTable<Arc<Target>> {
        RouteTable::new(config.routes_of(listener).filter_map(|route| {
            // A config names no route to a cluster that it does not have.
            let client = self.clients.get(&route.cluster)?.clone();
            Some((route, Arc::new(Target::new(client, route.request_timeout))))
        }))
    }
}

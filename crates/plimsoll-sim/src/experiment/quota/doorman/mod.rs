//! Doorman's rule: tasks lease capacity at a tree of servers, each of which leases its own one level up.
//!
//! ```text
//! root ── region ── datacenter ── task        wishes and leases up, capacity down
//! refresh of level i = refresh · 0.5^i
//! ```
//!
//! It follows the design and the simulation of youtube/doorman: proportional shares ([`share`]), masters that learn
//! ([`server`]), a root with a refresh of its own. It is a tree and not a flat server because the published runs are
//! those of a tree, and the capacity above the limit comes from its levels.
//!
//! It differs where that helps Doorman or is the same for all arms: a task knows its demand exactly, messages take the
//! time of those of the other arms, and begin at random times instead of all in the same second. A task without a
//! lease uses nothing.

mod server;
mod share;

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::quota::Bucket;

use self::server::{Ask, Lease, MASTERS, Name, Server, Times, valid};
use super::accidents::place;
use super::messages::Sent;
use super::rules::Request;

/// Time until a failed or empty request is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// The refresh of the root's own capacity, over that of those that ask it.
const ROOT_REFRESH: u32 = 2;
/// The refresh of a level over that of the level before.
const DECAY: f64 = 0.5;
/// Seconds of its capacity that a task may use at once: Doorman's clients wait for the next second.
const DEPTH: f64 = 1.0;

/// The settings of [`Rule::Doorman`](super::plan::Rule::Doorman).
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) levels: u32,
    pub(super) branches: u32,
    pub(super) refresh: Duration,
    pub(super) lease: Duration,
    /// Time of a message, one way.
    pub(super) delay: Duration,
}

impl Tree {
    /// The servers of all levels.
    fn servers(&self) -> u32 {
        (0..self.levels).map(|level| self.branches.pow(level)).sum()
    }
}

/// A change that is due: of a server, or of a task, which have the numbers after the servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    customer: u32,
    node: u32,
    /// The term of a server; zero for tasks. Steps of former terms have no effect.
    term: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It asks.
    Ask,
    /// The request arrives one level up.
    Asked,
    /// The answer arrives.
    Answered,
}

/// The tree of one customer.
struct Resource {
    /// In µCPU.
    limit: f64,
    servers: Vec<Server>,
    /// The leases of tasks, and the buckets filled by them.
    tasks: Vec<(Option<Lease>, Bucket)>,
    /// The request under way from each node, and its answer.
    asks: Vec<Option<Ask>>,
    answers: Vec<Option<Lease>>,
}

/// See the [module](self).
pub(super) struct Doorman {
    tree: Tree,
    resources: Vec<Resource>,
    due: Vec<(Timestamp, Step)>,
    pub(super) sent: Sent,
}

impl Doorman {
    /// `limits` are those of the customers, in CPUs.
    pub(super) fn new(now: Timestamp, tree: Tree, tasks: usize, limits: &[f64]) -> Self {
        let servers: Vec<Server> = (0..tree.levels)
            .flat_map(|level| {
                let times = Times { lease: tree.lease, refresh: tree.refresh.mul_f64(DECAY.powi(level as i32)) };
                vec![Server::new(now, times); tree.branches.pow(level) as usize]
            })
            .collect();
        let nodes = servers.len() + tasks;
        let resource = |limit: &f64| Resource {
            limit: limit * 1e6,
            servers: servers.clone(),
            tasks: vec![(None, Bucket::full(now, 0.0, 0.0)); tasks],
            asks: vec![None; nodes],
            answers: vec![None; nodes],
        };
        Self { tree, resources: limits.iter().map(resource).collect(), due: Vec::new(), sent: Sent::default() }
    }

    /// All servers and tasks begin, each at a time of its own.
    pub(super) fn begin(&mut self, mut at: impl FnMut() -> Timestamp) {
        for (customer, resource) in (0..).zip(&self.resources) {
            for node in 0..resource.asks.len() as u32 {
                self.due.push((at(), Step { customer, node, term: 0, stage: Stage::Ask }));
            }
        }
    }

    /// The steps that are due later, since the last call.
    pub(super) fn due(&mut self) -> impl Iterator<Item = (Timestamp, Step)> {
        std::mem::take(&mut self.due).into_iter()
    }

    /// Whether a request is admitted. Criticality has no effect.
    pub(super) fn ask(&mut self, now: Timestamp, request: &Request) -> bool {
        let (lease, bucket) = &mut self.resources[request.customer].tasks[request.task];
        let rate = valid(*lease, now).map_or(0.0, |lease| lease.capacity);
        bucket.set(now, rate, DEPTH * rate);
        let is_admitted = bucket.level(now) > 0.0;
        if is_admitted {
            bucket.take(request.cost);
        }
        is_admitted
    }

    /// The capacity of all leases of tasks, by customer, in µCPU.
    pub(super) fn held(&self, now: Timestamp) -> impl Iterator<Item = f64> {
        let of = move |(lease, _): &(Option<Lease>, Bucket)| valid(*lease, now).map_or(0.0, |lease| lease.capacity);
        self.resources.iter().map(move |resource| resource.tasks.iter().map(of).sum())
    }

    /// The root loses its master.
    pub(super) fn lose_root(&mut self) {
        self.resources.iter_mut().for_each(|resource| resource.servers[0].lose());
    }

    /// The server at this part of all servers loses its master. Returns its number.
    pub(super) fn lose(&mut self, server: f64) -> u32 {
        let at = self.server(server);
        self.resources.iter_mut().for_each(|resource| resource.servers[at as usize].lose());
        at
    }

    /// The number of the server at this part of all servers.
    pub(super) fn server(&self, server: f64) -> u32 {
        place(server, self.tree.servers() as usize) as u32
    }

    /// A server gets the master at this part of its tasks. Nothing happens if it is the master already.
    pub(super) fn elect(&mut self, now: Timestamp, server: u32, successor: f64) {
        let master = place(successor, MASTERS);
        for (customer, resource) in (0..).zip(&mut self.resources) {
            let of = &mut resource.servers[server as usize];
            if of.master != Some(master) {
                of.elect(now, master);
                self.due.push((now, Step { customer, node: server, term: of.term, stage: Stage::Ask }));
            }
        }
    }

    /// `demand` of a task for a customer, in µCPU.
    pub(super) fn act(&mut self, now: Timestamp, step: Step, demand: impl Fn(usize, usize) -> f64) {
        let Step { customer, node, term, .. } = step;
        let (at, tree) = (node as usize, self.tree);
        let resource = &mut self.resources[customer as usize];
        let servers = resource.servers.len();
        let task = at.checked_sub(servers);
        if task.is_none() && resource.servers[at].term != term {
            return;
        }
        let next = match step.stage {
            Stage::Ask => {
                let ask = match task {
                    Some(task) => {
                        let has = valid(resource.tasks[task].0, now);
                        let name = Name { node, master: 0 };
                        Some(Ask { name, wants: demand(task, customer as usize), has })
                    }
                    None => resource.servers[at].ask(now, node),
                };
                match ask {
                    None => (RETRY, Stage::Ask),
                    Some(_) if node == 0 => {
                        let (refresh, until) = (ROOT_REFRESH * tree.refresh, now + tree.lease);
                        resource.servers[0].has = Some(Lease { capacity: resource.limit, until, refresh });
                        (refresh, Stage::Ask)
                    }
                    Some(_) => {
                        resource.asks[at] = ask;
                        self.sent.report(customer);
                        (tree.delay, Stage::Asked)
                    }
                }
            }
            Stage::Asked => {
                let parent = &mut resource.servers[parent(at, servers, resource.tasks.len(), tree)];
                let ask = resource.asks[at].take().filter(|_| parent.master.is_some());
                resource.answers[at] = ask.map(|ask| parent.answer(now, ask));
                self.sent.assignment(customer);
                (tree.delay, Stage::Answered)
            }
            Stage::Answered => match (resource.answers[at].take(), task) {
                (None, _) => (RETRY, Stage::Ask),
                (Some(lease), task) => {
                    match task {
                        Some(task) => resource.tasks[task].0 = Some(lease),
                        None => resource.servers[at].has = Some(lease),
                    }
                    (if lease.refresh.is_zero() { RETRY } else { lease.refresh }, Stage::Ask)
                }
            },
        };
        self.due.push((now + next.0, Step { stage: next.1, ..step }));
    }
}

impl Server {
    /// The request of the server one level up. `None`: nobody has asked it.
    fn ask(&self, now: Timestamp, node: u32) -> Option<Ask> {
        let name = Name { node, master: self.master? };
        Some(Ask { name, wants: self.wants()?, has: valid(self.has, now) })
    }
}

/// The server above a node: the tasks are dealt evenly to the servers of the last level.
fn parent(node: usize, servers: usize, tasks: usize, tree: Tree) -> usize {
    match node.checked_sub(servers) {
        None => (node - 1) / tree.branches as usize,
        Some(task) => {
            let leaves = tree.branches.pow(tree.levels - 1) as usize;
            servers - leaves + task * leaves / tasks
        }
    }
}

//! The start of a world, and the addition of clients, backends and subsets.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::subset::{self, Algorithm, Subset, SubsetConfig};

use super::{Event, World};
use crate::experiment::fleet::measure::Measure;
use crate::experiment::fleet::plan::{Arm, Arrivals, Plan, Rate, SourceState, Speed};
use crate::experiment::fleet::script::Script;
use crate::kernel::slab::Slab;
use crate::kernel::streams::{Streams, unit};
use crate::model::antagonist::Neighbours;
use crate::model::arena::Arena;
use crate::model::backend::{Backend, Build};
use crate::model::client::Client;
use crate::model::keys::Keys;
use crate::model::network::Carrier;

/// Users of a closed loop without think time start within this span, and not all at once.
const STAGGER: Duration = Duration::from_millis(10);

impl<'p> World<'p> {
    /// The world of one arm at its start.
    pub(in crate::experiment::fleet) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let script = Script::new(plan, arm);
        let mut arena = Arena::new(seed, plan.duration);
        let carrier = Carrier::new(plan.network, &mut arena);
        let subset =
            arm.subset.map(|config| SubsetConfig { seed: config.seed ^ arena.streams.number("subsets", 0), ..config });
        let ledger = subset.filter(|config| config.algorithm == Algorithm::Ledger);
        let mut world = Self {
            plan,
            arm,
            measure: Measure::new(&script.windows),
            script,
            deadlines: arena.open_lane(),
            queue_deadlines: arena.open_lane(),
            probe_loss: arena.stream("probe loss"),
            arena,
            carrier,
            requests: Slab::default(),
            probes: Slab::default(),
            notes: Slab::default(),
            clients: Vec::new(),
            costs: plan.cost.sampler(),
            keys: None,
            backends: Vec::new(),
            weights: Vec::new(),
            source: SourceState::Complete,
            followings: Vec::new(),
            balancer: arm.balancer,
            subset,
            ledger: ledger.map(|config| Ledger::new(config.size, config.seed)),
            load: 1.0,
            mean_rate: (0.0, 0),
            open: 0,
            events: 0,
        };
        for group in 0..world.script.initial {
            world.add_backends(group);
        }
        if let Some(count) = plan.requests.keys {
            let mut stream = world.arena.stream("popularity");
            let popularity = plan.requests.popularity.factors(count.get() as usize, &mut stream);
            world.keys = Some(Keys::new(&popularity, world.arena.stream("keys")));
        }
        world.add_first_clients();
        world.assign();
        for step in 0..world.script.steps.len() {
            let at = world.script.steps[step].0;
            world.arena.push(at, Event::Step(step as u32));
        }
        world.arena.push(Timestamp::ZERO, Event::Sample);
        world
    }

    /// Adds the backends of a group.
    pub(super) fn add_backends(&mut self, group: usize) {
        let spec = self.script.groups[group];
        for (place, number) in (0..spec.count.get()).zip(self.script.numbers[group].clone()) {
            let stream = |label| self.arena.streams.stream(label, u64::from(number));
            let speed = match spec.speed {
                Speed::Fixed(speed) => speed,
                Speed::Uniform { low, high } => low + (high - low) * unit(&mut stream("speeds")),
            };
            let build = Build {
                group: group as u32,
                domain: self.script.domain(group, place),
                weight: spec.weight,
                cores: spec.cores,
                speed,
                concurrency: spec.concurrency.map_or(usize::MAX, |most| most.get() as usize),
                queue: spec.queue as usize,
                conduct: spec.conduct,
                reports: spec.reports,
                neighbours: Neighbours::new(spec.antagonist, stream("antagonists")),
                rng: stream("failures"),
            };
            debug_assert_eq!(
                self.backends.len(),
                number as usize,
                "groups come in the order in which they are numbered"
            );
            self.backends.push(Backend::new(self.arena.now, build));
            self.weights.push(spec.weight);
            if let Some(ledger) = &mut self.ledger {
                ledger.add_backend(&seen(number, &self.backends[number as usize]));
            }
            self.resupply(number);
        }
    }

    fn add_first_clients(&mut self) {
        let count = self.plan.clients.count.get() as usize;
        let rates = self.plan.clients.rates.factors(count, &mut self.arena.streams.stream("rates", 0));
        let dearness = self.plan.clients.costs.factors(count, &mut self.arena.streams.stream("dearness", 0));
        match self.plan.arrivals {
            Arrivals::Open { rate } => {
                let mean_dearness: f64 =
                    rates.iter().zip(&dearness).map(|(rate, dear)| rate * dear).sum::<f64>() / count as f64;
                let total = match rate {
                    Rate::PerSecond(total) => total,
                    Rate::OfCapacity(part) => {
                        let overhead = self.plan.overhead.as_secs_f64();
                        part * self.capacity() / (self.plan.cost.mean().as_secs_f64() * mean_dearness + overhead)
                    }
                };
                let mean = total / count as f64;
                self.mean_rate = (mean, 0);
                for (rate, dear) in rates.iter().zip(dearness) {
                    self.add_client(mean * rate, 0, dear);
                }
            }
            Arrivals::Closed { users, .. } => {
                let mean = f64::from(users.get()) / count as f64;
                self.mean_rate = (0.0, (mean.round() as u32).max(1));
                let (mut owed, mut given) = (0.0, 0.0);
                for (rate, dear) in rates.iter().zip(dearness) {
                    // Rounds the sums and not the parts, so that the total is exact.
                    owed += mean * rate;
                    let users = (owed - given).round().max(1.0);
                    given += users;
                    self.add_client(0.0, users as u32, dear);
                }
            }
        }
    }

    /// Provisioned capacity, in cores of speed 1.
    fn capacity(&self) -> f64 {
        self.backends.iter().map(|backend| backend.build.cores * backend.build.speed).sum()
    }

    /// Adds a client that sends from now on. It has no backends until [`World::assign`].
    pub(super) fn add_client(&mut self, rate: f64, users: u32, dearness: f64) {
        let number = self.clients.len() as u32;
        let stream = |label| self.arena.streams.stream(label, u64::from(number));
        self.clients.push(Client::new(self.arena.now, self.balancer, self.arm.retries, stream("policy")));
        self.arena.add_source(rate, dearness, self.load);
        if let Some(ledger) = &mut self.ledger {
            ledger.add_client(u64::from(number));
        }
        if let Arrivals::Closed { think, .. } = self.plan.arrivals {
            for _ in 0..users {
                let thought = self.arena.sources[number as usize].think(if think.is_zero() { STAGGER } else { think });
                self.arena.push(self.arena.now + thought, Event::Think(number));
            }
        }
    }

    /// Gives each client its backends, after clients or backends were added or removed. With a source, clients
    /// learn of backends by it alone.
    pub(super) fn assign(&mut self) {
        if let Some(discovery) = &self.arm.discovery {
            self.follow_source(discovery);
            return;
        }
        let in_service = self.in_service();
        let seen = self.seen(&in_service);
        for number in 0..self.clients.len() as u32 {
            if !self.arena.sources[number as usize].stopped {
                self.assign_seen(number, &in_service, &seen);
            }
        }
    }

    /// Gives one client these backends to balance over, or to choose its subset from.
    pub(super) fn assign_client(&mut self, number: u32, backends: &[u32]) {
        let seen = self.seen(backends);
        self.assign_seen(number, backends, &seen);
    }

    fn assign_seen(&mut self, number: u32, backends: &[u32], seen: &[subset::Backend]) {
        let client = &mut self.clients[number as usize];
        match self.subset {
            None => client.set_members(self.arena.now, backends, &self.weights),
            Some(config) => {
                let assigned = self.ledger.as_ref().and_then(|ledger| ledger.order(u64::from(number), seen));
                let order = match assigned {
                    Some(order) => order,
                    None => subset::order(&config, subset::Client::numbered(number), seen)
                        .expect("clients are numbered, and a ledger has an order for each"),
                };
                let order = order.into_iter().map(|place| backends[place as usize]).collect();
                client.set_subset(self.arena.now, Subset::new(order, config.size), &self.weights);
            }
        }
        self.settle(number);
    }

    /// The backends that were not removed.
    pub(super) fn in_service(&self) -> Vec<u32> {
        (0_u32..).zip(&self.backends).filter(|(_, backend)| !backend.removed).map(|(number, _)| number).collect()
    }

    fn seen(&self, backends: &[u32]) -> Vec<subset::Backend> {
        backends.iter().map(|number| seen(*number, &self.backends[*number as usize])).collect()
    }
}

/// A backend as input of subsetting.
fn seen(number: u32, backend: &Backend) -> subset::Backend {
    subset::Backend { key: key(number), domain: backend.build.domain, weight: backend.build.weight }
}

/// Stands for a backend's address. It is the same in all runs, so that a seed draws the clients
/// alone.
pub(super) fn key(number: u32) -> u64 {
    Streams::new(0).number("addresses", u64::from(number))
}

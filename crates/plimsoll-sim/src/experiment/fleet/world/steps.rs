//! Changes of the world: those of the timeline, and those by neighbours.

use plimsoll_core::{BalancerConfig, Timestamp};

use super::build::key;
use super::{Event, Word, World};
use crate::experiment::fleet::plan::{Antagonist, Conduct};
use crate::experiment::fleet::script::Step;
use crate::kernel::NEVER;
use crate::model::antagonist::Neighbours;
use crate::model::backend::Used;
use crate::model::request::Reply;

impl World<'_> {
    pub(super) fn step(&mut self, place: usize) -> bool {
        let now = self.arena.now;
        match self.script.steps[place].1.clone() {
            Step::Conduct { backend, conduct } => self.set_conduct(backend, conduct),
            Step::Warmth { backend, warmth } => {
                self.backends[backend as usize].set_warmth(now, warmth);
                self.expect_end(backend);
            }
            Step::Speed { backend, factor } => {
                self.backends[backend as usize].change_speed(now, factor);
                self.expect_end(backend);
            }
            Step::Antagonist { backend, antagonist } => self.set_antagonist(place, backend, antagonist),
            Step::AddBackends { group } => {
                self.add_backends(group as usize);
                self.assign();
            }
            Step::RemoveBackends { backends } => self.remove_backends(&backends),
            Step::Source { state } => self.source = state,
            Step::AddClients { count } => self.add_clients(count),
            Step::RemoveClients { count } => self.remove_clients(count),
            Step::Configure { balancer } => self.configure(*balancer),
            Step::Load { load } => {
                self.load = load;
                self.arena.set_loads(|_| load);
            }
            Step::Begin { window } => {
                let used = self.used();
                self.measure.begin(window, used);
            }
            Step::End { window } => {
                let used = self.used();
                self.measure.end(window, used);
            }
        }
        true
    }

    fn set_conduct(&mut self, number: u32, conduct: Conduct) {
        let backend = &mut self.backends[number as usize];
        let was = backend.conduct;
        // Without a source no client has a removed backend any more.
        if was == conduct || (backend.removed && self.arm.discovery.is_none()) {
            return;
        }
        let lost = backend.set_conduct(self.arena.now, conduct);
        for request in lost {
            self.reply(request, Reply::Lost);
        }
        match conduct {
            Conduct::LameDuck => self.tell_clients(number, Word::LameDuck),
            Conduct::Down if was == Conduct::LameDuck => self.tell_clients(number, Word::Gone),
            _ => {}
        }
        self.expect_end(number);
    }

    fn set_antagonist(&mut self, place: usize, number: u32, antagonist: Antagonist) {
        let index = (place as u64) << 32 | u64::from(number);
        let rng = self.arena.streams.stream("later antagonists", index);
        self.backends[number as usize].build.neighbours = Neighbours::new(antagonist, rng);
        self.resupply(number);
    }

    /// Neighbours change a backend's share of its machine.
    pub(super) fn neighbour(&mut self, number: u32) -> bool {
        let due = self.backends[number as usize].supply_until == self.arena.now;
        if due {
            self.resupply(number);
        }
        due
    }

    /// Draws a backend's share of its machine from now on.
    pub(super) fn resupply(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        let (supply, holds) = backend.build.neighbours.next(backend.build.cores);
        backend.set_supply(self.arena.now, supply);
        backend.supply_until = holds.map_or(NEVER, |holds| self.arena.now + holds);
        if backend.supply_until <= self.arena.end {
            self.arena.push(backend.supply_until, Event::Neighbour(number));
        }
        self.expect_end(number);
    }

    fn remove_backends(&mut self, numbers: &[u32]) {
        for &number in numbers {
            // Time in service counts until now.
            self.backends[number as usize].usage(self.arena.now);
            self.backends[number as usize].removed = true;
            if let Some(ledger) = &mut self.ledger {
                ledger.remove_backend(key(number));
            }
        }
        self.assign();
    }

    fn add_clients(&mut self, count: u32) {
        for _ in 0..count {
            let (rate, users) = self.mean_rate;
            self.add_client(rate, users, 1.0);
        }
        self.assign();
    }

    fn remove_clients(&mut self, count: u32) {
        let staying = self.arena.sources.iter().rposition(|source| !source.stopped).map_or(0, |last| last + 1);
        for number in staying.saturating_sub(count as usize)..staying {
            self.arena.sources[number].stopped = true;
            self.arena.sources[number].due = NEVER;
            if let Some(ledger) = &mut self.ledger {
                ledger.remove_client(number as u64);
            }
        }
        self.assign();
    }

    fn configure(&mut self, balancer: BalancerConfig) {
        self.balancer = balancer;
        for number in 0..self.clients.len() as u32 {
            self.clients[number as usize].balancer.set_config(self.arena.now, balancer);
            self.settle(number);
        }
    }

    pub(super) fn sample(&mut self) -> bool {
        if self.arena.now > Timestamp::ZERO {
            let used = self.used();
            let up = self.backends.iter().filter(|backend| backend.is_up());
            self.measure.sample(self.arena.now, used, up.map(|backend| backend.in_flight()));
        }
        let next = self.arena.now + self.plan.sample_every;
        if next <= self.arena.end {
            self.arena.push(next, Event::Sample);
        }
        true
    }

    fn used(&mut self) -> Vec<Used> {
        self.backends.iter_mut().map(|backend| backend.usage(self.arena.now)).collect()
    }
}

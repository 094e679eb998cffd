//! The world changes: what the timeline says, and what neighbours do.

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
        let now = self.now;
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
            Step::AddClients { count } => self.add_clients(count),
            Step::RemoveClients { count } => self.remove_clients(count),
            Step::Configure { balancer } => self.configure(*balancer),
            Step::Load { load } => self.set_load(load),
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
        if was == conduct || backend.removed {
            return;
        }
        let lost = backend.set_conduct(self.now, conduct);
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
        let rng = self.streams.stream("later antagonists", index);
        self.backends[number as usize].build.neighbours = Neighbours::new(antagonist, rng);
        self.resupply(number);
    }

    /// What a backend has of its machine changes by its neighbours' doing.
    pub(super) fn neighbour(&mut self, number: u32) -> bool {
        let due = self.backends[number as usize].supply_until == self.now;
        if due {
            self.resupply(number);
        }
        due
    }

    /// Draws what a backend has of its machine from now on.
    pub(super) fn resupply(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        let (supply, holds) = backend.build.neighbours.next(backend.build.cores);
        backend.set_supply(self.now, supply);
        backend.supply_until = holds.map_or(NEVER, |holds| self.now + holds);
        if backend.supply_until <= self.end {
            self.queue.push(backend.supply_until, Event::Neighbour(number));
        }
        self.expect_end(number);
    }

    fn remove_backends(&mut self, numbers: &[u32]) {
        for &number in numbers {
            // Time in service counts until now.
            self.backends[number as usize].usage(self.now);
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
        let staying = self.sources.iter().rposition(|source| !source.stopped).map_or(0, |last| last + 1);
        for number in staying.saturating_sub(count as usize)..staying {
            self.sources[number].stopped = true;
            self.sources[number].due = NEVER;
            if let Some(ledger) = &mut self.ledger {
                ledger.remove_client(number as u64);
            }
        }
        self.assign();
    }

    fn configure(&mut self, balancer: BalancerConfig) {
        self.balancer = balancer;
        for number in 0..self.clients.len() as u32 {
            self.clients[number as usize].balancer.set_config(self.now, balancer);
            self.settle(number);
        }
    }

    fn set_load(&mut self, load: f64) {
        let from = std::mem::replace(&mut self.load, load);
        for (number, source) in (0_u32..).zip(&mut self.sources) {
            if source.rate > 0.0 && !source.stopped {
                let at = source.change(self.now, from, load);
                if at <= self.end {
                    self.queue.push(at, Event::Arrive(number));
                }
            }
        }
    }

    pub(super) fn sample(&mut self, progress: &mut dyn FnMut(f64)) -> bool {
        if self.now > Timestamp::ZERO {
            let used = self.used();
            let up = self.backends.iter().filter(|backend| backend.is_up());
            self.measure.sample(self.now, used, up.map(|backend| backend.in_flight()));
        }
        progress((self.now.as_nanos() as f64 / self.end.as_nanos() as f64).min(1.0));
        let next = self.now + self.plan.sample_every;
        if next <= self.end {
            self.queue.push(next, Event::Sample);
        }
        true
    }

    fn used(&mut self) -> Vec<Used> {
        self.backends.iter_mut().map(|backend| backend.usage(self.now)).collect()
    }
}

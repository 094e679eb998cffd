//! Localities at work: requests arrive and go to a locality or nowhere, and reports tell clients
//! the utilization.

use std::collections::VecDeque;

use plimsoll_core::Timestamp;
use plimsoll_core::spill::{Locality, Route};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::measure::Measure;
use super::plan::{Arm, Plan, Site};
use super::rules::Chooser;
use crate::kernel::queue::Lane;
use crate::model::arena::{self, Arena};

/// Seconds of capacity that a burst may use, as at servers with short queues.
const BURST: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Report,
    /// Clients see their oldest unseen report.
    Seen,
}

/// A locality.
struct Place {
    /// Requests a second that each backend serves.
    capacity: f64,
    backends: u32,
    healthy: u32,
    /// Requests a second from elsewhere.
    others: f64,
    /// Requests that could be served at the time `filled`.
    tokens: f64,
    filled: Timestamp,
    /// Requests since the last report.
    got: u64,
}

impl Place {
    fn new(now: Timestamp, site: &Site) -> Self {
        let backends = site.backends.get();
        let mut place = Self {
            capacity: site.capacity,
            backends,
            healthy: backends,
            others: site.others,
            tokens: 0.0,
            filled: now,
            got: 0,
        };
        place.tokens = place.room() * BURST;
        place
    }

    /// Its capacity, in requests per second.
    fn serves(&self) -> f64 {
        self.capacity * f64::from(self.healthy)
    }

    /// The capacity left by other load.
    fn room(&self) -> f64 {
        (self.serves() - self.others).max(0.0)
    }

    fn fill(&mut self, now: Timestamp) {
        let room = self.room();
        let burst = if room > 0.0 { (room * BURST).max(1.0) } else { 0.0 };
        self.tokens = (self.tokens + now.since(self.filled).as_secs_f64() * room).min(burst);
        self.filled = now;
    }

    /// A request comes. `false` if it fails.
    fn serve(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.got += 1;
        let is_served = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(is_served));
        is_served
    }

    /// The report after some seconds. The utilization is that of the healthy backends, at most 1.
    fn report(&mut self, seconds: f64) -> Locality {
        let load = std::mem::take(&mut self.got) as f64 / seconds + self.others;
        let utilization = (self.healthy > 0 && load > 0.0).then(|| (load / self.serves()).min(1.0));
        Locality { healthy: self.healthy, backends: self.backends, utilization }
    }
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    arena: Arena<Event>,
    reports: Lane,
    clients: Vec<Chooser>,
    places: Vec<Place>,
    /// Time of the last change of the localities.
    since: Timestamp,
    under_way: VecDeque<Vec<Locality>>,
    whose: Pcg64Mcg,
    choices: Pcg64Mcg,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let mut arena = Arena::new(seed, plan.duration);
        let now = arena.now;
        plan.sources.iter().for_each(|source| arena.add_source(source.rate, 1.0, 1.0));
        arena.add_phases(plan.phases.iter().map(|phase| phase.at));
        let reports = arena.open_lane();
        arena.push_lane(reports, now + plan.report_every, Event::Report);
        let client = |_| Chooser::new(now, arm.rule, plan.localities.len());
        Self {
            plan,
            arm,
            reports,
            clients: (0..plan.clients.get()).map(client).collect(),
            places: plan.localities.iter().map(|site| Place::new(now, site)).collect(),
            since: now,
            under_way: VecDeque::new(),
            whose: arena.stream("whose"),
            choices: arena.stream("choices"),
            measure: Measure::new(plan),
            arena,
        }
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        self.arena.now = self.arena.end;
        self.count_others();
        Measured { arm: self.arm, measure: self.measure, events: self.arena.events }
    }

    /// Counts the load from elsewhere since the last change of the localities.
    fn count_others(&mut self) {
        let (from, to) = (self.since.since(Timestamp::ZERO), self.arena.now.since(Timestamp::ZERO));
        for (i, place) in self.places.iter().enumerate().filter(|(_, place)| place.serves() > 0.0) {
            self.measure.others(i, from, to, place.others / place.serves());
        }
        self.since = self.arena.now;
    }

    fn report(&mut self) {
        let seconds = self.plan.report_every.as_secs_f64();
        self.under_way.push_back(self.places.iter_mut().map(|place| place.report(seconds)).collect());
        self.arena.push(self.arena.now + self.plan.report_age, Event::Seen);
        self.arena.push_lane(self.reports, self.arena.now + self.plan.report_every, Event::Report);
    }

    fn seen(&mut self) {
        let mut localities = self.under_way.pop_front().expect("one for each event");
        // Connections show the loss of a backend at once.
        for (locality, place) in localities.iter_mut().zip(&self.places) {
            locality.healthy = place.healthy;
        }
        self.clients.iter_mut().for_each(|client| client.update(self.arena.now, &localities));
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    fn arrive(&mut self, source: usize) {
        let now = self.arena.now;
        let client = (self.whose.next_u64() % self.clients.len() as u64) as usize;
        let criticality = self.plan.sources[source].criticality;
        let route = self.clients[client].route(now, criticality, &mut self.choices);
        self.measure.count(now, source, |tally| tally.arrived += 1);
        match route {
            Route::Shed => self.measure.count(now, source, |tally| tally.shed += 1),
            Route::To(place) => {
                let of = &mut self.places[place];
                let is_served = of.serve(now);
                let serves = of.serves() * self.plan.sample_every.as_secs_f64();
                self.measure.sent(now, place, if serves > 0.0 { serves.recip() } else { 1.0 });
                if !is_served {
                    self.measure.count(now, source, |tally| tally.failed += 1);
                }
            }
        }
    }

    fn begin_phase(&mut self, number: usize) {
        self.count_others();
        let load = self.plan.phases[number].load;
        self.arena.set_loads(|_| load);
        for (place, site) in self.places.iter_mut().zip(&self.plan.localities) {
            place.fill(self.arena.now);
            place.healthy = site.healthy.get(number).copied().unwrap_or(site.backends.get());
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Report => self.report(),
            Event::Seen => self.seen(),
        }
    }
}

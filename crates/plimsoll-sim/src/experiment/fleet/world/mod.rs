//! A world that runs: the events of one arm, from the first arrival to the last answer.
//!
//! | event | what it does | where |
//! |---|---|---|
//! | `Arrive`, `Think` | a client has a request | [`requests`] |
//! | `Reach`, `Complete`, `Answer` | it gets to its backend, ends there, and is back | [`requests`] |
//! | `Again` | it has waited to be sent again | [`requests`] |
//! | `Deadline`, `QueueDeadline`, `Recall` | it is given up | [`requests`] |
//! | `Wake`, `Check…`, `Probe…`, `Notice` | what balancers want done, and are told | [`upkeep`] |
//! | `Neighbour`, `Step`, `Sample` | the world changes, or is looked at | [`steps`] |
//!
//! Events refer to requests and the like by number and are never taken back; each handler knows an event that
//! no longer holds by comparing times. All that is random comes from streams named after the thing that draws.

mod build;
mod requests;
mod steps;
#[cfg(test)]
mod tests;
mod upkeep;

use plimsoll_core::health::CheckOutcome;
use plimsoll_core::pick::ProbeAnswer;
use plimsoll_core::subset::SubsetConfig;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::{BackendId, BalancerConfig, LoadReport, Timestamp, Weight};

use super::findings::Measured;
use super::measure::Measure;
use super::plan::{Arm, Plan};
use super::script::Script;
use crate::kernel::NEVER;
use crate::kernel::queue::{Lane, Queue};
use crate::kernel::slab::Slab;
use crate::kernel::streams::Streams;
use crate::model::arrival::Source;
use crate::model::backend::Backend;
use crate::model::client::Client;
use crate::model::cost::Sampler;
use crate::model::network::Carrier;
use crate::model::request::Request;

/// Something that happens at its time. The number is that of what it happens to.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next request of a client's open loop.
    Arrive(u32),
    /// A user of this client has thought.
    Think(u32),
    Reach(u32),
    Complete(u32),
    Answer(u32),
    Again(u32),
    Deadline(u32),
    QueueDeadline(u32),
    Recall(u32),
    Wake(u32),
    CheckReach(u32),
    CheckAnswer(u32),
    ProbeReach(u32),
    ProbeAnswer(u32),
    Notice(u32),
    Neighbour(u32),
    Step(u32),
    Sample,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug)]
struct Probe {
    client: u32,
    backend: u32,
    id: BackendId,
    sent: Timestamp,
    answer: ProbeAnswer,
}

/// A check, or a notice, on its way.
#[derive(Clone, Copy, Debug)]
struct Note {
    client: u32,
    backend: u32,
    id: BackendId,
    word: Word,
}

/// What a note says.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// A question.
    Check,
    /// Its answer.
    Checked(CheckOutcome, Option<LoadReport>),
    /// The backend asks for no more requests.
    LameDuck,
    /// The backend's process has ended.
    Gone,
}

/// The world of one arm.
pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    script: Script<'p>,
    streams: Streams,
    now: Timestamp,
    end: Timestamp,
    queue: Queue<Event>,
    carrier: Carrier,
    deadlines: Lane,
    queue_deadlines: Lane,
    requests: Slab<Request>,
    probes: Slab<Probe>,
    notes: Slab<Note>,
    clients: Vec<Client>,
    sources: Vec<Source>,
    costs: Sampler,
    backends: Vec<Backend>,
    weights: Vec<Weight>,
    /// In force now.
    balancer: BalancerConfig,
    /// With the run's seed mixed in.
    subset: Option<SubsetConfig>,
    ledger: Option<Ledger>,
    /// What a phase multiplies the rate of arrivals with.
    load: f64,
    /// Of a client that comes later: arrivals per second, users.
    mean_rate: (f64, u32),
    /// Requests that are awaited.
    open: u64,
    events: u64,
    measure: Measure,
}

impl<'p> World<'p> {
    /// Runs until no request is awaited any more, telling now and then which part of the time has gone by.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(f64)) {
        while let Some((at, event)) = self.queue.pop_until(NEVER) {
            if at > self.end && self.open == 0 {
                break;
            }
            self.now = at;
            self.handle(event, progress);
        }
    }

    /// Runs until that time, all that happens at it included.
    #[cfg(test)]
    fn run_until(&mut self, limit: Timestamp) {
        while let Some((at, event)) = self.queue.pop_until(limit) {
            self.now = at;
            self.handle(event, &mut |_| ());
        }
        self.now = limit;
    }

    fn handle(&mut self, event: Event, progress: &mut dyn FnMut(f64)) {
        let handled = match event {
            Event::Arrive(client) => self.arrive(client),
            Event::Think(client) => self.thought(client),
            Event::Reach(request) => self.reach(request),
            Event::Complete(backend) => self.complete(backend),
            Event::Answer(request) => self.answer(request),
            Event::Again(request) => self.again(request),
            Event::Deadline(request) => self.deadline(request),
            Event::QueueDeadline(request) => self.queue_deadline(request),
            Event::Recall(request) => self.recall(request),
            Event::Wake(client) => self.wake(client),
            Event::CheckReach(note) => self.check_reach(note),
            Event::CheckAnswer(note) | Event::Notice(note) => self.told(note),
            Event::ProbeReach(probe) => self.probe_reach(probe),
            Event::ProbeAnswer(probe) => self.probe_answer(probe),
            Event::Neighbour(backend) => self.neighbour(backend),
            Event::Step(step) => self.step(step as usize),
            Event::Sample => self.sample(progress),
        };
        self.events += u64::from(handled);
    }

    /// What was measured.
    pub(super) fn finish(self) -> Measured<'p> {
        let (tallies, samples) = self.measure.finish();
        let groups = self.backends.iter().map(|backend| backend.build.group).collect();
        Measured { arm: self.arm, tallies, samples, groups, events: self.events }
    }
}

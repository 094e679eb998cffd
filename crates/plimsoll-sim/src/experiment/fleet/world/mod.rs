//! A world that runs: the events of one arm, from the first arrival to the last answer.
//!
//! | event | effect | where |
//! |---|---|---|
//! | an arrival, `Think` | a client has a request | [`requests`] |
//! | `Reach`, `Complete`, `Answer` | it reaches its backend, ends there, and is back | [`requests`]
//! |
//! | `Again` | its wait before a retry ends | [`requests`] |
//! | `Deadline`, `QueueDeadline`, `Recall` | it is abandoned | [`requests`] |
//! | `Wake`, `Check…`, `Probe…`, `Notice` | work of balancers, and their input | [`upkeep`] |
//! | `List`, `Merge` | clients learn of backends | [`discovery`] |
//! | `Neighbour`, `Step`, `Sample` | the world changes, or is measured | [`steps`] |
//!
//! Events identify requests by number and are never taken back. A handler compares times to detect
//! an outdated event. Each random draw comes from a stream named after the thing that draws.

mod build;
mod discovery;
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
use rand_pcg::Pcg64Mcg;

use super::findings::Measured;
use super::measure::Measure;
use super::plan::{Arm, Plan, SourceState};
use super::script::Script;
use crate::kernel::queue::Lane;
use crate::kernel::slab::Slab;
use crate::model::arena::{self, Arena};
use crate::model::backend::Backend;
use crate::model::client::Client;
use crate::model::cost::Sampler;
use crate::model::keys::Keys;
use crate::model::network::Carrier;
use crate::model::request::Request;

/// An event. The number is that of the thing that it affects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A user of this client has finished thinking.
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
    /// This client asks the source of its backends.
    List(u32),
    /// Changes of this client's members are due.
    Merge(u32),
    Neighbour(u32),
    Step(u32),
    Sample,
}

/// A probe in flight.
#[derive(Clone, Copy, Debug)]
struct Probe {
    client: u32,
    backend: u32,
    id: BackendId,
    sent: Timestamp,
    /// `None` until it reaches its backend.
    answer: Option<Probed>,
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// For the pool of the paper.
    Pooled(ProbeAnswer),
    /// For frugal probes.
    Report(LoadReport),
}

/// A check or a notice in flight.
#[derive(Clone, Copy, Debug)]
struct Note {
    client: u32,
    backend: u32,
    id: BackendId,
    word: Word,
}

/// The content of a note.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// A question.
    Check,
    /// Its answer.
    Checked(CheckOutcome, Option<LoadReport>),
    /// The backend asks for no more requests.
    LameDuck,
    /// The process of the backend has ended.
    Gone,
}

/// The world of one arm.
pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    script: Script<'p>,
    arena: Arena<Event>,
    carrier: Carrier,
    /// Draws the probes that are lost beside the network's losses.
    probe_loss: Pcg64Mcg,
    deadlines: Lane,
    queue_deadlines: Lane,
    requests: Slab<Request>,
    probes: Slab<Probe>,
    notes: Slab<Note>,
    clients: Vec<Client>,
    costs: Sampler,
    /// `None` while requests have no key.
    keys: Option<Keys>,
    backends: Vec<Backend>,
    weights: Vec<Weight>,
    source: SourceState,
    /// One for each client, in arms with discovery.
    followings: Vec<discovery::Following>,
    /// The configuration in force.
    balancer: BalancerConfig,
    /// Its seed includes the seed of the run.
    subset: Option<SubsetConfig>,
    ledger: Option<Ledger>,
    /// Multiplies the rate of arrivals, by phase.
    load: f64,
    /// For a client added later: arrivals per second, users.
    mean_rate: (f64, u32),
    /// Requests in progress, as their clients see them.
    open: u64,
    /// Events handled, outdated ones excluded.
    events: u64,
    measure: Measure,
}

impl<'p> World<'p> {
    /// Runs until the answer to the last request.
    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        self.finish()
    }

    /// The measurements.
    fn finish(self) -> Measured<'p> {
        let (tallies, samples) = self.measure.finish();
        let groups = self.backends.iter().map(|backend| backend.build.group).collect();
        Measured { arm: self.arm, tallies, samples, groups, events: self.events }
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    /// A source is the open loop of a client.
    fn arrive(&mut self, client: usize) {
        self.events += 1;
        self.ask(client as u32);
    }

    fn handle(&mut self, event: Event) {
        let handled = match event {
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
            Event::List(client) => self.ask_source(client),
            Event::Merge(client) => self.merge(client),
            Event::Neighbour(backend) => self.neighbour(backend),
            Event::Step(step) => self.step(step as usize),
            Event::Sample => self.sample(),
        };
        self.events += u64::from(handled);
    }

    fn is_awaited(&self) -> bool {
        self.open > 0
    }
}

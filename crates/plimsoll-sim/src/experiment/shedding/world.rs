//! The server at work: arrivals, admission, completions.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::admit::{Admission, Ask, Procrustean, Ranked, Reason, Shed, Verdict};
use rand_pcg::Pcg64Mcg;

use super::plan::{Plan, Shedder};
use super::{Found, Sample, Tally};
use crate::kernel::NEVER;
use crate::kernel::queue::{Lane, Queue};
use crate::kernel::slab::Slab;
use crate::kernel::streams::Streams;
use crate::model::arrival;
use crate::model::cost::Sampler;
use crate::model::processor::Processor;

/// Between two samples, and two readings of what requests in progress have used.
const SAMPLE: Duration = Duration::from_millis(1);
/// What runs in the processor and is no request: the turning away of one.
const REJECTION: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(u32),
    Load(u32),
    Complete,
    Sample,
}

/// A request in progress.
#[derive(Debug)]
struct Request {
    source: usize,
    arrived: Timestamp,
    cost: f64,
    /// The processor's work when it began.
    begun: f64,
    admission: Option<Admission>,
}

/// What decides.
enum Guard {
    None,
    Procrustean(Procrustean),
    Ranked(Box<Ranked>),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    now: Timestamp,
    queue: Queue<Event>,
    samples_lane: Lane,
    arrivals: Vec<arrival::Source>,
    costs: Sampler,
    processor: Processor,
    /// When the next request is expected to end: an event for another time is void.
    scheduled: Timestamp,
    requests: Slab<Request>,
    /// Those in progress of which the shedder is told.
    metered: Vec<u32>,
    guard: Guard,
    rng: Pcg64Mcg,
    load: f64,
    /// CPU-seconds taken on so far.
    taken: f64,
    useful: f64,
    shed: [u64; 4],
    sources: Vec<Tally>,
    samples: Vec<Sample>,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, seed: u64) -> Self {
        let streams = Streams::new(seed);
        let now = Timestamp::ZERO;
        let mut queue = Queue::default();
        let stream = |label, number| streams.stream(label, number);
        let mut arrivals: Vec<_> = (0_u64..)
            .zip(&plan.sources)
            .map(|(number, source)| {
                arrival::Source::new(stream("arrivals", number), stream("costs", number), source.rate, 1.0)
            })
            .collect();
        for (number, source) in (0..).zip(&mut arrivals) {
            queue.push(source.advance(now, 1.0), Event::Arrive(number));
        }
        for (number, (at, _)) in (0..).zip(&plan.loads) {
            queue.push(now + *at, Event::Load(number));
        }
        let samples_lane = queue.open_lane();
        queue.push_lane(samples_lane, now + SAMPLE, Event::Sample);
        Self {
            plan,
            now,
            queue,
            samples_lane,
            arrivals,
            costs: plan.cost.sampler(),
            processor: Processor::new(now, plan.cores, 1.0),
            scheduled: NEVER,
            requests: Slab::default(),
            metered: Vec::new(),
            guard: match plan.shedder {
                Shedder::None => Guard::None,
                Shedder::Procrustean(config) => Guard::Procrustean(Procrustean::new(config)),
                Shedder::Ranked(config) => Guard::Ranked(Box::new(Ranked::new(now, config))),
            },
            rng: stream("admission", 0),
            load: 1.0,
            taken: 0.0,
            useful: 0.0,
            shed: [0; 4],
            sources: vec![Tally::default(); plan.sources.len()],
            samples: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Found {
        let end = Timestamp::from_origin(self.plan.duration);
        while let Some((at, event)) = self.queue.pop_until(end) {
            self.now = at;
            match event {
                Event::Arrive(source) => self.arrive(source as usize),
                Event::Load(number) => self.change_load(self.plan.loads[number as usize].1),
                Event::Complete => self.complete(),
                Event::Sample => self.sample(),
            }
        }
        let measured = self.plan.duration.saturating_sub(self.plan.warmup).as_secs_f64();
        let goodput = self.useful / (measured * self.plan.cores);
        Found { sources: self.sources, goodput, samples: self.samples }
    }

    fn is_measured(&self, arrived: Timestamp) -> bool {
        arrived.since(Timestamp::ZERO) >= self.plan.warmup
    }

    fn arrive(&mut self, number: usize) {
        let source = &mut self.arrivals[number];
        if source.due != self.now {
            return;
        }
        let next = source.advance(self.now, self.load);
        self.queue.push(next, Event::Arrive(number as u32));
        let cost = self.arrivals[number].cost(&self.costs);
        let is_measured = self.is_measured(self.now);
        let decided = self.decide(number);
        let tally = &mut self.sources[number];
        tally.arrived += u64::from(is_measured);
        match decided {
            Ok(admission) => {
                self.taken += cost;
                let is_metered = admission.is_some();
                let request = Request { source: number, arrived: self.now, cost, begun: 0.0, admission };
                let request = self.requests.insert(request);
                self.processor.begin(self.now, cost, request);
                self.requests[request].begun = self.processor.work();
                if is_metered {
                    self.metered.push(request);
                }
            }
            Err(Shed { reason, .. }) => {
                let count = if reason == Reason::Deadline { &mut tally.hopeless } else { &mut tally.shed };
                *count += u64::from(is_measured);
                self.shed[self.plan.sources[number].criticality.rank()] += 1;
                let cost = self.plan.rejection.as_secs_f64();
                if let Guard::Ranked(shedder) = &mut self.guard {
                    shedder.overhead(self.now, cost);
                }
                self.taken += cost;
                self.processor.begin(self.now, cost, REJECTION);
            }
        }
        self.expect_end();
    }

    fn decide(&mut self, number: usize) -> Result<Option<Admission>, Shed> {
        let source = &self.plan.sources[number];
        match &mut self.guard {
            Guard::None => Ok(None),
            Guard::Procrustean(shedder) => match shedder.shed(self.processor.len() as f64) {
                Some(shed) => Err(shed),
                None => Ok(None),
            },
            Guard::Ranked(shedder) => {
                let ask = Ask {
                    criticality: source.criticality,
                    customer: source.customer,
                    share: source.share,
                    cost: self.plan.cost.mean().as_secs_f64(),
                    deadline: self.plan.tells_deadline.then(|| self.now + self.plan.patience),
                    cohort: None,
                    is_retry: false,
                };
                match shedder.admit(self.now, &ask, &mut self.rng) {
                    Verdict::Admit(admission) => Ok(Some(admission)),
                    Verdict::Shed(shed) => Err(shed),
                }
            }
        }
    }

    fn expect_end(&mut self) {
        if let Some(at) = self.processor.next()
            && at < self.scheduled
        {
            self.scheduled = at;
            self.queue.push(at, Event::Complete);
        }
    }

    fn complete(&mut self) {
        if self.scheduled != self.now {
            return;
        }
        self.scheduled = NEVER;
        self.processor.advance(self.now);
        while let Some(number) = self.processor.pop_ended() {
            if number != REJECTION {
                self.end(number);
            }
        }
        self.expect_end();
    }

    fn end(&mut self, number: u32) {
        let Request { source, arrived, cost, .. } = self.requests[number];
        let admission = self.requests[number].admission.take();
        self.requests.free(number);
        if let (Guard::Ranked(shedder), Some(admission)) = (&mut self.guard, admission) {
            shedder.finish(self.now, admission, cost);
            self.metered.retain(|metered| *metered != number);
        }
        if !self.is_measured(arrived) {
            return;
        }
        if self.now.since(arrived) <= self.plan.patience {
            self.sources[source].useful += 1;
            self.useful += cost;
        } else {
            self.sources[source].late += 1;
        }
    }

    fn change_load(&mut self, load: f64) {
        let from = std::mem::replace(&mut self.load, load);
        for (number, source) in (0_u32..).zip(&mut self.arrivals) {
            let at = source.change(self.now, from, load);
            self.queue.push(at, Event::Arrive(number));
        }
    }

    /// Tells the shedder what requests in progress have used so far, as one that times each poll of a request's task knows it.
    fn meter(&mut self) {
        let Guard::Ranked(shedder) = &mut self.guard else { return };
        for number in &self.metered {
            let Request { begun, admission, .. } = &mut self.requests[*number];
            if let Some(admission) = admission {
                shedder.progress(self.now, admission, self.processor.work() - *begun);
            }
        }
    }

    fn sample(&mut self) {
        self.processor.advance(self.now);
        self.meter();
        let left = (self.taken - self.processor.cpu()).max(0.0) / self.plan.cores;
        self.samples.push(Sample {
            at: self.now.since(Timestamp::ZERO),
            delay: Duration::from_secs_f64(left),
            cpu: self.processor.cpu(),
            shed: self.shed,
        });
        self.queue.push_lane(self.samples_lane, self.now + SAMPLE, Event::Sample);
    }
}

//! The arena of an experiment: virtual time, the events to come, and the sources of requests.
//!
//! An experiment is a [`World`]: it holds an [`Arena`], and adds events and state of its own.
//! [`run`] is the only event loop. It advances the clock, draws the arrivals of each source, and
//! ends the run.
//!
//! An event is never taken back. So the handler of an outdated event does nothing. The arena itself
//! skips an arrival that a change of load has moved.

use std::time::Duration;

use plimsoll_core::Timestamp;
use rand_pcg::Pcg64Mcg;

use super::arrival::Source;
use crate::kernel::NEVER;
use crate::kernel::queue::{Lane, Queue};
use crate::kernel::streams::Streams;

/// Events between two reports of progress: few enough reports to cost nothing.
const EVENTS_PER_REPORT: u64 = 1 << 16;

/// An event of a world with events `E` of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<E> {
    /// The next request of a source.
    Arrive(u32),
    /// The beginning of a phase.
    Phase(u32),
    Own(E),
}

/// Virtual time, events and sources of one run.
#[derive(Clone, Debug)]
pub(crate) struct Arena<E> {
    pub(crate) now: Timestamp,
    /// The end of arrivals.
    pub(crate) end: Timestamp,
    /// Events handled, skipped arrivals included.
    pub(crate) events: u64,
    pub(crate) streams: Streams,
    pub(crate) sources: Vec<Source>,
    pub(super) queue: Queue<Event<E>>,
}

impl<E: Copy> Arena<E> {
    pub(crate) fn new(seed: u64, duration: Duration) -> Self {
        Self {
            now: Timestamp::ZERO,
            end: Timestamp::from_origin(duration),
            events: 0,
            streams: Streams::new(seed),
            sources: Vec::new(),
            queue: Queue::default(),
        }
    }

    /// The random numbers of a draw for the whole run.
    pub(crate) fn stream(&self, label: &str) -> Pcg64Mcg {
        self.streams.stream(label, 0)
    }

    /// Adds a source and its first arrival, if it has a `rate` (requests per second at a load of
    /// 1).
    pub(crate) fn add_source(&mut self, rate: f64, cost_factor: f64, load: f64) {
        let number = self.sources.len() as u32;
        let stream = |label| self.streams.stream(label, number.into());
        let mut source = Source::new(stream("arrivals"), stream("costs"), rate, cost_factor, load);
        let due = if rate > 0.0 { source.advance(self.now) } else { NEVER };
        self.sources.push(source);
        self.expect_arrival(number, due);
    }

    /// Adds the beginnings of phases.
    pub(crate) fn add_phases(&mut self, beginnings: impl Iterator<Item = Duration>) {
        for (number, at) in (0..).zip(beginnings) {
            self.queue.push(Timestamp::from_origin(at), Event::Phase(number));
        }
    }

    /// Changes the load of each source, and with it the time of the next arrival.
    pub(crate) fn set_loads(&mut self, load: impl Fn(usize) -> f64) {
        for number in 0..self.sources.len() {
            let due = self.sources[number].set_load(self.now, load(number));
            self.expect_arrival(number as u32, due);
        }
    }

    fn expect_arrival(&mut self, source: u32, due: Timestamp) {
        if due <= self.end {
            self.queue.push(due, Event::Arrive(source));
        }
    }

    /// The source of an arrival that is due, after the draw of its next one. `None` if it is
    /// outdated.
    fn arrival(&mut self, number: u32) -> Option<usize> {
        let source = &mut self.sources[number as usize];
        if source.due != self.now {
            return None;
        }
        let due = source.advance(self.now);
        self.expect_arrival(number, due);
        Some(number as usize)
    }

    /// As [`Queue::open_lane`].
    pub(crate) fn open_lane(&mut self) -> Lane {
        self.queue.open_lane()
    }

    /// Schedules an event.
    pub(crate) fn push(&mut self, at: Timestamp, event: E) {
        self.queue.push(at, Event::Own(event));
    }

    /// Schedules an event on a lane, as [`Queue::push_lane`].
    pub(crate) fn push_lane(&mut self, lane: Lane, at: Timestamp, event: E) {
        self.queue.push_lane(lane, at, Event::Own(event));
    }
}

/// The own part of an experiment: state, and the effect of each event.
pub(crate) trait World {
    type Event: Copy;

    fn arena(&mut self) -> &mut Arena<Self::Event>;

    /// A request of a source arrives.
    fn arrive(&mut self, source: usize);

    /// The phase of this number begins: one of [`Arena::add_phases`].
    fn begin_phase(&mut self, _number: usize) {}

    /// An event of its own happens.
    fn handle(&mut self, event: Self::Event);

    /// Whether the run goes on after the end of arrivals.
    fn is_awaited(&self) -> bool {
        false
    }
}

/// Runs a world to its end. `progress` gets the part that is done, now and then.
pub(crate) fn run<W: World>(world: &mut W, progress: &mut dyn FnMut(f64)) {
    loop {
        let limit = if world.is_awaited() { NEVER } else { world.arena().end };
        if !step(world, limit) {
            break;
        }
        let Arena { now, end, events, .. } = world.arena();
        if *events % EVENTS_PER_REPORT == 0 {
            progress((now.as_nanos() as f64 / end.as_nanos() as f64).min(1.0));
        }
    }
    progress(1.0);
}

/// Runs a world until `limit`, events at that time included.
#[cfg(test)]
pub(crate) fn run_until<W: World>(world: &mut W, limit: Timestamp) {
    while step(world, limit) {}
    world.arena().now = limit;
}

/// Handles the next event, if there is one by `limit`.
fn step<W: World>(world: &mut W, limit: Timestamp) -> bool {
    let arena = world.arena();
    let Some((at, event)) = arena.queue.pop_until(limit) else { return false };
    arena.now = at;
    arena.events += 1;
    match event {
        Event::Arrive(number) => {
            if let Some(source) = arena.arrival(number) {
                world.arrive(source);
            }
        }
        Event::Phase(number) => world.begin_phase(number as usize),
        Event::Own(event) => world.handle(event),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts arrivals. Each takes a second, until its own event.
    struct Counter {
        arena: Arena<()>,
        arrived: Vec<u64>,
        open: u32,
    }

    impl Counter {
        fn new(rates: &[f64]) -> Self {
            let mut arena = Arena::new(3, Duration::from_secs(10));
            rates.iter().for_each(|rate| arena.add_source(*rate, 1.0, 1.0));
            Self { arena, arrived: vec![0; rates.len()], open: 0 }
        }
    }

    impl World for Counter {
        type Event = ();

        fn arena(&mut self) -> &mut Arena<()> {
            &mut self.arena
        }

        fn arrive(&mut self, source: usize) {
            self.arrived[source] += 1;
            self.open += 1;
            self.arena.push(self.arena.now + Duration::from_secs(1), ());
        }

        fn begin_phase(&mut self, number: usize) {
            self.arena.set_loads(|_| number as f64);
        }

        fn handle(&mut self, (): ()) {
            self.open -= 1;
        }

        fn is_awaited(&self) -> bool {
            self.open > 0
        }
    }

    fn ran(mut world: Counter) -> Counter {
        run(&mut world, &mut |_| ());
        world
    }

    #[test]
    fn run_goes_on_until_nothing_is_awaited() {
        let world = ran(Counter::new(&[100.0]));
        assert!(world.arena.now > world.arena.end && world.open == 0);
        assert_eq!(world.arena.events, 2 * world.arrived[0], "each request arrives and ends");
    }

    #[test]
    fn source_has_the_same_arrivals_beside_any_other() {
        let (alone, beside) = (ran(Counter::new(&[50.0])), ran(Counter::new(&[50.0, 70.0])));
        assert_eq!(alone.arrived[0], beside.arrived[0]);
        assert_eq!(ran(Counter::new(&[0.0])).arrived, [0], "no rate, no arrival");
    }

    #[test]
    fn phases_change_the_load_and_moved_arrivals_are_skipped() {
        let mut world = Counter::new(&[100.0]);
        world.arena.add_phases([0, 5].map(Duration::from_secs).into_iter());
        let world = ran(world);
        // The arrival that the first phase moved, and the two phases.
        assert_eq!(world.arena.events, 2 * world.arrived[0] + 3);
        // 100 a second in the second half; seed 3, Poisson: five standard deviations.
        assert!(world.arrived[0].abs_diff(500) < 112, "{:?}", world.arrived);
    }
}

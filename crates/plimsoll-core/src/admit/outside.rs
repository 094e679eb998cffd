//! What a process that can only be seen from outside has used, in the words of a gate.
//!
//! The system says how much CPU its threads got, and for how long they waited for one. Two things a server knows of itself have to be
//! guessed:
//!
//! - *Charged to requests*: all of its CPU. What it uses beside them cannot be told apart, and [`Fitted`](crate::meter::Fitted)
//!   shares it out.
//! - *Requests that run or could run*. In flight is what was sent to it and is not being answered yet, for an answer that has begun may wait
//!   for its reader or for events; of a server that works on after the head only threads are seen. Of these some wait for a CPU, in a
//!   queue of the process's own or of the kernel's, and others for something else: a database, a timer. The latter are as many as were
//!   sent in the time that a request takes while none has to wait for a CPU (Little's law):
//!
//! ```text
//! asked for = (Δcpu + Δwaited) ÷ Δt
//! calm      = Σ in flight · Δt ÷ Σ sent              while asked for < 3/4 · CPUs
//! queued    = in flight − calm · sent a second       if asked for > 4/5 · CPUs
//!             0                                      else
//! runnable  = max(asked for, queued)
//! ```
//!
//! Until the process was calm for the first time, all in flight count as queued. That may be too many, of which fewer are taken on, so that
//! it is soon calm.
//!
//! Why not the requests in flight at all times: a service that waits for others has hundreds, and is not overloaded, even if its
//! threads are busy. Why not the threads at all times: a server with one thread, or a pool of a few, has never more than these,
//! however many requests stand in its own queue. Why not the threads' waiting for a CPU: on CPUs of its own a server with as many threads never
//! waits.

use core::time::Duration;

use super::Seen;
use crate::{Timestamp, decay};

/// Of its CPUs, what a process that is full asks for at least, and one that is calm at most. Kernels write down what a thread ran at their
/// ticks, each 4 ms or so: in a look of 20 ms a fifth may be missing.
const FULL: f64 = 0.8;
pub(super) const CALM: f64 = 0.75;
/// Of the time for which a process was calm, what counts: as much as its requests may change in.
const CALM_HALF_LIFE: Duration = Duration::from_secs(30);
/// Of requests sent: some hundreds on a small server.
const SENT_HALF_LIFE: Duration = Duration::from_millis(250);
/// Requests by which it is known how long they take.
const ENOUGH: f64 = 20.0;

/// What the system says of a process; neither ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outside {
    /// CPU-seconds that its threads got.
    pub cpu: f64,
    /// Seconds for which its threads waited for a CPU, of all together.
    pub waited: f64,
}

/// The requests that go to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Those that were sent to it since the beginning.
    pub sent: u64,
    /// Those of them that it has not begun to answer and that somebody waits for.
    pub in_flight: u32,
    /// Those that were given up before it had begun, since the beginning.
    pub given_up: u64,
}

/// How long requests take that do not wait for a CPU.
#[derive(Clone, Debug, Default)]
struct Calm {
    /// Seconds that requests were in flight, of all together, and how many were sent; decayed.
    seconds: f64,
    sent: f64,
}

impl Calm {
    /// For so long so many were in flight, while so many were sent.
    fn observe(&mut self, gone: Duration, in_flight: u32, sent: f64) {
        let left = decay::remaining(Timestamp::from_origin(gone), Timestamp::ZERO, CALM_HALF_LIFE);
        self.seconds = self.seconds * left + f64::from(in_flight) * gone.as_secs_f64();
        self.sent = self.sent * left + sent;
    }

    /// Seconds; zero while that is not known.
    fn mean(&self) -> f64 {
        if self.sent >= ENOUGH { self.seconds / self.sent } else { 0.0 }
    }
}

/// Turns what is seen from outside into what a gate is told.
#[derive(Clone, Debug)]
pub struct Observed {
    cpus: f64,
    last: Outside,
    flow: Flow,
    /// Requests sent of late, decayed.
    recent: f64,
    /// Requests that were given up and that the process may have before it all the same.
    lingering: f64,
    calm: Calm,
    at: Timestamp,
    seen: Seen,
}

impl Observed {
    /// Of a process that nobody has seen yet, and that may use so many CPUs.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64) -> Self {
        let (last, calm, seen) = (Outside::default(), Calm::default(), Seen::default());
        Self { cpus, last, flow: Flow::default(), recent: 0.0, lingering: 0.0, calm, at: now, seen }
    }

    /// The process may use so many CPUs from now on.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// The process is seen for the first time, or again; it may be another one, that counts anew. Nothing is known of what was used until
    /// now.
    pub fn begin(&mut self, now: Timestamp, outside: Outside) -> Seen {
        (self.last, self.at) = (outside, now);
        self.seen
    }

    /// What there is to say: to be asked every few tens of milliseconds.
    pub fn sample(&mut self, now: Timestamp, outside: Outside, flow: Flow) -> Seen {
        let gone = now.since(self.at);
        if gone.is_zero() {
            return self.seen;
        }
        let cpu = (outside.cpu - self.last.cpu).max(0.0);
        let waited = (outside.waited - self.last.waited).max(0.0);
        let sent = flow.sent.saturating_sub(self.flow.sent) as f64;
        let given_up = flow.given_up.saturating_sub(self.flow.given_up) as f64;
        let more = f64::from(flow.in_flight) - f64::from(self.flow.in_flight);
        let answered = sent - more - given_up;
        let asked_for = (cpu + waited) / gone.as_secs_f64();
        self.recent = self.recent * decay::remaining(now, self.at, SENT_HALF_LIFE) + sent;
        // It comes to those in their turn, as to those that are answered.
        self.lingering = (self.lingering + given_up - answered.max(0.0)).max(0.0);
        if asked_for < CALM * self.cpus {
            self.lingering = 0.0;
            // As many came as went, if there are no more in flight than before.
            self.calm.observe(gone, flow.in_flight, sent - more / 2.0);
        }
        self.seen.cpu += cpu;
        self.seen.charged += cpu;
        self.seen.queued = if asked_for > FULL * self.cpus { self.queued(flow.in_flight) } else { 0.0 };
        self.seen.runnable = asked_for.max(self.seen.queued);
        (self.last, self.flow, self.at) = (outside, flow, now);
        self.seen
    }

    /// Of so many in flight, those that wait for a CPU or have one.
    fn queued(&self, in_flight: u32) -> f64 {
        let elsewhere = self.calm.mean() * decay::rate(self.recent, SENT_HALF_LIFE);
        (f64::from(in_flight) + self.lingering - elsewhere).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of one CPU that is looked at every 20 ms.
    struct World {
        now: Timestamp,
        outside: Outside,
        flow: Flow,
        observed: Observed,
    }

    impl World {
        fn new() -> Self {
            let mut observed = Observed::new(Timestamp::ZERO, 1.0);
            let outside = Outside { cpu: 5.0, waited: 1.0 };
            assert_eq!(observed.begin(Timestamp::ZERO, outside), Seen::default());
            Self { now: Timestamp::ZERO, outside, flow: Flow::default(), observed }
        }

        /// What is said after a look in which the process used and waited for so much, with so many requests in flight and so many sent.
        fn look(&mut self, cpu: f64, waited: f64, in_flight: u32, sent: u64) -> Seen {
            self.now = self.now + Duration::from_millis(20);
            self.outside.cpu += cpu;
            self.outside.waited += waited;
            self.flow.sent += sent;
            self.flow.in_flight = in_flight;
            let seen = self.observed.sample(self.now, self.outside, self.flow);
            assert_eq!(
                self.observed.sample(self.now, self.outside, self.flow),
                seen,
                "two looks at one time say the same"
            );
            seen
        }
    }

    #[test]
    fn requests_count_as_runnable_where_the_process_is_full() {
        for (what, cpu, waited, in_flight, is) in [
            ("idle", 0.0, 0.0, 300, 0.0),
            ("waits for others", 0.01, 0.0, 300, 0.5),
            ("waits for others beside a neighbour", 0.01, 0.004, 300, 0.7),
            ("busy on CPUs of its own", 0.02, 0.0, 300, 300.0),
            ("starved by a neighbour", 0.01, 0.01, 300, 300.0),
            ("gets nothing at all", 0.0, 0.02, 40, 40.0),
            ("many threads, few requests", 0.01, 0.19, 4, 10.0),
        ] {
            let mut world = World::new();
            let seen = world.look(cpu, waited, in_flight, 0);
            assert!((seen.runnable - is).abs() < 1e-6, "{what}: {}", seen.runnable);
            assert!((seen.cpu - cpu).abs() < 1e-9 && seen.charged == seen.cpu, "{what}");
        }
    }

    #[test]
    fn what_waits_for_something_else_is_no_queue_of_a_full_process() {
        let mut world = World::new();
        // 200 a second, each of which takes 300 ms.
        (0..500).for_each(|_| assert_eq!(world.look(0.01, 0.0, 60, 4).queued, 0.0));
        let queued = world.look(0.02, 0.0, 60, 4).queued;
        assert!(queued < 3.0, "{queued}");
        let queued = world.look(0.02, 0.0, 100, 4).queued;
        assert!((37.0..43.0).contains(&queued), "{queued}");
    }

    #[test]
    fn how_long_requests_take_is_learned_while_they_become_more_and_fewer() {
        let mut world = World::new();
        // A hundred at a time, each of which takes 100 ms, while the process is calm; and nothing of the times between.
        for _ in 0..100 {
            for in_flight in [100, 100, 100, 100, 0] {
                world.look(0.01, 0.0, in_flight, if in_flight == 100 { 25 } else { 0 });
            }
        }
        let mean = world.observed.calm.mean();
        assert!((0.07..0.13).contains(&mean), "{mean}");
    }

    #[test]
    fn what_was_given_up_stays_in_the_queue_until_as_much_is_answered_or_the_process_is_calm() {
        let mut world = World::new();
        world.look(0.02, 0.0, 50, 50);
        world.flow.given_up += 50;
        assert_eq!(world.look(0.02, 0.0, 0, 0).queued, 50.0, "nobody has said that it does not go on");
        // Ten come and are answered.
        assert_eq!(world.look(0.02, 0.0, 0, 10).queued, 40.0);
        world.look(0.005, 0.0, 0, 0);
        assert_eq!(world.look(0.02, 0.0, 0, 0).queued, 0.0);
    }

    /// The next sample of a process that used `cpus` CPUs for half a second, with ten requests in flight.
    fn look(observed: &mut Observed, cpus: f64) -> Seen {
        let now = observed.at + Duration::from_millis(500);
        let outside = Outside { cpu: observed.last.cpu + cpus / 2.0, waited: 0.0 };
        observed.sample(now, outside, Flow { in_flight: 10, ..observed.flow })
    }

    #[test]
    fn process_is_full_above_four_fifths_of_its_cpus() {
        for (cpus, asked_for, queued) in [(1.25, 1.0, 0.0), (1.25, 1.01, 10.0), (2.5, 1.5, 0.0), (2.5, 2.1, 10.0)] {
            let mut observed = Observed::new(Timestamp::ZERO, cpus);
            assert_eq!(look(&mut observed, asked_for).queued, queued, "{asked_for} of {cpus}");
        }
        let mut observed = Observed::new(Timestamp::ZERO, 1.25);
        observed.resize(2.5);
        assert_eq!(look(&mut observed, 1.5).queued, 0.0, "it has twice as many");
    }

    #[test]
    fn process_is_calm_below_three_quarters_of_its_cpus() {
        for (cpus, asked_for, is_calm) in [(1.0, 0.75, false), (1.0, 0.74, true), (4.0, 2.9, true), (4.0, 3.1, false)] {
            let mut observed = Observed::new(Timestamp::ZERO, cpus);
            look(&mut observed, asked_for);
            assert_eq!(observed.calm.seconds > 0.0, is_calm, "{asked_for} of {cpus}");
        }
    }

    #[test]
    fn requests_still_in_flight_have_not_been_answered() {
        let mut world = World::new();
        world.look(0.02, 0.0, 50, 50);
        world.flow.given_up += 50;
        world.look(0.02, 0.0, 0, 0);
        // Ten come, and four of them are answered.
        assert_eq!(world.look(0.02, 0.0, 6, 10).queued, 52.0);
    }
}

//! Observation of a process from outside: turns facts of the system into the input of a gate.
//!
//! The system says how much CPU the threads of the process got, and how long they waited for one. A
//! server knows two more things of itself, which must be estimated here:
//!
//! - *CPU charged to requests*: all of its CPU. Its overhead cannot be told apart, and
//!   [`CostFit`](crate::meter::CostFit) shares it out.
//! - *Requests that run or could run*. A request is in flight from the time it is sent until the
//!   answer begins. After that, the answer may wait for its reader or for events; a server that
//!   works on after the head is seen by its threads only. Some requests in flight wait for a CPU,
//!   in a queue of the process or of the kernel. Others wait for something else: a database, a
//!   timer. The number of the latter is the number sent in the time that a request takes while none
//!   waits for a CPU (Little's law):
//!
//! ```text
//! asked for = (Δcpu + Δwaited) ÷ Δt
//! calm      = Σ in flight · Δt ÷ Σ sent              while asked for < 3/4 · CPUs
//! queued    = in flight − calm · sent a second       if asked for > 4/5 · CPUs
//!             0                                      else
//! runnable  = max(asked for, queued)
//! ```
//!
//! Until the process is calm for the first time, all requests in flight count as queued. That may
//! be too many. Then fewer are admitted, and the process is soon calm.
//!
//! Why not the requests in flight at all times: a service that waits for others has hundreds of
//! them and is not overloaded, even if its threads are busy. Why not the threads at all times: a
//! server with one thread, or a small pool, never has more than these, however long its own queue.
//! Why not the threads' wait for a CPU: with CPUs of its own, a server with as many threads never
//! waits.

use core::time::Duration;

use super::Observation;
use crate::{Timestamp, decay};

/// The lowest demand of a full process and the highest of a calm one, as parts of its CPUs. Kernels
/// update the use of a thread at their ticks, each 4 ms or so. So a fifth may be missing in a
/// sample of 20 ms.
const FULL: f64 = 0.8;
const CALM: f64 = 0.75;
/// Half-life of the calm time: the time in which its requests may change.
const CALM_HALF_LIFE: Duration = Duration::from_secs(30);
/// Half-life of requests sent: some hundreds on a small server.
const SENT_HALF_LIFE: Duration = Duration::from_millis(250);
/// Requests after which their mean time is known.
const ENOUGH: f64 = 20.0;

/// Counters of the system for a process. Neither ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessCounters {
    /// CPU-seconds that its threads got.
    pub cpu: f64,
    /// Seconds for which its threads waited for a CPU, summed over them.
    pub waited: f64,
}

/// The requests that go to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Requests sent to it since the beginning.
    pub sent: u64,
    /// Requests that it has not begun to answer and that a caller waits for.
    pub in_flight: u32,
    /// Requests abandoned before their answer began, since the beginning.
    pub abandoned: u64,
}

/// The time that requests take without waiting for a CPU.
#[derive(Clone, Debug, Default)]
struct CalmTime {
    /// Seconds in flight, summed over requests, and requests sent; both decayed.
    seconds: f64,
    sent: f64,
}

impl CalmTime {
    /// Adds a calm time span with its requests in flight and its requests sent.
    fn observe(&mut self, gone: Duration, in_flight: u32, sent: f64) {
        let left = decay::remaining(Timestamp::from_origin(gone), Timestamp::ZERO, CALM_HALF_LIFE);
        self.seconds = self.seconds * left + f64::from(in_flight) * gone.as_secs_f64();
        self.sent = self.sent * left + sent;
    }

    /// The mean time in seconds; zero while it is unknown.
    fn mean(&self) -> f64 {
        if self.sent >= ENOUGH { self.seconds / self.sent } else { 0.0 }
    }
}

/// Turns counters of the system into the input of a gate.
#[derive(Clone, Debug)]
pub struct ProcessObserver {
    cpus: f64,
    last: ProcessCounters,
    flow: Flow,
    /// Requests sent, decayed.
    recent: f64,
    /// Abandoned requests that may still be in the queue of the process.
    lingering: f64,
    calm: CalmTime,
    at: Timestamp,
    seen: Observation,
}

impl ProcessObserver {
    /// Begins with a process that was not observed yet and may use this many CPUs.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64) -> Self {
        let (last, calm, seen) = (ProcessCounters::default(), CalmTime::default(), Observation::default());
        Self { cpus, last, flow: Flow::default(), recent: 0.0, lingering: 0.0, calm, at: now, seen }
    }

    /// Changes the CPUs that the process may use.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// Starts or resumes the observation of a process. It may be another process with counters of
    /// its own. CPU used before this call is not counted.
    pub fn begin(&mut self, now: Timestamp, outside: ProcessCounters) -> Observation {
        (self.last, self.at) = (outside, now);
        self.seen
    }

    /// Takes a sample, every few tens of milliseconds.
    pub fn sample(&mut self, now: Timestamp, outside: ProcessCounters, flow: Flow) -> Observation {
        let gone = now.since(self.at);
        if gone.is_zero() {
            return self.seen;
        }
        let cpu = (outside.cpu - self.last.cpu).max(0.0);
        let waited = (outside.waited - self.last.waited).max(0.0);
        let sent = flow.sent.saturating_sub(self.flow.sent) as f64;
        let abandoned = flow.abandoned.saturating_sub(self.flow.abandoned) as f64;
        let more = f64::from(flow.in_flight) - f64::from(self.flow.in_flight);
        let answered = sent - more - abandoned;
        let asked_for = (cpu + waited) / gone.as_secs_f64();
        self.recent = self.recent * decay::remaining(now, self.at, SENT_HALF_LIFE) + sent;
        // Abandoned requests leave the queue in their turn, like those that are answered.
        self.lingering = (self.lingering + abandoned - answered.max(0.0)).max(0.0);
        if asked_for < CALM * self.cpus {
            self.lingering = 0.0;
            // With as many in flight as before, as many were sent as ended.
            self.calm.observe(gone, flow.in_flight, sent - more / 2.0);
        }
        self.seen.cpu += cpu;
        self.seen.charged += cpu;
        self.seen.queued = if asked_for > FULL * self.cpus { self.queued(flow.in_flight) } else { 0.0 };
        self.seen.runnable = asked_for.max(self.seen.queued);
        (self.last, self.flow, self.at) = (outside, flow, now);
        self.seen
    }

    /// Requests of those in flight that have a CPU or wait for one.
    fn queued(&self, in_flight: u32) -> f64 {
        let elsewhere = self.calm.mean() * decay::rate(self.recent, SENT_HALF_LIFE);
        (f64::from(in_flight) + self.lingering - elsewhere).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of one CPU, sampled every 20 ms.
    struct World {
        now: Timestamp,
        outside: ProcessCounters,
        flow: Flow,
        observed: ProcessObserver,
    }

    impl World {
        fn new() -> Self {
            let mut observed = ProcessObserver::new(Timestamp::ZERO, 1.0);
            let outside = ProcessCounters { cpu: 5.0, waited: 1.0 };
            assert_eq!(observed.begin(Timestamp::ZERO, outside), Observation::default());
            Self { now: Timestamp::ZERO, outside, flow: Flow::default(), observed }
        }

        /// Samples after 20 ms of this CPU use and wait, with these requests in flight and sent.
        fn look(&mut self, cpu: f64, waited: f64, in_flight: u32, sent: u64) -> Observation {
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
    fn requests_count_as_runnable_when_the_process_is_full() {
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
    fn requests_that_wait_for_others_are_no_queue_of_a_full_process() {
        let mut world = World::new();
        // 200 requests a second, of 300 ms each.
        (0..500).for_each(|_| assert_eq!(world.look(0.01, 0.0, 60, 4).queued, 0.0));
        let queued = world.look(0.02, 0.0, 60, 4).queued;
        assert!(queued < 3.0, "{queued}");
        let queued = world.look(0.02, 0.0, 100, 4).queued;
        assert!((37.0..43.0).contains(&queued), "{queued}");
    }

    #[test]
    fn request_time_is_learned_from_bursts_of_requests() {
        let mut world = World::new();
        // A hundred at a time, of 100 ms each, while the process is calm, and no load between them.
        for _ in 0..100 {
            for in_flight in [100, 100, 100, 100, 0] {
                world.look(0.01, 0.0, in_flight, if in_flight == 100 { 25 } else { 0 });
            }
        }
        let mean = world.observed.calm.mean();
        assert!((0.07..0.13).contains(&mean), "{mean}");
    }

    #[test]
    fn abandoned_requests_stay_queued_until_answered_or_calm() {
        let mut world = World::new();
        world.look(0.02, 0.0, 50, 50);
        world.flow.abandoned += 50;
        assert_eq!(world.look(0.02, 0.0, 0, 0).queued, 50.0, "the process may still work on them");
        // Ten arrive and are answered.
        assert_eq!(world.look(0.02, 0.0, 0, 10).queued, 40.0);
        world.look(0.005, 0.0, 0, 0);
        assert_eq!(world.look(0.02, 0.0, 0, 0).queued, 0.0);
    }

    /// The next sample of a process that used `cpus` CPUs for half a second, with ten requests in
    /// flight.
    fn look(observed: &mut ProcessObserver, cpus: f64) -> Observation {
        let now = observed.at + Duration::from_millis(500);
        let outside = ProcessCounters { cpu: observed.last.cpu + cpus / 2.0, waited: 0.0 };
        observed.sample(now, outside, Flow { in_flight: 10, ..observed.flow })
    }

    #[test]
    fn process_is_full_above_four_fifths_of_its_cpus() {
        for (cpus, asked_for, queued) in [(1.25, 1.0, 0.0), (1.25, 1.01, 10.0), (2.5, 1.5, 0.0), (2.5, 2.1, 10.0)] {
            let mut observed = ProcessObserver::new(Timestamp::ZERO, cpus);
            assert_eq!(look(&mut observed, asked_for).queued, queued, "{asked_for} of {cpus}");
        }
        let mut observed = ProcessObserver::new(Timestamp::ZERO, 1.25);
        observed.resize(2.5);
        assert_eq!(look(&mut observed, 1.5).queued, 0.0, "it has twice as many");
    }

    #[test]
    fn process_is_calm_below_three_quarters_of_its_cpus() {
        for (cpus, asked_for, is_calm) in [(1.0, 0.75, false), (1.0, 0.74, true), (4.0, 2.9, true), (4.0, 3.1, false)] {
            let mut observed = ProcessObserver::new(Timestamp::ZERO, cpus);
            look(&mut observed, asked_for);
            assert_eq!(observed.calm.seconds > 0.0, is_calm, "{asked_for} of {cpus}");
        }
    }

    #[test]
    fn requests_still_in_flight_have_not_been_answered() {
        let mut world = World::new();
        world.look(0.02, 0.0, 50, 50);
        world.flow.abandoned += 50;
        world.look(0.02, 0.0, 0, 0);
        // Ten arrive, and four of them are answered.
        assert_eq!(world.look(0.02, 0.0, 6, 10).queued, 52.0);
    }
}

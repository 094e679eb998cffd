//! What a process that can only be seen from outside has used, in the words of a gate.
//!
//! The system says how much CPU its threads got, and for how long they waited for one. Two things a server knows of itself have to be
//! guessed:
//!
//! - *Charged to requests*: all of its CPU. What it uses beside them cannot be told apart, and [`Fitted`](crate::meter::Fitted)
//!   shares it out.
//! - *Requests that run or could run*. A process is starved if its threads waited for more than a twentieth of the time that they
//!   got, and hardly any of the CPUs it may use was left unasked for. Then all requests in flight at it are taken to wait for a
//!   CPU; else only as many as threads did. In flight is what was sent to it and is not being answered yet, for an
//!   answer that has begun may wait for its reader or for events; of a server that works on after the head only threads are seen:
//!
//! ```text
//! asked for = (Δcpu + Δwaited) ÷ Δt
//! runnable  = max(in flight, asked for)    if Δwaited > Δcpu ÷ 20 and asked for > 4/5 · CPUs
//!             asked for                    else
//! ```
//!
//! Why not the requests in flight at all times: a service that waits for others has hundreds, and is not overloaded, even if its
//! threads have to wait a little for a neighbour's. Why not the threads at all times: a server with one thread, or a pool of a
//! few, has never more than these, however many requests stand in its own queue.

use super::Seen;
use crate::Timestamp;

/// Of the CPU that it gets, what a process may wait for it: less is chance, with threads that wake at the same time.
const WAITS: f64 = 0.05;
/// Of its CPUs, what a process that is full asks for at least. Kernels write down what a thread ran at their ticks, each 4 ms or so: in a
/// look of 20 ms a fifth may be missing.
const FULL: f64 = 0.8;

/// What the system says of a process; neither ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outside {
    /// CPU-seconds that its threads got.
    pub cpu: f64,
    /// Seconds for which its threads waited for a CPU, of all together.
    pub waited: f64,
}

/// Turns what is seen from outside into what a gate is told.
#[derive(Clone, Debug)]
pub struct Observed {
    cpus: f64,
    last: Outside,
    at: Timestamp,
    seen: Seen,
}

impl Observed {
    /// Of a process that nobody has seen yet, and that may use so many CPUs.
    #[must_use]
    pub fn new(now: Timestamp, cpus: f64) -> Self {
        Self { cpus, last: Outside::default(), at: now, seen: Seen::default() }
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

    /// What there is to say, with so many requests at the process that it has not begun to answer: to be asked every few tens of
    /// milliseconds.
    pub fn sample(&mut self, now: Timestamp, outside: Outside, in_flight: u32) -> Seen {
        let gone = now.since(self.at).as_secs_f64();
        if gone > 0.0 {
            let cpu = (outside.cpu - self.last.cpu).max(0.0);
            let waited = (outside.waited - self.last.waited).max(0.0);
            let asked_for = (cpu + waited) / gone;
            let is_starved = waited > WAITS * cpu && asked_for > FULL * self.cpus;
            self.seen.cpu += cpu;
            self.seen.charged += cpu;
            self.seen.runnable = if is_starved { asked_for.max(f64::from(in_flight)) } else { asked_for };
            (self.last, self.at) = (outside, now);
        }
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What could run in 20 ms in which a process of one CPU used and waited for so much.
    fn runnable(cpu: f64, waited: f64, in_flight: u32) -> f64 {
        let mut observed = Observed::new(Timestamp::ZERO, 1.0);
        assert_eq!(observed.begin(Timestamp::ZERO, Outside { cpu: 5.0, waited: 1.0 }), Seen::default());
        let now = Timestamp::from_nanos(20_000_000);
        let outside = Outside { cpu: 5.0 + cpu, waited: 1.0 + waited };
        let seen = observed.sample(now, outside, in_flight);
        assert!((seen.cpu - cpu).abs() < 1e-9 && seen.charged == seen.cpu);
        assert_eq!(observed.sample(now, outside, in_flight), seen, "two looks at one time say the same");
        seen.runnable
    }

    #[test]
    fn requests_count_as_runnable_where_cpu_is_what_they_wait_for() {
        for (what, cpu, waited, in_flight, is) in [
            ("idle", 0.0, 0.0, 300, 0.0),
            ("waits for others", 0.01, 0.0, 300, 0.5),
            ("waits for others beside a neighbour", 0.01, 0.004, 300, 0.7),
            ("busy, and gets all it asks for", 0.02, 0.0005, 300, 1.025),
            ("starved by a neighbour", 0.01, 0.01, 300, 300.0),
            ("gets nothing at all", 0.0, 0.02, 40, 40.0),
            ("many threads, few requests", 0.01, 0.19, 4, 10.0),
        ] {
            let found = runnable(cpu, waited, in_flight);
            assert!((found - is).abs() < 1e-6, "{what}: {found}");
        }
    }
}

//! What a server uses beside its requests' own code: accepting, reading, parsing, writing, and turning away.
//!
//! No request can be charged with it while it happens: a system call reads for several, and a parser does not know yet who is
//! asking. So it is spread evenly over all requests that came, those turned away included, for most of it is done for them, too:
//!
//! ```text
//! overhead = Σ (used by the process − charged to requests) ÷ Σ requests
//! ```
//!
//! over the last ten thousand requests or so. A server that is all but idle uses its CPU for timers, which no request is to blame for;
//! what it uses then is not counted.

/// In requests: some seconds on a busy server.
const MEMORY: f64 = 10_000.0;
/// Of the CPUs that there are. Below it, timers and the like may be more than what requests cause.
const IDLE: f64 = 0.1;

/// Running totals since some origin; none of them ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Seconds of wall time.
    pub wall: f64,
    /// CPU-seconds of the process.
    pub cpu: f64,
    /// CPU-seconds charged to requests.
    pub charged: f64,
    /// Requests that came.
    pub requests: u64,
}

/// What is used beside requests.
#[derive(Clone, Debug)]
pub struct Overhead {
    cpus: f64,
    last: Used,
    requests: f64,
    beside: f64,
}

impl Overhead {
    /// For a process that may use so many CPUs.
    #[must_use]
    pub fn new(cpus: f64, used: Used) -> Self {
        Self { cpus, last: used, requests: 0.0, beside: 0.0 }
    }

    /// The process may use so many CPUs from now on.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// What was used up to now; to be told a few times a second.
    pub fn sample(&mut self, used: Used) {
        let last = core::mem::replace(&mut self.last, used);
        let cpu = used.cpu - last.cpu;
        if cpu < IDLE * self.cpus * (used.wall - last.wall) {
            return;
        }
        let requests = used.requests.saturating_sub(last.requests) as f64;
        let left = 1.0 - (requests / MEMORY).min(1.0);
        self.requests = self.requests * left + requests;
        self.beside = self.beside * left + (cpu - (used.charged - last.charged));
    }

    /// CPU-seconds beside each request.
    #[must_use]
    pub fn per_request(&self) -> f64 {
        if self.requests > 0.0 { (self.beside / self.requests).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u32, used: impl Fn(f64) -> Used) -> f64 {
        let mut overhead = Overhead::new(1.0, Used::default());
        (1..=seconds * 10).for_each(|tenth| overhead.sample(used(f64::from(tenth) / 10.0)));
        overhead.per_request()
    }

    #[test]
    fn what_is_not_charged_is_spread_over_all_requests() {
        let used = |wall| Used { wall, cpu: 0.9 * wall, charged: 0.8 * wall, requests: (wall * 5_000.0) as u64 };
        assert!((after(20, used) / 20e-6 - 1.0).abs() < 1e-6, "{}", after(20, used));
    }

    #[test]
    fn timers_of_an_idle_server_are_no_request_s_fault() {
        let used = |wall| Used { wall, cpu: 0.02 * wall, charged: 0.0, requests: wall as u64 };
        assert_eq!(after(20, used), 0.0);
    }
}

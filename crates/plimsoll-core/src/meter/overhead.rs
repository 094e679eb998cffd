//! Overhead: CPU of a server outside the own code of its requests.
//!
//! It accepts, reads, parses, writes and sheds. No request can be charged with that while it
//! happens: a system call reads for several requests, and a parser does not know the caller yet. So
//! it is spread evenly over all requests that arrived. Shed ones are included, since most of it is
//! done for them, too:
//!
//! ```text
//! overhead = Σ (used by the process − charged to requests) ÷ Σ requests
//! ```
//!
//! over the last ten thousand requests or so. An almost idle server uses its CPU for timers, which
//! no request causes; its use is not counted.
//!
//! Failure modes: a server works on something of its own, as at its start or in a background
//! job, while few requests arrive. That cannot be told apart from work for these requests. So use
//! without any request is not counted. Use with requests counts as theirs, up to a tenth of a
//! second each. And an almost idle server forgets within seconds, the number of requests too, so
//! that the next samples are believed soon.

use core::time::Duration;

use crate::{Timestamp, decay};

/// In requests: some seconds on a busy server.
const MEMORY: f64 = 10_000.0;
/// A part of the CPUs. Below it, timers and the like may use more than requests.
const IDLE: f64 = 0.1;
/// The largest overhead of one request, in CPU-seconds. Handlers that leave their work to
/// unmeasured tasks reach it; reading and parsing never do.
const MAX_PER_REQUEST: f64 = 0.1;
/// Half-life of the overhead while the server is almost idle.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Running totals since some origin; none of them ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageTotals {
    /// Seconds of wall time.
    pub wall: f64,
    /// CPU-seconds of the process.
    pub cpu: f64,
    /// CPU-seconds charged to requests.
    pub charged: f64,
    /// Requests that arrived.
    pub requests: u64,
}

/// The overhead of requests.
#[derive(Clone, Debug)]
pub struct Overhead {
    cpus: f64,
    last: UsageTotals,
    requests: f64,
    beside: f64,
}

impl Overhead {
    /// Begins with a process that may use this many CPUs.
    #[must_use]
    pub fn new(cpus: f64, used: UsageTotals) -> Self {
        Self { cpus, last: used, requests: 0.0, beside: 0.0 }
    }

    /// Changes the CPUs that the process may use.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// Takes the running totals, a few times a second.
    pub fn sample(&mut self, used: UsageTotals) {
        let last = core::mem::replace(&mut self.last, used);
        let (wall, cpu) = (used.wall - last.wall, used.cpu - last.cpu);
        if cpu < IDLE * self.cpus * wall {
            let left = remaining(wall);
            // Both the quotient and its weight against the next samples shrink.
            self.requests *= left;
            self.beside *= left * left;
            return;
        }
        let requests = used.requests.saturating_sub(last.requests) as f64;
        if requests == 0.0 {
            return;
        }
        let left = 1.0 - (requests / MEMORY).min(1.0);
        self.requests = self.requests * left + requests;
        self.beside = self.beside * left + (cpu - (used.charged - last.charged)).min(requests * MAX_PER_REQUEST);
    }

    /// CPU-seconds of overhead for each request.
    #[must_use]
    pub fn per_request(&self) -> f64 {
        if self.requests > 0.0 { (self.beside / self.requests).max(0.0) } else { 0.0 }
    }
}

/// The part left after this many seconds.
fn remaining(seconds: f64) -> f64 {
    decay::remaining(Timestamp::from_nanos((seconds * 1e9) as u64), Timestamp::ZERO, HALF_LIFE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u32, used: impl Fn(f64) -> UsageTotals) -> f64 {
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        (1..=seconds * 10).for_each(|tenth| overhead.sample(used(f64::from(tenth) / 10.0)));
        overhead.per_request()
    }

    #[test]
    fn uncharged_cpu_is_spread_over_all_requests() {
        let used = |wall| UsageTotals { wall, cpu: 0.9 * wall, charged: 0.8 * wall, requests: (wall * 5_000.0) as u64 };
        assert!((after(20, used) / 20e-6 - 1.0).abs() < 1e-6, "{}", after(20, used));
    }

    #[test]
    fn timers_of_an_idle_server_are_no_overhead() {
        let used = |wall| UsageTotals { wall, cpu: 0.02 * wall, charged: 0.0, requests: wall as u64 };
        assert_eq!(after(20, used), 0.0);
    }

    /// A server of one core, sampled `looks` times a second, with one request a second.
    struct Server {
        looks: u32,
        overhead: Overhead,
        used: UsageTotals,
    }

    impl Server {
        fn new(looks: u32) -> Self {
            Self { looks, overhead: Overhead::new(1.0, UsageTotals::default()), used: UsageTotals::default() }
        }

        /// Runs the server with `cpus` of use. A millisecond is charged to each request. Returns
        /// the highest overhead of a request, and the last one.
        fn runs(&mut self, seconds: u32, cpus: f64) -> [f64; 2] {
            let mut most = 0.0_f64;
            for look in 1..=seconds * self.looks {
                self.used.wall += 1.0 / f64::from(self.looks);
                self.used.cpu += cpus / f64::from(self.looks);
                if look % self.looks == 0 {
                    self.used.requests += 1;
                    self.used.charged += 0.001;
                }
                self.overhead.sample(self.used);
                most = most.max(self.overhead.per_request());
            }
            [most, self.overhead.per_request()]
        }
    }

    #[test]
    fn background_job_is_forgotten_after_its_end() {
        // Samples come with requests only, or every 10 ms.
        for (looks, most) in [(1, MAX_PER_REQUEST), (100, 0.01)] {
            let mut server = Server::new(looks);
            let [highest, beside] = server.runs(30, 1.0);
            assert!(highest <= 1.001 * most && beside > 0.5 * most, "{looks}: {highest} {beside}");
            let [_, after] = server.runs(10, 0.001);
            assert!(after < 0.002 * most, "{looks}: {after}");
        }
    }

    #[test]
    fn cpu_of_a_start_is_charged_to_no_request() {
        let used = UsageTotals { wall: 20.0, cpu: 20.0, charged: 0.0, requests: 0 };
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        overhead.sample(used);
        overhead.sample(UsageTotals { wall: 20.1, cpu: 20.1, requests: 5_000, ..used });
        assert!((overhead.per_request() / 20e-6 - 1.0).abs() < 1e-6, "{}", overhead.per_request());
    }

    #[test]
    fn flood_after_an_idle_time_is_learned_at_once() {
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        let job = UsageTotals { wall: 10.0, cpu: 10.0, charged: 0.0, requests: 20_000 };
        overhead.sample(job);
        let calm = UsageTotals { wall: 40.0, cpu: 10.01, ..job };
        overhead.sample(calm);
        overhead.sample(UsageTotals { wall: 40.1, cpu: 10.11, requests: 25_000, ..calm });
        assert!((overhead.per_request() / 20e-6 - 1.0).abs() < 1e-3, "{}", overhead.per_request());
    }

    /// Overhead per request after one second with 5,000 requests and `cpu` CPU-seconds, none of
    /// them charged, on `cpus` CPUs.
    fn learned(cpus: f64, cpu: f64) -> f64 {
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        overhead.resize(cpus);
        overhead.sample(UsageTotals { wall: 1.0, cpu, charged: 0.0, requests: 5_000 });
        overhead.per_request()
    }

    #[test]
    fn server_is_idle_below_a_tenth_of_its_cpus() {
        assert_eq!([learned(1.0, 0.1), learned(4.0, 0.3)], [0.1 / 5e3, 0.0]);
        assert!(learned(4.0, 0.5) > 0.0);
    }

    #[test]
    fn half_is_forgotten_after_half_of_the_memory() {
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        overhead.sample(UsageTotals { wall: 0.1, cpu: 0.05, charged: 0.0, requests: 5_000 });
        overhead.sample(UsageTotals { wall: 0.2, cpu: 0.2, charged: 0.0, requests: 10_000 });
        // 10 µs of half of 5,000 requests, and 30 µs of 5,000.
        let expected = (0.5 * 10e-6 + 30e-6) / 1.5;
        assert!((overhead.per_request() / expected - 1.0).abs() < 1e-6, "{}", overhead.per_request());
    }

    #[test]
    fn short_idle_time_forgets_little() {
        let mut overhead = Overhead::new(1.0, UsageTotals::default());
        let busy = UsageTotals { wall: 1.0, cpu: 0.5, charged: 0.4, requests: 5_000 };
        overhead.sample(busy);
        overhead.sample(UsageTotals { wall: 1.1, ..busy });
        assert!((overhead.per_request() / 20e-6 - 0.933).abs() < 0.001, "{}", overhead.per_request());
    }
}

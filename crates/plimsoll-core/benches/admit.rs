//! The cost of a decision of the gate, for ten to a million customers.
//!
//! Requests arrive and end at twice the capacity, from ten, ten thousand and a million customers in
//! turn. They run without limits, and with hard limits that bind if there are few customers. A run
//! repeats a short measurement many times, and prints the minimum and the median: other work of the
//! machine only adds to them.
//!
//! ```text
//! cargo bench -p plimsoll-core --bench admit               a table
//! cargo bench -p plimsoll-core --bench admit -- --check    exit 1 if a million cost over twice as much as ten
//! ```

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_core::admit::{AdmissionConfig, Arrival, Entry, Gate, Mode, Observation, Quota};
use plimsoll_core::meter::Kind;
use plimsoll_core::{Criticality, Timestamp};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

const CUSTOMERS: [u64; 3] = [10, 10_000, 1_000_000];
/// Decisions in one measurement: about a millisecond.
const DECISIONS: u64 = 5_000;
const MEASUREMENTS: usize = 300;
/// Each customer sends at least one request.
const WARM_UP: u64 = 1_200_000;
/// The cost of a request, and twice the time between two requests.
const COST: Duration = Duration::from_micros(20);
const MAX_IN_PROGRESS: usize = 16;

/// CPU-seconds a second: each of ten customers asks for twice that.
const LIMIT: f64 = 0.1;

struct Server {
    gate: Gate,
    quota: Quota,
    rng: Pcg64Mcg,
    customers: u64,
    requests: u64,
    running: VecDeque<Entry>,
}

impl Server {
    fn new(customers: u64, quota: Quota) -> Self {
        let config = AdmissionConfig::new(1.0).expect("a core");
        let gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        Self {
            gate,
            quota,
            rng: Pcg64Mcg::seed_from_u64(1),
            customers,
            requests: 0,
            running: VecDeque::with_capacity(64),
        }
    }

    /// A request arrives, and an earlier one ends if it is admitted.
    fn decide(&mut self) {
        let number = self.requests;
        self.requests += 1;
        let now = Timestamp::from_nanos(number * COST.as_nanos() as u64 / 2);
        let arrival = Arrival {
            criticality: Criticality::ALL[number as usize % 4],
            kind: Kind { route: number % 7, customer: number % self.customers },
            quota: self.quota,
            timeout: None,
            cohort: None,
            is_retry: false,
        };
        if let Some(entry) = self.gate.ask(now, &arrival, &mut self.rng).entry() {
            self.running.push_back(entry);
            if self.running.len() > MAX_IN_PROGRESS
                && let Some(entry) = self.running.pop_front()
            {
                self.gate.end(now, entry, COST.as_secs_f64());
            }
        }
    }
}

fn main() -> ExitCode {
    println!("| limits | customers | least, ns | median, ns |\n|:--|--:|--:|--:|");
    let hard = Quota::hard(LIMIT).expect("a tenth");
    let is_flat = [("none", Quota::UNLIMITED), ("hard", hard)].map(|(limits, quota)| measure(limits, quota));
    if std::env::args().any(|argument| argument == "--check") && is_flat.contains(&false) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Whether a million customers cost no more than twice as much as ten.
fn measure(limits: &str, quota: Quota) -> bool {
    let medians = CUSTOMERS.map(|customers| {
        let mut server = Server::new(customers, quota);
        (0..WARM_UP).for_each(|_| server.decide());
        let mut found: Vec<f64> = (0..MEASUREMENTS)
            .map(|_| {
                let begun = Instant::now();
                (0..DECISIONS).for_each(|_| server.decide());
                begun.elapsed().as_secs_f64() * 1e9 / DECISIONS as f64
            })
            .collect();
        found.sort_by(f64::total_cmp);
        let median = found[MEASUREMENTS / 2];
        println!("| {limits} | {customers} | {:.0} | {median:.0} |", found[0]);
        median
    });
    medians[2] <= 2.0 * medians[0]
}

//! Cost of a client's own decisions for each request: throttling, the outcome, and the retry of one
//! in ten that fail. A run takes many measurements and reports the least and the median: other work
//! on the machine only adds. Nothing is allocated, which is counted.
//!
//! ```text
//! cargo bench -p plimsoll-core --bench throttle               a table
//! cargo bench -p plimsoll-core --bench throttle -- --check    exit 1 above 80 ns or on allocation
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::retry::{Advice, Attempt, Budget, BudgetConfig, Failure, Repeat, RetryConfig, Verdict as Retry};
use plimsoll_core::throttle::adaptive::DEFAULT_WINDOW;
use plimsoll_core::throttle::{Multiple, Outcome, Throttle, ThrottlePolicy, Verdict};
use plimsoll_core::{Criticality, Operation, Timestamp};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// Largest cost of a request, in nanoseconds.
const MAX_NANOS: f64 = 80.0;
/// Requests in one measurement: some tenths of a millisecond.
const REQUESTS: u64 = 5_000;
const MEASUREMENTS: usize = 400;
/// Time between two requests: 10,000 a second.
const GAP: u64 = 100_000;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes each call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Client {
    throttle: Throttle,
    budget: Budget,
    retry: RetryConfig,
    rng: Pcg64Mcg,
    requests: u64,
    /// Rejected requests of a hundred that are sent.
    rejected: u64,
}

impl Client {
    fn new(policy: ThrottlePolicy, rejected: u64) -> Self {
        Self {
            throttle: Throttle::new(Timestamp::ZERO, policy),
            budget: Budget::new(Timestamp::ZERO, BudgetConfig::default()),
            retry: RetryConfig::default(),
            rng: Pcg64Mcg::seed_from_u64(1),
            requests: 0,
            rejected,
        }
    }

    /// All decisions on one request.
    fn request(&mut self) {
        let number = self.requests;
        self.requests += 1;
        let now = Timestamp::from_nanos(number * GAP);
        let criticality = Criticality::ALL[number as usize % 4];
        self.budget.on_request(now, Operation::UNKNOWN);
        for attempt in 1..=3 {
            let Verdict::Send(_) = black_box(self.throttle.ask(now, criticality, &mut self.rng)) else { return };
            let is_accepted = (number * 37 + attempt * 11) % 100 >= self.rejected;
            let outcome = if is_accepted { Outcome::Accepted } else { Outcome::Rejected };
            self.throttle.on_outcome(now, criticality, outcome);
            if is_accepted {
                return;
            }
            let failed = Attempt {
                number: attempt as u32,
                failure: Failure::Shed(Advice::None),
                repeat: Repeat::Safe,
                deadline: Some(now + Duration::from_secs(1)),
                operation: Operation::UNKNOWN,
                takes: Duration::from_millis(5),
            };
            let verdict = black_box(self.retry.decide(now, &failed, &mut self.budget, &mut self.rng));
            if let Retry::GiveUp(_) = verdict {
                return;
            }
        }
    }
}

fn main() -> ExitCode {
    println!("| policy | turned away | least, ns | median, ns | allocations |\n|:--|--:|--:|--:|--:|");
    let adaptive = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: DEFAULT_WINDOW };
    let policies = [ThrottlePolicy::Off, adaptive, ThrottlePolicy::Paced { k: Multiple::DEFAULT }];
    let mut is_good = true;
    for policy in policies {
        for rejected in [0, 10, 90] {
            is_good &= measure(policy, rejected);
        }
    }
    let is_check = std::env::args().any(|argument| argument == "--check");
    if is_check && !is_good { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether a request is within the largest cost.
fn measure(policy: ThrottlePolicy, rejected: u64) -> bool {
    let mut client = Client::new(policy, rejected);
    (0..20 * REQUESTS).for_each(|_| client.request());
    let mut found = Vec::with_capacity(MEASUREMENTS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..MEASUREMENTS {
        let begun = Instant::now();
        (0..REQUESTS).for_each(|_| client.request());
        found.push(begun.elapsed().as_secs_f64() * 1e9 / REQUESTS as f64);
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    found.sort_by(f64::total_cmp);
    let median = found[MEASUREMENTS / 2];
    println!("| {} | {rejected}% | {:.0} | {median:.0} | {allocations} |", policy.name(), found[0]);
    median <= MAX_NANOS && allocations == 0
}

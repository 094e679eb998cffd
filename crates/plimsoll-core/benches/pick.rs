//! Cost of a pick and its completion: time, instructions, allocations.
//!
//! Each policy runs at 10 to 10,000 backends, with two requests outstanding at each on average. So
//! picks and completions touch the backends in different orders, as in traffic. For comparison,
//! `tower::balance::p2c` with its `PendingRequests` load: there a pick is `poll_ready` and `call`,
//! and a completion is the end of the response future.
//!
//! A run measures many times and gives the least and the median, since other work on the machine
//! only ever adds. Criterion was rejected: it cannot count allocations, nor run under callgrind for
//! two numbers of operations, to subtract the set-up.
//!
//! ```text
//! cargo bench -p plimsoll-core --bench pick                    a table
//! cargo bench -p plimsoll-core --bench pick -- --json          one JSON object
//! cargo bench -p plimsoll-core --bench pick -- --count p2c 10 50000
//!                                                              50,000 operations only
//! ```
//!
//! Exits 1 if a pick or completion of this crate allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use plimsoll_core::pick::{HashKey, PolicyKind, ProbeSource};
use plimsoll_core::{BackendId, Balancer, BalancerConfig, Completion, LoadReport, Outcome, Pick, Timestamp, Weight};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use tower::Service;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequests};

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
const OUTSTANDING_PER_BACKEND: usize = 2;
/// Operations in one measurement: about a millisecond, so that some pass without another process on
/// this core.
const OPERATIONS: usize = 20_000;
const MEASUREMENTS: usize = 300;
/// Operations before the first measurement.
const WARM_UP: usize = 200_000;
const TOWER: &str = "tower p2c";
/// `weighted` without load reports.
const FALLBACK: &str = "weighted, no reports";
/// `prequal` with frugal live probes, the answers included.
const PROBED: &str = "prequal, live probes";
/// Virtual time between two operations.
const TICK: Duration = Duration::from_micros(10);

struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: delegates to the system's allocator; the count has no effect on memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A balancer that can pick and complete.
trait Subject {
    fn operate(&mut self, operations: usize);
}

fn key(keys: bool, rng: &mut Pcg64Mcg) -> Option<HashKey> {
    keys.then(|| HashKey::new(rng.next_u64()))
}

/// Position of the walk over active requests: they complete in another order than that of the
/// picks.
struct Walk {
    at: usize,
    step: usize,
    len: usize,
}

impl Walk {
    fn new(len: usize) -> Self {
        let step = (0..).map(|i| len * 618 / 1000 + i).find(|step| gcd(*step, len) == 1).expect("one is coprime");
        Self { at: 0, step, len }
    }

    fn next(&mut self) -> usize {
        self.at += self.step;
        if self.at >= self.len {
            self.at -= self.len;
        }
        self.at
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Ours {
    balancer: Balancer,
    rng: Pcg64Mcg,
    now: Timestamp,
    outstanding: Vec<BackendId>,
    walk: Walk,
    /// One completion in this many is a failure; zero: none.
    fails_every: usize,
    completions: usize,
    /// Whether to poll for probes, each answered at once.
    probes: bool,
    /// Whether each request has a key of its own.
    keys: bool,
}

impl Ours {
    fn new(policy: PolicyKind, backends: usize, reports: bool, fails_every: usize) -> Self {
        Self::with(BalancerConfig::new(policy), backends, reports, fails_every)
    }

    fn probed(backends: usize, fails_every: usize) -> Self {
        let mut config = BalancerConfig::new(PolicyKind::Prequal);
        config.prequal.source = ProbeSource::Frugal;
        Self { probes: true, ..Self::with(config, backends, true, fails_every) }
    }

    fn with(mut config: BalancerConfig, backends: usize, reports: bool, fails_every: usize) -> Self {
        // Ejection would change the number of backends during the measurement.
        config.outlier.consecutive_failures = None;
        let keys = config.policy == PolicyKind::Hash;
        let mut balancer = Balancer::new(config);
        let mut rng = plimsoll_testkit::seeded(1);
        let start = Timestamp::ZERO;
        let ids: Vec<_> = (0..backends).map(|_| balancer.add(start, Weight::ONE, &mut ())).collect();
        for (i, id) in ids.iter().enumerate() {
            balancer.on_connected(start, *id, &mut ());
            if reports {
                let speed = [1.0, 1.0, 2.0, 4.0][i % 4];
                let report = LoadReport { cpu_utilization: 0.5 / speed, qps: 100.0, ..LoadReport::default() };
                balancer.on_report(start, *id, &report, &mut ());
            }
        }
        // Past slow start and blackout.
        let now = start + Duration::from_secs(20);
        balancer.handle_timeout(now, &mut ());
        let outstanding: Vec<_> = (0..backends * OUTSTANDING_PER_BACKEND)
            .map(|_| {
                let key = key(keys, &mut rng);
                match balancer.pick_for(now, &mut rng, 0, &[], key) {
                    Pick::Backend(id) => id,
                    other => panic!("all are healthy, yet {other:?}"),
                }
            })
            .collect();
        let walk = Walk::new(outstanding.len());
        Self { balancer, rng, now, outstanding, walk, fails_every, completions: 0, probes: false, keys }
    }
}

impl Subject for Ours {
    fn operate(&mut self, operations: usize) {
        for _ in 0..operations {
            self.now = self.now + TICK;
            self.completions += 1;
            let failed = self.fails_every != 0 && self.completions.is_multiple_of(self.fails_every);
            let outcome = if failed { Outcome::Failure } else { Outcome::Success };
            let place = self.walk.next();
            let completion = Completion { outcome, latency: Some(Duration::from_micros(500)) };
            self.balancer.finish(self.now, self.outstanding[place], completion, &mut ());
            let key = key(self.keys, &mut self.rng);
            if let Pick::Backend(id) = self.balancer.pick_for(self.now, &mut self.rng, 0, &[], key) {
                self.outstanding[place] = id;
            }
            if self.probes {
                self.answer_probes();
            }
        }
        black_box(&self.outstanding);
    }
}

impl Ours {
    fn answer_probes(&mut self) {
        while let Some(id) = self.balancer.poll_probe(&mut self.rng) {
            let (in_flight, latency) = (Some(5), Some(Duration::from_millis(20)));
            let report = LoadReport { in_flight, latency, ..LoadReport::default() };
            self.balancer.on_report(self.now, id, &report, &mut ());
        }
    }
}

/// A service that is always ready and answers at once.
struct IdleService;

impl Service<()> for IdleService {
    type Response = ();
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<(), std::convert::Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

type TowerService = PendingRequests<IdleService, CompleteOnResponse>;
type TowerBalance = Balance<ServiceList<Vec<TowerService>>, ()>;

struct Tower {
    balance: TowerBalance,
    outstanding: Vec<<TowerBalance as Service<()>>::Future>,
    walk: Walk,
}

impl Tower {
    fn new(backends: usize) -> Self {
        let services: Vec<_> =
            (0..backends).map(|_| PendingRequests::new(IdleService, CompleteOnResponse::default())).collect();
        let mut balance = Balance::new(ServiceList::new::<()>(services));
        let outstanding: Vec<_> = (0..backends * OUTSTANDING_PER_BACKEND).map(|_| tower_pick(&mut balance)).collect();
        let walk = Walk::new(outstanding.len());
        Self { balance, outstanding, walk }
    }
}

fn tower_pick(balance: &mut TowerBalance) -> <TowerBalance as Service<()>>::Future {
    let mut context = Context::from_waker(Waker::noop());
    // A service that was just called has to become ready again, which can take a second poll.
    while balance.poll_ready(&mut context).is_pending() {}
    balance.call(())
}

impl Subject for Tower {
    fn operate(&mut self, operations: usize) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..operations {
            let place = self.walk.next();
            let done = Pin::new(&mut self.outstanding[place]).poll(&mut context).is_ready();
            assert!(done, "answers come at once");
            self.outstanding[place] = tower_pick(&mut self.balance);
        }
    }
}

/// The names of all subjects.
fn names() -> Vec<&'static str> {
    PolicyKind::ALL.iter().map(|kind| kind.name()).chain([FALLBACK, PROBED, TOWER]).collect()
}

fn subject(name: &str, backends: usize, fails_every: usize) -> Box<dyn Subject> {
    match name {
        TOWER => Box::new(Tower::new(backends)),
        FALLBACK => Box::new(Ours::new(PolicyKind::Weighted, backends, false, fails_every)),
        PROBED => Box::new(Ours::probed(backends, fails_every)),
        name => {
            let policy = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            Box::new(Ours::new(policy, backends, true, fails_every))
        }
    }
}

struct Row {
    policy: &'static str,
    backends: usize,
    failures_percent: u32,
    least_ns: f64,
    median_ns: f64,
    allocations: u64,
}

fn measure(policy: &'static str, backends: usize, failures_percent: u32) -> Row {
    let fails_every = if failures_percent == 0 { 0 } else { 100 / failures_percent as usize };
    let mut subject = subject(policy, backends, fails_every);
    subject.operate(WARM_UP);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    subject.operate(OPERATIONS);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let mut times: Vec<f64> = (0..MEASUREMENTS)
        .map(|_| {
            let start = Instant::now();
            subject.operate(OPERATIONS);
            start.elapsed().as_secs_f64() * 1e9 / OPERATIONS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Row { policy, backends, failures_percent, least_ns: times[0], median_ns: times[times.len() / 2], allocations }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, policy, backends, operations] = arguments.as_slice()
        && flag == "--count"
    {
        let number = |text: &String| text.parse().expect("a whole number");
        subject(policy, number(backends), 0).operate(number(operations));
        return ExitCode::SUCCESS;
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let only: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let mut rows = Vec::new();
    for policy in names() {
        if !only.is_empty() && !only.iter().any(|name| *name == policy) {
            continue;
        }
        for backends in SIZES {
            for failures_percent in if policy == TOWER { vec![0] } else { vec![0, 1] } {
                let row = measure(policy, backends, failures_percent);
                if !json {
                    println!(
                        "{:<22}{:>7} backends  {}% failures  {:>7.1} ns ({:>7.1} median)  {:.2} allocations",
                        row.policy,
                        row.backends,
                        row.failures_percent,
                        row.least_ns,
                        row.median_ns,
                        row.allocations as f64 / OPERATIONS as f64,
                    );
                }
                rows.push(row);
            }
        }
    }
    if json {
        let rows: Vec<_> = rows.iter().map(row_as_json).collect();
        println!("{}", serde_json::json!({ "operations": OPERATIONS, "measurements": MEASUREMENTS, "rows": rows }));
    }
    let allocating: Vec<_> = rows.iter().filter(|row| row.policy != TOWER && row.allocations > 0).collect();
    for row in &allocating {
        eprintln!("{} allocates with {} backends: {} times", row.policy, row.backends, row.allocations);
    }
    if allocating.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn row_as_json(row: &Row) -> serde_json::Value {
    serde_json::json!({
        "policy": row.policy,
        "backends": row.backends,
        "failures_percent": row.failures_percent,
        "least_ns": row.least_ns,
        "median_ns": row.median_ns,
        "allocations_per_operation": row.allocations as f64 / OPERATIONS as f64,
    })
}

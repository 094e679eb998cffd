//! Cost of each layer for a request that passes, over a service that is ready at once. A run takes
//! many measurements and reports the least and the median: other work on the machine only adds.
//! Allocations are counted. The clock is the real one, which takes most of the time.
//!
//! ```text
//! cargo bench -p plimsoll-tower --bench layers               a table
//! cargo bench -p plimsoll-tower --bench layers -- --check    exit 1 above a limit or on allocation
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use plimsoll_core::BalancerConfig;
use plimsoll_core::admit::{AdmissionConfig, Mode, QueueConfig};
use plimsoll_tower::balance::ServiceList;
use plimsoll_tower::shed::Gate;
use plimsoll_tower::{Balance, ByResult, ConcurrencyLayer, RetryLayer, ShedLayer, ThrottleLayer};
use tower::{Layer as _, Service};

/// Requests in one measurement: some tenths of a millisecond.
const REQUESTS: u64 = 5_000;
const MEASUREMENTS: usize = 400;

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

/// A service that answers at once.
#[derive(Clone)]
struct AtOnce;

impl Service<u64> for AtOnce {
    type Response = u64;
    type Error = Infallible;
    type Future = std::future::Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        std::future::ready(Ok(black_box(request)))
    }
}

struct Cost {
    least: f64,
    median: f64,
    allocations: u64,
}

fn measure<S: Service<u64, Response = u64>>(mut service: S) -> Cost {
    let mut cx = Context::from_waker(Waker::noop());
    let mut run = |requests: u64| {
        for number in 0..requests {
            assert!(service.poll_ready(&mut cx).is_ready());
            let future = pin!(service.call(number));
            let Poll::Ready(result) = future.poll(&mut cx) else { panic!("it is ready at once") };
            black_box(result.is_ok());
        }
    };
    run(REQUESTS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(REQUESTS);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let mut nanos: Vec<f64> = (0..MEASUREMENTS)
        .map(|_| {
            let begun = Instant::now();
            run(REQUESTS);
            begun.elapsed().as_nanos() as f64 / REQUESTS as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    Cost { least: nanos[0], median: nanos[MEASUREMENTS / 2], allocations }
}

fn main() -> ExitCode {
    let is_check = std::env::args().any(|argument| argument == "--check");
    let clock = {
        let begun = Instant::now();
        for _ in 0..1_000_000 {
            black_box(Instant::now());
        }
        begun.elapsed().as_nanos() as f64 / 1e6
    };
    // The real capacity of this machine would shed.
    let gate = Gate::new(AdmissionConfig::new(1e6).expect("CPUs"), Mode::Protect);
    let slots = QueueConfig::new(8).expect("not zero");
    let bare = measure(AtOnce);
    let services = || ServiceList::new((0..8).map(|name| (name, AtOnce)));
    let rows = [
        ("throttle", Some(60.0), measure(ThrottleLayer::new(ByResult).layer(AtOnce))),
        ("retry", None, measure(RetryLayer::new(ByResult).layer(AtOnce))),
        ("concurrency", None, measure(ConcurrencyLayer::new(slots, ByResult).layer(AtOnce))),
        ("shed", Some(250.0), measure(ShedLayer::with(gate, ByResult).layer(AtOnce))),
        ("balance", None, measure(Balance::new(BalancerConfig::default(), services(), ByResult))),
    ];
    println!("reading the clock: {clock:.1} ns; without a layer: {:.1} ns", bare.least);
    println!("{:<12} {:>9} {:>9} {:>9} {:>12}", "layer", "least ns", "median ns", "limit", "allocations");
    let mut is_good = true;
    for (name, limit, Cost { least, median, allocations }) in rows {
        let least = least - bare.least;
        let text = limit.map_or_else(|| "-".to_owned(), |limit: f64| format!("{limit:.0}"));
        println!("{name:<12} {least:>9.1} {:>9.1} {text:>9} {allocations:>12}", median - bare.median);
        is_good &= allocations == 0 && limit.is_none_or(|limit| least <= limit);
    }
    if is_check && !is_good { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

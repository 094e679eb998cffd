//! Cost of computing one client's subset: time, and peak memory.
//!
//! Each algorithm with 10 to 10,000 equal backends, and with 9,999 in three zones and of two sizes,
//! at the default subset size. Also one event of the ledger with 10,000 clients. The client differs
//! each time. Gives the least and the median of many calls, since other work on the machine only
//! ever adds.
//!
//! ```text
//! cargo bench -p plimsoll-core --bench subset
//! ```
//!
//! Exits 1 if a subset of 10,000 backends takes over 1 ms (the median) or over 1 MB.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::Weight;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::subset::{Algorithm, Backend, Client, SubsetConfig, order};

const SIZES: [u32; 4] = [10, 100, 1_000, 10_000];
const CLIENTS: u32 = 10_000;
const MEASUREMENTS: u32 = 2_000;
const EVENTS: u32 = 50;
const MAX_TIME: Duration = Duration::from_millis(1);
const MAX_BYTES: usize = 1_000_000;

struct MeasuringAllocator;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: delegates to the system's allocator; the counts have no effect on memory.
unsafe impl GlobalAlloc for MeasuringAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

/// The least and the median time of `calls` calls.
fn time(calls: u32, mut call: impl FnMut(u32)) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..calls)
        .map(|i| {
            let start = Instant::now();
            call(i);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    (times[0], times[times.len() / 2])
}

/// Peak memory of `call`, in bytes.
fn bytes(call: impl FnOnce()) -> usize {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    call();
    PEAK.load(Ordering::Relaxed) - before
}

fn alike(n: u32) -> Vec<Backend> {
    (0..n).map(|i| Backend { key: u64::from(i), domain: 0, weight: Weight::ONE }).collect()
}

fn mixed(n: u32) -> Vec<Backend> {
    let heavy = Weight::new(2.0).expect("2 is in range");
    let weight = |i: u32| if i.is_multiple_of(2) { Weight::ONE } else { heavy };
    alike(n).into_iter().zip(0..).map(|(b, i)| Backend { domain: i % 3, weight: weight(i), ..b }).collect()
}

fn orders(name: &str, backends: &[Backend]) -> bool {
    let mut good = true;
    for algorithm in Algorithm::ALL.into_iter().filter(|a| *a != Algorithm::Ledger) {
        let config = SubsetConfig { algorithm, size: SubsetConfig::DEFAULT_SIZE, seed: 1 };
        let call = |i: u32| {
            black_box(
                order(&config, Client::numbered(i % CLIENTS), black_box(backends)).expect("clients are numbered"),
            );
        };
        let (least, median) = time(MEASUREMENTS, call);
        let bytes = bytes(|| call(0));
        println!("{:14} {name:>14}  {:>9.1?}  {:>9.1?}  {bytes:>7} B", algorithm.name(), least, median);
        good &= median <= MAX_TIME && bytes <= MAX_BYTES;
    }
    good
}

fn ledger(name: &str, backends: &[Backend]) {
    let mut ledger = Ledger::new(SubsetConfig::DEFAULT_SIZE, 1);
    for backend in backends {
        ledger.add_backend(backend);
    }
    let start = Instant::now();
    for client in 0..CLIENTS {
        ledger.add_client(u64::from(client));
    }
    println!("ledger         {name:>14}  {:>9.1?} for all {CLIENTS} clients", start.elapsed());
    let key = |i: u32| u64::from(i % backends.len() as u32);
    let client = |i: u32| u64::from(i % CLIENTS);
    type Event<'a> = (&'a str, &'a dyn Fn(&mut Ledger, u32));
    let events: [Event<'_>; 4] = [
        ("backend leaves", &|ledger, i| drop(ledger.remove_backend(key(i)))),
        ("backend comes", &|ledger, i| drop(ledger.add_backend(&backends[key(i) as usize]))),
        ("client leaves", &|ledger, i| drop(ledger.remove_client(client(i)))),
        ("client comes", &|ledger, i| drop(ledger.add_client(client(i)))),
    ];
    let events_at_once = EVENTS.min(backends.len() as u32 / 4);
    for (what, event) in events {
        let (least, median) = time(events_at_once, |i| event(&mut ledger, i));
        println!("  {what:14} {:>12}  {least:>9.1?}  {median:>9.1?}", "");
    }
}

fn main() -> ExitCode {
    println!("{:14} {:>14}  {:>9}  {:>9}  {:>9}", "algorithm", "backends", "least", "median", "memory");
    let mut good = true;
    for n in SIZES {
        good &= orders(&n.to_string(), &alike(n));
    }
    // One less: `deterministic` has more work if the subset size does not divide the number.
    good &= orders("9999", &alike(9_999));
    good &= orders("9999 mixed", &mixed(9_999));
    for n in [50, 10_000] {
        ledger(&n.to_string(), &alike(n));
        ledger(&format!("{n} mixed"), &mixed(n));
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! No layer allocates for a request that passes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plimsoll_core::BalancerConfig;
use plimsoll_core::admit::{AdmissionConfig, Mode, QueueConfig};
use plimsoll_tower::balance::ServiceList;
use plimsoll_tower::shed::Gate;
use plimsoll_tower::{Balance, ByResult, ConcurrencyLayer, RetryLayer, ShedLayer, ThrottleLayer};
use tower::{Layer as _, Service, service_fn};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: passes each call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

fn allocations<S: Service<u64, Response = u64>>(mut service: S) -> u64 {
    let mut cx = Context::from_waker(Waker::noop());
    let mut run = |requests: u64| {
        for number in 0..requests {
            assert!(service.poll_ready(&mut cx).is_ready());
            let future = pin!(service.call(number));
            assert!(matches!(future.poll(&mut cx), Poll::Ready(Ok(answer)) if answer == number));
        }
    };
    run(100);
    let before = ALLOCATIONS.get();
    run(1_000);
    ALLOCATIONS.get() - before
}

#[test]
fn layer_does_not_allocate_when_a_request_passes() {
    let echo = || service_fn(|number: u64| std::future::ready(Ok::<_, Infallible>(number)));
    let gate = Gate::new(AdmissionConfig::new(1e6).expect("CPUs"), Mode::Protect);
    let slots = QueueConfig::new(1).expect("not zero");
    let services = ServiceList::new((0..8).map(|name| (name, echo())));
    for (name, allocations) in [
        ("bare", allocations(echo())),
        ("throttle", allocations(ThrottleLayer::new(ByResult).layer(echo()))),
        ("retry", allocations(RetryLayer::new(ByResult).layer(echo()))),
        ("concurrency", allocations(ConcurrencyLayer::new(slots, ByResult).layer(echo()))),
        ("shed", allocations(ShedLayer::with(gate, ByResult).layer(echo()))),
        ("balance", allocations(Balance::new(BalancerConfig::default(), services, ByResult))),
    ] {
        assert_eq!(allocations, 0, "{name}");
    }
    assert!(
        allocations(service_fn(|number: u64| {
            let boxed = Box::new(number);
            async move { Ok::<_, Infallible>(*std::hint::black_box(boxed)) }
        })) >= 1_000
    );
}

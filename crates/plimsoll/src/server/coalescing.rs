//! Sheds requests in batches, on threads that are otherwise idle.
//!
//! Shedding a request costs a few microseconds. Waking a thread for it costs several times as much,
//! so at ten times the capacity the wake-ups are the loss. A runtime with this [`pause`] sleeps up
//! to two milliseconds before it waits for more work, while requests are shed by the hundred:
//!
//! ```
//! let runtime = tokio::runtime::Builder::new_current_thread()
//!     .enable_all()
//!     .on_thread_park(plimsoll::server::coalescing::pause)
//!     .build()?;
//! # std::io::Result::Ok(())
//! ```
//!
//! Threads that shed nothing never pause.

// Source and figures: decision 26 in `docs/decisions/`.

use std::cell::RefCell;
use std::time::Duration;

use plimsoll_core::admit::{Coalescing, Shed};

use crate::clock::Clock;

thread_local! {
    static THREAD: RefCell<(Clock, Coalescing)> = RefCell::new((Clock::start(), Coalescing::default()));
}

/// Notes that this thread has shed a request.
///
/// [`ServerLayer`](super::ServerLayer) calls it by itself. It is for users of the gate in
/// [`plimsoll_core`].
pub fn note_shed(shed: &Shed) {
    // A thread that ends has no more to count.
    let _ = THREAD.try_with(|thread| {
        let (clock, coalescing) = &mut *thread.borrow_mut();
        coalescing.on_shed(clock.now(), shed);
    });
}

/// Sleeps while this thread should shed in batches. Mostly returns at once.
pub fn pause() {
    let pause = due();
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

fn due() -> Duration {
    let due = THREAD.try_with(|thread| {
        let (clock, coalescing) = &mut *thread.borrow_mut();
        if coalescing.is_due() { coalescing.pause(clock.now()) } else { Duration::ZERO }
    });
    due.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Waker};
    use std::time::Instant;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{Empty, Full};
    use tower::{Layer as _, Service as _};

    use super::*;
    use crate::server::{Lifecycle, Quota, ServerLayer, ServerLayerBuilder};

    /// The longest pause that is due while a thread turns requests away for a fifth of a second, up
    /// to ten thousand a second.
    async fn longest(server: impl FnOnce(ServerLayerBuilder) -> ServerLayerBuilder) -> Duration {
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        let layer = server(ServerLayer::builder(lifecycle).cpus(1.0)).build();
        let mut service = layer.layer(tower::service_fn(|_: Request<Empty<Bytes>>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        let mut kept = Vec::new();
        let mut longest = Duration::ZERO;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(2));
            for _ in 0..20 {
                let mut asked = Box::pin(service.call(Request::new(Empty::new())));
                // The request either stays pending for ever or is shed.
                if std::future::Future::poll(asked.as_mut(), &mut Context::from_waker(Waker::noop())).is_pending() {
                    kept.push(asked);
                }
            }
            longest = longest.max(due());
        }
        assert_eq!(due(), Duration::ZERO, "nothing was turned away since");
        longest
    }

    #[tokio::test]
    async fn a_thread_pauses_that_turns_many_away_for_want_of_cpu() {
        assert!(longest(|server| server).await > Duration::ZERO);
        assert_eq!(longest(|server| server.default_quota(Quota::hard(1e-6).unwrap())).await, Duration::ZERO);
        assert_eq!(longest(|server| server.admission(None)).await, Duration::ZERO);
    }
}

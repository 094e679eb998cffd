//! Ends a response that the client does not take, and nothing else of its connection.
//!
//! hyper takes a body's next frame when the stream has window and space, and does not poll before;
//! that may last for any time. A body cannot see it: it is merely not polled. Only the task that
//! drives the stream can end it. So each stream's task is wrapped. The body records the side that
//! it waits for ([`Flow`]). When the task finds twice in a row that the client had data to read and
//! read nothing, it drops the stream. Then h2 resets it, and the backend's connection is released.
//!
//! A timer is armed only where a response waits for its client, once per response and not per wait.
//! Small responses and flowing ones cost none.
//!
//! ```text
//! idle_timeout / 2 between looks; ended at the second look that finds nothing taken: after ½ to 1 idle_timeout more
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

/// The side that a response waits for, shared by its body and its task.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Frames given to the protocol, twice, and one more while the backend is waited for.
    state: AtomicU32,
}

// One thread drives a stream; relaxed atomics are plain loads and stores.
impl Flow {
    /// There is something for the client: the head of the response, or a frame of its body.
    pub(crate) fn give(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store((state & !1).wrapping_add(2), Ordering::Relaxed);
    }

    /// The backend has nothing more at the moment.
    pub(crate) fn wait_for_backend(&self) {
        self.state.store(self.state.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// The count of frames given, if the client is waited for.
    fn given(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Relaxed);
        (state > 1 && state & 1 == 0).then_some(state)
    }
}

/// Spawns the streams of one connection; hyper's executor. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct StreamTasks {
    idle_timeout: Duration,
    on_stall: Arc<dyn Stalled>,
    /// The request that was begun and whose task comes next: hyper calls the service and spawns the
    /// task in one go.
    next: Arc<Mutex<Option<Arc<Flow>>>>,
}

/// Hears of a stream that was ended because its client read nothing.
pub(crate) trait Stalled: Send + Sync + std::fmt::Debug {
    /// One was.
    fn on_stalled_stream(&self);
}

impl StreamTasks {
    pub(crate) fn new(idle_timeout: Duration, on_stall: Arc<dyn Stalled>) -> Self {
        Self { idle_timeout, on_stall, next: Arc::default() }
    }

    /// A request begins. To be called by the service itself, not by the future that it returns.
    pub(crate) fn begin(&self) -> Arc<Flow> {
        let flow = Arc::<Flow>::default();
        *self.next.lock() = Some(Arc::clone(&flow));
        flow
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for StreamTasks {
    fn execute(&self, task: F) {
        match self.next.lock().take() {
            Some(flow) => {
                let (idle_timeout, on_stall) = (self.idle_timeout, Arc::clone(&self.on_stall));
                tokio::spawn(Watched { task, flow, idle_timeout, on_stall, next_look: None, seen: None });
            }
            // The task of an upgrade: a tunnel, which has time limits of its own.
            None => drop(tokio::spawn(task)),
        }
    }
}

pin_project! {
    /// A stream's task, which ends early when the client takes nothing for too long.
    struct Watched<F> {
        #[pin]
        task: F,
        flow: Arc<Flow>,
        idle_timeout: Duration,
        on_stall: Arc<dyn Stalled>,
        next_look: Option<Pin<Box<Sleep>>>,
        // The count of frames at the last look.
        seen: Option<u32>,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.task.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let between = *this.idle_timeout / 2;
        let given = this.flow.given();
        if this.next_look.is_none() {
            if given.is_none() {
                return Poll::Pending;
            }
            *this.next_look = Some(Box::pin(tokio::time::sleep(between)));
        }
        let Some(next_look) = this.next_look else { return Poll::Pending };
        loop {
            ready!(next_look.as_mut().poll(cx));
            if given.is_some() && *this.seen == given {
                this.on_stall.on_stalled_stream();
                return Poll::Ready(());
            }
            *this.seen = given;
            next_look.as_mut().reset(Instant::now() + between);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use hyper::rt::Executor as _;
    use tokio::time::sleep;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Stalled for Count {
        fn on_stalled_stream(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many streams were ended of one whose task does `deed` with its flow and then never ends.
    async fn ended<D: Future<Output = ()> + Send + 'static>(
        deed: impl FnOnce(Arc<Flow>) -> D,
        within: Duration,
    ) -> usize {
        let count = Arc::new(Count::default());
        let tasks = StreamTasks::new(IDLE, Arc::clone(&count) as Arc<dyn Stalled>);
        let deed = deed(tasks.begin());
        tasks.execute(async move {
            deed.await;
            std::future::pending::<()>().await;
        });
        sleep(within).await;
        count.0.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_loses_the_stream() {
        let give = |flow: Arc<Flow>| async move { flow.give() };
        assert_eq!(ended(give, IDLE * 9 / 10).await, 0);
        assert_eq!(ended(give, IDLE * 3 / 2).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_little_keeps_it() {
        let give_now_and_then = |flow: Arc<Flow>| async move {
            for _ in 0..10 {
                flow.give();
                sleep(IDLE * 4 / 10).await;
            }
            flow.wait_for_backend();
        };
        assert_eq!(ended(give_now_and_then, IDLE * 20).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_is_silent_costs_no_client_its_stream() {
        let wait = |flow: Arc<Flow>| async move { flow.wait_for_backend() };
        assert_eq!(ended(wait, IDLE * 20).await, 0);
        assert_eq!(ended(|_| async {}, IDLE * 20).await, 0);
        let give_then_wait = |flow: Arc<Flow>| async move {
            flow.give();
            sleep(IDLE / 4).await;
            flow.wait_for_backend();
        };
        assert_eq!(ended(give_then_wait, IDLE * 20).await, 0);
    }
}

//! Burns the CPU that a request costs: a server bound by CPU, with a number of cores of its own.
//!
//! Each core is a thread that serves a queue first come, first served. What a request has used is
//! read from the thread's own CPU clock, not from the wall: on a busy machine a thread is off the CPU
//! for much of the time, and by the wall clock the cost of a request would shrink just when the
//! machine is overloaded. So overload behaves as in a real server: the queue grows, and the CPU-seconds
//! per request stay what they were.
//!
//! A request whose client has gone before its turn is not worked on, as in any async server that drops
//! the handler; one that has begun is worked on to its end.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use plimsoll::server::bind;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

/// Rounds of arithmetic between two looks at the clock, some microseconds: short beside any cost worth
/// setting, long beside the third of a microsecond that a look takes.
const ROUNDS_PER_LOOK: u32 = 4_000;

/// Threads that burn CPU. They end when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Cores {
    shared: Arc<Owner>,
}

struct Owner(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    done: oneshot::Sender<()>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Cores {
    /// Starts the threads.
    pub(crate) fn start(count: NonZeroUsize) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        for core in 0..count.get() {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("core-{core}")).spawn(move || work(&queue))?;
        }
        Ok(Self { shared: Arc::new(Owner(queue)) })
    }

    /// Returns when a core has spent `cost` of CPU on this call.
    pub(crate) async fn spend(&self, cost: Duration) {
        if cost.is_zero() {
            return;
        }
        let (done, finished) = oneshot::channel();
        let queue = &self.shared.0;
        // So that it is charged to the request, where that is measured.
        let work = Box::new(bind(move || burn(cost)));
        queue.state.lock().jobs.push_back(Job { work, done });
        queue.changed.notify_one();
        // The sender is lost only with its thread, which ends after `self` is gone.
        let _ = finished.await;
    }
}

fn work(queue: &Queue) {
    loop {
        let job = {
            let mut state = queue.state.lock();
            loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.closed {
                    return;
                }
                queue.changed.wait(&mut state);
            }
        };
        if !job.done.is_closed() {
            (job.work)();
            let _ = job.done.send(());
        }
    }
}

/// Uses this much CPU on the calling thread.
fn burn(cost: Duration) {
    let end = thread_cpu().saturating_add(cost);
    let mut number = 1_u64;
    while thread_cpu() < end {
        for _ in 0..ROUNDS_PER_LOOK {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// CPU that the calling thread has used.
fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_uses_the_cost_and_hardly_more() {
        let cost = Duration::from_millis(5);
        // The smallest of a few, for an interrupt may fall into any one of them.
        let used = (0..5)
            .map(|_| {
                let before = thread_cpu();
                burn(cost);
                thread_cpu() - before
            })
            .min()
            .unwrap();
        assert!(used >= cost && used < cost * 2, "{used:?}");
    }

    #[tokio::test]
    async fn every_request_is_served_and_a_free_one_does_not_queue() {
        let cores = Cores::start(NonZeroUsize::MIN).unwrap();
        cores.spend(Duration::ZERO).await;
        let cost = Duration::from_micros(100);
        tokio::join!(cores.spend(cost), cores.spend(cost), cores.spend(cost));
        assert!(cores.shared.0.state.lock().jobs.is_empty());
    }

    #[test]
    fn a_request_whose_client_has_gone_is_not_worked_on() {
        let queue = Queue::default();
        let (done, finished) = oneshot::channel();
        drop(finished);
        queue.state.lock().jobs.push_back(Job { work: Box::new(|| unreachable!("nobody waits for it")), done });
        queue.state.lock().closed = true;
        work(&queue);
    }
}

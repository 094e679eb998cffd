//! Steps of a connection's task: long bodies leave half of a thread to usual requests.
//!
//! [`plimsoll_core::turns`] decides which step is bulk, and which is next. Here a step is
//! bounded, and a connection without a turn waits.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_core::turns::{self, Streak, Ticket, Turn};

use crate::connection::activity::{Activity, Stage};

/// The bulk steps of one thread.
#[derive(Debug)]
pub(crate) struct Turns {
    begun: Instant,
    turns: Mutex<turns::Turns<Waker>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { begun: Instant::now(), turns: Mutex::default() }
    }
}

impl Turns {
    /// Ready when a bulk step may begin; says when it did.
    fn poll_take(self: &Arc<Self>, ticket: &mut Option<Ticket>, cx: &Context<'_>) -> Poll<Duration> {
        let now = self.begun.elapsed();
        let turn = self.turns.lock().take(Timestamp::from_origin(now), *ticket, cx.waker());
        match turn {
            Turn::Now => {
                *ticket = None;
                Poll::Ready(now)
            }
            Turn::Later { ticket: place, begins_passes } => {
                *ticket = Some(place);
                if begins_passes {
                    tokio::spawn(Arc::clone(self).pass());
                }
                Poll::Pending
            }
        }
    }

    fn end(&self, began: Duration) {
        let now = self.begun.elapsed();
        let next = self.turns.lock().end(Timestamp::from_origin(now), now.saturating_sub(began));
        if let Some(next) = next {
            next.wake();
        }
    }

    /// Calls a waiting connection in each pass of the thread over all its work.
    async fn pass(self: Arc<Self>) {
        loop {
            // Goes on once the runtime has looked at all sockets.
            tokio::task::yield_now().await;
            let next = self.turns.lock().pass();
            match next {
                Some(next) => next.wake(),
                None => return,
            }
        }
    }
}

/// The steps of one connection.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    streak: Streak,
    /// Its place in line, while a step waits.
    ticket: Option<Ticket>,
}

impl Steps {
    /// Does a step, once it may be done.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        turns: &Arc<Turns>,
        activity: &Activity,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let began = if self.streak.is_bulk() { Some(ready!(turns.poll_take(&mut self.ticket, cx))) } else { None };
        activity.begin_step(self.streak.allowance());
        let polled = step(cx);
        // The pieces of a head are not counted.
        let of_head = u32::from(activity.stage() == Stage::Head);
        self.streak.on_step(activity.events(), activity.moved_in_step().saturating_add(of_head));
        if let Some(began) = began {
            turns.end(began);
        }
        polled
    }
}

/// Whether the present step has moved all that one may. The task is woken for the next step, after
/// the runtime has looked at all sockets.
pub(crate) fn is_step_over(cx: &mut Context<'_>, activity: &Activity) -> bool {
    let is_over = activity.is_step_over();
    if is_over {
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }
    is_over
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// Long enough that one step uses up the credit.
    const STEP: Duration = Duration::from_millis(2);

    /// A connection with this number of steps; in each it moves a byte of an answer.
    async fn carry(turns: Arc<Turns>, count: usize, mut on_step: impl FnMut()) {
        let (activity, mut steps, mut done) = (Activity::default(), Steps::default(), 0);
        activity.begin();
        poll_fn(|cx| {
            steps.poll(cx, &turns, &activity, |cx| {
                activity.on_sent(1);
                on_step();
                done += 1;
                if done == count {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        })
        .await;
    }

    /// Takes as long as a step does.
    fn work() {
        let begun = Instant::now();
        while begun.elapsed() < STEP {
            std::hint::spin_loop();
        }
    }

    #[tokio::test]
    async fn other_work_has_its_turn_between_two_bulk_steps() {
        let (turns, since, most, over) = (
            Arc::<Turns>::default(),
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicUsize>::default(),
            AtomicBool::new(false),
        );
        // The first steps of a connection are free.
        let crowd: Vec<_> = (0..8)
            .map(|_| {
                let (since, most, mut steps) = (since.clone(), most.clone(), 0);
                tokio::spawn(carry(turns.clone(), 12, move || {
                    steps += 1;
                    if steps > 5 {
                        work();
                        most.fetch_max(since.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                }))
            })
            .collect();
        let others = async {
            while !over.load(Ordering::Relaxed) {
                since.store(0, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        let all = async {
            for each in crowd {
                each.await.unwrap();
            }
            over.store(true, Ordering::Relaxed);
        };
        tokio::join!(others, all);
        // One by credit, and one by the pass.
        assert!((1..=2).contains(&most.load(Ordering::Relaxed)), "{most:?} steps in a row");
    }

    #[tokio::test]
    async fn usual_request_never_waits_for_its_turn() {
        let turns = Arc::<Turns>::default();
        let crowd: Vec<_> = (0..4).map(|_| tokio::spawn(carry(turns.clone(), 50, work))).collect();
        let (activity, mut steps, mut cx) = (Activity::default(), Steps::default(), Context::from_waker(Waker::noop()));
        for _ in 0..100 {
            activity.begin();
            assert!(steps.poll(&mut cx, &turns, &activity, |_| Poll::Ready(())).is_ready(), "its head");
            activity.on_sent(1);
            activity.end();
            assert!(steps.poll(&mut cx, &turns, &activity, |_| Poll::Ready(())).is_ready(), "its answer");
            tokio::task::yield_now().await;
        }
        crowd.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn connection_that_left_the_line_delays_no_other() {
        let turns = Arc::<Turns>::default();
        let crowd: Vec<_> = (0..4).map(|_| tokio::spawn(carry(turns.clone(), 8, work))).collect();
        for _ in 0..6 {
            tokio::task::yield_now().await;
        }
        assert!(!turns.turns.lock().is_idle(), "some wait");
        crowd[0].abort();
        crowd[2].abort();
        for (at, each) in crowd.into_iter().enumerate() {
            assert_eq!(each.await.is_ok(), at % 2 == 1);
        }
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(turns.turns.lock().is_idle());
    }

    #[tokio::test]
    async fn step_ends_with_the_bytes_that_one_may_move() {
        let (activity, mut steps) = (Activity::default(), 0);
        poll_fn(|cx| {
            activity.begin_step(250 * 1024);
            steps += 1;
            for _ in 0..4 {
                activity.on_sent(100 * 1024);
                if is_step_over(cx, &activity) {
                    return Poll::Pending;
                }
                if activity.sent() >= 1024 * 1024 {
                    return Poll::Ready(());
                }
            }
            unreachable!("{} bytes in a step", activity.moved_in_step());
        })
        .await;
        assert_eq!(steps, 4);
    }
}

//! Handshakes take turns: each thread does one step of one handshake, then all other work.
//!
//! A step of a handshake takes as long as a dozen requests. When thousands of clients connect at
//! once, as after a restart of a balancer in front, thousands of steps are due at once. Done in
//! order of arrival, they would delay every open connection. So between two steps the runtime polls
//! all sockets and tasks once. On an idle thread the next step follows at once: a crowd is admitted
//! as fast as the thread can, and no rate has to be configured.
//!
//! A handshake that has begun goes first, otherwise the order of arrival counts. The first step is
//! the expensive one, and is wasted if the last comes too late. So some of a crowd that is too
//! large get in, instead of all of them too late.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll_core::turns::{Line, Ticket};

/// The turns of one thread.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// A step was done, and the others have not had theirs yet.
    is_taken: bool,
    /// Handshakes that have begun.
    begun: Line<Waker>,
    new: Line<Waker>,
}

impl Queue {
    fn line(&mut self, has_begun: bool) -> &mut Line<Waker> {
        if has_begun { &mut self.begun } else { &mut self.new }
    }

    /// Calls the next ticket.
    fn next(&mut self) -> Option<Waker> {
        self.begun.call().or_else(|| self.new.call())
    }
}

/// The cost of handshakes, and the number that wait.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    waiting: AtomicUsize,
    nanos: AtomicU64,
}

impl Steps {
    /// Handshakes that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Time of threads that was spent on handshakes.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// A future whose polls wait for their turn.
pub(crate) struct InTurn<'a, F> {
    turns: &'a Arc<Turns>,
    steps: &'a Steps,
    /// A step of it was done.
    has_begun: bool,
    /// Its place in its line.
    ticket: Option<Ticket>,
    future: F,
}

impl<'a, F> InTurn<'a, F> {
    pub(crate) fn new(turns: &'a Arc<Turns>, steps: &'a Steps, future: F) -> Self {
        Self { turns, steps, has_begun: false, ticket: None, future }
    }

    fn set_ticket(&mut self, ticket: Option<Ticket>) {
        match (self.ticket, ticket) {
            (None, Some(_)) => _ = self.steps.waiting.fetch_add(1, Ordering::Relaxed),
            (Some(_), None) => _ = self.steps.waiting.fetch_sub(1, Ordering::Relaxed),
            (None, None) | (Some(_), Some(_)) => {}
        }
        self.ticket = ticket;
    }
}

impl<F: Future + Unpin> Future for InTurn<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Err(ticket) = self.turns.take(self.has_begun, self.ticket, cx.waker()) {
            self.set_ticket(Some(ticket));
            return Poll::Pending;
        }
        self.set_ticket(None);
        self.has_begun = true;
        let began = Instant::now();
        let polled = Pin::new(&mut self.future).poll(cx);
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.steps.nanos.fetch_add(took, Ordering::Relaxed);
        polled
    }
}

impl<F> Drop for InTurn<'_, F> {
    /// The ticket stays in the queue: when it is called, a turn passes by unused.
    fn drop(&mut self) {
        self.set_ticket(None);
    }
}

impl Turns {
    /// Takes the turn, or else says which ticket to come back with once `waker` is woken.
    fn take(self: &Arc<Self>, has_begun: bool, ticket: Option<Ticket>, waker: &Waker) -> Result<(), Ticket> {
        let mut queue = self.0.lock();
        match ticket {
            // Not called: woken by something else, such as more bytes.
            Some(ticket) if queue.line(has_begun).is_called(ticket, waker) => Ok(()),
            Some(ticket) => Err(ticket),
            None if queue.is_taken => Err(queue.line(has_begun).enter(waker)),
            None => {
                queue.is_taken = true;
                tokio::spawn(Arc::clone(self).pass_on());
                Ok(())
            }
        }
    }

    /// Gives the turn to the waiting handshakes, one at a time, with all other work between two.
    async fn pass_on(self: Arc<Self>) {
        loop {
            // Goes on once the runtime has looked at all sockets.
            tokio::task::yield_now().await;
            let mut queue = self.0.lock();
            let Some(next) = queue.next() else {
                queue.is_taken = false;
                return;
            };
            drop(queue);
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// As many polls as this says are due at once, of one future.
    struct Polls(u32);

    impl Future for Polls {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.0 -= 1;
            if self.0 == 0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    /// The work done, in order: a handshake's number, or none for other work.
    type Log = Arc<Mutex<Vec<Option<usize>>>>;

    #[tokio::test]
    async fn other_work_has_its_turn_between_two_steps() {
        let (turns, steps, log, over) =
            (Arc::<Turns>::default(), Arc::<Steps>::default(), Log::default(), AtomicBool::new(false));
        let crowd: Vec<_> = (0..20)
            .map(|number| {
                let (turns, steps, log) = (turns.clone(), steps.clone(), log.clone());
                tokio::spawn(async move {
                    InTurn::new(&turns, &steps, Box::pin(async { log.lock().push(Some(number)) })).await;
                })
            })
            .collect();
        let others = async {
            while !over.load(Ordering::Relaxed) {
                log.lock().push(None);
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
        let log = log.lock();
        assert!(log.windows(2).all(|pair| pair.iter().any(Option::is_none)), "two steps in a row: {log:?}");
        assert!(log.iter().flatten().is_sorted(), "first come, first served: {log:?}");
        assert_eq!((log.iter().flatten().count(), steps.waiting()), (20, 0));
    }

    #[tokio::test]
    async fn begun_handshake_is_finished_before_another_begins() {
        /// Two steps, each logged.
        struct Handshake(usize, u32, Log);
        impl Future for Handshake {
            type Output = ();
            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                self.2.lock().push(Some(self.0));
                self.1 += 1;
                if self.1 == 2 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
        let (turns, steps, log) = (Arc::<Turns>::default(), Arc::<Steps>::default(), Log::default());
        let crowd: Vec<_> = (0..10)
            .map(|number| {
                let (turns, steps, log) = (turns.clone(), steps.clone(), log.clone());
                tokio::spawn(async move { InTurn::new(&turns, &steps, Handshake(number, 0, log)).await })
            })
            .collect();
        for each in crowd {
            each.await.unwrap();
        }
        // The next is called while the last one's bytes come back, so two are under way at most.
        let log = log.lock();
        let ends: Vec<_> = (0..10).map(|number| log.iter().rposition(|step| *step == Some(number)).unwrap()).collect();
        assert!(ends.is_sorted() && ends.iter().enumerate().all(|(number, end)| *end <= 2 * number + 2), "{log:?}");
    }

    #[tokio::test]
    async fn every_poll_is_a_step() {
        let (turns, steps) = (Arc::<Turns>::default(), Steps::default());
        tokio::join!(
            InTurn::new(&turns, &steps, Polls(3)),
            InTurn::new(&turns, &steps, Polls(2)),
            InTurn::new(&turns, &steps, Polls(1)),
        );
        assert_eq!(steps.waiting(), 0);
        assert!(steps.time() > Duration::ZERO);
    }

    #[tokio::test]
    async fn dropped_handshake_delays_no_other() {
        let (turns, steps) = (Arc::<Turns>::default(), Steps::default());
        InTurn::new(&turns, &steps, Polls(1)).await;
        {
            let mut gone = InTurn::new(&turns, &steps, Polls(1));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut gone).poll(&mut cx).is_pending());
            assert_eq!(steps.waiting(), 1);
        }
        assert_eq!(steps.waiting(), 0);
        InTurn::new(&turns, &steps, Polls(2)).await;
    }
}

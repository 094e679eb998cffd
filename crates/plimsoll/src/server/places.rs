//! A limit on requests in progress, with a queue for the others.
//!
//! The machine that decides is [`Queue`]. Here its requests are tickets: the channels by which
//! waiting requests are told. When every handler hangs, the message may come too late or never, so
//! each waiting request has a timer as well.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use plimsoll_core::Criticality;
use plimsoll_core::admit::{Mode, Queue, QueueConfig, QueueVerdict, Shed};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::clock::{self, Clock};

/// The message to a waiting request.
type Told = Result<Place, Shed>;

/// The slots of a server, and the requests that wait for one.
pub(super) struct Places {
    clock: Clock,
    config: QueueConfig,
    mode: Mode,
    queue: Mutex<Queue<oneshot::Sender<Told>>>,
}

/// A place, until this is dropped.
pub(super) struct Place {
    places: Arc<Places>,
}

/// When a request has its turn.
pub(super) enum Turn {
    Now(Place),
    Later(Waits),
    Never(Shed),
    /// It would have none now, if this were not a dry run.
    NotNow(Shed),
}

pin_project! {
    /// Until a request has a place, or is told that it gets none.
    pub(super) struct Waits {
        told: oneshot::Receiver<Told>,
        #[pin]
        longest: Sleep,
        // The answer if no message has come by then.
        silence: Shed,
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Places {
    pub(super) fn new(config: QueueConfig, mode: Mode) -> Arc<Self> {
        let clock = Clock::start();
        Arc::new(Self { clock, config, mode, queue: Mutex::new(Queue::new(clock.now(), config)) })
    }

    /// A request comes that nobody wants an answer to after `deadline`.
    pub(super) fn enter(self: &Arc<Self>, criticality: Criticality, deadline: Option<Instant>) -> Turn {
        let (tell, told) = oneshot::channel();
        let now = self.clock.now();
        let entered = self.queue.lock().enter(now, criticality, deadline.map(|deadline| self.clock.at(deadline)), tell);
        let full = Queue::<()>::FULL;
        match entered {
            QueueVerdict::Begins(_) => Turn::Now(Place { places: Arc::clone(self) }),
            // Its ticket is void, for nobody listens.
            QueueVerdict::Shed(_) | QueueVerdict::Waits(_) if self.mode == Mode::DryRun => Turn::NotNow(full),
            QueueVerdict::Shed(_) => Turn::Never(full),
            QueueVerdict::Waits(goes) => {
                if let Some(goes) = goes {
                    // The receiver is dropped if that request ended already.
                    let _ = goes.send(Err(full));
                }
                let longest = clock::after(Instant::now(), self.config.max_wait);
                let (until, silence) = match deadline.filter(|deadline| *deadline < longest) {
                    Some(deadline) => (deadline, Shed::DEADLINE),
                    None => (longest, full),
                };
                Turn::Later(Waits { told, longest: tokio::time::sleep_until(until), silence })
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.places.clock.now();
        let mut gone = Vec::new();
        let next = self.places.queue.lock().next(now, |each| gone.push(each.into_shed()), |waits| !waits.is_closed());
        if let Some(next) = next {
            // One that stopped listening just now gives the place back by dropping it.
            let _ = next.send(Ok(Self { places: Arc::clone(&self.places) }));
        }
        for (waits, shed) in gone {
            let _ = waits.send(Err(shed));
        }
    }
}

impl Future for Waits {
    type Output = Told;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Told> {
        let this = self.project();
        match Pin::new(this.told).poll(cx) {
            Poll::Ready(Ok(told)) => Poll::Ready(told),
            Poll::Ready(Err(_)) => Poll::Ready(Err(*this.silence)),
            Poll::Pending => this.longest.poll(cx).map(|()| Err(*this.silence)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::Rejection;

    use super::*;

    fn places(max_waiting: usize) -> Arc<Places> {
        let mut config = QueueConfig::new(1).unwrap();
        config.max_waiting = max_waiting;
        Places::new(config, Mode::Protect)
    }

    fn enter(places: &Arc<Places>, deadline: Option<Duration>) -> Turn {
        places.enter(Criticality::Critical, deadline.map(|left| Instant::now() + left))
    }

    async fn later(turn: Turn) -> Result<Place, Rejection> {
        match turn {
            Turn::Later(waits) => waits.await.map_err(|turned_away| turned_away.reason),
            _ => panic!("it does not wait"),
        }
    }

    fn now(turn: Turn) -> Place {
        match turn {
            Turn::Now(place) => place,
            _ => panic!("it has no place"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_goes_to_the_next_that_still_waits() {
        let places = places(8);
        let first = now(enter(&places, None));
        drop(enter(&places, None));
        let waits = enter(&places, None);
        drop(first);
        let second = later(waits).await.expect("a place");
        let given_and_not_taken = enter(&places, None);
        drop(second);
        drop(given_and_not_taken);
        drop(now(enter(&places, None)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_although_no_place_becomes_free() {
        let places = places(8);
        let _hangs = now(enter(&places, None));
        let begun = Instant::now();
        assert_eq!(later(enter(&places, None)).await.err(), Some(Rejection::Overloaded));
        assert_eq!(begun.elapsed(), QueueConfig::DEFAULT_MAX_WAIT);
        let soon = Duration::from_millis(20);
        assert_eq!(later(enter(&places, Some(soon))).await.err(), Some(Rejection::Deadline));
        assert_eq!(begun.elapsed(), QueueConfig::DEFAULT_MAX_WAIT + soon);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_may_be_without_a_limit() {
        let mut config = QueueConfig::new(1).unwrap();
        config.max_wait = Duration::MAX;
        let places = Places::new(config, Mode::Protect);
        let first = now(enter(&places, None));
        let waits = enter(&places, None);
        tokio::time::advance(Duration::from_secs(1_000_000)).await;
        drop(first);
        assert!(later(waits).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_to_go_for_another_is_told_at_once() {
        let places = places(1);
        let hangs = now(enter(&places, None));
        let (first, second) = (enter(&places, None), enter(&places, None));
        assert_eq!(later(first).await.err(), Some(Rejection::Overloaded));
        let less = places.enter(Criticality::Sheddable, None);
        assert!(matches!(less, Turn::Never(Shed { reason: Rejection::Overloaded, .. })));
        drop(hangs);
        assert!(later(second).await.is_ok());
    }
}

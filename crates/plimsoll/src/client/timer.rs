//! A limit on the time of a request, made of one timer at most.
//!
//! The runtime's timer is only made when a wait is really pending, and one serves all the waits of a
//! request (queue, connection, response), because they share one deadline.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

pin_project! {
    /// A deadline, and the timer for it once one was needed.
    pub(super) struct Limit {
        deadline: Instant,
        #[pin]
        timer: Option<Sleep>,
    }
}

/// The time was up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

impl Limit {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline, timer: None }
    }

    /// `future`, unless the time is up first. The deadline may be moved between two waits, to an earlier
    /// one while a request waits for its turn and back.
    pub(super) async fn wait<F: Future>(
        mut self: Pin<&mut Self>,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, TooLate> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            let mut this = self.as_mut().project();
            if this.timer.is_none() {
                *this.deadline = deadline;
                this.timer.set(Some(tokio::time::sleep_until(deadline)));
            } else if *this.deadline != deadline {
                *this.deadline = deadline;
                if let Some(timer) = this.timer.as_mut().as_pin_mut() {
                    timer.reset(deadline);
                }
            }
            match this.timer.as_pin_mut() {
                Some(timer) => timer.poll(cx).map(|()| Err(TooLate)),
                None => Poll::Pending,
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_timer_serves_waits_with_different_deadlines() {
        let start = Instant::now();
        let mut limit = std::pin::pin!(Limit::new(start + Duration::from_secs(9)));
        let never = std::future::pending::<()>;
        let early = start + Duration::from_secs(2);
        assert_eq!(limit.as_mut().wait(early, std::future::ready(1)).await, Ok(1));
        assert!(limit.timer.is_none(), "a wait that is over at once needs no timer");
        assert_eq!(limit.as_mut().wait(early, never()).await, Err(TooLate));
        assert_eq!(start.elapsed().as_secs(), 2);
        assert_eq!(limit.as_mut().wait(start + Duration::from_secs(9), never()).await, Err(TooLate));
        assert_eq!(start.elapsed().as_secs(), 9);
    }
}

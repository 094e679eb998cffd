//! An admitted request, whose polls are timed, or a shed one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::{Admitted, Measure};
use crate::{BoxError, Rejected};

pin_project! {
    /// The response of a [`ShedService`](super::ShedService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ShedFuture<F, M> {
        #[pin]
        state: State<F, M>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, M> {
        Admitted { #[pin] future: F, measured: Measured, measure: M },
        Shed { rejected: Rejected },
    }
}

/// An admitted request with the time of its polls, and its cost so far. A dropped request counts
/// with that, and one without a poll with nothing.
struct Measured {
    admitted: Admitted,
    /// `None` before the first poll.
    polled: Option<Duration>,
    cost: Option<f64>,
}

impl Drop for Measured {
    fn drop(&mut self) {
        match self.polled {
            Some(_) => self.admitted.settle(self.cost),
            None => self.admitted.settle_unsent(),
        }
    }
}

impl<F, M> ShedFuture<F, M> {
    pub(super) fn admitted(future: F, admitted: Admitted, measure: M) -> Self {
        let measured = Measured { admitted, polled: None, cost: None };
        Self { state: State::Admitted { future, measured, measure } }
    }

    pub(super) fn rejected(rejected: Rejected) -> Self {
        Self { state: State::Shed { rejected } }
    }
}

impl<F, M, Res, E> Future for ShedFuture<F, M>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    M: Measure<Res>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Shed { rejected } => Poll::Ready(Err((*rejected).into())),
            StateProj::Admitted { future, measured, measure } => {
                // The real clock: time that a test pauses is no work.
                let begun = Instant::now();
                let polled = future.poll(cx);
                let time = measured.polled.unwrap_or_default() + begun.elapsed();
                measured.polled = Some(time);
                match polled {
                    Poll::Ready(result) => {
                        measured.admitted.settle(measure.cost(result.as_ref().ok(), time));
                        Poll::Ready(result.map_err(Into::into))
                    }
                    Poll::Pending => {
                        measured.cost = measure.cost(None, time);
                        if let Some(cost) = measured.cost.filter(|cost| *cost >= measured.admitted.progress_due()) {
                            measured.admitted.progress(cost);
                        }
                        Poll::Pending
                    }
                }
            }
        }
    }
}

//! A request with all of its attempts.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use plimsoll_core::Timestamp;
use plimsoll_core::retry::{Attempt, Repeat, Withdrawal};
use tokio::time::Sleep;
use tower_service::Service;

use super::{CloneRequest, Retry, RetryBudget};
use crate::classify::Classify;
use crate::{BoxError, End, RequestFacts, clock};

pin_project! {
    /// The response of a [`RetryService`](super::RetryService).
    #[must_use = "futures do nothing unless polled"]
    pub struct RetryFuture<S: Service<Req>, C, K, Req> {
        #[pin]
        state: State<S::Future>,
        service: S,
        // `None` if the request cannot be sent again.
        copy: Option<Req>,
        retry: Retry<C, K>,
        facts: RequestFacts,
        deadline: Option<Timestamp>,
        // Attempts, the present one included.
        attempts: u32,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // At the service. The withdrawal is that of this attempt, if it is a retry.
        Sent { #[pin] future: F, withdrawal: Option<Withdrawal> },
        // Before a retry: a wait, then until the service is ready.
        Unsent { wait: Option<Pin<Box<Sleep>>>, unsent: Unsent },
    }
}

/// A withdrawn retry that is not sent yet. Refunded if it never is.
struct Unsent {
    budget: RetryBudget,
    withdrawal: Option<Withdrawal>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(withdrawal) = self.withdrawal.take() {
            self.budget.refund(withdrawal);
        }
    }
}

impl<S: Service<Req>, C, K, Req> RetryFuture<S, C, K, Req> {
    pub(super) fn new(
        future: S::Future,
        service: S,
        copy: Option<Req>,
        retry: Retry<C, K>,
        facts: RequestFacts,
        begun: Timestamp,
    ) -> Self {
        let deadline = facts.timeout.map(|timeout| begun + timeout);
        let state = State::Sent { future, withdrawal: None };
        Self { state, service, copy, retry, facts, deadline, attempts: 1 }
    }
}

impl<S, C, K, Req> Future for RetryFuture<S, C, K, Req>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<Req, S::Response>,
    K: CloneRequest<Req>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Sent { future, withdrawal } => {
                    let result = ready!(future.poll(cx)).map_err(Into::into);
                    let end = this.retry.classify.end(result.as_ref().map_err(|error| &**error));
                    if let Some(withdrawal) = withdrawal.take() {
                        match end {
                            // A layer below rejected it, so it was not sent.
                            Some(End::Rejected(_)) => this.retry.budget.refund(withdrawal),
                            _ => withdrawal.spend(),
                        }
                    }
                    let Some(failure) = end.and_then(End::failure) else {
                        *this.copy = None;
                        return Poll::Ready(result);
                    };
                    let can_repeat = this.copy.as_ref().is_some_and(|copy| this.retry.copy.is_whole(copy));
                    let attempt = Attempt {
                        number: *this.attempts,
                        failure,
                        repeat: if can_repeat { this.facts.repeat } else { Repeat::Impossible },
                        deadline: *this.deadline,
                        operation: this.facts.operation,
                        takes: std::time::Duration::ZERO,
                    };
                    let Ok((plan, withdrawal)) = this.retry.budget.plan(&this.retry.config, &attempt) else {
                        *this.copy = None;
                        return Poll::Ready(result);
                    };
                    let wait =
                        (!plan.wait.is_zero()).then(|| Box::pin(tokio::time::sleep_until(clock::after(plan.wait))));
                    let unsent = Unsent { budget: this.retry.budget.clone(), withdrawal: Some(withdrawal) };
                    State::Unsent { wait, unsent }
                }
                StateProj::Unsent { wait, unsent } => {
                    if let Some(sleep) = wait {
                        ready!(sleep.as_mut().poll(cx));
                        *wait = None;
                    }
                    if let Err(error) = ready!(this.service.poll_ready(cx)) {
                        return Poll::Ready(Err(error.into()));
                    }
                    let request = this.copy.take().expect("a retry was planned, so there is a copy");
                    *this.attempts += 1;
                    if *this.attempts < u32::from(this.retry.config.max_attempts.get()) {
                        *this.copy = this.retry.copy.clone_request(&request);
                    }
                    State::Sent { future: this.service.call(request), withdrawal: unsent.withdrawal.take() }
                }
            };
            this.state.set(next);
        }
    }
}

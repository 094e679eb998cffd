//! A request with a slot, or before it has one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Enter, Slot};
use crate::BoxError;

pin_project! {
    /// The response of a [`ConcurrencyService`](super::ConcurrencyService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ConcurrencyFuture<S: Service<Req>, Req> {
        #[pin]
        state: State<S::Future>,
        service: S,
        // `None` once it is sent.
        request: Option<Req>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Enters { enter: Enter },
        // Until the service is ready.
        HasSlot { slot: Option<Slot> },
        Sent { #[pin] future: F, slot: Option<Slot> },
    }
}

impl<S: Service<Req>, Req> ConcurrencyFuture<S, Req> {
    pub(super) fn new(enter: Enter, service: S, request: Req) -> Self {
        Self { state: State::Enters { enter }, service, request: Some(request) }
    }
}

impl<S, Req> Future for ConcurrencyFuture<S, Req>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Enters { enter } => {
                    let slot = ready!(Pin::new(enter).poll(cx))?;
                    State::HasSlot { slot: Some(slot) }
                }
                StateProj::HasSlot { slot } => {
                    let ready = ready!(this.service.poll_ready(cx));
                    let slot = slot.take();
                    if let Err(error) = ready {
                        return Poll::Ready(Err(error.into()));
                    }
                    let request = this.request.take().expect("it is sent once");
                    State::Sent { future: this.service.call(request), slot }
                }
                StateProj::Sent { future, slot } => {
                    let result = ready!(future.poll(cx));
                    // Before the caller goes on, which may drop this late.
                    *slot = None;
                    return Poll::Ready(result.map_err(Into::into));
                }
            };
            this.state.set(next);
        }
    }
}

//! A request on its way through the inner service, which may not be ready for it at once.
//!
//! Readiness has to be asked after the request has come. The layer's own answers do not wait for
//! the inner service, and a request that waits for it is a request in progress. It is asked at the
//! place of the call, so that a ready service costs no clone and no space in the future. A service
//! that is not ready is moved to the waiting request, because the instance that was asked must be
//! the one that is called.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use http::Request;
use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    /// The response of the inner service to come.
    #[project = ServedProj]
    pub(super) enum Served<S, B>
    where
        S: Service<Request<B>>,
    {
        Called { #[pin] response: S::Future },
        // Boxed, for most do not wait.
        Waits { waiting: Box<Waiting<S, B>> },
        // It never became ready.
        Failed { error: Option<S::Error> },
    }
}

pub(super) struct Waiting<S, B> {
    service: S,
    /// None once it was called.
    request: Option<Request<B>>,
}

impl<S, B> Served<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn begin(service: &mut S, request: Request<B>) -> Self
    where
        S: Clone,
    {
        // A service that is not ready is asked again by the future, with a real waker.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Self::Called { response: service.call(request) },
            Poll::Ready(Err(error)) => Self::Failed { error: Some(error) },
            Poll::Pending => {
                let clone = service.clone();
                let service = std::mem::replace(service, clone);
                Self::Waits { waiting: Box::new(Waiting { service, request: Some(request) }) }
            }
        }
    }
}

impl<S, B> Future for Served<S, B>
where
    S: Service<Request<B>>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let response = match self.as_mut().project() {
                ServedProj::Called { response } => return response.poll(cx),
                ServedProj::Failed { error } => return Poll::Ready(Err(error.take().expect(POLLED_ONCE))),
                ServedProj::Waits { waiting } => {
                    ready!(waiting.service.poll_ready(cx))?;
                    waiting.service.call(waiting.request.take().expect(POLLED_ONCE))
                }
            };
            self.set(Self::Called { response });
        }
    }
}

const POLLED_ONCE: &str = "a future is not polled after it was ready";

//! The future of a layer that reports the end of each request.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::classify::Classify;
use crate::{BoxError, Rejected, Report};

pin_project! {
    /// The response of a layer that watches the ends of requests.
    ///
    /// If it is dropped before its end, the caller abandoned the request.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C, R, Req> {
        #[pin]
        state: State<F, C, R>,
        request: PhantomData<fn(Req)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, C, R> {
        Sent { #[pin] future: F, classify: C, report: Option<R> },
        Rejected { rejected: Rejected },
    }
}

impl<F, C, R, Req> ResponseFuture<F, C, R, Req> {
    /// A request that was sent.
    pub(crate) fn sent(future: F, classify: C, report: R) -> Self {
        Self { state: State::Sent { future, classify, report: Some(report) }, request: PhantomData }
    }

    /// A request that was not sent.
    pub(crate) fn rejected(rejected: Rejected) -> Self {
        Self { state: State::Rejected { rejected }, request: PhantomData }
    }
}

impl<F, C, R, Req, Res, E> Future for ResponseFuture<F, C, R, Req>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Req, Res>,
    R: Report,
{
    type Output = Result<C::Response<R>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Rejected { rejected } => Poll::Ready(Err((*rejected).into())),
            StateProj::Sent { future, classify, report } => {
                let result = ready!(future.poll(cx));
                let report = report.take().expect("a future is not polled after its end");
                Poll::Ready(settle(classify, report, result))
            }
        }
    }
}

/// Reports the end of a request by its result.
pub(crate) fn settle<C, R, Req, Res, E>(
    classify: &C,
    report: R,
    result: Result<Res, E>,
) -> Result<C::Response<R>, BoxError>
where
    C: Classify<Req, Res>,
    E: Into<BoxError>,
    R: Report,
{
    match result {
        Ok(response) => Ok(classify.respond(response, report)),
        Err(error) => {
            let error = error.into();
            if let Some(end) = classify.end(Err(&*error)) {
                report.end(end);
            }
            Err(error)
        }
    }
}

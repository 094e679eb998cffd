//! One client connection: which protocol, for how long, and how it ends.
//!
//! Most connections are idle most of the time, so the task of one holds what an idle one needs, and
//! little else. A request, HTTP/2, a tunnel, and the end of the listener have boxes of their own.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use plimsoll_stream::Stream;
use tokio::time::Sleep;

use crate::connection::Connection;
use crate::connection::activity::Memory;
use crate::connection::context;
use crate::connection::end_reason::EndReason;
use crate::connection::time_limits::TimeLimits;
use crate::connection::turns::Steps;
use crate::http1::{End, Http1};
use crate::http2;
use crate::peer::Peer;
use crate::phase::{FIRST_REQUEST_GRACE, Phase, PhaseWaker};
use crate::request::forward::Switched;
use crate::request::upgrade::{self, PrefixedStream};

/// Serves the requests of one connection until it ends. `held` is dropped with it.
///
/// Not `async` itself: the future would hold its arguments twice.
pub(crate) fn serve<H: Send>(
    stream: Stream,
    peer: Peer,
    context: &Arc<context::Context>,
    held: H,
) -> impl Future<Output = ()> + Send + use<H> {
    let is_http2 = peer.tls.as_ref().is_some_and(|tls| tls.is_http2);
    let connection = Arc::new(Connection::new(context, peer));
    let mut http1 = Http1::new(stream, connection);
    let mut time_limits = TimeLimits::new();
    async move {
        let end = if is_http2 { End::Http2 } else { within_limits(&mut http1, &mut time_limits).await };
        match end {
            End::Closed => {}
            End::Http2 => http2(http1, time_limits).await,
            End::Upgraded(switched) => tunnel(http1, switched).await,
        }
        drop(held);
    }
}

fn http2(http1: Http1, time_limits: TimeLimits) -> Pin<Box<impl Future<Output = ()> + Send>> {
    let connection = Arc::clone(http1.connection());
    let phases = connection.context.life.watch();
    Box::pin(http2::serve::serve(http1.into_stream(), connection, phases, time_limits))
}

fn tunnel(http1: Http1, switched: Box<Switched>) -> Pin<Box<impl Future<Output = ()> + Send>> {
    Box::pin(async move {
        let connection = Arc::clone(http1.connection());
        let phases = connection.context.life.watch();
        let client: PrefixedStream = http1.into_stream();
        let preempted = switched.backend.preempted();
        let idle_timeout = connection.limits.upgrade_idle_timeout;
        upgrade::tunnel(client, switched.backend, preempted, idle_timeout, phases).await;
        drop(switched.active);
    })
}

/// Serves HTTP/1 within its time limits, until the listener closes. While it is closing, requests
/// in flight are completed; once it is closed, they are cut off.
async fn within_limits(http1: &mut Http1, time_limits: &mut TimeLimits) -> End {
    let connection = Arc::clone(http1.connection());
    let mut served = pin!(http1.serve());
    let mut closing = Closing::default();
    let mut steps = Steps::default();
    // Closures in one another: each idle connection would hold the references of a named one.
    poll_fn(|cx| {
        steps.poll(cx, &connection.context.turns, &connection.activity, |cx| {
            let activity = &connection.activity;
            loop {
                if let Poll::Ready(end) = served.as_mut().poll(cx) {
                    return Poll::Ready(end);
                }
                if activity.is_cut_off() {
                    return Poll::Ready(End::Closed);
                }
                if closing.is_due(&connection) {
                    let was_closing = activity.is_closing();
                    if closing.poll(cx, &connection).is_ready() {
                        connection.end_for(EndReason::Drain);
                        // Once more, so that an answer is broken off in such a way that it cannot be
                        // taken for whole.
                        activity.cut_off();
                        continue;
                    }
                    if activity.is_closing() && !was_closing {
                        continue;
                    }
                }
                let Poll::Ready(overdue) = time_limits.poll_lazily(cx, &connection) else {
                    if activity.memory() != Memory::Unused {
                        return Poll::Pending;
                    }
                    activity.set_memory(Memory::Unwanted);
                    continue;
                };
                if activity.is_overdue() {
                    return Poll::Ready(End::Closed);
                }
                connection.end_for(EndReason::Timeout(overdue));
                activity.overstay();
            }
        })
    })
    .await
}

/// The end of a connection with its listener.
#[derive(Default)]
struct Closing {
    waker: Option<PhaseWaker>,
    /// The wait for a first request.
    grace: Option<Pin<Box<Sleep>>>,
}

impl Closing {
    /// Whether it must be polled: once to be woken later, and then only when the listener leaves.
    fn is_due(&self, connection: &Connection) -> bool {
        self.waker.is_none() || connection.context.life.is_leaving()
    }

    /// Ready once the listener is closed. Before, has the connection end with its present request.
    fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<()> {
        let (life, activity) = (&connection.context.life, &connection.activity);
        self.waker.get_or_insert_with(|| life.wake(cx.waker()));
        let phase = life.phase();
        if phase < Phase::Closing {
            return Poll::Pending;
        }
        if !activity.is_closing() {
            if self.grace.is_none() && activity.begun() == 0 {
                self.grace = Some(Box::pin(tokio::time::sleep(FIRST_REQUEST_GRACE)));
            }
            if let Some(grace) = &mut self.grace {
                ready!(grace.as_mut().poll(cx));
            }
            activity.close();
        }
        if phase < Phase::Closed { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what a function of a connection returns.
    fn size<F>(_: impl Fn(Stream, Peer, &Arc<context::Context>, [usize; 4]) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn task_of_a_connection_is_small() {
        assert!(size(serve) <= 624, "{} bytes for each idle connection", size(serve));
    }
}

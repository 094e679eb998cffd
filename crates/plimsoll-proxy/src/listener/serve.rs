//! One client connection: which protocol, for how long, and how it ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use plimsoll::stream::Stream;
use tokio::sync::watch;

use crate::connection::Connection;
use crate::connection::context::Context;
use crate::connection::end_reason::EndReason;
use crate::connection::time_limits::TimeLimits;
use crate::http1::{End, Http1};
use crate::http2;
use crate::peer::Peer;
use crate::phase::{self, FIRST_REQUEST_GRACE, Phase};
use crate::request::upgrade::{self, PrefixedStream};

/// Serves the requests of one connection until it ends.
pub(crate) async fn serve(stream: Stream, peer: Peer, context: &Arc<Context>) {
    let phases = context.life.watch();
    let is_http2 = peer.tls.as_ref().is_some_and(|tls| tls.is_http2);
    let connection = Arc::new(Connection::new(context, peer));
    let mut time_limits = TimeLimits::new(&connection.limits);
    if is_http2 {
        let said = PrefixedStream { first: bytes::Bytes::new(), stream };
        return http2(said, connection, phases, time_limits).await;
    }
    match http1(stream, &connection, phases.clone(), &mut time_limits).await {
        End::Closed => {}
        End::Http2(said) => http2(said, connection, phases, time_limits).await,
        End::Upgraded(client, switched) => {
            let idle_timeout = connection.limits.upgrade_idle_timeout;
            let preempted = switched.backend.preempted();
            upgrade::tunnel(client, switched.backend, preempted, idle_timeout, phases).await;
            drop(switched.active);
        }
    }
}

/// In a box, because it is large and most connections are not of this kind: each would be as large.
fn http2(
    said: PrefixedStream,
    connection: Arc<Connection>,
    phases: watch::Receiver<Phase>,
    time_limits: TimeLimits,
) -> Pin<Box<impl Future<Output = ()> + Send>> {
    Box::pin(http2::serve::serve(said, connection, phases, time_limits))
}

/// Serves HTTP/1 within its time limits, until the listener closes. While it is closing, requests
/// in flight are completed; once it is closed, they are cut off.
async fn http1(
    stream: Stream,
    connection: &Arc<Connection>,
    mut phases: watch::Receiver<Phase>,
    time_limits: &mut TimeLimits,
) -> End {
    let activity = &connection.activity;
    let mut served = pin!(Http1::new(stream, Arc::clone(connection)).serve());
    let mut closed = pin!(async move {
        phase::reached(&mut phases, Phase::Closing).await;
        if activity.begun() == 0 {
            tokio::time::sleep(FIRST_REQUEST_GRACE).await;
        }
        activity.close();
        phase::reached(&mut phases, Phase::Closed).await;
    });
    // Polled once, it has left its waker; from then on it has nothing to say before the listener
    // leaves.
    let mut is_watched = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = served.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            if activity.is_cut_off() {
                return Poll::Ready(End::Closed);
            }
            if !is_watched || connection.context.life.is_leaving() {
                is_watched = true;
                let was_closing = activity.is_closing();
                if closed.as_mut().poll(cx).is_ready() {
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
            let Poll::Ready(overdue) = time_limits.poll(cx, connection) else { return Poll::Pending };
            if activity.is_overdue() {
                return Poll::Ready(End::Closed);
            }
            connection.end_for(EndReason::Timeout(overdue));
            activity.overstay();
        }
    })
    .await
}

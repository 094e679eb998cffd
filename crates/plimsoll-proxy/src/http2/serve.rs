//! One HTTP/2 connection of a client: hyper speaks the protocol, on this task, and each request has
//! a task of its own.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::EXPECT;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use plimsoll_core::Timestamp;
use plimsoll_http2::Guard;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Settings;
use super::io::ClientIo;
use super::lingering::linger;
use super::watch::Watch;
use crate::connection::activity::Stage;
use crate::connection::end_reason::{EndReason, Timeout};
use crate::connection::flow::{Flow, Stalled, StreamTasks};
use crate::connection::time_limits::TimeLimits;
use crate::connection::turns::Steps;
use crate::connection::{ActiveRequest, Connection};
use crate::phase::{FIRST_REQUEST_GRACE, Phase};
use crate::request::check::drop_host_list;
use crate::request::forward::{ClientFeatures, Outcome, Switched, forward};
use crate::request::response_body::ResponseBody;
use crate::request::upgrade::{self, PrefixedStream, Upgrade};
use crate::request_body::RequestBody;
use crate::request_body::interim::Continue;

/// Time for an idle connection to end by itself after GOAWAY.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// Serves the requests of one connection until it ends.
pub(crate) async fn serve(
    said: PrefixedStream,
    connection: Arc<Connection>,
    phases: watch::Receiver<Phase>,
    time_limits: TimeLimits,
) {
    let watch = Arc::new(Watch::new(Guard::new(Timestamp::ZERO, connection.limits.http2)));
    let mut serving = pin!(serve_requests(said, Arc::clone(&connection), phases, time_limits, Arc::clone(&watch)));
    let mut steps = Steps::default();
    let (turns, activity) = (&connection.context.turns, &connection.activity);
    poll_fn(|cx| steps.poll(cx, turns, activity, |cx| serving.as_mut().poll(cx))).await;
    let ended = watch.ended.lock().take();
    if let Some(said) = ended {
        linger(said).await;
    }
}

async fn serve_requests(
    said: PrefixedStream,
    connection: Arc<Connection>,
    mut phases: watch::Receiver<Phase>,
    mut time_limits: TimeLimits,
    watch: Arc<Watch>,
) {
    let limits = &connection.limits;
    // Its first bytes may have been looked at as those of a head.
    connection.activity.enter(Stage::Idle);
    let tasks = StreamTasks::new(limits.idle_timeout, Arc::clone(&connection.context.counts) as Arc<dyn Stalled>);
    let settings = Settings {
        allowance: limits.http2,
        max_header_size: limits.max_header_size,
        ping_interval: limits.ping_interval,
        ping_timeout: limits.ping_timeout,
        is_lean: connection.context.pressure.is_lean(),
    };
    let io = ClientIo::new(said, Arc::clone(&connection), Arc::clone(&watch));
    let service = service_fn(|mut request| {
        drop_host_list(&mut request);
        let flow = tasks.begin();
        let active = ActiveRequest::begin(&connection, &request);
        let (connection, watch) = (Arc::clone(&connection), Arc::clone(&watch));
        let is_wary = watch.is_wary();
        let go_on = go_on(&request, &watch);
        // Boxed, because it is large, and is moved from hyper to tokio in several steps.
        Box::pin(async move {
            if is_wary {
                // hyper looks whether the request was taken back when its answer is not there at
                // once.
                tokio::task::yield_now().await;
            }
            let response = serve_request(connection, request, go_on, flow, active).await?;
            if response.body().is_from_backend() {
                watch.guard.lock().on_backend_response();
            }
            Ok::<_, h2::Error>(response)
        })
    });
    let builder = super::builder(settings, tasks.clone());
    let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
    // The listener may have closed before this connection had its first turn.
    if *phases.borrow() != Phase::Serving {
        phases.mark_changed();
    }
    let mut looks = tokio::time::interval(looks_every(limits.header_read_timeout, limits.idle_timeout));
    let (mut close_at, mut end_at) = (None, None);
    loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                watch.interim.release();
                serving.as_mut().poll(cx)
            }) => {
                match result {
                    Err(error) if super::is_protocol_error(&error) => connection.end_for(EndReason::Protocol),
                    Err(error) if error.is_timeout() => connection.end_for(EndReason::NoPong),
                    _ => {}
                }
                return;
            }
            changed = phases.changed() => {
                let phase = if changed.is_ok() { *phases.borrow_and_update() } else { Phase::Closed };
                if phase == Phase::Closed {
                    // A client that has gone without a word had nothing in flight.
                    if watch.has_streams() {
                        connection.end_for(EndReason::Drain);
                    }
                    return;
                }
                if phase == Phase::Closing && connection.activity.begun() == 0 {
                    close_at = Some(Instant::now() + FIRST_REQUEST_GRACE);
                } else {
                    serving.as_mut().graceful_shutdown();
                }
            }
            () = at(close_at), if close_at.is_some() => {
                close_at = None;
                serving.as_mut().graceful_shutdown();
            }
            overdue = poll_fn(|cx| time_limits.poll(cx, &connection)), if end_at.is_none() => {
                // A request is over for us when its last frame is handed to the protocol, which may
                // hold it for its client.
                if overdue == Timeout::Idle && watch.has_streams() {
                    time_limits.is_busy();
                    continue;
                }
                connection.end_for(EndReason::Timeout(overdue));
                if overdue != Timeout::Idle {
                    return;
                }
                // A request may be on its way; after GOAWAY its client knows that it was not
                // served.
                serving.as_mut().graceful_shutdown();
                end_at = Some(Instant::now() + GOAWAY_GRACE);
            }
            () = at(end_at), if end_at.is_some() => return,
            _ = looks.tick() => {
                if let Err(ended) = watch.look(limits) {
                    return connection.end_for(ended);
                }
            }
        }
    }
}

fn looks_every(header_read_timeout: Duration, idle_timeout: Duration) -> Duration {
    (header_read_timeout / 2).min(idle_timeout / 4).max(Duration::from_millis(1))
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The client's wait for 100 (Continue).
fn go_on(request: &Request<Incoming>, watch: &Watch) -> Option<Continue> {
    let expected = request.headers().get(EXPECT)?;
    watch.interim.take().filter(|_| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

async fn serve_request(
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
    go_on: Option<Continue>,
    flow: Arc<Flow>,
    active: ActiveRequest,
) -> Result<Response<ResponseBody>, h2::Error> {
    let (upgrade, client) = Upgrade::of_http2(&mut request).unzip();
    let request = request.map(|incoming| RequestBody::http2(incoming, &connection.limits, go_on));
    let response = match forward(&connection, request, ClientFeatures { upgrade, informational: None }, active).await {
        Outcome::Answer(response) => response,
        // A code that does not invite to try again.
        Outcome::Dropped => return Err(h2::Reason::CANCEL.into()),
        Outcome::Switched(switched) => {
            let idle_timeout = connection.limits.upgrade_idle_timeout;
            let phases = connection.context.life.watch();
            let Switched { response, backend, active } = *switched;
            if let Some(client) = client {
                tokio::spawn(async move {
                    if let Ok(client) = client.await {
                        let preempted = backend.preempted();
                        upgrade::tunnel(TokioIo::new(client), backend, preempted, idle_timeout, phases).await;
                    }
                    drop(active);
                });
            }
            upgrade::http2_answer(response).map(|()| ResponseBody::local(bytes::Bytes::new()))
        }
    };
    Ok(response.map(|body| body.on_stream(flow)))
}

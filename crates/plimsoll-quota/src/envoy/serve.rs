//! The methods of Envoy's protocols.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::message::{
    QuotaResponse, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT, STREAM_QUOTAS, UsageReports,
};
use super::quota_stream::QuotaStream;
use super::rate_limit::RateLimits;
use crate::caller::Caller;
use crate::hosted::Hosted;
use crate::message::ToTask;
use crate::services::Services;
use crate::status::status;

/// The account of the rate limit service looks for reports that are due.
const TICK: Duration = Duration::from_millis(100);
/// A stream without buckets is kept by a report at this interval, shorter than any lease.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Answers a request by one of Envoy's protocols; `None` for any other method.
pub(crate) async fn answer(
    services: &Arc<Services>,
    request: Request<Incoming>,
) -> Result<Response<tonic::body::Body>, Request<Incoming>> {
    match request.uri().path() {
        STREAM_QUOTAS => {
            let codec: ProstCodec<QuotaResponse, UsageReports> = ProstCodec::default();
            Ok(Grpc::new(codec).streaming(Quotas(Arc::clone(services)), request).await)
        }
        SHOULD_RATE_LIMIT => {
            let codec: ProstCodec<RateLimitResponse, RateLimitRequest> = ProstCodec::default();
            Ok(Grpc::new(codec).unary(RateLimit(Arc::clone(services)), request).await)
        }
        _ => Err(request),
    }
}

/// The method `ShouldRateLimit`.
struct RateLimit(Arc<Services>);

impl UnaryService<RateLimitRequest> for RateLimit {
    type Response = RateLimitResponse;
    type Future = std::future::Ready<Result<tonic::Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let caller = caller(&request);
        let (services, request) = (&self.0, request.into_inner());
        let now = services.now();
        let answer = match hosted(services, &request.domain, &caller) {
            Err(status) if status.code() == Code::PermissionDenied => {
                // One for each request of Envoy's clients: too many for the log.
                tracing::debug!(service = request.domain, error = status.message(), "Envoy refused");
                return std::future::ready(Err(status));
            }
            Ok(hosted) => {
                let limits = services.rate_limits(&request.domain, &hosted, |limits| {
                    tokio::spawn(tick(Arc::clone(services), Arc::downgrade(&hosted), Arc::clone(limits)));
                });
                limits.ask(now, &hosted, &request)
            }
            // A domain without limits.
            Err(status) if status.code() == Code::NotFound => RateLimits::unlimited(&request),
            // Its owner is another server.
            Err(status) => return std::future::ready(Err(status)),
        };
        std::future::ready(Ok(tonic::Response::new(answer)))
    }
}

/// Has the account report without requests too.
async fn tick(services: Arc<Services>, hosted: Weak<Hosted>, limits: Arc<RateLimits>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(hosted) = hosted.upgrade() else { return };
        limits.tick(services.now(), &hosted);
    }
}

/// The method `StreamRateLimitQuotas`.
struct Quotas(Arc<Services>);

type Answers = Pin<Box<dyn futures_util::Stream<Item = Result<QuotaResponse, Status>> + Send>>;

impl StreamingService<UsageReports> for Quotas {
    type Response = QuotaResponse;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Answers>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<UsageReports>>) -> Self::Future {
        let peer = request.extensions().get::<SocketAddr>().copied();
        let mut keep = interval(KEEP_INTERVAL);
        keep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (services, caller) = (Arc::clone(&self.0), caller(&request));
        let messages = request.into_inner();
        let open = Open { services, caller, domain: String::new(), messages, task: None, keep, peer };
        let answers: Answers = Box::pin(futures_util::stream::unfold(Some(open), Open::next));
        Box::pin(async { Ok(tonic::Response::new(answers)) })
    }
}

/// Both directions of a stream.
struct Open {
    services: Arc<Services>,
    caller: Caller,
    /// That of the first message.
    domain: String,
    messages: Streaming<UsageReports>,
    /// From the first message on.
    task: Option<(QuotaStream, mpsc::Receiver<ToTask>)>,
    keep: Interval,
    peer: Option<SocketAddr>,
}

impl Open {
    /// The next answer, or the error that ends the stream.
    async fn next(open: Option<Self>) -> Option<(Result<QuotaResponse, Status>, Option<Self>)> {
        let mut open = open?;
        match open.answer().await {
            Ok(Some(answer)) => Some((Ok(answer), Some(open))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    }

    async fn answer(&mut self) -> Result<Option<QuotaResponse>, Status> {
        loop {
            let answer = match &mut self.task {
                None => {
                    let Some(first) = self.messages.message().await? else { return Ok(None) };
                    self.report(&first)?
                }
                Some((task, assignments)) => tokio::select! {
                    message = self.messages.message() => match message? {
                        Some(message) => self.report(&message)?,
                        None => return Ok(None),
                    },
                    assignment = assignments.recv() => {
                        let assignment = assignment.ok_or_else(|| Status::unavailable("the lease is over"))?;
                        task.assign(self.services.now(), &assignment).map_err(status)?
                    }
                    _ = self.keep.tick() => {
                        task.keep(self.services.now()).map_err(status)?;
                        continue;
                    }
                },
            };
            if !answer.actions.is_empty() {
                return Ok(Some(answer));
            }
        }
    }

    fn report(&mut self, message: &UsageReports) -> Result<QuotaResponse, Status> {
        let now = self.services.now();
        if self.task.is_none() {
            self.domain.clone_from(&message.domain);
        }
        // The right may be lost while the stream lasts.
        let hosted = hosted(&self.services, &self.domain, &self.caller).inspect_err(|status| {
            if status.code() == Code::PermissionDenied {
                tracing::warn!(service = self.domain, error = status.message(), "Envoy refused");
            }
        })?;
        let (task, assignments) = match &mut self.task {
            Some(task) => task,
            none => {
                let opened = QuotaStream::open(now, hosted, instance(self.peer), message).map_err(status)?;
                tracing::info!(service = message.domain, "Envoy joined");
                none.insert(opened)
            }
        };
        task.report(now, message, assignments).map_err(status)
    }
}

/// The caller of a method.
fn caller<T>(request: &tonic::Request<T>) -> Caller {
    request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::nobody)
}

/// The owner for the Envoys of a domain, which is the name of a service, if it is this server. The caller is to have the right to report.
fn hosted(services: &Services, domain: &str, caller: &Caller) -> Result<Arc<Hosted>, Status> {
    let Some(hosted) = services.get(domain) else {
        services.check_right(domain, caller)?;
        return Err(services.ownership(domain).status(domain));
    };
    hosted.may_report(domain, caller)?;
    Ok(hosted.front().unwrap_or(hosted))
}

/// A name for an Envoy, which tells none of its own: each stream is a task.
fn instance(peer: Option<SocketAddr>) -> String {
    static STREAMS: AtomicU64 = AtomicU64::new(1);
    let number = STREAMS.fetch_add(1, Ordering::Relaxed);
    peer.map_or_else(|| format!("envoy-{number}"), |peer| format!("envoy-{peer}-{number}"))
}

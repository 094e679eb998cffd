//! Sends the load of a [`Plan`] and keeps the [`Record`].
//!
//! Runs on a `LocalSet`: one thread, no locks. A request of which nothing was sent (its keep-alive
//! connection had closed; hyper gives the request back), or which an HTTP/2 server said it did not
//! touch, goes out again on another connection; one whose connection died otherwise counts as failed,
//! since the server may have begun to serve it.

use std::cell::{Cell, RefCell};
use std::error::Error as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use plimsoll_core::Rejection;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tokio::sync::Notify;

use super::arrival::Arrivals;
use super::mix::Kind;
use super::pace::Pacer;
use super::plan::{Arrival, Plan, Protocol, Shape};
use super::pool::{Loan, Pool};
use super::record::{Answer, Failure, GrpcStatus, Record};

/// Connections tried for one request that nobody has begun to serve. More than a few in a row are not
/// stale connections but a server that hangs up on everyone.
const MAX_SENDS: u32 = 4;
/// Launches in a row, when behind, before answers get their turn.
const LAUNCHES_PER_TURN: u32 = 16;

/// Makes the seed of the kinds from that of the arrivals. With the same one short gaps would go to the same kinds.
const KINDS: u64 = 0x6b69_6e64;

const X_BACKEND: HeaderName = HeaderName::from_static("x-backend");
const X_PLIMSOLL_SHED: HeaderName = HeaderName::from_static("x-plimsoll-shed");
const X_PLIMSOLL_COST_US: HeaderName = HeaderName::from_static("x-plimsoll-cost-us");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Sends load. Made to be shared by the tasks of one `LocalSet`.
#[derive(Debug)]
pub(crate) struct Engine {
    plan: Rc<Plan>,
    record: RefCell<Record>,
    /// When the present record began; `None` before the load does.
    since: Cell<Option<Instant>>,
    /// Connections that belong to earlier records.
    connections_before: Cell<u64>,
    /// One for each server.
    pools: RefCell<Rc<[Pool]>>,
    in_flight: Cell<u32>,
    ended: Notify,
    /// Source of the requests' kinds.
    kinds: RefCell<Pcg64Mcg>,
}

/// One request of the load, before it is sent.
#[derive(Clone, Copy, Debug)]
struct Intent {
    /// When it is meant to be sent.
    due: Instant,
    /// Whether it is part of the measurement.
    counts: bool,
    kind: Kind,
    /// The place of its server.
    server: usize,
}

/// Counts a request as in flight for as long as it lives.
struct InFlight(Rc<Engine>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        self.0.ended.notify_one();
    }
}

impl Engine {
    /// Ready to [`run`](Self::run).
    pub(crate) fn new(plan: Plan) -> Rc<Self> {
        Rc::new(Self {
            kinds: RefCell::new(Pcg64Mcg::seed_from_u64(plan.seed ^ KINDS)),
            plan: Rc::new(plan),
            record: RefCell::default(),
            since: Cell::new(None),
            connections_before: Cell::new(0),
            pools: RefCell::new(Rc::new([])),
            in_flight: Cell::new(0),
            ended: Notify::new(),
        })
    }

    /// What is being sent.
    pub(crate) fn plan(&self) -> Rc<Plan> {
        Rc::clone(&self.plan)
    }

    /// What was measured since the start or the last call.
    pub(crate) fn take_measured(&self) -> Record {
        let now = Instant::now();
        let mut record = self.record.take();
        if let Some(since) = self.since.get() {
            record.elapsed = now.saturating_duration_since(since);
            self.since.set(Some(now.max(since)));
        }
        let opened = self.pools.borrow().iter().map(Pool::opened).sum::<u64>();
        record.connections = opened - self.connections_before.replace(opened);
        record
    }

    /// Sends all of it and waits for the answers. Fails only if the load cannot begin: what the
    /// server does wrong is in the record.
    pub(crate) async fn run(self: &Rc<Self>) -> anyhow::Result<()> {
        let pools = self.pools().await?;
        *self.pools.borrow_mut() = Rc::clone(&pools);
        // A server that takes connections but does not answer must not hold up the start for ever.
        let warm_up = async {
            for pool in &*pools {
                pool.warm_up().await;
            }
        };
        let _ = tokio::time::timeout(self.plan.timeout, warm_up).await;
        let start = Instant::now();
        let measured_from = start + self.plan.warmup;
        self.since.set(Some(measured_from));
        let course = Course {
            start,
            measured_from,
            end: self.plan.duration.and_then(|duration| measured_from.checked_add(duration)),
        };
        match self.plan.shape {
            Shape::Open { rate, arrival } => self.run_open(&pools, &course, rate, arrival).await?,
            Shape::Closed { concurrency } => self.run_closed(&pools, &course, concurrency).await,
        }
        Ok(())
    }

    async fn pools(&self) -> anyhow::Result<Rc<[Pool]>> {
        let pool = |addresses| Pool::new(addresses, self.plan.protocol, self.plan.connections);
        if let Some(spread) = &self.plan.spread {
            return Ok(spread.addresses().iter().map(|address| pool(vec![*address])).collect());
        }
        let (host, port) = self.plan.target.host_and_port();
        let addresses =
            tokio::net::lookup_host((host, port)).await.with_context(|| format!("cannot resolve `{host}`"))?;
        Ok(Rc::new([pool(addresses.collect())]))
    }

    async fn run_open(
        self: &Rc<Self>,
        pools: &Rc<[Pool]>,
        course: &Course,
        rate: f64,
        arrival: Arrival,
    ) -> anyhow::Result<()> {
        let mut arrivals = Arrivals::new(arrival, rate, self.plan.seed);
        let pacer = Pacer::new().context("no kernel timer")?;
        let mut counted = 0;
        let mut launches = 0_u32;
        while self.plan.requests.is_none_or(|requests| counted < requests) {
            let Some(due) = course.start.checked_add(arrivals.next()) else { break };
            if course.end.is_some_and(|end| due >= end) {
                break;
            }
            pacer.until(due).await?;
            let intent = self.intend(course, due);
            counted += u64::from(intent.counts);
            self.launch(pools, intent);
            launches += 1;
            if launches.is_multiple_of(LAUNCHES_PER_TURN) {
                tokio::task::yield_now().await;
            }
        }
        while self.in_flight.get() > 0 {
            self.ended.notified().await;
        }
        Ok(())
    }

    fn intend(&self, course: &Course, due: Instant) -> Intent {
        let kinds = &mut *self.kinds.borrow_mut();
        let kind = self.plan.target.mix().draw(kinds);
        let server = self.plan.spread.as_ref().map_or(0, |spread| spread.draw(kinds));
        Intent { due, counts: due >= course.measured_from, kind, server }
    }

    fn launch(self: &Rc<Self>, pools: &Rc<[Pool]>, intent: Intent) {
        if self.in_flight.get() >= self.plan.max_in_flight {
            if intent.counts {
                self.note_dropped(intent.kind);
            }
            return;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        let in_flight = InFlight(Rc::clone(self));
        let pools = Rc::clone(pools);
        tokio::task::spawn_local(async move { in_flight.0.request(&pools[intent.server], intent).await });
    }

    async fn run_closed(self: &Rc<Self>, pools: &Rc<[Pool]>, course: &Course, concurrency: u32) {
        let counted = Rc::new(Cell::new(0));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..concurrency {
            let (engine, pools, course, counted) = (Rc::clone(self), Rc::clone(pools), *course, Rc::clone(&counted));
            callers.spawn_local(async move {
                while engine.plan.requests.is_none_or(|requests| counted.get() < requests) {
                    let now = Instant::now();
                    if course.end.is_some_and(|end| now >= end) {
                        break;
                    }
                    let intent = engine.intend(&course, now);
                    counted.set(counted.get() + u64::from(intent.counts));
                    engine.request(&pools[intent.server], intent).await;
                    // A server that is not there refuses without ever letting this task wait.
                    tokio::task::consume_budget().await;
                }
            });
        }
        while callers.join_next().await.is_some() {}
    }

    /// One request, from the intent to its entry in the record.
    async fn request(&self, pool: &Pool, intent: Intent) {
        let lag = intent.due.elapsed();
        let deadline = intent.due + self.plan.timeout;
        let failure = match tokio::time::timeout_at(deadline.into(), self.exchange(pool, intent, lag)).await {
            // The connection goes back after the record, for that may have to wait for the server.
            Ok(Ok(Some(loan))) => {
                let _ = tokio::time::timeout_at(deadline.into(), pool.give_back(loan)).await;
                return;
            }
            Ok(Ok(None)) => return,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Timeout,
        };
        self.note_ended(intent, lag, Err(failure));
    }

    fn note_ended(&self, intent: Intent, lag: Duration, result: Result<Answer, Failure>) {
        if !intent.counts {
            return;
        }
        let latency = intent.due.elapsed();
        let mix = self.plan.target.mix();
        let mut record = self.record.borrow_mut();
        record.left(lag);
        if !mix.is_plain() {
            record.tallies.ended(intent.kind, latency, mix.fate(latency, &result));
            if let Ok(answer) = &result {
                match answer.cost_us {
                    Some(cost_us) if answer.is_ok() => record.tallies.charged(intent.kind, cost_us),
                    _ if answer.by_limit => record.tallies.limited(intent.kind),
                    _ => {}
                }
            }
        }
        record.ended(latency, result);
    }

    fn note_dropped(&self, kind: Kind) {
        let mut record = self.record.borrow_mut();
        record.dropped += 1;
        if !self.plan.target.mix().is_plain() {
            record.tallies.dropped(kind);
        }
    }

    /// Sends and reads to the end of the body. Records the answer; gives the connection if it can
    /// carry more.
    async fn exchange(&self, pool: &Pool, intent: Intent, lag: Duration) -> Result<Option<Loan>, Failure> {
        let target = &self.plan.target;
        let mut request = target.request(intent.kind, lag);
        for _ in 0..MAX_SENDS {
            let mut loan = pool.borrow().await.map_err(|_| Failure::Connect)?;
            match loan.send(request).await {
                Ok(response) => {
                    let answer = self.read(response).await?;
                    self.note_ended(intent, lag, Ok(answer));
                    return Ok(Some(loan));
                }
                Err(mut error) => {
                    request = match error.take_message() {
                        Some(unsent) => unsent,
                        None if was_refused(error.error()) => target.request(intent.kind, intent.due.elapsed()),
                        None => return Err(self.classify(error.error())),
                    };
                    self.record.borrow_mut().resent += u64::from(intent.counts);
                }
            }
        }
        Err(Failure::Closed)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Answer, Failure> {
        let status = response.status().as_u16();
        let backend = response.headers().get(X_BACKEND).cloned();
        let shed = response.headers().get(X_PLIMSOLL_SHED);
        let (marked_shed, by_limit) = (shed.is_some(), shed.is_some_and(is_by_limit));
        let cost_us = response.headers().get(X_PLIMSOLL_COST_US).and_then(|cost| cost.to_str().ok()?.parse().ok());
        // A call without a message may carry its status in the head ("trailers-only").
        let mut grpc = grpc_status(response.headers());
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.classify(&error))?;
            if let Some(data) = frame.data_ref() {
                bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                grpc = grpc_status(trailers).or(grpc);
            }
        }
        let grpc = (self.plan.protocol == Protocol::Grpc).then_some(grpc.map_or(GrpcStatus::Missing, GrpcStatus::Code));
        Ok(Answer { status, grpc, backend, bytes, marked_shed, by_limit, cost_us })
    }

    fn classify(&self, error: &hyper::Error) -> Failure {
        tracing::debug!(?error, "request failed");
        if error.is_parse() {
            return Failure::Malformed;
        }
        let mut source = error.source();
        while let Some(cause) = source {
            if cause.is::<std::io::Error>() {
                return Failure::Closed;
            }
            source = cause.source();
        }
        let closed = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        if self.plan.protocol == Protocol::Http1 || closed { Failure::Closed } else { Failure::Reset }
    }
}

/// The moments of one run.
#[derive(Clone, Copy, Debug)]
struct Course {
    start: Instant,
    measured_from: Instant,
    end: Option<Instant>,
}

/// Whether an HTTP/2 server has said that it did nothing about the request: it stands behind the last
/// one that a GOAWAY promises to serve, or was reset as refused. RFC 9113 (8.7) has clients send such
/// requests again, whatever they are.
fn was_refused(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else { return false };
    let reason = error.reason();
    (error.is_go_away() && error.is_remote() && reason == Some(h2::Reason::NO_ERROR))
        || (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
}

/// Whether `x-plimsoll-shed` names a limit of the customer as the reason.
fn is_by_limit(shed: &HeaderValue) -> bool {
    let mut members = shed.to_str().unwrap_or_default().split(',');
    members.any(|member| member.trim().strip_prefix("reason=") == Some(Rejection::Quota.name()))
}

fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers.get(GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;

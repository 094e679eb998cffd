//! Envoy's rate limit service: a question for each request, and one account for all of them.
//!
//! The account is a task of the owner, so it shares the limit with the Envoys that have quota streams.
//!
//! | unit of the service | a hit is | charged |
//! |---|---|---|
//! | requests | a request | when it is admitted |
//! | CPUs | a CPU-microsecond | always: Envoy tells it when the response has ended. No hits: a question |
//!
//! The customer is the entry `customer` of a descriptor. Without it, or without a limit, a descriptor is OK.
//! A descriptor with a limit of its own has a bucket for itself.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll_core::quota::{BucketAnswer, BucketRequest, Buckets, Limit, Limiter, Limits};
use plimsoll_core::{Criticality, Timestamp};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::mpsc;

use super::message::{
    CUSTOMER, Descriptor, DescriptorStatus, Duration, Entry, MAX_NAME, RateLimit, RateLimitRequest, RateLimitResponse,
};
use crate::config::Unit;
use crate::convert;
use crate::hosted::Hosted;
use crate::message::{self, FromOwner, ToTask};
use crate::service::{MAX_QUEUE, StreamError, StreamId};

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;
/// Descriptors of a request that are looked at.
const MAX_DESCRIPTORS: usize = 64;
/// Buckets of descriptors with a limit of their own.
const MAX_OWN: usize = 4_096;
/// The name of the account as a task.
const INSTANCE: &str = "rate-limit-service";
/// The account believes its own demand.
const CPUS: f64 = 1e6;

#[derive(Debug)]
struct Stream {
    id: StreamId,
    epoch: u64,
    queue: mpsc::Receiver<ToTask>,
}

#[derive(Debug)]
struct State {
    limiter: Limiter,
    stream: Option<Stream>,
    own: Buckets,
    rng: Pcg64Mcg,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RateLimits {
    state: Mutex<State>,
    keys: RandomState,
}

/// A descriptor as it counts.
enum Counted {
    /// Nothing limits it.
    Free,
    Checked(DescriptorStatus),
}

impl RateLimits {
    pub(crate) fn new(now: Timestamp) -> Self {
        let keys = RandomState::new();
        let rng = Pcg64Mcg::seed_from_u64(keys.hash_one("draws"));
        let state = State { limiter: Limiter::new(now), stream: None, own: Buckets::new(MAX_OWN), rng };
        Self { state: Mutex::new(state), keys }
    }

    /// Answers a request. All of its descriptors are checked and counted.
    pub(crate) fn ask(&self, now: Timestamp, hosted: &Arc<Hosted>, request: &RateLimitRequest) -> RateLimitResponse {
        let mut state = self.state.lock();
        self.exchange(now, hosted, &mut state);
        let unit = hosted.lock().config().unit;
        let statuses = request.descriptors.iter().enumerate().map(|(at, descriptor)| {
            let hits = descriptor.hits_addend.map_or(u64::from(request.hits_addend.max(1)), |hits| hits.value);
            let counted =
                if at < MAX_DESCRIPTORS { self.count(now, &mut state, unit, descriptor, hits) } else { Counted::Free };
            match counted {
                Counted::Free => DescriptorStatus { code: OK, ..DescriptorStatus::default() },
                Counted::Checked(status) => status,
            }
        });
        let statuses: Vec<_> = statuses.collect();
        let is_over = statuses.iter().any(|status| status.code == OVER_LIMIT);
        if state.limiter.take_hurry() {
            self.exchange(now, hosted, &mut state);
        }
        RateLimitResponse { overall_code: if is_over { OVER_LIMIT } else { OK }, statuses }
    }

    /// The answer where nothing is limited.
    pub(crate) fn unlimited(request: &RateLimitRequest) -> RateLimitResponse {
        let status = DescriptorStatus { code: OK, ..DescriptorStatus::default() };
        RateLimitResponse { overall_code: OK, statuses: vec![status; request.descriptors.len()] }
    }

    /// Reports to the owner when it is time, also without requests.
    pub(crate) fn tick(&self, now: Timestamp, hosted: &Arc<Hosted>) {
        self.exchange(now, hosted, &mut self.state.lock());
    }

    fn count(&self, now: Timestamp, state: &mut State, unit: Unit, descriptor: &Descriptor, hits: u64) -> Counted {
        // Absurd hits of one response are worth a minute of the limit at most.
        let hits = (hits as f64).min(1e15);
        if let Some(limit) = descriptor.limit {
            return self.count_own(now, state, unit, &descriptor.entries, limit, hits);
        }
        let name = descriptor.entries.iter().find(|entry| entry.key == CUSTOMER).map(|entry| entry.value.as_bytes());
        let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME) else { return Counted::Free };
        let key = self.key(name);
        let State { limiter, rng, .. } = state;
        let Some(id) = limiter.enter_account(now, key, name) else { return Counted::Free };
        let draw = f64::from(rng.next_u32()) / f64::from(u32::MAX);
        let is_starting = limiter.is_starting(now);
        let (account, criticality) = (limiter.account(id), Criticality::default());
        let decided = match unit {
            Unit::Requests => {
                let cost = hits * Unit::REQUEST;
                account.ask(now, criticality, cost, draw).map(|()| account.take(cost))
            }
            Unit::Cpus if hits == 0.0 => account.check(now, criticality, draw),
            Unit::Cpus => {
                account.charge(now, criticality, hits);
                Ok(())
            }
        };
        let hit = match unit {
            Unit::Requests => Unit::REQUEST,
            Unit::Cpus => 1.0,
        };
        let is_free = account.is_dry_run() || is_starting;
        let code = if decided.is_err() && !is_free { OVER_LIMIT } else { OK };
        let Some(limit) = account.limit() else { return Counted::Free };
        let ((level, depth), rate) = (account.level(now), account.rate());
        let current_limit = Some(RateLimit { hits_per_unit: (limit as f64 / hit) as u32, unit: 1 });
        limiter.hurry(now, id);
        Counted::Checked(status(code, current_limit, level / hit, depth / hit, rate / hit))
    }

    /// A descriptor with a limit of its own.
    fn count_own(
        &self,
        now: Timestamp,
        state: &mut State,
        unit: Unit,
        entries: &[Entry],
        limit: RateLimit,
        hits: f64,
    ) -> Counted {
        let seconds = match limit.unit {
            1 => 1.0,
            2 => 60.0,
            3 => 3_600.0,
            4 => 86_400.0,
            5 => 30.0 * 86_400.0,
            6 => 365.0 * 86_400.0,
            _ => return Counted::Free,
        };
        let (depth, key) = (f64::from(limit.hits_per_unit), self.keys.hash_one(entries).max(1));
        let rate = depth / seconds;
        let request = match unit {
            Unit::Requests => BucketRequest::Take(hits),
            Unit::Cpus if hits == 0.0 => BucketRequest::Check,
            Unit::Cpus => BucketRequest::Charge(hits),
        };
        let BucketAnswer { is_admitted, level } = state.own.ask(now, key, rate, depth, request);
        let code = if is_admitted { OK } else { OVER_LIMIT };
        Counted::Checked(status(code, Some(limit), level, depth, rate))
    }

    fn key(&self, name: &[u8]) -> u64 {
        self.keys.hash_one(name).max(1)
    }

    fn exchange(&self, now: Timestamp, hosted: &Arc<Hosted>, state: &mut State) {
        if self.try_exchange(now, hosted, state).is_err() {
            // The lease is over: it joins again with the next call.
            state.limiter.disconnect();
            state.stream = None;
        }
    }

    fn try_exchange(&self, now: Timestamp, hosted: &Arc<Hosted>, state: &mut State) -> Result<(), StreamError> {
        if state.stream.is_none() {
            let (sender, queue) = mpsc::channel(MAX_QUEUE);
            let hello = state.limiter.connect(now, CPUS);
            let hello = convert::hello(INSTANCE, INSTANCE, 1.0, 0, hello);
            let epoch = hosted.lock().epoch();
            let id = hosted.change(|service| service.join(now, &hello, sender))?;
            state.stream = Some(Stream { id, epoch, queue });
            self.take(now, state)?;
        }
        if let Some(report) = state.limiter.poll(now)
            && let Some(stream) = &state.stream
        {
            let (id, report) = (stream.id, convert::report(stream.epoch, report));
            hosted.change(|service| service.report(now, id, &report))?;
        }
        self.take(now, state)
    }

    fn take(&self, now: Timestamp, state: &mut State) -> Result<(), StreamError> {
        let Some(stream) = &mut state.stream else { return Ok(()) };
        while let Ok(message) = stream.queue.try_recv() {
            match message.message {
                Some(FromOwner::Limits(limits)) => self.set_limits(now, &mut state.limiter, &limits),
                Some(FromOwner::Assignment(message)) => {
                    let assignment = convert::to_assignment(&message)?;
                    let _ = state.limiter.assign(now, &assignment);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn set_limits(&self, now: Timestamp, limiter: &mut Limiter, message: &message::Limits) {
        // Envoy has no CPU to share.
        let limit = |of: &message::Limit| Limit { is_dry_run: of.dry_run, ..Limit::new(of.limit) };
        let named = message.named.iter().map(|of| (self.key(&of.name), limit(of))).collect();
        let others = message.others.as_ref().map(limit);
        // Groups hold at the tasks of the service, and a service of Envoys has none.
        limiter.set_limits(now, message.tasks, Limits { named, others, ..Limits::default() });
    }
}

/// The status of a descriptor; level, depth and rate in hits.
fn status(code: i32, current_limit: Option<RateLimit>, level: f64, depth: f64, rate: f64) -> DescriptorStatus {
    let wait = ((depth - level) / rate.max(1e-9)).clamp(0.0, 1e9);
    let nanos = (wait.fract() * 1e9) as i32;
    let duration_until_reset = Some(Duration { seconds: wait as i64, nanos });
    DescriptorStatus { code, current_limit, limit_remaining: level.max(0.0) as u32, duration_until_reset }
}

#[cfg(test)]
mod tests;

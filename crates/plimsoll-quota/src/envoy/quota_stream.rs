//! One stream of Envoy's rate limit quota service: a task of the owner.
//!
//! | bucket | answer |
//! |---|---|
//! | a customer with a limit | a token bucket, or deny all |
//! | no customer, no limit, or a dry run | allow all |
//! | CPU limit, and no backend has told a cost | none: Envoy's own default holds |
//! | no request for ten seconds, or one customer too many | abandoned |
//!
//! A bucket keeps its assignment only until its time to live is over, so each report renews it.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_core::Timestamp;
use plimsoll_core::quota::{Allowance, CountingTask, CustomerId, Usage, granted};
use tokio::sync::mpsc;

use super::message::{
    Abandon, Action, Assign, BucketAction, BucketId, BucketUsage, CUSTOMER, Duration, Kind, MAX_NAME, QuotaResponse,
    Strategy, TokenBucket, UInt32, UsageReports,
};
use crate::config::Unit;
use crate::convert;
use crate::hosted::Hosted;
use crate::message::{FromOwner, Hello, Hold, Report, ReportEntry, ToTask};
use crate::service::{MAX_QUEUE, StreamError, StreamId};

/// The CPUs of an Envoy are not known: all of its demand is believed.
const CPUS: f64 = 1e6;

/// Where a bucket belongs to.
enum Place {
    /// A customer with a limit in rate units, and the cost of a request.
    Limited {
        name: Box<[u8]>,
        limit: u64,
        cost: f64,
    },
    Unlimited,
    Unknown,
}

#[derive(Debug)]
struct Bucket {
    id: BucketId,
    name: Box<[u8]>,
    /// The stream has told the service its name.
    is_introduced: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct QuotaStream {
    hosted: Arc<Hosted>,
    id: StreamId,
    epoch: u64,
    task: CountingTask,
    buckets: HashMap<CustomerId, Bucket>,
    by_bucket: HashMap<BucketId, CustomerId>,
    next: u32,
}

impl QuotaStream {
    /// A stream with its first message. Returns the queue of its assignments too.
    pub(crate) fn open(
        now: Timestamp,
        hosted: Arc<Hosted>,
        instance: String,
        first: &UsageReports,
    ) -> Result<(Self, mpsc::Receiver<ToTask>), StreamError> {
        let (queue, mut assignments) = mpsc::channel(MAX_QUEUE);
        let mut task = CountingTask::new(now, 1, plimsoll_core::quota::OwnerConfig::DEFAULT_LEASE);
        let (mut buckets, mut by_bucket, mut holds) = (HashMap::new(), HashMap::new(), Vec::new());
        for usage in &first.usages {
            // An Envoy that was there before this stream uses a rate of another owner.
            let Some(bucket) = usage.bucket_id.as_ref() else { continue };
            let seconds = usage.time_elapsed.map_or(0, |elapsed| elapsed.seconds.clamp(0, 3_600));
            let Place::Limited { name, limit, cost } = place(&hosted, bucket) else { continue };
            if seconds == 0 || holds.len() >= CountingTask::MAX_CUSTOMERS || by_bucket.contains_key(bucket) {
                continue;
            }
            let rate = (usage.allowed as f64 * cost / seconds as f64).min(granted(limit) as f64) as u32;
            let id = CustomerId(holds.len() as u32);
            task.hold(now, id, rate, limit, cost);
            holds.push(Hold { id: id.0, name: name.to_vec(), rate });
            by_bucket.insert(bucket.clone(), id);
            buckets.insert(id, Bucket { id: bucket.clone(), name, is_introduced: true });
        }
        let next = holds.len() as u32;
        let service = first.domain.clone();
        let hello =
            Hello { service, instance, cpus: CPUS, speed: 1.0, tasks: None, epoch: 0, holds, groups: Vec::new() };
        let id = hosted.change(|service| service.join(now, &hello, queue))?;
        let mut epoch = 0;
        if let Ok(ToTask { message: Some(FromOwner::Limits(limits)) }) = assignments.try_recv() {
            epoch = limits.epoch;
            task.set_tasks(limits.tasks);
        }
        Ok((Self { hosted, id, epoch, task, buckets, by_bucket, next }, assignments))
    }

    /// Takes a message of Envoy, and returns the answer.
    pub(crate) fn report(
        &mut self,
        now: Timestamp,
        message: &UsageReports,
        assignments: &mut mpsc::Receiver<ToTask>,
    ) -> Result<QuotaResponse, StreamError> {
        let mut answered = Vec::with_capacity(message.usages.len());
        let mut actions = Vec::new();
        for usage in &message.usages {
            let Some(bucket) = usage.bucket_id.as_ref().filter(|id| !id.bucket.is_empty()) else { continue };
            match place(&self.hosted, bucket) {
                Place::Unlimited => actions.push((bucket.clone(), Some(Kind::ALLOW_ALL))),
                Place::Unknown => {}
                Place::Limited { name, limit, cost } => match self.count(now, usage, bucket, name, limit, cost) {
                    Some(customer) => answered.push(customer),
                    None => actions.push((bucket.clone(), None)),
                },
            }
        }
        actions.extend(self.exchange(now)?.into_iter().map(|bucket| (bucket, None)));
        while let Ok(message) = assignments.try_recv() {
            answered.extend(self.take(now, &message)?);
        }
        answered.sort_unstable();
        answered.dedup();
        actions.extend(self.allowances(&answered));
        Ok(self.response(now, actions))
    }

    /// Takes a message of the owner, and returns what Envoy is to know of it.
    pub(crate) fn assign(&mut self, now: Timestamp, message: &ToTask) -> Result<QuotaResponse, StreamError> {
        let changed = self.take(now, message)?;
        let actions = self.allowances(&changed);
        Ok(self.response(now, actions))
    }

    /// Keeps a stream whose Envoy has no bucket, and so nothing to report.
    pub(crate) fn keep(&mut self, now: Timestamp) -> Result<(), StreamError> {
        if self.buckets.is_empty() { self.exchange(now).map(drop) } else { Ok(()) }
    }

    fn count(
        &mut self,
        now: Timestamp,
        usage: &BucketUsage,
        bucket: &BucketId,
        name: Box<[u8]>,
        limit: u64,
        cost: f64,
    ) -> Option<CustomerId> {
        let customer = match self.by_bucket.get(bucket) {
            Some(customer) => *customer,
            None => self.add(bucket, name)?,
        };
        self.task.count(now, customer, Usage { allowed: usage.allowed, denied: usage.denied }, limit, cost);
        Some(customer)
    }

    /// A new bucket; `None` if there are too many, or if another one has this customer.
    fn add(&mut self, bucket: &BucketId, name: Box<[u8]>) -> Option<CustomerId> {
        let is_there = self.buckets.values().any(|of| of.name == name);
        if self.buckets.len() >= CountingTask::MAX_CUSTOMERS || is_there {
            return None;
        }
        let customer = CustomerId(self.next);
        self.next += 1;
        self.by_bucket.insert(bucket.clone(), customer);
        self.buckets.insert(customer, Bucket { id: bucket.clone(), name, is_introduced: false });
        Some(customer)
    }

    /// Reports to the owner, whose answer is in the queue then. Returns the buckets that are dropped.
    fn exchange(&mut self, now: Timestamp) -> Result<Vec<BucketId>, StreamError> {
        let report = self.task.report(now);
        let entries = report.entries.iter().map(|of| {
            let name = self
                .buckets
                .get_mut(&of.customer)
                .and_then(|bucket| (!std::mem::replace(&mut bucket.is_introduced, true)).then(|| bucket.name.to_vec()));
            let (demand, id) = (of.demand.to_vec(), of.customer.0);
            let &plimsoll_core::quota::ReportEntry { cost, lacking, unused, used, .. } = of;
            ReportEntry { id, name, demand, cost, lacking, unused, used }
        });
        let message = Report {
            epoch: self.epoch,
            number: report.number,
            acknowledged: report.acknowledged,
            entries: entries.collect(),
            groups: Vec::new(),
            dropped: report.dropped.iter().map(|customer| customer.0).collect(),
            overloaded: report.overloaded.map(convert::rank_of),
        };
        self.hosted.change(|service| service.report(now, self.id, &message))?;
        let dropped = report.dropped.iter().filter_map(|customer| {
            let bucket = self.buckets.remove(customer)?;
            self.by_bucket.remove(&bucket.id);
            Some(bucket.id)
        });
        Ok(dropped.collect())
    }

    fn take(&mut self, now: Timestamp, message: &ToTask) -> Result<Vec<CustomerId>, StreamError> {
        match &message.message {
            Some(FromOwner::Assignment(message)) => {
                let assignment = convert::to_assignment(message)?;
                Ok(self.task.assign(now, &assignment))
            }
            Some(FromOwner::Limits(limits)) => {
                self.task.set_tasks(limits.tasks);
                Ok(Vec::new())
            }
            None => Ok(Vec::new()),
        }
    }

    fn allowances(&mut self, customers: &[CustomerId]) -> Vec<(BucketId, Option<Kind>)> {
        let of = |customer: &CustomerId| {
            let kind = match self.task.allowance(*customer)? {
                Allowance::DenyAll => Kind::DENY_ALL,
                Allowance::TokenBucket { depth, tokens } => Kind::TokenBucket(TokenBucket {
                    max_tokens: depth,
                    tokens_per_fill: Some(UInt32 { value: tokens }),
                    fill_interval: Some(seconds(CountingTask::FILL_INTERVAL.as_secs())),
                }),
            };
            Some((self.buckets.get(customer)?.id.clone(), Some(kind)))
        };
        customers.iter().filter_map(of).collect()
    }

    /// A message with these actions; no kind abandons the bucket.
    fn response(&self, now: Timestamp, actions: Vec<(BucketId, Option<Kind>)>) -> QuotaResponse {
        let time_to_live = Some(seconds(self.task.time_to_live(now)));
        let action = |(bucket, kind): (BucketId, Option<Kind>)| {
            let action = match kind {
                Some(_) => Action::Assign(Assign { time_to_live, strategy: Some(Strategy { kind }) }),
                None => Action::Abandon(Abandon {}),
            };
            BucketAction { bucket_id: Some(bucket), action: Some(action) }
        };
        QuotaResponse { actions: actions.into_iter().map(action).collect() }
    }
}

impl Drop for QuotaStream {
    fn drop(&mut self) {
        self.hosted.change(|service| service.leave(self.id));
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration { seconds: seconds as i64, nanos: 0 }
}

/// The limit of a bucket's customer, and the cost of a request.
fn place(hosted: &Hosted, bucket: &BucketId) -> Place {
    let name = bucket.bucket.get(CUSTOMER).map(String::as_bytes);
    let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME) else { return Place::Unlimited };
    let service = hosted.lock();
    let limit = match service.limit(name) {
        Some((limit, false)) => limit,
        Some((_, true)) | None => return Place::Unlimited,
    };
    let unit = service.config().unit;
    drop(service);
    let cost = match unit {
        Unit::Requests => Some(Unit::REQUEST),
        // The backends of the service know the cost.
        Unit::Cpus => hosted.backends().and_then(|backends| backends.lock().mean_cost(name)),
    };
    match cost {
        Some(cost) => Place::Limited { name: name.into(), limit, cost },
        None => Place::Unknown,
    }
}

#[cfg(test)]
mod tests;

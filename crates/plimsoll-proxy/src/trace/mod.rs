//! Traces: the spans of some requests, for a collector.
//!
//! A recorded request has a span of the proxy, and one for each attempt at a backend. The backend
//! continues the span of its attempt, so a trace shows retries and hedges beside each other, and
//! the reason of a request that no backend served.
//!
//! [`plimsoll_core::trace`] decides which requests are recorded. Spans are encoded on the worker's
//! thread when they end, and wait in a [`queue`] of bounded size; a task on the control thread
//! sends them ([`export`]). So a collector that is slow or gone delays no request: spans are
//! dropped and counted.
//!
//! While tracing is off, a request costs one branch.

mod collector;
mod export;
mod queue;
mod request;

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderMap;
use parking_lot::Mutex;
use plimsoll::tls::TlsConfig;
use plimsoll_core::slots::Holder;
use plimsoll_core::trace::{Decision, RateLimit, RateLimits, Recording, Sampler, Sender};
use plimsoll_core::{Ratio, Timestamp};
use plimsoll_wire::trace_context;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use self::collector::Target;
use self::queue::Queue;
pub(crate) use self::request::RequestTrace;
use crate::config::Tracing;

/// A handle to the traces of this process; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    is_on: AtomicBool,
    rules: ArcSwap<Rules>,
    rates: Mutex<RateLimit>,
    /// The begin of the time of `rates`.
    origin: Instant,
    /// Requests that were not recorded because of the rates.
    limited: AtomicU64,
    queue: Arc<Queue>,
    /// The collector; stays when tracing is turned off, for spans that wait.
    target: ArcSwapOption<Target>,
    has_exporter: AtomicBool,
}

/// Which requests are recorded.
#[derive(Debug)]
struct Rules {
    sampler: Sampler,
    rates: RateLimits,
}

/// What has become of spans so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracesView {
    /// Spans that the collector accepted.
    pub exported: u64,
    /// Spans that were dropped, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Requests that would have been recorded but for the rates.
    pub limited: u64,
}

impl Default for Traces {
    fn default() -> Self {
        let one = NonZeroU32::MIN;
        let rules = Rules { sampler: Sampler::new(Ratio::ZERO), rates: RateLimits { total: one, per_client: one } };
        Self(Arc::new(Shared {
            is_on: AtomicBool::new(false),
            rules: ArcSwap::from_pointee(rules),
            rates: Mutex::default(),
            origin: Instant::now(),
            limited: AtomicU64::new(0),
            queue: Arc::default(),
            target: ArcSwapOption::empty(),
            has_exporter: AtomicBool::new(false),
        }))
    }
}

impl Traces {
    /// Whether any request is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Decides on a request with these headers, and corrects its trace there. `sender` and `client` are
    /// asked only where it depends on them.
    pub(crate) fn decide(
        &self,
        headers: &mut HeaderMap,
        sender: impl FnOnce() -> Sender,
        client: impl FnOnce(&HeaderMap) -> Holder,
    ) -> Option<Recording> {
        let came = trace_context::read(headers);
        if came.is_err() {
            // Services behind might read one of two, or a part.
            trace_context::remove(headers);
        }
        let came = came.ok().flatten();
        let sender = if came.is_some() { sender() } else { Sender::Stranger };
        let rules = self.0.rules.load();
        let admit = || {
            let now = Timestamp::from_origin(self.0.origin.elapsed());
            let is_admitted = self.0.rates.lock().admit(now, client(headers), rules.rates);
            self.0.limited.fetch_add(u64::from(!is_admitted), Ordering::Relaxed);
            is_admitted
        };
        match with_rng(|rng| rules.sampler.decide(came, sender, rng, admit)) {
            Decision::Unchanged => None,
            Decision::Cleared(context) => {
                trace_context::write(headers, context);
                None
            }
            Decision::Recorded(recording) => Some(recording),
        }
    }

    /// The trace of a request that is recorded so.
    pub(crate) fn begin(&self, recording: Recording, headers: &HeaderMap, client: Option<IpAddr>) -> Arc<RequestTrace> {
        Arc::new(RequestTrace::new(&self.0.queue, recording, headers, client))
    }

    /// Records by these settings from now on; `None` for no request. `tls` is for a collector at https.
    pub(crate) fn configure(&self, tracing: Option<&Tracing>, tls: Option<&TlsConfig>) {
        let Some(tracing) = tracing else { return self.0.is_on.store(false, Ordering::Relaxed) };
        let rates = RateLimits { total: tracing.max_per_second, per_client: tracing.max_per_client };
        self.0.rules.store(Arc::new(Rules { sampler: Sampler::new(tracing.sample), rates }));
        let target = Target::new(&tracing.endpoint, &tracing.service_name, tls);
        if self.0.target.load().as_deref() != Some(&target) {
            self.0.target.store(Some(Arc::new(target)));
        }
        self.0.is_on.store(true, Ordering::Relaxed);
        if !self.0.has_exporter.swap(true, Ordering::Relaxed) {
            tokio::spawn(export::run(Arc::clone(&self.0.queue), self.clone()));
        }
    }

    /// The collector of the next batch.
    fn target(&self) -> Option<Arc<Target>> {
        self.0.target.load_full()
    }

    /// What has become of spans so far.
    pub(crate) fn view(&self) -> TracesView {
        let (exported, dropped) = self.0.queue.counts();
        TracesView { exported, dropped, limited: self.0.limited.load(Ordering::Relaxed) }
    }

    /// Sends the spans that wait, for `patience` at most.
    pub(crate) async fn flush(&self, patience: Duration) {
        self.0.queue.flush(patience).await;
    }
}

/// The generator of this thread, for ids and draws.
fn with_rng<T>(draw: impl FnOnce(&mut Pcg64Mcg) -> T) -> T {
    thread_local! {
        static RNG: RefCell<Pcg64Mcg> = RefCell::new(Pcg64Mcg::from_seed(seed()));
    }
    RNG.with_borrow_mut(draw)
}

/// Others for each thread of all processes.
fn seed() -> [u8; 16] {
    let state = RandomState::new();
    let halves = [0, 1].map(|half: u64| state.hash_one(half));
    (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use plimsoll_wire::headers::{TRACEPARENT, TRACESTATE};

    use super::*;

    fn rules(sample: f64) -> Traces {
        let traces = Traces::default();
        let rates = RateLimits { total: NonZeroU32::new(5).unwrap(), per_client: NonZeroU32::new(5).unwrap() };
        traces.0.rules.store(Arc::new(Rules { sampler: Sampler::new(Ratio::new(sample).unwrap()), rates }));
        traces
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    /// The headers of a request that came with `fields` from a stranger and is not recorded.
    fn onward(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = headers(fields);
        assert!(rules(0.0).decide(&mut headers, || Sender::Stranger, |_| Holder::default()).is_none());
        headers
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const NOT_SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn flag_of_a_stranger_is_cleared_and_its_trace_stays() {
        let headers = onward(&[("traceparent", SAMPLED), ("tracestate", "a=1")]);
        let context = trace_context::read(&headers).unwrap().unwrap();
        assert!(!context.flags.is_sampled && headers[TRACESTATE] == "a=1");
        assert_eq!(headers[TRACEPARENT].as_bytes()[..35], SAMPLED.as_bytes()[..35]);
        assert_ne!(headers[TRACEPARENT].as_bytes()[..52], SAMPLED.as_bytes()[..52]);
        let unchanged = [("traceparent", NOT_SAMPLED), ("tracestate", "a=1")];
        assert_eq!(onward(&unchanged), self::headers(&unchanged));
    }

    #[test]
    fn unreadable_trace_is_removed_with_its_state() {
        for parents in [&["junk"][..], &[SAMPLED, SAMPLED]] {
            let mut fields: Vec<_> = parents.iter().map(|parent| ("traceparent", *parent)).collect();
            fields.push(("tracestate", "a=1"));
            assert_eq!(onward(&fields), HeaderMap::new());
        }
    }

    #[test]
    fn requests_beyond_the_rates_are_counted_and_not_recorded() {
        let traces = rules(1.0);
        let recorded = (0..20).filter(|_| {
            let client = |_: &HeaderMap| Holder::default();
            traces.decide(&mut HeaderMap::new(), || Sender::Stranger, client).is_some()
        });
        assert_eq!(recorded.count(), 5);
        assert_eq!(traces.view().limited, 15);
    }

    #[test]
    fn ids_of_threads_differ() {
        let draw = || with_rng(rand_core::Rng::next_u64);
        assert_ne!(draw(), std::thread::spawn(draw).join().unwrap());
    }
}

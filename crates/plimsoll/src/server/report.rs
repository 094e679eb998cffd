//! The load report of this process, ready to be attached to any response.
//!
//! Encoding a report for every response would cost more than many responses do. So the encoded
//! header is kept and made anew only every [`ENCODE_EVERY`]; in between a response pays for reading
//! the clock, and for putting behind it what its own request has used ([`Encoded`]). Becoming a lame duck shows at once.
//!
//! What is measured: qps, eps and CPU over one sliding window ([`meter`](super::meter)), requests in flight, and
//! the latency that one more of them can expect ([`LatencyByLoad`]). CPU utilization is CPU used over CPU available, and stands in for
//! `application_utilization` as well, because some clients read only the one and some only the other.
//! A server that knows its load better says so through [`ReportSource`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use plimsoll_core::probe::LatencyByLoad;
use plimsoll_core::{LoadReport, Timestamp};
use plimsoll_wire::orca::{Encoded, OrcaLoadReport};

use super::available::Available;
use super::cost;
use super::cpu;
use super::lifecycle::{Lifecycle, Phase};
use super::meter::{LoadMeter, Rates, Totals};
use crate::clock::Clock;

/// How old an encoded report may be. A client that gets several responses within this time learns
/// nothing from the later ones that it could act on.
pub const ENCODE_EVERY: Duration = Duration::from_millis(20);

/// Changes what a server says of its load.
pub trait ReportSource: Send + Sync + 'static {
    /// What to report instead of `measured`. Called every [`ENCODE_EVERY`] at most, on the path of a
    /// response: it must not block.
    fn report(&self, measured: LoadReport) -> LoadReport;
}

impl<F: Fn(LoadReport) -> LoadReport + Send + Sync + 'static> ReportSource for F {
    fn report(&self, measured: LoadReport) -> LoadReport {
        self(measured)
    }
}

/// What the parts of the layer share.
pub(super) struct Reporter {
    pub(super) lifecycle: Lifecycle,
    /// CPUs that 100% utilization stands for.
    available: Arc<Available>,
    source: Option<Box<dyn ReportSource>>,
    clock: Clock,
    answered: AtomicU64,
    failed: AtomicU64,
    latencies: Mutex<LatencyByLoad>,
    /// When the encoded report is too old, in nanoseconds since the origin.
    stale_at: AtomicU64,
    encoded_phase: AtomicU8,
    encoded: RwLock<Arc<Encoded>>,
    measuring: Mutex<Measuring>,
}

/// When a request came, and how many it found.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    at: Timestamp,
    found: u32,
}

fn in_u32(requests: u64) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

struct Measuring {
    meter: LoadMeter,
    rates: Rates,
    report: OrcaLoadReport,
}

impl Reporter {
    pub(super) fn new(
        lifecycle: Lifecycle,
        window: Duration,
        available: Arc<Available>,
        source: Option<Box<dyn ReportSource>>,
    ) -> Arc<Self> {
        let totals = Totals { cpu: cpu::used(), ..Totals::default() };
        let report = OrcaLoadReport::default();
        Arc::new(Self {
            clock: available.clock(),
            available,
            source,
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latencies: Mutex::default(),
            stale_at: AtomicU64::new(0),
            encoded_phase: AtomicU8::new(lifecycle.phase() as u8),
            encoded: RwLock::new(Arc::new(Encoded::from(&report))),
            measuring: Mutex::new(Measuring {
                meter: LoadMeter::new(Timestamp::ZERO, window, totals),
                rates: Rates::default(),
                report,
            }),
            lifecycle,
        })
    }

    /// A request has come, and is not yet among those in flight.
    pub(super) fn arrived(&self) -> Arrival {
        Arrival { at: self.now(), found: in_u32(self.lifecycle.active_requests()) }
    }

    /// Counts a request as answered, well or ill.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how long a request took that was answered well. How soon one fails says nothing of those that do not.
    pub(super) fn took(&self, arrival: Arrival) {
        let now = self.now();
        self.latencies.lock().on_answer(now, arrival.found, now.since(arrival.at));
    }

    /// Counts a request, answered before or not at all, as failed.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The report as the value of an `endpoint-load-metrics-bin` header, with what `request` has used so far, if it is charged.
    pub(super) fn header(&self, request: Option<&cost::Request>) -> HeaderValue {
        let encoded = self.encoded();
        match request.filter(|request| request.is_charged()) {
            Some(request) => request.with_cost(|cost| encoded.with_cost(cost)),
            None => encoded.header_value().clone(),
        }
    }

    fn encoded(&self) -> Arc<Encoded> {
        let now = self.now();
        let phase = self.lifecycle.phase();
        if phase as u8 != self.encoded_phase.load(Ordering::Acquire) {
            self.encode(&mut self.measuring.lock(), now, phase);
        } else if now.as_nanos() >= self.stale_at.load(Ordering::Relaxed)
            // Another thread is at it already: what there is will do.
            && let Some(mut measuring) = self.measuring.try_lock()
        {
            self.encode(&mut measuring, now, phase);
        }
        Arc::clone(&self.encoded.read())
    }

    /// The report as it stands now.
    pub(super) fn report(&self) -> OrcaLoadReport {
        let now = self.now();
        let mut measuring = self.measuring.lock();
        self.encode(&mut measuring, now, self.lifecycle.phase());
        measuring.report.clone()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn encode(&self, measuring: &mut Measuring, now: Timestamp, phase: Phase) {
        if measuring.meter.due(now) {
            let totals = Totals {
                answered: self.answered.load(Ordering::Relaxed),
                failed: self.failed.load(Ordering::Relaxed),
                cpu: cpu::used(),
            };
            measuring.rates = measuring.meter.sample(now, totals);
        }
        let Rates { qps, eps, cpus } = measuring.rates;
        self.available.look(now);
        let utilization = cpus / self.available.cpus();
        let in_flight = in_u32(self.lifecycle.active_requests());
        let mut load = LoadReport {
            application_utilization: utilization,
            cpu_utilization: utilization,
            qps,
            eps,
            lame_duck: !phase.is_serving(),
            in_flight: Some(in_flight),
            latency: self.latencies.lock().estimate(now, in_flight),
        };
        if let Some(source) = &self.source {
            load = source.report(load);
        }
        let report = OrcaLoadReport::from(&load);
        *self.encoded.write() = Arc::new(Encoded::from(&report));
        measuring.report = report;
        self.encoded_phase.store(phase as u8, Ordering::Release);
        self.stale_at.store((now + ENCODE_EVERY).as_nanos(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter(source: Option<Box<dyn ReportSource>>) -> Arc<Reporter> {
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        Reporter::new(lifecycle, Duration::from_secs(1), Arc::new(Available::new(Some(1.0))), source)
    }

    fn read(value: &HeaderValue) -> LoadReport {
        LoadReport::from(&OrcaLoadReport::from_base64(value.as_bytes()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn report_is_encoded_anew_only_after_a_while() {
        let reporter = reporter(None);
        tokio::time::advance(Duration::from_secs(1)).await;
        reporter.answered();
        let first = reporter.header(None);
        assert_eq!(read(&first).qps, 1.0);
        for _ in 0..99 {
            reporter.answered();
        }
        reporter.failed();
        assert_eq!(reporter.header(None).as_bytes().as_ptr(), first.as_bytes().as_ptr(), "the same bytes, shared");
        tokio::time::advance(Duration::from_millis(100)).await;
        let later = read(&reporter.header(None));
        assert!(later.qps > 50.0 && later.eps > 0.5, "{later:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn lame_duck_shows_in_the_very_next_report() {
        let reporter = reporter(None);
        assert!(!read(&reporter.header(None)).lame_duck);
        reporter.lifecycle.lame_duck();
        assert!(read(&reporter.header(None)).lame_duck);
    }

    #[tokio::test(start_paused = true)]
    async fn source_has_the_last_word() {
        let fixed = |measured| LoadReport { application_utilization: 0.2, qps: 100.0, ..measured };
        let reporter = reporter(Some(Box::new(fixed)));
        let _in_flight = reporter.lifecycle.begin();
        let report = reporter.report();
        assert_eq!((report.application_utilization, report.rps_fractional), (0.2, 100.0));
        assert_eq!(report.named_metrics[plimsoll_wire::orca::ACTIVE_REQUESTS_METRIC], 1.0);
    }
}

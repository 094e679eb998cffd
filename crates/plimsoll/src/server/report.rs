//! The load report of this process, ready to be attached to any response.
//!
//! The core decides the content of a report and its validity ([`plimsoll_core::report`]). This
//! module gives it totals and the time, and keeps the encoded report while it is valid. So a
//! response pays for reading the clock, and for appending its own request's use ([`Encoded`]).
//!
//! A server that knows its load better says so through [`ReportSource`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use plimsoll_core::report::{Reporter as Machine, TimedReport, Totals};
use plimsoll_core::{LoadReport, Speed, Timestamp};
use plimsoll_wire::orca::{Encoded, OrcaLoadReport};
#[cfg(feature = "probes")]
use plimsoll_wire::probe::Keyring;

use super::available::Available;
use super::cost;
use super::cpu;
use super::lifecycle::Lifecycle;
use crate::clock::Clock;

/// Replaces the measured load in the reports of a server.
#[doc(alias("ORCA", "backend metrics"))]
pub trait ReportSource: Send + Sync + 'static {
    /// The load to report instead of `measured`.
    ///
    /// Called at most every [`REUSE_FOR`](plimsoll_core::report::REUSE_FOR), in the path of a
    /// response. It must not block.
    fn report(&self, measured: LoadReport) -> LoadReport;
}

impl<F: Fn(LoadReport) -> LoadReport + Send + Sync + 'static> ReportSource for F {
    fn report(&self, measured: LoadReport) -> LoadReport {
        self(measured)
    }
}

/// The state that the parts of the layer share.
pub(super) struct Reporter {
    pub(super) lifecycle: Lifecycle,
    /// Responses have the header `x-plimsoll-cost-us`.
    pub(super) has_cost_header: bool,
    /// CPUs that 100% utilization stands for.
    available: Arc<Available>,
    source: Option<Box<dyn ReportSource>>,
    cpu: cpu::Clock,
    clock: Clock,
    answered: AtomicU64,
    failed: AtomicU64,
    machine: Mutex<Machine>,
    standing: RwLock<Arc<Standing>>,
    /// Holds the secret of the keys that health checks hand out.
    #[cfg(feature = "probes")]
    pub(super) probe_keys: RwLock<Keyring>,
    /// Held while a report is made. The other tasks lock `machine`, for less time.
    renewing: Mutex<()>,
}

/// The machine's report, and the report sent for it.
struct Standing {
    said: TimedReport,
    load: LoadReport,
    report: OrcaLoadReport,
    encoded: Encoded,
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

impl Reporter {
    pub(super) fn new(
        lifecycle: Lifecycle,
        window: Duration,
        available: Arc<Available>,
        source: Option<Box<dyn ReportSource>>,
        cpu: cpu::Clock,
        speed: Option<Speed>,
        has_cost_header: bool,
    ) -> Arc<Self> {
        let totals = Totals { cpu: cpu.used(), ..Totals::default() };
        let report = OrcaLoadReport::default();
        Arc::new(Self {
            lifecycle,
            has_cost_header,
            clock: available.clock(),
            source,
            cpu,
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            machine: Mutex::new(Machine::new(Timestamp::ZERO, window, available.cpus(), totals).on(speed)),
            available,
            standing: RwLock::new(Arc::new(Standing {
                said: TimedReport::default(),
                load: LoadReport::default(),
                encoded: Encoded::from(&report),
                report,
            })),
            #[cfg(feature = "probes")]
            probe_keys: RwLock::default(),
            renewing: Mutex::new(()),
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

    /// Notes how long a request took that was answered well.
    pub(super) fn took(&self, arrival: Arrival) {
        let now = self.now();
        self.machine.lock().on_answer(now, arrival.found, now.since(arrival.at));
    }

    /// Counts a request, answered before or not at all, as failed.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The report as the value of an `endpoint-load-metrics-bin` header, with the use of `request`
    /// so far, if it is charged.
    pub(super) fn header(&self, request: Option<&cost::Request>) -> HeaderValue {
        let standing = self.standing();
        match request.filter(|request| request.is_charged()) {
            Some(request) => request.with_cost(|cost| standing.encoded.with_cost(cost)),
            None => standing.encoded.header_value().clone(),
        }
    }

    /// The load by the last report, which is made anew if it is too old.
    pub(super) fn load(&self) -> LoadReport {
        self.standing().load
    }

    /// The report as it stands now.
    pub(super) fn report(&self) -> OrcaLoadReport {
        let _renewing = self.renewing.lock();
        self.renew().report.clone()
    }

    fn standing(&self) -> Arc<Standing> {
        let now = self.now();
        let lame_duck = self.lame_duck();
        let standing = Arc::clone(&self.standing.read());
        if standing.said.is_current(now, lame_duck) {
            return standing;
        }
        if standing.said.load.lame_duck != lame_duck {
            let _renewing = self.renewing.lock();
            return self.renew();
        }
        match self.renewing.try_lock() {
            Some(_renewing) => self.renew(),
            // Another thread is making the next report: the old one is sent meanwhile.
            None => standing,
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn lame_duck(&self) -> bool {
        !self.lifecycle.phase().is_serving()
    }

    /// Makes a report. The caller must hold `renewing`: of two concurrent calls the older report
    /// could win.
    fn renew(&self) -> Arc<Standing> {
        let said = self.ask();
        let load = self.source.as_ref().map_or(said.load, |source| source.report(said.load));
        let report = OrcaLoadReport::from(&load);
        let standing = Arc::new(Standing { said, load, encoded: Encoded::from(&report), report });
        *self.standing.write() = Arc::clone(&standing);
        standing
    }

    fn ask(&self) -> TimedReport {
        let now = self.now();
        self.available.look(now);
        let mut machine = self.machine.lock();
        machine.resize(self.available.cpus());
        if machine.wants_totals(now) {
            let totals = Totals {
                answered: self.answered.load(Ordering::Relaxed),
                failed: self.failed.load(Ordering::Relaxed),
                cpu: self.cpu.used(),
            };
            machine.on_totals(now, totals);
        }
        machine.report(now, in_u32(self.lifecycle.active_requests()), self.lame_duck())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::report::REUSE_FOR;

    use super::*;

    fn reporter(source: Option<Box<dyn ReportSource>>) -> Arc<Reporter> {
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        Reporter::new(
            lifecycle,
            Duration::from_secs(1),
            Arc::new(Available::new(Some(1.0))),
            source,
            cpu::Clock::default(),
            None,
            false,
        )
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
    async fn what_is_in_flight_is_as_old_as_a_report_may_be_and_no_older() {
        let reporter = reporter(None);
        assert_eq!(read(&reporter.header(None)).in_flight, Some(0));
        let _in_flight = reporter.lifecycle.begin();
        tokio::time::advance(REUSE_FOR - Duration::from_nanos(1)).await;
        assert_eq!(read(&reporter.header(None)).in_flight, Some(0));
        tokio::time::advance(Duration::from_nanos(1)).await;
        assert_eq!(read(&reporter.header(None)).in_flight, Some(1));
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

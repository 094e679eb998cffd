//! The gate of another process, which is measured from outside: the proxy as its sidecar.
//!
//! The system tells the CPU of the whole process, and not that of a request. The core estimates
//! costs from it ([`ProcessObserver`]), unless the process states them in its load reports. A
//! request counts as in flight from the moment it is sent until its response begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Response};
use parking_lot::Mutex;
use plimsoll_core::admit::{Entry, Flow, Mode, Observation, Outlook, ProcessObserver};
use plimsoll_core::probe::LatencyByLoad;
use plimsoll_core::signal::{Gauges, ResourceConfig, ResourceWatch};
use plimsoll_core::{Speed, Timestamp};
use plimsoll_system::{MIN_CPUS, ProcessSample};
use plimsoll_wire::orca;

use super::super::response::has_failed;
use super::{Gate, Signals, with_capacity};
use crate::clock::Clock;

/// The measurements of another process, and the requests at it.
#[derive(Debug)]
pub struct ForeignProcess {
    /// Requests that were ever sent to it.
    sent: AtomicU64,
    /// Requests at it, or on their way, without a response yet.
    in_flight: AtomicU32,
    /// Requests that were abandoned before a response.
    abandoned: AtomicU64,
    is_found: AtomicBool,
    was_found: AtomicBool,
    measured: Mutex<Measured>,
    /// Of its successful responses, from the request to the head.
    latency: Mutex<LatencyByLoad>,
}

#[derive(Debug)]
struct Measured {
    observed: ProcessObserver,
    config: ResourceConfig,
    scarce: ResourceWatch,
    /// At the last reading.
    gauges: Gauges,
    /// CPU-seconds of the process at the last reading.
    cpu_before: f64,
    /// CPU-seconds since the first reading, over all restarts of the process.
    cpu_used: f64,
}

impl Signals for ForeignProcess {
    fn is_known(&self) -> bool {
        self.was_found.load(Ordering::Relaxed)
    }

    fn is_current(&self) -> bool {
        self.is_found.load(Ordering::Relaxed)
    }
}

impl ForeignProcess {
    fn flow(&self) -> Flow {
        Flow {
            sent: self.sent.load(Ordering::Relaxed),
            in_flight: self.in_flight(),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }

    /// Requests at the process, or on their way, without a response yet.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Gate<ForeignProcess> {
    /// The gate of a process that was not found yet. It admits every request until then. `cpus` are
    /// those of this machine that the process may use, if they are known; `speed` is the machine's.
    #[must_use]
    pub fn of_process(
        mode: Mode,
        outlook: Outlook,
        speed: Speed,
        cpus: Option<f64>,
        config: ResourceConfig,
    ) -> Arc<Self> {
        let clock = Clock::start();
        let mut ranked = with_capacity(cpus.unwrap_or(MIN_CPUS));
        (ranked.outlook, ranked.speed) = (outlook, speed);
        let signals = ForeignProcess {
            sent: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            abandoned: AtomicU64::new(0),
            is_found: AtomicBool::new(false),
            was_found: AtomicBool::new(false),
            measured: Mutex::new(Measured {
                observed: ProcessObserver::new(clock.now(), ranked.capacity()),
                scarce: ResourceWatch::new(&config),
                config,
                gauges: Gauges::default(),
                cpu_before: 0.0,
                cpu_used: 0.0,
            }),
            latency: Mutex::default(),
        };
        Self::new(clock, ranked, mode, Observation::default(), signals)
    }

    /// Takes a sample of the process, `None` while it is not found. Call it every few tens of
    /// milliseconds.
    pub fn observe(&self, sample: Option<ProcessSample>) {
        if let Some(sample) = sample {
            self.measure(sample);
            self.signals.was_found.store(true, Ordering::Relaxed);
        }
        self.signals.is_found.store(sample.is_some(), Ordering::Relaxed);
    }

    fn measure(&self, ProcessSample { outside, is_first, cpus, readings }: ProcessSample) {
        let now = self.now();
        let flow = self.signals.flow();
        let Measured { observed, config, scarce, gauges, cpu_before, cpu_used } = &mut *self.signals.measured.lock();
        if !is_first {
            *cpu_used += (outside.cpu - *cpu_before).max(0.0);
        }
        *cpu_before = outside.cpu;
        let gate = &mut self.lock().gate;
        if let Some(cpus) = cpus {
            gate.resize(now, with_capacity(cpus));
            observed.resize(cpus);
        }
        if is_first {
            gate.resume(now, observed.begin(now, outside));
            *scarce = ResourceWatch::new(config);
        }
        if let Some(readings) = readings {
            *gauges = scarce.sample(now, &readings);
        }
        if !is_first {
            gate.observe(now, observed.sample(now, outside, flow), gauges);
        }
    }

    /// CPU time that the process was seen to use so far, over its restarts; `None` while it is not
    /// found.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        let used = || Duration::try_from_secs_f64(self.signals.measured.lock().cpu_used).unwrap_or(Duration::MAX);
        self.signals.is_current().then(used)
    }

    /// Requests at the process, or on their way, without a response yet; and the median latency, to the
    /// head of a response, of recent requests that found about as many. `None` without recent
    /// ones.
    #[must_use]
    pub fn in_flight(&self) -> (u32, Option<Duration>) {
        let in_flight = self.signals.in_flight();
        (in_flight, self.signals.latency.lock().estimate(self.now(), in_flight))
    }

    /// The permit of a request that was admitted with this entry, or without a question.
    #[must_use]
    pub fn permit(self: &Arc<Self>, entry: Option<Entry>) -> Permit {
        Permit { gate: Arc::clone(self), entry, usage: Usage::None, is_in_flight: false, sent_at: None }
    }

    pub(super) fn ended(&self, entry: Option<Entry>, usage: Usage) {
        let Some(entry) = entry else { return };
        let now = self.now();
        let gate = &mut self.lock().gate;
        match usage {
            Usage::None => gate.end_unsent(now, entry),
            Usage::Unknown => gate.end_unmeasured(now, entry),
            Usage::Abandoned => gate.end_abandoned(now, entry),
            Usage::Reported(seconds) => gate.end_reported(now, entry, seconds),
        }
    }
}

/// The usage of the process by one request, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Usage {
    /// The request never got there.
    None,
    Unknown,
    /// Unknown, and the process may still work on it: it was abandoned before a response.
    Abandoned,
    /// Reference CPU-seconds, by the load report of the process.
    Reported(f64),
}

/// The permit of an admitted request. The request ends when it is dropped.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate<ForeignProcess>>,
    /// `None` for a request that the gate was not asked about.
    entry: Option<Entry>,
    usage: Usage,
    is_in_flight: bool,
    /// The time at which it was sent, and the number of others in flight then.
    sent_at: Option<(Timestamp, u32)>,
}

impl Permit {
    /// The request is about to go to the process.
    pub fn sent(&mut self) {
        self.usage = Usage::Unknown;
        if !std::mem::replace(&mut self.is_in_flight, true) {
            let signals = &self.gate.signals;
            signals.sent.fetch_add(1, Ordering::Relaxed);
            let found = signals.in_flight.fetch_add(1, Ordering::Relaxed);
            self.sent_at = Some((self.gate.now(), found));
        }
    }

    /// Nothing of the request reached the process after all.
    pub fn nothing_sent(&mut self) {
        self.usage = Usage::None;
    }

    /// The head of the response has come.
    pub fn answered<B>(&mut self, response: &Response<B>) {
        // The latency of a failure says nothing about successes.
        if let Some((at, found)) = self.sent_at.take().filter(|_| !has_failed(response)) {
            let now = self.gate.now();
            self.gate.signals.latency.lock().on_answer(now, found, now.since(at));
        }
        self.hear(response.headers());
    }

    /// The head of the response has come, or its trailers. The last reported cost counts: only the
    /// trailers know the whole.
    pub fn hear(&mut self, headers: &HeaderMap) {
        self.leave();
        self.usage = orca::request_cpu(headers).map_or(self.usage, Usage::Reported);
    }

    /// The request is no longer in flight. A response that has begun may wait for its reader or for
    /// events, and not for a CPU.
    fn leave(&mut self) {
        if std::mem::take(&mut self.is_in_flight) {
            self.gate.signals.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.usage == Usage::Unknown && self.is_in_flight {
            self.usage = Usage::Abandoned;
            self.gate.signals.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        self.leave();
        self.gate.ended(self.entry.take(), self.usage);
    }
}

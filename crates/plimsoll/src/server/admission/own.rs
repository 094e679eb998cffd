//! The gate of this process, which measures the requests itself.
//!
//! The thread of a request reads the measurements that are due, shortly before the decision. So an
//! idle server reads nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::admit::{self, AdmissionConfig, Entry, Mode, Observation, Outlook};
use plimsoll_core::signal::{Gauges, ResourceConfig, ResourceWatch};
use plimsoll_core::{Speed, Timestamp};
use plimsoll_system::{Owner, ScarceReader};

use super::{Gate, Signals, with_capacity};
use crate::server::available::Available;
use crate::server::cpu;

/// The time between two readings of the CPU usage, which take a microsecond.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A load signal of the server's own: 1 is the most that it can bear.
pub(in crate::server) type Gauge = Box<dyn Fn() -> f64 + Send + Sync>;

/// The measurements of this process.
pub(in crate::server) struct OwnProcess {
    cpu: cpu::Clock,
    available: Arc<Available>,
    gauge: Option<Gauge>,
    /// `None` if only CPU is watched.
    scarce: Option<Watch>,
    /// Requests that run or could run.
    runnable: AtomicI64,
    /// In nanoseconds: charged to requests, and the times of the next readings.
    charged: AtomicU64,
    look_at: AtomicU64,
    scarce_at: AtomicU64,
}

/// ResourceWatch resources beside CPU.
struct Watch {
    seen: Mutex<(ScarceReader, ResourceWatch)>,
    /// At the last reading, without a wait for the next one.
    gauges: Mutex<Gauges>,
}

impl Signals for OwnProcess {
    /// Reads the number of CPUs and the scarce resources, which takes longer than a decision.
    fn refresh(&self, now: Timestamp) {
        self.available.look(now);
        let due = self.scarce_at.load(Ordering::Relaxed);
        let Some(watch) = self.scarce.as_ref().filter(|_| now.as_nanos() >= due) else { return };
        let next = (now + ResourceWatch::LOOK_EVERY).as_nanos();
        // One thread of all reads.
        if self.scarce_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let (reader, scarce) = &mut *watch.seen.lock();
            let gauges = scarce.sample(now, &reader.read());
            *watch.gauges.lock() = gauges;
        }
    }

    fn update(&self, now: Timestamp, gate: &mut admit::Gate) {
        if now.as_nanos() < self.look_at.load(Ordering::Relaxed) {
            return;
        }
        self.look_at.store((now + LOOK_EVERY).as_nanos(), Ordering::Relaxed);
        let seen = Observation {
            cpu: self.cpu.used().as_secs_f64(),
            charged: self.charged().as_secs_f64(),
            // Below zero for a moment, if a thread reports the end of a wait before another its
            // beginning.
            runnable: self.runnable.load(Ordering::Relaxed).max(0) as f64,
            queued: 0.0,
        };
        let cpus = self.available.cpus();
        if cpus != gate.capacity()
            && let Some(config) = AdmissionConfig::new(cpus)
        {
            gate.resize(now, config);
        }
        let known = self.scarce.as_ref().map_or_else(Gauges::default, |watch| *watch.gauges.lock());
        gate.observe(now, seen, &Gauges { own: self.gauge.as_ref().map(|gauge| gauge()), ..known });
    }
}

impl OwnProcess {
    /// CPU time charged to requests since the start.
    pub(in crate::server) fn charged(&self) -> Duration {
        Duration::from_nanos(self.charged.load(Ordering::Relaxed))
    }
}

impl Gate<OwnProcess> {
    pub(in crate::server) fn of_server(
        available: &Arc<Available>,
        outlook: Outlook,
        mode: Mode,
        speed: Speed,
        gauge: Option<Gauge>,
        watched: &ResourceConfig,
        cpu: cpu::Clock,
    ) -> Arc<Self> {
        let mut config = with_capacity(available.cpus());
        (config.outlook, config.speed) = (outlook, speed);
        let seen = Observation { cpu: cpu.used().as_secs_f64(), ..Observation::default() };
        let scarce = watched.is_any().then(|| {
            let seen = Mutex::new((ScarceReader::of(Owner::ThisProcess, watched), ResourceWatch::new(watched)));
            Watch { seen, gauges: Mutex::default() }
        });
        let signals = OwnProcess {
            cpu,
            available: Arc::clone(available),
            gauge,
            scarce,
            charged: AtomicU64::new(0),
            runnable: AtomicI64::new(0),
            look_at: AtomicU64::new(0),
            scarce_at: AtomicU64::new(0),
        };
        Self::new(available.clock(), config, mode, seen, signals)
    }

    /// The measurements.
    pub(in crate::server) fn signals(&self) -> &OwnProcess {
        &self.signals
    }

    /// Whether requests run on the threads of this process, and are timed there.
    pub(in crate::server) fn is_timed_here(&self) -> bool {
        self.signals.cpu.is_of_process()
    }

    /// A request could run, or runs.
    pub(in crate::server) fn on_runnable(&self) {
        self.signals.runnable.fetch_add(1, Ordering::Relaxed);
    }

    /// A request waits for something other than CPU, or has ended.
    pub(in crate::server) fn on_waiting(&self) {
        self.signals.runnable.fetch_sub(1, Ordering::Relaxed);
    }

    /// A running request has used this many CPU-seconds of this machine so far.
    pub(in crate::server) fn progress(&self, entry: &mut Entry, used: f64) {
        let now = self.now();
        self.lock().gate.progress(now, entry, used);
    }

    /// A request has ended, and used this much CPU.
    pub(in crate::server) fn ended(&self, entry: Entry, used: Duration) {
        let now = self.now();
        self.lock().gate.end(now, entry, used.as_secs_f64());
    }

    /// Tasks of a request used this much CPU after its end.
    pub(in crate::server) fn used_late(&self, used: Duration) {
        let now = self.now();
        self.lock().gate.add_late_use(now, used.as_secs_f64());
    }

    /// Requests have used this much more CPU.
    pub(in crate::server) fn charge(&self, used: Duration) {
        self.signals.charged.fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl fmt::Debug for OwnProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnProcess").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_system::CpuReader;
    use plimsoll_testkit::tree::Tree;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gate_admits_more_once_its_quota_is_raised_in_place() {
        let tree = Tree::new(&[("cpu.max", "100000 100000\n")]);
        let available = Arc::new(Available::by(CpuReader::within(vec![tree.0.clone()], 8.0)));
        let gate = Gate::of_server(
            &available,
            Outlook::default(),
            Mode::default(),
            Speed::new(2.0).unwrap(),
            None,
            &ResourceConfig::default(),
            cpu::Clock::default(),
        );
        tree.write("cpu.max", "400000 100000\n");
        let capacity_after = async |time| {
            tokio::time::advance(time).await;
            let now = gate.now();
            gate.signals.refresh(now);
            gate.signals.update(now, &mut gate.lock().gate);
            gate.capacity()
        };
        // In reference CPUs, on a machine of twice the speed.
        assert_eq!(capacity_after(Duration::from_millis(100)).await, 2.0);
        assert_eq!(capacity_after(Duration::from_secs(1)).await, 8.0);
    }
}

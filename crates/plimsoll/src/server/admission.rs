//! Which requests are taken on: the machine that decides, and what it has to be told.
//!
//! One gate for a server, whatever threads serve: what can be used up is the CPU of the whole process. Each request passes it twice,
//! under a lock that is held for some hundred nanoseconds.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::admit::{self, AdmissionConfig, Arrival, Entry, Mode, Observation, Outlook, Pressure, Quota};
use plimsoll_core::shedding::{self, KeyedName, SheddingReport, SheddingReportConfig, Summary};
use plimsoll_core::signal::{Gauges, Loads, ResourceConfig, ResourceWatch};
use plimsoll_core::{Criticality, Timestamp};
use plimsoll_wire::shed::{ShedAnswer, ShedReason};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::available::Available;
use super::classify::Classified;
use super::coalescing;
use super::context::{Cohort, Customer, RequestContext};
use super::cost::Request;
use super::cpu;
use crate::clock::Clock;
use crate::system::{ScarceReader, Whose};

/// Between two looks at what the process has used, which cost a microsecond.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What the server says of itself beside its CPU: 1 is as much as it can bear.
pub(super) type Gauge = Box<dyn Fn() -> f64 + Send + Sync>;

/// A request at the gate, for the shedding report.
struct Asked {
    now: Timestamp,
    is_expired: bool,
    /// Expected cost, in CPU-seconds.
    expected: f64,
    /// CPUs that the server could use then.
    capacity: f64,
    /// Limits of its customer.
    quota: Quota,
}

/// Decides which requests are taken on.
pub(super) struct Gate {
    clock: Clock,
    cpu: cpu::Clock,
    available: Arc<Available>,
    gauge: Option<Gauge>,
    /// None where nothing but CPU is looked at.
    scarce: Option<Watch>,
    machine: Mutex<(admit::Gate, Pcg64Mcg)>,
    /// What it means, apart from the machine: who asks for a summary is to hold up nobody's admission.
    shedding: Mutex<SheddingReport>,
    /// Requests that run or could run.
    runnable: AtomicI64,
    /// In nanoseconds: charged to requests, and when the next look is due.
    charged: AtomicU64,
    look_at: AtomicU64,
    scarce_at: AtomicU64,
    counts: Counts,
}

/// What runs short beside CPU.
struct Watch {
    seen: Mutex<(ScarceReader, ResourceWatch)>,
    /// At the last look, which nobody is to wait for.
    gauges: Mutex<Gauges>,
}

/// What became of the requests that asked, since the start.
#[derive(Debug, Default)]
struct Counts {
    admitted: [AtomicU64; Criticality::ALL.len()],
    shed: [[AtomicU64; Criticality::ALL.len()]; 4],
    malformed: AtomicU64,
}

/// Admitted and shed requests of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// By criticality, in the order of [`Criticality::ALL`].
    pub by_criticality: [Decided; Criticality::ALL.len()],
    /// Unreadable values of criticality, deadline and attempt.
    pub malformed: u64,
    /// CPU time charged to requests.
    pub charged: Duration,
}

/// Admitted and shed requests of one criticality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Admitted.
    pub admitted: u64,
    /// Shed because of overload.
    pub overloaded: u64,
    /// The same, with the advice not to retry elsewhere either.
    pub overloaded_no_retry: u64,
    /// Shed because no answer was possible before the deadline.
    pub deadline: u64,
    /// Shed because the customer was over its quota.
    pub quota: u64,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(
        available: &Arc<Available>,
        outlook: Outlook,
        mode: Mode,
        gauge: Option<Gauge>,
        watched: &ResourceConfig,
        cpu: cpu::Clock,
    ) -> Arc<Self> {
        let clock = available.clock();
        let now = clock.now();
        let mut config = with_capacity(available.cpus());
        config.outlook = outlook;
        let seen = Observation { cpu: cpu.used().as_secs_f64(), ..Observation::default() };
        // Nobody gains from knowing who is in luck; servers of one fleet had better not agree.
        let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()));
        let scarce = watched.is_any().then(|| {
            let seen = Mutex::new((ScarceReader::of(Whose::Own, watched), ResourceWatch::new(watched)));
            Watch { seen, gauges: Mutex::default() }
        });
        Arc::new(Self {
            clock,
            cpu,
            available: Arc::clone(available),
            gauge,
            scarce,
            machine: Mutex::new((admit::Gate::new(now, config, mode, seen), rng)),
            shedding: Mutex::new(SheddingReport::new(now, SheddingReportConfig::default())),
            charged: AtomicU64::new(0),
            runnable: AtomicI64::new(0),
            look_at: AtomicU64::new(0),
            scarce_at: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// Whether a request is taken on that asks for `route`, in words.
    pub(super) fn ask(
        self: &Arc<Self>,
        classified: Classified,
        route: &dyn fmt::Display,
    ) -> Result<Arc<Request>, ShedAnswer> {
        let Classified { context, quota, left, is_expired, malformed, .. } = classified;
        if malformed > 0 {
            self.counts.malformed.fetch_add(u64::from(malformed), Ordering::Relaxed);
        }
        let arrival = Arrival {
            criticality: context.criticality,
            kind: context.kind,
            quota,
            timeout: left,
            cohort: context.cohort.as_ref().and_then(Cohort::number),
            is_retry: context.attempt > 1,
        };
        let now = self.clock.now();
        self.look_around(now);
        let mut machine = self.machine.lock();
        let (gate, rng) = &mut *machine;
        self.look(now, gate);
        let (expected, capacity) = (gate.expected(arrival.kind), gate.capacity());
        let (entry, shed) = gate.ask(now, &arrival, rng);
        drop(machine);
        let rank = context.criticality.rank();
        let said = shed.map(ShedAnswer::from);
        let asked = Asked { now, is_expired, expected, capacity, quota };
        self.account(&context, asked, said.map(|said| said.reason), route);
        if let Some(ShedAnswer { reason, .. }) = said {
            self.counts.shed[place(reason)][rank].fetch_add(1, Ordering::Relaxed);
        }
        let Some(entry) = entry else {
            let shed = shed.expect("who is not let in is told why");
            coalescing::turned_away(&shed);
            return Err(shed.into());
        };
        self.counts.admitted[rank].fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Request::new(context, Arc::clone(self), entry)))
    }

    /// A request had no place, so that nobody asked about it.
    pub(super) fn got_no_place(&self, classified: &Classified, reason: ShedReason, route: &dyn fmt::Display) {
        let now = self.clock.now();
        let context = &classified.context;
        let (expected, capacity) = {
            let gate = &self.machine.lock().0;
            (gate.expected(context.kind), gate.capacity())
        };
        let asked = Asked { now, is_expired: classified.is_expired, expected, capacity, quota: classified.quota };
        self.account(context, asked, Some(reason), route);
        self.counts.shed[place(reason)][context.criticality.rank()].fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps account of what was decided.
    fn account(&self, context: &RequestContext, asked: Asked, shed: Option<ShedReason>, route: &dyn fmt::Display) {
        let Asked { now, is_expired, expected, capacity, quota } = asked;
        let customer = context.customer.as_ref().map_or(&b"(none)"[..], Customer::name).escape_ascii();
        self.shedding.lock().on_decision(
            now,
            &shedding::Decision {
                criticality: context.criticality,
                cost: expected,
                is_retry: context.attempt > 1,
                shed: shed.and_then(ShedReason::cause),
                is_expired,
                customer: KeyedName { key: context.kind.customer, name: &customer },
                quota,
                route: KeyedName { key: context.kind.route, name: route },
                capacity,
            },
        );
    }

    /// Looks at what the process has used, if it is time.
    fn look(&self, now: Timestamp, gate: &mut admit::Gate) {
        if now.as_nanos() < self.look_at.load(Ordering::Relaxed) {
            return;
        }
        self.look_at.store((now + LOOK_EVERY).as_nanos(), Ordering::Relaxed);
        let seen = Observation {
            cpu: self.cpu.used().as_secs_f64(),
            charged: Duration::from_nanos(self.charged.load(Ordering::Relaxed)).as_secs_f64(),
            // Below zero for a moment, where one thread tells of the end of a wait before another of its beginning.
            runnable: self.runnable.load(Ordering::Relaxed).max(0) as f64,
            queued: 0.0,
        };
        let cpus = self.available.cpus();
        if cpus != gate.capacity() {
            gate.resize(now, with_capacity(cpus));
        }
        let known = self.scarce.as_ref().map_or_else(Gauges::default, |watch| *watch.gauges.lock());
        gate.observe(now, seen, &Gauges { own: self.gauge.as_ref().map(|gauge| gauge()), ..known });
    }

    /// Looks at how much CPU there is, and what runs short beside it, if it is time; without the lock of the machine, for it takes longer
    /// than a decision does.
    fn look_around(&self, now: Timestamp) {
        self.available.look(now);
        let due = self.scarce_at.load(Ordering::Relaxed);
        let Some(watch) = self.scarce.as_ref().filter(|_| now.as_nanos() >= due) else { return };
        let next = (now + ResourceWatch::LOOK_EVERY).as_nanos();
        // One of all threads does.
        if self.scarce_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let (reader, scarce) = &mut *watch.seen.lock();
            let gauges = scarce.sample(now, &reader.read());
            *watch.gauges.lock() = gauges;
        }
    }

    /// Whether requests run on the threads of this process, and are timed there.
    pub(super) fn is_timed_here(&self) -> bool {
        self.cpu.is_of_process()
    }

    /// A request could run, or runs.
    pub(super) fn on_runnable(&self) {
        self.runnable.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits for something else than CPU, or has ended.
    pub(super) fn on_waiting(&self) {
        self.runnable.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request that goes on has used so many CPU-seconds so far.
    pub(super) fn progress(&self, entry: &mut Entry, used: f64) {
        let now = self.clock.now();
        self.machine.lock().0.progress(now, entry, used);
    }

    /// A request has ended, and used so much CPU.
    pub(super) fn ended(&self, entry: Entry, used: Duration) {
        let now = self.clock.now();
        self.machine.lock().0.end(now, entry, used.as_secs_f64());
    }

    /// Tasks of a request that had ended before have used so much CPU.
    pub(super) fn used_late(&self, used: Duration) {
        let now = self.clock.now();
        self.machine.lock().0.add_late_use(now, used.as_secs_f64());
    }

    /// Requests have used so much CPU more.
    pub(super) fn charge(&self, used: Duration) {
        self.charged.fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn pressure(&self, criticality: Criticality) -> Pressure {
        self.machine.lock().0.pressure(criticality)
    }

    pub(super) fn loads(&self) -> Loads {
        self.machine.lock().0.loads(self.clock.now())
    }

    pub(super) fn shedding_report(&self) -> Summary {
        self.shedding.lock().summary(self.clock.now())
    }

    pub(super) fn counts(&self) -> AdmissionCounts {
        let Counts { admitted, shed, malformed } = &self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AdmissionCounts {
            by_criticality: std::array::from_fn(|rank| {
                let [overloaded, overloaded_no_retry, deadline, quota] = shed.each_ref().map(|of| read(&of[rank]));
                Decided { admitted: read(&admitted[rank]), overloaded, overloaded_no_retry, deadline, quota }
            }),
            malformed: read(malformed),
            charged: Duration::from_nanos(read(&self.charged)),
        }
    }
}

fn with_capacity(cpus: f64) -> AdmissionConfig {
    AdmissionConfig::new(cpus).expect("a hundredth of a CPU or more")
}

/// In [`Counts`].
fn place(reason: ShedReason) -> usize {
    match reason {
        ShedReason::Overloaded => 0,
        ShedReason::OverloadedNoRetry => 1,
        ShedReason::Quota => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::CpuReader;
    use crate::system::tests::Tree;

    #[tokio::test(start_paused = true)]
    async fn a_quota_that_is_raised_in_place_makes_room() {
        let tree = Tree::new(&[("cpu.max", "100000 100000\n")]);
        let available = Arc::new(Available::by(CpuReader::within(vec![tree.0.clone()], 8.0)));
        let gate = Gate::new(
            &available,
            Outlook::default(),
            Mode::default(),
            None,
            &ResourceConfig::default(),
            cpu::Clock::default(),
        );
        tree.write("cpu.max", "400000 100000\n");
        let capacity_after = async |time| {
            tokio::time::advance(time).await;
            let now = gate.clock.now();
            gate.look_around(now);
            let mut machine = gate.machine.lock();
            gate.look(now, &mut machine.0);
            machine.0.capacity()
        };
        assert_eq!(capacity_after(Duration::from_millis(100)).await, 1.0);
        assert_eq!(capacity_after(Duration::from_secs(1)).await, 4.0);
    }
}

//! The gate of a server, shared by its tasks.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;

use plimsoll_core::admit::{self, AdmissionConfig, Arrival, Entry, GateVerdict, Mode, Observation, Pressure, Quota};
use plimsoll_core::signal::Gauges;
use plimsoll_core::{Criticality, Timestamp};
use rand_pcg::Pcg64Mcg;

use super::process::ProcessCpu;
use crate::clock::Clock;
use crate::lock::lock;
use crate::{Rejected, RequestFacts, random};

/// The gate of one server. Clones share it.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    gate: admit::Gate,
    rng: Pcg64Mcg,
    /// `None` for a resource beside CPU, and where the process cannot be measured.
    process: Option<ProcessCpu>,
    /// Costs of requests that have ended.
    charged: f64,
    admitted: u64,
    shed: u64,
}

/// An admitted request. Its cost is to be reported: see [`Admitted::end`].
///
/// If it is dropped instead, it counts with its expected cost.
#[must_use = "the gate learns from costs: call `Admitted::end`, also after an error"]
pub struct Admitted {
    gate: Gate,
    /// `None` once it has ended.
    entry: Option<Entry>,
}

impl Gate {
    /// A gate with this capacity, in units a second, and no signals but those of
    /// [`Gate::observe`].
    ///
    /// It limits the admitted work that has not ended, and not the work of each second. For the
    /// CPUs of a process use [`Gate::of_process`], which also measures their use.
    #[must_use]
    pub fn new(config: AdmissionConfig, mode: Mode) -> Self {
        Self::with(config, mode, None)
    }

    /// The gate of this process, for all CPUs that it may use.
    #[must_use]
    pub fn of_process(mode: Mode) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self::of_process_with(AdmissionConfig::new(cpus as f64).expect("there is a CPU"), mode)
    }

    /// The gate of this process, for as many CPUs as the capacity.
    ///
    /// For a process with fewer busy threads than CPUs, such as tokio's current-thread runtime:
    ///
    /// ```
    /// use plimsoll_tower::plimsoll_core::admit::{AdmissionConfig, Mode};
    /// use plimsoll_tower::shed::Gate;
    /// use plimsoll_tower::{Http, ShedLayer};
    ///
    /// let one_cpu = AdmissionConfig::new(1.0).expect("above zero");
    /// let layer = ShedLayer::with(Gate::of_process_with(one_cpu, Mode::Protect), Http::default());
    /// ```
    #[must_use]
    pub fn of_process_with(config: AdmissionConfig, mode: Mode) -> Self {
        Self::with(config, mode, ProcessCpu::start())
    }

    fn with(config: AdmissionConfig, mode: Mode, process: Option<ProcessCpu>) -> Self {
        let clock = Clock::start();
        let cpu = process.as_ref().map_or(0.0, ProcessCpu::used);
        let gate = admit::Gate::new(clock.now(), config, mode, Observation { cpu, ..Observation::default() });
        let state = State { gate, rng: random::generator(), process, charged: 0.0, admitted: 0, shed: 0 };
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state) }) }
    }

    /// Decides on a request.
    ///
    /// # Errors
    /// The request is shed.
    pub fn ask(&self, facts: &RequestFacts) -> Result<Admitted, Rejected> {
        let now = self.shared.clock.now();
        let arrival = Arrival {
            criticality: facts.criticality,
            kind: facts.kind,
            quota: Quota::UNLIMITED,
            timeout: facts.timeout,
            cohort: None,
            is_retry: facts.is_retry,
        };
        let state = &mut *lock(&self.shared.state);
        state.sample(now);
        let verdict = state.gate.ask(now, &arrival, &mut state.rng);
        match verdict {
            GateVerdict::Admitted(_) => state.admitted += 1,
            GateVerdict::Shed(_) | GateVerdict::WouldShed(..) => state.shed += 1,
        }
        match verdict {
            GateVerdict::Admitted(entry) | GateVerdict::WouldShed(entry, _) => {
                Ok(Admitted { gate: self.clone(), entry: Some(entry) })
            }
            GateVerdict::Shed(shed) => Err(shed.into()),
        }
    }

    /// Tells the gate of the load of the server, every 10 ms or less often. A gate of the process
    /// measures CPU itself; `gauges` are for resources beside it.
    pub fn observe(&self, seen: Observation, gauges: &Gauges) {
        let now = self.shared.clock.now();
        lock(&self.shared.state).gate.observe(now, seen, gauges);
    }

    /// How close the gate is to shedding requests of this criticality. Cheaper answers leave
    /// headroom for more.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        lock(&self.shared.state).gate.pressure(criticality)
    }

    /// Requests admitted since the start.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        lock(&self.shared.state).admitted
    }

    /// Requests shed since the start; in a dry run, those that would be.
    #[must_use]
    pub fn shed(&self) -> u64 {
        lock(&self.shared.state).shed
    }
}

impl State {
    /// Reads the CPU clock of the process, if it is time. A gate without requests needs no sample.
    fn sample(&mut self, now: Timestamp) {
        let Some(cpu) = self.process.as_mut().and_then(|process| process.sample(now)) else { return };
        let seen = Observation { cpu, charged: self.charged, ..Observation::default() };
        self.gate.observe(now, seen, &Gauges::default());
    }
}

impl Admitted {
    /// The request has ended, and used this many units of the capacity.
    pub fn end(mut self, cost: f64) {
        self.settle(Some(cost));
    }

    /// Units of the capacity at which [`Admitted::progress`] is due, if the request goes on.
    #[must_use]
    pub fn progress_due(&self) -> f64 {
        self.entry.as_ref().map_or(f64::INFINITY, Entry::progress_due)
    }

    /// The request goes on, and has used this many units so far. The gate corrects its expectation.
    pub fn progress(&mut self, cost: f64) {
        let now = self.gate.shared.clock.now();
        if let Some(entry) = &mut self.entry {
            lock(&self.gate.shared.state).gate.progress(now, entry, cost);
        }
    }

    /// Ends a request that was not begun.
    pub(super) fn settle_unsent(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let now = self.gate.shared.clock.now();
        lock(&self.gate.shared.state).gate.end_unsent(now, entry);
    }

    /// Ends the request, with a measured cost or the expected one.
    pub(super) fn settle(&mut self, cost: Option<f64>) {
        let Some(entry) = self.entry.take() else { return };
        let now = self.gate.shared.clock.now();
        let state = &mut *lock(&self.gate.shared.state);
        match cost.filter(|cost| cost.is_finite() && *cost >= 0.0) {
            Some(cost) => {
                state.charged += cost;
                state.gate.end(now, entry, cost);
            }
            None => state.gate.end_unmeasured(now, entry),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.shared.state);
        f.debug_struct("Gate").field("admitted", &state.admitted).field("shed", &state.shed).finish_non_exhaustive()
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("entry", &self.entry).finish_non_exhaustive()
    }
}

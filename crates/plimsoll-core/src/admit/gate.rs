//! The gate of a server: admission with all measurements that it needs.
//!
//! [`Limits`] and [`RankedAdmission`] decide from the expected cost of a request. [`Costs`]
//! remembers the costs of earlier requests, [`Overhead`] the cost of each beside its own code, and
//! [`SignalSmoother`] the signals of the whole server. The gate combines them, so that no shell has
//! to.
//!
//! ```text
//!             ask ──▶ Costs + Overhead ──▶ Limits::ask ──▶ RankedAdmission::admit ──▶ admitted, or shed
//!                       ▲                    ▲               ▲  ▲
//!   ended: CPU used ────┴────── finish ──────┴───────────────┘  │
//!   seen: process's CPU ──▶ Overhead, SignalSmoother ───────────┘
//! ```
//!
//! Limits come first: a customer's demand beyond its limit is not part of the load by which the
//! demand of the others is judged. Where a customer has a limit over the whole fleet
//! ([`Limiter`]), that one is first of all.
//!
//! The gate decides in CPU-seconds of its own machine, and is the border to reference CPU-seconds
//! ([`Speed`]). Measurements of this machine come in as they are. Quotas and reported costs come in,
//! and expected costs and standings go out, in reference CPU-seconds.
//!
//! If no shell measures the CPU of a request, as in front of another process, [`CostFit`] estimates
//! it from the CPU of the whole process.

use alloc::boxed::Box;
use core::time::Duration;

use super::{
    Admission, AdmissionConfig, Ask, Charge, Limits, Pressure, Quota, RankedAdmission, Shed, Standing, Verdict, cohort,
    limits,
};
use crate::meter::{CostFit, Costs, Kind, Overhead, UsageTotals};
use crate::outlook::Outlook;
use crate::quota::{FairShare, FleetCharge, LimitedRequest, Limiter, Refused};
use crate::signal::{Gauges, Loads, Signal, SignalSmoother, Signals};
use crate::{Criticality, Random, Speed, Timestamp};

/// The largest cost that is believed, in CPU-seconds: eleven days, which no request uses. Some
/// servers report milliseconds; then it is still a quarter of an hour. A report may be any number,
/// and no mean recovers from an infinite sum.
const MAX_REPORTED: f64 = 1e6;
/// CPU that a process may have got ahead of time. The quota of a control group is for 100 ms, and a
/// request may have found two of them.
const AHEAD: Duration = Duration::from_millis(200);
/// CPU-microseconds of a CPU-second.
const MICROS: f64 = 1e6;

/// A request at the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// How bad it is to lose the request.
    pub criticality: Criticality,
    /// The key of its cost. The customer is also the one that the request counts for in fairness
    /// and limits.
    pub kind: Kind,
    /// The limits of its customer, in reference CPU-seconds.
    pub quota: Quota,
    /// The time until its answer is useless.
    pub timeout: Option<Duration>,
    /// Requests of one cohort are admitted or shed together: [`cohort`](super::cohort()). `None`:
    /// the request is on its own.
    pub cohort: Option<u64>,
    /// Whether the request was shed or failed before, here or elsewhere.
    pub is_retry: bool,
}

/// An admitted request.
#[derive(Debug, PartialEq)]
#[must_use]
pub struct Entry {
    kind: Kind,
    begun: Timestamp,
    expected: f64,
    /// `None` for a request that only a dry run admitted.
    admission: Option<Admission>,
    /// `None` for such a request, and for one of a customer without a hard limit.
    charge: Option<Charge>,
    /// The same for the limit over the fleet.
    fleet: Option<FleetCharge>,
}

impl Entry {
    /// The expected cost of its own code, in CPU-seconds of this machine.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.expected
    }

    /// CPU-seconds of this machine at which [`Gate::progress`] is due, if the request goes on.
    #[must_use]
    pub fn progress_due(&self) -> f64 {
        let counted = self.admission.as_ref().map_or(self.expected, |admission| admission.counted);
        let counted = if self.fleet.is_some() { counted.min(self.expected) } else { counted };
        self.charge.as_ref().map_or(counted, |charge| charge.taken().min(counted))
    }
}

/// The decision of a gate on a request.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum GateVerdict {
    /// The request is admitted. Its entry ends with it: [`Gate::end`] and the like.
    Admitted(Entry),
    /// The request is shed.
    Shed(Shed),
    /// A dry run admitted a request that would be shed.
    WouldShed(Entry, Shed),
}

impl GateVerdict {
    /// The entry of an admitted request.
    #[must_use]
    pub fn entry(self) -> Option<Entry> {
        self.into_parts().0
    }

    /// The reason to shed the request, also in a dry run.
    #[must_use]
    pub const fn shed(&self) -> Option<Shed> {
        match self {
            Self::Admitted(_) => None,
            Self::Shed(shed) | Self::WouldShed(_, shed) => Some(*shed),
        }
    }

    /// Both, for callers that count.
    #[must_use]
    pub fn into_parts(self) -> (Option<Entry>, Option<Shed>) {
        let shed = self.shed();
        match self {
            Self::Admitted(entry) | Self::WouldShed(entry, _) => (Some(entry), shed),
            Self::Shed(_) => (None, shed),
        }
    }
}

/// The observable state of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// CPU-seconds of the process since its start.
    pub cpu: f64,
    /// CPU-seconds charged to requests since then.
    pub charged: f64,
    /// Requests that run or could run now.
    pub runnable: f64,
    /// Those of them that are known to be whole requests with a CPU or waiting for one; zero if
    /// unknown.
    pub queued: f64,
}

/// The reaction to overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Shed the least important requests.
    #[default]
    Protect,
    /// Report the requests that would be shed, and admit them.
    DryRun,
}

/// The gate of a server.
///
/// ```
/// use plimsoll_core::admit::{AdmissionConfig, Arrival, Gate, GateVerdict, Mode, Observation, Quota};
/// use plimsoll_core::meter::Kind;
/// use plimsoll_core::signal::Gauges;
/// use plimsoll_core::{Criticality, Timestamp};
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let cpus = AdmissionConfig::new(2.0).expect("it is finite and above zero");
/// let mut gate = Gate::new(Timestamp::ZERO, cpus, Mode::Protect, Observation::default());
/// let arrival = Arrival {
///     criticality: Criticality::Critical, kind: Kind { route: 1, customer: 1 },
///     quota: Quota::UNLIMITED, timeout: None, cohort: None, is_retry: false,
/// };
/// let (mut admitted, mut charged) = (0, 0.0);
/// for millis in 0..10_000 {
///     let now = Timestamp::from_nanos(millis * 1_000_000);
///     match gate.ask(now, &arrival, &mut rng) {
///         GateVerdict::Admitted(entry) | GateVerdict::WouldShed(entry, _) => {
///             gate.end(now, entry, 0.004); // CPU-seconds, measured
///             (admitted, charged) = (admitted + 1, charged + 0.004);
///         }
///         GateVerdict::Shed(shed) => assert_eq!(shed.reason.row().http, 503),
///     }
///     if millis % 10 == 0 {
///         gate.observe(now, Observation { cpu: charged, charged, ..Default::default() }, &Gauges::default());
///     }
/// }
/// assert!((4_500..5_500).contains(&admitted), "{admitted}: two CPUs serve 500 a second");
/// ```
#[derive(Clone, Debug)]
pub struct Gate {
    mode: Mode,
    outlook: Outlook,
    speed: Speed,
    limits: Limits,
    ranked: RankedAdmission,
    costs: Costs,
    overhead: Overhead,
    fitted: CostFit,
    smoothed: SignalSmoother,
    /// CPUs that the server may use.
    cpus: f64,
    /// The gauges of the last sample.
    gauges: Gauges,
    /// The highest gauge when one was last above its line.
    scarce: Signal,
    requests: u64,
    /// `None` without limits over the fleet.
    fleet: Option<Box<Limiter>>,
    /// The refusal of the last request by such a limit.
    refused: Option<Refused>,
}

impl Gate {
    /// The gate of a server that has already used this much.
    #[must_use]
    pub fn new(now: Timestamp, config: AdmissionConfig, mode: Mode, seen: Observation) -> Self {
        Self {
            mode,
            outlook: config.outlook,
            speed: config.speed,
            limits: Limits::new(Limits::DEFAULT_CUSTOMERS),
            overhead: Overhead::new(config.capacity(), used(now, seen, 0)),
            fitted: CostFit::new(now, config.capacity(), seen.cpu),
            cpus: config.capacity(),
            ranked: RankedAdmission::new(now, config),
            costs: Costs::new(Costs::DEFAULT_KINDS),
            smoothed: SignalSmoother::new(now, seen.cpu),
            gauges: Gauges::default(),
            scarce: Signal::Gauge,
            requests: 0,
            fleet: None,
            refused: None,
        }
    }

    /// Enforces limits over the fleet from now on. Their costs are in reference CPU-microseconds.
    pub fn set_fleet_limits(&mut self, limiter: Limiter) {
        self.fleet = Some(Box::new(limiter));
    }

    /// The limits over the fleet, if there are some.
    pub fn fleet_limits(&mut self) -> Option<&mut Limiter> {
        self.fleet.as_deref_mut()
    }

    /// The refusal of the last request by a limit over the fleet, also by one in a dry run.
    #[must_use]
    pub fn refused_by_fleet(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// The same as [`ask`](Self::ask), for the customer of this name.
    pub fn ask_for(&mut self, now: Timestamp, name: &[u8], arrival: &Arrival, rng: &mut impl Random) -> GateVerdict {
        self.refused = None;
        let Some(limiter) = &mut self.fleet else { return self.ask(now, arrival, rng) };
        let &Arrival { criticality, kind, cohort, .. } = arrival;
        let expected = self.costs.expected(kind) + self.overhead.per_request();
        let cost = self.speed.reference(expected) * MICROS;
        let draw = cohort::draw_of(cohort, rng);
        let request = LimitedRequest { customer: kind.customer, name, criticality, cost, draw };
        let accounts;
        (accounts, self.refused) = limiter.ask(now, &request);
        let fair = limiter.fair_share(now, kind.customer, accounts, criticality).unwrap_or(arrival.quota.own_share());
        self.ranked.set_fleet_overload(limiter.fleet_overload());
        match self.refused.filter(|refused| !refused.is_dry_run) {
            None => {
                let mut verdict = self.ask_with(now, arrival, fair, rng);
                if let (GateVerdict::Admitted(entry) | GateVerdict::WouldShed(entry, _), Some(limiter)) =
                    (&mut verdict, &mut self.fleet)
                {
                    entry.fleet = limiter.take(accounts, cost);
                }
                verdict
            }
            Some(refused) => {
                self.requests += 1;
                let shed = limits::refusal(refused.wait(), rng);
                if self.mode == Mode::DryRun {
                    let expected = self.costs.expected(kind);
                    let entry = Entry { kind, begun: now, expected, admission: None, charge: None, fleet: None };
                    return GateVerdict::WouldShed(entry, shed);
                }
                self.ranked.overhead(now, self.overhead.per_request());
                GateVerdict::Shed(shed)
            }
        }
    }

    /// Decides on a request.
    pub fn ask(&mut self, now: Timestamp, arrival: &Arrival, rng: &mut impl Random) -> GateVerdict {
        self.ask_with(now, arrival, arrival.quota.own_share(), rng)
    }

    /// The same with this share of the customer.
    fn ask_with(
        &mut self,
        now: Timestamp,
        arrival: &Arrival,
        FairShare { share, demand }: FairShare,
        rng: &mut impl Random,
    ) -> GateVerdict {
        let &Arrival { criticality, kind, quota, timeout, cohort, is_retry } = arrival;
        let quota = quota.on(self.speed);
        self.requests += 1;
        let expected = self.costs.expected(kind);
        let beside = self.overhead.per_request();
        let cost = match self.outlook {
            Outlook::Optimistic => expected,
            Outlook::Pessimistic => self.costs.high(kind),
        };
        let ask = Ask {
            criticality,
            customer: kind.customer,
            share,
            demand: demand.map(|demand| self.speed.local(demand)),
            cost: cost + beside,
            overhead: beside,
            deadline: timeout.map(|timeout| now + timeout),
            cohort,
            is_retry,
        };
        let verdict = match self.limits.ask(now, &ask, quota, rng) {
            None => self.ranked.admit(now, &ask, rng),
            Some(shed) => Verdict::Shed(shed),
        };
        if self.mode == Mode::Protect
            && let Some(limiter) = &mut self.fleet
        {
            match &verdict {
                Verdict::Admit(_) => limiter.on_request(now, criticality, false),
                Verdict::Shed(shed) if shed.reason.is_shortage() => limiter.on_request(now, criticality, true),
                Verdict::Shed(_) => {}
            }
        }
        match verdict {
            Verdict::Admit(admission) => {
                let charge = self.limits.take(now, &ask, quota);
                GateVerdict::Admitted(Entry {
                    kind,
                    begun: now,
                    expected,
                    admission: Some(admission),
                    charge,
                    fleet: None,
                })
            }
            Verdict::Shed(shed) if self.mode == Mode::DryRun => {
                let entry = Entry { kind, begun: now, expected, admission: None, charge: None, fleet: None };
                GateVerdict::WouldShed(entry, shed)
            }
            Verdict::Shed(shed) => {
                self.ranked.overhead(now, beside);
                GateVerdict::Shed(shed)
            }
        }
    }

    /// The expected cost of a request of this kind, with overhead, in reference CPU-seconds.
    #[must_use]
    pub fn expected(&self, kind: Kind) -> f64 {
        self.speed.reference(self.costs.expected(kind) + self.overhead.per_request())
    }

    /// The hard limit of a customer and its use of it, in reference CPU-seconds; `None` without a
    /// hard limit.
    #[must_use]
    pub fn standing(&mut self, now: Timestamp, customer: u64, quota: Quota) -> Option<Standing> {
        let Standing { limit, used, debt } = self.limits.standing(now, customer, quota.on(self.speed))?;
        let [limit, used, debt] = [limit, used, debt].map(|local| self.speed.reference(local));
        Some(Standing { limit, used, debt })
    }

    /// A running request has used this many CPU-seconds of this machine so far: see [`RankedAdmission::progress`]
    /// and [`Limits::progress`].
    pub fn progress(&mut self, now: Timestamp, entry: &mut Entry, used: f64) {
        entry.expected = entry.expected.max(2.0 * used);
        if let Some(admission) = &mut entry.admission {
            self.ranked.progress(now, admission, used);
        }
        if let Some(charge) = &mut entry.charge {
            self.limits.progress(now, charge, used);
        }
        if let (Some(charge), Some(limiter)) = (&mut entry.fleet, &mut self.fleet) {
            let used = self.speed.reference(used) * MICROS;
            if used >= charge.taken {
                limiter.correct(charge, 2.0 * used);
            }
        }
    }

    /// A request has ended with a measured use, in CPU-seconds of this machine.
    pub fn end(&mut self, now: Timestamp, entry: Entry, used: f64) {
        self.costs.observe(entry.kind, used);
        self.settle(now, entry, used);
    }

    /// A request has ended without a measurement. It counts with its expected cost, until more is
    /// known of all requests that ended with it.
    pub fn end_unmeasured(&mut self, now: Timestamp, entry: Entry) {
        let expected = self.costs.expected(entry.kind);
        self.fitted.end(entry.kind, expected);
        self.settle(now, entry, expected);
    }

    /// A request has ended, and the server reports its use in reference CPU-seconds. A report above
    /// any plausible cost counts as none. A request counts with no more than all CPUs can have done
    /// in its time.
    pub fn end_reported(&mut self, now: Timestamp, entry: Entry, used: f64) {
        if !(0.0..=MAX_REPORTED).contains(&used) {
            return self.end_unmeasured(now, entry);
        }
        let used = self.speed.local(used);
        let counted = self.fitted.end_reported(entry.kind, used).unwrap_or(entry.expected);
        let meanwhile = self.cpus * (now.since(entry.begun) + AHEAD).as_secs_f64();
        let most = meanwhile.max(entry.expected);
        self.settle(now, entry, counted.min(most));
    }

    /// A request was abandoned before its answer, and only the server knows whether it continues.
    pub fn end_abandoned(&mut self, now: Timestamp, entry: Entry) {
        let expected = self.costs.expected(entry.kind);
        self.fitted.end(entry.kind, expected);
        if let Some(admission) = entry.admission {
            self.ranked.abandon(now, admission);
        }
        let used = expected + self.overhead.per_request();
        if let Some(charge) = entry.charge {
            self.limits.finish(now, charge, used);
        }
        self.settle_fleet(entry.fleet, used);
    }

    /// An admitted request has ended without reaching the server. It used nothing there, and says
    /// nothing of the costs of its kind.
    pub fn end_unsent(&mut self, now: Timestamp, entry: Entry) {
        self.give_back(now, entry, 0.0);
    }

    /// Ends an admitted request that used this many CPU-seconds in its own code.
    fn settle(&mut self, now: Timestamp, entry: Entry, used: f64) {
        self.give_back(now, entry, used + self.overhead.per_request());
    }

    /// Ends an admitted request that counts with this many CPU-seconds in all.
    fn give_back(&mut self, now: Timestamp, entry: Entry, used: f64) {
        if let Some(admission) = entry.admission {
            self.ranked.finish(now, admission, used);
        }
        if let Some(charge) = entry.charge {
            self.limits.finish(now, charge, used);
        }
        self.settle_fleet(entry.fleet, used);
    }

    fn settle_fleet(&mut self, charge: Option<FleetCharge>, used: f64) {
        if let (Some(mut charge), Some(limiter)) = (charge, &mut self.fleet) {
            limiter.correct(&mut charge, self.speed.reference(used) * MICROS);
        }
    }

    /// CPU-seconds were used that no request in progress is charged with.
    pub fn add_late_use(&mut self, now: Timestamp, used: f64) {
        self.ranked.overhead(now, used);
    }

    /// Takes a sample of the server, every 10 ms or less often. `gauges` are the loads beside CPU;
    /// they may be as old as the time between their own samples.
    pub fn observe(&mut self, now: Timestamp, seen: Observation, gauges: &Gauges) {
        self.overhead.sample(used(now, seen, self.requests));
        self.fitted.sample(now, seen.cpu, &mut self.costs);
        let signals = self.smoothed.sample(now, seen.cpu, seen.runnable);
        self.gauges = *gauges;
        let (highest, gauge) = gauges.highest().unwrap_or((Signal::Gauge, 0.0));
        if gauge > 1.0 {
            self.scarce = highest;
        }
        match self.mode {
            Mode::Protect => {
                self.ranked.on_queued(now, seen.queued);
                self.ranked.on_signals(now, signals, gauge);
            }
            // The dry run does not act on the load: its excess requests are still in the queue.
            // They would look like a lack of CPU, and other requests would be counted as shed.
            Mode::DryRun => {
                self.ranked.measure(now, signals);
            }
        }
    }

    /// The process is visible again, and has used this much CPU. Requests that ended in between say
    /// nothing of costs.
    pub fn resume(&mut self, now: Timestamp, seen: Observation) {
        self.fitted.restart(now, seen.cpu);
    }

    /// Changes the CPUs that the process may use, of its own machine. No other setting of `config` has an effect.
    pub fn resize(&mut self, now: Timestamp, config: AdmissionConfig) {
        self.cpus = config.capacity();
        self.overhead.resize(self.cpus);
        self.fitted.resize(self.cpus);
        self.ranked.resize(now, config);
    }

    /// CPUs that the server may use, of its own machine.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.cpus
    }

    /// The speed of its machine.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The signals of the last sample.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.smoothed.last()
    }

    /// The load of the server by each signal, and the signal that causes shedding.
    #[must_use]
    pub fn loads(&self, now: Timestamp) -> Loads {
        let [cpu, queue] = self.ranked.loads();
        let Gauges { memory, cpu_pressure, memory_pressure, own } = self.gauges;
        Loads {
            by_signal: [Some(cpu), Some(queue), memory, cpu_pressure, memory_pressure, own],
            binding: self.ranked.binding(now, self.scarce),
        }
    }

    /// How close the gate is to shedding requests of this criticality.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        self.ranked.pressure(criticality)
    }
}

fn used(now: Timestamp, seen: Observation, requests: u64) -> UsageTotals {
    let wall = now.nanos_since(Timestamp::ZERO) as f64 * 1e-9;
    UsageTotals { wall, cpu: seen.cpu, charged: seen.charged, requests }
}

#[cfg(test)]
mod tests;

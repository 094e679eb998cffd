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

use rand_core::Rng;

use super::{
    Admission, AdmissionConfig, Ask, Charge, Limits, Pressure, Quota, RankedAdmission, Shed, Standing, Verdict, cohort,
    limits,
};
use crate::meter::{CostFit, Costs, Kind, Overhead, UsageTotals};
use crate::outlook::Outlook;
use crate::quota::{FleetCharge, LimitedRequest, Limiter, Refused};
use crate::signal::{Gauges, Loads, Signal, SignalSmoother, Signals};
use crate::{Criticality, Speed, Timestamp};

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
    pub fn ask_for(
        &mut self,
        now: Timestamp,
        name: &[u8],
        arrival: &Arrival,
        rng: &mut impl Rng,
    ) -> (Option<Entry>, Option<Shed>) {
        self.refused = None;
        let Some(limiter) = &mut self.fleet else { return self.ask(now, arrival, rng) };
        let &Arrival { criticality, kind, cohort, .. } = arrival;
        let expected = self.costs.expected(kind) + self.overhead.per_request();
        let cost = self.speed.reference(expected) * MICROS;
        let draw = cohort::draw_of(cohort, rng);
        let request = LimitedRequest { customer: kind.customer, name, criticality, cost, draw };
        let accounts;
        (accounts, self.refused) = limiter.ask(now, &request);
        let share = limiter.share(now, kind.customer, accounts).unwrap_or(arrival.quota.share.as_f64());
        self.ranked.set_fleet_overload(limiter.fleet_overload());
        match self.refused.filter(|refused| !refused.is_dry_run) {
            None => {
                let (mut entry, shed) = self.ask_with(now, arrival, share, rng);
                if let (Some(entry), Some(limiter)) = (&mut entry, &mut self.fleet) {
                    entry.fleet = limiter.take(accounts, cost);
                }
                (entry, shed)
            }
            Some(refused) => {
                self.requests += 1;
                let shed = limits::refusal(refused.wait(), rng);
                if self.mode == Mode::DryRun {
                    let expected = self.costs.expected(kind);
                    let entry = Entry { kind, begun: now, expected, admission: None, charge: None, fleet: None };
                    return (Some(entry), Some(shed));
                }
                self.ranked.overhead(now, self.overhead.per_request());
                (None, Some(shed))
            }
        }
    }

    /// Decides on a request. A dry run may return both an entry and the reason for which it would
    /// be shed.
    pub fn ask(&mut self, now: Timestamp, arrival: &Arrival, rng: &mut impl Rng) -> (Option<Entry>, Option<Shed>) {
        self.ask_with(now, arrival, arrival.quota.share.as_f64(), rng)
    }

    /// The same with this share of the customer.
    fn ask_with(
        &mut self,
        now: Timestamp,
        arrival: &Arrival,
        share: f64,
        rng: &mut impl Rng,
    ) -> (Option<Entry>, Option<Shed>) {
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
                (Some(Entry { kind, begun: now, expected, admission: Some(admission), charge, fleet: None }), None)
            }
            Verdict::Shed(shed) if self.mode == Mode::DryRun => {
                (Some(Entry { kind, begun: now, expected, admission: None, charge: None, fleet: None }), Some(shed))
            }
            Verdict::Shed(shed) => {
                self.ranked.overhead(now, beside);
                (None, Some(shed))
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
mod tests {
    extern crate std;

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::Rejection;
    use crate::quota::{self, Refusal};

    const MS: u64 = 1_000_000;
    const ARRIVAL: Arrival = Arrival {
        criticality: Criticality::Critical,
        kind: Kind { route: 1, customer: 1 },
        quota: Quota::UNLIMITED,
        timeout: None,
        cohort: None,
        is_retry: false,
    };

    /// The source of a request's CPU use.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Measured {
        Itself,
        Nobody,
    }

    /// Runs one core for ten seconds with 2,000 requests a second. Each uses 1 ms in its own code
    /// and 0.25 ms of overhead, which shed requests use, too. Returns the requests admitted and
    /// shed in the last second.
    fn overload(mode: Mode, measured: Measured) -> (u64, u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut gate =
            Gate::new(Timestamp::ZERO, AdmissionConfig::new(1.0).expect("a core"), mode, Observation::default());
        let mut seen = Observation::default();
        let mut running = std::collections::VecDeque::new();
        // CPU-seconds of work that the core still has to do.
        let mut work: f64 = 0.0;
        let (mut taken, mut shed) = (0, 0);
        for n in 0..20_000_u64 {
            let now = Timestamp::from_nanos(n * MS / 2);
            let step = work.min(0.0005);
            work -= step;
            seen.cpu += step;
            while running.front().is_some_and(|(done, _)| *done <= seen.cpu) {
                let (_, entry) = running.pop_front().expect("just seen");
                match measured {
                    Measured::Itself => {
                        seen.charged += 0.001;
                        gate.end(now, entry, 0.001);
                    }
                    Measured::Nobody => gate.end_unmeasured(now, entry),
                }
            }
            if n % 20 == 0 {
                if measured == Measured::Nobody {
                    seen.charged = seen.cpu;
                }
                gate.observe(now, seen, &Gauges::default());
            }
            let (entry, refusal) = gate.ask(now, &ARRIVAL, &mut rng);
            work += 0.00025 + if entry.is_some() { 0.001 } else { 0.0 };
            if n >= 18_000 {
                taken += u64::from(entry.is_some());
                shed += u64::from(refusal.is_some());
            }
            running.extend(entry.map(|entry| (seen.cpu + work, entry)));
        }
        (taken, shed)
    }

    #[test]
    fn overhead_leaves_less_capacity_for_requests() {
        // 2,000 times 0.25 ms are half of the core.
        let (taken, shed) = overload(Mode::Protect, Measured::Itself);
        assert!((450..=510).contains(&taken), "{taken}");
        assert_eq!(taken + shed, 2_000);
    }

    #[test]
    fn unmeasured_cpu_is_charged_to_admitted_requests() {
        // Shed requests use the same half of the core, and all of it is taken for the cost of the
        // others.
        let (taken, shed) = overload(Mode::Protect, Measured::Nobody);
        assert!((400..=510).contains(&taken), "{taken}");
        assert_eq!(taken + shed, 2_000);
    }

    #[test]
    fn dry_run_sheds_no_request_for_its_own_queue() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        for (mode, is_shed) in [(Mode::Protect, true), (Mode::DryRun, false)] {
            let mut gate =
                Gate::new(Timestamp::ZERO, AdmissionConfig::new(1.0).expect("a core"), mode, Observation::default());
            let _in_progress = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng);
            let now = Timestamp::from_nanos(20 * MS);
            let seen = Observation { cpu: 0.02, charged: 0.02, runnable: 1_000.0, queued: 1_000.0 };
            gate.observe(now, seen, &Gauges::default());
            assert_eq!(gate.ask(now, &ARRIVAL, &mut rng).1.is_some(), is_shed, "{mode:?}");
        }
    }

    /// Sends a request of 10 ms every 50 ms to one core, with a limit of half of it for the
    /// customer. The process reports `said(n)`. Returns the requests shed in the last tenth of the
    /// run.
    fn of_a_limited_customer(said: impl Fn(u64) -> f64) -> usize {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut gate = one_core();
        let arrival = Arrival { quota: Quota { most: Some(0.5), ..Quota::UNLIMITED }, ..ARRIVAL };
        let (mut seen, mut shed) = (Observation::default(), 0);
        for n in 0..200_u64 {
            let now = Timestamp::from_nanos(n * 50 * MS);
            gate.observe(now, seen, &Gauges::default());
            let (entry, refusal) = gate.ask(now, &arrival, &mut rng);
            if let Some(entry) = entry {
                seen.cpu += 0.01;
                seen.charged += 0.01;
                gate.end_reported(Timestamp::from_nanos((n * 50 + 12) * MS), entry, said(n));
            }
            shed += usize::from(n >= 180 && refusal.is_some());
        }
        shed
    }

    #[test]
    fn wrong_report_of_one_request_does_not_shut_its_customer_out() {
        assert_eq!(of_a_limited_customer(|_| 0.01), 0);
        assert_eq!(of_a_limited_customer(|n| if n == 100 { 1e6 } else { 0.01 }), 0, "one");
        assert_eq!(of_a_limited_customer(|n| if n >= 100 { 10.0 } else { 0.01 }), 0, "milliseconds from here on");
    }

    #[test]
    fn dry_run_admits_all_and_reports_requests_to_shed() {
        let (taken, shed) = overload(Mode::DryRun, Measured::Itself);
        assert_eq!(taken, 2_000);
        assert!(shed > 1_000, "{shed}");
    }

    /// Sends two requests each 10 ms to one core, a thousand in all, with this timeout. Each uses
    /// 20 µs as soon as it is admitted. Returns the requests admitted in the first half, and in the
    /// second.
    fn in_time(gate: &mut Gate, from: Timestamp, timeout: Duration) -> [usize; 2] {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let arrival = Arrival { timeout: Some(timeout), ..ARRIVAL };
        let mut admitted = [0; 2];
        for n in 0..500_u32 {
            let now = from + n * Duration::from_millis(10);
            let both = [(); 2].map(|()| gate.ask(now, &arrival, &mut rng).0);
            for entry in both.into_iter().flatten() {
                admitted[n as usize / 250] += 1;
                gate.end(now + Duration::from_micros(20), entry, 20e-6);
            }
        }
        admitted
    }

    fn one_core() -> Gate {
        let config = AdmissionConfig::new(1.0).expect("a core");
        Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default())
    }

    #[test]
    fn short_deadline_is_admitted_when_costs_are_unknown() {
        let [first, second] = in_time(&mut one_core(), Timestamp::ZERO, Duration::from_micros(900));
        assert!(first >= 498 && second == 500, "{first} {second}");
    }

    #[test]
    fn short_deadline_is_admitted_again_after_a_slow_start() {
        let mut gate = one_core();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let entry = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng).0.expect("there is headroom");
        let now = Timestamp::from_nanos(800 * MS);
        gate.end(now, entry, 0.8);
        let [first, second] = in_time(&mut gate, now, Duration::from_millis(500));
        assert!(first >= 495 && second == 500, "{first} {second}");
    }

    #[test]
    fn unsent_request_uses_nothing_and_teaches_nothing() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let config = AdmissionConfig::new(1.0).expect("a core");
        let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        let cost = gate.expected(ARRIVAL.kind);
        // Four times the capacity of the core in these ten seconds. The core uses a fiftieth of the
        // time for work of its own.
        for n in 0..40_000_u64 {
            let now = Timestamp::from_nanos(n * MS / 4);
            let (entry, shed) = gate.ask(now, &ARRIVAL, &mut rng);
            gate.end_unsent(now, entry.unwrap_or_else(|| panic!("{n}: {shed:?}")));
            if n % 80 == 0 {
                let cpu = n as f64 * 0.00025 * 0.02;
                gate.observe(now, Observation { cpu, charged: cpu, runnable: 0.0, queued: 0.0 }, &Gauges::default());
            }
        }
        assert_eq!(gate.expected(ARRIVAL.kind), cost);
    }

    #[test]
    fn impossible_reports_are_ignored() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let config = AdmissionConfig::new(1.0).expect("a core");
        let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        let mut cpu = 0.0;
        // 200 requests a second use 2 ms each and report it, except for a few.
        for n in 0..4_000_u64 {
            let now = Timestamp::from_nanos(n * 5 * MS);
            let (entry, shed) = gate.ask(now, &ARRIVAL, &mut rng);
            let entry = entry.unwrap_or_else(|| panic!("{n}: {shed:?}"));
            let said = match n {
                1_000 | 1_001 => 1e308,
                1_500 => f64::INFINITY,
                1_501 => f64::NAN,
                1_502 => -1e308,
                _ => 0.002,
            };
            gate.end_reported(now, entry, said);
            cpu += 0.002;
            if n % 4 == 0 {
                gate.observe(now, Observation { cpu, charged: cpu, runnable: 0.0, queued: 0.0 }, &Gauges::default());
            }
            let expected = gate.expected(ARRIVAL.kind);
            assert!(n < 900 || (expected - 0.002).abs() < 0.0001, "{n}: {expected}");
        }
    }

    /// Sends a request of 1 ms every 0.5 ms for two seconds to a server of eight cores, with a
    /// limit of a tenth of a core. Returns the requests admitted, and the requests found above the
    /// limit.
    fn limited(mode: Mode) -> (u64, u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut gate =
            Gate::new(Timestamp::ZERO, AdmissionConfig::new(8.0).expect("cores"), mode, Observation::default());
        let arrival = Arrival { quota: Quota::hard(0.1).expect("a limit"), ..ARRIVAL };
        let (mut taken, mut over) = (0, 0);
        for n in 0..4_000_u64 {
            let now = Timestamp::from_nanos(n * MS / 2);
            let (entry, shed) = gate.ask(now, &arrival, &mut rng);
            over += u64::from(shed.is_some_and(|shed| shed.reason == Rejection::Quota));
            if let Some(mut entry) = entry {
                taken += 1;
                if entry.progress_due() < 0.0009 {
                    gate.progress(now, &mut entry, 0.0005);
                }
                gate.end(now, entry, 0.001);
            }
        }
        (taken, over)
    }

    #[test]
    fn customer_stays_within_its_hard_limit_on_an_idle_server() {
        let (taken, over) = limited(Mode::Protect);
        assert!((185..=202).contains(&taken), "{taken}");
        assert_eq!(taken + over, 4_000);
    }

    #[test]
    fn quota_refusal_has_the_limit_and_the_use() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let config = AdmissionConfig::new(8.0).expect("cores");
        let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        let quota = Quota::hard(0.1).expect("a limit");
        let arrival = Arrival { quota, ..ARRIVAL };
        let now = |n| Timestamp::from_nanos(n * MS / 2);
        let (mut used, mut refusals) = (0.0, 0);
        for n in 0..4_000 {
            let (entry, shed) = gate.ask(now(n), &arrival, &mut rng);
            if let Some(entry) = entry {
                gate.end(now(n), entry, 0.001);
            }
            let standing = gate.standing(now(n), ARRIVAL.kind.customer, quota).expect("it has a limit");
            assert!(standing.limit == 0.1 && (0.0..0.1001).contains(&standing.used), "{n}: {standing:?}");
            if n >= 2_000 && shed.is_some() {
                (used, refusals) = (used + standing.used, refusals + 1);
            }
        }
        // Refusals are spread over each second, so the use at one of them may be below the limit.
        let mean = used / f64::from(refusals);
        assert!(refusals > 1_800 && (0.07..=0.1).contains(&mean), "{refusals} refusals at {mean} CPUs");
        assert_eq!(gate.standing(now(4_000), ARRIVAL.kind.customer, Quota::UNLIMITED), None);
        let stranger = gate.standing(now(4_000), 7, quota).expect("it has a limit");
        assert_eq!((stranger.used, stranger.debt), (0.0, 0.0));
        let nothing = Quota::hard(0.0).expect("a limit");
        assert_eq!(gate.standing(now(4_000), 7, nothing).map(|standing| standing.limit), Some(0.0));
    }

    #[test]
    fn dry_run_admits_and_reports_a_customer_above_its_limit() {
        let (taken, over) = limited(Mode::DryRun);
        assert!(taken == 4_000 && (3_798..=3_815).contains(&over), "{taken} {over}");
    }

    /// The binding signals of one core after two seconds with two requests of 1 ms each
    /// millisecond, and two seconds later.
    fn binding(runnable: f64, gauges: Gauges) -> [Option<Signal>; 2] {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let config = AdmissionConfig::new(1.0).expect("a core");
        let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        let mut running = std::collections::VecDeque::new();
        let at = |ms: u64| Timestamp::from_nanos(ms * MS);
        for ms in 0..2_000 {
            if let Some(entry) = running.pop_front() {
                gate.end(at(ms), entry, 0.001);
            }
            if ms % 10 == 0 {
                let cpu = ms as f64 * 0.97e-3;
                gate.observe(at(ms), Observation { cpu, charged: cpu, runnable, queued: 0.0 }, &gauges);
            }
            for _ in 0..2 {
                running.extend(gate.ask(at(ms), &ARRIVAL, &mut rng).0);
            }
        }
        let loads = gate.loads(at(2_000));
        assert!(loads.known().all(|(signal, load)| load > 0.0 || signal == Signal::Cpu), "{loads:?}");
        [loads.binding, gate.loads(at(4_000)).binding]
    }

    #[test]
    fn binding_signal_is_the_cause_of_shedding() {
        let memory = Gauges { memory: Some(2.0), ..Gauges::default() };
        let both = Gauges { own: Some(3.0), ..memory };
        let calm = Gauges { memory: Some(0.9), memory_pressure: Some(0.1), ..Gauges::default() };
        for (runnable, gauges, signal) in [
            (4.0, calm, Signal::Cpu),
            (200.0, calm, Signal::LoadAverage),
            (4.0, memory, Signal::Memory),
            (4.0, both, Signal::Gauge),
            (200.0, memory, Signal::Memory),
        ] {
            assert_eq!(binding(runnable, gauges), [Some(signal), None], "{runnable} {gauges:?}");
        }
        let config = AdmissionConfig::new(1.0).expect("a core");
        let idle = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
        assert_eq!(idle.loads(Timestamp::ZERO).binding, None);
    }

    #[test]
    fn pessimistic_outlook_counts_the_likely_highest_cost() {
        let counted = |outlook| {
            let mut config = AdmissionConfig::new(8.0).expect("cores");
            config.outlook = outlook;
            let mut rng = Pcg64Mcg::seed_from_u64(3);
            let mut gate = Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default());
            for n in 0..1_000 {
                let (entry, _) = gate.ask(Timestamp::from_nanos(n * MS), &ARRIVAL, &mut rng);
                let entry = entry.expect("there is headroom");
                gate.end(Timestamp::from_nanos(n * MS), entry, if n % 2 == 0 { 0.001 } else { 0.003 });
            }
            let (entry, _) = gate.ask(Timestamp::from_nanos(1_000 * MS), &ARRIVAL, &mut rng);
            entry.expect("there is headroom").progress_due()
        };
        // A mean of 2 ms, and a mean deviation of 1 ms.
        assert!((counted(Outlook::Optimistic) - 0.002).abs() < 0.0002, "{}", counted(Outlook::Optimistic));
        assert!((counted(Outlook::Pessimistic) - 0.004).abs() < 0.0004, "{}", counted(Outlook::Pessimistic));
    }

    /// A gate after a hundred requests of 3 ms in a second, with an overhead of 2 ms each.
    fn known() -> (Gate, Timestamp) {
        let mut gate = one_core();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        for n in 0..100 {
            let now = Timestamp::from_nanos(n * 10 * MS);
            let entry = gate.ask(now, &ARRIVAL, &mut rng).0.expect("there is headroom");
            gate.end(now, entry, 0.003);
        }
        let now = Timestamp::from_nanos(1_000 * MS);
        gate.observe(now, Observation { cpu: 0.5, charged: 0.3, ..Observation::default() }, &Gauges::default());
        (gate, now)
    }

    fn assert_close(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.01, "{got}, not {expected}");
    }

    #[test]
    fn expected_cost_includes_overhead_but_not_in_an_entry() {
        let (mut gate, now) = known();
        assert_close(gate.expected(ARRIVAL.kind), 0.005);
        let mut entry = gate.ask(now, &ARRIVAL, &mut Pcg64Mcg::seed_from_u64(3)).0.expect("there is headroom");
        assert_close(entry.expected(), 0.003);
        assert_close(entry.progress_due(), 0.005);
        gate.progress(now, &mut entry, 0.005);
        assert_close(entry.expected(), 0.01);
        assert_close(entry.progress_due(), 0.01);
    }

    /// A gate with many cores of this speed.
    fn on(speed: Speed) -> Gate {
        let mut config = AdmissionConfig::new(8.0).expect("cores");
        config.speed = speed;
        Gate::new(Timestamp::ZERO, config, Mode::Protect, Observation::default())
    }

    fn speed(speed: f64) -> Speed {
        Speed::new(speed).expect("within the range")
    }

    #[test]
    fn quota_admits_the_same_requests_on_fast_and_slow_machines() {
        let quota = Quota::hard(0.1).expect("a limit");
        let arrival = Arrival { quota, ..ARRIVAL };
        // Requests of 1 ms on the reference core, two a millisecond, for two seconds.
        let admitted = |speed: Speed| {
            let (mut gate, mut rng) = (on(speed), Pcg64Mcg::seed_from_u64(3));
            let (mut admitted, mut most) = (0, 0.0_f64);
            for n in 0..4_000 {
                let now = Timestamp::from_nanos(n * MS / 2);
                if let Some(entry) = gate.ask(now, &arrival, &mut rng).0 {
                    admitted += 1;
                    gate.end(now, entry, speed.local(0.001));
                }
                let standing = gate.standing(now, ARRIVAL.kind.customer, quota).expect("it has a limit");
                assert!((standing.limit - 0.1).abs() < 1e-12, "{standing:?}");
                most = most.max(standing.used);
            }
            assert!((0.09..=0.1001).contains(&most), "{most} reference CPUs at speed {speed}");
            admitted
        };
        for speed in [0.25, 1.0, 4.0].map(speed) {
            let admitted = admitted(speed);
            assert!((185..=202).contains(&admitted), "{admitted} at speed {speed}");
        }
    }

    #[test]
    fn expected_cost_goes_out_in_reference_seconds() {
        let (mut gate, mut rng) = (on(speed(4.0)), Pcg64Mcg::seed_from_u64(3));
        for n in 0..100 {
            let now = Timestamp::from_nanos(n * 10 * MS);
            let entry = gate.ask(now, &ARRIVAL, &mut rng).0.expect("there is headroom");
            gate.end(now, entry, 0.003);
        }
        let entry = gate.ask(Timestamp::from_nanos(1_000 * MS), &ARRIVAL, &mut rng).0.expect("there is headroom");
        assert_close(entry.expected(), 0.003);
        assert_close(gate.expected(ARRIVAL.kind), 0.012);
    }

    #[test]
    fn reported_costs_come_in_as_reference_seconds() {
        let slow = speed(0.25);
        let (mut gate, mut rng) = (on(slow), Pcg64Mcg::seed_from_u64(3));
        let kinds = [(Kind { route: 1, customer: 1 }, 0.04), (Kind { route: 2, customer: 1 }, 0.002)];
        let mut cpu = 0.0;
        for n in 0..1_000 {
            let now = Timestamp::from_nanos(n * 10 * MS);
            let (kind, local) = kinds[n as usize % 2];
            let seen = Observation { cpu, charged: cpu, ..Observation::default() };
            gate.observe(now, seen, &Gauges::default());
            let entry = gate.ask(now, &Arrival { kind, ..ARRIVAL }, &mut rng).0.expect("there is headroom");
            gate.end_reported(now, entry, slow.reference(local));
            cpu += local;
        }
        // Taken for local seconds, most of the use would look like work in no report, and the kinds
        // alike.
        for (kind, local) in kinds {
            let expected = gate.expected(kind);
            assert!((expected / slow.reference(local) - 1.0).abs() < 0.1, "{expected} for {kind:?}");
        }
    }

    #[test]
    fn abandoned_request_is_charged_its_expected_cost() {
        let (mut gate, now) = known();
        let quota = Quota::hard(0.5).expect("a limit");
        let arrival = Arrival { quota, ..ARRIVAL };
        let mut entry = gate.ask(now, &arrival, &mut Pcg64Mcg::seed_from_u64(3)).0.expect("there is headroom");
        gate.progress(now, &mut entry, 0.02);
        let used = |gate: &mut Gate| gate.standing(now, ARRIVAL.kind.customer, quota).expect("it has a limit").used;
        // The window is 0.7% longer than a second.
        assert_close(used(&mut gate), 0.04);
        gate.end_abandoned(now, entry);
        assert_close(used(&mut gate), 0.005);
    }

    #[test]
    fn cpu_used_after_the_end_of_a_request_delays_the_others() {
        let (mut gate, now) = (one_core(), Timestamp::from_nanos(1_000 * MS));
        assert_eq!(gate.pressure(Criticality::Critical), Pressure::None);
        gate.add_late_use(now, 0.05);
        assert_eq!(gate.pressure(Criticality::Critical), Pressure::Severe);
    }

    #[test]
    fn resized_server_is_loaded_by_its_new_cpus() {
        let (mut gate, now) = (one_core(), Timestamp::from_nanos(1_000 * MS));
        gate.resize(Timestamp::ZERO, AdmissionConfig::new(2.5).expect("cores"));
        assert_eq!(gate.capacity(), 2.5);
        gate.observe(now, Observation { cpu: 1.0, charged: 1.0, ..Observation::default() }, &Gauges::default());
        assert_close(gate.signals().cpus, 1.0);
        assert_close(gate.loads(now).by_signal[0].expect("known"), 1.0 / (2.5 * 0.98));
    }

    #[test]
    fn unobserved_requests_say_nothing_of_costs() {
        let mut gate = one_core();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        for _ in 0..10 {
            let entry = gate.ask(Timestamp::ZERO, &ARRIVAL, &mut rng).0.expect("there is headroom");
            gate.end_unmeasured(Timestamp::ZERO, entry);
        }
        let before = gate.expected(ARRIVAL.kind);
        let seen = Observation { cpu: 5.0, charged: 5.0, ..Observation::default() };
        gate.resume(Timestamp::from_nanos(100 * MS), seen);
        gate.observe(Timestamp::from_nanos(200 * MS), seen, &Gauges::default());
        assert_eq!(gate.expected(ARRIVAL.kind), before);
    }

    #[test]
    fn gauge_at_1_takes_no_headroom_and_does_not_bind() {
        let mut gate = one_core();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let now = Timestamp::from_nanos(251 * MS);
        let memory = |memory| Gauges { memory: Some(memory), ..Gauges::default() };
        gate.observe(Timestamp::from_nanos(250 * MS), Observation::default(), &memory(2.0));
        gate.observe(now, Observation::default(), &Gauges { own: Some(1.0), ..memory(0.5) });
        assert!((0..1_000).any(|_| gate.ask(now, &ARRIVAL, &mut rng).1.is_some()), "too many at once");
        assert_eq!(gate.loads(now).binding, Some(Signal::Memory));
    }

    /// A gate of one idle core with a limit of 0.5 CPUs over a fleet of one task, of which it holds the floor.
    fn fleet_gate(mode: Mode, speed: Speed) -> Gate {
        let mut config = AdmissionConfig::new(1.0).expect("CPUs");
        config.speed = speed;
        let mut gate = Gate::new(Timestamp::ZERO, config, mode, Observation::default());
        let mut limiter = Limiter::new(Timestamp::ZERO);
        let limits = quota::Limits { others: Some(quota::Limit::new(500_000)), ..quota::Limits::default() };
        limiter.set_limits(Timestamp::ZERO, 1, limits);
        gate.set_fleet_limits(limiter);
        gate
    }

    /// CPU-seconds of this machine that a customer uses in 20 s, of which it asks for all.
    fn used_by_fleet_limit(gate: &mut Gate) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let mut used = 0.0;
        for ms in 0..20_000 {
            let now = Timestamp::from_nanos(ms * MS);
            if let (Some(entry), _) = gate.ask_for(now, b"ann", &ARRIVAL, &mut rng) {
                gate.end(now, entry, 0.001);
                used += 0.001;
            }
        }
        used
    }

    #[test]
    fn customer_of_a_fleet_uses_the_rate_of_this_task() {
        // The floor is 2% of the limit: 10 ms a second of the reference core.
        for (speed, expected) in [(1.0, 0.2), (2.0, 0.1)] {
            let mut gate = fleet_gate(Mode::Protect, Speed::new(speed).expect("a speed"));
            let used = used_by_fleet_limit(&mut gate);
            assert!((used / expected - 1.0).abs() < 0.1, "speed {speed}: {used} instead of {expected}");
            let refused = gate.refused_by_fleet().expect("the last request was refused");
            assert_eq!((refused.refusal, refused.standing.limit), (Refusal::Spent, 500_000));
        }
    }

    #[test]
    fn fleet_limit_refuses_nothing_in_a_dry_run_of_the_gate() {
        let mut gate = fleet_gate(Mode::DryRun, Speed::REFERENCE);
        let used = used_by_fleet_limit(&mut gate);
        assert!(used > 19.9 && gate.refused_by_fleet().is_some(), "{used}");
    }

    #[test]
    fn request_that_never_ran_gives_its_fleet_charge_back() {
        let mut gate = fleet_gate(Mode::Protect, Speed::REFERENCE);
        let mut rng = Pcg64Mcg::seed_from_u64(6);
        for _ in 0..1_000 {
            let (entry, _) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng);
            gate.end_unsent(Timestamp::ZERO, entry.expect("nothing was used"));
        }
    }

    #[test]
    fn long_request_is_charged_to_the_fleet_limit_while_it_runs() {
        let mut gate = fleet_gate(Mode::Protect, Speed::REFERENCE);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let (entry, _) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng);
        let mut entry = entry.expect("nothing was used");
        let due = entry.progress_due();
        gate.progress(Timestamp::ZERO, &mut entry, due.max(0.5));
        let (next, shed) = gate.ask_for(Timestamp::ZERO, b"ann", &ARRIVAL, &mut rng);
        assert_eq!((next, shed.map(|shed| shed.reason)), (None, Some(Rejection::Quota)));
    }
}
